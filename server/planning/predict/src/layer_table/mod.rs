//! A predictor over an imported per-layer table, `table/2`.
//!
//! Most profilers of training frameworks tabulate layers: parameters, what is kept for the backward
//! pass, what crosses an edge, seconds. Such a table has no order of allocations, so the peak is made of
//! what must be there at once, and of nothing fitted:
//!
//! ```text
//! weights + gradients + optimizer     parameters × the bytes of the precision and the update rule, and of the
//!                                     framework's copies where the table says so
//! + activations                       kept bytes × micro-batches in flight (recomputation: once)
//! + edges                             inputs held for the backward pass, one gradient received
//! + communication                     a copy of the gradients where replicas all-reduce them; a bucket where they reduce-scatter them
//! + transient                         what the running passes hold besides
//! + overhead                          what the table says a device holds besides tensors
//! ```
//!
//! *Transient bytes* are seldom in a table. A backward pass makes the gradient of what the forward pass
//! kept while that is still there, so a layer's transient bytes are taken to be what it keeps. In the
//! allocated memory accounting the passes of different layers follow each other and the largest counts.
//!
//! A caching
//! allocator keeps the blocks of each size that it has once handed out. In the reserved and the device
//! memory accounting the transient bytes of every *kind* of layer (same parameters, input and output) add up.
//!
//! Bytes are of the table's memory accounting, which [`Predictor::ledger`] names. What a framework keeps of every parameter
//! besides that is the table's to say (`copies_bytes_per_parameter`), and so is what a device holds besides
//! tensors (`overhead_bytes`): in the device accounting no figure is whole without it.
//!
//! Real peaks are expected within the margin that the table states, or within [`MARGIN`].
//!
//! Seconds at a tensor-parallel size contain the collectives of the shards or not, as the table says in
//! `times_without_collectives`; where they do not, a search adds them for its own links.
//! A pass over fewer samples takes no longer than one over more, whatever the rows say (`waiting`).
//!
//! Beyond the tensor-parallel sizes that it has rows of a table is a guess that only a request by name makes.
//!
//! The same parts are added up for each step of memory optimizations, virtual pipeline stages and chunked training (`steps`,
//! `chunked`).

mod cells;
mod chunked;
mod level;
mod memory;
mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::Chunks;
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::document::{LayerRows, LayerTable, ProfileDocument};
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{StageActions, Steps};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::warning::{Warning, WarningCode};

use crate::memo::Memo;
use crate::{
    ActionsPrediction, LayerCost, Moments, PeakCurve, Prediction, PredictionError, Predictor, Share,
    StageSeconds, StageSetting,
};
use level::LayerLevel;

/// Name and version in predictions.
pub const NAME: &str = "table/2";

/// The share of the predicted bytes by which real peaks are expected to differ at most, where a table states none.
/// On real plans of two models under Megatron-DeepSpeed the mean was 2.6 % and 5.8 to 7.8 %, most of it too
/// low.
pub const MARGIN: f64 = 0.1;

/// The predictor of one imported table.
#[derive(Debug, Clone)]
pub struct TablePredictor {
    layers: usize,
    names: Vec<String>,
    rows: LayerTable,
    ledger: Accounting,
    overhead: u64,
    margin: f64,
    /// Bytes of a gradient for each byte of its parameter.
    gradient_ratio: u64,
    /// None where only the names of its layers are known.
    model: Option<Arc<Model>>,
    /// Layers at settings that were asked for before.
    read: Arc<Memo<Share, Vec<Option<LayerLevel>>>>,
}

/// Why a document makes no table predictor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("the profile has no layer_table. Import one with a `bytes` row for each layer to predict memory")]
    NoTable,
    /// A table of times or metrics alone.
    #[error(
        "the profile's layer_table has no `bytes` rows (parameter, activation, input and output bytes). Add a `bytes` \
         row for each layer"
    )]
    NoBytes,
}

impl TablePredictor {
    /// From a checked document.
    ///
    /// # Errors
    /// The document has no table, or one without bytes.
    pub fn new(document: &ProfileDocument) -> Result<Self, TableError> {
        let rows = document.layer_table.clone().ok_or(TableError::NoTable)?;
        if !rows.has_bytes() {
            return Err(TableError::NoBytes);
        }
        Ok(Self {
            layers: document.model.layer_count(),
            names: document.model.layer_names(),
            ledger: rows.ledger.unwrap_or(document.provenance.ledger),
            overhead: rows.overhead_bytes.unwrap_or(0),
            margin: rows.margin.unwrap_or(MARGIN),
            gradient_ratio: document.training.map_or(1, |training| {
                training.precision.gradient_bytes() / training.precision.scalar_bytes()
            }),
            model: document.model.model().ok().cloned().map(Arc::new),
            rows,
            read: Arc::default(),
        })
    }

    /// Checks that the measured training recomputed what a stage does.
    ///
    /// # Errors
    /// It did not, and the rows do not tell.
    fn check(&self, setting: &StageSetting) -> Result<(), PredictionError> {
        let asked = setting.training.recompute;
        self.check_sequence(&setting.stage)?;
        if !self.rows.recomputes() || asked == RecomputePolicy::Layer {
            return Ok(());
        }
        Err(PredictionError::NotProfiled(format!(
            "the recompute policy {asked} cannot be predicted, because layer_table.recompute is layer. Use layer, or import a \
             table without recomputation"
        )))
    }

    /// Checks that shards of a stage divide activations as those of the measured training.
    ///
    /// # Errors
    /// They do not.
    fn check_sequence(&self, stage: &StageConfig) -> Result<(), PredictionError> {
        let measured = self.sequence_parallel();
        if stage.tensor_degree == 1 || stage.sequence_parallel == measured {
            return Ok(());
        }
        let (with, other, s) = if measured { ("with", "without", "s") } else { ("without", "with", "") };
        let shards = stage.tensor_degree;
        Err(PredictionError::NotProfiled(format!(
            "the layer table was measured {with} sequence parallelism (layer_table.sequence_parallel), but the stage of {shards} \
             tensor-parallel shards is {other} it. Write t{shards}{s} in the pipeline layout, or import another table"
        )))
    }

    /// The groups of like layers that a stage has a part of, in order.
    fn groups(&self, stage: StageConfig) -> impl Iterator<Item = &LayerRows> {
        self.rows
            .layers
            .iter()
            .filter(move |rows| rows.first_layer <= stage.last_layer && stage.first_layer <= rows.last_layer)
    }

    /// Seconds on one device of a stage, collectives between stages and replicas not included; none where a layer
    /// has no times.
    fn seconds(&self, setting: &StageSetting) -> Option<StageSeconds> {
        let StageConfig { first_layer, last_layer, .. } = setting.stage;
        let levels = self.levels(Share::of(setting));
        let mut seconds = StageSeconds::default();
        for level in levels.get(first_layer..=last_layer)? {
            let (own, _) = level.as_ref()?.seconds?;
            let again = if setting.training.recompute == RecomputePolicy::None { 0.0 } else { own.forward };
            seconds.forward += own.forward;
            seconds.backward += own.backward + again;
            seconds.step += own.step;
        }
        Some(seconds.sharded(setting.stage.optimizer_parts()))
    }
}

impl Predictor for TablePredictor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn layers(&self) -> usize {
        self.layers
    }

    fn ledger(&self) -> Accounting {
        self.ledger
    }

    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError> {
        self.check(setting)?;
        let levels = self.levels_of(&setting.stage, Share::of(setting))?;
        let (breakdown, origin) = memory::breakdown(self, setting, &levels);
        Ok(Prediction {
            bytes: Bytes(breakdown.total()),
            breakdown: Some(breakdown),
            seconds: self.seconds(setting),
            margin: Some(self.margin),
            seconds_margin: None,
            predictor: NAME,
            origin,
        })
    }

    fn knows_steps(&self) -> bool {
        true
    }

    fn acted(
        &self,
        setting: &StageSetting,
        actions: &StageActions,
    ) -> Result<ActionsPrediction, PredictionError> {
        let place = (setting.stage_index, setting.stage_count);
        let exchanges = Steps::exchanges(self.model.as_deref(), &setting.stage);
        let steps = Steps::of_stage(&setting.training, &setting.stage, place, actions, exchanges);
        steps::acted(self, setting, actions, steps)
    }

    fn acted_in(
        &self,
        setting: &StageSetting,
        actions: &StageActions,
        steps: Steps,
    ) -> Result<ActionsPrediction, PredictionError> {
        steps::acted(self, setting, actions, steps)
    }

    fn knows_chunks(&self) -> bool {
        true
    }

    fn moments(
        &self,
        setting: &StageSetting,
        chunks: &Chunks,
        actions: &StageActions,
    ) -> Result<Moments, PredictionError> {
        self.in_chunks(setting, chunks, actions)
    }

    fn besides_chunks(&self) -> Option<&'static str> {
        Some(BESIDES_CHUNKS)
    }

    fn sources(&self, _setting: &StageSetting) -> Vec<String> {
        Vec::new()
    }

    fn layer_costs(&self, share: Share) -> Vec<Option<LayerCost>> {
        self.levels(share).iter().map(|level| level.as_ref()?.cost()).collect()
    }

    fn remembered_bytes(&self) -> usize {
        self.read.len().saturating_mul(self.layers).saturating_mul(size_of::<Option<LayerLevel>>())
    }

    fn smallest_share(&self) -> Option<u32> {
        let smallest = |rows: &LayerRows| rows.times.iter().map(|row| row.micro_batch_size).min();
        let smallest: Option<Vec<u32>> = self.rows.layers.iter().map(smallest).collect();
        smallest?.into_iter().max()
    }

    fn curves(&self, setting: &StageSetting, last: usize) -> Option<Vec<PeakCurve>> {
        Some(memory::curves(self, setting, last))
    }

    fn warnings(&self, setting: &StageSetting) -> Vec<Warning> {
        of_stage(self, setting)
    }

    fn unknown(&self) -> Option<&'static str> {
        (self.ledger == Accounting::Device && self.rows.overhead_bytes.is_none()).then_some(NO_CONSTANT)
    }

    fn copies_bytes_per_parameter(&self) -> Option<u32> {
        self.rows.copies_bytes_per_parameter
    }

    fn tensor_degrees(&self) -> Option<(u32, u32)> {
        cells::reached(&self.rows)
    }

    fn sequence_parallel(&self) -> bool {
        self.rows.sequence_parallel == Some(true)
    }

    fn across_nodes(&self) -> Option<&'static str> {
        Some(if self.rows.times_without_collectives == Some(true) {
            SHARDS_APART_PRICED
        } else {
            SHARDS_APART
        })
    }
}

/// It is not known what a device holds besides tensors.
const NO_CONSTANT: &str = "the predicted bytes do not contain device memory outside tensors: context, kernels and \
    communicators, often gigabytes. The profile contains device bytes, but its layer_table has no overhead_bytes, so \
    no plan is reported to fit. Set layer_table.overhead_bytes to the bytes in use on the device before training";

/// Shards on several nodes, where the table's seconds contain what they sum.
const SHARDS_APART: &str = "the shards of a stage are on several nodes, but the profile's seconds contain collectives over \
    the links of the profiled node. Across nodes they take longer than predicted";

/// Shards on several nodes, where they are priced by the links that they are on.
const SHARDS_APART_PRICED: &str = "the shards of a stage are on several nodes: each pass waits for collectives over the link \
    between nodes. The predicted seconds depend on its bandwidth";

/// What steps of a training in chunks hold besides them.
const BESIDES_CHUNKS: &str = "the memory outside chunks is added up from the layer table, which does not record when a \
    layer's memory is allocated and freed. These sums are less exact than bytes from allocation traces";

/// What a stage's figures assume that the table could say, and where they are read beyond its rows.
fn of_stage(table: &TablePredictor, setting: &StageSetting) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let degree = Share::of(setting).tensor_degree;
    if let Some(rows) = table.groups(setting.stage).find(|rows| is_beyond(rows, degree)) {
        let listed: Vec<String> = cells::listed(rows).iter().map(u32::to_string).collect();
        warnings.push(WarningCode::Extrapolated.says(format!(
            "tensor-parallel size {degree} is outside the range of the layer table (sizes of layers {} to {}: {}). \
             Bytes and seconds are extrapolated",
            rows.first_layer,
            rows.last_layer,
            listed.join(", ")
        )));
    }
    if table.groups(setting.stage).any(level::waits) {
        warnings.push(WarningCode::TableIncomplete.says(
            "in the layer table, passes of some layers take longer than passes of these layers with more samples. The \
             profiler may have waited for the CPU. The longer passes are assumed to take no longer than the passes \
             with more samples",
        ));
    }
    let has_no_transients = |rows: &LayerRows| rows.bytes.iter().any(|row| row.transient_bytes.is_none());
    if table.groups(setting.stage).any(has_no_transients) {
        warnings.push(WarningCode::TableIncomplete.says(
            "the layer table has no transient_bytes for some layers. They are assumed to equal the bytes that the layer \
             keeps for its backward pass",
        ));
    }
    if table.rows.margin.is_none() {
        warnings.push(WarningCode::TableIncomplete.says(format!(
            "the layer table has no safety margin, so {:.0} % is assumed. In earlier comparisons of such tables with \
             trained plans, measured peaks were within this margin. Set layer_table.margin to use another margin",
            100.0 * MARGIN
        )));
    }
    warnings
}

/// Whether a degree is below or above all rows of one kind.
fn is_beyond(rows: &LayerRows, degree: u32) -> bool {
    cells::of_rows(rows).any(|(least, largest)| !(least..=largest).contains(&degree))
}
