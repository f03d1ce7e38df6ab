//! What is known of the models beforehand: each distinct layer, recorded alone, and how fast the host updates.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use loadmaster_planning::chunks::{PassChoice, StepCosts};
use loadmaster_planning::predict::component::Component;
use loadmaster_planning::predict::{Margin, PredictionError, Predictor, StageSetting};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::on_host;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::groups::ChunkOwners;
use loadmaster_proto::chunks::host::HostCopy;
use loadmaster_proto::chunks::packing::ChunkLayout;
use loadmaster_proto::chunks::residency::paged::Paging;
use loadmaster_proto::chunks::stage::{ChunkMoves, ChunkResidency, ChunkedStage, StepKernel, UpdateTime};
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::host::Host;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::tape::LayerContent;
use loadmaster_proto::model::Model;
use loadmaster_proto::plan::lane_rates::LaneRates;
use loadmaster_proto::training::actions::{StageActions, Step, Steps};
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};

use crate::machine::{Ended, Machine, cores};

/// As much memory as recording wants.
const PLENTY: Bytes = Bytes(8 << 30);

/// Recordings of the distinct layers of a family.
#[derive(Debug)]
pub(crate) struct Profile {
    measured: BTreeMap<String, Measurement>,
    /// Updates of the host and of the slot, parameters per second.
    pub(crate) update: f64,
}

/// Chunks in which nothing lacks room.
fn roomy() -> ChunkedStage {
    ChunkedStage {
        layout: ChunkLayout::Aligned,
        chunk_elements: 1 << 20,
        owners: ChunkOwners::Parts,
        order: ChunkOrder::Layer,
        host_copy: HostCopy::Made,
        staging: 4,
        moves: ChunkMoves::Dropped,
        update: UpdateTime::OnArrival,
        kernel: StepKernel::OnePass,
        embedding: EmbeddingPlace::Chunk,
        on_device: Vec::new(),
        residency: ChunkResidency::Paged(Paging::AT_NEED),
        host_memory: PLENTY,
    }
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
    pub(crate) fn record(machine: &Machine) -> Result<Self> {
        let model = machine.model(3)?;
        let training = machine.training(2, RecomputePolicy::None);
        let mut measured = BTreeMap::new();
        for layer in 0..model.layers().len() {
            let Some(content) = LayerContent::of(&model, layer).map(|content| content.fingerprint()) else {
                continue;
            };
            if measured.contains_key(&content) {
                continue;
            }
            match machine.train(&model, training, (layer, layer), None, PLENTY)? {
                Ended::Trained(measurement) => measured.insert(content, *measurement),
                Ended::Not(why) => bail!("layer {layer} was not recorded: {why}"),
            };
        }
        let whole = (0, model.layers().len() - 1);
        let update = match machine.train(
            &model,
            training,
            whole,
            Some((&roomy(), &StageActions::default())),
            PLENTY,
        )? {
            Ended::Trained(measurement) => {
                let seconds = measurement.chunks.map_or(0.0, |of| of.step_seconds);
                if seconds <= 0.0 {
                    bail!("the check run in chunks saw no update end: measure more iterations");
                }
                model.parameter_count() as f64 / seconds
            }
            Ended::Not(why) => bail!("the check run in chunks failed: {why}"),
        };
        Ok(Self { measured, update })
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
            device_update: self.update,
            gather: pace,
            collective_seconds: 0.0,
            host_memory: None,
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
        let stage = ChunkedStage { order, embedding, ..roomy() };
        let chunks = stage.lay_out(model, &training).map_err(|why| {
            PredictionError::NotProfiled(format!("the model cannot be laid out in chunks: {why}"))
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
