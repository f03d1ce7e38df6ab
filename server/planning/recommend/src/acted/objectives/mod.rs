//! Plans with chosen memory actions that are best at what a request asks for.
//!
//! | module | question |
//! |---|---|
//! | here | which search answers which objective? |
//! | `room` | which plan is the fastest on these devices, with these batches, within this peak? |
//! | `limits` | what may a plan need at most? |
//! | `every` | which pipelines are there on them at all? |
//! | `alone` | what does a layer need alone, whatever is done? |
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
//! All of them ask `room`, which looks at a few fast pipelines of the shape that is asked for. What it does not find need not
//! be impossible: a value is proven only where `impossible` rules out every better one, and else leaves a gap.

mod alone;
mod every;
mod fewest;
mod floor;
mod front;
mod impossible;
mod largest_batch;
mod limits;
mod lowest_peak;
mod peaks;
mod proof;
mod remedies;
mod restriction;
mod room;
#[cfg(test)]
mod tests;

pub(crate) use alone::LayerMinima;
pub(crate) use impossible::nothing_found;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::stage::Partitioning;
pub(crate) use peaks::{Point, by_halves, fill, kept};
pub(crate) use proof::{Progress, seconds_note};

use super::Choice;
use crate::answer::QuestionError;
use crate::ask::Wish;
use crate::find::Job;
use crate::plan::{NamedPlan, Writer};
use loadmaster_search::Stop;
use room::{ActionSolution, Subproblem};

/// A question for a plan whose memory actions are to be chosen.
#[derive(Clone, Copy)]
pub(crate) struct ActionsQuestion<'a> {
    pub(crate) writer: &'a Writer<'a>,
    pub(crate) job: &'a Job<'a>,
    pub(crate) wish: &'a Wish,
    /// The stages, where the request names them.
    pub(crate) given: Option<&'a Partitioning>,
    pub(crate) choice: Choice<'a>,
    pub(crate) stop: &'a Stop,
    pub(crate) known: &'a LayerMinima,
}

impl ActionsQuestion<'_> {
    /// The best plan by the wish's objective, and the plans that it names.
    ///
    /// # Errors
    /// Nothing that is allowed makes one fit within the limits, as far as anything was found, or the search was stopped before.
    pub(crate) fn answer(&self) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let alone = |plan: Plan| (plan, Vec::new());
        let answer = match self.wish.objective {
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
        let room = Subproblem::whole(self);
        let ActionSolution { mut plan, certificate, bound_is, .. } =
            self.told(&room).map_err(|error| self.explained(error, &room))?;
        plan.found.certificate = Some(certificate);
        plan.warnings.push(bound_is);
        Ok(plan)
    }
}
