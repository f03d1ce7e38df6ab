//! A predictor over an imported per-layer table, `table/1`.
//!
//! Most profilers of training frameworks tabulate layers: parameters, what is kept for the backward
//! pass, what crosses an edge, seconds. Such a table has no order of allocations, so the peak is made of
//! what must be there at once, and of nothing fitted:
//!
//! ```text
//! weights + gradients + optimizer     parameters × the bytes of the precision and the update rule
//! + activations                       kept bytes × micro-batches in flight (recomputation: once)
//! + edges                             inputs held for the backward pass, one gradient received
//! + communication                     a copy of the gradients where replicas all-reduce them
//! + transient                         what the running passes hold besides
//! + overhead                          what the table says a device holds besides tensors
//! ```
//!
//! *Transient bytes* are seldom in a table. A backward pass makes the gradient of what the forward pass
//! kept while that is still there, so a layer's transient bytes are taken to be what it keeps. In the
//! allocated ledger the passes of different layers follow each other and the largest counts. A caching
//! allocator keeps the blocks of each size that it has once handed out: in the reserved and the device
//! ledger the transient bytes of every *kind* of layer (same parameters, input and output) add up.
//!
//! Bytes are of the table's ledger, which [`Predictor::ledger`] names.
//!
//! Seconds at a tensor degree are taken to contain the collectives of the shards, as a profiler sees them; a
//! table of kernels alone says `times_without_collectives`, and a search then adds them for its own links.
//! A pass over fewer samples takes no longer than one over more, whatever the rows say (`waiting`).

mod cells;
mod level;
mod memory;
#[cfg(test)]
mod tests;
mod times;
mod waiting;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::document::{LayerRows, LayerTable, ProfileDocument};
use loadmaster_proto::run::Ledger;
use loadmaster_proto::stage::StageConfig;

use std::sync::Arc;

use super::memo::Memo;
use super::predictor::{LayerCost, PeakCurve, Prediction, PredictionError, Predictor, Share, StageSetting};
use level::Level;

/// Name and version in predictions.
pub const NAME: &str = "table/1";

/// The predictor of one imported table.
#[derive(Debug, Clone)]
pub struct Table {
    layers: usize,
    names: Vec<String>,
    rows: LayerTable,
    ledger: Ledger,
    overhead: u64,
    /// Layers at settings that were asked for before.
    read: Arc<Memo<Share, Vec<Option<Level>>>>,
}

/// Why a document makes no table predictor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No table.
    #[error("the profile has no layer_table: only one with a byte row per layer predicts memory")]
    NoTable,
    /// A table of times or metrics alone.
    #[error("the profile's layer_table has no `bytes` rows: they hold parameter, activation and edge bytes")]
    NoBytes,
}

impl Table {
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
            rows,
            read: Arc::default(),
        })
    }

    /// The groups of like layers that a stage has a part of, in order.
    fn groups(&self, stage: StageConfig) -> impl Iterator<Item = &LayerRows> {
        self.rows
            .layers
            .iter()
            .filter(move |rows| rows.first_layer <= stage.last_layer && stage.first_layer <= rows.last_layer)
    }
}

impl Predictor for Table {
    fn name(&self) -> &'static str {
        NAME
    }

    fn layers(&self) -> usize {
        self.layers
    }

    fn ledger(&self) -> Ledger {
        self.ledger
    }

    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError> {
        let StageConfig { first_layer: first, last_layer: last, .. } = setting.stage;
        if first > last || last >= self.layers {
            return Err(PredictionError::NoSuchStage { first, last, layers: self.layers });
        }
        let (breakdown, origin) = memory::breakdown(self, setting)?;
        Ok(Prediction {
            bytes: Bytes(breakdown.total()),
            breakdown: Some(breakdown),
            seconds: times::seconds(self, setting),
            margin: None,
            seconds_margin: None,
            predictor: NAME,
            origin,
        })
    }

    fn sources(&self, _setting: &StageSetting) -> Vec<String> {
        Vec::new()
    }

    fn layer_costs(&self, share: Share) -> Vec<Option<LayerCost>> {
        self.levels(share).iter().map(|level| level.as_ref()?.cost()).collect()
    }

    fn smallest_share(&self) -> Option<u32> {
        let smallest = |rows: &LayerRows| rows.times.iter().map(|row| row.micro_batch_size).min();
        let smallest: Option<Vec<u32>> = self.rows.layers.iter().map(smallest).collect();
        smallest?.into_iter().max()
    }

    fn curves(&self, setting: &StageSetting) -> Option<Vec<PeakCurve>> {
        Some(memory::curves(self, setting))
    }

    fn warnings(&self, setting: &StageSetting) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.ledger == Ledger::Device && self.rows.overhead_bytes.is_none() {
            warnings.push(
                "the layer table has no overhead_bytes: what a device holds besides tensors (context, kernels, \
                 communicators; often gigabytes) is not in these figures, so leave room for it"
                    .to_owned(),
            );
        }
        if self.groups(setting.stage).any(|rows| rows.bytes.iter().any(|row| row.transient_bytes.is_none())) {
            warnings.push(
                "the layer table has no transient_bytes for some layers: what a pass holds besides is taken to \
                 be what the layer keeps for its backward pass"
                    .to_owned(),
            );
        }
        if self.groups(setting.stage).any(level::waits) {
            warnings.push(
                "the layer table lists passes of some layers as longer than the same over more samples, as a \
                 profiler that waits for the host does: they are taken to be no longer"
                    .to_owned(),
            );
        }
        warnings
    }
}
