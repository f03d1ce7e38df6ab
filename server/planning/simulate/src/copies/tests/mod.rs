//! Simulations with copies beside engines and figures of their own.

mod beside;
mod clock;
mod endless;
mod hand;
mod monotone;
mod picture;
mod table;
mod unscheduled;
mod untouched;

use loadmaster_proto::training::actions::{
    Absence, Action, Block, Destination, Optimization, Part, StageActions, Steps, Stripe, Swap,
};
use loadmaster_proto::training::boundaries::BoundaryInterval;
use loadmaster_proto::training::schedule::Pass;
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use super::*;
use crate::{Edge, Overlap, Turn};

/// What one stage of a test is like.
#[derive(Debug, Clone, Default)]
struct TestStage {
    layers: Vec<LayerSeconds>,
    actions: StageActions,
    /// Bytes of the activations of each layer.
    bytes: u64,
}

impl TestStage {
    fn steps(&self, passes: &[Pass], slots: u32) -> Steps {
        let layers = 0..=self.layers.len() - 1;
        let runs: Vec<_> =
            (0..slots).map(|slot| self.actions.runs(layers.clone(), RecomputePolicy::None, slot)).collect();
        Steps::of(passes, layers, &runs, false)
    }

    fn endless_steps(&self, slots: u32) -> Steps {
        let layers = 0..=self.layers.len() - 1;
        let runs: Vec<_> =
            (0..slots).map(|slot| self.actions.runs(layers.clone(), RecomputePolicy::None, slot)).collect();
        Steps::endless(layers, &runs, false)
    }

    fn trip(&self, absence: &Absence) -> Trip {
        let bytes = if absence.part == Part::Own { self.bytes } else { 0 };
        let Optimization::Swap(swap) = &self.actions.actions[absence.action].optimization else {
            panic!("a swap")
        };
        Trip::of(absence, bytes, &swap.to, |stage| stage)
    }

    /// Stage `index` of `count` under a schedule.
    fn device(&self, schedule: Schedule, (index, count): (u32, u32), micro_batches: u32) -> DeviceSteps {
        let in_flight = schedule.in_flight(count, index, micro_batches);
        let steps = self.steps(&schedule.passes(count, index, micro_batches), in_flight);
        let stage = StageSteps {
            place: (index, count),
            steps: &steps,
            first_layer: 0,
            layers: &self.layers,
            exchange_seconds: 0.0,
        };
        let trips = self.actions.absences(&steps).iter().map(|absence| self.trip(absence)).collect();
        DeviceSteps { steps: stage.timed().unwrap(), trips }
    }
}

fn devices(stages: &[TestStage], schedule: Schedule, micro_batches: u32) -> Vec<DeviceSteps> {
    let count = stages.len() as u32;
    let device = |(stage, index): (&TestStage, u32)| stage.device(schedule, (index, count), micro_batches);
    stages.iter().zip(0..).map(device).collect()
}

/// The swap of these layers' activations to the host, `points` steps after and before.
fn swap(first_layer: usize, last_layer: usize, points: u32) -> Action {
    let swap = Swap {
        block: Block::Activations,
        to: Destination::Host,
        release_after: points,
        fetch_before: points,
    };
    Action { first_layer, last_layer, slots: Vec::new(), optimization: Optimization::Swap(swap) }
}

fn seconds(devices: &[DeviceSteps], edges: &[Edge], links: &Links) -> f64 {
    let stepped = CopyPipeline { devices, edges, overlap: Overlap::Computing, links };
    simulate(&stepped, Keep::default()).unwrap().iteration_seconds
}

/// A device of several chunks, whose passes take turns.
fn of_turns(turns: &[Turn], stages: &[TestStage]) -> DeviceSteps {
    let mut own: Vec<u32> = turns.iter().map(|turn| turn.stage).collect();
    own.sort_unstable();
    own.dedup();
    let steps: Vec<Steps> = own
        .iter()
        .map(|&chunk| {
            let of = turns.iter().filter(|turn| turn.stage == chunk);
            let passes: Vec<Pass> = of.map(|turn| turn.pass).collect();
            stages[chunk as usize].steps(&passes, 1)
        })
        .collect();
    let chunks: Vec<(StageSteps<'_>, Vec<Trip>)> = own
        .iter()
        .zip(&steps)
        .map(|(&chunk, steps)| {
            let layers = &stages[chunk as usize].layers;
            let place = (chunk, stages.len() as u32);
            let stage = &stages[chunk as usize];
            let trips = stage.actions.absences(steps).iter().map(|absence| stage.trip(absence)).collect();
            (StageSteps { place, steps, first_layer: 0, layers, exchange_seconds: 0.0 }, trips)
        })
        .collect();
    device_of_chunks(turns, &chunks).unwrap()
}
