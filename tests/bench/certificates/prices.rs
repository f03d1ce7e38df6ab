//! What a stage needs and takes.
//!
//! Bytes are those that the documentation of imported tables promises, seconds those of its pricing: layers added up,
//! gradients summed around a ring over the replicas in buckets of 25 MiB, activations over the link between stages.

use loadmaster_oracle::{
    Batch, Bytes, Device, Fleet, Link, Prices, Recompute, Seconds, Sharding, Stage, groups_at_once, rings,
};

use crate::certificates::scene::{Accounting, Row, Scene};

/// Most bytes that are summed in one turn around a ring.
const BUCKET_BYTES: u64 = 25 << 20;

/// How what is shared between devices is priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// An edge takes what the busier of both sides needs; otherwise what the receiving side needs.
    pub(crate) larger_side: bool,
    /// The rings of a stage that run at once share the links between its nodes.
    pub(crate) rings_share: bool,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { larger_side: true, rings_share: true }
    }
}

/// Layers in a row on one device of one kind.
#[derive(Debug, Clone, Copy)]
struct Run {
    forward: f64,
    backward: f64,
    update: f64,
    parameters: u64,
    activations: u64,
    /// Of all layers, and of the first.
    inputs: u64,
    first_input: u64,
    largest_activation: u64,
    last_output: u64,
    transient: u64,
}

/// A device's share of a stage: by kind, first and last layer.
#[derive(Debug)]
pub(crate) struct Shares {
    layers: usize,
    runs: Vec<Option<Run>>,
    outputs: Vec<Option<u64>>,
}

/// One layer at one setting.
#[derive(Debug, Clone, Copy)]
struct Level {
    forward: f64,
    backward: f64,
    update: f64,
    parameters: u64,
    activation: u64,
    transient: u64,
    input: u64,
    output: u64,
}

impl Shares {
    /// All runs of layers with so many samples per device and shards per replica.
    fn read(scene: &Scene, samples: u32, tensor: u32) -> Self {
        let layers = scene.layers();
        let mut runs = vec![None; scene.kinds.len() * layers * layers];
        let mut outputs = Vec::new();
        for (index, kind) in scene.kinds.iter().enumerate() {
            let levels: Vec<Option<Level>> =
                kind.layers.iter().map(|layer| level(&layer.rows, samples, tensor)).collect();
            for first in 0..layers {
                for last in first..layers {
                    let own: Option<Vec<Level>> = levels[first..=last].iter().copied().collect();
                    runs[(index * layers + first) * layers + last] = own.map(|own| run(&own, scene.ledger));
                }
            }
            if index == 0 {
                outputs = levels.iter().map(|level| Some(level.as_ref()?.output)).collect();
            }
        }
        Self { layers, runs, outputs }
    }

    fn run(&self, kind: usize, first: usize, last: usize) -> Option<&Run> {
        self.runs[(kind * self.layers + first) * self.layers + last].as_ref()
    }

    /// What leaves a layer on one device.
    fn output(&self, layer: usize) -> u64 {
        self.outputs[layer].unwrap_or(0)
    }

    /// Seconds of the slowest of some kinds; none where one is not known.
    fn seconds(&self, stage: &Stage, kinds: u32, ring: Option<Link>) -> Option<Seconds> {
        let mut slowest = Seconds::default();
        for kind in kinds_of(kinds) {
            let run = self.run(kind, stage.first, stage.last)?;
            let mut backward = run.backward;
            if stage.policy != Recompute::None {
                backward += run.forward;
            }
            let sum = match ring {
                Some(link) if stage.data > 1 && run.parameters > 0 => {
                    // A reduce-scatter and an all-gather are an all-reduce: gradients here are as wide as weights.
                    all_reduce(run.parameters, stage.data, link)
                }
                _ => 0.0,
            };
            slowest.forward = slowest.forward.max(run.forward);
            slowest.backward = slowest.backward.max(backward);
            let update = match stage.sharding {
                Sharding::None => run.update,
                Sharding::Optimizer => run.update / f64::from(stage.data),
            };
            slowest.step = slowest.step.max(update + sum);
        }
        Some(slowest)
    }

    /// Bytes of the fullest of some kinds.
    fn peak(&self, scene: &Scene, stage: &Stage, kinds: u32, in_flight: u32) -> Option<u64> {
        let mut fullest = 0;
        for kind in kinds_of(kinds) {
            let run = self.run(kind, stage.first, stage.last)?;
            fullest = fullest.max(run.peak(scene, stage, u64::from(in_flight)));
        }
        Some(fullest)
    }
}

/// The prices of a scene's tables on the devices of a question.
#[derive(Debug)]
pub(crate) struct TablePrices<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) fleet: &'a Fleet,
    pub(crate) margin: f64,
    pub(crate) sharing: Sharing,
    /// Devices stand in the order of ranks that somebody chose, not node by node: links are those of each ring and of
    /// each rank's counterpart.
    pub(crate) by_ranks: bool,
}

impl TablePrices<'_> {
    fn kinds(&self, devices: &[Device]) -> u32 {
        devices.iter().fold(0, |kinds, &device| kinds | 1 << self.fleet.class(device).kind)
    }
}

impl Prices for TablePrices<'_> {
    type Way = Shares;

    fn way(&self, batch: Batch, data: u32, tensor: u32) -> Shares {
        Shares::read(self.scene, batch.size / data, tensor)
    }

    fn seconds(&self, way: &Shares, stage: &Stage, devices: &[Device], beside: usize) -> Option<Seconds> {
        let tensor = stage.tensor as usize;
        let link = match self.by_ranks {
            true => self.fleet.rings(devices, tensor),
            false => self.fleet.around(devices),
        };
        let at_once = match self.sharing.rings_share {
            true => (groups_at_once(devices, &rings(devices, tensor)) + beside) as f64,
            false => 1.0,
        };
        let ring = Link { bytes_per_second: link.bytes_per_second / at_once, ..link };
        way.seconds(stage, self.kinds(devices), Some(ring))
    }

    fn peak(&self, way: &Shares, stage: &Stage, devices: &[Device], in_flight: u32) -> Option<Bytes> {
        let predicted = way.peak(self.scene, stage, self.kinds(devices), in_flight)?;
        Some(Bytes { predicted, needed: needed(predicted, self.margin) })
    }

    fn edge(&self, before: (&Shares, &Stage, &[Device]), after: (&Shares, &Stage, &[Device])) -> f64 {
        let link = self.fleet.entry(before.2, after.2, self.by_ranks);
        let seconds = |way: &Shares| transfer(way.output(before.1.last), link);
        let receiving = seconds(after.0);
        if self.sharing.larger_side { receiving.max(seconds(before.0)) } else { receiving }
    }
}

impl Run {
    fn peak(&self, scene: &Scene, stage: &Stage, in_flight: u64) -> u64 {
        let training = &scene.training;
        let (width, master) = if training.is_bf16 { (2, 4) } else { (4, 0) };
        let scalars = self.parameters / width;
        let gradients = scalars * width;
        // The first replica of those that divide the optimizer's numbers has the largest part.
        let updated = match stage.sharding {
            Sharding::None => scalars,
            Sharding::Optimizer => scalars.div_ceil(u64::from(stage.data)),
        };
        let statics = scalars * width + gradients + updated * (master + 4 * training.state_scalars);
        let activations = match stage.policy {
            Recompute::None => in_flight * self.activations,
            Recompute::Stage => self.activations,
            Recompute::Layer => in_flight * (self.inputs - self.first_input) + self.largest_activation,
        };
        // A model's own input counts only where recomputation starts from it.
        let holds_input = stage.first > 0 || stage.policy != Recompute::None;
        let received = if holds_input { in_flight * self.first_input } else { 0 };
        let sent = if stage.last + 1 < scene.layers() { self.last_output } else { 0 };
        let summed = match (stage.data, stage.sharding) {
            (1, _) => 0,
            (_, Sharding::None) => gradients,
            (_, Sharding::Optimizer) => gradients.min(BUCKET_BYTES),
        };
        statics + activations + received + sent + summed + self.transient + scene.overhead_bytes
    }
}

fn kinds_of(kinds: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |kind| kinds & (1 << kind) != 0)
}

/// Seconds of a ring all-reduce: `2 (n − 1)` turns of an n-th of the bytes, each with the link's latency, and the
/// latency again for each further bucket.
fn all_reduce(bytes: u64, replicas: u32, link: Link) -> f64 {
    let (n, buckets) = (f64::from(replicas), bytes.div_ceil(BUCKET_BYTES) as f64);
    2.0 * (n - 1.0) * (bytes as f64 / (n * link.bytes_per_second) + buckets * link.latency_seconds)
}

/// Seconds of one transfer.
fn transfer(bytes: u64, link: Link) -> f64 {
    bytes as f64 / link.bytes_per_second + link.latency_seconds
}

/// Bytes that a capacity must hold for these.
fn needed(bytes: u64, margin: f64) -> u64 {
    bytes + (bytes as f64 * margin).ceil() as u64
}

fn run(levels: &[Level], ledger: Accounting) -> Run {
    let sum = |of: fn(&Level) -> u64| levels.iter().map(of).sum::<u64>();
    let seconds = |of: fn(&Level) -> f64| levels.iter().map(of).sum::<f64>();
    let most = |of: fn(&Level) -> u64| levels.iter().map(of).max().unwrap_or(0);
    let transient = match ledger {
        Accounting::Allocated => most(|level| level.transient),
        // An allocator keeps the blocks of every kind of layer.
        Accounting::Reserved => {
            let mut kinds: std::collections::BTreeMap<(u64, u64, u64), u64> =
                std::collections::BTreeMap::new();
            for level in levels {
                let most = kinds.entry((level.parameters, level.input, level.output)).or_default();
                *most = (*most).max(level.transient);
            }
            kinds.values().sum()
        }
    };
    Run {
        forward: seconds(|level| level.forward),
        backward: seconds(|level| level.backward),
        update: seconds(|level| level.update),
        parameters: sum(|level| level.parameters),
        activations: sum(|level| level.activation),
        inputs: sum(|level| level.input),
        first_input: levels[0].input,
        largest_activation: most(|level| level.activation),
        last_output: levels[levels.len() - 1].output,
        transient,
    }
}

/// A layer between its rows: of the tensor degree as listed, over samples along straight lines.
fn level(rows: &[Row], samples: u32, tensor: u32) -> Option<Level> {
    let mut rows: Vec<&Row> = rows.iter().filter(|row| row.tensor == tensor).collect();
    rows.sort_by_key(|row| row.size);
    let first = *rows.first()?;
    let read = |of: &dyn Fn(&Row) -> f64| -> f64 {
        if let Some(row) = rows.iter().find(|row| row.size == samples) {
            return of(row);
        }
        if rows.len() == 1 {
            return of(first) * f64::from(samples) / f64::from(first.size);
        }
        let above = rows.iter().position(|row| row.size > samples).unwrap_or(rows.len() - 1).max(1);
        let (low, high) = (rows[above - 1], rows[above]);
        let way = (f64::from(samples) - f64::from(low.size)) / (f64::from(high.size) - f64::from(low.size));
        (of(low) + (of(high) - of(low)) * way).max(0.0)
    };
    let bytes = |of: fn(&Row) -> u64| read(&|row| of(row) as f64).round() as u64;
    Some(Level {
        forward: read(&|row| row.forward),
        backward: read(&|row| row.backward),
        update: first.update,
        parameters: first.parameter_bytes,
        activation: bytes(|row| row.activation_bytes),
        transient: bytes(|row| row.transient_bytes),
        input: bytes(|row| row.input_bytes),
        output: bytes(|row| row.output_bytes),
    })
}
