//! What a request for a recommendation asks, checked.

use crate::bytes::Bytes;
use crate::measure::offload::CopyPace;
use crate::plan::chunked::AskedChunks;
use crate::plan::goal::Goal;
use crate::plan::model_scaling::GrownModel;
use crate::plan::objective::{Objective, SearchMode};
use crate::training::actions::{Allowed, StageActions};
use crate::training::overlap::Overlap;
use crate::training::stage::Partitioning;

/// A question for the best plan, as far as it can be told without the profile: all defaults are filled in but those
/// that the profile's own training gives.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRequest {
    /// What the plan is asked to be, which it keeps.
    pub goal: Goal,
    /// Whether transfers overlap computing; none where the request does not say.
    pub overlap: Option<Overlap>,
    /// How to search.
    pub mode: SearchMode,
    /// Seed of modes that draw lots.
    pub seed: u64,
    /// Seconds that a search may take; none where the request does not say.
    pub search_seconds: Option<f64>,
    /// Plans to tell besides the best.
    pub alternatives: usize,
    /// Without baselines and the cost of restrictions.
    pub brief: bool,
    /// Multiply predictions with what earlier trials taught.
    pub correct: bool,
    /// Merge layers until so many are left; none merges nothing.
    pub merge_layers_to: Option<usize>,
    /// The plan itself, where nothing is to be searched.
    pub partitioning: Option<Partitioning>,
    /// What each of its stages does so that it holds less; empty where none does anything.
    pub stage_actions: Vec<StageActions>,
    /// Bytes of each host that these actions may take; none where the request does not limit them.
    pub host_memory: Option<Bytes>,
    /// Which actions may be chosen; none where none are to be.
    pub allowed: Option<Allowed>,
    /// What is asked of a training in chunks; none where none is to be.
    pub chunks: Option<AskedChunks>,
    /// It names memory of a host and says nothing of whether memory actions or chunks are to take it: actions may.
    pub host_memory_alone: bool,
    /// The family of which the largest model is looked for; none where the model is given.
    pub grow: Option<GrownModel>,
    /// How fast copies are.
    pub copy_pace: CopyPace,
    /// Stages that each device has: more than one are interleaved.
    pub virtual_stages: u32,
    /// Samples of an iteration; 0 where the training's own.
    pub global_batch_size: u64,
    /// Which settings of the training the request names.
    pub named: NamedSettings,
}

/// Settings of a training that a request names instead of leaving them to the profile or the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamedSettings {
    /// The size of a micro-batch.
    pub micro_batch_size: bool,
    /// Their number.
    pub micro_batches: bool,
    /// The order of their passes.
    pub schedule: bool,
}

impl PlanRequest {
    /// Seconds of a search where the request names none.
    const USUAL_SEARCH_SECONDS: f64 = 10.0;

    /// Seconds after which a search ends with the best that it has.
    pub fn search_limit(&self) -> f64 {
        self.search_seconds.unwrap_or(Self::USUAL_SEARCH_SECONDS)
    }

    /// What the plan should be best at.
    pub fn objective(&self) -> Objective {
        self.goal.objective.unwrap_or_default()
    }

    /// Whether it asks for the fewest or cheapest devices: a smaller micro-batch may need fewer.
    pub fn counts_devices(&self) -> bool {
        matches!(self.objective(), Objective::MinDevices | Objective::MinCost) && self.partitioning.is_none()
    }

    /// Whether it asks for the best in time.
    pub fn is_timed(&self) -> bool {
        matches!(self.objective(), Objective::MinIterationTime | Objective::Pareto)
            && self.partitioning.is_none()
    }

    /// Whether the number of micro-batches leaves one micro-batch size: of the samples that are named, or of as many as
    /// so many micro-batches of the profiled size have. The largest micro-batch has no such number of samples.
    pub fn is_batch_fixed(&self) -> bool {
        self.named.micro_batches && (self.global_batch_size != 0 || self.objective() != Objective::MaxBatch)
    }

    /// Whether the micro-batch size is the search's own choice.
    pub fn chooses_size(&self) -> bool {
        (self.is_timed() || self.counts_devices() || self.objective() == Objective::MaxBatch)
            && !self.named.micro_batch_size
            && !self.is_batch_fixed()
            && self.goal.constraints.micro_batch_sizes.is_empty()
    }
}
