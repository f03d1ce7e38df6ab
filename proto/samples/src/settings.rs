//! What a profile is asked for.

use loadmaster_proto::measure::run::Campaign;
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

/// fp32 SGD with momentum.
pub fn training(schedule: Schedule, micro_batch_size: u32, micro_batches: u32) -> TrainingSpec {
    TrainingSpec {
        precision: Precision::Fp32,
        optimizer: Optimizer::default(),
        schedule,
        micro_batch_size,
        micro_batches,
        recompute: RecomputePolicy::None,
        seed: 1,
    }
}

/// A profile on CPU slots, each stage on one device, at 2 and 4 samples.
pub fn settings(campaign: Campaign, training: TrainingSpec, devices: Option<u32>) -> ProfileSettings {
    ProfileSettings {
        name: ProfileName::from_id("p").unwrap(),
        model: ModelName::from_id("m").unwrap(),
        training,
        campaign,
        devices,
        scenarios: vec![Scenario::SINGLE],
        scale_by_pipeline: false,
        micro_batch_sizes: vec![2, 4],
        command: None,
        device_kind: "cpu".to_owned(),
        iterations: 1,
        min_capacity: 0,
        deadline_seconds: 600,
        fresh: false,
        reuse_contended: false,
        host_memory: None,
    }
}
