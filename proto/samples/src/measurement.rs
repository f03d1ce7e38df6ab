//! A training, the settings of a profile, measurements of its runs, and a request for plans.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::{LayerTimes, Measurement};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::run::ProfilingMode;
use loadmaster_proto::measure::trace::{LayerContent, LayerTrace, Passage, TraceStep};
use loadmaster_proto::model::Model;
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::plan::objective::{Objective, SearchMode};
use loadmaster_proto::plan::request::{Goal, NamedSettings, PlanRequest};
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::actions::Allowed;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{
    Optimizer, Precision, RecomputePolicy, Schedule, StaticBytes, TrainingSpec,
};

/// What a stage that was trained alone, as the only one of its pipeline, needed for single samples; neither its layers'
/// times nor an allocation trace.
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
        peak_ledger: Accounting::Allocated,
        peak_reserved: None,
        static_bytes: StaticBytes::default(),
        offload: None,
        chunks: None,
        capacity: Bytes(1 << 30),
        iteration_seconds: 1.0,
        step_seconds: 0.0,
        layers: Vec::new(),
        trace: None,
        losses: Vec::new(),
        environment: Environment { device_kind: "cpu".to_owned(), ..Environment::default() },
    }
}

/// A linear layer as a rank records it alone, which keeps its input, and something of its own: bytes of what is handed on, and
/// of that.
fn linear_trace(model: &Model, layer: usize, [edge, own]: [u64; 2]) -> LayerTrace {
    let has_input_gradient = layer > 0;
    let passage = |frees_gradient: bool| Passage {
        blocks: vec![edge, own, edge, edge, edge / 2, 4_096, edge],
        inputs: vec![0],
        outputs: vec![2],
        output_gradients: vec![3],
        input_gradients: if has_input_gradient { vec![6] } else { Vec::new() },
        saved: vec![0, 1],
        slots: [
            vec![1],
            vec![2, 3],
            vec![-3],
            vec![4],
            [
                vec![5, -5, 6],
                if frees_gradient { vec![-6] } else { Vec::new() },
                if has_input_gradient { vec![7] } else { Vec::new() },
                vec![-2, -4, -1],
            ]
            .concat(),
            if has_input_gradient { vec![-7] } else { Vec::new() },
        ],
        ..Passage::default()
    };
    let trace = LayerTrace {
        layer,
        content: LayerContent::of(model, layer).unwrap().fingerprint(),
        first: passage(false),
        later: passage(true),
        without_graph: Passage {
            blocks: vec![edge, own, edge],
            inputs: vec![0],
            outputs: vec![2],
            slots: [vec![1], vec![2, -2, 3, -1], vec![-3], vec![], vec![], vec![]],
            ..Passage::default()
        },
        untrained_input: None,
        step: TraceStep::default(),
        has_saved: true,
        overhead: 0,
    };
    trace.checked().unwrap()
}

/// A linear layer's measurement with that allocation trace, at so many samples: twice as long backward as forward.
///
/// # Panics
/// When the model has no such layer.
pub fn linear_measurement(
    model: &Model,
    layer: usize,
    samples: u32,
    forward: f64,
    bytes: [u64; 2],
) -> Measurement {
    let times = LayerTimes {
        layer,
        forward_seconds: forward,
        backward_seconds: 2.0 * forward,
        recompute_seconds: 0.0,
    };
    Measurement {
        micro_batch_size: samples,
        in_flight: 2,
        peak_allocated: Bytes(0),
        step_seconds: 1e-4,
        layers: vec![times],
        trace: Some(Box::new(linear_trace(model, layer, bytes))),
        ..measurement(StageConfig::single(layer, layer))
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
pub fn settings(
    profiling_mode: ProfilingMode,
    training: TrainingSpec,
    devices: Option<u32>,
) -> ProfileSettings {
    ProfileSettings {
        name: ProfileName::from_id("p").unwrap(),
        model: ModelName::from_id("m").unwrap(),
        training,
        profiling_mode,
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

/// A request for the best plan with memory optimizations, over links between devices as fast as these copies, which names its
/// micro-batch.
pub fn plan_request(objective: Objective, host_memory: Bytes, copy_pace: CopyPace) -> PlanRequest {
    PlanRequest {
        goal: Goal { objective: Some(objective), ..Goal::default() },
        overlap: None,
        mode: SearchMode::Exact,
        seed: 0,
        search_seconds: None,
        alternatives: 0,
        brief: false,
        correct: false,
        merge_layers_to: None,
        partitioning: None,
        host_memory: None,
        stage_actions: Vec::new(),
        allowed: Some(Allowed { host_memory, ..Allowed::default() }),
        chunks: None,
        host_memory_alone: false,
        grow: None,
        copy_pace,
        virtual_stages: 1,
        global_batch_size: 0,
        named: NamedSettings { micro_batch_size: true, ..NamedSettings::default() },
    }
}
