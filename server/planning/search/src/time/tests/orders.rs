//! Orders of the nodes: classes and layouts against every permutation.

use loadmaster_oracle::arrangements;
use proptest::prelude::*;

use super::super::super::{Layouts, Places, Spanning};
use super::super::*;
use crate::tests::instances::{Dice, Instance, Shape, cases, instances};

fn sizes(instance: &Instance) -> Vec<u32> {
    let choices = instance.choices.iter().map(|&choice| instance.costs.choices[choice].devices());
    let mut sizes: Vec<u32> = choices.collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The instance's costs over the links of these places: one and the same link costs the same in all.
fn costs_over(instance: &Instance, places: &Places) -> Dice {
    let links = places.links().iter().map(|link| 4 - (link.bytes_per_second as u64).min(4)).collect();
    Dice { links, ..instance.costs.clone() }
}

fn fastest_on(instance: &Instance, places: &Places) -> Searched<Time> {
    let costs = costs_over(instance, places);
    let question = Question { costs: &costs, places, ..instance.question() };
    fastest(&question, &Limits::default(), &Stop::default())
}

fn value(answer: &Searched<Time>) -> f64 {
    answer.best.as_ref().map_or(f64::INFINITY, |plan| plan.value.0)
}

/// The fastest plan on any order of the nodes.
fn fastest_of_all(instance: &Instance, spanning: Spanning) -> f64 {
    let nodes: Vec<usize> = (0..instance.fleet.nodes.len()).collect();
    let orders = arrangements(&nodes, nodes.len());
    let places =
        orders.iter().map(|order| Places::in_sequence(&instance.fleet, order, &sizes(instance), spanning));
    places.map(|places| value(&fastest_on(instance, &places))).fold(f64::INFINITY, f64::min)
}

fn shapes() -> impl Strategy<Value = Instance> {
    (0..Shape::ALL.len()).prop_flat_map(|shape| instances(Shape::ALL[shape]))
}

fn spannings() -> impl Strategy<Value = Spanning> {
    prop_oneof![Just(Spanning::Never), Just(Spanning::WholeNodes), Just(Spanning::Anywhere)]
}

proptest! {
    #![proptest_config(cases(150))]

    /// Classes leave no order out whose stages keep to a node, and find none that is not there.
    #[test]
    fn classes_agree_with_every_order(instance in shapes(), spanning in spannings()) {
        let pinned: Vec<usize> = instance.cuts.pins().iter().map(|pin| pin.device).collect();
        let places = Places::by_class(&instance.fleet, &sizes(&instance), spanning, &pinned, 10_000);
        let places = places.expect("small enough");
        let answer = fastest_on(&instance, &places);
        let expected = fastest_of_all(&instance, spanning);
        if spanning == Spanning::Never {
            prop_assert_eq!(value(&answer), expected);
        } else {
            prop_assert!(value(&answer) >= expected);
        }
        if let Some(plan) = &answer.best {
            let mut devices: Vec<u32> = places.resolve(&plan.stages).into_iter().flatten().collect();
            devices.sort_unstable();
            prop_assert_eq!(devices, (0..instance.fleet.devices()).collect::<Vec<u32>>());
            for pin in instance.cuts.pins() {
                let stage = plan.stages.iter().position(|stage| (stage.first..=stage.last).contains(&pin.layer));
                let taken = stage.map(|stage| places.resolve(&plan.stages).swap_remove(stage));
                // One of the devices of its node: they are interchangeable.
                let node_of = |device: u32| instance.fleet.begins().partition_point(|&begin| begin <= device);
                let is_beside = |device: &u32| node_of(*device) == node_of(pin.device as u32);
                prop_assert!(taken.is_some_and(|taken| taken.iter().any(is_beside)));
            }
        }
    }

    /// Where only kinds and sizes tell nodes apart, stages over several nodes lose nothing either.
    #[test]
    fn classes_with_equal_links_agree_with_every_order(mut instance in shapes(), spanning in spannings()) {
        instance.fleet.tiers.clear();
        let outside = instance.fleet.nodes[0].outside;
        instance.fleet.nodes.iter_mut().for_each(|node| node.outside = outside);
        let pinned: Vec<usize> = instance.cuts.pins().iter().map(|pin| pin.device).collect();
        let places = Places::by_class(&instance.fleet, &sizes(&instance), spanning, &pinned, 10_000);
        let answer = fastest_on(&instance, &places.expect("small enough"));
        prop_assert_eq!(value(&answer), fastest_of_all(&instance, spanning));
    }

    /// Some orders are no better than all, and the bound that comes with them is no worse than any.
    #[test]
    fn bounds_hold_for_every_order(mut instance in shapes(), spanning in spannings(), most in 0_usize..40) {
        let pinned: Vec<usize> = instance.cuts.pins().iter().map(|pin| pin.device).collect();
        let layouts = Layouts::of(&instance.fleet, &sizes(&instance), spanning, (&pinned, false), most);
        instance.costs = costs_over(&instance, &layouts.places[0]);
        let (index, answer) =
            fastest_over(&instance.question(), &layouts, &Limits::default(), &Stop::default());
        let expected = fastest_of_all(&instance, spanning);
        prop_assert!(value(&answer) >= expected);
        prop_assert_eq!(index.is_some(), answer.best.is_some());
        let bound = answer.bound.map_or(0.0, |bound| bound.0);
        if !layouts.is_complete {
            prop_assert!(bound <= expected, "{bound} above {expected}");
        }
        prop_assert!(bound <= value(&answer));
        if answer.ended == Ended::Proven {
            prop_assert_eq!(value(&answer), expected);
        }
    }
}
