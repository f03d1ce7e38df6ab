//! What decides is when copies may begin and must have ended: a table that another simulator printed.

use super::*;

/// Layers swapped of six, the share of the link that this uses, and the iteration over the untouched one when copies have
/// 1, 2, 4 and 6 steps before the memory is free, and as many before a block is needed.
const TABLE: [(usize, f64, [f64; 4]); 5] = [
    (6, 0.3, [1.000, 1.000, 1.000, 1.000]),
    (6, 0.5, [1.110, 1.044, 1.000, 1.000]),
    (6, 0.9, [1.530, 1.314, 1.121, 1.007]),
    (2, 0.5, [1.530, 1.397, 1.177, 1.000]),
    (2, 0.9, [2.214, 2.064, 1.770, 1.267]),
];
/// The same when acts keep to the boundaries of [`loadmaster_proto::training::actions`].
const OURS: [[f64; 4]; 5] = [
    [1.000, 1.000, 1.000, 1.000],
    [1.107, 1.041, 1.000, 1.000],
    [1.513, 1.297, 1.119, 1.007],
    [1.530, 1.397, 1.152, 1.000],
    [2.214, 2.064, 1.709, 1.267],
];
const POINTS: [u32; 4] = [1, 2, 4, 6];

/// 8 stages of 6 equal layers, whose backward passes take twice as long as forward ones, of which the first four swap:
/// the iteration over the untouched one. `acts` says what a device does with all that.
fn ratio(layers: usize, share: f64, points: u32, acts: impl Fn(DeviceSteps) -> DeviceSteps) -> f64 {
    let (count, all, micro_batches) = (8, 6, 32);
    let layer = LayerSeconds { forward: 1.0, backward: 2.0, again: 1.0, update: 0.0 };
    let stage = TestStage { layers: vec![layer; all], ..TestStage::default() };
    let edges = [Edge::default(); 7];
    let rate = Rate::new(1e6, 0.0);
    let links = (0..4).fold(Links::default(), |links, device| links.host(device, rate, rate));
    let seconds = |stages: &[TestStage]| {
        let devices = devices(stages, Schedule::OneFOneB, micro_batches).into_iter().map(&acts);
        seconds(&devices.collect::<Vec<_>>(), &edges, &links)
    };
    let mut stages = vec![stage.clone(); count];
    let untouched = seconds(&stages);
    assert_eq!(untouched, 18.0 * f64::from(micro_batches + 7));
    let actions = StageActions { actions: vec![swap(0, layers - 1, points)], ..StageActions::default() };
    let bytes = (share * 18.0 / layers as f64 * 1e6).round() as u64;
    stages[..4].fill(TestStage { actions, bytes, ..stage });
    seconds(&stages) / untouched
}

/// The table's simulator frees memory before a step's output is handed over, and fetches when the input of the next step
/// has arrived: so taking and giving are steps of their own around each step.
fn strictly(device: DeviceSteps) -> DeviceSteps {
    let steps = device.steps.iter().flat_map(|step| {
        let take = TimedStep { takes: step.takes, ..TimedStep::default() };
        let give = TimedStep { gives: step.gives, ..TimedStep::default() };
        [take, TimedStep::alone(step.seconds), give]
    });
    let trips = device.trips.iter().map(|trip| Trip {
        at: BoundaryInterval {
            leaves: 3 * (trip.at.leaves - 1) + 2,
            freed: 3 * (trip.at.freed - 1) + 2,
            fetched: 3 * trip.at.fetched + 1,
            needed: 3 * trip.at.needed + 1,
        },
        parcels: trip.parcels.clone(),
    });
    DeviceSteps { steps: steps.collect(), trips: trips.collect() }
}

/// To the printed digits.
#[test]
fn the_printed_table_is_reproduced() {
    for (layers, share, printed) in TABLE {
        for (points, printed) in POINTS.into_iter().zip(printed) {
            let ratio = ratio(layers, share, points, strictly);
            assert!(
                (ratio - printed).abs() < 6e-4,
                "{layers} of 6, {share}, {points}: {ratio}, not {printed}"
            );
        }
    }
}

/// Handing over belongs to the step that computed, and waiting for what comes in to the one that takes it: copies then
/// have more of the time that goes by anyway, and no entry of the table is longer.
#[test]
fn acts_at_boundaries_alone_are_never_slower_than_the_table() {
    for ((layers, share, printed), ours) in TABLE.into_iter().zip(OURS) {
        for ((points, printed), ours) in POINTS.into_iter().zip(printed).zip(ours) {
            let ratio = ratio(layers, share, points, |device| device);
            assert!((ratio - ours).abs() < 6e-4, "{layers} of 6, {share}, {points}: {ratio}, not {ours}");
            assert!(ratio <= printed + 6e-4);
        }
    }
}
