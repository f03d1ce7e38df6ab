//! The paper's models and servers, and its planner asked about them.
//!
//! The paper gives parameter counts and bytes, not shapes. The shapes here give both within 3 % (Table II).

use std::time::Instant;

use loadmaster_memory::actions::optimizer::{self, Effort, FastestPlan, Known};
use loadmaster_memory::actions::paper::{PaperPlan, plan};
use loadmaster_memory::actions::{Allowed, LayerBlocks, NodeDevices, PlanError, Question, StageBlocks};
use loadmaster_proto::cluster::{CopyLink, Link, LinkOrigin};
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::Block;
use loadmaster_search::Stop;
use loadmaster_simulate::copies::LayerSeconds;
use loadmaster_simulate::{Order, Overlap};

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

/// A server of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// 8 V100 of 32 GB, a hybrid cube mesh, 768 GB.
    Dgx1,
    /// What the paper calls DGX-2: 8 A100 of 40 GB on a switch, 948 GB.
    Dgx2,
}

/// `NVLinks` between the devices of a DGX-1.
pub(crate) const CUBE_MESH: [[u32; STAGES]; STAGES] = [
    [0, 1, 2, 1, 0, 0, 0, 2],
    [1, 0, 1, 2, 0, 0, 2, 0],
    [2, 1, 0, 2, 0, 1, 0, 0],
    [1, 2, 2, 0, 1, 0, 0, 0],
    [0, 0, 0, 1, 0, 2, 2, 1],
    [0, 0, 1, 0, 2, 0, 1, 2],
    [0, 2, 0, 0, 2, 1, 0, 1],
    [2, 0, 0, 0, 1, 2, 1, 0],
];

/// One `NVLink` of a V100, as t5's ratio has it: four of them are 7.6 times as fast as the host.
pub(crate) const NVLINK: f64 = 23e9;
/// To the host, and between devices without `NVLink`: PCIe 3 with 16 lanes.
pub(crate) const HOST: f64 = 12e9;
/// Of a copy between two A100: an eighth part of what a device sends, so that copies to all others go side by side.
const SWITCHED: f64 = 34e9;
/// Seconds before a copy begins.
const LATENCY: f64 = 10e-6;
/// Bytes of a device that the driver's context has.
const CONTEXT: f64 = 0.5;

impl Server {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dgx1 => "8 x 32 GB, cube mesh",
            Self::Dgx2 => "8 x 40 GB, switch",
        }
    }

    /// Its devices.
    pub(crate) fn node(self) -> NodeDevices {
        let link =
            |bytes_per_second| Link { bytes_per_second, latency_seconds: LATENCY, origin: LinkOrigin::Given };
        let pair = |from: usize, to: usize| match (self, CUBE_MESH[from][to]) {
            (Self::Dgx2, _) => SWITCHED,
            (Self::Dgx1, 0) => HOST,
            (Self::Dgx1, links) => f64::from(links) * NVLINK,
        };
        let (gib, host_bytes) = match self {
            Self::Dgx1 => (32.0, 768_000_000_000),
            Self::Dgx2 => (40.0, 948_000_000_000),
        };
        let capacity = ((gib - CONTEXT) * f64::from(1 << 30)) as u64;
        let pairs = |from, to| link(pair(from, to));
        NodeDevices { host_bytes, ..node(capacity, link(HOST), Some(&pairs)) }
    }

    /// What a device computes in a second of what a system trains.
    pub(crate) fn flops(self, system: System) -> f64 {
        match (self, system) {
            (Self::Dgx1, System::PipeDream) => 10e12,
            (Self::Dgx2, System::PipeDream) => 15e12,
            (Self::Dgx1, System::Dapple) => 40e12,
            (Self::Dgx2, System::Dapple) => 100e12,
        }
    }
}

/// Eight devices of so many bytes, each with this link to the host, and with links between all of them or none.
pub(crate) fn node(capacity: u64, host: Link, pairs: Option<&dyn Fn(usize, usize) -> Link>) -> NodeDevices {
    let pair = |from, to| pairs.filter(|_| from != to).map(|link| link(from, to));
    NodeDevices {
        capacity: vec![capacity; STAGES],
        host: vec![CopyLink::full_duplex(host); STAGES],
        pairs: (0..STAGES).map(|from| (0..STAGES).map(|to| pair(from, to)).collect()).collect(),
        host_bytes: 0,
        hosts: Vec::new(),
        shared: Vec::new(),
        cores: None,
    }
}

/// What may be done to stages on a node under 1F1B, with stripes and without other mappings.
pub(crate) fn question<'a>(
    (stages, edge_bytes): (&'a [StageBlocks], &'a [u64]),
    micro_batches: u32,
    node: &'a NodeDevices,
    (allowed, blocks): (Allowed, &'a [Block]),
    stop: &'a Stop,
) -> Question<'a> {
    Question {
        stages,
        edge_bytes,
        order: Order::OneFOneB,
        micro_batches,
        overlap: Overlap::Computing,
        node,
        reserve: &[],
        allowed,
        blocks,
        smallest_block: 0,
        stripes: true,
        mappings: 0,
        stop,
    }
}

/// A system that the paper compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ways {
    Untouched,
    Recompute,
    Host,
    Peers,
    All,
}

impl Ways {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Recompute => "recompute",
            Self::Host => "host swap",
            Self::Peers => "D2D",
            Self::All => "all",
        }
    }

    fn allowed(self) -> Allowed {
        let is = |way| self == way || self == Self::All;
        Allowed { recompute: is(Self::Recompute), host: is(Self::Host), peers: is(Self::Peers) }
    }
}

/// How the links of a node are used: whether blocks are split over several, and how many mappings are simulated at most; 0
/// leaves stages in order.
pub(crate) type LinkUse = (bool, usize);

/// A model on a server.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) model: PaperModel,
    stages: Vec<StageBlocks>,
    node: NodeDevices,
    micro_batches: u32,
}

const BLOCKS: [Block; 5] =
    [Block::Activations, Block::Versions, Block::Weights, Block::Gradients, Block::Optimizer];

impl Case {
    pub(crate) fn of(model: PaperModel, server: Server, micro_batches: u32) -> Self {
        Self { model, stages: model.stages(server.flops(model.system)), node: server.node(), micro_batches }
    }

    /// The plan of one of the systems, and how long it took to find.
    pub(crate) fn plan(&self, ways: Ways, links: LinkUse) -> (Result<PaperPlan, PlanError>, f64) {
        self.asked(ways, links, plan)
    }

    /// The fastest plan that is found with these ways, and how long that took.
    pub(crate) fn chosen(&self, ways: Ways) -> (Result<FastestPlan, PlanError>, f64) {
        self.asked(ways, (true, 0), |question| optimizer::plan(question, Known::default(), Effort::All))
    }

    fn asked<T>(
        &self,
        ways: Ways,
        (stripes, mappings): LinkUse,
        plan: impl Fn(&Question<'_>) -> T,
    ) -> (T, f64) {
        let began = Instant::now();
        let edge_bytes = [self.model.edge_bytes(); STAGES - 1];
        // As what is asked for: none that every update makes anew.
        let schedule = self.model.schedule();
        let blocks: Vec<Block> = BLOCKS.into_iter().filter(|block| block.may_leave(schedule)).collect();
        let stages = (&self.stages[..], &edge_bytes[..]);
        let stop = Stop::default();
        let usual = question(stages, self.micro_batches, &self.node, (ways.allowed(), &blocks), &stop);
        let plan = plan(&Question { order: self.model.order(), stripes, mappings, ..usual });
        (plan, began.elapsed().as_secs_f64())
    }
}
