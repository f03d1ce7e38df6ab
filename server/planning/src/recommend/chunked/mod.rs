//! Plans whose parameters and optimizer state are in chunks: one stage, the whole model, on one device (PatrickStar).
//!
//! | module | question |
//! |---|---|
//! | here | which search answers which objective? |
//! | `device` | which device is it, and by which profile? |
//! | `asked` | what may be chosen, and what of the request cannot be? |
//! | `rates` | how fast are copies and updates, and who says so? |
//! | `objectives` | which plan is best at what is asked? |
//! | `baselines` | what do others come to on the same device? |
//! | `written` | what is told and kept of a plan in chunks? |
//! | `with_plain` | is a plan with chunks better than one without? |

mod asked;
mod baselines;
mod device;
mod objectives;
mod rates;
mod with_plain;
mod written;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::model::Model;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::chunked::AskedChunks;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::plan::request::PlanRequest;
use loadmaster_proto::training::TrainingSpec;

use super::answer::{QuestionError, RecommendError};
use super::ask::Wish;
use super::plan::Writer;
use crate::chunks::{ChunkChoices, ChunkQuestion, NoChunks, ProfiledPasses};
use crate::cost::Batch;
use crate::search::Stop;
use device::ChunkDevice;
use rates::SourcedRates;
pub(super) use with_plain::better;

/// Solver of plans in chunks.
const SOLVER: &str = "chunks/1";

/// A question for a training in chunks.
#[derive(Clone, Copy)]
pub(super) struct ChunksQuestion<'a> {
    pub(super) writer: &'a Writer<'a>,
    pub(super) request: &'a PlanRequest,
    pub(super) asked: &'a AskedChunks,
    pub(super) wish: &'a Wish,
    pub(super) stop: &'a Stop,
}

impl ChunksQuestion<'_> {
    /// The best plan by the wish's objective.
    ///
    /// # Errors
    /// What of the request a training in chunks cannot do, what the profile lacks, or that there is no room.
    pub(super) fn answer(&self) -> Result<Plan, QuestionError> {
        let scene = self.scene()?;
        match self.wish.objective {
            Objective::MinIterationTime | Objective::MaxModel => scene.shortest(),
            Objective::MinPeakMemory => scene.lowest_peak(),
            Objective::MaxBatch => scene.largest_batch(),
            Objective::Pareto | Objective::MinDevices | Objective::MinCost => Err(self.no_objective().into()),
        }
    }

    /// Whether there is room for the first batch.
    ///
    /// # Errors
    /// As [`Self::answer`], but for room.
    pub(super) fn has_room(&self) -> Result<bool, QuestionError> {
        let scene = self.scene()?;
        match self.wish.batches.first() {
            Some(&batch) => {
                scene.has_room(batch, scene.device.capacity).map_err(|error| scene.refused(error))
            }
            None => Ok(false),
        }
    }

    fn scene(&self) -> Result<Scene<'_>, QuestionError> {
        self.check()?;
        let device = self.device()?;
        Ok(Scene {
            question: self,
            model: self.model()?,
            rates: self.rates(&device)?,
            choices: self.choices(),
            host_memory: self.host_memory(),
            device,
        })
    }

    fn model(&self) -> Result<&Model, QuestionError> {
        self.writer.chain.model.as_ref().ok_or_else(|| {
            RecommendError::Unpredictable(
                "the profile is of a chain that is known by name alone, whose tensors nobody knows: profile a stored \
                 model with `--campaign minimal`"
                    .to_owned(),
            )
            .into()
        })
    }

    /// Bytes of the host that chunks may take: as asked, and no more than there is.
    fn host_memory(&self) -> Bytes {
        let there = self.writer.fleet.host_memory();
        there.map_or(self.asked.host_memory, |there| there.min(self.asked.host_memory))
    }
}

/// A question with all that answers rest on.
struct Scene<'a> {
    question: &'a ChunksQuestion<'a>,
    model: &'a Model,
    device: ChunkDevice<'a>,
    rates: SourcedRates,
    choices: ChunkChoices,
    host_memory: Bytes,
}

/// A training of a scene.
struct Trained<'a> {
    question: ChunkQuestion,
    passes: ProfiledPasses<'a>,
}

impl Scene<'_> {
    /// The question for one batch, on a device with so many bytes.
    fn trained(&self, batch: Batch, capacity: Bytes) -> Trained<'_> {
        let Batch { micro_batch_size, micro_batches } = batch;
        let schedules = &self.question.wish.schedules;
        let own = self.question.writer.training;
        let training = TrainingSpec {
            micro_batch_size,
            micro_batches,
            schedule: schedules.first().copied().unwrap_or(own.schedule),
            ..own
        };
        Trained {
            question: ChunkQuestion {
                model: self.model.clone(),
                training,
                capacity,
                host_memory: self.host_memory,
                rates: self.rates.rates,
                choices: self.choices.clone(),
            },
            passes: ProfiledPasses {
                predictor: &*self.device.chain.predictor,
                model: self.model,
                training,
                margin: self.question.writer.margin,
                factors: [self.device.factors.bytes, self.device.factors.seconds],
            },
        }
    }

    /// Why there is no plan, as it is told.
    fn refused(&self, error: NoChunks) -> QuestionError {
        match error {
            NoChunks::Invalid(invalid) => asked::by_request(invalid).into(),
            NoChunks::Unknown(error) => error.into(),
            NoChunks::NoRoom(lack) => RecommendError::NoRoomInChunks {
                moment: self.moment(&lack),
                device: self.device.name.clone(),
                lack,
            }
            .into(),
        }
    }
}
