//! Plans and timelines for tests.

use loadmaster_proto::wire::v1::chunked_stage::Residency;
use loadmaster_proto::wire::v1::{
    ChunkLayout, ChunkTraffic, ChunkedStage, CopySpan, CopyTimeline, DeviceGroup, DeviceRange, FigureOrigin,
    FrontPoint, MemoryAccounting, MemoryBreakdown, MemoryFigure, MemoryInterval, PassSpan, PipelineLayout,
    PlacedDevice, Plan, PlanStage, ResidencyInterval, ResidencyPlan, SimulatedSchedule, StageConfig,
    StageTimeline, Timeline, TrainingSpec, pass_span,
};

pub(crate) const MIB: i64 = 1 << 20;

pub(crate) fn figure(bytes: i64, source: FigureOrigin, origin: &str) -> MemoryFigure {
    let origin = origin.to_owned();
    MemoryFigure {
        bytes,
        accounting: MemoryAccounting::Allocated.into(),
        origin: source.into(),
        producer: origin,
    }
}

pub(crate) fn config(layers: (i32, i32), data_degree: i32, tensor_degree: i32) -> StageConfig {
    StageConfig {
        first_layer: layers.0,
        last_layer: layers.1,
        data_parallel_size: data_degree,
        tensor_parallel_size: tensor_degree,
        ..Default::default()
    }
}

/// A stage that needs `mib` of 1 GiB, a fourth of it weights, the rest activations, with a margin of a tenth.
pub(crate) fn stage(config: StageConfig, mib: i64) -> PlanStage {
    PlanStage {
        config: Some(config),
        first_layer_name: format!("layer{}", config.first_layer),
        last_layer_name: format!("layer{}", config.last_layer),
        capacity_bytes: 1024 * MIB,
        predicted_peak: Some(figure(mib * MIB, FigureOrigin::Predicted, "component/1")),
        breakdown: Some(MemoryBreakdown {
            weights_bytes: mib * MIB / 4,
            activations_bytes: mib * MIB / 4 * 3,
            accounting: MemoryAccounting::Allocated.into(),
            ..MemoryBreakdown::default()
        }),
        interval: Some(MemoryInterval { low_bytes: 0, high_bytes: mib * MIB / 10 * 11, margin_ratio: 0.1 }),
        ..PlanStage::default()
    }
}

/// Three stages on five devices of two nodes; the second stage is data and tensor parallel at most.
pub(crate) fn plan() -> Plan {
    let mut stages = vec![
        stage(config((0, 3), 1, 1), 512),
        stage(config((4, 6), 1, 2), 768),
        stage(config((7, 9), 2, 1), 256),
    ];
    let device = |node: &str, index: i32| PlacedDevice {
        node: node.to_owned(),
        index,
        kind: "H200".to_owned(),
        capacity_bytes: 1024 * MIB,
        ..PlacedDevice::default()
    };
    stages[0].device_ranges = DeviceRange::of([device("node0", 0)]);
    stages[1].device_ranges = DeviceRange::of([device("node0", 1), device("node0", 2)]);
    stages[2].device_ranges = DeviceRange::of([device("node1", 0), device("node1", 1)]);
    Plan {
        name: "plans/7f3c".to_owned(),
        profile: "profiles/gpt2".to_owned(),
        model: "models/gpt2-1f".to_owned(),
        training: Some(TrainingSpec { micro_batch_size: 8, micro_batch_count: 4, ..TrainingSpec::default() }),
        devices: vec![DeviceGroup { count: 5, capacity_bytes: 1024 * MIB, kind: "H200".to_owned() }],
        predicted_peak: stages[1].predicted_peak.clone(),
        stages,
        ..Plan::default()
    }
}

pub(crate) fn visit(chunk: i32, gradients: bool, boundaries: [i32; 4]) -> ResidencyInterval {
    let [fetched, needed, leaves, freed] = boundaries;
    ResidencyInterval {
        chunk,
        gradients_only: gradients,
        prefetch_step: fetched,
        first_use_step: needed,
        evict_step: leaves,
        free_step: freed,
    }
}

/// One stage of four chunks that trains two micro-batches in eight steps; the last chunk is on the device for good. It
/// takes 96 to 768 of 1,024 MiB.
pub(crate) fn in_chunks() -> Plan {
    let visits = vec![
        visit(0, false, [0, 0, 2, 2]),
        visit(0, false, [5, 6, 8, 8]),
        visit(1, false, [1, 2, 5, 6]),
        visit(2, false, [2, 4, 5, 7]),
        visit(0, true, [6, 6, 7, 8]),
    ];
    let mut stage = stage(config((0, 3), 1, 1), 768);
    stage.chunked_training = Some(ChunkedStage {
        layout: ChunkLayout::Aligned.into(),
        chunk_elements: 16 << 20,
        resident_chunks: vec![3],
        residency: Some(Residency::PlannedResidency(ResidencyPlan { intervals: visits })),
        ..ChunkedStage::default()
    });
    stage.chunk_traffic = Some(ChunkTraffic {
        non_chunk_step_bytes: [64, 128, 256, 384, 512, 256, 128, 64].map(|mib| mib * MIB).into(),
        chunk_step_bytes: [32, 64, 128, 128, 256, 256, 64, 32].map(|mib| mib * MIB).into(),
        host_bytes: 2048 * MIB,
        ..ChunkTraffic::default()
    });
    Plan { stages: vec![stage], ..plan() }
}

/// The same after a trial in which each step held 32 MiB less besides chunks.
pub(crate) fn trained_in_chunks() -> Plan {
    let mut plan = in_chunks();
    for stage in &mut plan.stages {
        stage.measured_peak = Some(figure(736 * MIB, FigureOrigin::Measured, "runs/01"));
        stage.measured_chunk_traffic = stage.chunk_traffic.clone();
        let run = stage.measured_chunk_traffic.iter_mut();
        run.for_each(|run| run.non_chunk_step_bytes.iter_mut().for_each(|bytes| *bytes -= 32 * MIB));
    }
    plan
}

/// The plan after a trial that needed 64 MiB less than predicted on every stage.
pub(crate) fn validated() -> Plan {
    let mut plan = plan();
    for stage in &mut plan.stages {
        let predicted = stage.predicted_peak.as_ref().map_or(0, |peak| peak.bytes);
        stage.measured_peak = Some(figure(predicted - 64 * MIB, FigureOrigin::Measured, "runs/01"));
    }
    plan
}

/// The plan with a front of three points, itself the fastest.
pub(crate) fn pareto() -> Plan {
    let mut plan = plan();
    let point = |mib: i64, iteration_seconds: f64, name: &str, layers: i32| FrontPoint {
        predicted_peak: Some(figure(mib * MIB, FigureOrigin::Predicted, "component/1")),
        iteration_seconds,
        pipeline_layout: Some(PipelineLayout { stages: vec![config((0, layers - 1), 1, 1)] }),
        micro_batch_size: 8,
        plan: name.to_owned(),
        ..FrontPoint::default()
    };
    plan.front =
        vec![point(500, 2.0, "plans/a", 10), point(600, 1.4, "plans/b", 9), point(768, 1.0, "plans/7f3c", 8)];
    plan
}

/// GPipe on as many stages, with passes of 1 s forward and 2 s backward and a step of 1 s.
pub(crate) fn timeline(stages: i32, micro_batches: i32) -> Timeline {
    let pass = |kind: pass_span::Kind, micro_batch: i32, start: i32, length: i32| PassSpan {
        kind: kind.into(),
        micro_batch,
        virtual_stage: 0,
        start_seconds: start.into(),
        end_seconds: (start + length).into(),
        ..PassSpan::default()
    };
    let turn = stages - 1 + micro_batches;
    let end = turn + 2 * (stages - 1 + micro_batches);
    let lane = |stage: i32| {
        let forward = (0..micro_batches).map(|m| pass(pass_span::Kind::Forward, m, stage + m, 1));
        let backward = (0..micro_batches)
            .map(|m| pass(pass_span::Kind::Backward, m, turn + 2 * (stages - 1 - stage + m), 2));
        let step = std::iter::once(pass(pass_span::Kind::OptimizerStep, 0, end, 1));
        StageTimeline {
            stage,
            passes: forward.chain(backward).chain(step).collect(),
            busy_seconds: (3 * micro_batches + 1).into(),
            in_flight_micro_batch_count: micro_batches,
            weight_version_count: 1,
            ..StageTimeline::default()
        }
    };
    Timeline {
        plan: "plans/7f3c".to_owned(),
        schedule: SimulatedSchedule::Gpipe.into(),
        stage_timelines: (0..stages).map(lane).collect(),
        iteration_seconds: (end + 1).into(),
        bubble_ratio: 0.25,
        ..Timeline::default()
    }
}

/// A direction of a link, from and to these stages, with one copy of 64 MiB that is waited for.
pub(crate) fn way(
    (sender_stage, receiver_stage): (Option<i32>, Option<i32>),
    copy: CopySpan,
) -> CopyTimeline {
    CopyTimeline {
        sender_stage,
        receiver_stage,
        busy_seconds: copy.end_seconds - copy.start_seconds,
        copies: vec![copy],
        copy_count: 1,
        bytes: 64 * MIB,
        waited_seconds: 1.0,
    }
}
