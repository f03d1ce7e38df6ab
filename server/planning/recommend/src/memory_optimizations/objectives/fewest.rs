//! The fewest or cheapest devices that hold the training with memory actions.

use loadmaster_proto::amounts::plural;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::PlanShape;

use super::impossible::nothing_found;
use super::proof::{Progress, looked_at, seconds_note};
use super::subproblem::{ActionSolution, Subproblem};
use super::{ActionsQuestion, QuestionError};
use crate::result::RecommendError;
use crate::search::DeviceWorth;
use loadmaster_search::FleetNode;
use loadmaster_search::fleet::{Subset, Subsets};

/// Most choices of devices that are asked about.
const MOST_ASKED: usize = 512;
/// Most of them of one size.
const MOST_WAYS: usize = 8;

impl ActionsQuestion<'_> {
    /// The fastest plan on the fewest or cheapest devices for which one was found.
    pub(super) fn fewest(&self) -> Result<Plan, QuestionError> {
        let (criteria, fleet) = (self.criteria, self.job.fleet);
        let device_worth = DeviceWorth { fleet, objective: criteria.objective };
        device_worth.check()?;
        if let Some(error) = self.lacks_layer(&Subproblem::whole(self)) {
            return Err(self.explained(error.into(), &Subproblem::whole(self)));
        }
        let subproblem = |subset: Subset| Subproblem { subset, may_idle: false, ..Subproblem::whole(self) };
        // What is left where the search is stopped.
        let spare = self.spare();
        let subsets = Subsets::of(fleet, &criteria.cuts, criteria.starts_evenly(), criteria.keeps_order);
        let mut sizes = subsets
            .sizes(device_worth.speeds(self.builder.prices, criteria), |counts| device_worth.of(counts));
        let (mut tried, mut last, mut asked) = (Progress::default(), None, 0);
        while let Some((worth, counts)) = sizes.next_size() {
            let devices: u32 = counts.iter().sum();
            let is_single = criteria.shape == PlanShape::SinglePipeline;
            if is_single && devices as usize > self.job.names.len() && !self.stop.is_requested() {
                continue;
            }
            if self.stop.is_requested() || asked >= MOST_ASKED {
                tried.is_stopped = self.stop.is_requested();
                tried.doubtful = tried.doubtful.or(Some(worth));
                break;
            }
            let (ways, mut is_proven) = subsets.with(&counts, MOST_WAYS);
            for subset in ways {
                let one = subproblem(subset);
                asked += 1;
                match self.annotated(&one) {
                    Ok(found) => return Ok(self.on_fewest(found, tried, worth)),
                    Err(error) => {
                        let error = nothing_found(error)?;
                        is_proven &= error.is_proof();
                        last = Some((error, one));
                    }
                }
            }
            tried.pass_over(plural(devices, "device"), worth, is_proven);
        }
        if let Some(found) = spare {
            let value = device_worth.of_plan(&found.plan);
            return Ok(self.on_fewest(found, tried, value));
        }
        if tried.is_stopped {
            return Err(RecommendError::Stopped.into());
        }
        let is_proven = tried.doubtful.is_none();
        let (error, subproblem) = match last {
            Some((error, subproblem)) => {
                (if is_proven { error.proven() } else { error.unproven() }, subproblem)
            }
            None => {
                let why = "no number of devices has room for the training, with all that is allowed";
                (RecommendError::no_plan(why), Subproblem::whole(self))
            }
        };
        Err(self.explained(error.into(), &subproblem))
    }

    /// The fastest plan on all devices, or on those of the largest node.
    fn spare(&self) -> Option<ActionSolution> {
        let (fleet, pins) = (self.job.fleet, self.criteria.cuts.pins());
        let on = |subset: Subset| {
            self.fastest(&Subproblem { subset, may_idle: false, ..Subproblem::whole(self) }).ok()
        };
        let all = on(Subset::whole(fleet));
        let is_at = |node: &FleetNode, other: &FleetNode| fleet.is_one_node || node.name == other.name;
        let of_node = |node: &FleetNode| -> Vec<u32> {
            fleet.nodes.iter().map(|other| if is_at(node, other) { other.devices } else { 0 }).collect()
        };
        let largest = || fleet.nodes.iter().map(of_node).max_by_key(|taken| taken.iter().sum::<u32>());
        all.or_else(|| on(Subset::of(fleet, &largest()?, pins)))
    }

    fn on_fewest(&self, found: ActionSolution, mut tried: Progress, value: f64) -> Plan {
        let ActionSolution { mut plan, certificate: of_seconds, .. } = found;
        tried.states = tried.states.saturating_add(of_seconds.states);
        tried.is_stopped |= of_seconds.stopped;
        plan.warnings.push(looked_at(self.criteria.shape));
        plan.warnings.push(seconds_note("on these devices", &of_seconds));
        plan.found.certificate = Some(tried.certificate(value, self.criteria.objective.unit()));
        plan
    }
}
