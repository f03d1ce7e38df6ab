//! One way to train stages of a model: settings, stages, and how each of them is trained.
//!
//! A plan states it, a run is leased with it, and a rank gets its part of it. What a stage can do besides its passes is a field of
//! [`StageStrategy`], so that a new way to hold less is added in one place.

use serde::{Deserialize, Serialize};

use super::actions::{ActionContext, StageActions};
use super::{RecomputePolicy, TrainingSpec};
use crate::bytes::Bytes;
use crate::chunks::activations;
use crate::chunks::stage::ChunkedStage;
use crate::error::Invalid;
use crate::measure::run::{RankPosition, SoloStage, Work};
use crate::model::Model;

/// How one stage is trained, besides its layers and degrees.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StageStrategy {
    /// What its backward pass recomputes.
    #[serde(default)]
    pub recompute: RecomputePolicy,
    /// What it does so that it holds less.
    #[serde(default, skip_serializing_if = "StageActions::is_empty")]
    pub actions: StageActions,
    /// How it trains in chunks; none where its parameters and optimizer state stay on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Box<ChunkedStage>>,
}

/// One way to train stages of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Strategy {
    /// Settings of all stages. Each has a recompute policy of its own.
    pub training: TrainingSpec,
    /// Which stages, with their layers and degrees.
    pub work: Work,
    /// How each of them is trained, in their order.
    pub stages: Vec<StageStrategy>,
}

impl Strategy {
    /// Returns the strategy of stages that do nothing but their passes, with the settings' recompute policy.
    pub fn plain(training: TrainingSpec, work: Work) -> Self {
        let stage = StageStrategy { recompute: training.recompute, ..StageStrategy::default() };
        let stages = vec![stage; work.stage_count()];
        Self { training, work, stages }
    }

    /// Returns the same strategy with what each stage does so that it holds less; nothing where that is empty.
    ///
    /// # Errors
    /// Names `stage_actions` where there are not as many entries as stages.
    pub fn with_actions(mut self, actions: Vec<StageActions>) -> Result<Self, Invalid> {
        let given = actions.len();
        self.check_count("stage_memory_optimizations", (given, "entries"))?;
        self.stages.iter_mut().zip(actions).for_each(|(stage, actions)| stage.actions = actions);
        Ok(self)
    }

    /// Returns the same strategy with the recompute policy of each stage; that of the settings where it is empty.
    ///
    /// # Errors
    /// Names `stage_recompute` where there are not as many policies as stages.
    pub fn with_recompute(mut self, policies: Vec<RecomputePolicy>) -> Result<Self, Invalid> {
        self.check_count("stage_recompute", (policies.len(), "policies"))?;
        self.stages.iter_mut().zip(policies).for_each(|(stage, policy)| stage.recompute = policy);
        Ok(self)
    }

    /// Returns the same strategy with the first stage in chunks, if any are given.
    pub fn with_chunks(mut self, chunks: Option<Box<ChunkedStage>>) -> Self {
        if let Some(stage) = self.stages.first_mut() {
            stage.chunks = chunks;
        }
        self
    }

    fn check_count(&self, field: &str, (given, what): (usize, &str)) -> Result<(), Invalid> {
        let stages = self.stages.len();
        if given == 0 || given == stages {
            return Ok(());
        }
        Err(invalid!(
            field,
            "has {given} {what} for {stages} stages. Use {stages} {what}, or leave this field empty"
        ))
    }

    /// Returns the recompute policy of each stage; empty where the settings state it for all of them.
    pub fn stage_recompute(&self) -> Vec<RecomputePolicy> {
        let policies: Vec<RecomputePolicy> = self.stages.iter().map(|stage| stage.recompute).collect();
        if policies.iter().all(|&policy| policy == self.training.recompute) { Vec::new() } else { policies }
    }

    /// Returns what each stage does so that it holds less; empty where none does anything.
    pub fn stage_actions(&self) -> Vec<StageActions> {
        StageActions::of_stages(self.stages.iter().map(|stage| &stage.actions))
    }

    /// Returns whether any stage has memory optimizations.
    pub fn has_actions(&self) -> bool {
        self.stages.iter().any(|stage| !stage.actions.is_empty())
    }

    /// Returns how the only stage trains the whole model in chunks; none where it does not.
    pub fn chunks(&self) -> Option<&ChunkedStage> {
        self.stages.first().and_then(|stage| stage.chunks.as_deref())
    }

    /// Returns the stages in order, as positions in the (perhaps imagined) pipeline.
    pub fn positions(&self) -> Vec<SoloStage> {
        self.work.positions()
    }

    /// Returns what the stage at a position does so that it holds less.
    pub fn actions_at(&self, position: &SoloStage) -> StageActions {
        self.stages.get(self.work.index(position)).map(|stage| stage.actions.clone()).unwrap_or_default()
    }

    /// Returns the settings of the stage at a position, with its own recompute policy.
    pub fn training_at(&self, position: &SoloStage) -> TrainingSpec {
        let stage = self.stages.get(self.work.index(position));
        let recompute = stage.map_or(self.training.recompute, |stage| stage.recompute);
        TrainingSpec { recompute, ..self.training }
    }

    /// Returns the number of devices that it needs at once: one per rank.
    pub fn device_count(&self) -> u32 {
        self.positions().iter().fold(0, |sum: u32, position| sum.saturating_add(position.stage.devices()))
    }

    /// Returns its ranks, in order of their stages and then of the devices of each.
    pub fn ranks(&self) -> Vec<RankPosition> {
        let ranks = |position: SoloStage| {
            (0..position.stage.devices()).map(move |shard| RankPosition { position, shard })
        };
        self.positions().into_iter().flat_map(ranks).collect()
    }

    /// Returns the bytes of the host that its ranks take together. What cannot be counted is more than any host has.
    pub fn host_memory(&self) -> Bytes {
        let taken = self.positions().iter().zip(&self.stages).fold(0, |sum: u64, (position, stage)| {
            let chunks = stage.chunks.as_deref().map_or(0, |chunks| chunks.host_memory.0);
            let each = stage.actions.host_pool.0.saturating_add(chunks);
            sum.saturating_add(each.saturating_mul(position.stage.devices().into()))
        });
        Bytes(taken)
    }

    /// Checks that the stages are the model's and can do what they are to do.
    ///
    /// # Errors
    /// Names the field of a run's message.
    pub fn check(&self, model: &Model) -> Result<(), Invalid> {
        self.training.checked().map_err(|invalid| invalid.under("training"))?;
        self.training.check_model(model).map_err(|invalid| invalid.under("training"))?;
        self.work.check(model, self.training.micro_batch_size)?;
        let (given, stages) = (self.stages.len(), self.work.stage_count());
        if given != stages {
            return Err(invalid!("stages", "has {given} entries. Use one for each of {stages} stages"));
        }
        for (index, (position, stage)) in self.positions().iter().zip(&self.stages).enumerate() {
            if position.stage.sequence_parallel {
                let why = "true is not supported in trials: workers do not train sequence parallelism. Train the exported plan \
                    with its framework, and report the result";
                return Err(Invalid::field(format!("stages[{index}].sequence_parallel"), why));
            }
            if stage.actions.is_empty() {
                continue;
            }
            let training = self.training_at(position);
            let context = ActionContext {
                model: Some(model),
                training: &training,
                stage: &position.stage,
                index: position.stage_index,
                count: position.stage_count,
            };
            let checked = match &stage.chunks {
                None => stage.actions.check(context),
                Some(_) => activations::check(&stage.actions, context),
            };
            checked.map_err(|invalid| invalid.under(&format!("stage_memory_optimizations[{index}]")))?;
        }
        self.check_chunks(model)
    }

    /// Chunks are of one stage with the whole model, whose ranks share them.
    fn check_chunks(&self, model: &Model) -> Result<(), Invalid> {
        let (Some(chunks), Some(position)) = (self.chunks(), self.positions().first().copied()) else {
            return Ok(());
        };
        if !position.stage.sharding.is_none() {
            return Err(invalid!(
                "state_sharding",
                "{} does not apply to chunked training, whose replicas already divide all states. Use none",
                position.stage.sharding
            ));
        }
        let training = self.training_at(&position);
        chunks.lay_out_stage(model, &training, (&position.stage, position.stage_count)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::stage::{Partitioning, StageConfig};
    use crate::training::{Optimizer, Precision, Schedule};

    fn host_memory(work: &Work, pools: &[u64]) -> Bytes {
        let pool = |&bytes: &u64| StageActions { host_pool: Bytes(bytes), ..StageActions::default() };
        let stages = pools.iter().map(|bytes| StageStrategy { actions: pool(bytes), ..Default::default() });
        let training = TrainingSpec {
            precision: Precision::Fp32,
            optimizer: Optimizer::default(),
            schedule: Schedule::Gpipe,
            micro_batch_size: 1,
            micro_batches: 1,
            recompute: RecomputePolicy::None,
            seed: 0,
        };
        Strategy { training, work: work.clone(), stages: stages.collect() }.host_memory()
    }

    #[test]
    fn a_run_takes_the_pools_of_all_devices_of_its_stages() {
        let pair = StageConfig { data_degree: 2, tensor_degree: 2, ..StageConfig::single(0, 0) };
        let stages = vec![pair, StageConfig::single(1, 3)];
        let pipeline = Work::Partitioning(Partitioning::new(stages).unwrap());
        assert_eq!(host_memory(&pipeline, &[]), Bytes(0));
        assert_eq!(host_memory(&pipeline, &[100, 7]), Bytes(407));
        let alone = Work::Solo(SoloStage { stage: pair, stage_count: 3, stage_index: 2 });
        assert_eq!(host_memory(&alone, &[5]), Bytes(20), "its actions are the first ones");
        assert_eq!(host_memory(&pipeline, &[u64::MAX, 1]), Bytes(u64::MAX), "never less than it is");
    }
}
