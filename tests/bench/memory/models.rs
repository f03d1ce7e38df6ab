//! The paper's models, stage by stage: what a layer keeps, how many bytes a parameter needs, and how long a pass takes.
//!
//! The paper gives parameter counts and bytes, not shapes. These give both within 3 % (`largest`).

use loadmaster_planning::actions::{LayerBlocks, StageBlocks};
use loadmaster_planning::iteration::Order;
use loadmaster_planning::iteration::copies::LayerSeconds;
use loadmaster_proto::training::Schedule;

/// Stages of every pipeline of the paper.
pub(crate) const STAGES: usize = 8;

/// What trains a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// Numbers of 4 bytes, Adam, and the weights of every micro-batch in flight.
    PipeDream,
    /// 1F1B in mixed precision, with gradients in both formats.
    Dapple,
}

/// One of the paper's models.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaperModel {
    pub(crate) name: &'static str,
    pub(crate) system: System,
    layers: u32,
    hidden: u32,
}

/// The models of Fig. 7.
pub(crate) const BERT: [PaperModel; 5] = [
    bert("BERT-0.35B", 24, 1024),
    bert("BERT-0.64B", 48, 1024),
    bert("BERT-1.67B", 32, 2048),
    bert("BERT-4B", 78, 2048),
    bert("BERT-6.2B", 122, 2048),
];

/// The models of Fig. 8.
pub(crate) const GPT: [PaperModel; 5] = [
    gpt("GPT-5.3B", 25),
    gpt("GPT-10.3B", 50),
    gpt("GPT-15.4B", 75),
    gpt("GPT-20.4B", 100),
    gpt("GPT-25.5B", 125),
];

const fn bert(name: &'static str, layers: u32, hidden: u32) -> PaperModel {
    PaperModel { name, system: System::PipeDream, layers, hidden }
}

const fn gpt(name: &'static str, layers: u32) -> PaperModel {
    PaperModel { name, system: System::Dapple, layers, hidden: 4096 }
}

/// Bytes a second that an update reads and writes.
const UPDATE_BYTES_PER_SECOND: f64 = 900e9;

impl PaperModel {
    /// The model of this name.
    pub(crate) fn named(name: &str) -> Self {
        *BERT.iter().chain(&GPT).find(|model| model.name == name).unwrap_or(&BERT[0])
    }

    pub(crate) fn order(&self) -> Order {
        match self.system {
            System::PipeDream => Order::PipeDream,
            System::Dapple => Order::OneFOneB,
        }
    }

    pub(crate) fn schedule(&self) -> Schedule {
        match self.system {
            System::PipeDream => Schedule::PipeDream,
            System::Dapple => Schedule::OneFOneB,
        }
    }

    /// Samples and tokens of a micro-batch, vocabulary, and attention heads.
    fn sizes(&self) -> [f64; 4] {
        match self.system {
            System::PipeDream => [12.0, 512.0, 30_522.0, f64::from(self.hidden) / 64.0],
            System::Dapple => [2.0, 1024.0, 50_257.0, 32.0],
        }
    }

    fn layer_parameters(&self) -> f64 {
        let hidden = f64::from(self.hidden);
        12.0 * hidden * hidden + 13.0 * hidden
    }

    fn embedding_parameters(&self) -> f64 {
        let [_, tokens, vocabulary, _] = self.sizes();
        (vocabulary + tokens) * f64::from(self.hidden)
    }

    pub(crate) fn parameters(&self) -> f64 {
        f64::from(self.layers) * self.layer_parameters() + self.embedding_parameters()
    }

    /// What a layer keeps of a micro-batch.
    fn kept(&self) -> f64 {
        let ([samples, tokens, _, heads], hidden) = (self.sizes(), f64::from(self.hidden));
        let (linear, square) = (tokens * samples * hidden, heads * tokens * tokens * samples);
        match self.system {
            System::PipeDream => 66.0 * linear + 9.0 * square,
            System::Dapple => 34.0 * linear + 5.0 * square,
        }
    }

    /// What it hands on.
    pub(crate) fn edge_bytes(&self) -> u64 {
        let [samples, tokens, ..] = self.sizes();
        let each = if self.system == System::PipeDream { 4.0 } else { 2.0 };
        (each * samples * tokens * f64::from(self.hidden)) as u64
    }

    /// The stages, on devices of so many FLOP a second.
    pub(crate) fn stages(&self, flops_per_second: f64) -> Vec<StageBlocks> {
        let mut first_layer = 0;
        let of = |stage: usize| {
            let (pieces, each, embedding) = self.pieces(stage);
            let in_flight = (STAGES - stage) as u64;
            let layer = |index: usize| {
                let own = if index == 0 { embedding } else { 0.0 };
                self.layer(
                    each,
                    each * self.layer_parameters() + own + self.spread() / pieces as f64,
                    flops_per_second,
                )
            };
            // PipeDream's stages also hold the input that came over the edge.
            let fixed = if self.system == System::PipeDream { in_flight * self.edge_bytes() } else { 0 };
            let stage = StageBlocks { first_layer, layers: (0..pieces).map(layer).collect(), fixed };
            first_layer += pieces;
            stage
        };
        (0..STAGES).map(of).collect()
    }

    /// Layers of a stage, which part of a layer each is, and the parameters of its embedding. BERT's stages have whole layers,
    /// the first ones more; GPT's are an eighth of the model each, cut into equal pieces.
    fn pieces(&self, stage: usize) -> (usize, f64, f64) {
        let layers = self.layers as usize;
        match self.system {
            System::PipeDream => {
                let own = layers / STAGES + usize::from(stage < layers % STAGES);
                (own, 1.0, if stage == 0 { self.embedding_parameters() } else { 0.0 })
            }
            System::Dapple => {
                let pieces = layers.div_ceil(STAGES);
                (pieces, f64::from(self.layers) / (STAGES * pieces) as f64, 0.0)
            }
        }
    }

    /// Parameters of the embedding that each stage has a part of.
    fn spread(&self) -> f64 {
        if self.system == System::Dapple { self.embedding_parameters() / STAGES as f64 } else { 0.0 }
    }

    /// A part of a layer with so many parameters.
    fn layer(&self, part: f64, parameters: f64, flops_per_second: f64) -> LayerBlocks {
        let ([samples, tokens, ..], hidden) = (self.sizes(), f64::from(self.hidden));
        let flops = 24.0 * samples * tokens * hidden * hidden + 4.0 * samples * tokens * tokens * hidden;
        let forward = part * flops / flops_per_second;
        // Weights with master weights, gradients, optimizer state, and a version of each micro-batch in flight.
        let [weights, gradients, optimizer, versions] = match self.system {
            System::PipeDream => [4.0, 4.0, 8.0, 4.0],
            System::Dapple => [6.0, 6.0, 8.0, 0.0],
        };
        let bytes = |each: f64| (parameters * each) as u64;
        let update = bytes(weights + gradients + optimizer) as f64 / UPDATE_BYTES_PER_SECOND;
        LayerBlocks {
            seconds: LayerSeconds { forward, backward: 2.0 * forward, again: forward, update },
            activations: (part * self.kept()) as u64,
            input: (part * self.edge_bytes() as f64) as u64,
            versions: bytes(versions),
            weights: bytes(weights),
            gradients: bytes(gradients),
            optimizer: bytes(optimizer),
            working: (part * self.kept() / 2.0) as u64,
        }
    }
}
