//! VGG11, which CAPTURE and mCAP judge themselves by: all its 465 stages, hence all its 3,654
//! partitionings over four devices.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::zoo::{Vgg, Zoo};
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use super::{Scope, every_stage, group, sgd, training};
use crate::accuracy::study::{HeldOut, Study};
use loadmaster_tests::Sampler;

/// Target micro-batch; half and a quarter of it are profiled.
const TARGET: u32 = 8;
const MICRO_BATCHES: u32 = 2;

pub(super) fn studies(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let full = scope == Scope::Full;
    // A narrow classifier and small images keep the shape of the problem and take a hundredth of the time.
    let of_size = |image_size| {
        if full { Vgg::default() } else { Vgg { image_size, classes: 10, classifier_width: 64 } }
    };
    let mut studies = Vec::new();
    for (name, recompute, image_size) in [
        ("vgg11-recompute-layer", RecomputePolicy::Layer, 32),
        ("vgg11-recompute-stage", RecomputePolicy::Stage, 32),
        ("vgg11", RecomputePolicy::None, 64),
    ] {
        let model = Zoo::Vgg11(of_size(image_size)).build()?;
        let training = TrainingSpec { recompute, ..training(sgd(), Schedule::Gpipe, TARGET, MICRO_BATCHES) };
        let sizes = vec![TARGET / 4, TARGET / 2];
        let mut sampler = Sampler::new(11);
        let stages = every_stage(&model, training);
        // Recomputation layer by layer has fewer surprises: a sample tells.
        let sampled = !full && recompute == RecomputePolicy::Layer;
        let mut held_out = if sampled { sampler.pick(&stages, 24) } else { stages.clone() };
        for size in [TARGET / 2, 2 * TARGET] {
            let few = if full { 60 } else { 12 };
            held_out.extend(sampler.pick(&stages, few).into_iter().map(|stage| {
                let mut setting = stage.setting;
                setting.training.micro_batch_size = size;
                HeldOut { setting, group: group(TARGET / 2, size) }
            }));
        }
        studies.push(Study {
            name: name.to_owned(),
            model,
            training,
            sizes,
            scenarios: vec![Scenario::SINGLE],
            capture: if sampled { Vec::new() } else { vec![Scenario::SINGLE] },
            partitionings: !sampled,
            held_out,
            judges_cost: false,
        });
    }
    Ok(studies)
}
