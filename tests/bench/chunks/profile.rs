//! What is known of the models beforehand: each distinct layer, recorded alone, and how fast the host updates.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, ensure};
use loadmaster_memory::chunks::{PassChoice, StepCosts};
use loadmaster_predict::component::Component;
use loadmaster_predict::{Margin, PredictionError, Predictor, StageSetting};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::on_host;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::host::Host;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::trace::LayerContent;
use loadmaster_proto::model::Model;
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::training::actions::{StageActions, Step, Steps};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::step_kind::StepKind;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};

use crate::chunks::machine::{Machine, cores};

/// Recordings of the distinct layers of a family.
#[derive(Debug)]
pub(crate) struct Profile {
    measured: BTreeMap<String, Measurement>,
    /// Updates of the host, parameters per second.
    pub(crate) update: f64,
    /// The same of the device.
    device_update: f64,
    /// Bytes of its memory that the host goes over in a second, where a GPU's copies take theirs beside updates.
    host_memory: Option<f64>,
}

impl Profile {
    /// What computes, and how layers slowed each other down.
    pub(crate) fn host(&self) -> Option<Host> {
        let of = |of: &Measurement| {
            (Environment { cores: cores(), ..of.environment.clone() }, of.iteration_seconds)
        };
        let measured: Vec<_> = self.measured.values().map(of).collect();
        Host::of(measured.iter().map(|(of, seconds)| (of, *seconds)))
    }

    /// Trains each distinct layer alone, and a small model in chunks.
    pub(crate) async fn record(machine: &Machine) -> Result<Self> {
        let model = machine.model(3)?;
        let training = machine.training(2, RecomputePolicy::None);
        let plenty = machine.plenty();
        let mut measured = BTreeMap::new();
        for layer in 0..model.layers().len() {
            let Some(content) = LayerContent::of(&model, layer).map(|content| content.fingerprint()) else {
                continue;
            };
            if measured.contains_key(&content) {
                continue;
            }
            let trained = machine.train(&model, training, (layer, layer), None, plenty).await?;
            let trained = trained.map_err(|why| anyhow!("layer {layer} was not recorded: {why}"))?;
            measured.insert(content, *trained);
        }
        let whole = (0, model.layers().len() - 1);
        let (stage, actions) = (ChunkedStage::on_demand(1 << 20, plenty), StageActions::default());
        let trained = machine.train(&model, training, whole, Some((&stage, &actions)), plenty).await?;
        let trained = trained.map_err(|why| anyhow!("the check run in chunks failed: {why}"))?;
        let seconds = trained.chunks.map_or(0.0, |run| run.step_seconds);
        ensure!(seconds > 0.0, "the check run in chunks saw no update end: measure more iterations");
        let update = model.parameter_count() as f64 / seconds;
        // A slot updates what it has as its host does; a GPU as its layers' steps were.
        let (device_update, host_memory) = if machine.is_gpu() {
            let seconds = |layer| {
                let content = LayerContent::of(&model, layer)?.fingerprint();
                measured.get(&content).map(|of: &Measurement| of.step_seconds)
            };
            let step = StepKind::of(&training.optimizer, training.precision);
            let all: f64 = (0..model.layers().len()).filter_map(seconds).sum();
            (model.parameter_count() as f64 / all, Some(step.moved_bytes() as f64 * update))
        } else {
            (update, None)
        };
        Ok(Self { measured, update, device_update, host_memory })
    }

    pub(crate) fn layers(&self) -> usize {
        self.measured.len()
    }

    /// How fast all is that is not a pass, of one rank with copies at this pace.
    pub(crate) fn rates(&self, pace: f64) -> LaneRates {
        LaneRates {
            up: pace,
            down: pace,
            copy_seconds: 0.0,
            update: self.update,
            device_update: self.device_update,
            gather: pace,
            collective_seconds: 0.0,
            host_memory: self.host_memory,
        }
    }

    /// The predictor of a model of the family.
    pub(crate) fn component(&self, model: &Model, training: &TrainingSpec) -> Result<Component> {
        let named = self.measured.iter().map(|(name, measurement)| (name.as_str(), measurement));
        Ok(Component::new(model, training, named)?)
    }

    /// Where a whole model is trained, by so many replicas.
    pub(crate) fn setting(model: &Model, training: TrainingSpec, ranks: u32) -> StageSetting {
        let whole = StageConfig::single(0, model.layers().len() - 1);
        let stage = StageConfig { data_degree: ranks, ..whole };
        StageSetting { stage, stage_index: 0, stage_count: 1, training }
    }

    /// What steps of a training in chunks cost each rank.
    pub(crate) fn costs(
        &self,
        component: &Component,
        model: &Model,
        (training, ranks): (TrainingSpec, u32),
        of: PassChoice,
    ) -> Result<StepCosts, PredictionError> {
        let PassChoice { order, recompute, embedding, activations } = of;
        let stage = ChunkedStage { order, embedding, ..ChunkedStage::on_demand(1 << 20, Bytes(u64::MAX)) };
        let chunks = stage.lay_out(model, &training).map_err(|why| {
            PredictionError::NotProfiled(format!("the model cannot be divided into chunks: {why}"))
        })?;
        let actions = activations.map(|points| on_host(model.layers().len(), recompute, points));
        let setting = Self::setting(model, training, ranks);
        let moments = component.moments(&setting, &chunks, &actions.unwrap_or_default())?;
        Ok(StepCosts {
            needed: moments.needed(Margin::Share(0.0)),
            seconds: self.seconds(model, &chunks.steps),
            pool: moments.pool_bytes(),
            away: moments.away,
        })
    }

    /// Seconds of each step: those of its layer alone.
    fn seconds(&self, model: &Model, steps: &Steps) -> Vec<f64> {
        let times: Vec<[f64; 2]> = (0..model.layers().len())
            .map(|layer| {
                let content = LayerContent::of(model, layer).map(|content| content.fingerprint());
                let measured = content.and_then(|content| self.measured.get(&content));
                let times = measured.and_then(|measured| measured.layers.first());
                times.map_or([0.0; 2], |times| [times.forward_seconds, times.backward_seconds])
            })
            .collect();
        let of = |step: &Step| match *step {
            Step::Forward { layer, .. } | Step::Again { layer, .. } => times[layer][0],
            Step::Backward { layer, .. } => times[layer][1],
            Step::Renew | Step::Exchange | Step::Update { .. } => 0.0,
        };
        steps.all().iter().map(of).collect()
    }
}
