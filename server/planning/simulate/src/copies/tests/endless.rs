//! PipeDream's steps beside its closed form.

use proptest::prelude::*;

use super::untouched::{edges, overlap, passes, stage};
use super::*;
use crate::Seconds;
use crate::{Order, Pipeline, iteration_seconds};

/// Twice a multiple of every number of micro-batches after which a cycle of four stages repeats, and one to count from.
const MICRO_BATCHES: u32 = 2 * 120 + 1;

fn endless(stages: &[TestStage], micro_batches: u32) -> Vec<Endless> {
    let count = stages.len() as u32;
    let of = |(stage, index): (&TestStage, u32)| {
        let in_flight = Schedule::PipeDream.in_flight(count, index, micro_batches);
        let steps = stage.endless_steps(in_flight);
        let trips: Vec<Trip> =
            stage.actions.absences(&steps).iter().map(|absence| stage.trip(absence)).collect();
        let place = (index, count);
        let stage =
            StageSteps { place, steps: &steps, first_layer: 0, layers: &stage.layers, exchange_seconds: 0.0 };
        Endless::of(&stage, &trips, micro_batches).unwrap()
    };
    stages.iter().zip(0..).map(of).collect()
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(48))]

    /// Without copies a micro-batch takes what the closed form says; with copies that have time enough, too; and with
    /// those that have not, what the link needs for them.
    #[test]
    fn a_micro_batch_takes_its_share_of_the_long_run(
        stages in prop::collection::vec(stage(), 1..5), ways in edges(4), overlap in overlap(),
    ) {
        let edges = &ways[..stages.len() - 1];
        let whole: Vec<Seconds> = stages.iter().map(|stage| passes(stage, false)).collect();
        let pipeline = Pipeline { stages: &whole, edges, micro_batches: 1, order: Order::PipeDream, overlap };
        let period = iteration_seconds(&pipeline).unwrap();
        let over = |stages: &[TestStage], links: &Links| {
            let all = Endless::simulated(stages.len(), MICRO_BATCHES);
            let of = long_run(&endless(stages, all), edges, overlap, links, (MICRO_BATCHES, None)).unwrap();
            of.seconds_per_micro_batch
        };
        let shown = over(&stages, &Links::default());
        prop_assert!((shown - period).abs() <= 1e-3 * period, "{shown} {period}");
        let mut moving = stages.clone();
        let first = &mut moving[0];
        first.actions.actions.push(swap(0, first.layers.len() - 1, 0));
        first.bytes = 1_000;
        let copies = first.layers.len() as f64;
        let with = |rate| over(&moving, &Links::default().host(0, Rate::new(rate, 0.0), Rate::new(rate, 0.0)));
        prop_assert!((with(1e12) - shown).abs() <= 1e-6 * (1.0 + shown));
        let slow = with(1.0);
        prop_assert!(slow >= copies * 1_000.0 - 1e-6 || stages.len() == 1, "{slow}");
    }
}
