//! A training, the settings of a profile, and a measurement of its runs.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::Campaign;
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{
    Optimizer, Precision, RecomputePolicy, Schedule, StaticBytes, TrainingSpec,
};

/// What a stage that was trained alone, as the only one of its pipeline, needed for single samples; neither its layers'
/// times nor a tape.
pub fn measurement(stage: StageConfig) -> Measurement {
    Measurement {
        stage,
        stage_index: 0,
        shard: 0,
        stage_count: 1,
        solo: true,
        micro_batch_size: 1,
        in_flight: 1,
        recompute: RecomputePolicy::None,
        peak_allocated: Bytes(1),
        peak_ledger: Ledger::Allocated,
        peak_reserved: None,
        static_bytes: StaticBytes::default(),
        offload: None,
        chunks: None,
        capacity: Bytes(1 << 30),
        iteration_seconds: 1.0,
        step_seconds: 0.0,
        layers: Vec::new(),
        tape: None,
        losses: Vec::new(),
        environment: Environment { device_kind: "cpu".to_owned(), ..Environment::default() },
    }
}

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
