//! Data- and tensor-parallel stages: degree 2 and 4, which a profile contains, 8 and 16, which it does not,
//! and stages that are shared in both ways, of which it contains the shards alone.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Vgg, Zoo};
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use super::transformers::{gpt2, llama};
use super::{Scope, adam, data, of_pipelines, sgd, tensor, training};
use crate::accuracy::row::Group;
use crate::accuracy::study::Study;
use loadmaster_tests::Sampler;

const SIZES: [u32; 2] = [2, 4];
const MICRO_BATCHES: u32 = 3;
const STAGES: usize = 3;

pub(super) fn studies(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let pipelined = training(adam(), Schedule::OneFOneB, 2 * SIZES[1], MICRO_BATCHES);
    let all_at_once = training(sgd(), Schedule::Gpipe, 2 * SIZES[1], MICRO_BATCHES);
    let recomputed = TrainingSpec { recompute: RecomputePolicy::Layer, ..all_at_once };
    let vgg = Zoo::Vgg11(Vgg { image_size: 32, classes: 16, classifier_width: 64 }).build()?;
    Ok(vec![
        study("gpt2-parallel-gpipe", gpt2(3)?, all_at_once, true, scope)?,
        study("gpt2-parallel-1f1b", gpt2(4)?, pipelined, scope == Scope::Full, scope)?,
        study("llama-parallel", llama(4, 16)?, recomputed, scope == Scope::Full, scope)?,
        study("vgg11-parallel", vgg, all_at_once, false, scope)?,
    ])
}

/// Stages of random pipelines in every scenario, the micro-batch of a replica or shard being twice the
/// profiled one at degree 2 and 4, and the profiled one beyond, where one thing is extrapolated at a time.
fn study(
    name: &str,
    model: Model,
    training: TrainingSpec,
    capture: bool,
    scope: Scope,
) -> Result<Study, Invalid> {
    let pipelines = if scope == Scope::Full { 4 } else { 1 };
    let mut sampler = Sampler::new(5);
    let mut held_out = Vec::new();
    let alone = [2, 4, 8, 16].into_iter().flat_map(|degree| [(degree, 1), (1, degree)]);
    for (data_degree, tensor_degree) in alone.chain([(2, 2), (2, 4)]) {
        let is_profiled = data_degree.max(tensor_degree) <= 4;
        let each = if is_profiled { 2 * SIZES[1] } else { SIZES[1] };
        let group = if is_profiled { Group::Parallel } else { Group::Extrapolated };
        let training = training.with_micro_batch_size(each * data_degree);
        let degrees = (data_degree, tensor_degree);
        held_out.extend(of_pipelines(&model, training, degrees, (pipelines, STAGES), group, &mut sampler)?);
    }
    let scenarios = vec![Scenario::SINGLE, data(2), data(4), tensor(2), tensor(4)];
    Ok(Study {
        name: name.to_owned(),
        model,
        training,
        sizes: SIZES.to_vec(),
        capture: if capture { scenarios.clone() } else { Vec::new() },
        scenarios,
        held_out,
        partitionings: false,
        judges_cost: false,
    })
}
