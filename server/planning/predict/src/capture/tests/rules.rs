//! Promises of the predictor on small profiles.

use super::super::*;
use crate::capture::metrics::{AddedMemory, Setting, StagePeak, derive};
use crate::profiling::neighbours::Neighbours;
use crate::tests::{Oracle, WorkingSet};

fn metrics(layer: usize, (size, in_flight): (u32, u32), isolated: u64, added: Option<i64>) -> LayerMetrics {
    LayerMetrics {
        layer,
        setting: Setting::single(size, in_flight),
        isolated: Some(Bytes(isolated)),
        added: added.map(|bytes| AddedMemory { bytes, neighbour_first_layer: 0 }),
    }
}

/// Three layers at two micro-batch sizes: 10, 5 and −2 bytes per sample on top of 100, 50 and 0.
fn capture(settings: &[(u32, u32)]) -> Capture {
    let layers: Vec<LayerMetrics> = settings
        .iter()
        .flat_map(|&setting| {
            let batch = u64::from(setting.0 * setting.1);
            [
                metrics(0, setting, 100 + 10 * batch, None),
                metrics(1, setting, 60 + 10 * batch, Some(50 + 5 * batch as i64)),
                metrics(2, setting, 20 + 10 * batch, Some(-2 * batch as i64)),
            ]
        })
        .collect();
    Capture::new(3, &layers)
}

fn bytes(capture: &Capture, (first, last): (usize, usize), size: u32, in_flight: u32) -> (u64, Origin) {
    let prediction = capture.peak(StageConfig::single(first, last), size, in_flight).unwrap();
    assert_eq!(prediction.predictor, "capture/1");
    (prediction.bytes.0, prediction.origin)
}

/// The formula of III-B1, on a line over the micro-batch size (III-B2).
#[test]
fn a_stage_is_its_first_layer_alone_plus_what_the_others_add() {
    let capture = capture(&[(2, 1), (4, 1)]);
    assert_eq!(bytes(&capture, (0, 0), 2, 1), (120, Origin::Profiled));
    assert_eq!(bytes(&capture, (0, 2), 4, 1), (100 + 40 + 50 + 20 - 8, Origin::Profiled));
    assert_eq!(bytes(&capture, (1, 2), 4, 1), (60 + 40 - 8, Origin::Profiled));
    assert_eq!(bytes(&capture, (0, 1), 8, 1), (150 + 8 * 15, Origin::Extrapolated));
    assert_eq!(bytes(&capture, (0, 1), 3, 1), (150 + 3 * 15, Origin::Interpolated));
}

/// Under 1F1B a stage in the middle lies between the two profiled numbers in flight.
#[test]
fn micro_batches_in_flight_are_read_from_a_second_line() {
    let capture = capture(&[(2, 1), (4, 1), (2, 4), (4, 4)]);
    assert_eq!(bytes(&capture, (0, 1), 2, 4), (150 + 8 * 15, Origin::Profiled));
    assert_eq!(bytes(&capture, (0, 1), 2, 3), (150 + 6 * 15, Origin::Interpolated));
    assert_eq!(bytes(&capture, (0, 1), 8, 3), (150 + 24 * 15, Origin::Extrapolated));
}

/// One point makes no line, and the error says which one there is.
#[test]
fn a_target_that_one_profiled_value_cannot_reach_is_an_error_that_names_it() {
    let one_in_flight = capture(&[(2, 4), (4, 4)]);
    assert_eq!(
        one_in_flight.peak(StageConfig::single(0, 1), 4, 3).unwrap_err(),
        PredictionError::OneInFlight { profiled: 4, target: 3 }
    );
    let one_size = capture(&[(2, 1)]);
    assert_eq!(
        one_size.peak(StageConfig::single(0, 1), 4, 1).unwrap_err(),
        PredictionError::OneMicroBatchSize { scenario: Scenario::SINGLE, profiled: 2, target: 4 }
    );
    assert_eq!(
        capture(&[]).peak(StageConfig::single(0, 1), 4, 1).unwrap_err(),
        PredictionError::NothingProfiled { scenario: Scenario::SINGLE }
    );
    assert!(matches!(
        one_size.peak(StageConfig::single(0, 3), 2, 1),
        Err(PredictionError::NoSuchStage { .. })
    ));
    assert!(matches!(
        one_size.peak(StageConfig::single(1, 0), 2, 1),
        Err(PredictionError::NoSuchStage { .. })
    ));
}

/// A gap is reported by the stages that need it, and by no other.
#[test]
fn a_missing_metric_is_named_by_the_stages_that_need_it() {
    let setting = (2, 1);
    let mut layers = vec![
        metrics(0, setting, 100, None),
        metrics(1, setting, 100, None),
        metrics(2, setting, 100, Some(7)),
        metrics(3, setting, 100, Some(7)),
    ];
    layers[3].isolated = None;
    let capture = Capture::new(4, &layers);
    assert_eq!(bytes(&capture, (1, 3), 2, 1), (114, Origin::Profiled));
    assert_eq!(
        capture.peak(StageConfig::single(0, 2), 2, 1).unwrap_err().to_string(),
        "the added memory of layer 1 was not measured at micro-batch 2 with 1 in flight. GetProfile lists the missing stages. \
         Resume the profile to measure them"
    );
    assert_eq!(
        capture.peak(StageConfig::single(3, 3), 2, 1).unwrap_err().to_string(),
        "the isolated memory of layer 3 was not measured at micro-batch 2 with 1 in flight. GetProfile lists the missing stages. \
         Resume the profile to measure them"
    );
}

/// Large negative additions cannot make a peak negative.
#[test]
fn a_prediction_is_never_negative() {
    let layers = [metrics(0, (2, 1), 10, None), metrics(1, (2, 1), 10, Some(-50))];
    assert_eq!(bytes(&Capture::new(2, &layers), (0, 1), 2, 1), (0, Origin::Profiled));
}

/// Why there is no floor at the largest isolated memory: true peaks lie below it.
#[test]
fn a_stage_may_need_less_than_one_of_its_layers_alone() {
    for (working_set, expected) in [(WorkingSet::Max, 89), (WorkingSet::Sum, 82)] {
        let oracle = Oracle::new(working_set);
        let peak = |first, last| oracle.peak(first, last, 92, 12);
        let below = (0..30)
            .flat_map(|first| (first..30).map(move |last| (first, last)))
            .filter(|&(first, last)| (first..=last).any(|layer| peak(layer, layer) > peak(first, last)))
            .count();
        assert_eq!(below, expected, "{working_set:?}");
    }
}

/// Where peaks are linear in the micro-batch size, the default half and quarter lose nothing.
#[test]
fn scaling_from_half_and_quarter_agrees_with_profiling_at_the_target() {
    let oracle = Oracle::new(WorkingSet::Sum);
    let neighbours = Neighbours::growing(30, 4);
    let capture = |sizes: &[u32]| {
        let peaks: Vec<_> = sizes.iter().flat_map(|&size| oracle.profile(&neighbours, size, 12)).collect();
        Capture::new(30, &derive(&oracle.names(), &neighbours, &[], &peaks).layers)
    };
    let (scaled, direct) = (capture(&[23, 46]), capture(&[92]));
    for (first, last) in (0..30).flat_map(|first| (first..30).map(move |last| (first, last))) {
        let scaled = scaled.peak(StageConfig::single(first, last), 92, 12).unwrap();
        let direct = direct.peak(StageConfig::single(first, last), 92, 12).unwrap();
        assert_eq!(scaled.bytes, direct.bytes, "{first}..{last}");
        assert_eq!((scaled.origin, direct.origin), (Origin::Extrapolated, Origin::Profiled));
    }
}

/// The metrics of one layer in a scenario, at micro-batch `size` with one in flight.
fn in_scenario(scenario: Scenario, layer: usize, size: u32, isolated: u64, added: i64) -> LayerMetrics {
    let setting = Setting { scenario, ..Setting::single(size, 1) };
    LayerMetrics { setting, ..metrics(layer, (size, 1), isolated, (layer > 0).then_some(added)) }
}

const fn tensor(degree: u32) -> Scenario {
    Scenario { parallelism: Parallelism::Tensor, degree }
}

const fn data(degree: u32) -> Scenario {
    Scenario { parallelism: Parallelism::Data, degree }
}

/// Two layers that hold 400 and 100 bytes, shared by n, and 40 per sample on top.
fn shared(scenario: Scenario, sizes: &[u32]) -> Vec<LayerMetrics> {
    let degree = u64::from(scenario.degree);
    let layers = |&size: &u32| {
        let batch = 40 * u64::from(size);
        [
            in_scenario(scenario, 0, size, 400 / degree + batch, 0),
            in_scenario(scenario, 1, size, 100 / degree + batch, (100 / degree) as i64),
        ]
    };
    sizes.iter().flat_map(layers).collect()
}

/// Each scenario has metrics of its own, on lines of its own (III-B3).
#[test]
fn profiled_degrees_are_read_from_their_own_metrics() {
    let all = [shared(Scenario::SINGLE, &[2, 4]), shared(tensor(2), &[2, 4]), shared(tensor(4), &[2, 4])];
    let capture = Capture::new(2, &all.concat());
    let of = |scenario: Scenario, size| {
        let prediction = capture.peak(scenario.stage(0, 1), size, 1).unwrap();
        (prediction.bytes.0, prediction.origin)
    };
    assert_eq!(of(Scenario::SINGLE, 4), (500 + 160, Origin::Profiled));
    assert_eq!(of(tensor(2), 4), (250 + 160, Origin::Profiled));
    assert_eq!(of(tensor(2), 8), (250 + 320, Origin::Extrapolated));
    assert_eq!(of(tensor(4), 3), (125 + 120, Origin::Interpolated));
    let error = capture.peak(data(2).stage(0, 1), 4, 1).unwrap_err();
    assert_eq!(error, PredictionError::NothingProfiled { scenario: data(2) });
    assert!(error.to_string().contains("PARALLELISM_DATA"), "{error}");
}

/// Above degree 4: the logarithm through 2 and 4, with a warning where the paper's own model A + B/n says
/// otherwise.
#[test]
fn higher_degrees_are_read_from_the_logarithm_and_mistrusted() {
    let capture = Capture::new(2, &[shared(tensor(2), &[2, 4]), shared(tensor(4), &[2, 4])].concat());
    let bytes = |degree| capture.peak(tensor(degree).stage(0, 1), 4, 1).unwrap().bytes.0;
    assert_eq!((bytes(2), bytes(4), bytes(8), bytes(16)), (410, 285, 160, 35));
    assert_eq!(bytes(64), 0, "never below zero");
    let warnings = |degree| {
        let training = crate::tests::training(loadmaster_proto::training::Schedule::Gpipe, 4, 1);
        let stage = tensor(degree).stage(0, 1);
        capture.warnings(&StageSetting { stage, stage_index: 0, stage_count: 1, training })
    };
    assert!(warnings(4).is_empty());
    // A + B/n is 160 + 500/8 = 222.5.
    assert!(warnings(8)[0].message.contains("28 % less memory than the fit A + B/n"), "{:?}", warnings(8));
    let one = Capture::new(2, &shared(tensor(2), &[2, 4]));
    assert_eq!(
        one.peak(tensor(8).stage(0, 1), 4, 1).unwrap_err(),
        PredictionError::OneDegree { profiled: tensor(2), target: 8 }
    );
}

/// One profiled size of a parallel scenario is enough where the pipeline lends its slopes, divided by the
/// degree; without that option it is an error that names the option.
#[test]
fn parallel_scenarios_may_grow_with_the_batch_as_the_pipeline_does() {
    let capture = Capture::new(2, &[shared(Scenario::SINGLE, &[2, 4]), shared(data(2), &[4])].concat());
    let error = capture.peak(data(2).stage(0, 1), 8, 1).unwrap_err();
    assert!(error.to_string().contains("single_device_scaling"), "{error}");
    let scaled = capture.scaled_by_pipeline(true);
    let of = |size| {
        let prediction = scaled.peak(data(2).stage(0, 1), size, 1).unwrap();
        (prediction.bytes.0, prediction.origin)
    };
    assert_eq!(of(4), (410, Origin::Profiled));
    assert_eq!(of(8), (410 + 4 * 40 / 2, Origin::Extrapolated));
    assert_eq!(of(2), (410 - 2 * 40 / 2, Origin::Extrapolated));
}

fn named(peak: StagePeak, name: &str) -> NamedPeak {
    NamedPeak { peak, name: name.to_owned() }
}

/// Stages that were measured and not learnt from tell how far the rule misses; where there are none,
/// it is not known.
#[test]
fn the_margin_comes_from_stages_that_were_held_out() {
    let layers =
        [metrics(0, (2, 1), 100, None), metrics(1, (2, 1), 60, Some(50)), metrics(2, (2, 1), 30, Some(50))];
    let capture = Capture::new(3, &layers);
    let peaks = [
        named(StagePeak::new(0, 0, 2, 1, 100), "runs/a/measurements/0-0"),
        named(StagePeak::new(0, 1, 2, 1, 150), "runs/b/measurements/0-0"),
    ];
    let margin = |peaks: &[NamedPeak]| {
        capture.clone().with_peaks(peaks).peak(StageConfig::single(0, 2), 2, 1).unwrap().margin
    };
    assert_eq!(margin(&peaks), None);
    // 1..2 is predicted to need 110 and needed 121; a tenth, and a quarter of that more.
    let checked = [&peaks[..], &[named(StagePeak::new(1, 2, 2, 1, 121), "runs/c/measurements/1-0")]].concat();
    assert!((margin(&checked).unwrap() - 0.125).abs() < 1e-9);
}

/// A prediction names the measurements behind its own layers, each once, and no others.
#[test]
fn sources_are_the_measurements_behind_the_stage() {
    let layers =
        [metrics(0, (2, 1), 100, None), metrics(1, (2, 1), 60, Some(50)), metrics(2, (2, 1), 30, Some(50))];
    let peaks = [(0, 0, "a"), (1, 1, "b"), (0, 1, "c"), (0, 2, "d"), (2, 2, "e")];
    let peaks: Vec<NamedPeak> =
        peaks.iter().map(|&(first, last, name)| named(StagePeak::new(first, last, 2, 1, 1), name)).collect();
    let capture = Capture::new(3, &layers).with_peaks(&peaks);
    let of = |first, last| {
        let training = crate::tests::training(loadmaster_proto::training::Schedule::Gpipe, 2, 1);
        let stage = StageConfig::single(first, last);
        capture.sources(&StageSetting { stage, stage_index: 0, stage_count: 1, training })
    };
    assert_eq!(of(0, 0), ["a"]);
    assert_eq!(of(1, 1), ["b"]);
    assert_eq!(of(0, 1), ["a", "c"]);
    assert_eq!(of(1, 2), ["b", "c", "d"]);
}

/// Bytes that were measured under one training say nothing about another, and the error says so.
#[test]
fn other_trainings_than_the_profiled_one_are_refused() {
    use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule};

    use crate::tests::training;
    let profiled = training(Schedule::Gpipe, 2, 1);
    let capture = Capture::new(1, &[metrics(0, (2, 1), 100, None)]).profiled_under(profiled);
    let ask = |training| {
        let stage = StageConfig::single(0, 0);
        capture.stage(&StageSetting { stage, stage_index: 0, stage_count: 1, training })
    };
    assert!(ask(profiled).is_ok());
    let learning_rate = Optimizer::Sgd { learning_rate: 0.5, momentum: 0.9, weight_decay: 0.0 };
    assert!(ask(TrainingSpec { optimizer: learning_rate, seed: 9, ..profiled }).is_ok(), "no bytes change");
    let without_state = Optimizer::Sgd { learning_rate: 0.5, momentum: 0.0, weight_decay: 0.0 };
    for (other, told) in [
        (TrainingSpec { schedule: Schedule::OneFOneB, ..profiled }, "schedule gpipe"),
        (TrainingSpec { recompute: RecomputePolicy::Layer, ..profiled }, "recompute policy none"),
        (TrainingSpec { precision: Precision::Bf16, ..profiled }, "precision fp32"),
        (TrainingSpec { optimizer: without_state, ..profiled }, "optimizer sgd with momentum"),
    ] {
        let error = ask(other).unwrap_err().to_string();
        assert!(error.contains(told) && error.contains("PROFILING_MODE_PER_LAYER"), "{error}");
    }
}
