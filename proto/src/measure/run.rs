//! Runs: the unit of profiling work that one worker leases.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::choice;
use crate::error::{Invalid, in_range};
use crate::measure::links::LinkWork;
use crate::model::Model;
use crate::name::CommandName;
use crate::training::stage::{Partitioning, StageConfig};
use crate::training::strategy::Strategy;
use crate::wire::v1;

/// What to train.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The model.
    pub model: Model,
    /// How its stages are trained, with the micro-batch size of this run.
    pub strategy: Strategy,
    /// Measured iterations, after one warm-up iteration.
    pub iterations: u32,
    /// The worker's command that trains instead of Loadmaster's rank; only workers that offer it take
    /// the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandName>,
}

/// Which runs a profile is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfilingMode {
    /// Each distinct layer alone: what the `component` predictor needs.
    PerLayer,
    /// Whole partitionings, CAPTURE's Description 1.
    WholePipeline,
    /// Each distinct stage that the predictor needs, alone.
    PerStage,
    /// None: another tool measured, and its numbers came in a document.
    Imported,
}

choice! { ProfilingMode = v1::ProfilingMode { PerLayer, WholePipeline, PerStage, Imported } }

/// What a worker does under one lease.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Trains stages.
    Train(Box<RunSpec>),
    /// Measures how fast its devices exchange bytes.
    Links(LinkWork),
}

impl Task {
    /// Devices that it needs at once.
    pub fn device_count(&self) -> u32 {
        match self {
            Self::Train(spec) => spec.device_count(),
            Self::Links(work) => work.devices,
        }
    }

    /// Memory of the host that its ranks take together.
    pub fn host_memory(&self) -> Bytes {
        self.trained().map_or(Bytes(0), |spec| spec.strategy.host_memory())
    }

    /// What it trains; none where it trains nothing.
    pub fn trained(&self) -> Option<&RunSpec> {
        match self {
            Self::Train(spec) => Some(spec),
            Self::Links(_) => None,
        }
    }
}

/// Which stages a run trains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Every stage of the pipeline, connected.
    Partitioning(Partitioning),
    /// One stage alone with synthetic neighbours.
    Solo(SoloStage),
}

/// One stage of an imagined pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoloStage {
    /// The stage.
    pub stage: StageConfig,
    /// Stages in the imagined pipeline.
    pub stage_count: u32,
    /// Position of this stage.
    pub stage_index: u32,
}

/// One rank of a run: a device of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RankPosition {
    /// Its stage, and where that is.
    pub position: SoloStage,
    /// Which device of the stage, from 0.
    pub shard: u32,
}

impl RunSpec {
    /// Measured iterations where no one names a number: a median of three is not moved by one that was
    /// disturbed.
    pub const DEFAULT_ITERATIONS: u32 = 3;
    /// Most measured iterations.
    pub const MAX_ITERATIONS: u32 = 1_000;
    /// Most devices: a run is one worker's.
    pub const MAX_DEVICES: u32 = 1_024;

    /// Checks that the stages are the model's and that the numbers are in range.
    ///
    /// # Errors
    /// Names the field.
    pub fn checked(self) -> Result<Self, Invalid> {
        in_range("iterations", self.iterations, 1..=Self::MAX_ITERATIONS)?;
        self.strategy.check(&self.model)?;
        in_range("work", self.device_count(), 1..=Self::MAX_DEVICES)?;
        if self.command.is_some() {
            let refuse = |field: &str, verb: &str| {
                Err(invalid!(field, "cannot be {verb} by a custom profiler. Remove `custom_profiler`"))
            };
            if self.strategy.has_actions() {
                return refuse("stage_memory_optimizations", "done");
            }
            if self.strategy.chunks().is_some() {
                return refuse("chunks", "trained");
            }
        }
        Ok(self)
    }

    /// Devices that it needs at once: one per rank.
    pub fn device_count(&self) -> u32 {
        self.strategy.device_count()
    }

    /// Its ranks, in order of their stages and then of the devices of each.
    pub fn ranks(&self) -> Vec<RankPosition> {
        self.strategy.ranks()
    }

    /// Its stages in order, as positions in the (perhaps imagined) pipeline.
    pub fn stages(&self) -> Vec<SoloStage> {
        self.strategy.positions()
    }
}

impl Work {
    /// Checks that the stages are the model's, with micro-batches of so many samples.
    ///
    /// # Errors
    /// Names the field.
    pub(crate) fn check(&self, model: &Model, micro_batch_size: u32) -> Result<(), Invalid> {
        let layers = model.layers().len();
        match self {
            Self::Partitioning(partitioning) => {
                if partitioning.layer_count() != layers {
                    return Err(Invalid::field(
                        "partitioning.stages",
                        format!("cover {} of {layers} layers", partitioning.layer_count()),
                    ));
                }
                for (index, stage) in partitioning.stages().iter().enumerate() {
                    model
                        .check_stage(stage, micro_batch_size)
                        .map_err(|invalid| invalid.under(&format!("partitioning.stages[{index}]")))?;
                }
                Ok(())
            }
            Self::Solo(solo) => {
                solo.stage.checked().map_err(|invalid| invalid.under("solo_stage.stage"))?;
                in_range("solo_stage.stage.last_layer", solo.stage.last_layer, 0..=layers - 1)?;
                in_range("solo_stage.stage_count", solo.stage_count, 1..=layers as u32)?;
                in_range("solo_stage.stage_index", solo.stage_index, 0..=solo.stage_count - 1)?;
                let checked = model.check_stage(&solo.stage, micro_batch_size);
                checked.map_err(|invalid| invalid.under("solo_stage.stage"))
            }
        }
    }

    /// The number of its stages.
    pub fn stage_count(&self) -> usize {
        match self {
            Self::Partitioning(partitioning) => partitioning.stages().len(),
            Self::Solo(_) => 1,
        }
    }

    /// The place of the stage at a position among its stages.
    pub(crate) fn index(&self, position: &SoloStage) -> usize {
        match self {
            Self::Partitioning(_) => position.stage_index as usize,
            Self::Solo(_) => 0,
        }
    }

    /// Its stages in order, as positions in the (perhaps imagined) pipeline.
    pub fn positions(&self) -> Vec<SoloStage> {
        match self {
            Self::Solo(solo) => vec![*solo],
            Self::Partitioning(partitioning) => {
                let stage_count = partitioning.stages().len() as u32;
                (0..stage_count)
                    .zip(partitioning.stages())
                    .map(|(stage_index, &stage)| SoloStage { stage, stage_count, stage_index })
                    .collect()
            }
        }
    }
}
