//! The longest way, against the simulation of steps.

use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::{Action, Optimization, StageActions};
use loadmaster_proto::training::overlap::Overlap;
use proptest::prelude::*;

use super::{ALL, layer, node, question, stages};
use crate::actions::optimizer::chain::Chain;
use crate::actions::{NodeDevices, Question, simulation};
use loadmaster_search::Seconds;
use loadmaster_simulate::copies::SlotCores;
use loadmaster_simulate::{Edge, Order};

proptest! {
    #![proptest_config(loadmaster_samples::cases(64))]

    /// With layers recomputed in some slots, the longest way is as long as the simulated iteration, and no longer where
    /// devices share cores; and what it goes through says how much an iteration with others grows at least.
    #[test]
    fn the_longest_way_is_the_iteration_and_bounds_others(
        forward in proptest::collection::vec(1_u32..20, 1..5), micro_batches in 1_u32..9,
        again in proptest::collection::vec(any::<bool>(), 64), other in proptest::collection::vec(0.0..0.02_f64, 64),
        is_gpipe: bool, overlaps: bool, edge in 0.0..2e9_f64, at_once in proptest::option::of(0.4..4.0_f64),
    ) {
        let stages = stages(&forward.iter().map(|&forward| vec![layer(10, forward)]).collect::<Vec<_>>());
        let (count, edges) = (stages.len() as u32, vec![1_000_000; stages.len() - 1]);
        let cores = at_once.map(SlotCores::plain);
        let node = NodeDevices { cores, ..node(stages.len(), 1 << 40, 1e9, 1e8 + edge) };
        let (order, schedule) =
            if is_gpipe { (Order::Gpipe, Schedule::Gpipe) } else { (Order::OneFOneB, Schedule::OneFOneB) };
        let overlap = if overlaps { Overlap::Computing } else { Overlap::Nothing };
        let asked = Question { order, micro_batches, overlap, edge_bytes: &edges, ..question(&stages, &node, ALL) };
        let in_flight = |stage: u32| schedule.in_flight(count, stage, micro_batches).max(1);
        let is_again = |stage: u32, slot: u32| again[(stage * 9 + slot) as usize % 64];
        let actions: Vec<StageActions> = (0..count)
            .map(|stage| {
                let slots: Vec<u32> = (0..in_flight(stage)).filter(|&slot| is_again(stage, slot)).collect();
                let action = Action { first_layer: stage as usize, last_layer: stage as usize, slots, optimization: Optimization::Recompute };
                let actions = if action.slots.is_empty() { Vec::new() } else { vec![action] };
                StageActions { actions, ..StageActions::default() }
            })
            .collect();
        let mapping: Vec<usize> = (0..stages.len()).collect();
        let simulated = simulation::seconds(&asked, &mapping, &actions).unwrap();

        let seconds = |forward: &u32| {
            let forward = f64::from(*forward) * 1e-3;
            Seconds { forward, backward: 2.0 * forward, step: 1e-3 }
        };
        let crossing = 1e-5 + 1e6 / (1e8 + edge);
        let edge = Edge { forward: crossing, backward: crossing };
        let mut chain = Chain::new(
            schedule, forward.iter().map(seconds).collect(), vec![edge; stages.len() - 1], overlap, micro_batches,
        );
        chain.at_once = at_once.unwrap_or(f64::INFINITY);
        let by_slot = |of: &dyn Fn(u32, u32) -> f64| -> Vec<Vec<f64>> {
            (0..count).map(|stage| (0..in_flight(stage)).map(|slot| of(stage, slot)).collect()).collect()
        };
        let added = by_slot(&|stage, slot| {
            if is_again(stage, slot) { f64::from(forward[stage as usize]) * 1e-3 } else { 0.0 }
        });
        let longest = chain.longest(&added);
        prop_assert!(longest.seconds <= simulated * (1.0 + 1e-9), "{} {simulated}", longest.seconds);
        prop_assert!(longest.seconds >= simulated * (1.0 - 1e-9) || at_once.is_some(), "{} {simulated}", longest.seconds);
        let others = by_slot(&|stage, slot| other[(stage * 9 + slot) as usize % 64]);
        let grown: f64 = longest.visits.iter().flatten().zip(others.iter().flatten().zip(added.iter().flatten()))
            .map(|(visits, (other, own))| visits * (other - own))
            .sum();
        prop_assert!(chain.longest(&others).seconds >= longest.seconds + grown - 1e-9);
    }
}
