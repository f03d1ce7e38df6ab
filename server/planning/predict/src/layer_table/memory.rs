//! What a device of a stage holds at its peak, from the layers of a table.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::training::gradient_buckets::BUCKET_BYTES;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, StaticBytes, TrainingSpec};

use super::TablePredictor;
use super::level::LayerLevel;
use crate::{Breakdown, MOST_BYTES, Origin, PeakCurve, Predictor, Share, StageSetting};

/// Layers of a stage so far: the stages that begin with the same layer come from each other by one more.
#[derive(Debug)]
struct Layers {
    ledger: Accounting,
    parameters: u64,
    retained: u64,
    /// Of the first layer, and of all.
    first_input: u64,
    inputs: u64,
    last_output: u64,
    largest: u64,
    /// Largest transient bytes of each kind of layer: same parameters, input and output.
    kinds: Vec<((u64, u64, u64), u64)>,
    /// What the passes hold besides, see the module of [`TablePredictor`].
    transient: u64,
    origin: Origin,
}

impl Layers {
    fn new(ledger: Accounting) -> Self {
        Self {
            ledger,
            parameters: 0,
            retained: 0,
            first_input: 0,
            inputs: 0,
            last_output: 0,
            largest: 0,
            kinds: Vec::new(),
            transient: 0,
            origin: Origin::Imported,
        }
    }

    fn push(&mut self, level: &LayerLevel) {
        if self.kinds.is_empty() {
            self.first_input = level.input;
        }
        self.parameters = self.parameters.saturating_add(level.parameters);
        self.retained = self.retained.saturating_add(level.activation);
        self.inputs = self.inputs.saturating_add(level.input);
        self.last_output = level.output;
        self.largest = self.largest.max(level.activation);
        self.origin = self.origin.max(level.origin);
        let kind = (level.parameters, level.input, level.output);
        let grown = match self.kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, most)) => {
                let grown = level.transient.saturating_sub(*most);
                *most += grown;
                grown
            }
            None => {
                self.kinds.push((kind, level.transient));
                level.transient
            }
        };
        self.transient = match self.ledger {
            Accounting::Allocated => self.transient.max(level.transient),
            Accounting::Reserved | Accounting::Device | Accounting::Host => {
                self.transient.saturating_add(grown)
            }
        };
    }

    /// The parts of the peak of a stage of these layers, up to `last`.
    fn breakdown(
        &self,
        table: &TablePredictor,
        setting: &StageSetting,
        last: usize,
        in_flight: u32,
    ) -> Breakdown {
        let training = &setting.training;
        let StageConfig { first_layer, data_degree, sharding, .. } = setting.stage;
        let scalars = scalars(training, self.parameters);
        let StaticBytes { parameters, gradients, optimizer, .. } =
            training.divided_bytes(scalars, setting.stage.optimizer_parts());
        let older = u64::from(training.schedule.weight_versions(in_flight) - 1)
            .saturating_mul(scalars.saturating_mul(training.precision.scalar_bytes()));
        let copies = scalars.saturating_mul(u64::from(table.copies_bytes_per_parameter().unwrap_or(0)));
        let in_flight = u64::from(in_flight);
        let activations = match training.recompute {
            RecomputePolicy::None => in_flight.saturating_mul(self.retained),
            // Rows of recomputed layers have it all.
            RecomputePolicy::Layer if table.rows.recomputes() => in_flight.saturating_mul(self.retained),
            RecomputePolicy::Stage => self.retained,
            RecomputePolicy::Layer => in_flight
                .saturating_mul(self.inputs.saturating_sub(self.first_input))
                .saturating_add(self.largest),
        };
        // The model's own input is not counted unless it is what recomputation starts from: data loaders
        // hold it in ways of their own, and token ids are small.
        let is_kept = table.rows.recomputes();
        let keeps_input = !is_kept && (first_layer > 0 || training.recompute != RecomputePolicy::None);
        let sends_output = last + 1 < table.layers;
        let held = if keeps_input { in_flight.saturating_mul(self.first_input) } else { 0 };
        let edges = held.saturating_add(if sends_output { self.last_output } else { 0 });
        Breakdown {
            weights: parameters.saturating_add(older).min(MOST_BYTES),
            gradients,
            // Frameworks keep them for their optimizers: flat copies of weights and gradients.
            optimizer: optimizer.saturating_add(copies).min(MOST_BYTES),
            activations: activations.min(MOST_BYTES),
            edges: edges.min(MOST_BYTES),
            communication: match sharding {
                _ if data_degree == 1 => 0,
                StateSharding::None => gradients,
                // Such frameworks keep gradients in one buffer, and reduce-scatter them where they are, bucket by bucket.
                StateSharding::Optimizer => gradients.min(BUCKET_BYTES),
            },
            transient: self.transient.min(MOST_BYTES),
            overhead: table.overhead.min(MOST_BYTES),
        }
    }
}

/// Scalars of so many bytes of parameters. Of no state has a scalar more than 16 bytes.
pub(super) fn scalars(training: &TrainingSpec, parameter_bytes: u64) -> u64 {
    (parameter_bytes / training.precision.scalar_bytes()).min(MOST_BYTES / 16)
}

/// The bytes of a device of a stage of these layers.
pub(super) fn breakdown(
    table: &TablePredictor,
    setting: &StageSetting,
    levels: &[LayerLevel],
) -> (Breakdown, Origin) {
    let mut layers = Layers::new(table.ledger);
    levels.iter().for_each(|level| layers.push(level));
    (layers.breakdown(table, setting, setting.stage.last_layer, setting.in_flight()), layers.origin)
}

/// The same, for all stages that begin with the first layer and end at `last` or before it, and every number of micro-batches in flight.
pub(super) fn curves(table: &TablePredictor, setting: &StageSetting, last: usize) -> Vec<PeakCurve> {
    if table.check(setting).is_err() {
        return Vec::new();
    }
    let levels = table.levels(Share::of(setting));
    let first = setting.stage.first_layer;
    let mut layers = Layers::new(table.ledger);
    let end = levels.len().min(last.saturating_add(1));
    let from_first = levels.get(first..end).unwrap_or_default();
    let mut curves = Vec::with_capacity(from_first.len());
    for (last, level) in (first..).zip(from_first) {
        let Some(level) = level else { break };
        layers.push(level);
        let [one, two] = [1, 2].map(|in_flight| layers.breakdown(table, setting, last, in_flight).total());
        curves.push(PeakCurve {
            least: 0,
            one,
            one_of_last: one,
            each: two.saturating_sub(one),
            micro_batches: setting.training.micro_batches,
            margin: Some(table.margin),
            most: None,
        });
    }
    curves
}
