//! Stages that recompute layers: knapsacks and whole plans against all subsets of layers.

use proptest::prelude::*;

use super::super::super::StageAt;
use super::super::*;
use crate::tests::instances::{Dice, Instance, Shape, cases, enumerate, instances};

/// Savings that are thrown: the same each time.
#[derive(Debug, Clone)]
struct Thrown {
    seconds: Vec<u32>,
    bytes: Vec<u64>,
}

impl Savings for Thrown {
    fn saving(&self, layer: usize, _: &StageAt, in_flight: u32) -> Option<Saving> {
        let bytes = self.bytes[layer].saturating_sub(1) * u64::from(in_flight);
        Some(Saving { seconds: f64::from(self.seconds[layer]), bytes })
    }
}

/// The least seconds of any subset of layers that saves enough.
fn best_subset(savings: &Thrown, stage: &StageAt, in_flight: u32, less: u64) -> Option<f64> {
    let layers: Vec<Saving> =
        (stage.first..=stage.last).filter_map(|layer| savings.saving(layer, stage, in_flight)).collect();
    let subsets = (0..1_usize << layers.len()).filter_map(|subset| {
        let chosen = || layers.iter().enumerate().filter(move |(index, _)| subset & (1 << index) != 0);
        let bytes: u64 = chosen().map(|(_, saving)| saving.bytes).sum();
        (bytes >= less).then(|| chosen().map(|(_, saving)| saving.seconds).sum())
    });
    subsets.reduce(f64::min)
}

fn thrown(layers: usize) -> impl Strategy<Value = Thrown> {
    (proptest::collection::vec(0_u32..6, layers), proptest::collection::vec(0_u64..6, layers))
        .prop_map(|(seconds, bytes)| Thrown { seconds, bytes })
}

/// A question about layers that may be recomputed.
fn squeezable(shape: Shape) -> impl Strategy<Value = (Instance, Thrown)> {
    instances(shape).prop_flat_map(|mut instance| {
        instance.within_capacity = true;
        let layers = instance.costs.layers;
        (Just(instance), thrown(layers))
    })
}

/// The best of all plans of the question as it would be without capacities, each stage squeezed into them.
fn best(instance: &Instance, savings: &Thrown) -> Option<f64> {
    let free = Question { within_capacity: false, ..instance.question() };
    let plans = enumerate(&free).into_iter().filter_map(|plan| {
        let mut parts = Parts::default();
        for (index, stage) in plan.iter().enumerate() {
            let seconds = stage.seconds?;
            let step = free.places.steps(stage.placed.from)[stage.placed.step];
            let at = free.stage_at(&step, stage.placed.first, stage.placed.last, stage.placed.choice);
            let in_flight = free.in_flight(plan.len() - 1 - index);
            let less = stage.peak.needed.saturating_sub(stage.capacity);
            let passes = seconds.passes() + best_subset(savings, &at, in_flight, less)?;
            parts.passes += passes;
            parts.inputs += stage.entry;
            parts.largest = parts.largest.max(passes);
            parts.step = parts.step.max(seconds.step);
        }
        Some(parts.time(free.micro_batches).0)
    });
    plans.reduce(f64::min)
}

/// Whether no stage is easier to squeeze where it holds more micro-batches. Bytes that are thrown know nothing of what
/// a micro-batch needs, so layers may save more of it.
fn is_consistent(question: &Question<'_, PerLayer<Dice, Thrown>>, savings: &Thrown) -> bool {
    let squeezed = |at: &StageAt, in_flight: u32, capacity: u64| {
        let less = question.costs.peak(at, in_flight)?.needed.saturating_sub(capacity);
        best_subset(savings, at, in_flight, less)
    };
    let layers = question.costs.layers();
    let steps = (0..question.places.count()).flat_map(|place| question.places.steps(place as u32));
    steps.into_iter().all(|step| {
        let capacity = question.fleet.capacity(step.kinds).0;
        let stages = (0..layers).flat_map(|first| (first..layers).map(move |last| (first, last)));
        question.choices.iter().all(|&choice| {
            stages.clone().all(|(first, last)| {
                let at = question.stage_at(step, first, last, choice);
                let of = |held| squeezed(&at, held, capacity).unwrap_or(f64::INFINITY);
                (1..question.micro_batches).all(|held| of(held) <= of(held + 1))
            })
        })
    })
}

proptest! {
    #![proptest_config(cases(150))]

    /// The layers recomputed are the cheapest that save enough, and quick bounds hold.
    #[test]
    fn knapsacks_agree_with_all_subsets(savings in thrown(9), less in 0_u64..60, in_flight in 1_u32..4) {
        let dice = Dice {
            seed: 0,
            layers: 9,
            choices: vec![crate::Choice::SINGLE],
            sides: 2,
            adds_up: true,
            one_missing_in: u64::MAX,
            links: vec![0],
        };
        let at = StageAt {
            first: 0,
            last: 8,
            choice: 0,
            kinds: crate::KindSet::one(0),
            tensor_link: 0,
            data_link: 0,
            tensor_rings: 1,
            data_rings: 1,
        };
        let costs = PerLayer::new(dice, savings.clone());
        let expected = best_subset(&savings, &at, in_flight, less);
        let exact = costs.squeezed(&at, in_flight, less, true);
        prop_assert_eq!(exact.map(|exact| (exact.at_least, exact.at_most)), expected.map(|least| (least, least)));
        let quick = costs.squeezed(&at, in_flight, less, false);
        prop_assert_eq!(quick.is_some(), expected.is_some());
        if let (Some(quick), Some(expected)) = (quick, expected) {
            prop_assert!(quick.at_least <= expected && expected <= quick.at_most);
        }
        if let Some(layers) = costs.layers_again(&at, in_flight, less) {
            let saved = layers.iter().filter_map(|&layer| savings.saving(layer, &at, in_flight));
            let (seconds, bytes) = saved.fold((0.0, 0), |(s, b), saving| (s + saving.seconds, b + saving.bytes));
            prop_assert_eq!(Some(seconds), expected);
            prop_assert!(bytes >= less);
        }
    }

    /// The fastest plan whose stages may recompute layers is the best over all subsets of all stages.
    #[test]
    fn squeezed_plans_agree_with_brute_force(
        (instance, savings) in (0..5_usize).prop_flat_map(|shape| squeezable(Shape::ALL[shape])),
    ) {
        let costs = PerLayer::new(instance.costs.clone(), savings.clone());
        let question = Question {
            costs: &costs,
            fleet: &instance.fleet,
            places: &instance.places,
            choices: &instance.choices,
            schedule: instance.schedule,
            micro_batches: instance.micro_batches,
            stages: instance.stages.clone(),
            cuts: &instance.cuts,
            within_capacity: true,
        };
        prop_assume!(is_consistent(&question, &savings));
        let answer = fastest(&question, &Limits::default(), &Stop::default());
        prop_assert_eq!(answer.ended, Ended::Proven);
        prop_assert_eq!(answer.best.as_ref().map(|plan| plan.value.0), best(&instance, &savings));
    }
}
