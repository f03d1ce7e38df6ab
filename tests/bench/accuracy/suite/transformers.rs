//! Transformers in pipelines on single devices: both schedules, both optimizers, one, two and four times the
//! profiled micro-batch, with and without recomputation.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Bert, Gpt2, Llama, Zoo};
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::{Optimizer, RecomputePolicy, Schedule, TrainingSpec};

use super::{Scope, adam, group, of_pipelines, sgd, training};
use crate::accuracy::study::Study;
use loadmaster_tests::Sampler;

const SIZES: [u32; 2] = [2, 4];
const MICRO_BATCHES: u32 = 6;
const STAGES: usize = 4;

pub(super) fn gpt2(blocks: i64) -> Result<Model, Invalid> {
    Zoo::Gpt2(Gpt2 {
        blocks,
        hidden_size: 64,
        heads: 16,
        sequence_length: 64,
        positions: 64,
        vocabulary_size: 512,
        ..Gpt2::default()
    })
    .build()
}

/// Grouped-query attention with four heads per key and value, as far as `heads` allows.
pub(super) fn llama(blocks: i64, key_value_heads: i64) -> Result<Model, Invalid> {
    Zoo::Llama(Llama {
        blocks,
        hidden_size: 64,
        heads: 16,
        key_value_heads,
        feed_forward_size: 176,
        sequence_length: 64,
        vocabulary_size: 512,
        ..Llama::default()
    })
    .build()
}

fn bert(blocks: i64) -> Result<Model, Invalid> {
    Zoo::Bert(Bert {
        blocks,
        hidden_size: 64,
        heads: 4,
        sequence_length: 64,
        positions: 64,
        vocabulary_size: 512,
        ..Bert::default()
    })
    .build()
}

pub(super) fn studies(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let (gpt2, llama, bert) = (gpt2(8)?, llama(8, 4)?, bert(8)?);
    let stage = |training| TrainingSpec { recompute: RecomputePolicy::Stage, ..training };
    let layer = |training| TrainingSpec { recompute: RecomputePolicy::Layer, ..training };
    let spec = |optimizer: Optimizer, schedule| training(optimizer, schedule, 2 * SIZES[1], MICRO_BATCHES);
    // The paper's campaign for each would take longer than all else together: it is compared on one model.
    let full = scope == Scope::Full;
    let studies = [
        ("gpt2-gpipe-sgd", &gpt2, spec(sgd(), Schedule::Gpipe), true),
        ("gpt2-1f1b-adam", &gpt2, spec(adam(), Schedule::OneFOneB), true),
        ("gpt2-gpipe-sgd-recompute-stage", &gpt2, stage(spec(sgd(), Schedule::Gpipe)), full),
        ("gpt2-1f1b-adam-recompute-layer", &gpt2, layer(spec(adam(), Schedule::OneFOneB)), full),
        ("llama-1f1b-adam", &llama, spec(adam(), Schedule::OneFOneB), full),
        ("llama-gpipe-sgd-recompute-layer", &llama, layer(spec(sgd(), Schedule::Gpipe)), full),
        ("bert-1f1b-sgd", &bert, spec(sgd(), Schedule::OneFOneB), full),
    ];
    studies
        .into_iter()
        .map(|(name, model, training, capture)| study(name, model.clone(), training, capture, scope))
        .collect()
}

/// A study of stages of random pipelines at one, two and four times the profiled micro-batch.
fn study(
    name: &str,
    model: Model,
    training: TrainingSpec,
    capture: bool,
    scope: Scope,
) -> Result<Study, Invalid> {
    let pipelines = if scope == Scope::Full { 12 } else { 2 };
    let mut sampler = Sampler::new(2);
    let mut held_out = Vec::new();
    for size in [SIZES[1], 2 * SIZES[1], 4 * SIZES[1]] {
        held_out.extend(of_pipelines(
            &model,
            training.with_micro_batch_size(size),
            (1, 1),
            (pipelines, STAGES),
            group(SIZES[1], size),
            &mut sampler,
        )?);
    }
    Ok(Study {
        name: name.to_owned(),
        model,
        training,
        sizes: SIZES.to_vec(),
        scenarios: vec![Scenario::SINGLE],
        capture: if capture { vec![Scenario::SINGLE] } else { Vec::new() },
        held_out,
        partitionings: false,
        judges_cost: false,
    })
}
