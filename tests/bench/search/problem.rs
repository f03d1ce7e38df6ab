//! Planning problems: chains of layers by formula, and profile documents of them.

use anyhow::{Context, Result};
use loadmaster_predict::layer_table::TablePredictor;
use loadmaster_predict::{Margin, Predictor};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::model::layer::elements;
use loadmaster_proto::model::zoo::{AmoebaNet, Zoo};
use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_proto::training::{Schedule, TrainingSpec};
use loadmaster_samples::training;
use loadmaster_search::cost::{KindOfDevice, PriceTerms, Pricing};
use loadmaster_search::{Choice, Cuts, Fleet, FleetNode, Kind, Link, LinkOrigin, Places, Question, Spanning};
use loadmaster_tests::{TableRow, layer_rows, table_document};
use serde_json::Value;

/// Which formula the layers' times follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Times between 1 and 2 seconds, cheap edges.
    Chain,
    /// Times between 0.1 and 4 seconds, edges that matter.
    Het,
}

/// A chain of layers.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) name: String,
    /// Samples per iteration, one per micro-batch.
    pub(crate) num_microbatches: u32,
    /// Seconds that one unit of volume takes between two stages.
    pub(crate) p2p_seconds_per_unit: f64,
    /// Both passes of one micro-batch through each layer, seconds.
    pub(crate) time_s: Vec<f64>,
    /// What crosses the edge after each layer.
    pub(crate) boundary_volume: Vec<f64>,
    /// Parameters of each layer.
    pub(crate) param_size: Vec<f64>,
    /// What each layer keeps for its backward pass.
    pub(crate) activation_size: Vec<f64>,
}

impl Chain {
    /// The chain of this length by its formula.
    pub(crate) fn of(flavour: Flavour, layers: usize) -> Self {
        let wave = |factor: usize, modulus: usize| {
            (0..layers).map(|l| 1.0 + ((l * factor) % modulus) as f64 / modulus as f64).collect::<Vec<f64>>()
        };
        let (name, time_s, p2p_seconds_per_unit) = match flavour {
            Flavour::Chain => ("chain", wave(7919, 97), 0.01),
            Flavour::Het => {
                let time = |l: usize| {
                    let phase = ((31 * l * l + 17 * l) % 101) as f64 / 101.0;
                    0.1 + 3.9 * phase * phase
                };
                ("het", (0..layers).map(time).collect(), 0.5)
            }
        };
        Self {
            name: format!("{name}-L{layers}"),
            num_microbatches: 32,
            p2p_seconds_per_unit,
            time_s,
            boundary_volume: wave(104_729, 89),
            param_size: wave(15_485_863, 83),
            activation_size: wave(32_452_843, 79),
        }
    }

    pub(crate) fn layers(&self) -> usize {
        self.time_s.len()
    }
}

/// Bytes of a unit of volume. Volumes are multiples of 1/89, so bytes are whole and seconds exact.
pub(crate) const BYTES_PER_VOLUME: f64 = 89e6;

/// A profile of the chain whose layers have these rows; training is SGD in fp32 with one sample per pass.
fn profile(
    chain: &Chain,
    micro_batches: u32,
    rows: impl Fn(usize) -> Vec<TableRow>,
) -> Result<ProfileDocument> {
    let edge = |layer: Option<usize>| {
        let volume = layer.and_then(|layer| chain.boundary_volume.get(layer));
        volume.map_or(0, |volume| (volume * BYTES_PER_VOLUME).round() as u64)
    };
    let layer = |layer: usize| {
        let edges = [edge(layer.checked_sub(1)), edge(Some(layer))];
        let rows: Vec<TableRow> = rows(layer).into_iter().map(|row| TableRow { edges, ..row }).collect();
        layer_rows(layer, &rows)
    };
    let layers: Vec<Value> = (0..chain.layers()).map(layer).collect();
    let parameters = chain.param_size.iter().map(|size| (size * 83e4).round() as u64).enumerate();
    let names = parameters.map(|(layer, parameters)| (format!("layer{layer}"), parameters));
    let training = TrainingSpec { seed: 0, ..training(Schedule::OneFOneB, 1, micro_batches) };
    // The formulas have the sums of shards in their seconds, and what they say is exact.
    let provenance = ["a problem by formula", "bench search", "imagined", "allocated"];
    let document = table_document(provenance, (&chain.name, names), &training, &layers);
    ProfileDocument::parse(&document.to_string()).context("the problem makes no profile document")
}

/// One sample on so many shards; both passes take these seconds.
fn one_sample(shards: u32, seconds: f64, parameter_bytes: u64, activation_bytes: u64) -> TableRow {
    TableRow {
        at: (1, shards),
        seconds: [seconds / 3.0, seconds - seconds / 3.0],
        update_seconds: None,
        parameter_bytes,
        activation_bytes,
        edges: [0; 2],
    }
}

/// The predictor over it.
pub(crate) fn table(document: &ProfileDocument) -> Result<TablePredictor> {
    Ok(TablePredictor::new(document)?)
}

/// AMP's problem: whole layers on one device, seconds as the formula has them.
pub(crate) fn whole_layers(chain: &Chain) -> Result<ProfileDocument> {
    profile(chain, chain.num_microbatches, |layer| vec![row(chain, layer, 1, chain.time_s[layer])])
}

/// Alpa's problem: n devices take `t / n · (1 + 0.05 log2 n) + 0.02 (n − 1) / n · w` seconds.
pub(crate) fn shared_layers(chain: &Chain, most_devices: u32) -> Result<ProfileDocument> {
    profile(chain, chain.num_microbatches, |layer| {
        powers_of_two(most_devices)
            .map(|n| {
                let devices = f64::from(n);
                let computing = chain.time_s[layer] / devices * (1.0 + 0.05 * devices.log2());
                let exchanging = 0.02 * (devices - 1.0) / devices * chain.param_size[layer];
                row(chain, layer, n, computing + exchanging)
            })
            .collect()
    })
}

fn row(chain: &Chain, layer: usize, shards: u32, seconds: f64) -> TableRow {
    let share = |volume: f64| (volume * 1e6 / f64::from(shards)).round() as u64;
    let parameters = share(4.0 * 83.0 * chain.param_size[layer]);
    one_sample(shards, seconds, parameters, share(100.0 * 79.0 * chain.activation_size[layer]))
}

/// CAPTURE's problem: replicas share a stage's `most_devices` samples, shards its tensors. Bytes alone.
pub(crate) fn samples(chain: &Chain, most_devices: u32) -> Result<ProfileDocument> {
    let mut document = shared_layers(chain, most_devices)?;
    // A stage pass of as many samples as there may be replicas.
    if let Some(training) = &mut document.training {
        training.micro_batch_size = most_devices;
        training.micro_batches = 4;
    }
    Ok(document)
}

/// A GPT-2 of these blocks at hidden size and sequence 1,024, in half precision, as tables of its kind have it: one
/// sample per row; devices this many times slower than the reference.
pub(crate) fn gpt2(blocks: usize, global_batch: u32, slower: f64) -> Result<ProfileDocument> {
    const HIDDEN: f64 = 1024.0;
    const SEQUENCE: f64 = 1024.0;
    let layers = blocks + 2;
    let is_block = |layer: usize| (1..=blocks).contains(&layer);
    let chain = Chain {
        name: format!("gpt2-{blocks}"),
        num_microbatches: global_batch,
        p2p_seconds_per_unit: 0.0,
        time_s: (0..layers)
            .map(|layer| match layer {
                0 => 0.4e-3,
                _ if is_block(layer) => 9e-3,
                _ => 14e-3,
            })
            .map(|seconds| seconds * slower)
            .collect(),
        boundary_volume: vec![2.0 * HIDDEN * SEQUENCE / BYTES_PER_VOLUME; layers],
        param_size: vec![0.0; layers],
        activation_size: vec![0.0; layers],
    };
    profile(&chain, global_batch, |layer| {
        let parameters = if is_block(layer) { 12.0 * HIDDEN * HIDDEN } else { 50_304.0 * HIDDEN };
        let kept = if is_block(layer) {
            34.0 * HIDDEN * SEQUENCE + 5.0 * 16.0 * SEQUENCE * SEQUENCE
        } else {
            2.0 * HIDDEN * SEQUENCE
        };
        let row = |n: u32| {
            let devices = f64::from(n);
            // Sharded work, and the all-reduces of activations that a table's times contain.
            let exchanging = if n > 1 { 0.4e-3 * (devices - 1.0) / devices } else { 0.0 };
            let seconds = chain.time_s[layer] / devices * (1.0 + 0.05 * devices.log2()) + exchanging;
            one_sample(n, seconds, (2.0 * parameters / devices) as u64, (kept / devices) as u64)
        };
        powers_of_two(8).map(row).collect()
    })
}

/// AmoebaNet-D with bytes that follow from its shapes: four bytes a parameter, and of each layer's activations
/// its output five times.
pub(crate) fn zoo(cells: u32, filters: u32) -> Result<ProfileDocument> {
    let (cells, filters) = (cells.into(), filters.into());
    let model = Zoo::AmoebaNetD(AmoebaNet { cells, filters, ..AmoebaNet::default() }).build()?;
    let layers = model.layers().len();
    let edge = |k: usize| model.edge(k).iter().map(|shape| 4 * elements(shape)).sum::<u64>();
    let chain = Chain {
        name: model.slug(),
        num_microbatches: 4,
        p2p_seconds_per_unit: 0.0,
        time_s: vec![1.0; layers],
        boundary_volume: (1..=layers).map(|k| edge(k) as f64 / BYTES_PER_VOLUME).collect(),
        param_size: vec![0.0; layers],
        activation_size: vec![0.0; layers],
    };
    profile(&chain, 4, |layer| {
        let parameters = 4 * model.layers()[layer].kind.parameter_count();
        vec![one_sample(1, 1.0, parameters, 5 * edge(layer + 1))]
    })
}

/// Everything but the prices, which are a part of what is timed.
pub(crate) struct Problem {
    predictor: TablePredictor,
    training: TrainingSpec,
    choices: Vec<Choice>,
    fleet: Fleet,
    places: Places,
}

/// What the devices of a problem are.
pub(crate) struct Devices {
    pub(crate) nodes: u32,
    pub(crate) per_node: u32,
    pub(crate) capacity: u64,
    pub(crate) spanning: Spanning,
    /// Of every link.
    pub(crate) bytes_per_second: f64,
}

/// A node of so many devices of a kind, with links inside and to others.
pub(crate) fn node(name: String, kind: usize, devices: u32, [inside, outside]: [Link; 2]) -> FleetNode {
    let (one_transfer, domains, unlike) = (None, Vec::new(), None);
    FleetNode { name, kind, devices, whole: devices, inside, outside, one_transfer, domains, unlike }
}

/// These kinds of devices on these nodes.
pub(crate) fn fleet(kinds: Vec<Kind>, nodes: Vec<FleetNode>) -> Fleet {
    Fleet { kinds, nodes, tiers: Vec::new(), is_one_node: false, may_grow: true }
}

impl Devices {
    /// One node with links that cost nothing.
    pub(crate) fn one_node(per_node: u32) -> Self {
        Self {
            nodes: 1,
            per_node,
            capacity: u64::MAX >> 1,
            spanning: Spanning::Never,
            bytes_per_second: 1e30,
        }
    }

    /// The nodes, all alike.
    pub(crate) fn fleet(&self) -> Fleet {
        let link =
            Link { bytes_per_second: self.bytes_per_second, latency_seconds: 0.0, origin: LinkOrigin::Given };
        let node = |index| node(format!("node{index}"), 0, self.per_node, [link; 2]);
        let (name, capacity) = ("imagined".to_owned(), Bytes(self.capacity));
        fleet(vec![Kind { name, capacity, hourly_price: None }], (0..self.nodes).map(node).collect())
    }
}

impl Problem {
    /// Stages of a document on devices.
    pub(crate) fn new(document: &ProfileDocument, devices: &Devices, choices: Vec<Choice>) -> Result<Self> {
        let training = document.training.context("the problem names its training")?;
        let fleet = devices.fleet();
        let mut sizes: Vec<u32> = choices.iter().map(|choice| choice.devices()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let places = Places::in_order(&fleet, &sizes, devices.spanning);
        Ok(Self { predictor: table(document)?, training, choices, fleet, places })
    }

    /// Prices all stages and asks.
    pub(crate) fn ask<R>(
        &self,
        schedule: Schedule,
        answer: impl FnOnce(&Question<'_, Pricing<'_>>) -> R,
    ) -> R {
        let kinds = [KindOfDevice::new(&self.predictor)];
        let training = TrainingSpec { schedule, ..self.training };
        let terms = PriceTerms {
            training,
            choices: &self.choices,
            links: self.places.links(),
            margin: Margin::Share(0.0),
            model: None,
        };
        let pricing = Pricing::new(&kinds, terms);
        let all: Vec<usize> = (0..self.choices.len()).collect();
        let layers = self.predictor.layers();
        answer(&Question {
            costs: &pricing,
            fleet: &self.fleet,
            places: &self.places,
            choices: &all,
            schedule,
            micro_batches: training.micro_batches,
            stages: 1..=layers,
            cuts: &Cuts::anywhere(layers),
            within_capacity: false,
        })
    }
}

/// Powers of two up to `most`.
pub(crate) fn powers_of_two(most: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1_u32), |n| n.checked_mul(2)).take_while(move |&n| n <= most)
}

/// Tensor shards alone.
pub(crate) fn shards(tensor: u32) -> Choice {
    Choice { tensor, ..Choice::SINGLE }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formulas give the numbers that other planners were given: the sums over 48 layers.
    #[test]
    fn formulas_give_the_published_inputs() {
        for (flavour, seconds) in [(Flavour::Chain, 70.989_690_722), (Flavour::Het, 61.624_693_657)] {
            let Chain { time_s, boundary_volume, param_size, activation_size, .. } = Chain::of(flavour, 48);
            let published = [seconds, 71.820_224_719, 74.469_879_518, 72.582_278_481];
            let own = [time_s, boundary_volume, param_size, activation_size];
            for (own, published) in own.iter().zip(published) {
                let sum: f64 = own.iter().sum();
                assert!((sum - published).abs() < 1e-8, "{sum} is not {published}");
            }
        }
    }
}
