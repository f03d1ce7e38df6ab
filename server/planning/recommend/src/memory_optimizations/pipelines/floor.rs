//! What pipelines need whatever is done: nothing allowed gets below.
//!
//! Of each, `optimizer::bound` says whether anything that is allowed can bring away as many bytes as must be absent at the
//! fullest moment, and how many seconds that takes at least; a block that may be computed again and away counts as both
//! there. What layers need during their own passes (`layer_minimum`) is a second floor, and the only one of what never flushes.

use super::ActionsQuestion;
use super::enumeration::Every;
use super::layer_minimum::LayerSetting;
use crate::memory_optimizations::problem::ActionProblem;
use crate::search::{Candidate, CandidateStage};
use loadmaster_memory::actions::optimizer::{self, Known};
use loadmaster_memory::actions::{NodeDevices, StageBlocks};
use loadmaster_search::{Choice, Stop};

/// By what part of itself a limit may be exceeded by rounding.
const SAME: f64 = 1e-9;

/// Seconds within which links may move anything: a limit on time counts by the bound alone, which holds whichever links the
/// devices have.
const LONG: f64 = 1e12;

/// What each of some pipelines needs at least.
pub(super) struct Floor<'a> {
    question: &'a ActionsQuestion<'a>,
    problems: Vec<ActionProblem<'a>>,
    /// By pipeline and stage: bytes that it needs whatever is done.
    least: Vec<Vec<u64>>,
    is_complete: bool,
}

impl<'a> Floor<'a> {
    /// That of all pipelines that are listed.
    pub(super) fn of(question: &'a ActionsQuestion<'a>, every: &'a Every) -> Self {
        let ActionsQuestion { builder, choice, stop, .. } = question;
        let mut floor =
            Self { question, problems: Vec::new(), least: Vec::new(), is_complete: every.is_complete };
        for candidate in every.candidates.iter().filter(|_| every.is_complete) {
            if stop.is_requested() {
                floor.is_complete = false;
                break;
            }
            let problem = builder
                .plan(candidate, choice.chooser.solver())
                .and_then(|untouched| builder.action_problem(candidate, untouched, choice.pace));
            match problem {
                Ok(problem) => {
                    let Candidate { batch, schedule, .. } = *candidate;
                    let of_stage = |(stage, run): (&StageBlocks, &CandidateStage)| {
                        let Choice { data, tensor, .. } = run.choice;
                        let way = LayerSetting { batch, schedule, data, tensor };
                        let own: Vec<u64> =
                            stage.range().map(|layer| question.layer_minimum(layer, way)).collect();
                        question.least_of_stage(&stage.layers, &own)
                    };
                    floor.least.push(problem.stages.iter().zip(&candidate.stages).map(of_stage).collect());
                    floor.problems.push(problem);
                }
                Err(_) => floor.is_complete = false,
            }
        }
        floor
    }

    /// Whether anything may fit where a device of some capacity may hold as many predicted bytes; always where that is not
    /// known.
    pub(super) fn may_fit(&self, most: &impl Fn(u64) -> u64) -> bool {
        !self.is_complete || (0..self.problems.len()).any(|index| self.may_fit_one(index, most))
    }

    /// Pipelines that may fit so, those first of which it is proven the least that they do not; none where it is not known
    /// whether others do.
    pub(super) fn that_may_fit(&self, most: &impl Fn(u64) -> u64) -> Option<Vec<Candidate>> {
        if !self.is_complete {
            return None;
        }
        let fit = self.problems.iter().enumerate().filter(|(index, _)| self.may_fit_one(*index, most));
        let mut fit: Vec<(u64, &Candidate)> = fit
            .map(|(index, problem)| {
                let high = problem.node.capacity.iter().map(|&own| most(own)).max().unwrap_or(0);
                let within = |of: u64| self.may_fit_one(index, &|capacity| most(capacity).min(of));
                (lowest(1, high, within), problem.candidate)
            })
            .collect();
        fit.sort_by_key(|(least, _)| *least);
        Some(fit.into_iter().map(|(_, candidate)| candidate.clone()).collect())
    }

    /// The least from `low` to `high` with which anything may fit, where `most` says what a device may hold; `low` where
    /// that is not known.
    pub(super) fn least(&self, low: u64, high: u64, most: &impl Fn(u64, u64) -> u64) -> u64 {
        if !self.is_complete {
            return low;
        }
        let mut least = high;
        for index in 0..self.problems.len() {
            let may_fit = |of: u64| self.may_fit_one(index, &|capacity| most(of, capacity));
            if least <= low || !may_fit(least - 1) {
                continue;
            }
            least = lowest(low, least - 1, may_fit);
        }
        least
    }

    fn may_fit_one(&self, index: usize, most: &impl Fn(u64) -> u64) -> bool {
        let (Some(problem), Some(least)) = (self.problems.get(index), self.least.get(index)) else {
            return true;
        };
        let ActionsQuestion { criteria, choice, stop, .. } = self.question;
        let limit = criteria.constraints.max_iteration_seconds.map(|limit| limit * (1.0 + SAME));
        if limit.zip(problem.least_seconds()).is_some_and(|(limit, seconds)| seconds > limit) {
            return false;
        }
        let capacity: Vec<u64> = problem.node.capacity.iter().map(|&own| most(own)).collect();
        if least.iter().zip(&capacity).any(|(least, &capacity)| *least > problem.predicted(capacity)) {
            return false;
        }
        if problem.candidate.schedule.updates_always() {
            return true;
        }
        let needs = problem.needs_within(&capacity);
        let node = NodeDevices { capacity, ..problem.node_within(choice.allowed) };
        // Where no time is asked for, one round says whether there is anything.
        let at_once = Stop::default();
        at_once.request();
        let stop = if limit.is_some() { *stop } else { &at_once };
        let question = problem.question(&node, &[], choice.allowed, stop);
        let edges = problem.least_edges();
        let known = Known { edges: Some(&edges), ..problem.known_within(&needs) };
        match optimizer::bound(&question, known, LONG) {
            Ok(None) => false,
            Ok(Some(seconds)) => limit.is_none_or(|limit| seconds <= limit),
            Err(_) => true,
        }
    }
}

/// The least number from `low` on that is enough, where `high` is, and so is all above one that is.
fn lowest(mut low: u64, mut high: u64, is_enough: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if is_enough(middle) { high = middle } else { low = middle + 1 }
    }
    low
}
