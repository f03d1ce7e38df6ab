//! Plans in chunks: parameters and optimizer state in chunks, one stage with the whole model, on one device or on several that
//! share the chunks (PatrickStar).
//!
//! | module | question |
//! |---|---|
//! | here | which search answers which objective? |
//! | `device` | which devices are they, and by which profile? |
//! | `options` | what may be chosen, and what of the request cannot be? |
//! | `rates` | how fast are copies, and who says so? |
//! | `objectives` | which plan is best at what is asked? |
//! | `baselines` | what do others come to on the same device? |
//! | `plan` | what is reported and kept of a plan in chunks? |
//! | `with_plain` | is a plan with chunks better than one without? |
//!
//! Devices are equal devices of one node. Where some may stay idle, each number of devices is a question of its own, and so is
//! each split into replicas that divide the micro-batch and shards that the profile contains. The crate `memory` answers each:
//!
//! * Shortest iteration: one search per micro-batch size.
//! * Lowest peak: bisection over capacities, because more memory never makes a plan impossible.
//! * Largest micro-batch: the largest with a plan. Its bound is the largest that fits without any chunk.
//! * Largest model of a family: exponential search over one parameter of the zoo. The profile has measured all its layers, so one
//!   predictor covers all sizes.
//!
//! Copy rates come from the request, the cluster or a guess, as for memory optimizations. Rates of optimizer steps come from the
//! request, the profile's run in chunks, or the cluster. For DeepSpeed and Colossal-AI only their own ways are planned: one
//! micro-batch after the other, parameters kept in CPU memory, updates after the backward pass. Where a request allows both kinds
//! of plans, a plan without chunks is searched too, and the better one reports the other's value.

mod baselines;
mod device;
mod objectives;
mod options;
mod plan;
mod rates;
#[cfg(test)]
mod tests;
mod with_plain;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::Node;
use loadmaster_proto::model::Model;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::chunked::AskedChunks;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::plan::request::PlanRequest;
use loadmaster_proto::training::{Schedule, TrainingSpec};

use super::context::Context;
use super::problem::Criteria;
use super::result::{QuestionError, RecommendError};
use device::ChunkDevices;
use loadmaster_memory::chunks::{ChunkChoices, ChunkQuestion, ChunkRemedy, NoChunks, ProfiledPasses};
use loadmaster_predict::PredictionError;
use loadmaster_search::Stop;
use loadmaster_search::cost::Batch;
use rates::SourcedRates;
use with_plain::best_of_several;
pub(super) use with_plain::better;

/// Solver of plans in chunks.
const SOLVER: &str = "chunks/1";

/// A question for a training in chunks.
#[derive(Clone, Copy)]
pub(super) struct ChunksQuestion<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) request: &'a PlanRequest,
    pub(super) asked: &'a AskedChunks,
    pub(super) criteria: &'a Criteria,
    pub(super) stop: &'a Stop,
}

impl ChunksQuestion<'_> {
    /// The best plan by the criteria's objective, of all numbers of devices.
    ///
    /// # Errors
    /// What of the request a training in chunks cannot do, what the profile lacks, or that there is no room.
    pub(super) fn answer(&self) -> Result<Plan, QuestionError> {
        let contexts = self.contexts()?;
        self.check_objective()?;
        // Of one model the fastest plan is the best.
        let objective = match self.criteria.objective {
            Objective::MaxModel => Objective::MinIterationTime,
            objective => objective,
        };
        let answers = contexts.iter().map(|context| match objective {
            Objective::MinPeakMemory => context.lowest_peak(),
            Objective::MaxBatch => context.largest_batch(),
            _ => context.shortest(),
        });
        let (index, mut plan) = best_of_several(objective, answers)?;
        if let Some(context) = contexts.get(index).filter(|_| !self.criteria.brief) {
            plan.found.baselines = context.baselines(&plan)?;
        }
        Ok(plan)
    }

    /// Whether there is room for the first batch.
    ///
    /// # Errors
    /// As [`Self::answer`], but for room.
    pub(super) fn has_room(&self) -> Result<bool, QuestionError> {
        let (mut is_possible, mut wrong) = (false, None);
        for context in self.contexts()? {
            let Some(&batch) = context.batches.first() else { continue };
            match context.has_room(batch, context.devices.capacity) {
                Ok(true) => return Ok(true),
                Ok(false) => is_possible = true,
                // Other devices, or another split of them, may do what the request names.
                Err(error @ NoChunks::Invalid(_)) => wrong = wrong.or_else(|| Some(context.refused(error))),
                Err(error) => return Err(context.refused(error)),
            }
        }
        wrong.filter(|_| !is_possible).map_or(Ok(false), Err)
    }

    /// One for each choice of devices that may train, and each schedule, with the batches that these devices split evenly. At least
    /// one.
    fn contexts(&self) -> Result<Vec<ChunkContext<'_>>, QuestionError> {
        self.check()?;
        let predictor = &self.context.chain.predictor;
        if !predictor.knows_chunks() {
            return Err(PredictionError::NoChunks { predictor: predictor.name() }.into());
        }
        let devices = self.devices(&self.criteria.batches)?;
        let schedules = self.schedules();
        let contexts = devices.into_iter().flat_map(|devices| {
            schedules.iter().map(move |&schedule| self.context(devices.clone(), schedule))
        });
        contexts.collect()
    }

    /// Those that may be chosen, as far as chunks can be trained by them; where none can, the first says so.
    fn schedules(&self) -> Vec<Schedule> {
        let all = &self.criteria.schedules;
        let can: Vec<Schedule> = all.iter().copied().filter(|schedule| !schedule.updates_always()).collect();
        let first = || vec![all.first().copied().unwrap_or(self.context.training.schedule)];
        if can.is_empty() { first() } else { can }
    }

    fn context<'a>(
        &'a self,
        devices: ChunkDevices<'a>,
        schedule: Schedule,
    ) -> Result<ChunkContext<'a>, QuestionError> {
        let (ranks, replicas) = (devices.ranks(), devices.replicas);
        let batches = self.criteria.batches.iter().copied();
        Ok(ChunkContext {
            question: self,
            model: self.model()?,
            rates: self.rates(&devices)?,
            choices: self.choices(),
            host_memory: Bytes(self.host_memory(devices.node).0 / u64::from(ranks.max(1))),
            schedule,
            batches: batches.filter(|batch| batch.micro_batch_size.is_multiple_of(replicas)).collect(),
            devices,
        })
    }

    fn model(&self) -> Result<&Model, QuestionError> {
        self.context.chain.model.as_ref().ok_or_else(|| {
            RecommendError::Unpredictable(
                "the profile contains only the names of its layers, not their tensors. Profile a stored model with \
                 `profiling_mode` PROFILING_MODE_PER_LAYER"
                    .to_owned(),
            )
            .into()
        })
    }

    /// Bytes of a node's host that chunks of all its ranks may take: as asked, and no more than there is.
    fn host_memory(&self, node: Option<&Node>) -> Bytes {
        self.host_of(node).map_or(self.asked.host_memory, |there| there.min(self.asked.host_memory))
    }

    /// All that a node's host has; none where no cluster says so.
    fn host_of(&self, node: Option<&Node>) -> Option<Bytes> {
        node.and_then(|node| node.copies.as_ref()?.host_memory)
    }
}

/// A question with all that answers are based on.
struct ChunkContext<'a> {
    question: &'a ChunksQuestion<'a>,
    model: &'a Model,
    devices: ChunkDevices<'a>,
    rates: SourcedRates,
    choices: ChunkChoices,
    /// Bytes of the host that each rank may take: its node's are shared equally.
    host_memory: Bytes,
    schedule: Schedule,
    /// What of the criteria's its replicas split evenly.
    batches: Vec<Batch>,
}

/// A training of a scene.
struct Trained<'a> {
    question: ChunkQuestion,
    passes: ProfiledPasses<'a>,
}

impl ChunkContext<'_> {
    /// The question for one batch, on devices with so many bytes each.
    fn trained(&self, batch: Batch, capacity: Bytes) -> Trained<'_> {
        let Batch { micro_batch_size, micro_batches } = batch;
        let own = self.question.context.training;
        let training = TrainingSpec { micro_batch_size, micro_batches, schedule: self.schedule, ..own };
        Trained {
            question: ChunkQuestion {
                model: self.model.clone(),
                training,
                ranks: self.devices.replicas,
                shards: self.devices.shards,
                capacity,
                host_memory: self.host_memory,
                rates: self.rates.rates,
                choices: self.choices.clone(),
            },
            passes: ProfiledPasses {
                predictor: &*self.devices.chain.predictor,
                model: self.model,
                training,
                ranks: self.devices.replicas,
                shards: self.devices.shards,
                margin: self.question.context.margin,
                factors: [self.devices.factors.bytes, self.devices.factors.seconds * self.devices.slower()],
            },
        }
    }

    /// Returns the error to report where there is no plan.
    fn refused(&self, error: NoChunks) -> QuestionError {
        match error {
            NoChunks::Invalid(invalid) => self.by_request(&invalid).into(),
            NoChunks::Unknown(error) => error.into(),
            NoChunks::Stopped => RecommendError::Stopped.into(),
            NoChunks::NoRoom(mut lack) => {
                let host = self.question.host_of(self.devices.node);
                let share = host.map(|host| host.0 / u64::from(self.devices.ranks().max(1)));
                let more = |remedy: &ChunkRemedy| match remedy {
                    ChunkRemedy::Memory { host, .. } if host.0 > 0 => {
                        self.host_memory.0.saturating_add(host.0)
                    }
                    _ => 0,
                };
                // A framework that trains as others published takes nothing else.
                lack.remedies.retain(|remedy| self.question.published_by().is_none() || !is_ours(remedy));
                let all = lack.remedies.len();
                lack.remedies.retain(|remedy| share.is_none_or(|share| more(remedy) <= share));
                let host = host.filter(|_| lack.remedies.len() < all);
                let step = self.lacking(&lack).map(Box::new);
                let allowed = self.devices.capacity;
                let has_more = self.devices.placed.iter().any(|placed| placed.capacity > allowed.0);
                let most = has_more.then_some(allowed);
                RecommendError::NoRoomInChunks { step, lack, most, host }.into()
            }
        }
    }
}

/// Whether it is a choice that others do not have.
fn is_ours(remedy: &ChunkRemedy) -> bool {
    use ChunkRemedy::{HostActivations, HostEmbedding, LayerOrder, MadeCopies};
    matches!(remedy, LayerOrder | MadeCopies | HostEmbedding | HostActivations)
}
