//! What steps of a training in chunks cost by a profile.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::on_host;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::stage::{ChunkedStage, Chunks};
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::{StageActions, Step, Steps};
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};

use super::question::{PassChoice, Passes, StepCosts};
use loadmaster_predict::{LayerCost, Margin, Moments, PredictionError, Predictor, Share, StageSetting};

/// A size that chunks of every model may have: larger tensors are chunks of their own.
const ANY_SIZE: u64 = 1 << 20;

/// Passes as a predictor knows them.
#[derive(Clone, Copy)]
pub struct ProfiledPasses<'a> {
    /// What answers for the model.
    pub predictor: &'a dyn Predictor,
    /// The model.
    pub model: &'a Model,
    /// How it is trained, but for what is recomputed.
    pub training: TrainingSpec,
    /// Replicas, each of which has its share of every micro-batch.
    pub ranks: u32,
    /// Shards of each of them.
    pub shards: u32,
    /// What is kept free besides predicted bytes.
    pub margin: Margin,
    /// What bytes and seconds are multiplied with.
    pub factors: [f64; 2],
}

impl std::fmt::Debug for ProfiledPasses<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let predictor = self.predictor.name();
        f.debug_struct("ProfiledPasses").field("predictor", &predictor).finish_non_exhaustive()
    }
}

impl Passes for ProfiledPasses<'_> {
    fn costs(&self, of: PassChoice) -> Result<StepCosts, PredictionError> {
        let PassChoice { order, recompute, embedding, activations } = of;
        let training = TrainingSpec { recompute, ..self.training };
        let chunks = any_chunks((order, embedding), self.model, &training)?;
        let layers = self.model.layers().len();
        let actions = activations.map(|points| on_host(layers, recompute, points));
        let moments = self.moments(&chunks, recompute, &actions.unwrap_or_default())?;
        let needed = moments.needed(self.margin);
        let seconds = self.seconds(&chunks.steps)?;
        Ok(StepCosts {
            needed: needed.into_iter().map(|bytes| self.corrected(bytes)).collect(),
            seconds,
            pool: moments.pool_bytes(),
            away: moments.away,
        })
    }
}

impl ProfiledPasses<'_> {
    /// What a device that does these actions holds besides these chunks' payloads, as predicted before any correction.
    ///
    /// # Errors
    /// What the profile lacks.
    pub fn moments(
        &self,
        chunks: &Chunks,
        recompute: RecomputePolicy,
        actions: &StageActions,
    ) -> Result<Moments, PredictionError> {
        self.predictor.moments(&self.setting(recompute), chunks, actions)
    }

    /// The whole model on the devices of each replica.
    pub fn setting(&self, recompute: RecomputePolicy) -> StageSetting {
        let whole = StageConfig::single(0, self.model.layers().len().saturating_sub(1));
        StageSetting {
            stage: StageConfig { data_degree: self.ranks, tensor_degree: self.shards, ..whole },
            stage_index: 0,
            stage_count: 1,
            training: TrainingSpec { recompute, ..self.training },
        }
    }

    /// Predicted bytes as earlier trials taught to multiply them.
    pub fn corrected(&self, bytes: u64) -> u64 {
        let [factor, _] = self.factors;
        if factor == 1.0 { bytes } else { (bytes as f64 * factor).ceil() as u64 }
    }

    /// Seconds of each step: those of its layer alone.
    ///
    /// # Errors
    /// The profile has no times.
    pub fn seconds(&self, steps: &Steps) -> Result<Vec<f64>, PredictionError> {
        let costs = self.layer_costs()?;
        let [_, factor] = self.factors;
        let of = |step: &Step| {
            let layer = |layer: usize, of: fn(&LayerCost) -> f64| costs.get(layer).map_or(0.0, of) * factor;
            match *step {
                Step::Forward { layer: of, .. } | Step::Again { layer: of, .. } => {
                    layer(of, |of| of.seconds.forward)
                }
                Step::Backward { layer: of, .. } => layer(of, |of| of.seconds.backward),
                Step::Renew | Step::Exchange | Step::Update { .. } => 0.0,
            }
        };
        Ok(steps.all().iter().map(of).collect())
    }

    /// What each layer costs.
    ///
    /// # Errors
    /// The profile has no times.
    pub fn layer_costs(&self) -> Result<Vec<LayerCost>, PredictionError> {
        let costs = self.predictor.layer_costs(Share::of(&self.setting(RecomputePolicy::None)));
        let all: Option<Vec<LayerCost>> = costs.into_iter().collect();
        all.filter(|all| all.len() == self.model.layers().len()).ok_or_else(|| {
            PredictionError::NotProfiled(
                "the profile has no times of single layers, which chunked training needs. Profile with `profiling_mode` \
                 PROFILING_MODE_PER_LAYER, or add `times` of each layer to an imported table"
                    .to_owned(),
            )
        })
    }
}

/// Chunks in which nothing lacks room: what is beside payloads is the same in all of one order and place of the embedding.
fn any_chunks(
    (order, embedding): (ChunkOrder, EmbeddingPlace),
    model: &Model,
    training: &TrainingSpec,
) -> Result<Chunks, PredictionError> {
    let every = ChunkedStage::on_demand(ANY_SIZE, Bytes(u64::MAX));
    ChunkedStage { order, embedding, ..every }.lay_out(model, training).map_err(|why| {
        PredictionError::NotProfiled(format!("the model cannot be divided into chunks: {why}"))
    })
}
