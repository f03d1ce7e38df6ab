//! The papers' modes against the exact search.

mod amp;
mod random;

use loadmaster_proto::training::Schedule;
use proptest::prelude::*;

use super::super::memory::leximax;
use super::super::*;
use super::{Bayesian, bayesian, brute_force, capture_choices, enumeration};
use crate::tests::fleets;
use crate::tests::instances::{Dice, Instance, Shape, cases, instances};

fn units() -> impl Strategy<Value = Unit> {
    prop_oneof![Just(Unit::Bytes), Just(Unit::Share)]
}

proptest! {
    #![proptest_config(cases(150))]

    /// CAPTURE's enumeration and the exact search find the same plan, in every shape.
    #[test]
    fn enumeration_finds_what_the_exact_search_finds(
        instance in (0..5_usize).prop_flat_map(|k| instances(Shape::ALL[k])),
        unit in units(),
    ) {
        let (exact, paper) = both(&instance, unit, enumeration);
        prop_assert_eq!((exact.best, exact.bound, exact.ended), (paper.best, paper.bound, paper.ended));
    }

    /// So does mCAP's brute force where every stage takes one device.
    #[test]
    fn brute_force_finds_what_the_exact_search_finds(
        instance in instances(Shape::SinglePipeline),
        unit in units(),
    ) {
        let (exact, paper) = both(&instance, unit, brute_force);
        prop_assert_eq!((exact.best, exact.bound, exact.ended), (paper.best, paper.bound, paper.ended));
    }

    /// Bayesian optimisation finds a plan that is there, and never a better one than the best.
    #[test]
    fn bayesian_optimisation_finds_a_plan(instance in instances(Shape::SinglePipeline), unit in units()) {
        let settings = Bayesian { iterations: 14, candidates: 20, ..Bayesian::default() };
        let (exact, paper) = both(&instance, unit, |question, unit, stop| bayesian(question, unit, &settings, stop));
        if let Some(found) = &paper.best {
            prop_assert!(exact.best.is_some_and(|best| best.value <= found.value));
            let value = memory::peaks_of(&instance.question(), unit, &found.stages);
            prop_assert_eq!(value.as_ref(), Some(&found.value));
        }
    }
}

fn both(
    instance: &Instance,
    unit: Unit,
    mode: impl Fn(&Question<'_, Dice>, Unit, &Stop) -> Searched<memory::Peaks>,
) -> (Searched<memory::Peaks>, Searched<memory::Peaks>) {
    let question = instance.question();
    (leximax(&question, unit, &Stop::default()), mode(&question, unit, &Stop::default()))
}

/// Layers of which a few are heavy, on four devices.
fn pipeline() -> Instance {
    let node = fleets::node("node".to_owned(), (0, 4), (1, 1));
    let fleet = fleets::fleet(vec![fleets::kind("kind".to_owned(), 1 << 30)], vec![node]);
    let places = Places::in_order(&fleet, &[1], Spanning::Never);
    let costs = Dice {
        seed: 5,
        layers: 16,
        choices: vec![Choice::SINGLE],
        sides: 100_000,
        adds_up: true,
        one_missing_in: u64::MAX,
        links: vec![1],
    };
    Instance {
        costs,
        fleet,
        places,
        choices: vec![0],
        schedule: Schedule::Gpipe,
        micro_batches: 2,
        stages: 1..=16,
        cuts: Cuts::anywhere(16),
        within_capacity: true,
    }
}

/// All C(15, 3) partitionings of 16 layers over 4 devices are looked at, and the 3,654 of VGG11's 30 layers.
#[test]
fn brute_force_looks_at_every_partitioning() {
    for (layers, partitionings) in [(16, 455), (30, 3_654)] {
        let mut instance = pipeline();
        instance.costs.layers = layers;
        instance.cuts = Cuts::anywhere(layers);
        let found = brute_force(&instance.question(), Unit::Bytes, &Stop::default());
        assert_eq!((found.states, found.ended), (partitionings, Ended::Proven));
    }
}

/// The same seed draws the same partitionings, another one others.
#[test]
fn bayesian_optimisation_is_repeatable() {
    let instance = pipeline();
    let question = instance.question();
    let settings = Bayesian { iterations: 14, candidates: 40, ..Bayesian::default() };
    let found = |settings: &Bayesian| bayesian(&question, Unit::Bytes, settings, &Stop::default());
    assert_eq!(found(&settings), found(&settings));
    assert_ne!(found(&settings).best, found(&Bayesian { seed: 1, ..settings }).best);
}

/// A tenth of all partitionings is enough to come close to the best peak.
#[test]
fn bayesian_optimisation_comes_close() {
    let instance = pipeline();
    let question = instance.question();
    let settings = Bayesian { iterations: 45, candidates: 60, ..Bayesian::default() };
    let found = bayesian(&question, Unit::Bytes, &settings, &Stop::default());
    assert_eq!((found.states, found.ended), (45, Ended::Bounded));
    let highest =
        |searched: &Searched<memory::Peaks>| searched.best.as_ref().and_then(|best| best.value.highest());
    let best = leximax(&question, Unit::Bytes, &Stop::default());
    let (found, best) = (highest(&found).unwrap() as f64, highest(&best).unwrap() as f64);
    assert!(found <= 1.3 * best, "{found} {best}");
}

/// A search that is stopped says so.
#[test]
fn stopped_modes_claim_nothing() {
    let instance = pipeline();
    let stop = Stop::default();
    stop.request();
    let found = bayesian(&instance.question(), Unit::Bytes, &Bayesian::default(), &stop);
    assert_eq!((found.best, found.ended), (None, Ended::Stopped));
}

#[test]
fn captures_choices_are_counted() {
    let names: Vec<String> = capture_choices(8).iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), 2 * 3 + 1);
    assert_eq!(names[..3], ["data1×tensor1", "data2×tensor1", "data1×tensor2"]);
    assert_eq!(capture_choices(6).len(), 5);
    assert_eq!(capture_choices(1), [Choice::SINGLE]);
}
