//! What a device holds besides chunks in each step of a training in chunks, from the layers of a table.
//!
//! No one has recorded in which order a layer's blocks come and go, so each step is made of what must be there at once, as the
//! peak of a stage is:
//!
//! ```text
//! activations   what layers keep of a micro-batch, of those that are recomputed the input, until its backward pass is over;
//!               all of a layer between its second forward pass and that
//! + edges       outputs that the layer above has not read yet, and gradients that the layer below has not
//! + gradients   those of a layer, until they are in their chunk
//! + transient   what the running pass holds besides
//! + overhead    what the table says a device holds besides tensors
//! ```
//!
//! So bytes are as right as the table is, and not to the byte, which [`Predictor::besides_chunks`](crate::Predictor::besides_chunks) says.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::chunks::stage::Chunks;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{Absence, Block, Part, StageActions, Step};
use loadmaster_proto::training::boundaries::CycleBytes;

use super::TablePredictor;
use super::level::LayerLevel;
use crate::memory_optimizations::in_places;
use crate::{Away, Breakdown, MOST_BYTES, Moments, Origin, PredictionError, Share, StageSetting, StepBytes};

/// The layers of a model on a device.
struct ChunkedLayers {
    all: Vec<LayerLevel>,
    recompute: RecomputePolicy,
    /// Bytes of a gradient that the host makes: of the first layer, whose table is there.
    on_host: u64,
}

impl ChunkedLayers {
    fn of(&self, layer: usize, bytes: impl Fn(&LayerLevel) -> u64) -> u64 {
        self.all.get(layer).map_or(0, bytes)
    }

    /// What a micro-batch keeps in a layer. That runs alone, so it holds its input until its backward pass whatever it reads.
    fn kept(&self, layer: usize) -> u64 {
        self.of(layer, |level| match self.recompute {
            RecomputePolicy::None => level.activation.max(level.input),
            RecomputePolicy::Layer | RecomputePolicy::Stage => level.input,
        })
    }

    /// The tensor at the edge to the layer below, and to the layer above.
    fn below(&self, layer: usize) -> u64 {
        layer.checked_sub(1).map_or(0, |below| self.of(below, |level| level.output))
    }

    fn above(&self, layer: usize) -> u64 {
        if layer + 1 < self.all.len() { self.of(layer, |level| level.output) } else { 0 }
    }

    fn gradients(&self, layer: usize) -> u64 {
        let on_host = if layer == 0 { self.on_host } else { 0 };
        self.of(layer, |level| level.gradients).saturating_sub(on_host)
    }

    /// What of a micro-batch is away.
    fn away(&self, absence: Absence) -> Away {
        // Each layer holds its own input, so none holds it for the one above.
        let bytes = match (absence.part, absence.block) {
            (Part::Own, Block::Activations) => self.kept(absence.layer),
            (Part::Own, Block::Inputs) => self.of(absence.layer, |level| level.input),
            _ => 0,
        };
        Away { absence, bytes, tensors: 1, stripes: Vec::new() }
    }
}

/// What is there besides what is away.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    activations: u64,
    edges: u64,
    gradients: u64,
}

impl Held {
    fn breakdown(self, away: u64, (transient, overhead): (u64, u64)) -> Breakdown {
        Breakdown {
            activations: self.activations.saturating_sub(away).min(MOST_BYTES),
            edges: self.edges.min(MOST_BYTES),
            gradients: self.gradients.min(MOST_BYTES),
            transient: transient.min(MOST_BYTES),
            overhead: overhead.min(MOST_BYTES),
            ..Breakdown::default()
        }
    }

    /// From the beginning of a step to when it holds most.
    fn begin(&mut self, step: Step, layers: &ChunkedLayers) {
        match step {
            Step::Forward { layer, .. } => {
                // What was on its way is what it keeps.
                self.edges =
                    self.edges.saturating_sub(layers.below(layer)).saturating_add(layers.above(layer));
                self.activations = self.activations.saturating_add(layers.kept(layer));
            }
            Step::Again { layer, .. } => {
                self.activations =
                    self.activations.saturating_add(layers.of(layer, |level| level.activation));
            }
            Step::Backward { layer, .. } => {
                self.edges = self.edges.saturating_add(layers.below(layer));
                self.gradients = layers.gradients(layer);
            }
            Step::Renew | Step::Exchange | Step::Update { .. } => {}
        }
    }

    /// To its end, where gradients are in their chunk or not.
    fn end(&mut self, step: Step, layers: &ChunkedLayers, delivers: bool) {
        let Step::Backward { layer, .. } = step else { return };
        let again = match layers.recompute {
            RecomputePolicy::None => 0,
            RecomputePolicy::Layer | RecomputePolicy::Stage => layers.of(layer, |level| level.activation),
        };
        self.activations = self.activations.saturating_sub(layers.kept(layer).saturating_add(again));
        self.edges = self.edges.saturating_sub(layers.above(layer));
        if delivers {
            self.gradients = 0;
        }
    }
}

impl TablePredictor {
    pub(super) fn in_chunks(
        &self,
        setting: &StageSetting,
        chunks: &Chunks,
        actions: &StageActions,
    ) -> Result<Moments, PredictionError> {
        PredictionError::check_whole(&setting.stage, self.layers)?;
        if self.ledger != Accounting::Allocated {
            return Err(PredictionError::NotProfiled(format!(
                "the layer table contains {} bytes, but chunked training needs allocated bytes. Import a table of allocated \
                 bytes",
                self.ledger
            )));
        }
        let all = self.levels_of(&setting.stage, Share::of(setting))?;
        let origin = all.iter().map(|level| level.origin).max().unwrap_or(Origin::Imported);
        let scalar = setting.training.precision.gradient_bytes();
        let on_host =
            chunks.table.map_or(0, |table| table.rows.saturating_mul(table.width).saturating_mul(scalar));
        let layers = ChunkedLayers { all, recompute: setting.training.recompute, on_host };
        let away: Vec<Away> =
            actions.absences(&chunks.steps).into_iter().map(|absence| layers.away(absence)).collect();
        let curve = self.played(&layers, chunks, &away);
        Ok(Moments {
            upper: curve.iter().map(|step| step.most.total()).collect(),
            curve,
            margin: Some(self.margin),
            origin,
            pool: in_places(&away, chunks.steps.all().len()).into_iter().next(),
            away,
        })
    }

    /// The bytes of each step.
    fn played(&self, layers: &ChunkedLayers, chunks: &Chunks, away: &[Away]) -> Vec<StepBytes> {
        let steps = chunks.steps.all();
        let mut gone = CycleBytes::new(steps.len());
        away.iter().for_each(|of| gone.add(of.absence.at.away(), of.bytes));
        let mut held = Held::default();
        let of = |(index, (&step, gone)): (usize, (&Step, u64))| {
            let at_boundary = held.breakdown(gone, (0, self.overhead)).total();
            held.begin(step, layers);
            let transient = match step {
                Step::Forward { layer, .. } | Step::Again { layer, .. } | Step::Backward { layer, .. } => {
                    layers.of(layer, |level| level.transient)
                }
                Step::Renew | Step::Exchange | Step::Update { .. } => 0,
            };
            let most = held.breakdown(gone, (transient, self.overhead));
            held.end(step, layers, chunks.uses.delivers(index));
            StepBytes { at_boundary, most }
        };
        steps.iter().zip(gone.sums()).enumerate().map(of).collect()
    }
}
