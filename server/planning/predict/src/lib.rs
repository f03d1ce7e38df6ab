//! Memory and time of stages that were not measured: profiling runs, and three predictors of one trait, [`Predictor`].
//!
//! | module | question | paper |
//! |---|---|---|
//! | [`profiling`] | the runs of a profile, and the ones that are left to do | CAPTURE, III-A |
//! | [`component`] | what does a stage need, from what each of its layers allocates and frees? | |
//! | [`capture`] | the same, by the paper's rule, from the peaks of neighbouring layers? | III-A1, III-A3, III-B |
//! | [`layer_table`] | the same, from another tool's per-layer table? | |
//! | [`lacks`] | what does each predictor lack of a profile? | |
//! | [`choose`] | which predictor does a profile have what it takes for? | |
//! | [`forecast`] | what does each device of given stages need, and does it fit? | |
//! | [`cores`] | what do seconds on CPU slots not contain? | |
//! | [`learn`] | how right were predictions, and which plan did best when it was trained? | AMP, 3.1 |

pub mod capture;
pub mod choose;
pub mod component;
pub mod cores;
mod curve;
mod error;
pub mod forecast;
pub mod lacks;
pub mod layer_table;
pub mod learn;
mod memo;
mod memory_optimizations;
mod pipeline_actions;
pub mod profiling;
#[cfg(test)]
mod tests;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::Chunks;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::{StageActions, Steps};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::warning::Warning;
use serde::Serialize;

pub use curve::{Moments, PeakCurve, margin_up_to};
pub use error::PredictionError;
pub use loadmaster_proto::plan::prediction::{Breakdown, Interval, Origin, StageSeconds};
pub use memory_optimizations::{ActionsPrediction, Away, Pool, StepBytes};
pub use pipeline_actions::{ActionsError, MOST_PASSES, PipelineActions, check_size};

/// Most bytes of one part of a [`Breakdown`]. An imported profile may list any numbers; beyond this they say
/// no more than that nothing holds them, and all parts together can still be added up.
pub const MOST_BYTES: u64 = 1 << 59;

/// Turns a profile into bytes and seconds of stages (CAPTURE, III-B).
pub trait Predictor {
    /// Name and version, for example `component/1`. A change that may change a figure changes it.
    fn name(&self) -> &'static str;

    /// Number of layers of the profiled model.
    fn layers(&self) -> usize;

    /// Memory accounting of all bytes that it predicts: that of its profile.
    fn ledger(&self) -> Accounting {
        Accounting::Allocated
    }

    /// What each device of a stage needs.
    ///
    /// # Errors
    /// What the profile lacks for this stage and setting.
    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError>;

    /// Whether it predicts bytes step by step, as [`Self::acted`] and [`Self::acted_in`] do.
    fn knows_steps(&self) -> bool {
        false
    }

    /// What each device of a stage needs that does these actions, which are valid for it, and what goes where. What it
    /// sets aside for others is not part of it: see [`ActionsPrediction::prediction`].
    ///
    /// # Errors
    /// What the profile lacks for this stage, setting and actions.
    fn acted(
        &self,
        _setting: &StageSetting,
        _actions: &StageActions,
    ) -> Result<ActionsPrediction, PredictionError> {
        Err(PredictionError::NoActions { predictor: self.name() })
    }

    /// The same where these are the stage's steps: those of a chunk that takes turns with others on its device.
    ///
    /// # Errors
    /// As [`Self::acted`].
    fn acted_in(
        &self,
        _setting: &StageSetting,
        _actions: &StageActions,
        _steps: Steps,
    ) -> Result<ActionsPrediction, PredictionError> {
        Err(PredictionError::NoActions { predictor: self.name() })
    }

    /// Whether it can tell about training in chunks.
    fn knows_chunks(&self) -> bool {
        false
    }

    /// What a device that trains the whole model of `setting` in these chunks, and does these actions, which are valid for
    /// that, holds besides payloads, step by step.
    ///
    /// # Errors
    /// What the profile lacks for this setting, and stages that do not have all layers.
    fn moments(
        &self,
        _setting: &StageSetting,
        _chunks: &Chunks,
        _actions: &StageActions,
    ) -> Result<Moments, PredictionError> {
        Err(PredictionError::NoChunks { predictor: self.name() })
    }

    /// Returns a caveat about the bytes that it predicts besides chunks; none, the default, where they are exact to the
    /// byte.
    fn besides_chunks(&self) -> Option<&'static str> {
        None
    }

    /// Names of the measurements that the prediction is made from (`runs/…/measurements/…`), in a fixed
    /// order and each once. Empty where the profile has no names.
    fn sources(&self, setting: &StageSetting) -> Vec<String>;

    /// What to know before trusting this prediction besides its origin and margin, human-readable. It is
    /// asked for the few stages that are shown, never within a search.
    fn warnings(&self, _setting: &StageSetting) -> Vec<Warning> {
        Vec::new()
    }

    /// What every device holds of the predictor's memory accounting and no one can tell how much it is, with what to do about
    /// it. A figure without it is no peak, so that nothing is said to fit. None, the default, where the
    /// figures are whole.
    fn unknown(&self) -> Option<&'static str> {
        None
    }

    /// Returns the bytes of every parameter that its figures count besides what precision and optimizer make: copies that the
    /// profile's framework keeps. None where the profile counts parameters and does not state them; 0, the default, where
    /// bytes were measured.
    fn copies_bytes_per_parameter(&self) -> Option<u32> {
        Some(0)
    }

    /// The least and the largest tensor-parallel size that the profile has figures of; none, the default, where the
    /// predictor has no such limits. Searches stay within unless the request names others.
    fn tensor_degrees(&self) -> Option<(u32, u32)> {
        None
    }

    /// Returns true if its figures of several shards are of a training with sequence parallelism. Plans have it then, too.
    fn sequence_parallel(&self) -> bool {
        false
    }

    /// What to know of stages whose shards are on several nodes; none, the default, where nothing is.
    fn across_nodes(&self) -> Option<&'static str> {
        None
    }

    /// What every layer costs a device besides the bytes of its peak, in order: seconds, and bytes that it
    /// exchanges. None for a layer whose seconds at this share the profile does not tell; none at all, the
    /// default, where the predictor knows no times.
    fn layer_costs(&self, _share: Share) -> Vec<Option<LayerCost>> {
        Vec::new()
    }

    /// The bytes of the stages that begin with the first layer of `setting`'s stage, one for each last layer in
    /// order, up to `last`, or to the first that cannot be predicted. Its place in the pipeline does not matter. None, the
    /// default, where the predictor has to be asked for each place: a search then does.
    fn curves(&self, _setting: &StageSetting, _last: usize) -> Option<Vec<PeakCurve>> {
        None
    }

    /// The fewest samples of a device's pass at which the profile has seconds of every layer: below that they are only
    /// known to be no more. None, the default, where the predictor knows no times.
    fn smallest_share(&self) -> Option<u32> {
        None
    }

    /// About how many bytes its answers take that it keeps in case they are asked for once more; 0, the default, where it
    /// keeps none.
    fn remembered_bytes(&self) -> usize {
        0
    }

    /// The share of its passes' seconds that a replica waits for the slowest of so many before gradients are summed; 0, the
    /// default, where nothing is known of it.
    fn waiting_share(&self, _replicas: u32) -> f64 {
        0.0
    }

    /// Bytes of the gradient that both ends of a tied weight exchange, on each shard of this degree; 0 where
    /// nothing is tied.
    fn tied_bytes(&self, _tensor_degree: u32) -> u64 {
        0
    }
}

/// What a device of a stage is predicted to need.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// Highest bytes on one device, in the predictor's memory accounting: the device with the highest peak of the stage.
    pub bytes: Bytes,
    /// What those bytes are; none where the predictor cannot tell.
    pub breakdown: Option<Breakdown>,
    /// How long the passes take; none where the profile has no times.
    pub seconds: Option<StageSeconds>,
    /// The real peak is expected between `bytes · (1 − margin)` and `bytes · (1 + margin)`, from the
    /// errors on stages that were held out. None where no one has measured that.
    pub margin: Option<f64>,
    /// The real seconds are expected between `seconds · (1 − margin)` and `seconds · (1 + margin)`, from the
    /// errors on stages that were held out. None where no one has measured that, or there are no seconds.
    pub seconds_margin: Option<f64>,
    /// Name and version of the predictor.
    pub predictor: &'static str,
    /// How far from the profile.
    pub origin: Origin,
}

impl Prediction {
    /// The interval that the margin spans; none where no margin is known.
    pub fn interval(&self) -> Option<Interval> {
        self.margin.map(|margin| Interval::around(self.bytes, margin))
    }
}

/// How much of a device must stay free besides what is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Margin {
    /// As much as the predictor's own errors ask for; nothing where they are not known.
    #[default]
    Known,
    /// This share of the predicted bytes, whatever the predictor knows; 0 keeps nothing free.
    Share(f64),
}

impl Margin {
    /// The interval that a capacity must hold the upper end of; none where no margin is known.
    pub fn interval(self, prediction: &Prediction) -> Option<Interval> {
        match self {
            Self::Known => prediction.interval(),
            Self::Share(share) => Some(Interval::around(prediction.bytes, share)),
        }
    }

    /// Returns the interval of a prediction that `predictor` made: none around a part of the bytes, whose upper end would promise
    /// what is not known.
    pub fn interval_of(
        self,
        predictor: &(impl Predictor + ?Sized),
        prediction: &Prediction,
    ) -> Option<Interval> {
        if predictor.unknown().is_some() { None } else { self.interval(prediction) }
    }

    /// The bytes that a capacity must hold.
    pub fn needed(self, prediction: &Prediction) -> Bytes {
        self.needed_for(prediction.bytes, prediction.margin)
    }

    /// The same, for bytes whose own margin is known or not.
    pub fn needed_for(self, bytes: Bytes, known: Option<f64>) -> Bytes {
        let share = match self {
            Self::Known => known,
            Self::Share(share) => Some(share),
        };
        share.map_or(bytes, |share| Interval::around(bytes, share).high)
    }
}

/// What the shards of a layer sum while a micro-batch passes it in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exchange {
    /// How often.
    pub count: u32,
    /// Bytes of all of these together, on each shard.
    pub bytes: u64,
}

/// One layer on one device, for one micro-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerCost {
    /// Its passes, nothing recomputed, and its part of the optimizer step.
    pub seconds: StageSeconds,
    /// What its shards sum in each direction and the seconds do not contain. Nothing where the seconds were
    /// measured with shards at work, as those of every profile are.
    pub exchange: Exchange,
    /// Gradients that replicas sum, once per iteration.
    pub gradient_bytes: u64,
    /// What leaves it towards the next layer, and comes back as a gradient.
    pub output_bytes: u64,
    /// How the seconds were read.
    pub origin: Origin,
}

/// A stage as it will be trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageSetting {
    /// Layers and degrees.
    pub stage: StageConfig,
    /// Position in its pipeline, from 0.
    pub stage_index: u32,
    /// Stages of that pipeline.
    pub stage_count: u32,
    /// Everything else. The micro-batch size is that of the whole stage: a device of a
    /// stage of d replicas takes one d-th of it.
    pub training: TrainingSpec,
}

impl StageSetting {
    /// The most micro-batches between forward and backward at once.
    pub fn in_flight(&self) -> u32 {
        self.training.schedule.in_flight(self.stage_count, self.stage_index, self.training.micro_batches)
    }
}

/// What one device of a stage works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Share {
    /// Samples of one of its passes.
    pub micro_batch_size: u32,
    /// Shards of each layer's tensors, of which it holds one.
    pub tensor_degree: u32,
}

impl Share {
    /// A replica takes its part of the micro-batch, each of its shards all of that.
    pub fn of(setting: &StageSetting) -> Self {
        let stage = setting.stage;
        Self {
            micro_batch_size: setting.training.micro_batch_size.div_ceil(stage.data_degree.max(1)),
            tensor_degree: stage.tensor_degree.max(1),
        }
    }
}
