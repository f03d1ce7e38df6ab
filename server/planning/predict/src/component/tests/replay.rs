//! The fold against a replay of every event, and both against pencil and paper.

use std::collections::VecDeque;
use std::rc::Rc;

use loadmaster_proto::training::actions::{StageActions, Steps};
use loadmaster_proto::training::schedule::{Endless, Pass};
use loadmaster_proto::training::{RecomputePolicy, Schedule, StaticBytes};
use proptest::prelude::*;

use super::super::machine::{BlockClass, ClassBytes, Machine};
use super::super::memory_optimizations::player::Gradients;
use super::super::memory_optimizations::resident_state::ResidentState;
use super::super::memory_optimizations::shard::{Scene, ShardMemory};
use super::super::schedule::{Place, StageBytes};
use super::super::stage::{PassTurn, ReplayStage};
use super::traces::{Shape, policies, schedules, shapes, stage, trace, traces};
use crate::Breakdown;

/// The peak of a replay of every event of every micro-batch, and what is held behind the last.
fn replay(stage: &ReplayStage<'_>, place: Place, synchronisation: u64) -> Breakdown {
    let passes = place.schedule.passes(place.stages, place.stage, place.micro_batches);
    let steps = Steps::of(&passes, 0..=stage.layers.len() - 1, &stage.runs, synchronisation > 0);
    let acted = played(stage, ResidentState::default(), &steps, synchronisation);
    assert_eq!(acted.left, 0, "an iteration leaves nothing behind");
    acted.peak()
}

fn played(
    stage: &ReplayStage<'_>,
    stored: ResidentState,
    steps: &Steps,
    synchronisation: u64,
) -> ShardMemory {
    let actions = StageActions::default();
    let gradients = Gradients::Wait;
    Scene { stage, stored, overhead: 0, steps, absences: &[], actions: &actions, synchronisation, gradients }
        .play()
}

/// The same of a training that never flushes, with so many micro-batches in flight and weights of so many bytes.
fn endless_replay(stage: &ReplayStage<'_>, in_flight: u32, synchronisation: u64, version: u64) -> u64 {
    let runs: Vec<_> = (0..in_flight).map(|slot| stage.runs(slot).to_vec()).collect();
    let steps = Steps::endless(0..=stage.layers.len() - 1, &runs, synchronisation > 0);
    let stored = ResidentState {
        whole: StaticBytes { parameters: version, ..StaticBytes::default() },
        versions: vec![vec![version]],
        older: in_flight - 1,
        ..ResidentState::default()
    };
    played(stage, stored, &steps, synchronisation).peak().total()
}

/// The peak of a training under PipeDream, pass by pass: each micro-batch holds the weights that it went forward with until
/// it is back, and an update writes new ones where a micro-batch holds the newest.
fn long_run(stage: &ReplayStage<'_>, place: Place, synchronisation: u64, version: u64) -> u64 {
    let Place { stages, stage: index, micro_batches, .. } = place;
    let iterations = Endless::warm_up(stages, micro_batches) + 2;
    let endless = Endless { stages, stage: index, micro_batches, iterations };
    let passes = (0..iterations).flat_map(|iteration| endless.passes(iteration)).chain(endless.rest());
    let mut machine = Machine::default();
    let mut newest = Rc::new(machine.allocate(version, BlockClass::Activation));
    let mut open = VecDeque::new();
    for pass in passes {
        match pass {
            Pass::Forward(_) => {
                open.push_back((newest.clone(), stage.forward(&mut machine, PassTurn::First)))
            }
            Pass::Backward(_) => {
                let (held, micro_batch) = open.pop_front().unwrap();
                let gradients = stage.backward(&mut machine, micro_batch);
                let is_newest = Rc::ptr_eq(&held, &newest);
                if let (Some(last), false) = (Rc::into_inner(held), is_newest) {
                    machine.release(last);
                }
                if Rc::strong_count(&newest) > 1 {
                    newest = Rc::new(machine.allocate(version, BlockClass::Activation));
                }
                let buffer = machine.allocate(synchronisation, BlockClass::Communication);
                machine.release(buffer);
                stage.step(&mut machine, gradients);
            }
        }
    }
    let peak = machine.peak().total();
    machine.release(*newest);
    assert_eq!(machine.held().total(), 0, "a training leaves nothing behind");
    peak
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(400))]

    /// Playing each kind of pass once yields the same peak as playing all of them, and no byte is lost.
    #[test]
    fn the_fold_is_the_replay(
        shapes in shapes(),
        recompute in policies(),
        is_first: bool,
        schedule in schedules(),
        (stages, stage_index) in (1_u32..6).prop_flat_map(|stages| (Just(stages), 0..stages)),
        micro_batches in 1_u32..8,
        synchronisation in 0_u64..3_000,
    ) {
        let traces = traces(&shapes, is_first);
        let stage = stage(&traces, recompute, is_first);
        let place = Place { schedule, stages, stage: stage_index, micro_batches };
        let mut buffer = ClassBytes::default();
        buffer.add(BlockClass::Communication, synchronisation);
        let folded = StageBytes::of(&stage).peak(place, buffer);
        prop_assert_eq!(folded.total(), replay(&stage, place, synchronisation).total());
    }

    /// A search reads the same peak from a line over the micro-batches in flight.
    #[test]
    fn the_curve_is_the_fold(
        shapes in shapes(),
        recompute in policies(),
        is_first: bool,
        schedule in schedules(),
        (stages, stage_index) in (1_u32..6).prop_flat_map(|stages| (Just(stages), 0..stages)),
        micro_batches in 1_u32..8,
        (buffer, constant) in (0_u64..3_000, 0_u64..1_000),
    ) {
        let traces = traces(&shapes, is_first);
        let bytes = StageBytes::of(&stage(&traces, recompute, is_first));
        let place = Place { schedule, stages, stage: stage_index, micro_batches };
        let mut synchronisation = ClassBytes::default();
        synchronisation.add(BlockClass::Communication, buffer);
        let in_flight = schedule.in_flight(stages, stage_index, micro_batches);
        let read = bytes.curve((schedule, micro_batches), buffer, constant, 0).bytes(in_flight);
        prop_assert_eq!(read, bytes.peak(place, synchronisation).total() + constant);
    }

    /// PipeDream: what is read from one pass of each kind is the highest moment of a whole training that never flushes,
    /// where each version of the weights is there for as long as anybody holds it; a search reads the same from a curve.
    #[test]
    fn the_fold_is_the_long_run_of_pipedream(
        shapes in shapes(),
        recompute in policies(),
        is_first: bool,
        (stages, stage_index) in (1_u32..6).prop_flat_map(|stages| (Just(stages), 0..stages)),
        micro_batches in 1_u32..8,
        (buffer, version) in (0_u64..3_000, 0_u64..3_000),
    ) {
        let traces = traces(&shapes, is_first);
        let stage = stage(&traces, recompute, is_first);
        let schedule = Schedule::PipeDream;
        let place = Place { schedule, stages, stage: stage_index, micro_batches };
        let mut synchronisation = ClassBytes::default();
        synchronisation.add(BlockClass::Communication, buffer);
        let bytes = StageBytes::of(&stage);
        let in_flight = schedule.in_flight(stages, stage_index, micro_batches);
        let folded = bytes.peak(place, synchronisation).total() + u64::from(in_flight) * version;
        prop_assert_eq!(folded, long_run(&stage, place, buffer, version));
        prop_assert_eq!(folded, endless_replay(&stage, in_flight, buffer, version));
        let curve = bytes.curve((schedule, micro_batches), buffer, version, version);
        prop_assert_eq!(folded, curve.bytes(in_flight));
    }

    /// An edge tensor counts once, whichever layer keeps it: a stage never needs more for its edges than all of them kept
    /// by both sides.
    #[test]
    fn more_micro_batches_in_flight_never_need_less(shapes in shapes(), recompute in policies(), micro_batches in 1_u32..8) {
        let traces = traces(&shapes, false);
        let bytes = StageBytes::of(&stage(&traces, recompute, false));
        let peak = |micro_batches| {
            let place = Place { schedule: Schedule::Gpipe, stages: 3, stage: 1, micro_batches };
            bytes.peak(place, ClassBytes::default()).total()
        };
        prop_assert!(peak(micro_batches) <= peak(micro_batches + 1));
    }
}

/// A linear layer in the middle of a pipeline, with pencil and paper: the inputs that wait, the gradients
/// of output and input, and the parameters' gradients twice while new ones are added.
#[test]
fn a_linear_layer_is_what_theory_says() {
    let (edge, weights) = (1_000, 1_500);
    let linear = Shape {
        output: edge,
        retained: 0,
        unsaved: 0,
        forward_scratch: 0,
        backward_scratch: 0,
        parameters: weights,
        step_scratch: 0,
        keeps_input: true,
        keeps_output: false,
        hands_on: false,
        steals: false,
    };
    let traces = vec![trace(linear, edge, false)];
    let stage = stage(&traces, RecomputePolicy::None, false);
    let peak = |schedule, micro_batches| {
        let place = Place { schedule, stages: 3, stage: 1, micro_batches };
        StageBytes::of(&stage).peak(place, ClassBytes::default())
    };
    // The first backward pass leaves one input less when gradients exist.
    let gpipe = peak(Schedule::Gpipe, 5);
    assert_eq!(gpipe.total(), 4 * edge + 2 * edge + 2 * weights);
    assert_eq!(gpipe.of(BlockClass::Gradient), weights);
    assert_eq!(gpipe.of(BlockClass::Edge), 6 * edge);
    let one_f_one_b = peak(Schedule::OneFOneB, 5);
    assert_eq!(one_f_one_b.total(), 2 * edge + 2 * edge + 2 * weights);
    assert_eq!(
        Schedule::OneFOneB.passes(3, 1, 5).iter().filter(|p| matches!(p, Pass::Forward(_))).count(),
        5
    );
}
