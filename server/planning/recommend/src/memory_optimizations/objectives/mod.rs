//! Plans with chosen memory actions that are best at what a request asks for.
//!
//! | module | question |
//! |---|---|
//! | here | which search answers which objective? |
//! | `subproblem` | which plan is the fastest on these devices, with these batches, within this peak? |
//! | `limits` | what may a plan need at most? |
//! | `enumeration` | which pipelines are there on them at all? |
//! | `layer_minimum` | what does a layer need alone, whatever is done? |
//! | `floor` | what does each of them need, whatever is done? |
//! | `impossible` | is it proven that nothing fits? |
//! | `fewest` | how few devices are enough, or how cheap ones? |
//! | `largest_batch` | how large a micro-batch fits? |
//! | `lowest_peak` | how low a peak is reached? |
//! | `front` | what does less memory cost in time? |
//! | `peaks` | which peaks are asked for? |
//! | `proof` | how good is the answer? |
//! | `remedies` | what would help where there is none? |
//! | `restriction` | what does the launcher cost? |
//!
//! All of them ask `subproblem`, which looks at a few fast pipelines of the shape that is asked for. What it does not find need not
//! be impossible: a value is proven only where `impossible` rules out every better one, and else leaves a gap.

mod enumeration;
mod fewest;
mod floor;
mod front;
mod impossible;
mod largest_batch;
mod layer_minimum;
mod limits;
mod lowest_peak;
mod peaks;
mod proof;
mod remedies;
mod restriction;
mod subproblem;
#[cfg(test)]
mod tests;

pub(crate) use impossible::nothing_found;
pub(crate) use layer_minimum::LayerMinima;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::stage::Partitioning;
pub(crate) use peaks::{Point, by_halves, fill, kept};
pub(crate) use proof::{Progress, seconds_note};

use super::Choice;
use crate::plan::{NamedPlan, PlanBuilder};
use crate::problem::Criteria;
use crate::result::QuestionError;
use crate::search::Job;
use loadmaster_search::Stop;
use subproblem::{ActionSolution, Subproblem};

/// A question for a plan whose memory actions are to be chosen.
#[derive(Clone, Copy)]
pub(crate) struct ActionsQuestion<'a> {
    pub(crate) builder: &'a PlanBuilder<'a>,
    pub(crate) job: &'a Job<'a>,
    pub(crate) criteria: &'a Criteria,
    /// The stages, where the request names them.
    pub(crate) given: Option<&'a Partitioning>,
    pub(crate) choice: Choice<'a>,
    pub(crate) stop: &'a Stop,
    pub(crate) known: &'a LayerMinima,
}

impl ActionsQuestion<'_> {
    /// The best plan by the criteria's objective, and the plans that it names.
    ///
    /// # Errors
    /// Nothing that is allowed makes one fit within the limits, as far as anything was found, or the search was stopped before.
    pub(crate) fn answer(&self) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let alone = |plan: Plan| (plan, Vec::new());
        let answer = match self.criteria.objective {
            // Of several models the caller asks for one after another.
            Objective::MinIterationTime | Objective::MaxModel => self.shortest().map(alone),
            Objective::MinDevices | Objective::MinCost => self.fewest().map(alone),
            Objective::MaxBatch => self.largest_batch().map(alone),
            Objective::MinPeakMemory => self.lowest_peak().map(alone),
            Objective::Pareto => self.front(),
        };
        answer.map_err(|error| match error {
            QuestionError::Recommend(error) => error.within(self.least_allowed()).into(),
            other => other,
        })
    }

    /// The fastest plan on all devices.
    fn shortest(&self) -> Result<Plan, QuestionError> {
        let subproblem = Subproblem::whole(self);
        let ActionSolution { mut plan, certificate, bound_is, .. } =
            self.annotated(&subproblem).map_err(|error| self.explained(error, &subproblem))?;
        plan.found.certificate = Some(certificate);
        plan.warnings.push(bound_is);
        Ok(plan)
    }
}
