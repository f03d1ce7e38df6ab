//! Without copies nothing differs from passes alone.

use proptest::prelude::*;

use super::*;
use crate::Seconds;
use crate::{Order, Pipeline, iteration_seconds};

/// Seconds in quarters, so that sums are exact and both ways of adding up agree to the bit.
fn quarters(most: u32) -> impl Strategy<Value = f64> {
    (0..=most).prop_map(|quarters| f64::from(quarters) / 4.0)
}

pub(super) fn stage() -> impl Strategy<Value = TestStage> {
    let layer = (quarters(12), quarters(12), quarters(12))
        .prop_map(|(forward, backward, update)| LayerSeconds { forward, backward, again: forward, update });
    prop::collection::vec(layer, 1..4).prop_map(|layers| TestStage { layers, ..TestStage::default() })
}

pub(super) fn edges(count: usize) -> impl Strategy<Value = Vec<Edge>> {
    let edge = (quarters(12), quarters(12)).prop_map(|(forward, backward)| Edge { forward, backward });
    prop::collection::vec(edge, count)
}

pub(super) fn overlap() -> impl Strategy<Value = Overlap> {
    prop_oneof![Just(Overlap::Computing), Just(Overlap::Nothing)]
}

pub(super) fn passes(stage: &TestStage, is_recomputed: bool) -> Seconds {
    let sum = |of: fn(&LayerSeconds) -> f64| stage.layers.iter().map(of).sum::<f64>();
    let again = if is_recomputed { sum(|layer| layer.again) } else { 0.0 };
    Seconds {
        forward: sum(|layer| layer.forward),
        backward: sum(|layer| layer.backward) + again,
        step: sum(|layer| layer.update),
    }
}

proptest! {
    /// A stage's layers take as long as its passes did, kept and recomputed, under every schedule and either overlap.
    #[test]
    fn steps_without_copies_take_what_passes_take(
        stages in prop::collection::vec(stage(), 1..6), ways in edges(5), micro_batches in 1_u32..9,
        overlap in overlap(), is_recomputed in any::<bool>(),
    ) {
        let edges = &ways[..stages.len() - 1];
        let mut stages = stages;
        if is_recomputed {
            for stage in &mut stages {
                let last_layer = stage.layers.len() - 1;
                let run = Action { first_layer: 0, last_layer, slots: Vec::new(), optimization: Optimization::Recompute };
                stage.actions.actions.push(run);
            }
        }
        let whole: Vec<Seconds> = stages.iter().map(|stage| passes(stage, is_recomputed)).collect();
        for schedule in [Schedule::Gpipe, Schedule::OneFOneB] {
            let pipeline = Pipeline { stages: &whole, edges, micro_batches, order: schedule.into(), overlap };
            let devices = devices(&stages, schedule, micro_batches);
            let stepped = CopyPipeline { devices: &devices, edges, overlap, links: &Links::default() };
            let copied = simulate(&stepped, Keep::default()).unwrap();
            prop_assert_eq!(copied.iteration_seconds, iteration_seconds(&pipeline).unwrap());
            prop_assert_eq!((copied.iterations, copied.is_steady), (1, true));
        }
    }

    /// The same for chunks that are interleaved over devices, and where each device has cores of its own: then nothing
    /// is shared, but all goes from event to event.
    #[test]
    fn interleaved_steps_without_copies_take_what_passes_take(
        count in 1_u32..4, chunks in 1_u32..4, groups in 1_u32..4, seed in prop::collection::vec(stage(), 9),
        ways in edges(9), overlap in overlap(), has_cores in any::<bool>(),
    ) {
        let all = count * chunks;
        let (stages, edges) = (&seed[..all as usize], &ways[..all as usize - 1]);
        let (order, micro_batches) = (Order::Interleaved { devices: count }, count * groups);
        let whole: Vec<Seconds> = stages.iter().map(|stage| passes(stage, false)).collect();
        let pipeline = Pipeline { stages: &whole, edges, micro_batches, order, overlap };
        let devices: Vec<DeviceSteps> =
            order.turns(stages.len(), micro_batches).iter().map(|turns| of_turns(turns, stages)).collect();
        let cores = if has_cores { vec![Cores { devices: (0..count).collect(), cores: f64::from(count), contention_slowdown: 1.0, slowdown_seconds_per_byte: 0.0 }] } else { vec![] };
        let links = Links { cores, ..Links::default() };
        let copied = simulate(&CopyPipeline { devices: &devices, edges, overlap, links: &links }, Keep::default()).unwrap();
        prop_assert_eq!(copied.iteration_seconds, iteration_seconds(&pipeline).unwrap());
    }
}
