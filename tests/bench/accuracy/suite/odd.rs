//! What the other studies leave out: bf16, extents that nothing divides, seeds of their own, micro-batches on both
//! sides of the recorded ones, replicas by three, five and six, and shards of a vocabulary that cannot be even.
//!
//! The models are narrow, so that hundreds of stages are trained in minutes and what kernels take for themselves
//! weighs most.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{AmoebaNet, Bert, Gpt2, Llama, Vgg, Zoo};
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_tests::{ADAM, Sampler};

use super::{Scope, of_pipelines, sgd, tensor, training};
use crate::accuracy::row::Group;
use crate::accuracy::study::{HeldOut, Study};

const POLICIES: [RecomputePolicy; 3] =
    [RecomputePolicy::None, RecomputePolicy::Layer, RecomputePolicy::Stage];
/// Replicas and shards of each that are asked for.
const DEGREES: [(u32, u32); 6] = [(3, 1), (5, 1), (6, 1), (1, 2), (1, 4), (3, 2)];

/// A model and how it is profiled.
struct Case {
    name: &'static str,
    model: Model,
    precision: Precision,
    optimizer: Optimizer,
    /// Recorded micro-batches.
    sizes: [u32; 2],
    seed: u64,
    /// Stages on several devices, too.
    is_shared: bool,
}

pub(super) fn studies(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let (bf16, fp32) = (Precision::Bf16, Precision::Fp32);
    let case = |name, model, precision, optimizer, (sizes, seed, is_shared)| Case {
        name,
        model,
        precision,
        optimizer,
        sizes,
        seed,
        is_shared,
    };
    let cases = [
        case("odd-gpt2-bf16", gpt2(44, 19, 233)?, bf16, ADAM, ([3, 7], 3, true)),
        case("odd-gpt2-untied-bf16", gpt2_untied()?, bf16, sgd(), ([5, 11], 5, true)),
        case("odd-llama-bf16", llama(true)?, bf16, ADAM, ([4, 9], 7, true)),
        case("odd-bert-bf16", bert()?, bf16, ADAM, ([6, 13], 11, false)),
        case("odd-vgg11-bf16", vgg()?, bf16, sgd(), ([3, 7], 13, false)),
        case("odd-amoebanet-bf16", amoebanet()?, bf16, sgd(), ([3, 6], 17, false)),
        case("odd-gpt2-fp32", gpt2(36, 29, 307)?, fp32, ADAM, ([5, 9], 19, true)),
        case("odd-llama-fp32", llama(false)?, fp32, sgd(), ([3, 7], 23, true)),
        case("odd-vgg11-fp32", vgg()?, fp32, ADAM, ([3, 5], 29, false)),
    ];
    cases.into_iter().map(|case| study(case, scope)).collect()
}

fn study(case: Case, scope: Scope) -> Result<Study, Invalid> {
    let Case { name, model, precision, optimizer, sizes, seed, is_shared } = case;
    let [low, high] = sizes;
    let profiled = TrainingSpec { precision, seed, ..training(optimizer, Schedule::OneFOneB, high, 3) };
    let (pipelines, shared_pipelines) = if scope == Scope::Full { (6, 3) } else { (2, 1) };
    let mut sampler = Sampler::new(seed);
    let mut held_out: Vec<HeldOut> = Vec::new();
    let mut turn = 0_usize;
    let mut ask = |size: u32, degrees: (u32, u32), (pipelines, stages): (usize, usize)| {
        for _ in 0..pipelines {
            // Fewer micro-batches than stages, too.
            let micro_batches = [1, 2, 3, 5][turn % 4];
            let schedule = [Schedule::OneFOneB, Schedule::Gpipe][turn / 2 % 2];
            let recompute = POLICIES[turn % 3];
            turn += 1;
            let training = TrainingSpec { schedule, recompute, micro_batches, ..profiled };
            let training = training.with_micro_batch_size(size * degrees.0);
            let stages = of_pipelines(&model, training, degrees, (1, stages), Group::Odd, &mut sampler)?;
            held_out.extend(stages.into_iter().filter(|of| !is_profiled(of, sizes)));
        }
        Ok::<(), Invalid>(())
    };
    for size in [1, low - 1, (low + high) / 2, 3 * high / 4, high, high + 2, 2 * high, 3 * high - 1] {
        ask(size, (1, 1), (pipelines, 4))?;
    }
    for degrees in DEGREES.into_iter().filter(|_| is_shared) {
        for size in [low + 1, high, 2 * high - 1] {
            ask(size, degrees, (shared_pipelines, 3))?;
        }
    }
    held_out.dedup();
    let shards = [tensor(2), tensor(4)].into_iter().filter(|_| is_shared);
    let scenarios = [Scenario::SINGLE].into_iter().chain(shards).collect();
    Ok(Study { scenarios, ..Study::new(name, model, profiled, sizes, held_out) })
}

/// One layer on a device of its own at a recorded size is what the profile has.
fn is_profiled(held_out: &HeldOut, sizes: [u32; 2]) -> bool {
    let stage = held_out.setting.stage;
    let each = held_out.setting.training.micro_batch_size / stage.data_degree;
    stage.first_layer == stage.last_layer && sizes.contains(&each)
}

fn gpt2(hidden_size: i64, tokens: i64, vocabulary_size: i64) -> Result<Model, Invalid> {
    Zoo::Gpt2(Gpt2 {
        blocks: 4,
        hidden_size,
        heads: 4,
        sequence_length: tokens,
        positions: tokens,
        vocabulary_size,
        ..Gpt2::default()
    })
    .build()
}

/// A vocabulary whose two shards are 257 and 256: kernels copy more for the shorter one.
fn gpt2_untied() -> Result<Model, Invalid> {
    Zoo::Gpt2(Gpt2 {
        blocks: 3,
        hidden_size: 60,
        heads: 12,
        sequence_length: 21,
        positions: 33,
        vocabulary_size: 513,
        untied_head: true,
        dropout: 0.2,
    })
    .build()
}

fn llama(tied_head: bool) -> Result<Model, Invalid> {
    Zoo::Llama(Llama {
        blocks: 4,
        hidden_size: 40,
        heads: 4,
        key_value_heads: 4,
        feed_forward_size: 107,
        sequence_length: 23,
        vocabulary_size: 131,
        tied_head,
        ..Llama::default()
    })
    .build()
}

fn bert() -> Result<Model, Invalid> {
    Zoo::Bert(Bert {
        blocks: 4,
        hidden_size: 52,
        heads: 4,
        sequence_length: 27,
        positions: 31,
        vocabulary_size: 203,
        classes: 3,
        ..Bert::default()
    })
    .build()
}

fn vgg() -> Result<Model, Invalid> {
    Zoo::Vgg11(Vgg { image_size: 32, classes: 7, classifier_width: 37 }).build()
}

fn amoebanet() -> Result<Model, Invalid> {
    Zoo::AmoebaNetD(AmoebaNet { cells: 3, filters: 16, image_size: 32, classes: 7 }).build()
}
