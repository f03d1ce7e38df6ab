//! Summaries of known and of random plans.

use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

use super::*;

const GIB: i64 = 1 << 30;

fn model() -> SummaryModel {
    SummaryModel {
        title: "llama-8.03B".to_owned(),
        tokens_per_sample: Some(8_192),
        flops_per_sample: Some(4.2164e14),
        without_tokens: "not a language model",
    }
}

fn figure(bytes: i64) -> v1::MemoryFigure {
    v1::MemoryFigure {
        bytes,
        accounting: v1::MemoryAccounting::Allocated.into(),
        origin: v1::FigureOrigin::Predicted.into(),
        producer: "component/2".to_owned(),
    }
}

/// Llama-3.1-8B on 64 H100: TP2, PP4, DP8, global batch 256.
fn plan() -> v1::Plan {
    let stage = |(index, peak): (i32, i64)| v1::PlanStage {
        config: Some(v1::StageConfig {
            first_layer: 8 * index,
            last_layer: 8 * index + 7,
            data_parallel_size: 8,
            tensor_parallel_size: 2,
            ..Default::default()
        }),
        capacity_bytes: 79 * GIB,
        predicted_peak: Some(figure(peak * GIB)),
        interval: Some(v1::MemoryInterval {
            low_bytes: (peak - 2) * GIB,
            high_bytes: (peak + 2) * GIB,
            margin_ratio: 0.03,
        }),
        ..v1::PlanStage::default()
    };
    v1::Plan {
        framework: "torchtitan".to_owned(),
        training: Some(v1::TrainingSpec {
            precision: v1::Precision::Bf16.into(),
            micro_batch_size: 8,
            micro_batch_count: 32,
            ..v1::TrainingSpec::default()
        }),
        stages: [61, 54, 50, 58].into_iter().enumerate().map(|(i, peak)| stage((i as i32, peak))).collect(),
        layout_notation: "8d8t2-8d8t2-8d8t2-8d8t2".to_owned(),
        devices: vec![v1::DeviceGroup { count: 64, kind: "H100".to_owned(), ..v1::DeviceGroup::default() }],
        predicted_peak: Some(figure(61 * GIB)),
        verdict: v1::Verdict::Fits.into(),
        objective: v1::Objective::MinIterationTime.into(),
        iteration: Some(v1::IterationEstimate {
            iteration_seconds: 4.0,
            interval: Some(v1::SecondsInterval { low_seconds: 3.8, high_seconds: 4.2, margin_ratio: 0.05 }),
            ..v1::IterationEstimate::default()
        }),
        certificate: Some(v1::Certificate {
            optimal: true,
            optimality_gap: Some(0.0),
            ..v1::Certificate::default()
        }),
        hourly_price: Some(128.0),
        ..v1::Plan::default()
    }
}

/// 64 samples/s on 64 GPUs are one sample of 4.2164e14 FLOPs per second and GPU: 421.64 TFLOP/s of 989.
#[test]
fn a_language_model() {
    let summary = of_plan(&plan(), &model(), None);
    assert_eq!(summary.title, "llama-8.03B · TP2·PP4·DP8 · torchtitan");
    assert_eq!(
        summary.headline_lines,
        [
            "Fits, 16.00 GiB free: peak 61.00 GiB allocated of 79.00 GiB (stage 0)",
            "4.00 s ±5.0 % · 524k tokens/s, 8.19k/GPU · 422 TFLOP/s/GPU · MFU 42.6 %",
            "TP2·PP4·DP8 on 64 GPUs · 32 micro-batches of 1 per GPU · global batch 256",
            "no recomputation · torchtitan",
            "Optimal by these predictions: min-iteration-time · 128.00/hour, 0.14/iteration",
        ]
    );
    assert_eq!(summary.tokens_per_second, Some(524_288.0));
    assert_eq!(summary.device_tokens_per_second, Some(8_192.0));
    assert!((summary.model_flops_utilization.unwrap() - 0.42633).abs() < 1e-4);
    assert_eq!((summary.device_micro_batch_size, summary.global_batch_size), (1, 256));
}

/// Lists read plans without stages: the same sizes and rates, no text and no verdict.
#[test]
fn a_plan_in_short() {
    let whole = of_plan(&plan(), &model(), None);
    let short = v1::Plan { stages: Vec::new(), certificate: None, verdict: 0, ..plan() };
    let summary = of_plan(&short, &model(), None);
    assert_eq!((&summary.title, summary.headline_lines.len(), summary.verdict), (&whole.title, 0, 0));
    assert_eq!(summary.model_flops_utilization, whole.model_flops_utilization);
    assert_eq!((summary.optimal, summary.slack_bytes), (None, None));
}

/// What is not known has its reason, and nothing is claimed that the certificate does not.
#[test]
fn reasons() {
    let line = |change: fn(&mut v1::Plan), model: &SummaryModel, line: usize| {
        let mut plan = plan();
        change(&mut plan);
        of_plan(&plan, model, None).headline_lines[line].clone()
    };
    let vgg = SummaryModel { tokens_per_sample: None, flops_per_sample: None, ..model() };
    assert_eq!(
        line(|_| (), &vgg, 1),
        "Iteration 4.00 s ±5.0 % · 64.0 samples/s · no tokens/s: not a language model"
    );
    let cpu = line(|plan| plan.devices[0].kind = "cpu".to_owned(), &model(), 1);
    assert_eq!(cpu, "4.00 s ±5.0 % · 524k tokens/s, 8.19k/device · no MFU: bf16 FLOP/s of cpu unknown");
    let other = line(|plan| plan.devices[0].kind = "an accelerator with a long name".to_owned(), &model(), 1);
    assert_eq!(other, "Iteration 4.00 s ±5.0 % · 524k tokens/s, 8.19k/GPU · no MFU · 422 TFLOP/s/GPU");
    let wide = |plan: &mut v1::Plan| {
        plan.iteration.as_mut().unwrap().interval.as_mut().unwrap().margin_ratio = 1.22;
    };
    assert_eq!(
        line(wide, &model(), 1),
        "Iteration time unusable (±122 %), rely on memory: profile on an idle machine"
    );
    assert!(
        line(wide, &model(), 4).starts_with("Optimal only by unusable time predictions: min-iteration-time")
    );
    let gap = |plan: &mut v1::Plan| {
        plan.certificate = Some(v1::Certificate {
            optimality_gap: Some(0.031),
            deadline_reached: true,
            ..Default::default()
        });
    };
    assert!(line(gap, &model(), 4).starts_with("Optimality gap 3.1 % (search stopped): min-iteration-time"));
    let open = |plan: &mut v1::Plan| plan.certificate = Some(v1::Certificate::default());
    assert!(line(open, &model(), 4).starts_with("Not proven optimal, because no best bound is known"));
    let given = |plan: &mut v1::Plan| plan.certificate = None;
    assert!(line(given, &model(), 4).starts_with("Layout as requested, not compared"));
}

/// A framework's memory replaces the plan's own peaks, and the stage is the one that is closest to its capacity.
#[test]
fn memory_of_a_framework() {
    let peak = |stage, peak: i64, capacity: i64| StagePeak {
        stage,
        peak: peak * GIB,
        high: Some((peak + 1) * GIB),
        capacity: Some(capacity * GIB),
    };
    let plan = v1::Plan { verdict: v1::Verdict::DoesNotFit.into(), ..plan() };
    let summary = of_plan(&plan, &model(), Some(vec![peak(0, 62, 79), peak(1, 42, 40)]));
    assert_eq!(
        summary.headline_lines[0],
        "Does not fit, 3.00 GiB short: peak 42.00 GiB allocated of 40.00 GiB (stage 1)"
    );
    assert_eq!((summary.peak_stage, summary.slack_bytes), (Some(1), Some(-3 * GIB)));
}

#[test]
fn other_plans() {
    let mut plan = plan();
    plan.virtual_stage_count = 2;
    plan.stages[1].config.as_mut().unwrap().tensor_parallel_size = 4;
    plan.stages[2].recompute = v1::RecomputePolicy::Layer.into();
    let summary = of_plan(&plan, &model(), None);
    assert_eq!(summary.title, "llama-8.03B · TP2–4·PP2·DP8 · torchtitan");
    assert_eq!(summary.tensor_parallel_size, 0);
    assert_eq!(summary.headline_lines[3], "2 virtual stages · recompute layer · torchtitan");
}

prop_compose! {
    fn any_plan()(
        stages in prop::collection::vec((0_i64..1 << 48, 0_i64..1 << 48, 0_i32..20, 0_i32..65, any::<bool>()), 0..20),
        text in ".{0,60}", kind in prop::sample::select(vec!["", "cpu", "H100", "a kind with a name of some length"]),
        count in 0_i32..20_000, batch in (0_i32..1_000_000, 0_i32..10_000), verdict in 0_i32..6,
        seconds in prop::option::of((0.0_f64..1e7, prop::option::of(0.0_f64..30.0))),
        proof in prop::option::of((any::<bool>(), prop::option::of(0.0_f64..2.0), any::<bool>())),
        price in prop::option::of(0.0_f64..1e7), objective in 0_i32..9, virtual_stages in 0_i32..5, precision in 0_i32..3,
    ) -> v1::Plan {
        let stage = |&(peak, capacity, data, tensor, known): &(i64, i64, i32, i32, bool)| v1::PlanStage {
            config: Some(v1::StageConfig { data_parallel_size: data, tensor_parallel_size: tensor, ..Default::default() }),
            capacity_bytes: capacity,
            predicted_peak: Some(figure(peak)),
            interval: known.then(|| v1::MemoryInterval { high_bytes: peak + peak / 8, ..Default::default() }),
            recompute: data % 3,
            ..v1::PlanStage::default()
        };
        v1::Plan {
            framework: text,
            training: Some(v1::TrainingSpec {
                precision, micro_batch_size: batch.0, micro_batch_count: batch.1, ..Default::default()
            }),
            stages: stages.iter().map(stage).collect(),
            devices: vec![v1::DeviceGroup { count, kind: kind.to_owned(), ..Default::default() }],
            predicted_peak: stages.first().map(|of| figure(of.0)),
            verdict, objective, virtual_stage_count: virtual_stages,
            iteration: seconds.map(|(iteration_seconds, margin)| v1::IterationEstimate {
                iteration_seconds,
                interval: margin.map(|margin_ratio| v1::SecondsInterval { margin_ratio, ..Default::default() }),
                ..Default::default()
            }),
            certificate: proof.map(|(optimal, optimality_gap, deadline_reached)| v1::Certificate {
                optimal, optimality_gap, deadline_reached, ..Default::default()
            }),
            hourly_price: price,
            ..v1::Plan::default()
        }
    }
}

proptest! {
    /// At most five lines of at most 80 columns; rates and their reason exclude each other; MFU is FLOPs by the peak rate.
    #[test]
    fn headlines_fit(plan in any_plan(), tokens in prop::option::of(1_u64..100_000), title in ".{0,90}") {
        let flops = tokens.map(|tokens| tokens as f64 * 5e10);
        let model = SummaryModel { title, tokens_per_sample: tokens, flops_per_sample: flops, without_tokens: "not a language model" };
        let summary = of_plan(&plan, &model, None);
        prop_assert!(summary.headline_lines.len() <= 5, "{:?}", summary.headline_lines);
        for line in summary.headline_lines.iter().chain([&summary.title]) {
            prop_assert!(line.width() <= 80 && !line.is_empty(), "{line:?}");
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        if summary.samples_per_second.is_some() {
            prop_assert_eq!(summary.throughput_note.is_empty(), summary.model_flops_utilization.is_some());
        }
        if !summary.iteration_usable {
            prop_assert_eq!((summary.samples_per_second, summary.model_flops_utilization), (None, None));
        }
        if let (Some(share), Some(rate)) = (summary.model_flops_utilization, summary.device_teraflops_per_second) {
            let peak = if plan.training.as_ref().unwrap().precision() == v1::Precision::Bf16 { 989.0 } else { 67.0 };
            prop_assert!((share * peak - rate).abs() <= 1e-9 * rate, "{share} {rate}");
        }
        if summary.optimal == Some(true) {
            prop_assert!(plan.certificate.as_ref().is_some_and(|of| of.optimal));
        }
    }
}
