//! AmoebaNet-D(18, 208), whose edges carry two tensors: 24 layers, 81.5 million parameters, small images.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::zoo::{AmoebaNet, Zoo};
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use super::{Scope, group, of_pipelines, sgd, training};
use crate::accuracy::study::Study;
use loadmaster_tests::Sampler;

const SIZES: [u32; 2] = [2, 4];
const MICRO_BATCHES: u32 = 3;
const STAGES: usize = 6;

pub(super) fn studies(scope: Scope) -> Result<Vec<Study>, Invalid> {
    let model = Zoo::AmoebaNetD(AmoebaNet { image_size: 32, classes: 10, ..AmoebaNet::default() }).build()?;
    let full = scope == Scope::Full;
    let policies: &[(&str, RecomputePolicy)] = if full {
        &[
            ("amoebanet", RecomputePolicy::None),
            ("amoebanet-recompute-stage", RecomputePolicy::Stage),
            ("amoebanet-recompute-layer", RecomputePolicy::Layer),
        ]
    } else {
        &[("amoebanet", RecomputePolicy::None)]
    };
    policies
        .iter()
        .map(|&(name, recompute)| {
            let training = TrainingSpec {
                recompute,
                ..training(sgd(), Schedule::OneFOneB, 2 * SIZES[1], MICRO_BATCHES)
            };
            let mut sampler = Sampler::new(18);
            let mut held_out = Vec::new();
            let sizes: &[u32] = if full { &[4, 8, 16] } else { &[8] };
            for &size in sizes {
                held_out.extend(of_pipelines(
                    &model,
                    training.with_micro_batch_size(size),
                    (1, 1),
                    (if full { 6 } else { 2 }, STAGES),
                    group(SIZES[1], size),
                    &mut sampler,
                )?);
            }
            Ok(Study {
                name: name.to_owned(),
                model: model.clone(),
                training,
                sizes: SIZES.to_vec(),
                scenarios: vec![Scenario::SINGLE],
                // The paper's stages of so large a model take longer than all that is held out.
                capture: if full { vec![Scenario::SINGLE] } else { Vec::new() },
                held_out,
                partitionings: false,
                judges_cost: false,
            })
        })
        .collect()
}
