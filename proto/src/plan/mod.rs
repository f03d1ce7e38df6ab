//! Plans: requests for them, their parts, predictions, and reports of trainings.
//!
//! A [`Plan`] is one type everywhere. A search result is written as one, the store keeps it, and messages and pictures are made
//! of it. It never changes. Its name is a fingerprint of its serialized form ([`Plan::name`]), so the names and the order of its
//! fields are an interface. Equal requests on equal profiles therefore yield the same plan. Samples in `proto/tests/kept` and
//! `tests/e2e/kept` pin that form.

pub mod change;
pub mod chunked;
pub mod comparison;
pub mod compatibility;
pub mod constraints;
pub mod findings;
pub mod objective;
pub mod placement;
pub mod prediction;
pub mod rates;
pub mod report;
pub mod request;
pub mod scheduler_nodes;
mod stage_devices;
pub mod summary;
mod wire;

use serde::{Deserialize, Serialize};

use crate::accounting::Accounting;
use crate::bytes::Bytes;
use crate::chunks::stage::ChunkedStage;
use crate::error::Invalid;
use crate::measure::chunked::ChunkRun;
use crate::measure::offload::Offload;
use crate::measure::run::Work;
use crate::model::layer::fingerprint;
use crate::name::{ModelName, PlanName, ProfileName};
use crate::plan::comparison::Outline;
use crate::plan::findings::Findings;
use crate::plan::prediction::{Breakdown, Interval, Origin, StageSeconds};
use crate::training::actions::StageActions;
use crate::training::stage::{Partitioning, StageConfig};
use crate::training::strategy::{StageStrategy, Strategy};
use crate::training::{RecomputePolicy, TrainingSpec, notation};
use crate::warning::Warning;
use prediction::{SavedBytes, Verdict};
use request::Goal;

/// How a model is trained on which devices, with what it is predicted to need. It never changes: its name follows from
/// all of it, so its serialised form is an interface too.
///
/// ```
/// use loadmaster_proto::plan::Plan;
///
/// let stage = |first, last, peak: u64| {
///     serde_json::json!({
///         "config": {"first_layer": first, "last_layer": last, "data_degree": 1, "tensor_degree": 1},
///         "capacity": 4096, "predicted_peak": peak, "origin": "profiled", "in_flight": 2,
///     })
/// };
/// let plan: Plan = serde_json::from_value(serde_json::json!({
///     "profile": "profiles/first", "model": "models/tiny", "device_kind": "cpu",
///     "training": {
///         "precision": "fp32", "optimizer": {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.0, "weight_decay": 0.0},
///         "schedule": "gpipe", "micro_batch_size": 4, "micro_batches": 2, "recompute": "none", "seed": 0,
///     },
///     "stages": [stage(0, 2, 1000), stage(3, 7, 3000)],
///     "predictor": "component/2", "ledger": "allocated", "solver": "leximax/2", "warnings": [],
/// }))?;
/// assert_eq!((plan.partition().as_str(), plan.device_count(), plan.peak()), ("3-5", 2, 3000));
/// assert_eq!(plan.name()?, plan.clone().name()?, "a plan's name follows from what it is made of");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The profile behind the predictions.
    pub profile: ProfileName,
    /// Profiles of the same model on the other kinds of its devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_profiles: Vec<ProfileName>,
    /// Its model.
    pub model: ModelName,
    /// Settings that it is for.
    pub training: TrainingSpec,
    /// Kind of the devices.
    pub device_kind: String,
    /// The stages in order.
    pub stages: Vec<PlanStage>,
    /// How many of them each device has: more than one where they are interleaved, stage k on the devices of stage
    /// k modulo the number of [`Plan::positions`] (Megatron-LM's virtual pipeline stages).
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub virtual_stages: u32,
    /// Predictor and version.
    pub predictor: String,
    /// Memory accounting of all bytes.
    pub ledger: Accounting,
    /// Solver and version.
    pub solver: String,
    /// What to know before trusting the numbers.
    pub warnings: Vec<Warning>,
    /// What it was asked for.
    #[serde(default)]
    pub asked: Goal,
    /// What was found besides it.
    #[serde(default)]
    pub found: Findings,
}

/// One stage of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanStage {
    /// Layers and degrees.
    pub config: StageConfig,
    /// Bytes that each of its devices allows; of different ones the least.
    pub capacity: u64,
    /// Predicted peak of its device with the highest peak, in the plan's memory accounting.
    pub predicted_peak: u64,
    /// What those bytes are; none where the predictor cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breakdown: Option<Breakdown>,
    /// Where the real peak is expected; none where no margin is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Predicted times; none where the profile has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<StageSeconds>,
    /// The real seconds are expected within this share of those above; none where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_margin: Option<f64>,
    /// How far the prediction is from what was profiled.
    pub origin: Origin,
    /// The most micro-batches between forward and backward at once.
    pub in_flight: u32,
    /// What it recomputes.
    #[serde(default)]
    pub recompute: RecomputePolicy,
    /// Its devices in the order of its ranks.
    #[serde(default)]
    pub devices: Vec<PlacedDevice>,
    /// What it does so that it holds less.
    #[serde(default, skip_serializing_if = "StageActions::is_empty")]
    pub actions: StageActions,
    /// What its actions are predicted to move on its device with the highest peak; none without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<Offload>,
    /// By what its actions have each of its devices hold less; none without any, and in plans of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<SavedBytes>,
    /// How it trains in chunks; none where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Box<ChunkedStage>>,
    /// What its chunks are predicted to move and hold on its device with the highest peak; none without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_run: Option<Box<ChunkRun>>,
}

/// A device of a stage, as its cluster names it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacedDevice {
    /// Node; empty where devices were named without a cluster.
    pub node: String,
    /// Index within the node.
    pub index: u32,
    /// NVML's UUID, or empty.
    pub uuid: String,
    /// Kind.
    pub kind: String,
    /// Bytes that it allows.
    pub capacity: u64,
}

impl Plan {
    /// The name that follows from all of it.
    ///
    /// # Errors
    /// Never: a fingerprint is a valid id.
    pub fn name(&self) -> Result<PlanName, Invalid> {
        PlanName::from_id(&fingerprint(self)[..16])
    }

    /// Its stages in short: `8-8d2-7t4`.
    pub fn partition(&self) -> String {
        notation::short(self.stages.iter().map(|stage| stage.config))
    }

    /// Devices that it takes.
    pub fn device_count(&self) -> u64 {
        self.first_stages().iter().map(|stage| u64::from(stage.config.devices())).sum()
    }

    /// Whether devices have several stages, with which they take turns.
    pub fn is_interleaved(&self) -> bool {
        self.virtual_stages > 1
    }

    /// Places along the pipeline: as many as there are stages, divided by how many each device has.
    pub fn positions(&self) -> usize {
        self.stages.len() / (self.virtual_stages.max(1) as usize)
    }

    /// The first stage of each device: all of them where each has one.
    pub fn first_stages(&self) -> &[PlanStage] {
        self.stages.get(..self.positions()).unwrap_or_default()
    }

    /// Checks that each device has one stage, where nothing else can be done: `what` says with which verb, as *trained*.
    ///
    /// # Errors
    /// Its stages are interleaved; names `field`.
    pub fn check_flat(&self, field: &str, what: &str) -> Result<(), Invalid> {
        if !self.is_interleaved() {
            return Ok(());
        }
        let why = format!(
            "has {} virtual pipeline stages per device. Such a plan cannot be {what}. Request a new plan with one \
             stage per device, and use the new plan",
            self.virtual_stages
        );
        Err(Invalid::field(field, why))
    }

    /// Predicted peak of the device with the highest peak, bytes of the plan's memory accounting.
    pub fn peak(&self) -> u64 {
        self.stages.iter().map(|stage| stage.predicted_peak).max().unwrap_or(0)
    }

    /// Returns the verdict of its predicted bytes, whichever framework trains it: that of its worst stage.
    pub fn verdict(&self) -> Verdict {
        let of_stage = |stage: &PlanStage| {
            let capacity = Some(Bytes(stage.capacity)).filter(|capacity| capacity.0 > 0);
            Verdict::judge(Bytes(stage.predicted_peak), stage.interval, capacity)
        };
        self.stages.iter().map(of_stage).max().unwrap_or(Verdict::NotAsked)
    }

    /// Predicted seconds of one iteration; none where the profile has no times.
    pub fn iteration_seconds(&self) -> Option<f64> {
        self.found.iteration.as_ref().map(|iteration| iteration.seconds)
    }

    /// What is compared of it.
    ///
    /// # Errors
    /// Its stages do not follow each other.
    pub fn outline(&self) -> Result<Outline, Invalid> {
        Ok(Outline {
            partitioning: Partitioning::new(self.stages.iter().map(|stage| stage.config).collect())?,
            micro_batch_size: self.training.micro_batch_size,
            peak: self.peak(),
            seconds: self.iteration_seconds(),
        })
    }

    /// The stored plans that came next, best first.
    pub fn alternatives(&self) -> Vec<PlanName> {
        self.found.alternatives.iter().filter_map(|alternative| alternative.plan.clone()).collect()
    }

    /// Returns how its stages are trained, of devices that have one each.
    ///
    /// # Errors
    /// Its stages do not follow each other.
    pub fn strategy(&self) -> Result<Strategy, Invalid> {
        let configs = self.stages.iter().map(|stage| stage.config).collect();
        let work = Work::Partitioning(Partitioning::new(configs)?);
        let stages = self.stages.iter().map(PlanStage::strategy).collect();
        Ok(Strategy { training: self.training, work, stages })
    }

    /// What each stage does so that it holds less; empty where none does anything.
    pub fn stage_actions(&self) -> Vec<StageActions> {
        StageActions::of_stages(self.stages.iter().map(|stage| &stage.actions))
    }

    /// How its only stage trains the whole model in chunks; none where it does not.
    pub fn chunks(&self) -> Option<&ChunkedStage> {
        self.stages.first().and_then(|stage| stage.chunks.as_deref())
    }
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

impl PlanStage {
    /// Returns how it is trained, besides its layers and degrees.
    pub fn strategy(&self) -> StageStrategy {
        StageStrategy {
            recompute: self.recompute,
            actions: self.actions.clone(),
            chunks: self.chunks.clone(),
        }
    }

    /// Whether the shards of some replica are on several nodes: its devices are in the order of its ranks, shards next
    /// to each other.
    pub fn spans_nodes(&self) -> bool {
        let shards = self.config.tensor_degree.max(1) as usize;
        self.devices.chunks(shards).any(|replica| {
            let mut nodes = replica.iter().map(|device| &device.node);
            let first = nodes.next();
            nodes.any(|node| Some(node) != first)
        })
    }
}
