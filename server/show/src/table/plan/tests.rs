//! Plans as they are printed.

use loadmaster_proto::warning::WarningCode;
use loadmaster_proto::wire::v1::{
    FigureOrigin, MemoryAccounting, StageConfig, StageMemoryOptimizations, TrainingSpec,
};

use super::*;

fn memory(bytes: i64, source: FigureOrigin, origin: &str) -> MemoryFigure {
    let origin = origin.to_owned();
    MemoryFigure {
        bytes,
        accounting: MemoryAccounting::Allocated.into(),
        origin: source.into(),
        producer: origin,
    }
}

fn stage(layers: (i32, i32), names: (&str, &str), predicted_mib: i64) -> PlanStage {
    PlanStage {
        config: Some(StageConfig { first_layer: layers.0, last_layer: layers.1, ..Default::default() }),
        first_layer_name: names.0.to_owned(),
        last_layer_name: names.1.to_owned(),
        capacity_bytes: 2 << 30,
        predicted_peak: Some(memory(predicted_mib << 20, FigureOrigin::Predicted, "capture/1")),
        ..PlanStage::default()
    }
}

fn plan() -> Plan {
    Plan {
        name: "plans/7f3c".to_owned(),
        profile: "profiles/vgg11-1a2b".to_owned(),
        model: "models/vgg11-1f".to_owned(),
        training: Some(TrainingSpec { micro_batch_size: 8, micro_batch_count: 4, ..Default::default() }),
        stages: vec![
            stage((0, 7), ("conv1", "relu4"), 812),
            stage((8, 20), ("conv5", "pool5"), 640),
            stage((21, 21), ("avgpool", "avgpool"), 1),
        ],
        predicted_peak: Some(memory(812 << 20, FigureOrigin::Predicted, "capture/1")),
        solver: "leximax/1".to_owned(),
        ..Plan::default()
    }
}

fn validated() -> Plan {
    let mut plan = plan();
    for (stage, mib) in plan.stages.iter_mut().zip([500_i64, 800, 1]) {
        let predicted = stage.predicted_peak.as_ref().unwrap().bytes as f64;
        let measured = mib << 20;
        stage.measured_peak = Some(memory(measured, FigureOrigin::Measured, "runs/01"));
        stage.error_ratio = Some((predicted - measured as f64) / measured as f64);
    }
    plan.trials = vec![TrialResult {
        run: "runs/01".to_owned(),
        iteration_seconds: 1.5,
        peak_error_ratio: Some(0.015),
        ..TrialResult::default()
    }];
    plan
}

#[test]
fn a_plan_before_its_trial_shows_the_prediction() {
    assert_eq!(
        one(&plan(), Look::PLAIN),
        "plan plans/7f3c\n\
         stage  layers               predicted  of 2.00 GiB (allocated)\n\
         0      0..7  conv1-relu4   812.00 MiB  ======..........|  39.6 %\n\
         1      8..20  conv5-pool5  640.00 MiB  =====...........|  31.2 %\n\
         2      21..21  avgpool       1.00 MiB  =...............|   0.0 %\n\
         = predicted   . free   | capacity   % predicted\n\
         predicted by capture/1 from profiles/vgg11-1a2b; layout by leximax/1\n\
         training  vgg11-1f - gpipe - micro-batch 8 x 4 - sgd - fp32\n\
         peak  predicted 812.00 MiB allocated\n"
    );
}

#[test]
fn a_plan_after_its_trial_shows_both() {
    assert_eq!(
        one(&validated(), Look::UNICODE),
        "plan plans/7f3c\n\
         stage  layers               predicted    measured    error  of 2.00 GiB (allocated)\n\
         0      0..7  conv1–relu4   812.00 MiB  500.00 MiB  +62.4 %  ████▒▒··········│  24.4 %\n\
         1      8..20  conv5–pool5  640.00 MiB  800.00 MiB  -20.0 %  █████▓··········│  39.1 %\n\
         2      21..21  avgpool       1.00 MiB    1.00 MiB   +0.0 %  █···············│   0.0 %\n\
         █ measured   ▒ predicted, not used   ▓ used, not predicted   · free   │ capacity   % measured\n\
         predicted by capture/1 from profiles/vgg11-1a2b; measured in runs/01; layout by leximax/1\n\
         training  vgg11-1f · gpipe · micro-batch 8 × 4 · sgd · fp32\n\
         peak  predicted 812.00 MiB allocated  measured 800.00 MiB allocated  error +1.5 % · 1.50 s per iteration\n"
    );
}

#[test]
fn numbers_of_two_accountings_are_named_and_not_drawn_together() {
    let mut plan = validated();
    plan.stages.truncate(1);
    plan.stages[0].measured_peak.as_mut().unwrap().accounting = MemoryAccounting::Reserved.into();
    let text = one(&plan, Look::PLAIN);
    assert!(text.contains("812.00 MiB allocated  500.00 MiB reserved"), "{text}");
    assert!(text.contains("======..........|"), "{text}");
}

#[test]
fn different_capacities_stand_at_their_stages() {
    let mut plan = plan();
    plan.stages[1].capacity_bytes = 4 << 30;
    let text = one(&plan, Look::PLAIN);
    assert!(text.contains("of capacity (allocated)\n"), "{text}");
    assert!(text.contains("15.6 % of 4.00 GiB\n"), "{text}");
}

#[test]
fn warnings_and_failed_trials_are_told() {
    let mut plan = plan();
    plan.warnings = vec![WarningCode::Extrapolated.says("layer 3 was extrapolated").into()];
    plan.trials = vec![TrialResult {
        run: "runs/02".to_owned(),
        failure_message: "stage 0 is out of memory".to_owned(),
        ..TrialResult::default()
    }];
    let text = one(&plan, Look::PLAIN);
    assert!(text.contains("\nwarning: layer 3 was extrapolated\n"), "{text}");
    assert!(text.contains("\nthe newest trial, runs/02, failed: stage 0 is out of memory\n"), "{text}");
}

#[test]
fn margins_parts_and_times_are_shown_where_they_are_known() {
    use loadmaster_proto::wire::v1::{MemoryBreakdown, MemoryInterval, StageSeconds};
    let mut plan = plan();
    let stage = &mut plan.stages[0];
    stage.interval = Some(MemoryInterval { margin_ratio: 0.02, ..MemoryInterval::default() });
    stage.breakdown = Some(MemoryBreakdown { weights_bytes: 1 << 20, ..MemoryBreakdown::default() });
    stage.seconds = Some(StageSeconds { optimizer_step_seconds: 2.0, ..StageSeconds::default() });
    stage.in_flight_micro_batch_count = 4;
    let text = one(&plan, Look::PLAIN);
    assert!(text.contains("812.00 MiB +-2.0 %"), "{text}");
    assert!(text.contains("\nstage   weights\n0      1.00 MiB\n1             -\n"), "{text}");
    assert!(text.contains("0          0 s       0 s  2.00 s  unknown          4\n"), "{text}");
    plan.stages[0].seconds_margin_ratio = Some(0.12);
    let text = one(&plan, Look::PLAIN);
    assert!(text.contains("0          0 s       0 s  2.00 s  +-12.0 %          4\n"), "{text}");
}

/// How a stage trains in chunks follows its times, what was measured beside what was predicted.
#[test]
fn a_plan_in_chunks_says_what_they_move_and_hold() {
    use loadmaster_proto::wire::v1::{ChunkTraffic, ChunkedStage, Precision};
    let mut plan = validated();
    plan.stages.truncate(1);
    plan.training = Some(TrainingSpec { precision: Precision::Bf16.into(), ..TrainingSpec::default() });
    let stage = &mut plan.stages[0];
    stage.chunked_training = Some(ChunkedStage { chunk_elements: 1 << 20, ..ChunkedStage::default() });
    stage.chunk_traffic = Some(ChunkTraffic { fetched_bytes: 6 << 20, ..ChunkTraffic::default() });
    stage.measured_chunk_traffic = Some(ChunkTraffic { fetched_bytes: 8 << 20, ..ChunkTraffic::default() });
    let text = one(&plan, Look::PLAIN);
    assert!(text.contains("\nin chunks  chunks of 1M elements (2.00 MiB of parameters)"), "{text}");
    let row = text.lines().find(|line| line.starts_with("to the device")).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells, ["to the device", "6.00 MiB", "8.00 MiB", "-25.0 %"], "{text}");
}

/// What a trial contradicts is read before the table that it contradicts.
#[test]
fn a_contradicted_plan_opens_with_what_was_measured() {
    use loadmaster_proto::wire::v1::{IterationEstimate, SecondsInterval};
    let mut plan = validated();
    plan.iteration = Some(IterationEstimate {
        iteration_seconds: 0.5,
        interval: Some(SecondsInterval { margin_ratio: 0.05, ..SecondsInterval::default() }),
        ..IterationEstimate::default()
    });
    let text = one(&plan, Look::PLAIN);
    let first = "measured 1.50 s per iteration, 3.00 x the predicted 500.0 ms +-5.0 % (runs/01)\n";
    assert!(text.starts_with(&format!("{first}plan plans/7f3c")), "{text}");
}

/// The headline opens the table, then what trials contradict, the stages and the warnings; lines keep to 80 columns.
#[test]
fn the_headline_comes_first() {
    use crate::text::wrapped;
    let mut plan = validated();
    plan.warnings = vec![WarningCode::Extrapolated.says("layer 3 was extrapolated").into()];
    plan.trials[0].measured_peaks =
        plan.stages.iter().filter_map(|stage| stage.measured_peak.clone()).collect();
    plan.summary = Some(loadmaster_proto::wire::v1::PlanSummary {
        title: "vgg11-133M · TP1·PP3·DP1".to_owned(),
        headline_lines: vec!["Fits, 1.20 GiB free: peak 812.00 MiB".to_owned(), "1.50 s ±5.00 %".to_owned()],
        ..Default::default()
    });
    let text = one(&plan, Look::PLAIN);
    let opening = "Fits, 1.20 GiB free: peak 812.00 MiB\n1.50 s +-5.00 %\nmeasured 500.00 MiB on stage 0, ";
    assert!(text.starts_with(opening), "{text}");
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    let order = [
        "plan plans/7f3c  vgg11-133M - TP1-PP3-DP1\n",
        "stage  layers",
        "\nwarning: ",
        "\ntraining  ",
        "\npeak  ",
    ];
    assert!(order.windows(2).all(|pair| place(pair[0]) < place(pair[1])), "{text}");
    let look = Look { width: Some(80), ..Look::UNICODE };
    let narrow = wrapped(&one(&plan, look), look.width);
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
}

#[test]
fn an_empty_message_does_not_break_the_table() {
    assert!(one(&Plan::default(), Look::PLAIN).starts_with("plan\n"));
}

/// Devices that have several stages in turn give the host's memory that all of these take, and are named once.
#[test]
fn stages_in_turn_take_of_the_host_together() {
    let mut plan = plan();
    plan.stages.push(stage((22, 22), ("head", "head"), 1));
    plan.virtual_stage_count = 2;
    for (stage, mib) in plan.stages.iter_mut().zip([1_i64, 0, 2, 4]) {
        stage.memory_optimizations = Some(StageMemoryOptimizations {
            host_pool_bytes: mib << 20,
            ..StageMemoryOptimizations::default()
        });
    }
    let told = one(&plan, Look::PLAIN);
    assert!(told.contains("training  vgg11-1f"), "{told}");
    assert!(told.contains("CPU memory  7.00 MiB for all devices together"), "{told}");
}
