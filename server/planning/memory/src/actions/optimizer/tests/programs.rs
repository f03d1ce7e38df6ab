//! The programs of slots, against every choice that there is.

use loadmaster_oracle::recomputed_runs;
use loadmaster_proto::training::actions::{Action, Optimization, StageActions};
use proptest::prelude::*;

use super::{NEVER, layer};
use crate::actions::optimizer::dual_bound::SlotLayers;
use crate::actions::optimizer::gpipe_slots::{self, GpipeSlotPlan};
use crate::actions::optimizer::in_flight_assignment::{Slot, few_seconds, fewest_seconds};
use crate::actions::optimizer::keep_sets::{Grains, SlotChoices};
use crate::actions::optimizer::lagrangian;
use crate::actions::{LayerBlocks, PeakMemory, StageBlocks, StageWork};
use loadmaster_simulate::Order;
use loadmaster_simulate::copies::LayerSeconds;

/// Most plans of slots that go backward one after another: all of up to three slots of two layers, and of two slots of three.
const MOST_IN_TURN: usize = 400;

fn layers() -> impl Strategy<Value = Vec<LayerBlocks>> {
    proptest::collection::vec(
        (1_u64..6, 1_u32..5).prop_map(|(kept, forward)| layer(10 * kept, forward)),
        1..5,
    )
}

fn actions(slots: &[Vec<(usize, usize)>]) -> StageActions {
    let mut all = StageActions::default();
    for (slot, runs) in (0..).zip(slots) {
        all.actions.extend(runs.iter().map(|&(first_layer, last_layer)| Action {
            first_layer,
            last_layer,
            slots: vec![slot],
            optimization: Optimization::Recompute,
        }));
    }
    all
}

/// What a stage with these runs in its slots holds, and the seconds of recomputing, step by step.
fn played(layers: &[LayerBlocks], slots: &[Vec<(usize, usize)>], micro_batches: u32) -> (u64, f64) {
    played_in(Order::OneFOneB, layers, slots, micro_batches)
}

fn played_in(
    order: Order,
    layers: &[LayerBlocks],
    slots: &[Vec<(usize, usize)>],
    micro_batches: u32,
) -> (u64, f64) {
    let stage = StageBlocks { first_layer: 0, layers: layers.to_vec(), fixed: 0 };
    let (actions, count) = (actions(slots), slots.len() as u32);
    let work = StageWork::of(&stage, (0, count), order, micro_batches, &actions);
    let steps = work.steps.all().len();
    let most = (0..steps).map(|step| crate::actions::tests::at(&stage, &work, step)).max().unwrap_or(0);
    assert_eq!(PeakMemory::of(&stage, &work, &actions).device, most);
    let seconds = (0..micro_batches as usize).flat_map(|index| &slots[index % slots.len()]);
    let again =
        |&(first, last): &(usize, usize)| layers[first..=last].iter().map(|of| of.seconds.again).sum::<f64>();
    (most - layers.iter().map(LayerBlocks::lasting).sum::<u64>(), seconds.map(again).sum())
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(48))]

    /// No way to compute runs of a stage's layers once more fits into its bytes and takes fewer seconds, with slots
    /// alike or not; rounding a mixture gives a plan that fits and is no better than the best.
    #[test]
    fn no_choice_of_slots_takes_fewer_seconds(
        layers in layers(), slots in 1_usize..4, rounds in 2_u32..4, share in 0.2..1.0_f64,
    ) {
        // So many micro-batches that each slot goes backward while all others are in flight.
        let micro_batches = rounds * slots as u32;
        let kept: u64 = layers.iter().map(|layer| layer.activations).sum();
        let bytes = (kept as f64 * slots as f64 * share) as u64;
        let choices = SlotChoices::of(&layers, &vec![false; layers.len()], bytes, true, Grains::default(), &NEVER);
        let asked = vec![Slot { choices: &choices, weight: f64::from(rounds) }; slots];
        let (best, rounded) = (fewest_seconds(&asked, bytes), few_seconds(&asked, bytes));
        let runs = |choice: usize| -> Vec<(usize, usize)> {
            choices.all[choice].runs.iter().map(|run| (*run.start(), *run.end())).collect()
        };
        let mut least = f64::INFINITY;
        for plan in [&best, &rounded].into_iter().flatten() {
            let of_slots: Vec<_> = plan.choices.iter().map(|&choice| runs(choice)).collect();
            let (most, seconds) = played(&layers, &of_slots, micro_batches);
            prop_assert!(most <= bytes, "{most} of {bytes}");
            prop_assert!((seconds - plan.seconds).abs() < 1e-9, "{seconds} is told as {}", plan.seconds);
            prop_assert!(least.is_infinite() || seconds >= least - 1e-9);
            least = least.min(seconds);
        }
        prop_assert_eq!(best.is_some(), rounded.is_some());
        let all = recomputed_runs(0, layers.len());
        let number = all.len();
        // All plans of few slots and layers, every so manyth of more.
        let plans = number.pow(slots as u32);
        for plan in (0..plans).step_by(plans.div_ceil(600)) {
            let of_slots: Vec<_> = (0..slots as u32).map(|slot| all[plan / number.pow(slot) % number].clone()).collect();
            let (most, seconds) = played(&layers, &of_slots, micro_batches);
            prop_assert!(most > bytes || seconds >= least - 1e-9, "{of_slots:?} takes {seconds}, best is {least}");
        }
    }

    /// Where the last micro-batch goes backward first, the fewest seconds are those of the best of all plans there are, each played
    /// step by step, and something is found exactly where one of them fits.
    #[test]
    fn in_turn_the_best_plan_of_all_is_found_and_proven(layers in layers(), slots in 1_u32..5, share in 0.1..1.0_f64) {
        let kept: u64 = layers.iter().map(|layer| layer.activations).sum();
        let bytes = (kept as f64 * f64::from(slots) * share) as u64;
        let choices = SlotChoices::of(&layers, &vec![false; layers.len()], bytes, true, Grains::default(), &NEVER);
        let asked = vec![Slot { choices: &choices, weight: 1.0 }; slots as usize];
        let found = gpipe_slots::fewest(&asked, bytes, &NEVER);
        let play = |plan: &[Vec<(usize, usize)>]| played_in(Order::Gpipe, &layers, plan, slots);
        if let Some(GpipeSlotPlan { plan, at_least }) = &found {
            let runs = |&choice: &usize| choices.all[choice].runs.iter().map(|run| (*run.start(), *run.end())).collect();
            let (most, seconds) = play(&plan.choices.iter().map(runs).collect::<Vec<_>>());
            prop_assert!(most <= bytes, "{most} of {bytes}");
            prop_assert!((seconds - plan.seconds).abs() < 1e-9 && choices.is_whole, "{seconds} is told as {}", plan.seconds);
            prop_assert_eq!(*at_least, plan.seconds);
            // What suits every order is no better.
            let of_any = fewest_seconds(&asked, bytes);
            prop_assert!(of_any.is_none_or(|of_any| of_any.seconds >= plan.seconds - 1e-9));
        }
        let least = found.map_or(f64::INFINITY, |found| found.plan.seconds);
        let all = recomputed_runs(0, layers.len());
        // All plans of few slots and layers, every so manyth of more.
        let plans = all.len().pow(slots);
        let mut best = f64::INFINITY;
        for plan in (0..plans).step_by(plans.div_ceil(MOST_IN_TURN)) {
            let of_slots: Vec<_> = (0..slots).map(|slot| all[plan / all.len().pow(slot) % all.len()].clone()).collect();
            let (most, seconds) = play(&of_slots);
            if most <= bytes {
                best = best.min(seconds);
            }
        }
        prop_assert!(best >= least - 1e-9, "one takes {best}, best is {least}");
        prop_assert!(plans > MOST_IN_TURN || best <= least + 1e-9, "{best} is the best of all, {least} was found");
    }

    /// What is not told apart is never better than what is, and off by little.
    #[test]
    fn coarse_choices_are_no_better(layers in layers(), share in 0.3..1.0_f64) {
        let kept: u64 = layers.iter().map(|layer| layer.activations).sum();
        let bytes = (kept as f64 * 3.0 * share) as u64;
        let seconds = |grains| {
            let choices = SlotChoices::of(&layers, &vec![false; layers.len()], bytes, true, grains, &NEVER);
            fewest_seconds(&[Slot { choices: &choices, weight: 1.0 }; 3], bytes).map_or(f64::INFINITY, |plan| plan.seconds)
        };
        let coarse = Grains { label: kept / 50, level: kept / 20, run: Some(2) };
        prop_assert!(seconds(coarse) >= seconds(Grains::default()) - 1e-12);
    }

    /// By a price of bytes the best is found and proven, of all plans of few layers, and what is found fits; of more layers it is
    /// what telling all choices apart finds, whether layers are alike or not, and slots count alike or some more than others.
    #[test]
    fn a_price_of_bytes_finds_and_proves_the_best(
        few in layers(), more in prop_oneof![
            proptest::collection::vec((1_u64..6, 1_u32..5).prop_map(|(kept, forward)| (10 * kept, forward)), 1..9),
            proptest::collection::vec((7_u64..60, 1_u32..50), 1..9),
        ],
        away in proptest::collection::vec(proptest::bool::weighted(0.2), 8),
        slots in 1_usize..4, longer in 0_usize..3, share in 0.05..1.0_f64, is_even: bool,
    ) {
        // Some slots have one micro-batch more than the others.
        let longer = longer % slots;
        let weights: Vec<f64> = (0..slots).map(|slot| if slot < longer { 3.0 } else { 2.0 }).collect();
        let micro_batches = (2 * slots + longer) as u32;
        let more: Vec<LayerBlocks> = more.iter().map(|&(kept, forward)| layer(kept, forward)).collect();
        for (mut layers, is_few) in [(few, true), (more, false)] {
            if is_even {
                layers.iter_mut().for_each(|layer| layer.input = 700_000);
            }
            let away = if is_few { vec![false; layers.len()] } else { away[..layers.len()].to_vec() };
            let kept: u64 = layers.iter().map(|layer| layer.activations).sum();
            let bytes = (kept as f64 * slots as f64 * share) as u64;
            let slot_layers = SlotLayers { layers: &layers, away: &away, bytes };
            let found = lagrangian::fewest(slot_layers, &weights, &NEVER);
            let told_apart = SlotChoices::of(&layers, &away, bytes, true, Grains::default(), &NEVER);
            let asked: Vec<Slot<'_>> =
                weights.iter().map(|&weight| Slot { choices: &told_apart, weight }).collect();
            let expected = fewest_seconds(&asked, bytes);
            prop_assert_eq!(found.is_some(), expected.is_some());
            let (Some(found), Some(expected)) = (found, expected) else { continue };
            let same = 1e-9 * (1.0 + found.plan.seconds);
            prop_assert!((found.plan.seconds - expected.seconds).abs() <= same, "{}", expected.seconds);
            prop_assert!((found.at_least - expected.seconds).abs() <= same, "{}", found.at_least);
            if !is_few {
                continue;
            }
            let runs = |slot: usize| -> Vec<(usize, usize)> {
                let choice = &found.choices[slot].all[found.plan.choices[slot]];
                choice.runs.iter().map(|run| (*run.start(), *run.end())).collect()
            };
            let (most, seconds) = played(&layers, &(0..slots).map(runs).collect::<Vec<_>>(), micro_batches);
            prop_assert!(most <= bytes && (seconds - found.plan.seconds).abs() <= same, "{most} of {bytes}");
            let all = recomputed_runs(0, layers.len());
            let number = all.len();
            let plans = number.pow(slots as u32);
            for plan in (0..plans).step_by(plans.div_ceil(800)) {
                let of_slots: Vec<_> =
                    (0..slots as u32).map(|slot| all[plan / number.pow(slot) % number].clone()).collect();
                let (most, seconds) = played(&layers, &of_slots, micro_batches);
                prop_assert!(most > bytes || seconds >= found.at_least - same, "{of_slots:?} takes {seconds}");
            }
        }
    }
}

/// The weights of eight slots, of which so many have a micro-batch more than the others.
fn weights(longer: usize) -> Vec<f64> {
    (0..8).map(|slot| if slot < longer { 4.0 } else { 3.0 }).collect()
}

/// A long stage of layers of which no two are the same is answered exactly, too.
#[test]
fn many_unlike_layers_are_proven() {
    let by = |index: usize, step: usize| 0.7 + 0.6 * ((index * step) % 48) as f64 / 48.0;
    let of = |index| {
        let kept = (100e6 * by(index, 17)) as u64;
        let seconds = LayerSeconds { again: 0.01 * by(index, 29), ..LayerSeconds::default() };
        LayerBlocks {
            seconds,
            activations: kept,
            input: 4_000_000,
            working: kept / 2,
            ..LayerBlocks::default()
        }
    };
    let layers: Vec<LayerBlocks> = (0..48).map(of).collect();
    let (none, kept) = ([false; 48], layers.iter().map(|layer| layer.activations).sum::<u64>());
    for (share, longer) in [(0.2, 8), (0.4, 6), (0.6, 8), (0.8, 3)] {
        let weights = weights(longer);
        let bytes = (8.0 * kept as f64 * share) as u64;
        let slot_layers = SlotLayers { layers: &layers, away: &none, bytes };
        let found = lagrangian::fewest(slot_layers, &weights, &NEVER).unwrap();
        assert!(found.at_least >= found.plan.seconds * (1.0 - 1e-9), "{share}: {}", found.at_least);
        let grains = Grains { label: kept / 1024, level: kept / 64, run: Some(12) };
        let choices = SlotChoices::of(&layers, &none, bytes, true, grains, &NEVER);
        let slots: Vec<Slot<'_>> = weights.iter().map(|&weight| Slot { choices: &choices, weight }).collect();
        let coarse = fewest_seconds(&slots, bytes).unwrap();
        assert!(found.plan.seconds <= coarse.seconds * (1.0 + 1e-9), "{share}");
    }
}

/// Steps of a slot that cost the same per byte are taken down to what fits, whichever comes first.
#[test]
fn steps_of_one_price_end_at_what_fits() {
    let layers = [layer(30, 3), layer(40, 3), layer(40, 3)];
    let bytes = 82_117_428;
    let choices = SlotChoices::of(&layers, &[false; 3], bytes, true, Grains::default(), &NEVER);
    let slots = [Slot { choices: &choices, weight: 3.0 }; 3];
    assert!(fewest_seconds(&slots, bytes).is_some());
    assert!(few_seconds(&slots, bytes).is_some());
}

/// A long stage of a transformer is answered exactly, with each micro-batch in flight on its own,
/// whether all slots have as many micro-batches or not.
#[test]
fn many_equal_layers_are_proven() {
    let mut layers = vec![layer(100, 10); 48];
    layers[0] = LayerBlocks { input: 100_000, ..layer(10, 1) };
    let (none, kept) = ([false; 48], layers.iter().map(|layer| layer.activations).sum::<u64>());
    for (share, longer) in [(0.1, 8), (0.25, 6), (0.5, 8), (0.8, 3)] {
        let weights = weights(longer);
        let bytes = (8.0 * kept as f64 * share) as u64;
        let slot_layers = SlotLayers { layers: &layers, away: &none, bytes };
        let found = lagrangian::fewest(slot_layers, &weights, &NEVER).unwrap();
        assert_eq!(found.at_least, found.plan.seconds, "{share}");
        let grains = Grains { label: kept / 1024, level: kept / 64, run: Some(12) };
        let choices = SlotChoices::of(&layers, &none, bytes, true, grains, &NEVER);
        let slots: Vec<Slot<'_>> = weights.iter().map(|&weight| Slot { choices: &choices, weight }).collect();
        let coarse = fewest_seconds(&slots, bytes).unwrap();
        assert!(found.plan.seconds <= coarse.seconds * (1.0 + 1e-9), "{share}");
    }
}
