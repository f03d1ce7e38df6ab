//! What is studied.
//!
//! Nothing is profiled at a micro-batch of one sample: kernels treat it apart (they leave out copies, or
//! choose another algorithm), so that it tells little about larger ones, and nobody trains with it who has
//! a choice. `odd` asks for it nevertheless.

mod odd;

use loadmaster_predict::StageSetting;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{AmoebaNet, Bert, Gpt2, Llama, Vgg, Zoo};
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::{Parallelism, Partitioning, StageConfig};
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_tests::{ADAM, Sampler};

use crate::accuracy::row::Group;
use crate::accuracy::study::{HeldOut, Study};
use loadmaster_samples as samples;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A sample that takes minutes.
    Sample,
    /// Everything.
    Full,
}

/// All studies, the longest-lasting parts last.
pub(crate) fn studies(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let mut studies = vec![tiny()?];
    studies.extend(transformers(scope)?);
    studies.extend(parallel(scope)?);
    studies.push(sharded(scope)?);
    studies.extend(odd::studies(scope)?);
    studies.push(cost()?);
    studies.extend(amoebanet(scope)?);
    studies.extend(vgg(scope)?);
    Ok(studies)
}

/// Profiled micro-batches of all but VGG11, whose target is twice the larger one.
const SIZES: [u32; 2] = [2, 4];
const TARGET: u32 = 2 * SIZES[1];

/// The smallest study that goes all the way: seconds, for this program's own test.
fn tiny() -> Result<Study, Invalid> {
    let sizes = Gpt2 { blocks: 3, hidden_size: 32, heads: 2, vocabulary_size: 100, ..Gpt2::default() };
    let model = Zoo::Gpt2(Gpt2 { sequence_length: 16, positions: 16, ..sizes }).build()?;
    let training = training(sgd(), Schedule::Gpipe, TARGET, 2);
    let held_out = of_pipelines(&model, training, (1, 1), (1, 2), Group::Stages, &mut Sampler::new(1))?;
    Ok(Study::new("tiny", model, training, SIZES, held_out))
}

/// What a profile of a GPT-2 with 24 blocks costs, in all five scenarios of the paper.
fn cost() -> Result<Study, Invalid> {
    let sizes = Gpt2 { blocks: 24, hidden_size: 256, heads: 4, vocabulary_size: 2_000, ..Gpt2::default() };
    let model = Zoo::Gpt2(Gpt2 { sequence_length: 128, positions: 128, ..sizes }).build()?;
    let training = training(ADAM, Schedule::Gpipe, TARGET, 4);
    let held_out = of_pipelines(&model, training, (1, 1), (2, 4), Group::Stages, &mut Sampler::new(24))?;
    let study = Study::new("gpt2-24-blocks", model, training, SIZES, held_out);
    Ok(Study { scenarios: scenarios(), judges_cost: true, ..study })
}

/// All that the paper profiles.
fn scenarios() -> Vec<Scenario> {
    vec![Scenario::SINGLE, data(2), data(4), tensor(2), tensor(4)]
}

fn gpt2(blocks: i64) -> Result<Model, Invalid> {
    let sizes = Gpt2 { blocks, hidden_size: 64, heads: 16, vocabulary_size: 512, ..Gpt2::default() };
    Zoo::Gpt2(Gpt2 { sequence_length: 64, positions: 64, ..sizes }).build()
}

/// Grouped-query attention with four heads per key and value, as far as `heads` allows.
fn llama(blocks: i64, key_value_heads: i64) -> Result<Model, Invalid> {
    let sizes = Llama { blocks, hidden_size: 64, heads: 16, key_value_heads, ..Llama::default() };
    let sizes = Llama { feed_forward_size: 176, sequence_length: 64, vocabulary_size: 512, ..sizes };
    Zoo::Llama(sizes).build()
}

fn bert(blocks: i64) -> Result<Model, Invalid> {
    let sizes = Bert { blocks, hidden_size: 64, heads: 4, vocabulary_size: 512, ..Bert::default() };
    Zoo::Bert(Bert { sequence_length: 64, positions: 64, ..sizes }).build()
}

/// Transformers in pipelines on single devices: both schedules, both optimizers, one, two and four times the
/// profiled micro-batch, with and without recomputation.
fn transformers(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let (gpt2, llama, bert) = (gpt2(8)?, llama(8, 4)?, bert(8)?);
    let stage = |training| TrainingSpec { recompute: RecomputePolicy::Stage, ..training };
    let layer = |training| TrainingSpec { recompute: RecomputePolicy::Layer, ..training };
    let spec = |optimizer: Optimizer, schedule| training(optimizer, schedule, TARGET, 6);
    // The paper's campaign for each would take longer than all else together: it is compared on one model.
    let full = scope == Scope::Full;
    let studies = [
        ("gpt2-gpipe-sgd", &gpt2, spec(sgd(), Schedule::Gpipe), true),
        ("gpt2-1f1b-adam", &gpt2, spec(ADAM, Schedule::OneFOneB), true),
        ("gpt2-gpipe-sgd-recompute-stage", &gpt2, stage(spec(sgd(), Schedule::Gpipe)), full),
        ("gpt2-1f1b-adam-recompute-layer", &gpt2, layer(spec(ADAM, Schedule::OneFOneB)), full),
        ("llama-1f1b-adam", &llama, spec(ADAM, Schedule::OneFOneB), full),
        ("llama-gpipe-sgd-recompute-layer", &llama, layer(spec(sgd(), Schedule::Gpipe)), full),
        ("bert-1f1b-sgd", &bert, spec(sgd(), Schedule::OneFOneB), full),
    ];
    let study = |(name, model, training, capture): (&str, &Model, TrainingSpec, bool)| {
        let pipelines = (if full { 12 } else { 2 }, 4);
        let held_out = at_sizes(model, training, &[SIZES[1], TARGET, 2 * TARGET], pipelines, 2)?;
        let capture = if capture { vec![Scenario::SINGLE] } else { Vec::new() };
        Ok(Study { capture, ..Study::new(name, model.clone(), training, SIZES, held_out) })
    };
    studies.into_iter().map(study).collect()
}

/// Replicas that divide optimizer states: numbers of them that divide tensors and that do not, and replicas of shards.
fn sharded(scope: Scope) -> Result<Study, Invalid> {
    let pipelines = if scope == Scope::Full { 12 } else { 2 };
    let bf16 = TrainingSpec {
        precision: Precision::Bf16Fp32Gradients,
        ..training(ADAM, Schedule::OneFOneB, TARGET, 3)
    };
    let (model, mut sampler, mut held_out) = (llama(8, 4)?, Sampler::new(6), Vec::new());
    for degrees in [(2, 1), (3, 1), (4, 1), (2, 2)] {
        let training = bf16.with_micro_batch_size(SIZES[1] * degrees.0);
        held_out.extend(of_pipelines(
            &model,
            training,
            degrees,
            (pipelines, 3),
            Group::Parallel,
            &mut sampler,
        )?);
    }
    let shards = |of: &mut HeldOut| of.setting.stage.sharding = StateSharding::Optimizer;
    held_out.iter_mut().for_each(shards);
    let scenarios = vec![Scenario::SINGLE, tensor(2)];
    Ok(Study { scenarios, ..Study::new("sharded", model, bf16, SIZES, held_out) })
}

/// Data- and tensor-parallel stages: degree 2 and 4, which a profile contains, 8 and 16, which it does not,
/// and stages that are shared in both ways, of which it contains the shards alone.
fn parallel(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let full = scope == Scope::Full;
    let pipelined = training(ADAM, Schedule::OneFOneB, TARGET, 3);
    let all_at_once = training(sgd(), Schedule::Gpipe, TARGET, 3);
    let recomputed = TrainingSpec { recompute: RecomputePolicy::Layer, ..all_at_once };
    let vgg = Zoo::Vgg11(Vgg { image_size: 32, classes: 16, classifier_width: 64 }).build()?;
    // Stages of random pipelines in every scenario, the micro-batch of a replica or shard being twice the
    // profiled one at degree 2 and 4, and the profiled one beyond, where one thing is extrapolated at a time.
    let study = |(name, model, training, capture): (&str, Model, TrainingSpec, bool)| {
        let mut sampler = Sampler::new(5);
        let mut held_out = Vec::new();
        let alone = [2, 4, 8, 16].into_iter().flat_map(|degree| [(degree, 1), (1, degree)]);
        for (data_degree, tensor_degree) in alone.chain([(2, 2), (2, 4)]) {
            let is_profiled = data_degree.max(tensor_degree) <= 4;
            let each = if is_profiled { TARGET } else { SIZES[1] };
            let group = if is_profiled { Group::Parallel } else { Group::Extrapolated };
            let training = training.with_micro_batch_size(each * data_degree);
            let (degrees, pipelines) = ((data_degree, tensor_degree), (if full { 4 } else { 1 }, 3));
            held_out.extend(of_pipelines(&model, training, degrees, pipelines, group, &mut sampler)?);
        }
        let capture = if capture { scenarios() } else { Vec::new() };
        Ok(Study { scenarios: scenarios(), capture, ..Study::new(name, model, training, SIZES, held_out) })
    };
    let studies = [
        ("gpt2-parallel-gpipe", gpt2(3)?, all_at_once, true),
        ("gpt2-parallel-1f1b", gpt2(4)?, pipelined, full),
        ("llama-parallel", llama(4, 16)?, recomputed, full),
        ("vgg11-parallel", vgg, all_at_once, false),
    ];
    studies.into_iter().map(study).collect()
}

/// AmoebaNet-D(18, 208), whose edges carry two tensors: 24 layers, 81.5 million parameters, small images.
fn amoebanet(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let model = Zoo::AmoebaNetD(AmoebaNet { image_size: 32, classes: 10, ..AmoebaNet::default() }).build()?;
    let full = scope == Scope::Full;
    let policies = [
        ("amoebanet", RecomputePolicy::None),
        ("amoebanet-recompute-stage", RecomputePolicy::Stage),
        ("amoebanet-recompute-layer", RecomputePolicy::Layer),
    ];
    let study = |(name, recompute): (&str, RecomputePolicy)| {
        let training = TrainingSpec { recompute, ..training(sgd(), Schedule::OneFOneB, TARGET, 3) };
        let sizes: &[u32] = if full { &[4, 8, 16] } else { &[8] };
        let held_out = at_sizes(&model, training, sizes, (if full { 6 } else { 2 }, 6), 18)?;
        // The paper's stages of so large a model take longer than all that is held out.
        let capture = if full { vec![Scenario::SINGLE] } else { Vec::new() };
        Ok(Study { capture, ..Study::new(name, model.clone(), training, SIZES, held_out) })
    };
    policies.into_iter().take(if full { 3 } else { 1 }).map(study).collect()
}

/// VGG11, which CAPTURE and mCAP judge themselves by: all its 465 stages, hence all its 3,654
/// partitionings over four devices.
fn vgg(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let full = scope == Scope::Full;
    // A narrow classifier and small images keep the shape of the problem and take a hundredth of the time.
    let of_size = |image_size| {
        if full { Vgg::default() } else { Vgg { image_size, classes: 10, classifier_width: 64 } }
    };
    let policies = [
        ("vgg11-recompute-layer", RecomputePolicy::Layer, 32),
        ("vgg11-recompute-stage", RecomputePolicy::Stage, 32),
        ("vgg11", RecomputePolicy::None, 64),
    ];
    let study = |(name, recompute, image_size): (&str, RecomputePolicy, i64)| {
        let model = Zoo::Vgg11(of_size(image_size)).build()?;
        let training = TrainingSpec { recompute, ..training(sgd(), Schedule::Gpipe, TARGET, 2) };
        let mut sampler = Sampler::new(11);
        let stages = every_stage(&model, training);
        // Recomputation layer by layer has fewer surprises: a sample tells.
        let sampled = !full && recompute == RecomputePolicy::Layer;
        let mut held_out = if sampled { sampler.pick(&stages, 24) } else { stages.clone() };
        for size in [SIZES[1], 2 * TARGET] {
            let few = sampler.pick(&stages, if full { 60 } else { 12 });
            held_out.extend(few.into_iter().map(|stage| {
                let mut setting = stage.setting;
                setting.training.micro_batch_size = size;
                HeldOut { setting, group: group(size) }
            }));
        }
        let capture = if sampled { Vec::new() } else { vec![Scenario::SINGLE] };
        Ok(Study { capture, partitionings: !sampled, ..Study::new(name, model, training, SIZES, held_out) })
    };
    policies.into_iter().map(study).collect()
}

fn sgd() -> Optimizer {
    Optimizer::default()
}

fn training(
    optimizer: Optimizer,
    schedule: Schedule,
    micro_batch_size: u32,
    micro_batches: u32,
) -> TrainingSpec {
    TrainingSpec { optimizer, ..samples::training(schedule, micro_batch_size, micro_batches) }
}

fn data(degree: u32) -> Scenario {
    Scenario { parallelism: Parallelism::Data, degree }
}

fn tensor(degree: u32) -> Scenario {
    Scenario { parallelism: Parallelism::Tensor, degree }
}

/// The group of a single-device stage: four times the profiled micro-batch is another question than twice.
fn group(micro_batch_size: u32) -> Group {
    if micro_batch_size >= 2 * TARGET { Group::Extrapolated } else { Group::Stages }
}

/// Stages of random pipelines on single devices, at each of these micro-batches.
fn at_sizes(
    model: &Model,
    training: TrainingSpec,
    sizes: &[u32],
    pipelines: (usize, usize),
    seed: u64,
) -> Result<Vec<HeldOut>, Invalid> {
    let mut sampler = Sampler::new(seed);
    let mut held_out = Vec::new();
    for &size in sizes {
        let training = training.with_micro_batch_size(size);
        held_out.extend(of_pipelines(model, training, (1, 1), pipelines, group(size), &mut sampler)?);
    }
    Ok(held_out)
}

/// Layers `first..=last` between one stage before and one after where the model has layers there. Only for
/// GPipe, where the place does not matter.
fn anywhere(model: &Model, stage: StageConfig, training: TrainingSpec) -> StageSetting {
    let before = u32::from(stage.first_layer > 0);
    let after = u32::from(stage.last_layer + 1 < model.layers().len());
    StageSetting { stage, stage_index: before, stage_count: before + 1 + after, training }
}

/// Every stage of a model on one device.
fn every_stage(model: &Model, training: TrainingSpec) -> Vec<HeldOut> {
    let layers = model.layers().len();
    (0..layers)
        .flat_map(|first| (first..layers).map(move |last| StageConfig::single(first, last)))
        .map(|stage| HeldOut { setting: anywhere(model, stage, training), group: Group::Stages })
        .collect()
}

/// The stages of random pipelines, each once, where they stand in theirs, on so many replicas of so many
/// shards.
fn of_pipelines(
    model: &Model,
    training: TrainingSpec,
    (data_degree, tensor_degree): (u32, u32),
    (pipelines, stages): (usize, usize),
    group: Group,
    sampler: &mut Sampler,
) -> Result<Vec<HeldOut>, Invalid> {
    let mut held_out: Vec<HeldOut> = Vec::new();
    for _ in 0..pipelines {
        let partitioning = Partitioning::from_sizes(&sampler.sizes(model.layers().len(), stages))?;
        for (index, stage) in partitioning.stages().iter().enumerate() {
            let setting = StageSetting {
                stage: StageConfig { data_degree, tensor_degree, ..*stage },
                stage_index: index as u32,
                stage_count: stages as u32,
                training,
            };
            let found = HeldOut { setting, group };
            if !held_out.contains(&found) {
                held_out.push(found);
            }
        }
    }
    Ok(held_out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// `--only` names one study, a study never holds out what no rank accepts, and where partitionings are judged all of
    /// VGG11's 465 stages are held out.
    #[test]
    fn studies_are_valid_and_have_names_of_their_own() {
        for scope in [Scope::Sample, Scope::Full] {
            let studies = studies(scope).unwrap();
            let names: BTreeSet<&str> = studies.iter().map(|study| study.name.as_str()).collect();
            assert_eq!(names.len(), studies.len());
            for study in &studies {
                for held_out in &study.held_out {
                    let setting = &held_out.setting;
                    setting.training.checked().unwrap();
                    study.model.check_stage(&setting.stage, setting.training.micro_batch_size).unwrap();
                    assert!(setting.stage_index < setting.stage_count, "{}", study.name);
                }
                study.jobs().unwrap();
                assert!(!study.partitionings || study.held_out.len() >= 465);
            }
            assert!(studies.iter().any(|study| study.partitionings));
        }
    }
}
