//! Plain ways to hold little, and what nothing gets below.

use loadmaster_proto::bytes::Bytes;

use super::ActionsQuestion;
use super::enumeration::Every;
use super::floor::Floor;
use super::subproblem::{action_solution, at_least};
use crate::memory_optimizations::Chooser;
use crate::objectives::{FamilySolution, Subproblem};

/// Most pipelines of which plain ways to hold little are looked at.
const MOST_PLAIN: usize = 48;

impl ActionsQuestion<'_> {
    /// A peak that no plan within a subproblem gets below, where one reaches `known`.
    pub(super) fn least_peak(&self, subproblem: &Subproblem, known: u64) -> u64 {
        let every = Every::of(self, subproblem);
        let most = |most: u64, capacity: u64| self.most_bytes(&subproblem.within(most), Bytes(capacity));
        let alone =
            (0..self.job.names.len()).map(|layer| self.least_alone(layer, subproblem)).max().unwrap_or(0);
        let largest = self.job.fleet.kinds.iter().map(|kind| kind.capacity).max().unwrap_or(Bytes(0));
        let low = self.criteria.unit.of(self.builder.corrected(alone), largest).min(known);
        Floor::of(self, &every).least(low, known, &most)
    }

    /// The lowest peak that plain ways reach, within the limit on time: where to begin, and what is left where nothing else fits.
    pub(super) fn plain(
        &self,
        subproblem: &Subproblem,
        first: Option<&FamilySolution>,
    ) -> Option<FamilySolution> {
        let ActionsQuestion { builder, choice, .. } = *self;
        if choice.chooser == Chooser::Mpress {
            return None;
        }
        let mut candidates = self.that_may_fit(subproblem, MOST_PLAIN).unwrap_or_default();
        if self.given.is_some() || !self.criteria.cuts.pins().is_empty() {
            candidates.clear();
        }
        match first {
            Some(first) => candidates.extend(first.candidate.clone()),
            None => candidates.extend(self.stages(subproblem).ok()?.candidates),
        }
        // What the fastest of all does not get below, these do not.
        let known = first.map(|first| &first.certificate);
        let bound = known.and_then(|of| of.bound);
        let (stopped, states) = known.map_or((false, 0), |of| (of.stopped, of.states));
        let solver = choice.chooser.solver();
        let found = candidates.into_iter().filter_map(|candidate| {
            if self.stop.is_requested() {
                return None;
            }
            let asked = builder
                .action_problem(&candidate, builder.plan(&candidate, solver).ok()?, choice.pace)
                .ok()?;
            let actions = match choice.framework_rules {
                Some(framework_rules) => builder.least_expressible(&asked, framework_rules)?,
                None => builder.least(&asked, choice.allowed)?,
            };
            let plan = builder.with_actions(&candidate, &actions, choice.pace, solver).ok()?;
            drop(asked);
            let certificate = at_least(&plan, bound, (stopped, states));
            Some(action_solution(plan, candidate, certificate, String::new()))
        });
        let limit = self.criteria.constraints.max_iteration_seconds.unwrap_or(f64::INFINITY);
        let most = self.criteria.constraints.max_peak_bytes.unwrap_or(u64::MAX);
        let keeps = |found: &FamilySolution| {
            found.plan.peak() <= most
                && found.plan.iteration_seconds().is_some_and(|seconds| seconds <= limit)
        };
        found.filter(keeps).min_by_key(|found| self.peak_of(&found.plan))
    }
}
