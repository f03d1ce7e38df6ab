//! What a run measures.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, StaticBytes};

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
