//! Bytes at the edges of a plan's stages, and parameters within them.

use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::{LayerKind, elements};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::shard::{Shard, ShardParameter, is_split};

/// Of the fullest device of each stage: bytes of a micro-batch at its edges, and scalars that it trains.
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
        let of = |stage: &loadmaster_proto::plan::PlanStage| {
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

/// Scalars of a sample that leave a head, whose shards have a part of the vocabulary each: of the fullest of them. None where the
/// model ends otherwise.
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
