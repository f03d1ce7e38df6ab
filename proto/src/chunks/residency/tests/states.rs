//! The states of tensors that plans in PatrickStar's mode go through, told of their intervals and steps alone: only
//! the published transitions happen (`FREE`, `COMPUTE`, `HOLD`, `HOLD_AFTER_FWD`, `HOLD_AFTER_BWD`).
//!
//! No state is kept from one moment to the next. Each is read from what is true then: which step runs, which payloads are there,
//! which passes of a tensor's layers are behind and which are still to come.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::naive::{Case, models};
use super::{stage, training};
use crate::chunks::host::HostParameters;
use crate::chunks::packing::ChunkLayout;
use crate::chunks::residency::Payload;
use crate::chunks::residency::intervals::ResidencyInterval;
use crate::chunks::residency::paging_intervals::Paging;
use crate::chunks::sequence::Sequence;
use crate::chunks::stage::{ChunkEviction, ChunkedStage, UpdateTime};
use crate::training::actions::Step;
use crate::training::chunk_order::ChunkOrder;
use crate::training::{Precision, RecomputePolicy, Schedule};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// Nowhere on this rank: another owns its chunk, which was released.
    Free,
    Compute,
    Hold,
    HoldAfterForward,
    HoldAfterBackward,
}

use State::{Compute, Free, Hold, HoldAfterBackward, HoldAfterForward};

/// Those that are published, of a payload of parameters. From a backward pass that is not its last a tensor goes back to `HOLD`.
const TRANSITIONS: [(State, State); 12] = [
    (Free, Compute),
    // With others of its chunk.
    (Free, Hold),
    (Hold, Compute),
    (Compute, HoldAfterForward),
    (HoldAfterForward, Compute),
    // The whole forward pass is over.
    (HoldAfterForward, Hold),
    (Compute, Hold),
    (Compute, HoldAfterBackward),
    // Its group is released.
    (HoldAfterForward, Free),
    (Hold, Free),
    // Its group is reduced, and released.
    (HoldAfterBackward, Free),
    // It is updated.
    (HoldAfterBackward, Hold),
];

/// A point of an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Within(usize),
    /// Behind a step, before anything leaves or comes at the boundary.
    Behind(usize),
    /// All is updated.
    Updated,
}

struct Played<'a> {
    case: &'a Case,
    intervals: &'a [ResidencyInterval],
    /// Of each layer, which tensors, and whether its backward pass reads them.
    layers: Vec<Vec<(usize, bool)>>,
    /// Of each tensor, the steps that use it, ascending.
    uses: Vec<Vec<usize>>,
}

impl<'a> Played<'a> {
    fn new(case: &'a Case, intervals: &'a [ResidencyInterval]) -> Self {
        let layers = case.tensors();
        let mut uses = vec![Vec::new(); case.chunks.layout.tensors().len()];
        for (at, step) in case.chunks.steps.all().iter().enumerate() {
            let layer = layer_of(step).map_or(&[] as &[_], |layer| &layers[layer]);
            layer.iter().for_each(|&(tensor, _)| uses[tensor].push(at));
        }
        Self { case, intervals, layers, uses }
    }

    fn chunk_of(&self, tensor: usize) -> usize {
        self.case.chunks.layout.tensors()[tensor].chunk
    }

    fn step(&self, at: usize) -> &Step {
        &self.case.chunks.steps.all()[at]
    }

    /// The backward passes that end with a gradient of a tensor.
    fn backward(&self, tensor: usize) -> impl Iterator<Item = usize> {
        self.uses[tensor].iter().copied().filter(|&at| matches!(self.step(at), Step::Backward { .. }))
    }

    /// Whether a step is a backward pass without a look at the tensor's value: rows that are added or looked up.
    fn needs_no_value(&self, tensor: usize, at: usize) -> bool {
        let layer = layer_of(self.step(at)).map_or(&[] as &[_], |layer| &self.layers[layer]);
        matches!(self.step(at), Step::Backward { .. }) && layer.contains(&(tensor, false))
    }

    /// Whether a payload has memory in a step.
    fn is_there(&self, chunk: usize, is_gradients: bool, step: usize) -> bool {
        let payload = Payload { chunk, is_gradients };
        let mut own = self.intervals.iter().filter(|interval| interval.payload == payload);
        self.case.stage.on_device.contains(&chunk)
            || own.any(|interval| (interval.at.fetched..interval.at.freed).contains(&step))
    }

    /// Whether all backward passes of a tensor are over behind a step.
    fn has_gradient(&self, tensor: usize, behind: usize) -> bool {
        self.backward(tensor).all(|step| step <= behind)
    }

    /// Behind a step a chunk has gradients of some of its tensors, or of one of several passes, and not yet all.
    fn is_unfinished(&self, chunk: usize, behind: usize) -> bool {
        let tensors = || self.case.chunks.layout.chunks()[chunk].tensors.clone();
        let is_begun = |tensor| self.backward(tensor).any(|step| step <= behind);
        tensors().any(is_begun) && !tensors().all(|tensor| self.has_gradient(tensor, behind))
    }

    fn state(&self, tensor: usize, moment: Moment) -> State {
        let chunk = self.chunk_of(tensor);
        let (step, is_within) = match moment {
            Moment::Within(step) => (step, true),
            Moment::Behind(step) => (step, false),
            // What others own is gone until it is gathered for a pass.
            Moment::Updated if self.case.ranks > 1 => return Free,
            Moment::Updated => return Hold,
        };
        let all = &self.uses[tensor];
        if is_within && all.contains(&step) {
            return Compute;
        }
        let is_apart = self.case.chunks.uses.are_apart(chunk);
        // Behind the step before, if this one is still going on.
        let behind = if is_within { step.checked_sub(1) } else { Some(step) };
        let held = behind.map_or(Hold, |behind| self.held(tensor, behind));
        // All that is wanted of it from there on is its gradients.
        let last = behind.and_then(|behind| self.last_use(tensor, behind));
        let is_without_value = last.is_some_and(|last| self.needs_no_value(tensor, last));
        let is_in_gradients = is_apart && (held == HoldAfterBackward || is_without_value);
        // Complete or not begun it is released; what is neither is moved to the host.
        let is_released = self.case.ranks > 1 && !self.is_there(chunk, is_in_gradients, step);
        let is_unfinished = behind.is_some_and(|behind| self.is_unfinished(chunk, behind));
        if is_released && !(is_unfinished && (is_in_gradients || !is_apart)) {
            return Free;
        }
        // What was gathered once more has not been used since.
        let interval = self.intervals.iter().find(|interval| {
            interval.payload == Payload { chunk, is_gradients: false }
                && (interval.at.fetched..interval.at.freed).contains(&step)
        });
        match interval {
            Some(interval) if self.case.ranks > 1 && held == HoldAfterForward => {
                let is_used = all.iter().any(|&at| interval.at.fetched <= at && Some(at) <= behind);
                if is_used { held } else { Hold }
            }
            _ => held,
        }
    }

    /// What a tensor is held for behind a step that does not use it any more.
    fn held(&self, tensor: usize, behind: usize) -> State {
        let steps = self.case.chunks.steps.all();
        let Some(last) = self.last_use(tensor, behind) else { return Hold };
        let is_forward_over = !steps[behind + 1..].iter().any(|step| matches!(step, Step::Forward { .. }));
        match steps[last] {
            // The re-forward of a layer is no forward pass of the model.
            Step::Forward { .. } if is_forward_over => Hold,
            Step::Forward { .. } | Step::Again { .. } => HoldAfterForward,
            _ if self.has_gradient(tensor, behind) => HoldAfterBackward,
            _ => Hold,
        }
    }

    fn last_use(&self, tensor: usize, behind: usize) -> Option<usize> {
        self.uses[tensor].iter().copied().rfind(|&at| at <= behind)
    }

    fn moments(&self) -> Vec<Moment> {
        let within = |step| [Moment::Within(step), Moment::Behind(step)];
        (0..self.case.steps()).flat_map(within).chain([Moment::Updated]).collect()
    }

    /// A tensor's state at every moment, behind the state before.
    fn states(&self, tensor: usize) -> Vec<(Moment, State, State)> {
        // As an iteration ends it begins.
        let mut before = self.state(tensor, Moment::Updated);
        let told = |moment| {
            let state = self.state(tensor, moment);
            (moment, std::mem::replace(&mut before, state), state)
        };
        self.moments().into_iter().map(told).collect()
    }
}

fn layer_of(step: &Step) -> Option<usize> {
    match *step {
        Step::Forward { layer, .. } | Step::Again { layer, .. } | Step::Backward { layer, .. } => Some(layer),
        Step::Renew | Step::Exchange | Step::Update { .. } => None,
    }
}

/// PatrickStar's mode: equal chunks, moves of what is unchanged, too, and updates behind the backward
/// pass; with room for what each step needs, and more of it in some.
fn plans() -> impl Strategy<Value = (Case, Vec<u64>)> {
    let trained = (
        prop_oneof![Just(RecomputePolicy::None), Just(RecomputePolicy::Layer)],
        prop_oneof![Just(Precision::Fp32), Just(Precision::Bf16)],
        1_u32..4,
    );
    let more = proptest::collection::vec(0_u64..=100, 1..20);
    (models(), 0_u64..=50, (1_u32..4, 0_usize..3), trained, more).prop_map(
        |(model, share, (ranks, on_device), (recompute, precision, micro_batches), more)| {
            let largest = Sequence::of_model(&model).atoms().map(|atom| atom.iter().sum()).max().unwrap();
            let chunk_elements = (model.parameter_count() * share / 100).max(largest);
            let mut stage = ChunkedStage {
                layout: ChunkLayout::Patrickstar,
                moves: ChunkEviction::WriteBack,
                update: UpdateTime::AfterBackward,
                ..stage(chunk_elements, ChunkOrder::MicroBatch, HostParameters::Stored)
            };
            let training = training((Schedule::Gpipe, micro_batches), recompute, precision);
            let training = training.with_micro_batch_size(ranks);
            let chunks = stage.lay_out_shared(&model, &training, ranks).unwrap();
            // In list order.
            let count = if ranks > 1 { 0 } else { on_device.min(chunks.layout.chunks().len()) };
            stage.on_device = (0..count).collect();
            let chunks = stage.lay_out_shared(&model, &training, ranks).unwrap();
            let bare = stage.bare_intervals(&chunks).unwrap();
            let least = stage.told(&chunks, &bare).unwrap().resident(|chunk| chunks.payload_bytes(chunk));
            let always = chunks.on_device_bytes();
            let all: u64 = (0..chunks.layout.chunks().len()).map(|chunk| chunks.payload_bytes(chunk)).sum();
            let more = more.iter().cycle().map(|share| all * share / 100);
            let room = least.iter().zip(more).map(|(least, more)| always + least + more).collect();
            (Case { model, stage, chunks, precision, ranks }, room)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever leaves by whichever rule, every tensor of every chunk goes the published way: it is there when it computes, it never
    /// computes with a gradient in its place, and a chunk leaves complete when all of its tensors hold their gradients.
    #[test]
    fn tensors_go_through_the_published_states(
        (case, room) in plans(),
    ) {
        let intervals = case.stage.paged(Paging::AT_NEED, &case.chunks, &room).unwrap();
        let played = Played::new(&case, &intervals);
        for tensor in 0..case.chunks.layout.tensors().len() {
            let chunk = played.chunk_of(tensor);
            for (moment, before, state) in played.states(tensor) {
                prop_assert!(
                    state == before || TRANSITIONS.contains(&(before, state)),
                    "tensor {} of chunk {} goes from {:?} to {:?} at {:?}", tensor, chunk, before, state, moment
                );
                let Moment::Within(step) = moment else { continue };
                if state != Compute {
                    continue;
                }
                // Rows that are added or looked up need no value for their gradients, which need a place.
                let is_read = !played.needs_no_value(tensor, step);
                prop_assert!(!is_read || played.is_there(chunk, false, step), "chunk {} is away in {}", chunk, step);
                let is_apart = case.chunks.uses.are_apart(chunk);
                // Passes that follow each other add up elsewhere.
                let is_put = |at: usize| layer_of(played.step(at)) != layer_of(played.step(at + 1));
                let is_overwritten = !is_apart && played.backward(tensor).any(|at| at < step && is_put(at));
                prop_assert!(!(is_read && is_overwritten), "tensor {} is read in {} behind its gradient", tensor, step);
                let has_place = played.is_there(chunk, is_apart, step);
                let is_backward = matches!(played.step(step), Step::Backward { .. });
                prop_assert!(!is_backward || has_place, "gradients of {} have no place in {}", chunk, step);
            }
        }
        for interval in &intervals {
            let Payload { chunk, is_gradients } = interval.payload;
            if is_gradients != case.chunks.uses.are_apart(chunk) {
                continue;
            }
            let uses = case.chunks.uses.payloads().iter().find(|of| of.payload == interval.payload).unwrap();
            let tensors = case.chunks.layout.chunks()[chunk].tensors.clone();
            let held: BTreeSet<State> =
                tensors.map(|tensor| played.state(tensor, Moment::Behind(interval.at.leaves - 1))).collect();
            let is_complete = held == BTreeSet::from([HoldAfterBackward]);
            prop_assert_eq!(interval.copies(uses).is_complete, is_complete, "{:?} leaves with {:?}", interval, held);
        }
    }
}

/// Most plans that are looked at until every transition has happened.
const MOST_PLANS: usize = 2_000;

/// The list has nothing that never happens: each published transition is one of some plan.
#[test]
fn every_published_transition_happens() {
    // The same plans in every run.
    let mut runner = TestRunner::deterministic();
    let strategy = plans();
    let mut never = BTreeSet::from(TRANSITIONS);
    for _ in 0..MOST_PLANS {
        let (case, room) = strategy.new_tree(&mut runner).unwrap().current();
        let intervals = case.stage.paged(Paging::AT_NEED, &case.chunks, &room).unwrap();
        let played = Played::new(&case, &intervals);
        for tensor in 0..case.chunks.layout.tensors().len() {
            for (_, before, state) in played.states(tensor) {
                never.remove(&(before, state));
            }
        }
        if never.is_empty() {
            break;
        }
    }
    assert_eq!(never, BTreeSet::new());
}
