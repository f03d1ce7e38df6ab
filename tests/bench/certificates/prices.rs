//! What a stage needs and takes, and how long an iteration of such stages lasts.
//!
//! Bytes are those that the documentation of imported tables promises, seconds those of its pricing: layers added up,
//! gradients summed around a ring over the replicas in buckets of 25 MiB, activations over the link between stages.
//!
//! Every pass and every transfer of an iteration is an event that waits for others. A pass waits for the one before it on its
//! stage and for its input; a transfer for the pass that makes what it carries and for the one before it from that stage in that
//! direction. So all times are longest ways through these waits.

use crate::certificates::question::{Recompute, Schedule, Transfers};
use crate::certificates::scene::{Ledger, Link, Row, Scene};

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
    pub(crate) fn of(scene: &Scene, samples: u32, tensor: u32) -> Self {
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
    pub(crate) fn output(&self, layer: usize) -> u64 {
        self.outputs[layer].unwrap_or(0)
    }

    /// Seconds of the slowest of some kinds; none where one is not known.
    pub(crate) fn seconds(&self, stage: &Stage, kinds: u32, ring: Option<Link>) -> Option<Seconds> {
        let mut slowest = Seconds::default();
        for kind in kinds_of(kinds) {
            let run = self.run(kind, stage.first, stage.last)?;
            let mut backward = run.backward;
            if stage.policy != Recompute::None {
                backward += run.forward;
            }
            let sum = match ring {
                Some(link) if stage.data > 1 && run.parameters > 0 => {
                    all_reduce(run.parameters, stage.data, link)
                }
                _ => 0.0,
            };
            slowest.forward = slowest.forward.max(run.forward);
            slowest.backward = slowest.backward.max(backward);
            slowest.step = slowest.step.max(run.update + sum);
        }
        Some(slowest)
    }

    /// Bytes of the fullest of some kinds.
    pub(crate) fn peak(&self, scene: &Scene, stage: &Stage, kinds: u32, in_flight: u32) -> Option<u64> {
        let mut fullest = 0;
        for kind in kinds_of(kinds) {
            let run = self.run(kind, stage.first, stage.last)?;
            fullest = fullest.max(run.peak(scene, stage, u64::from(in_flight)));
        }
        Some(fullest)
    }
}

/// A stage's layers and how its devices share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) data: u32,
    pub(crate) tensor: u32,
    pub(crate) policy: Recompute,
}

impl Run {
    fn peak(&self, scene: &Scene, stage: &Stage, in_flight: u64) -> u64 {
        let training = &scene.training;
        let (width, master) = if training.is_bf16 { (2, 4) } else { (4, 0) };
        let scalars = self.parameters / width;
        let gradients = scalars * width;
        let statics = scalars * (width + master) + gradients + scalars * 4 * training.state_scalars;
        let activations = match stage.policy {
            Recompute::None => in_flight * self.activations,
            Recompute::Stage => self.activations,
            Recompute::Layer => in_flight * (self.inputs - self.first_input) + self.largest_activation,
        };
        // A model's own input counts only where recomputation starts from it.
        let holds_input = stage.first > 0 || stage.policy != Recompute::None;
        let received = if holds_input { in_flight * self.first_input } else { 0 };
        let sent = if stage.last + 1 < scene.layers() { self.last_output } else { 0 };
        let summed = if stage.data > 1 { gradients } else { 0 };
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
pub(crate) fn transfer(bytes: u64, link: Link) -> f64 {
    bytes as f64 / link.bytes_per_second + link.latency_seconds
}

/// Bytes that a capacity must hold for these.
pub(crate) fn needed(bytes: u64, margin: f64) -> u64 {
    bytes + (bytes as f64 * margin).ceil() as u64
}

fn run(levels: &[Level], ledger: Ledger) -> Run {
    let sum = |of: fn(&Level) -> u64| levels.iter().map(of).sum::<u64>();
    let seconds = |of: fn(&Level) -> f64| levels.iter().map(of).sum::<f64>();
    let most = |of: fn(&Level) -> u64| levels.iter().map(of).max().unwrap_or(0);
    let transient = match ledger {
        Ledger::Allocated => most(|level| level.transient),
        // An allocator keeps the blocks of every kind of layer.
        Ledger::Reserved => {
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

/// Seconds of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Seconds {
    pub(crate) forward: f64,
    pub(crate) backward: f64,
    pub(crate) step: f64,
}

/// When the last step ends. `edges` are the seconds of one transfer in either direction; one that blocks takes the time
/// of sender and receiver.
pub(crate) fn iteration(
    schedule: Schedule,
    stages: &[Seconds],
    edges: &[f64],
    micro_batches: u32,
    transfers: Transfers,
) -> f64 {
    let (count, m) = (stages.len(), micro_batches as usize);
    let orders: Vec<Vec<(bool, usize)>> = (0..count).map(|stage| order(schedule, count - stage, m)).collect();
    // When the input of each pass is there: by stage, direction and micro-batch.
    let mut inputs = vec![f64::NAN; count * 2 * m];
    let at = |stage: usize, is_forward: bool, batch: usize| (stage * 2 + usize::from(is_forward)) * m + batch;
    for batch in 0..m {
        inputs[at(0, true, batch)] = 0.0;
    }
    let mut next = vec![0; count];
    let mut free = vec![0.0_f64; count];
    let mut link_free = vec![[0.0_f64; 2]; count];
    let mut left: usize = orders.iter().map(Vec::len).sum();
    while left > 0 {
        let before = left;
        for stage in 0..count {
            while let Some(&(is_forward, batch)) = orders[stage].get(next[stage]) {
                let input = inputs[at(stage, is_forward, batch)];
                if input.is_nan() {
                    break;
                }
                // Edges in front of this stage and behind it.
                let front = stage.checked_sub(1).map(|edge| edges[edge]);
                let behind = edges.get(stage).copied();
                let (from, to) = if is_forward { (front, behind) } else { (behind, front) };
                let blocks = transfers == Transfers::Blocking;
                let receiving = if blocks { from.unwrap_or(0.0) } else { 0.0 };
                let takes = if is_forward { stages[stage].forward } else { stages[stage].backward };
                let end = free[stage].max(input) + receiving + takes;
                free[stage] = end;
                let neighbour = if is_forward { Some(stage + 1) } else { stage.checked_sub(1) };
                match (neighbour, to) {
                    (Some(neighbour), Some(edge)) if blocks => {
                        free[stage] = end + edge;
                        inputs[at(neighbour, is_forward, batch)] = end;
                    }
                    (Some(neighbour), Some(edge)) => {
                        let link = &mut link_free[stage][usize::from(is_forward)];
                        *link = link.max(end) + edge;
                        inputs[at(neighbour, is_forward, batch)] = *link;
                    }
                    // The last stage turns round.
                    _ if is_forward => inputs[at(stage, false, batch)] = end,
                    _ => {}
                }
                next[stage] += 1;
                left -= 1;
            }
        }
        assert!(left < before, "passes wait for each other");
    }
    (0..count).map(|stage| free[stage] + stages[stage].step).fold(0.0, f64::max)
}

/// The passes of a stage that has this many stages from it to the end, itself counted.
fn order(schedule: Schedule, to_the_end: usize, m: usize) -> Vec<(bool, usize)> {
    match schedule {
        Schedule::Gpipe => {
            (0..m).map(|batch| (true, batch)).chain((0..m).rev().map(|batch| (false, batch))).collect()
        }
        Schedule::OneFOneB => {
            let ahead = to_the_end.min(m) - 1;
            let mut passes: Vec<(bool, usize)> = (0..ahead).map(|batch| (true, batch)).collect();
            for batch in 0..m - ahead {
                passes.push((true, batch + ahead));
                passes.push((false, batch));
            }
            passes.extend((m - ahead..m).map(|batch| (false, batch)));
            passes
        }
    }
}

/// The most micro-batches of a stage between their forward and backward pass.
pub(crate) fn in_flight(schedule: Schedule, to_the_end: usize, m: u32) -> u32 {
    match schedule {
        Schedule::Gpipe => m,
        Schedule::OneFOneB => m.min(to_the_end as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(forward: f64, backward: f64, step: f64) -> Seconds {
        Seconds { forward, backward, step }
    }

    /// By hand.
    #[test]
    fn small_pipelines_take_what_a_drawing_says() {
        let beside = |schedule, stages: &[Seconds], edges: &[f64], m| {
            iteration(schedule, stages, edges, m, Transfers::Overlapping)
        };
        let one = [stage(1.0, 2.0, 0.5)];
        assert_eq!(beside(Schedule::Gpipe, &one, &[], 3), 9.5);
        assert_eq!(beside(Schedule::OneFOneB, &one, &[], 3), 9.5);
        // Two equal stages, two micro-batches, a tenth between them: GPipe fills, drains, and crosses four edges.
        let two = [stage(1.0, 1.0, 0.0), stage(1.0, 1.0, 0.0)];
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        close(beside(Schedule::Gpipe, &two, &[0.1], 2), 6.2);
        close(beside(Schedule::OneFOneB, &two, &[0.1], 2), 6.2);
        // A link that takes five seconds for each of two micro-batches: 1 + 2 · 5, then through the last stage and
        // back: the second gradient waits for nobody under 1F1B, because the first left long ago.
        close(beside(Schedule::OneFOneB, &two, &[5.0], 2), 1.0 + 10.0 + 2.0 + 5.0 + 1.0);
        // GPipe's last stage holds both gradients back until both forward passes are over.
        close(beside(Schedule::Gpipe, &two, &[5.0], 2), 1.0 + 10.0 + 2.0 + 5.0 + 5.0 + 1.0 - 0.0);
    }

    /// A transfer that blocks takes both ends' time.
    #[test]
    fn blocking_transfers_take_both_ends() {
        let two = [stage(1.0, 1.0, 0.0), stage(1.0, 1.0, 0.0)];
        let blocking = iteration(Schedule::Gpipe, &two, &[0.5], 1, Transfers::Blocking);
        assert!((blocking - (1.0 + 0.5 + 2.0 + 0.5 + 1.0)).abs() < 1e-12, "{blocking}");
    }
}
