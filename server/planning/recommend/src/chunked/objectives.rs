//! The plan in chunks that is best at what a request asks for.
//!
//! A stage may have several batches to choose from: each is a search of its own
//! ([`choose_until`]).

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::plan::objective::Objective;

use super::{ChunkContext, Trained};
use crate::result::{QuestionError, RecommendError, certified};
use loadmaster_memory::chunks::{
    ChunkPlan, ChunkQuestion, NoChunks, Passes as _, PassesMemo, ProfiledPasses, choose_until, fits,
};
use loadmaster_predict::Margin;
use loadmaster_search::cost::Batch;

/// A batch with its fastest plan.
pub(super) struct BestChunkPlan {
    pub(super) batch: Batch,
    pub(super) plan: ChunkPlan,
}

impl BestChunkPlan {
    /// A certificate that says what the search knows of its intervals, too.
    fn visited(&self, certificate: Certificate) -> Certificate {
        let fetches_fewest = self.plan.certificate.is_some_and(|of| of.fetches_fewest);
        Certificate { fetches_fewest, ..certificate }
    }
}

impl ChunkContext<'_> {
    fn limit(&self) -> f64 {
        self.question.request.goal.constraints.max_iteration_seconds.unwrap_or(f64::INFINITY)
    }

    /// The plan with what proves it.
    fn proven(&self, best: &BestChunkPlan, certificate: Certificate) -> Result<Plan, QuestionError> {
        let mut written = self.build_plan(best)?;
        written.found.certificate = Some(best.visited(certificate));
        Ok(written)
    }

    fn fastest(&self, batch: Batch, capacity: Bytes) -> Result<ChunkPlan, NoChunks> {
        let Trained { question, passes } = self.trained(batch, capacity);
        choose_until(&question, &passes, &|| self.question.stop.is_over())
    }

    pub(super) fn has_room(&self, batch: Batch, capacity: Bytes) -> Result<bool, NoChunks> {
        let Trained { question, passes } = self.trained(batch, capacity);
        fits(&question, &passes, &|| self.question.stop.is_over())
    }

    /// The shortest iteration of all batches, which have equally many samples.
    pub(super) fn shortest(&self) -> Result<Plan, QuestionError> {
        let mut best: Option<BestChunkPlan> = None;
        let mut bound = Some(f64::INFINITY);
        let (mut states, mut stopped, mut refused) = (0, false, None);
        for (index, &batch) in self.batches.iter().enumerate() {
            // One is always looked at: what is known of it is better than nothing.
            if index > 0 && self.question.stop.is_over() {
                (bound, stopped) = (None, true);
                break;
            }
            match self.fastest(batch, self.devices.capacity) {
                Ok(plan) => {
                    let seconds = plan.lanes.iteration_seconds;
                    bound = match plan.certificate {
                        Some(known) => {
                            states += known.simulated as u64;
                            // They are sums in another order.
                            let least = known.any_intervals_seconds.min(seconds);
                            bound.map(|bound| bound.min(least))
                        }
                        None => None,
                    };
                    if best.as_ref().is_none_or(|best| seconds < best.plan.lanes.iteration_seconds) {
                        best = Some(BestChunkPlan { batch, plan });
                    }
                }
                Err(error @ NoChunks::NoRoom(_)) => refused = closer(refused, error),
                Err(error) => return Err(self.refused(error)),
            }
        }
        let Some(best) = best else {
            return Err(refused.map_or_else(|| RecommendError::Stopped.into(), |error| self.refused(error)));
        };
        stopped |= self.question.stop.is_over();
        let seconds = best.plan.lanes.iteration_seconds;
        self.check_limit(seconds, bound)?;
        let certificate =
            Certificate { states, stopped, ..certified(seconds, bound, Objective::MinIterationTime.unit()) };
        self.proven(&best, certificate)
    }

    /// The lowest peak of a plan that keeps the limit on time: the fastest one within the least memory that has room.
    pub(super) fn lowest_peak(&self) -> Result<Plan, QuestionError> {
        let refuse = |error| self.refused(error);
        // A batch, the capacity that it fits in, and its fastest plan within that, where a limit asks for one.
        let mut least: Option<(Batch, u64, Option<ChunkPlan>)> = None;
        let mut bound: Option<u64> = None;
        for &batch in &self.batches {
            // What steps cost is the same with any memory.
            let Trained { question, passes } = self.trained(batch, self.devices.capacity);
            let passes = PassesMemo::new(passes);
            let keeps = |capacity: u64| -> Result<Option<(u64, Option<ChunkPlan>)>, NoChunks> {
                let question = ChunkQuestion { capacity: Bytes(capacity), ..question.clone() };
                if !fits(&question, &passes, &|| self.question.stop.is_over())? {
                    return Ok(None);
                }
                if self.limit().is_infinite() {
                    return Ok(Some((capacity, None)));
                }
                let plan = choose_until(&question, &passes, &|| self.question.stop.is_over())?;
                Ok((plan.lanes.iteration_seconds <= self.limit()).then_some((capacity, Some(plan))))
            };
            let besides = self.least_besides(batch, Margin::Share(0.0))?;
            bound = Some(bound.map_or(besides, |bound| bound.min(besides)));
            let most = least.as_ref().map_or(self.devices.capacity.0, |(_, capacity, _)| *capacity);
            let mut kept = match keeps(most) {
                Ok(Some(kept)) => kept,
                Ok(None) => continue,
                // The bound is of the other batches, too.
                Err(NoChunks::Stopped) if least.is_some() => continue,
                Err(error) => return Err(refuse(error)),
            };
            // More memory never hinders.
            let mut not = 0;
            while not + 1 < kept.0 && !self.question.stop.is_over() {
                let middle = not + (kept.0 - not) / 2;
                match keeps(middle) {
                    Ok(Some(less)) => kept = less,
                    Ok(None) => not = middle,
                    Err(NoChunks::Stopped) => break,
                    Err(error) => return Err(refuse(error)),
                }
            }
            least = Some((batch, kept.0, kept.1));
        }
        let Some((batch, capacity, plan)) = least else {
            // The fastest plan says what lacks.
            return self.shortest();
        };
        // What was found within the limit may not be found a second time once time is up.
        let plan = match plan {
            Some(plan) => plan,
            None => self.fastest(batch, Bytes(capacity)).map_err(refuse)?,
        };
        let bound = bound.map(|bound| bound as f64);
        let stopped = self.question.stop.is_over();
        let best = BestChunkPlan { batch, plan };
        let mut written = self.build_plan(&best)?;
        let certificate = certified(written.peak() as f64, bound, Objective::MinPeakMemory.unit());
        written.found.certificate = Some(Certificate { stopped, ..best.visited(certificate) });
        Ok(written)
    }

    /// The largest micro-batch with room, in its fastest plan.
    pub(super) fn largest_batch(&self) -> Result<Plan, QuestionError> {
        let refuse = |error| self.refused(error);
        let mut open: Option<u32> = None;
        for &batch in self.batches.iter().rev() {
            if self.question.stop.is_over() {
                return Err(RecommendError::Stopped.into());
            }
            let capacity = self.devices.capacity;
            let size = f64::from(batch.micro_batch_size);
            if self.has_room(batch, capacity).map_err(refuse)? {
                let plan = self.fastest(batch, capacity).map_err(refuse)?;
                if plan.lanes.iteration_seconds <= self.limit() {
                    let bound = open.map_or(size, f64::from);
                    let certificate = certified(size, Some(bound), Objective::MaxBatch.unit());
                    return self.proven(&BestChunkPlan { batch, plan }, certificate);
                }
                open = open.or(Some(batch.micro_batch_size));
            } else if self.least_besides(batch, self.question.context.margin)? < capacity.0 {
                // Without room beside any chunks no chunk size helps.
                open = open.or(Some(batch.micro_batch_size));
            }
        }
        self.shortest()
    }

    /// Bytes that a device needs besides any chunks at least, in the order and with the recomputation that need least.
    fn least_besides(&self, batch: Batch, margin: Margin) -> Result<u64, QuestionError> {
        let Trained { question, passes } = self.trained(batch, self.devices.capacity);
        let passes = ProfiledPasses { margin, ..passes };
        let mut least = u64::MAX;
        for of in question.pass_choices() {
            let needed = passes.costs(of)?.needed;
            least = least.min(needed.into_iter().max().unwrap_or(0));
        }
        Ok(least)
    }

    fn check_limit(&self, seconds: f64, bound: Option<f64>) -> Result<(), QuestionError> {
        let limit = self.limit();
        if seconds <= limit {
            return Ok(());
        }
        let is_proof = bound.is_some_and(|bound| bound > limit);
        if self.question.stop.is_over() && !is_proof {
            return Err(RecommendError::Stopped.into());
        }
        let reason = format!(
            "the fastest plan with chunked training takes {} per iteration, but the limit is {} \
             (`constraints.max_iteration_time`). Allow more device memory, or a longer iteration",
            Seconds(seconds),
            Seconds(limit)
        );
        Err(RecommendError::Limits { reason, is_proof, remedies: Vec::new() }.into())
    }
}

/// The refusal that lacks less.
fn closer(one: Option<NoChunks>, other: NoChunks) -> Option<NoChunks> {
    let missing = |of: &NoChunks| match of {
        NoChunks::NoRoom(lack) => lack.missing(),
        NoChunks::Invalid(_) | NoChunks::Unknown(_) | NoChunks::Stopped => 0,
    };
    one.into_iter().chain([other]).min_by_key(missing)
}
