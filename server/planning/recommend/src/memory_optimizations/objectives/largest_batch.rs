//! The largest micro-batch that fits with memory actions.

use loadmaster_proto::plan::Plan;

use super::impossible::nothing_found;
use super::proof::{Progress, looked_at, seconds_note};
use super::subproblem::{ActionSolution, Subproblem};
use super::{ActionsQuestion, QuestionError};
use crate::result::RecommendError;
use loadmaster_search::cost::Batch;

/// Most sizes of which it is asked whether they are proven impossible.
const MOST_PROVEN: usize = 512;

impl ActionsQuestion<'_> {
    /// The fastest plan of the largest micro-batch for which one was found. Sizes are tried as if all below one that fits
    /// fitted, too; of those above nothing is taken for granted.
    pub(super) fn largest_batch(&self) -> Result<Plan, QuestionError> {
        let mut batches: Vec<Batch> = self.criteria.batches.clone();
        batches.sort_by_key(|batch| batch.micro_batch_size);
        let subproblem = |batch: Batch| Subproblem { batches: vec![batch], ..Subproblem::whole(self) };
        let mut tried = Progress::default();
        let mut best: Option<(usize, ActionSolution)> = None;
        let mut error = None;
        // Below it something fits, from it on nothing was found to.
        let (mut low, mut high, mut step) = (0, batches.len(), 1);
        while low < high && !self.stop.is_requested() {
            // In longer and longer steps until nothing fits, then by halves.
            let index =
                if high == batches.len() { (low + step - 1).min(high - 1) } else { low + (high - low) / 2 };
            let Some(&batch) = batches.get(index) else { break };
            match self.fastest(&subproblem(batch)) {
                Ok(found) => {
                    tried.states = tried.states.saturating_add(found.certificate.states);
                    best = Some((index, found));
                    (low, step) = (index + 1, step * 2);
                }
                Err(nothing) => {
                    let nothing = nothing_found(nothing)?;
                    high = index;
                    error = Some((nothing, batch));
                }
            }
        }
        tried.is_stopped = self.stop.is_requested();
        let Some((index, found)) = best else {
            return Err(match error {
                Some((error, batch)) if !tried.is_stopped => self.explained(error.into(), &subproblem(batch)),
                _ => RecommendError::Stopped.into(),
            });
        };
        let size = |batch: &Batch| f64::from(batch.micro_batch_size);
        for (asked, &batch) in batches.iter().skip(index + 1).rev().enumerate() {
            let is_proven =
                asked < MOST_PROVEN && !self.stop.is_requested() && self.is_impossible(&subproblem(batch));
            if !is_proven {
                tried.doubtful = Some(size(&batch));
                break;
            }
        }
        if let Some(next) = batches.get(index + 1) {
            let is_proven = tried.doubtful.is_none();
            let doubtful = tried.doubtful;
            tried.pass_over(format!("micro-batch {}", next.micro_batch_size), size(next), is_proven);
            tried.doubtful = doubtful;
        }
        let batch = batches.get(index).copied().unwrap_or(Batch { micro_batch_size: 0, micro_batches: 0 });
        let found = self.annotated(&subproblem(batch)).unwrap_or(found);
        let ActionSolution { mut plan, certificate: of_seconds, .. } = found;
        tried.is_stopped |= of_seconds.stopped;
        plan.warnings.push(looked_at(self.criteria.shape));
        plan.warnings.push(seconds_note("of this micro-batch", &of_seconds));
        plan.found.certificate = Some(tried.certificate(size(&batch), self.criteria.objective.unit()));
        Ok(plan)
    }
}
