//! What tests of several modules are made of.

use std::time::Duration;

use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::{RunSpec, SoloStage, Work};
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::name::RunName;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::strategy::Strategy;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_samples::cpu_slot;

use crate::run::{Claim, Lease};

pub(crate) fn named(run: &str, token: i64) -> Claim {
    Claim { run: RunName::from_id(run).unwrap(), token }
}

/// A tiny run of one or two stages.
pub(crate) fn spec(stages: usize) -> RunSpec {
    let model = Model::new(
        "test".into(),
        ModelInput::Image { channels: 1, height: 2, width: 2 },
        vec![
            Layer { name: "flatten".into(), kind: LayerKind::Flatten },
            Layer { name: "out".into(), kind: LayerKind::Linear { in_features: 4, out_features: 2 } },
        ],
    )
    .unwrap();
    let training = TrainingSpec {
        precision: Precision::Fp32,
        optimizer: Optimizer::default(),
        schedule: Schedule::Gpipe,
        micro_batch_size: 1,
        micro_batches: 1,
        recompute: RecomputePolicy::None,
        seed: 0,
    };
    let work = if stages == 1 {
        Work::Solo(SoloStage { stage: StageConfig::single(0, 1), stage_count: 1, stage_index: 0 })
    } else {
        Work::Partitioning(Partitioning::from_sizes(&[1, 1]).unwrap())
    };
    RunSpec { model, strategy: Strategy::plain(training, work), iterations: 1, command: None }
}

/// A lease of so many slots for a minute.
pub(crate) fn lease(slots: u32) -> Lease {
    Lease {
        claim: named("one", 1),
        devices: (0..slots).map(cpu_slot).collect(),
        deadline: Duration::from_secs(60),
    }
}

/// A measurement of a stage.
pub(crate) fn measurement(stage_index: u32) -> Box<Measurement> {
    let alone = loadmaster_samples::measurement(StageConfig::single(0, 0));
    Box::new(Measurement { stage_index, stage_count: 3, solo: false, ..alone })
}
