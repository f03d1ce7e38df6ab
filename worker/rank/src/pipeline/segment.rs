//! A run of layers inside a stage that is kept or computed again as a whole.

use std::ops::RangeInclusive;

use loadmaster_proto::run::Phase;
use loadmaster_proto::stage::StageConfig;
use loadmaster_proto::training::RecomputePolicy;
use tch::Tensor;

use super::stage::{MicroBatch, Passes};
use crate::error::RankError;
use crate::ffi::GradientRoot;
use crate::progress;
use crate::random::Purpose;
use crate::timing::{self, ForwardKind};

/// What lies between the forward and the backward pass of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All that autograd needs.
    Graph,
    /// Only the input; the rest is computed again.
    Input,
}

/// A run of layers that is kept or computed again as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its layers in the model.
    pub layers: RangeInclusive<usize>,
    /// What it keeps.
    pub keep: Keep,
}

impl Segment {
    /// The segments of a stage under a recompute policy.
    pub fn of(stage: &StageConfig, policy: RecomputePolicy) -> Vec<Self> {
        match policy {
            RecomputePolicy::None => vec![Self { layers: stage.layers(), keep: Keep::Graph }],
            RecomputePolicy::Stage => vec![Self { layers: stage.layers(), keep: Keep::Input }],
            RecomputePolicy::Layer => {
                stage.layers().map(|layer| Self { layers: layer..=layer, keep: Keep::Input }).collect()
            }
        }
    }
}

/// What a segment holds of one micro-batch between its passes.
#[derive(Debug)]
pub(super) struct Kept {
    /// The input, where the backward pass computes with it or wants its gradient.
    input: Option<Tensor>,
    /// Where the backward pass starts.
    root: Option<GradientRoot>,
}

impl Segment {
    /// The forward pass. Takes the input, which must be a leaf, and returns the output.
    pub(super) fn forward(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        input: Tensor,
    ) -> Result<(Tensor, Kept), RankError> {
        match self.keep {
            Keep::Input => {
                let _no_grad = tch::no_grad_guard();
                let output = self.run(passes, micro_batch, &input, ForwardKind::First)?;
                Ok((output, Kept { input: Some(input), root: None }))
            }
            Keep::Graph => {
                let output = self.run(passes, micro_batch, &input, ForwardKind::First)?;
                let root = root_of(&output)?;
                // A leaf without gradient is autograd's alone, if autograd needs it at all.
                let input = input.requires_grad().then_some(input);
                Ok((output, Kept { input, root }))
            }
        }
    }

    /// The backward pass. Takes the gradient of the output and returns that of the input, if it has one.
    pub(super) fn backward(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        kept: Kept,
        gradient: Tensor,
    ) -> Result<Option<Tensor>, RankError> {
        let Kept { input, mut root } = kept;
        if let (Keep::Input, Some(input)) = (self.keep, &input) {
            let output = self.run(passes, micro_batch, input, ForwardKind::Again)?;
            root = root_of(&output)?;
        }
        if let Some(root) = root {
            passes.times.backward(*self.layers.start(), *self.layers.end(), || {
                root.backward(&gradient)?;
                // Before the clock is read, so that nothing outlives its use.
                drop(gradient);
                Ok(())
            })?;
        }
        match input {
            Some(input) if input.requires_grad() => {
                let gradient = input.f_grad()?;
                Ok(gradient.defined().then_some(gradient))
            }
            _ => Ok(None),
        }
    }

    /// Runs the layers, and the loss after the model's last one.
    fn run(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        input: &Tensor,
        kind: ForwardKind,
    ) -> Result<Tensor, RankError> {
        let phase = if kind == ForwardKind::First { Phase::Forward } else { Phase::Backward };
        let clock = passes.times.clock();
        let mut value = input.shallow_clone();
        let makes_graph = self.keep == Keep::Graph || kind == ForwardKind::Again;
        if makes_graph && value.requires_grad() {
            timing::watch(&value, *self.layers.start())?;
        }
        let mut start = clock.now()?;
        for layer in passes.layers_of(&self.layers) {
            let index = layer.index();
            progress::enter(phase, Some(index));
            if layer.is_random() {
                let MicroBatch { iteration, index: micro_batch } = micro_batch;
                Purpose::Dropout { iteration, micro_batch, layer: index }.set(passes.seed);
            }
            value = layer.forward(&value)?;
            if index + 1 == passes.loss_edge {
                value = passes.loss(micro_batch, value)?;
            } else if index < *self.layers.end() && value.requires_grad() {
                timing::watch(&value, index + 1)?;
            }
            let end = clock.now()?;
            passes.times.add_forward(index, kind, end - start);
            start = end;
        }
        Ok(value)
    }
}

fn root_of(output: &Tensor) -> Result<Option<GradientRoot>, RankError> {
    if output.requires_grad() { Ok(Some(GradientRoot::of(output)?)) } else { Ok(None) }
}
