//! Promises of the additive predictor on small profiles.

use super::*;
use crate::planning::fixtures::{Oracle, WorkingSet};
use crate::planning::metrics::{AddedMemory, derive};
use crate::planning::neighbours::Neighbours;

fn metrics(layer: usize, (size, in_flight): (u32, u32), isolated: u64, added: Option<i64>) -> LayerMetrics {
    LayerMetrics {
        layer,
        setting: Setting { micro_batch_size: size, in_flight },
        isolated: Some(Bytes(isolated)),
        added: added.map(|bytes| AddedMemory { bytes, neighbour_first_layer: 0 }),
    }
}

/// Three layers at two micro-batch sizes: 10, 5 and −2 bytes per sample on top of 100, 50 and 0.
fn additive(settings: &[(u32, u32)]) -> Additive {
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
    Additive::new(3, &layers)
}

fn bytes(additive: &Additive, stage: (usize, usize), size: u32, in_flight: u32) -> (u64, Origin) {
    let prediction = additive.peak_bytes(stage.0, stage.1, size, in_flight).unwrap();
    assert_eq!(prediction.predictor, "additive/1");
    (prediction.bytes.0, prediction.origin)
}

/// The formula of III-B1, on a line over the micro-batch size (III-B2).
#[test]
fn a_stage_is_its_first_layer_alone_plus_what_the_others_add() {
    let additive = additive(&[(2, 1), (4, 1)]);
    assert_eq!(bytes(&additive, (0, 0), 2, 1), (120, Origin::Profiled));
    assert_eq!(bytes(&additive, (0, 2), 4, 1), (100 + 40 + 50 + 20 - 8, Origin::Profiled));
    assert_eq!(bytes(&additive, (1, 2), 4, 1), (60 + 40 - 8, Origin::Profiled));
    assert_eq!(bytes(&additive, (0, 1), 8, 1), (150 + 8 * 15, Origin::Extrapolated));
    assert_eq!(bytes(&additive, (0, 1), 3, 1), (150 + 3 * 15, Origin::Interpolated));
}

/// Under 1F1B a stage in the middle lies between the two profiled numbers in flight.
#[test]
fn micro_batches_in_flight_are_read_from_a_second_line() {
    let additive = additive(&[(2, 1), (4, 1), (2, 4), (4, 4)]);
    assert_eq!(bytes(&additive, (0, 1), 2, 4), (150 + 8 * 15, Origin::Profiled));
    assert_eq!(bytes(&additive, (0, 1), 2, 3), (150 + 6 * 15, Origin::Interpolated));
    assert_eq!(bytes(&additive, (0, 1), 8, 3), (150 + 24 * 15, Origin::Extrapolated));
}

/// One point makes no line, and the error says which one there is.
#[test]
fn a_target_that_one_profiled_value_cannot_reach_is_an_error_that_names_it() {
    let one_in_flight = additive(&[(2, 4), (4, 4)]);
    assert_eq!(
        one_in_flight.peak_bytes(0, 1, 4, 3).unwrap_err(),
        PredictionError::OneInFlight { profiled: 4, target: 3 }
    );
    let one_size = additive(&[(2, 1)]);
    assert_eq!(
        one_size.peak_bytes(0, 1, 4, 1).unwrap_err(),
        PredictionError::OneMicroBatchSize { profiled: 2, target: 4 }
    );
    assert_eq!(additive(&[]).peak_bytes(0, 1, 4, 1).unwrap_err(), PredictionError::NothingProfiled);
    assert!(matches!(one_size.peak_bytes(0, 3, 2, 1), Err(PredictionError::NoSuchStage { .. })));
    assert!(matches!(one_size.peak_bytes(1, 0, 2, 1), Err(PredictionError::NoSuchStage { .. })));
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
    let additive = Additive::new(4, &layers);
    assert_eq!(bytes(&additive, (1, 3), 2, 1), (114, Origin::Profiled));
    assert_eq!(
        additive.peak_bytes(0, 2, 2, 1).unwrap_err().to_string(),
        "the added memory of layer 1 was not measured at micro-batch 2 with 1 in flight"
    );
    assert_eq!(
        additive.peak_bytes(3, 3, 2, 1).unwrap_err().to_string(),
        "the isolated memory of layer 3 was not measured at micro-batch 2 with 1 in flight"
    );
}

/// Large negative additions cannot make a peak negative.
#[test]
fn a_prediction_is_never_negative() {
    let layers = [metrics(0, (2, 1), 10, None), metrics(1, (2, 1), 10, Some(-50))];
    assert_eq!(bytes(&Additive::new(2, &layers), (0, 1), 2, 1), (0, Origin::Profiled));
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
    let additive = |sizes: &[u32]| {
        let peaks: Vec<_> = sizes.iter().flat_map(|&size| oracle.profile(&neighbours, size, 12)).collect();
        Additive::new(30, &derive(&oracle.names(), &neighbours, &[], &peaks).layers)
    };
    let (scaled, direct) = (additive(&[23, 46]), additive(&[92]));
    for (first, last) in (0..30).flat_map(|first| (first..30).map(move |last| (first, last))) {
        let scaled = scaled.peak_bytes(first, last, 92, 12).unwrap();
        let direct = direct.peak_bytes(first, last, 92, 12).unwrap();
        assert_eq!(scaled.bytes, direct.bytes, "{first}..{last}");
        assert_eq!((scaled.origin, direct.origin), (Origin::Extrapolated, Origin::Profiled));
    }
}
