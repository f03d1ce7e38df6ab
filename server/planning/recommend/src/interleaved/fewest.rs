//! The fewest or cheapest devices that hold the training, which are all alike.

use loadmaster_proto::amounts::plural;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::PlanShape;

use super::InterleavedQuestion;
use super::subproblem::{InterleavedSolution, InterleavedSubproblem};
use crate::memory_optimizations::{LayerMinima, Progress, nothing_found, seconds_note};
use crate::plan::NamedPlan;
use crate::result::{QuestionError, RecommendError};
use crate::search::DeviceWorth;
use loadmaster_search::Spanning;
use loadmaster_search::fleet::{Subset, Subsets};

/// Most choices of devices that are asked about.
const MOST_ASKED: usize = 512;
/// Most of them of one size.
const MOST_WAYS: usize = 8;

impl InterleavedQuestion<'_> {
    /// The fastest plan on the fewest or cheapest devices for which one was found.
    pub(super) fn fewest(&self) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let (criteria, fleet) = (self.criteria, self.job.fleet);
        let device_worth = DeviceWorth { fleet, objective: criteria.objective };
        device_worth.check()?;
        // What is left where the search is stopped.
        let spare = self.spare();
        let known = LayerMinima::default();
        let subsets = Subsets::of(fleet, self.cuts, criteria.starts_evenly(), criteria.keeps_order);
        let mut sizes =
            subsets.sizes(device_worth.speeds(self.prices, criteria), |counts| device_worth.of(counts));
        let (mut tried, mut last, mut asked) = (Progress::default(), None, 0);
        while let Some((worth, counts)) = sizes.next_size() {
            let devices: u32 = counts.iter().sum();
            if self.stop.is_requested() || asked >= MOST_ASKED {
                tried.is_stopped = self.stop.is_requested();
                tried.doubtful = tried.doubtful.or(Some(worth));
                break;
            }
            let (ways, mut is_proven) = match self.is_any_alike() {
                true => (subsets.with(&counts, 1).0, true),
                false => subsets.with(&counts, MOST_WAYS),
            };
            let mut is_possible = !is_proven;
            for devices in ways {
                let subproblem = InterleavedSubproblem { devices, ..InterleavedSubproblem::whole(self) };
                let (is_one_possible, is_short) = self.within(&subproblem, |one| {
                    let possible = one.possible();
                    Ok((!possible.is_empty(), one.is_any_short(&possible)))
                })?;
                is_possible |= is_one_possible;
                is_proven &= is_short || !is_one_possible;
                if !is_short {
                    continue;
                }
                asked += 1;
                let found = match self.hopeless(&subproblem, &known) {
                    Some(error) => Err(error.into()),
                    None => self.fastest(&subproblem),
                };
                match found {
                    Ok(found) => return self.on_fewest(found, tried, worth),
                    Err(error) => {
                        let error = nothing_found(error)?;
                        is_proven &= error.is_proof();
                        last = Some(error);
                    }
                }
            }
            // On other numbers no stages can take turns.
            if is_possible {
                tried.pass_over(plural(devices, "device"), worth, is_proven);
            }
        }
        if let Some(found) = spare {
            let value = device_worth.of_plan(&found.plan);
            return self.on_fewest(found, tried, value);
        }
        if tried.is_stopped {
            return Err(RecommendError::Stopped.into());
        }
        let Some(error) = last else {
            // Says why there are no such plans on all of them.
            self.check_nodes()?;
            return self
                .fastest(&InterleavedSubproblem::whole(self))
                .and_then(|_| Err(RecommendError::Stopped.into()));
        };
        Err(if tried.doubtful.is_none() { error.proven() } else { error.unproven() }.into())
    }

    /// Whether devices hold as much wherever they are.
    fn is_any_alike(&self) -> bool {
        let (criteria, fleet) = (self.criteria, self.job.fleet);
        let is_anywhere =
            criteria.shape == PlanShape::SinglePipeline || criteria.spanning_on(fleet) == Spanning::Anywhere;
        // A node's host has memory for its own devices.
        is_anywhere && criteria.rules.is_none() && self.allowed.is_none() && self.limit().is_infinite()
    }

    /// The fastest plan on all devices, where the launcher starts processes on these.
    fn spare(&self) -> Option<InterleavedSolution> {
        let whole: &Subset = self.devices;
        let may_start = whole.is_even() || !self.criteria.starts_evenly();
        may_start.then(|| self.fastest(&InterleavedSubproblem::whole(self)).ok()).flatten()
    }

    fn on_fewest(
        &self,
        found: InterleavedSolution,
        mut tried: Progress,
        value: f64,
    ) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let InterleavedSolution { mut plan, certificate: of_seconds, mut next } = found;
        tried.states = tried.states.saturating_add(of_seconds.states);
        self.tell_looked_at(&mut plan);
        if plan.iteration_seconds().is_some() {
            plan.warnings.push(seconds_note("on these devices", &of_seconds));
        }
        plan.found.certificate = Some(tried.certificate(value, self.criteria.objective.unit()));
        self.annotate_comparison(&mut plan, self.criteria)?;
        next.iter_mut().for_each(|(_, worth)| *worth = value);
        let others = self.annotate_next(&mut plan, next)?;
        Ok((plan, others))
    }
}
