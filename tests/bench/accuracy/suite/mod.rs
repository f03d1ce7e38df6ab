//! What is studied.
//!
//! Nothing is profiled at a micro-batch of one sample: kernels treat it apart (they leave out copies, or
//! choose another algorithm), so that it tells little about larger ones, and nobody trains with it who has
//! a choice. `odd` asks for it nevertheless.

mod amoebanet;
mod cost;
mod odd;
mod parallel;
mod tiny;
mod transformers;
mod vgg;

use loadmaster_planning::predict::StageSetting;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::{Parallelism, Partitioning, StageConfig};
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

use crate::accuracy::row::Group;
use crate::accuracy::study::{HeldOut, Study};
use loadmaster_tests::Sampler;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A sample that takes minutes.
    Sample,
    /// Everything.
    Full,
}

/// All studies, the longest-lasting parts last.
///
/// # Errors
/// A model that cannot be built.
pub(crate) fn studies(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let mut studies = vec![tiny::study()?];
    studies.extend(transformers::studies(scope)?);
    studies.extend(parallel::studies(scope)?);
    studies.extend(odd::studies(scope)?);
    studies.push(cost::study()?);
    studies.extend(amoebanet::studies(scope)?);
    studies.extend(vgg::studies(scope)?);
    Ok(studies)
}

fn sgd() -> Optimizer {
    Optimizer::default()
}

fn adam() -> Optimizer {
    Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
}

fn training(
    optimizer: Optimizer,
    schedule: Schedule,
    micro_batch_size: u32,
    micro_batches: u32,
) -> TrainingSpec {
    TrainingSpec {
        precision: Precision::Fp32,
        optimizer,
        schedule,
        micro_batch_size,
        micro_batches,
        recompute: RecomputePolicy::None,
        seed: 1,
    }
}

fn data(degree: u32) -> Scenario {
    Scenario { parallelism: Parallelism::Data, degree }
}

fn tensor(degree: u32) -> Scenario {
    Scenario { parallelism: Parallelism::Tensor, degree }
}

/// The group of a single-device stage: four times the profiled micro-batch is another question than twice.
fn group(largest_profiled: u32, micro_batch_size: u32) -> Group {
    if micro_batch_size >= 4 * largest_profiled { Group::Extrapolated } else { Group::Stages }
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

    /// `--only` names one study, and a study never holds out what no rank accepts.
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
            }
        }
    }

    /// VGG11's 465 stages, and the same sample in every run.
    #[test]
    fn held_out_stages_are_all_or_a_fixed_sample() {
        let names = |scope| -> Vec<(String, usize)> {
            studies(scope).unwrap().into_iter().map(|study| (study.name, study.held_out.len())).collect()
        };
        assert_eq!(names(Scope::Sample), names(Scope::Sample));
        let all = studies(Scope::Sample).unwrap();
        assert!(all.iter().filter(|study| study.partitionings).all(|study| study.held_out.len() >= 465));
        assert!(all.iter().any(|study| study.partitionings));
    }
}
