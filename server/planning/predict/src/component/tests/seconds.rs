//! Seconds of a predictor whose recordings are made up, so that only their times matter.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::measurement::{LayerTimes, Measurement};
use loadmaster_proto::measure::trace::{LayerTrace, Passage, TraceStep};
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::training::Schedule;

use super::super::*;
use crate::tests::{measurement, training};
use crate::{Origin, StageSeconds};

fn model() -> Model {
    Zoo::Gpt2(Gpt2 { blocks: 2, ..Gpt2::default() }).build().unwrap()
}

/// A run of layers `first..=last`, each of which takes these times, with an allocation trace where it is one layer.
fn run(
    model: &Model,
    (first, last): (usize, usize),
    size: u32,
    passes: (f64, f64),
    iteration: f64,
) -> Measurement {
    let trace = |layer| LayerTrace {
        layer,
        content: LayerContent::of(model, layer).unwrap().fingerprint(),
        first: Passage::default(),
        later: Passage::default(),
        without_graph: Passage::default(),
        untrained_input: None,
        step: TraceStep::default(),
        has_saved: false,
        overhead: 0,
    };
    let times = |layer| LayerTimes {
        layer,
        forward_seconds: passes.0,
        backward_seconds: passes.1,
        recompute_seconds: 0.0,
    };
    Measurement {
        stage_index: u32::from(first > 0),
        stage_count: 3,
        micro_batch_size: size,
        in_flight: 2,
        capacity: Bytes(1 << 40),
        iteration_seconds: iteration,
        step_seconds: 0.5,
        layers: (first..=last).map(times).collect(),
        trace: (first == last).then(|| Box::new(trace(first))),
        ..measurement(StageConfig::single(first, last))
    }
}

/// Every layer at 4 samples: 2 s forward and 4.2 s back; at 8: 2.6 s and 7.6 s, whose line reaches 0.8 s at one.
fn component(model: &Model) -> Component {
    let layers = 0..model.layers().len();
    let runs = layers.flat_map(|layer| {
        [run(model, (layer, layer), 4, (2.0, 4.2), 0.0), run(model, (layer, layer), 8, (2.6, 7.6), 0.0)]
    });
    let runs: Vec<Measurement> = runs.collect();
    let named = runs.iter().map(|measurement| ("runs/1/measurements/0-0", measurement));
    Component::new(model, &training(Schedule::Gpipe, 8, 4), named).unwrap()
}

fn ask(component: &Component, size: u32, data_degree: u32) -> Prediction {
    let stage = StageConfig { data_degree, ..StageConfig::single(1, 2) };
    let training = training(Schedule::Gpipe, size, 4);
    component.stage(&StageSetting { stage, stage_index: 1, stage_count: 3, training }).unwrap()
}

/// A pass of fewer samples than were ever recorded takes what the smallest recording took, in stages and in a search,
/// whether the micro-batch is small or replicas make it so.
#[test]
fn no_pass_is_faster_than_at_the_smallest_recorded_size() {
    let component = component(&model());
    assert_eq!(component.smallest_share(), Some(4));
    let smallest = StageSeconds { forward: 4.0, backward: 8.4, step: 1.0 };
    for (size, data_degree) in [(1, 1), (2, 1), (3, 1), (4, 1), (8, 4), (8, 8)] {
        let prediction = ask(&component, size, data_degree);
        assert_eq!(prediction.seconds, Some(smallest), "{size} over {data_degree}");
        let origin = if size / data_degree < 4 { Origin::Extrapolated } else { Origin::Profiled };
        assert_eq!(prediction.origin, origin);
        let share = Share { micro_batch_size: size / data_degree, tensor_degree: 1 };
        let cost = component.layer_costs(share)[1].unwrap();
        assert_eq!((cost.seconds.forward, cost.seconds.backward, cost.origin), (2.0, 4.2, origin));
    }
}

/// What the checks took beyond their prediction is the margin, with an allowance; without checks there is none.
#[test]
fn the_margin_of_seconds_is_learnt_from_checks() {
    let model = model();
    assert_eq!(ask(&component(&model), 4, 1).seconds_margin, None);
    let at_four = training(Schedule::Gpipe, 4, 3);
    // Two layers, three micro-batches: 3 · 12.4 s and a step of 1 s are predicted, a tenth and a fifth more measured.
    let slower = |share: f64| run(&model, (1, 2), 4, (2.0, 4.2), (3.0 * 12.4 + 1.0) * (1.0 + share));
    let (one, two) = (slower(0.1), slower(0.2));
    let checked = component(&model).with_checks(&[(at_four, &one), (at_four, &two)]);
    let margin = |size, data_degree| ask(&checked, size, data_degree).seconds_margin.unwrap();
    let learnt = 0.2 * pace::ALLOWANCE;
    assert!((margin(4, 1) - learnt).abs() < 1e-9);
    assert!((margin(8, 2) - learnt).abs() < 1e-9);
    assert!((margin(8, 8) - 0.75).abs() < 1e-9, "one of four samples may take a quarter of their time");
    let untimed = run(&model, (1, 2), 4, (2.0, 4.2), 0.0);
    let untimed = component(&model).with_checks(&[(at_four, &untimed)]);
    assert_eq!(ask(&untimed, 4, 1).seconds_margin, None, "a check that was not timed tells no seconds");
}

/// Others that used a share of the cores while layers were recorded, and while stages were checked, are in no error of a check: the
/// interval is as wide as they may have made the seconds, of the layers alone that were disturbed.
#[test]
fn disturbed_recordings_widen_the_interval_that_quiet_checks_give() {
    let model = model();
    let made = |share: Option<f64>, layers: &[usize]| {
        let runs = (0..model.layers().len()).flat_map(|layer| {
            let sizes = [(4, (2.0, 4.2)), (8, (2.6, 7.6))];
            sizes.map(|(size, passes)| {
                let mut run = run(&model, (layer, layer), size, passes, 10.0);
                run.environment.contended = layers.contains(&layer);
                run.environment.others_share = share.filter(|_| layers.contains(&layer));
                run
            })
        });
        let runs: Vec<Measurement> = runs.collect();
        let component = Component::new(
            &model,
            &training(Schedule::Gpipe, 8, 4),
            runs.iter().map(|run| ("runs/1/measurements/0-0", run)),
        );
        let environments = runs.iter().map(|run| &run.environment);
        component.unwrap().disturbed_by(Disturbance::of(environments))
    };
    let training = training(Schedule::Gpipe, 4, 4);
    let first = StageSetting { stage: StageConfig::single(0, 1), stage_index: 0, stage_count: 3, training };
    let margin = |component: &Component| {
        let check = run(&model, (0, 1), 4, (2.0, 4.2), 4.0 * 2.0 * (2.0 + 4.2) + 1.0);
        let checked = component.of_model(&model).with_checks(&[(training, &check)]);
        checked.stage(&first).unwrap().seconds_margin.unwrap()
    };
    let warned = |component: &Component| {
        component.warnings(&first).iter().any(|warning| warning.message.contains("of the CPU cores during"))
    };
    let quiet = made(None, &[]);
    assert_eq!((margin(&quiet), warned(&quiet)), (pace::PROFILED, false));
    let both = made(Some(0.5), &[0, 1]);
    assert_eq!((margin(&both), warned(&both)), (1.0, true));
    // One of the two layers that the stage is read from, of as many seconds as the other.
    let one = made(Some(0.5), &[1]);
    assert_eq!((margin(&one), warned(&one)), (0.5, true));
    let elsewhere = made(Some(0.5), &[3]);
    assert_eq!((margin(&elsewhere), warned(&elsewhere)), (pace::PROFILED, true));
}
