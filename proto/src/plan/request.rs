//! What a request for a recommendation asks, checked: the goal that its plan keeps, and models of a family that may grow.

use serde::{Deserialize, Serialize};

use super::chunked::AskedChunks;
use super::constraints::Constraints;
use super::objective::{Framework, MemoryUnit, Objective, PlanShape, SearchMode};
use crate::bytes::Bytes;
use crate::error::{Invalid, in_range};
use crate::measure::offload::CopyPace;
use crate::message;
use crate::name::ClusterName;
use crate::training::actions::{Allowed, StageActions};
use crate::training::overlap::Overlap;
use crate::training::stage::Partitioning;
use crate::wire::v1;

/// The goal of a plan, as its request states it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Goal {
    /// The objective; none for a partitioning that the request named.
    pub objective: Option<Objective>,
    /// The unit in which peaks are compared.
    pub memory_unit: MemoryUnit,
    /// The shape that the search was restricted to.
    pub shape: PlanShape,
    /// The framework that it is for.
    pub framework: Option<Framework>,
    /// Version of the framework, or empty.
    pub framework_version: String,
    /// The other restrictions of the request.
    pub constraints: Constraints,
    /// The cluster that it is on.
    pub cluster: Option<ClusterName>,
}

impl Goal {
    /// Returns the field of a request that its devices come from.
    pub fn devices_field(&self) -> &'static str {
        if self.cluster.is_some() { "problem.cluster" } else { "problem.devices" }
    }
}

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
    /// Seed of randomized modes.
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
    /// It names memory of a host and says nothing of whether memory optimizations or chunks are to take it: actions may.
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

/// Models of the zoo that differ in one parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrownModel {
    /// The parameter.
    pub parameter: String,
    /// Its least value.
    pub first: u64,
    /// Its largest value.
    pub last: u64,
}

impl GrownModel {
    /// The largest value of a parameter that grows.
    pub const MAX: u64 = 65_536;
}

message! { GrownModel <= v1::ModelScaling { parameter, first = min_value: or(1), last = max_value } check growing }

fn growing(grown: GrownModel) -> Result<GrownModel, Invalid> {
    if grown.parameter.is_empty() {
        return Err(Invalid::field(
            "parameter",
            "is required. Name the model parameter to scale, for example blocks",
        ));
    }
    in_range("last", grown.last, 1..=GrownModel::MAX)?;
    in_range("first", grown.first, 1..=grown.last)?;
    Ok(grown)
}
