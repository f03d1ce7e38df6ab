//! Runs: the unit of profiling work that one worker leases.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::choice;
use crate::chunks::activations;
use crate::chunks::stage::ChunkedStage;
use crate::error::{Invalid, in_range};
use crate::measure::links::LinkWork;
use crate::model::Model;
use crate::name::CommandName;
use crate::training::actions::{ActionContext, StageActions};
use crate::training::stage::{Partitioning, StageConfig};
use crate::training::{RecomputePolicy, TrainingSpec};
use crate::wire::v1;

/// What to train.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The model.
    pub model: Model,
    /// Settings, with the micro-batch size of this run.
    pub training: TrainingSpec,
    /// Which stages.
    pub work: Work,
    /// What the backward pass of each stage computes again, in order of the stages of `work`; empty where
    /// `training.recompute` holds for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stage_recompute: Vec<RecomputePolicy>,
    /// What each stage does so that it holds less, in order of the stages of `work`; empty where none does anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stage_actions: Vec<StageActions>,
    /// How its one stage trains the whole model in chunks; none where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Box<ChunkedStage>>,
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
pub enum Campaign {
    /// Each distinct layer alone: what the `component` predictor needs.
    Minimal,
    /// Whole partitionings, CAPTURE's Description 1.
    Paper,
    /// Each distinct stage that the predictor needs, alone.
    Stages,
    /// None: another tool measured, and its numbers came in a document.
    Imported,
}

choice! {
    Campaign = v1::Campaign {
        Minimal = "minimal",
        Paper = "paper",
        Stages = "stages",
        Imported = "imported",
    }
}

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
        self.trained()
            .map_or(Bytes(0), |spec| spec.work.host_memory(&spec.stage_actions, spec.chunks.as_deref()))
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
    /// Measured iterations where nobody names a number: a median of three is not moved by one that was
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
        let layers = self.model.layers().len();
        in_range("iterations", self.iterations, 1..=Self::MAX_ITERATIONS)?;
        self.training.checked().map_err(|invalid| invalid.under("training"))?;
        self.training.check_model(&self.model).map_err(|invalid| invalid.under("training"))?;
        match &self.work {
            Work::Partitioning(partitioning) => {
                if partitioning.layer_count() != layers {
                    return Err(Invalid::field(
                        "partitioning.stages",
                        format!("cover {} layers, the model has {layers}", partitioning.layer_count()),
                    ));
                }
                for (index, stage) in partitioning.stages().iter().enumerate() {
                    self.model
                        .check_stage(stage, self.training.micro_batch_size)
                        .map_err(|invalid| invalid.under(&format!("partitioning.stages[{index}]")))?;
                }
            }
            Work::Solo(solo) => {
                solo.stage.checked().map_err(|invalid| invalid.under("solo_stage.stage"))?;
                in_range("solo_stage.stage.last_layer", solo.stage.last_layer, 0..=layers - 1)?;
                in_range("solo_stage.stage_count", solo.stage_count, 1..=layers as u32)?;
                in_range("solo_stage.stage_index", solo.stage_index, 0..=solo.stage_count - 1)?;
                self.model
                    .check_stage(&solo.stage, self.training.micro_batch_size)
                    .map_err(|invalid| invalid.under("solo_stage.stage"))?;
            }
        }
        in_range("work", self.device_count(), 1..=Self::MAX_DEVICES)?;
        let (given, stages) = (self.stage_recompute.len(), self.stages().len());
        if given > 0 && given != stages {
            let why = format!("has {given} policies, must have one for each of {stages} stages, or none");
            return Err(Invalid::field("stage_recompute", why));
        }
        self.check_actions()?;
        self.check_chunks()?;
        Ok(self)
    }

    fn check_actions(&self) -> Result<(), Invalid> {
        let (given, positions) = (self.stage_actions.len(), self.stages());
        if given > 0 && given != positions.len() {
            let why =
                format!("has {given} entries, must have one for each of {} stages, or none", positions.len());
            return Err(Invalid::field("stage_actions", why));
        }
        if given > 0 && self.command.is_some() {
            return Err(Invalid::field(
                "stage_actions",
                "are done by Loadmaster's own rank alone: name no command",
            ));
        }
        for (index, (actions, position)) in self.stage_actions.iter().zip(&positions).enumerate() {
            let SoloStage { stage, stage_count: count, stage_index } = position;
            let training = self.stage_training(position);
            let of = ActionContext {
                model: &self.model,
                training: &training,
                stage,
                index: *stage_index,
                count: *count,
            };
            let checked = match &self.chunks {
                None => actions.check(of),
                Some(_) => activations::check(actions, of),
            };
            checked.map_err(|invalid| invalid.under(&format!("stage_actions[{index}]")))?;
        }
        Ok(())
    }

    /// Chunks are of one stage with the whole model, whose ranks share them.
    fn check_chunks(&self) -> Result<(), Invalid> {
        let Some(chunks) = &self.chunks else { return Ok(()) };
        if self.command.is_some() {
            let why = "are trained by Loadmaster's own rank alone: name no command";
            return Err(Invalid::field("chunks", why));
        }
        let positions = self.stages();
        let Some(position) = positions.first() else { return Ok(()) };
        let training = self.stage_training(position);
        chunks.lay_out_stage(&self.model, &training, (&position.stage, position.stage_count)).map(drop)
    }

    /// What one of its stages does so that it holds less.
    pub fn stage_actions(&self, position: &SoloStage) -> StageActions {
        let index = match self.work {
            Work::Partitioning(_) => position.stage_index as usize,
            Work::Solo(_) => 0,
        };
        self.stage_actions.get(index).cloned().unwrap_or_default()
    }

    /// The settings of one of its stages: those of the run, with the stage's own recompute policy.
    pub fn stage_training(&self, position: &SoloStage) -> TrainingSpec {
        let index = match self.work {
            Work::Partitioning(_) => position.stage_index as usize,
            Work::Solo(_) => 0,
        };
        let recompute = self.stage_recompute.get(index).copied().unwrap_or(self.training.recompute);
        TrainingSpec { recompute, ..self.training }
    }

    /// Devices that it needs at once: one per rank.
    pub fn device_count(&self) -> u32 {
        self.stages().iter().fold(0, |sum: u32, position| sum.saturating_add(position.stage.devices()))
    }

    /// Its ranks, in order of their stages and then of the devices of each.
    pub fn ranks(&self) -> Vec<RankPosition> {
        let ranks = |position: SoloStage| {
            (0..position.stage.devices()).map(move |shard| RankPosition { position, shard })
        };
        self.stages().into_iter().flat_map(ranks).collect()
    }

    /// Its stages in order, as positions in the (perhaps imagined) pipeline.
    pub fn stages(&self) -> Vec<SoloStage> {
        self.work.positions()
    }
}

impl Work {
    /// Memory of the host that its ranks take together where its stages, in their order, do this, and are in these chunks.
    /// What cannot be counted is more than any host has.
    pub fn host_memory(&self, actions: &[StageActions], chunks: Option<&ChunkedStage>) -> Bytes {
        let positions = self.positions();
        let pools = positions
            .iter()
            .zip(actions)
            .map(|(position, of)| of.host_pool.0.saturating_mul(position.stage.devices().into()));
        let ranks: u64 = positions.iter().map(|of| u64::from(of.stage.devices())).sum();
        let chunks = chunks.map_or(0, |chunks| chunks.host_memory.0.saturating_mul(ranks));
        Bytes(pools.fold(chunks, u64::saturating_add))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(bytes: u64) -> StageActions {
        StageActions { host_pool: Bytes(bytes), ..StageActions::default() }
    }

    #[test]
    fn a_run_takes_the_pools_of_all_devices_of_its_stages() {
        let pair = StageConfig { data_degree: 2, tensor_degree: 2, ..StageConfig::single(0, 0) };
        let stages = vec![pair, StageConfig::single(1, 3)];
        let pipeline = Work::Partitioning(Partitioning::new(stages).unwrap());
        assert_eq!(pipeline.host_memory(&[], None), Bytes(0));
        assert_eq!(pipeline.host_memory(&[pool(100), pool(7)], None), Bytes(407));
        let alone = Work::Solo(SoloStage { stage: pair, stage_count: 3, stage_index: 2 });
        assert_eq!(alone.host_memory(&[pool(5)], None), Bytes(20), "its actions are the first ones");
        assert_eq!(
            pipeline.host_memory(&[pool(u64::MAX), pool(1)], None),
            Bytes(u64::MAX),
            "never less than it is"
        );
    }
}
