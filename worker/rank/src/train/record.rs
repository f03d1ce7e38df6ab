//! One more iteration of a single layer, passage by passage, while every allocation is recorded.

use loadmaster_proto::measure::trace::{LayerContent, LayerTrace, Passage};

use super::trainer::Trainer;
use crate::error::RankError;
use crate::ffi;
use crate::memory::Memory;
use crate::pipeline::{Flow, MicroBatch};
use crate::progress;
use crate::tape::{End, defect, passage, recorded, step};

/// Passes that every recording has; progress counts no more.
pub(super) const PASSES: u64 = 3;

/// Records the layer of a stage of one layer. Nothing of the training may be measured after it.
///
/// # Errors
/// Out of memory, for one; or a defect.
pub(super) fn record(trainer: &mut Trainer<'_>, memory: &Memory) -> Result<LayerTrace, RankError> {
    let layer = trainer.spec.position.stage.first_layer;
    let content = LayerContent::of(&trainer.spec.model, layer).ok_or_else(|| defect("no layer to record"))?;
    let statics = trainer.static_bytes();
    let between_iterations = statics.parameters + statics.optimizer + statics.buffers;
    let overhead = memory.counts()?.allocated.saturating_sub(between_iterations);

    let without_graph = trainer.passage(0, Flow::Forward)?;
    let first = trainer.passage(1, Flow::Through)?;
    let later = trainer.passage(2, Flow::Through)?;
    let step = step(&recorded(|| trainer.end_of_iteration())?)?;
    let untrained_input = if layer > 0 && content.untrained_before {
        let pair = [trainer.passage(3, Flow::FromUntrained)?, trainer.passage(4, Flow::FromUntrained)?];
        recorded(|| trainer.end_of_iteration())?;
        Some(Box::new(pair))
    } else {
        None
    };
    LayerTrace {
        layer,
        content: content.fingerprint(),
        first,
        later,
        without_graph,
        untrained_input,
        step,
        has_saved: true,
        overhead,
    }
    .checked()
    .map_err(|invalid| defect(&format!("the recorded allocation trace is not valid: {invalid}")))
}

impl Trainer<'_> {
    fn passage(&mut self, index: u32, flow: Flow) -> Result<Passage, RankError> {
        let micro_batch = MicroBatch { iteration: self.spec.iterations + 1, index, in_steps: index };
        let entries = recorded(|| self.stage.record(self.neighbours.as_mut(), micro_batch, flow))?;
        progress::pass_done();
        passage(&entries)
    }

    fn end_of_iteration(&mut self) -> Result<(), RankError> {
        ffi::remark(End::Exchange as u32);
        self.complete_gradients()?;
        ffi::remark(End::Update as u32);
        self.update()
    }
}
