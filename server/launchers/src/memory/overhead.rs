//! The bytes that a framework holds besides those of our ranks.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::{LayerKind, elements};
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::shard::{Shard, ShardParameter, is_split};

use super::vocabulary::PaddedVocabulary;
use super::{Added, AddedCause};

/// The tensors of how many micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum MicroBatches {
    /// Of none.
    #[default]
    None,
    /// Of so many, if an iteration has as many.
    Some(u32),
    /// Of those between forward and backward pass, and of so many more.
    InFlightAnd(u32),
    /// Of all of an iteration but those.
    NotInFlight,
    /// Of all of an iteration.
    All,
}

/// The tensors at the edges of stages that a framework holds besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EdgeTensors {
    /// Outputs of all stages but the last, when they have been sent.
    pub(crate) outputs: MicroBatches,
    /// Outputs of the last stage, when the loss has been computed of them.
    pub(crate) last_outputs: MicroBatches,
    /// Gradients of the outputs of all stages but the last, when the backward pass has begun.
    pub(crate) gradients: MicroBatches,
    /// Gradients of the last stage's outputs.
    pub(crate) last_gradients: MicroBatches,
    /// Inputs of all stages but the first, besides those that the stage computes with.
    pub(crate) inputs: MicroBatches,
    /// Gradients of the same, when they have been sent.
    pub(crate) input_gradients: MicroBatches,
}

/// The bytes that a framework holds besides.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Held {
    pub(crate) tensors: EdgeTensors,
    /// The rows that the vocabulary is padded to.
    pub(crate) vocabulary: Option<PaddedVocabulary>,
    /// Parameters that each stage has besides; of stages that are not here none.
    pub(crate) parameters: Vec<MoreParameters>,
    /// Bytes by which a gradient of a parameter is wider.
    pub(crate) wider_gradients: u64,
    /// Bytes of a copy of each gradient that is there while the optimizer steps.
    pub(crate) step_gradients: u64,
}

/// Parameters that a framework has on a stage besides the plan's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MoreParameters {
    /// The stage.
    pub(crate) stage: usize,
    /// Scalars on its device with the highest peak.
    pub(crate) scalars: u64,
    /// Which they are, human-readable.
    pub(crate) what: &'static str,
}

impl MicroBatches {
    /// How many, on a stage with so many in flight.
    fn count(self, in_flight: u32, all: u32) -> u32 {
        match self {
            Self::None => 0,
            Self::Some(count) => count.min(all),
            Self::InFlightAnd(more) => in_flight.saturating_add(more),
            Self::NotInFlight => all.saturating_sub(in_flight),
            Self::All => all,
        }
    }
}

impl EdgeTensors {
    /// None of them.
    pub(crate) const NONE: Self = Self {
        outputs: MicroBatches::None,
        last_outputs: MicroBatches::None,
        gradients: MicroBatches::None,
        last_gradients: MicroBatches::None,
        inputs: MicroBatches::None,
        input_gradients: MicroBatches::None,
    };

    /// Returns the note on a framework of this name that keeps outputs up to their backward passes; empty for others.
    pub(crate) fn note(self, name: &str) -> String {
        match self.outputs {
            MicroBatches::InFlightAnd(0) => format!(
                "{name} keeps each stage's output until its backward pass: micro-batches in flight × output bytes more than \
                 predicted, on every stage except the last"
            ),
            _ => String::new(),
        }
    }
}

impl Held {
    /// Returns whether it holds the bytes of our ranks and no others.
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// What it adds on the device with the highest peak of these stages, which are one, or take turns.
    ///
    /// Of tensors between stages such a device has those of one of its stages at a time: who keeps them longer runs no such plans.
    pub(super) fn added(&self, plan: &Plan, edges: &Edges, own: &[usize]) -> Vec<Added> {
        let is_last = |stage: usize| stage + 1 == plan.stages.len();
        let of_outputs = |stage: usize, last: MicroBatches, others: MicroBatches| {
            if is_last(stage) { last } else { others }
        };
        let behind_first = |stage: usize, of: MicroBatches| if stage == 0 { MicroBatches::None } else { of };
        let tensors = |cause, what: &str, of: &dyn Fn(usize) -> (MicroBatches, u64)| {
            let held = own.iter().filter_map(|&stage| {
                let (micro_batches, each) = of(stage);
                let in_flight = plan.stages.get(stage)?.in_flight;
                let count = micro_batches.count(in_flight, plan.training.micro_batches);
                Some((each.saturating_mul(count.into()), count, each))
            });
            let (bytes, count, each) = held.max_by_key(|(bytes, ..)| *bytes).unwrap_or_default();
            Added {
                cause,
                bytes: Bytes(bytes),
                counted: format!("{what} of {count} micro-batches, {} each", Bytes(each)),
            }
        };
        let mut added = vec![
            tensors(AddedCause::HeldOutputs, "outputs", &|stage| {
                (of_outputs(stage, self.tensors.last_outputs, self.tensors.outputs), edges.output(stage))
            }),
            tensors(AddedCause::HeldGradients, "gradients of outputs", &|stage| {
                (of_outputs(stage, self.tensors.last_gradients, self.tensors.gradients), edges.output(stage))
            }),
            tensors(AddedCause::HeldGradients, "gradients of inputs", &|stage| {
                (behind_first(stage, self.tensors.input_gradients), edges.input(stage))
            }),
            tensors(AddedCause::HeldInputs, "inputs", &|stage| {
                (behind_first(stage, self.tensors.inputs), edges.input(stage))
            }),
        ];
        let padded = |&stage: &usize| self.vocabulary.as_ref().and_then(|rows| rows.added(plan, stage));
        added.extend(own.iter().filter_map(padded));
        added.extend(self.parameters.iter().filter(|more| own.contains(&more.stage)).map(|more| Added {
            cause: AddedCause::MoreParameters,
            bytes: super::parameter_bytes(plan, more.stage, more.scalars),
            counted: format!("{} parameters of {}", more.scalars, more.what),
        }));
        let scalars =
            own.iter().map(|&stage| edges.parameters(stage)).fold(0, |sum: u64, of| sum.saturating_add(of));
        added.push(Added {
            cause: AddedCause::WiderGradients,
            bytes: Bytes(scalars.saturating_mul(self.wider_gradients)),
            counted: format!("gradients of {scalars} parameters, {} bytes wider", self.wider_gradients),
        });
        added.push(self.of_step(plan, own, scalars));
        added
    }

    /// Copies of all gradients while the optimizer steps, with those of padded rows. What lies between the passes is gone by then.
    fn of_step(&self, plan: &Plan, own: &[usize], scalars: u64) -> Added {
        let stages = own.iter().filter_map(|&stage| plan.stages.get(stage));
        let gone = stages.clone().next().and_then(|stage| stage.breakdown);
        let gone = gone.map_or(0, |of| of.activations.saturating_add(of.edges));
        let padded = stages.map(|stage| self.vocabulary.as_ref().map_or(0, |rows| rows.scalars(stage)));
        let scalars = padded.fold(scalars, u64::saturating_add);
        let each = self.step_gradients;
        Added {
            cause: AddedCause::StepGradients,
            bytes: Bytes(scalars.saturating_mul(each).saturating_sub(gone)),
            counted: format!(
                "the optimizer step copies the gradients of {scalars} parameters, {each} bytes each; {} of \
                 activations, which are freed before this step, are subtracted",
                Bytes(gone)
            ),
        }
    }
}

/// Of the device with the highest peak of each stage: bytes of a micro-batch at its edges, and scalars that it trains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edges {
    stages: Vec<StageEdges>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StageEdges {
    input: u64,
    output: u64,
    parameters: u64,
}

impl Edges {
    pub(super) fn of(plan: &Plan, model: &Model) -> Self {
        let of = |stage: &PlanStage| {
            let config = stage.config;
            let samples = u64::from(plan.training.micro_batch_size.div_ceil(config.data_degree.max(1)));
            let each = samples.saturating_mul(plan.training.precision.scalar_bytes());
            let at = |edge: usize| {
                model.edge(edge).iter().fold(0, |sum: u64, shape| sum.saturating_add(elements(shape)))
            };
            let last = config.last_layer.saturating_add(1);
            let output = if last == model.layers().len() {
                logits(model, config.tensor_degree).unwrap_or_else(|| at(last))
            } else {
                at(last)
            };
            let parameters = model.rank_parameters(&config, 0);
            StageEdges {
                input: at(config.first_layer).saturating_mul(each),
                output: output.saturating_mul(each),
                parameters: parameters.iter().map(ShardParameter::elements).fold(0, u64::saturating_add),
            }
        };
        Self { stages: plan.stages.iter().map(of).collect() }
    }

    /// Bytes that enter a stage with a micro-batch.
    pub(super) fn input(&self, stage: usize) -> u64 {
        self.stages.get(stage).map_or(0, |of| of.input)
    }

    /// Bytes that leave it.
    pub(super) fn output(&self, stage: usize) -> u64 {
        self.stages.get(stage).map_or(0, |of| of.output)
    }

    /// Scalars that it trains.
    pub(super) fn parameters(&self, stage: usize) -> u64 {
        self.stages.get(stage).map_or(0, |of| of.parameters)
    }
}

/// Scalars of a sample that leave a head, whose shards have a part of the vocabulary each: of the highest peak of
/// them. None where the model ends otherwise.
fn logits(model: &Model, shards: u32) -> Option<u64> {
    let LayerKind::LanguageModelHead { vocabulary_size, .. } = model.layers().last()?.kind else {
        return None;
    };
    let [shape] = model.edge(model.layers().len()) else { return None };
    let (_, tokens) = shape.split_last()?;
    let first = Shard { index: 0, degree: shards };
    let own =
        if is_split(vocabulary_size, shards) { first.range(vocabulary_size).end } else { vocabulary_size };
    Some(elements(tokens).saturating_mul(u64::try_from(own).unwrap_or_default()))
}
