//! Predictions as they are printed.

use loadmaster_proto::warning::WarningCode;
use loadmaster_proto::wire::v1::{
    MemoryAccounting, MemoryBreakdown, MemoryFigure, MemoryInterval, StageConfig, StageSeconds, TrainingSpec,
};

use super::*;

const MIB: i64 = 1 << 20;

fn stage(layers: (i32, i32), peak: i64, capacity: Option<i64>, verdict: Verdict) -> StagePrediction {
    StagePrediction {
        config: Some(StageConfig { first_layer: layers.0, last_layer: layers.1, ..Default::default() }),
        first_layer_name: "conv1".to_owned(),
        last_layer_name: "relu4".to_owned(),
        peak: Some(MemoryFigure {
            bytes: peak * MIB,
            accounting: MemoryAccounting::Allocated.into(),
            producer: "component/1".to_owned(),
            ..MemoryFigure::default()
        }),
        breakdown: Some(MemoryBreakdown {
            weights_bytes: peak / 2 * MIB,
            activations_bytes: (peak - peak / 2) * MIB,
            ..MemoryBreakdown::default()
        }),
        interval: Some(MemoryInterval {
            low_bytes: peak * MIB * 9 / 10,
            high_bytes: peak * MIB * 11 / 10,
            margin_ratio: 0.1,
        }),
        coverage: ProfileCoverage::Profiled.into(),
        in_flight_micro_batch_count: 4,
        capacity_bytes: capacity.map(|capacity| capacity * MIB),
        slack_bytes: capacity.map(|capacity| (capacity - peak) * MIB - peak * MIB / 10),
        verdict: verdict.into(),
        ..StagePrediction::default()
    }
}

fn answer() -> PredictPlanResponse {
    let mut second = stage((8, 20), 60, Some(50), Verdict::DoesNotFit);
    second.first_device = 1;
    second.config.as_mut().unwrap().tensor_parallel_size = 2;
    PredictPlanResponse {
        profile: "profiles/vgg11-1a2b".to_owned(),
        model: "models/vgg11-1f".to_owned(),
        training: Some(TrainingSpec { micro_batch_size: 8, micro_batch_count: 4, ..Default::default() }),
        predictor: "component/1".to_owned(),
        stages: vec![stage((0, 7), 20, Some(50), Verdict::Fits), second],
        verdict: Verdict::DoesNotFit.into(),
        first_too_small_device: Some(1),
        measurement_count: 12,
        ..PredictPlanResponse::default()
    }
}

#[test]
fn a_prediction_shows_parts_margin_capacity_and_verdict() {
    assert_eq!(
        one(&answer(), Look::PLAIN),
        "stage  layers                       device  peak (allocated)             margin    at most  free of 50.00 MiB                             fits\n\
         0      0..7  conv1-relu4                 0         20.00 MiB  +-10.0 % profiled  22.00 MiB          28.00 MiB  WWWWAAA~..........|        yes\n\
         1      8..20 tensor 2  conv1-relu4     1-2         60.00 MiB  +-10.0 % profiled  66.00 MiB         -16.00 MiB  WWWWWWWWWWWAAAAAAA|AAAA~~  no\n\
         W weights  G gradients  O optimizer  A activations  P P2P  C communication  T transient  V overhead  ~ margin  . free  | capacity\n\
         training  vgg11-1f - gpipe - micro-batch 8 x 4 - sgd - fp32\n\
         stage    weights  activations\n\
         0      10.00 MiB    10.00 MiB\n\
         1      30.00 MiB    30.00 MiB\n\
         by component/1 from 12 measurements of profiles/vgg11-1a2b\n"
    );
}

/// What is unknown is shown as unknown, never as nothing.
#[test]
fn unknown_margins_parts_and_times_are_not_shown_as_zero() {
    let mut answer = answer();
    answer.stages.truncate(1);
    answer.stages[0].interval = None;
    answer.stages[0].breakdown = None;
    let text = one(&answer, Look::PLAIN);
    assert!(text.contains("+-? profiled"), "{text}");
    assert!(text.contains("= predicted  ~ margin"), "{text}");
    assert!(!text.contains("weights") && !text.contains("forward"), "{text}");
    answer.stages[0].seconds = Some(StageSeconds { forward_seconds: 0.5, ..StageSeconds::default() });
    let text = one(&answer, Look::PLAIN);
    assert!(text.contains("500.0 ms       0 s   0 s  unknown"), "{text}");
    answer.stages[0].seconds_margin_ratio = Some(0.25);
    assert!(one(&answer, Look::PLAIN).contains("500.0 ms       0 s   0 s  +-25.0 %"));
}

/// Of a stage in chunks a prediction says what these move, by the number format of the training.
#[test]
fn a_stage_in_chunks_says_what_they_move() {
    use loadmaster_proto::wire::v1::{ChunkTraffic, ChunkedStage};
    let mut answer = answer();
    answer.stages.truncate(1);
    answer.stages[0].chunked_training =
        Some(ChunkedStage { chunk_elements: 1 << 20, ..ChunkedStage::default() });
    answer.stages[0].chunk_traffic = Some(ChunkTraffic { evicted_bytes: 6 << 20, ..ChunkTraffic::default() });
    let text = one(&answer, Look::PLAIN);
    assert!(text.contains("\nin chunks  chunks of 1M elements (4.00 MiB of parameters)"), "{text}");
    let row = text.lines().find(|line| line.starts_with("from the device")).unwrap();
    assert!(row.ends_with(" 6.00 MiB") && !text.contains("measured "), "{text}");
}

#[test]
fn what_is_excluded_and_warnings_are_told() {
    let mut answer = answer();
    answer.excluded_memory = vec![ExcludedMemory {
        description: "CUDA context".to_owned(),
        typical_low_bytes: Some(300 * MIB),
        typical_high_bytes: Some(1 << 30),
        note: "lazy loading".to_owned(),
    }];
    answer.warnings = vec![WarningCode::Extrapolated.says("extrapolated").into()];
    let text = one(&answer, Look::UNICODE);
    assert!(text.contains("CUDA context          300.00 MiB – 1.00 GiB  lazy loading\n"), "{text}");
    assert!(text.contains("\nwarning: extrapolated\n"), "{text}");
}

#[test]
fn an_empty_message_does_not_break_the_table() {
    assert!(one(&PredictPlanResponse::default(), Look::PLAIN).starts_with("stage "));
}
