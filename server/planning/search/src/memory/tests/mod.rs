//! The search against all plans there are.

mod examples;

use loadmaster_proto::bytes::Bytes;
use proptest::prelude::*;

use super::super::{Cuts, Ended, Places, Spanning};
use super::*;
use crate::tests::instances::{Dice, Instance, Shape, WeighedStage, cases, enumerate, instances};

/// What a plan is worth, and its place among equals.
fn value(instance: &Instance, plan: &[WeighedStage], unit: Unit) -> Peaks {
    Peaks::of(plan.iter().map(|stage| {
        let capacity =
            instance.fleet.capacity(instance.places.steps(stage.placed.from)[stage.placed.step].kinds);
        Run { peak: unit.of(stage.peak.bytes, capacity), devices: stage.devices }
    }))
}

fn rank(plan: &[WeighedStage]) -> (Vec<(usize, usize)>, Vec<usize>) {
    let stages = plan.iter().map(|stage| (stage.placed.last, stage.placed.step)).collect();
    (stages, plan.iter().map(|stage| stage.placed.choice).collect())
}

fn check(instance: &Instance, unit: Unit) -> Result<(), TestCaseError> {
    let question = instance.question();
    let all = enumerate(&question);
    let best = all.iter().min_by_key(|plan| (value(instance, plan, unit), rank(plan)));
    let found = leximax(&question, unit, &Stop::default());
    prop_assert_eq!(found.ended, Ended::Proven);
    let limit = bottleneck(&question, unit, &Stop::default());
    prop_assert_eq!(limit.ended, Ended::Proven);
    let Some(best) = best else {
        prop_assert!(found.best.is_none() && found.bound.is_none() && limit.best.is_none());
        return Ok(());
    };
    let expected = value(instance, best, unit);
    prop_assert_eq!(found.bound.as_ref(), Some(&expected));
    let stages: Vec<PlacedStage> = best.iter().map(|stage| stage.placed).collect();
    prop_assert_eq!(found.best, Some(Assignment { stages, value: expected.clone() }));
    prop_assert_eq!(limit.bound, expected.highest());
    let stages = limit.best.map(|best| best.stages);
    let reached =
        all.iter().find(|plan| plan.iter().map(|stage| stage.placed).eq(stages.iter().flatten().copied()));
    let reached = reached.and_then(|plan| value(instance, plan, unit).highest());
    prop_assert_eq!(reached, expected.highest());
    Ok(())
}

fn units() -> impl Strategy<Value = Unit> {
    prop_oneof![Just(Unit::Bytes), Just(Unit::Share)]
}

proptest! {
    #![proptest_config(cases(200))]

    /// The answer is the leximax optimum of all plans, by the tie rule, in every shape.
    #[test]
    fn one_grid_for_all_stages(instance in instances(Shape::UniformGrid), unit in units()) {
        check(&instance, unit)?;
    }

    #[test]
    fn equally_many_devices(instance in instances(Shape::EqualDevices), unit in units()) {
        check(&instance, unit)?;
    }

    #[test]
    fn replicas_per_stage(instance in instances(Shape::PerStageReplicas), unit in units()) {
        check(&instance, unit)?;
    }

    #[test]
    fn single_pipeline(instance in instances(Shape::SinglePipeline), unit in units()) {
        check(&instance, unit)?;
    }

    #[test]
    fn mesh_per_stage(instance in instances(Shape::PerStageMesh), unit in units()) {
        check(&instance, unit)?;
    }
}

proptest! {
    #![proptest_config(cases(120))]

    /// The same where nodes may be taken in any order, and like ones are not told apart.
    #[test]
    fn nodes_in_any_order(
        instance in (0..5_usize).prop_flat_map(|k| instances(Shape::ALL[k])),
        unit in units(),
        spanning in prop_oneof![Just(Spanning::Never), Just(Spanning::WholeNodes), Just(Spanning::Anywhere)],
    ) {
        let choices = instance.choices.iter().map(|&choice| instance.costs.choices[choice].devices());
        let mut sizes: Vec<u32> = choices.collect();
        sizes.sort_unstable();
        sizes.dedup();
        let pinned: Vec<usize> = instance.cuts.pins().iter().map(|pin| pin.device).collect();
        if let Some(places) = Places::by_class(&instance.fleet, &sizes, spanning, &pinned, 10_000) {
            check(&Instance { places, ..instance }, unit)?;
        }
    }
}

/// What is said of a search that gives up is true, and all is said once it has had its time.
fn check_giving_up(instance: &Instance, limits: SizeLimits) -> Result<(), TestCaseError> {
    let question = instance.question();
    let best = leximax(&question, Unit::Bytes, &Stop::default());
    let found = leximax_within(&question, Unit::Bytes, &Stop::default(), limits);
    match found.ended {
        Ended::Proven => {
            // Among equals it may be another one where there was no room to tell them apart.
            let value = |found: &Searched<Peaks>| found.best.as_ref().map(|best| best.value.clone());
            prop_assert_eq!((value(&found), &found.bound), (value(&best), &best.bound));
        }
        Ended::Stopped => prop_assert!(found.states >= limits.states),
        Ended::Bounded => prop_assert!(limits.states == u64::MAX),
    }
    if let Some(best) = best.best {
        prop_assert!(found.bound.is_none_or(|bound| bound <= best.value));
    }
    if let Some(found) = found.best {
        prop_assert_eq!(peaks_of(&question, Unit::Bytes, &found.stages), Some(found.value));
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(200))]

    /// Whenever a search is stopped, its plan is one and its bound bounds.
    #[test]
    fn a_stopped_search_tells_the_truth(
        instance in (0..5_usize).prop_flat_map(|k| instances(Shape::ALL[k])),
        states in 1_u64..400,
    ) {
        check_giving_up(&instance, SizeLimits { states, ..SizeLimits::USUAL })?;
    }

    /// The same where it would take too much memory.
    #[test]
    fn a_bounded_search_tells_the_truth(
        instance in (0..5_usize).prop_flat_map(|k| instances(Shape::ALL[k])),
        legs in 0_usize..20,
        states_at_once in 1_usize..100,
        moves in 1_usize..100,
        cells in 1_usize..200,
    ) {
        check_giving_up(&instance, SizeLimits { legs, states_at_once, ..SizeLimits::USUAL })?;
        check_giving_up(&instance, SizeLimits { moves, cells, ..SizeLimits::USUAL })?;
    }
}

/// What an explanation must be, found by looking at all plans.
fn check_explanation(instance: &Instance) -> Result<(), TestCaseError> {
    let instance = &Instance { within_capacity: true, ..instance.clone() };
    let free = Instance { within_capacity: false, ..instance.clone() };
    let all = enumerate(&free.question());
    let lacks = |stage: &WeighedStage| stage.peak.needed.saturating_sub(stage.capacity);
    let lack = explain(&instance.question(), &Stop::default());
    if all.iter().any(|plan| plan.iter().all(|stage| lacks(stage) == 0)) {
        prop_assert_eq!(lack, None);
        return Ok(());
    }
    let stages = |layer: usize| {
        let has = move |stage: &&WeighedStage| (stage.placed.first..=stage.placed.last).contains(&layer);
        all.iter().flatten().filter(has)
    };
    // Per layer that some plan has alone, the least that a stage with it lacks.
    let alone = (0..instance.costs.layers)
        .filter(|&layer| stages(layer).any(|stage| stage.placed.first == stage.placed.last));
    let least = alone.map(|layer| (stages(layer).map(lacks).min().unwrap(), std::cmp::Reverse(layer)));
    let largest = least.max().filter(|&(bytes, _)| bytes > 0);
    match lack.unwrap() {
        Shortfall::NoPlan(obstacle) => {
            prop_assert!(all.is_empty());
            let anywhere = Cuts::anywhere(instance.costs.layers);
            let costs = Dice { one_missing_in: u64::MAX, ..instance.costs.clone() };
            let possible = |costs: &Dice, cuts: &Cuts| {
                !enumerate(&Question { costs, cuts, stages: free.stages.clone(), ..free.question() })
                    .is_empty()
            };
            let expected = match () {
                () if !possible(&costs, &anywhere) => Obstacle::Devices,
                () if !possible(&costs, &instance.cuts.without_pins()) => Obstacle::Cuts,
                () if !possible(&costs, &instance.cuts) => Obstacle::Pins,
                () => Obstacle::Costs,
            };
            prop_assert_eq!(obstacle, expected);
        }
        Shortfall::Plan { layer, best, shortage } => {
            prop_assert_eq!(layer, largest.map(|(_, std::cmp::Reverse(layer))| layer));
            let lowest = all.iter().map(|plan| plan.iter().map(lacks).max().unwrap()).min();
            prop_assert_eq!(Some(shortage.missing().0), lowest);
            let of = |plan: &[WeighedStage]| {
                Peaks::of(plan.iter().map(|stage| Run { peak: lacks(stage), devices: stage.devices }))
            };
            let expected = all.iter().min_by_key(|plan| (of(plan), rank(plan))).unwrap();
            prop_assert!(expected.iter().map(|stage| stage.placed).eq(best.stages.iter().copied()));
            prop_assert_eq!(&best.value, &of(expected));
            let worst = expected.iter().rev().max_by_key(|stage| lacks(stage)).unwrap();
            prop_assert_eq!(
                shortage,
                Shortage {
                    stage: worst.placed,
                    needed: Bytes(worst.peak.needed),
                    capacity: Bytes(worst.capacity)
                }
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(200))]

    /// Where nothing fits, the smallest shortage of all plans is named, or what rules every plan out.
    #[test]
    fn what_is_missing_is_the_least_that_is(instance in (0..5_usize).prop_flat_map(|k| instances(Shape::ALL[k]))) {
        check_explanation(&instance)?;
    }
}
