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
    /// The inputs, where the backward pass computes with them or wants their gradients.
    inputs: Vec<Tensor>,
    /// Where the backward pass starts.
    root: Option<GradientRoot>,
}

impl Segment {
    /// The forward pass. Takes the inputs, which must be leaves, and returns the outputs.
    pub(super) fn forward(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        inputs: Vec<Tensor>,
    ) -> Result<(Vec<Tensor>, Kept), RankError> {
        match self.keep {
            Keep::Input => {
                let _no_grad = tch::no_grad_guard();
                let outputs = self.run(passes, micro_batch, &inputs, ForwardKind::First)?;
                Ok((outputs, Kept { inputs, root: None }))
            }
            Keep::Graph => {
                let outputs = self.run(passes, micro_batch, &inputs, ForwardKind::First)?;
                let root = GradientRoot::of(&outputs)?;
                // A leaf without gradient is autograd's alone, if autograd needs it at all.
                let inputs = if wants_gradient(&inputs) { inputs } else { Vec::new() };
                Ok((outputs, Kept { inputs, root }))
            }
        }
    }

    /// The backward pass. Takes the gradients of the outputs and returns those of the inputs, none where
    /// nothing below is trained.
    pub(super) fn backward(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        kept: Kept,
        gradients: Vec<Tensor>,
    ) -> Result<Vec<Tensor>, RankError> {
        let Kept { inputs, mut root } = kept;
        if self.keep == Keep::Input {
            let outputs = self.run(passes, micro_batch, &inputs, ForwardKind::Again)?;
            root = GradientRoot::of(&outputs)?;
        }
        if let Some(root) = root {
            passes.times.backward(*self.layers.start(), *self.layers.end(), || {
                root.backward(&gradients)?;
                // Before the clock is read, so that nothing outlives its use.
                drop(gradients);
                Ok(())
            })?;
        }
        if !wants_gradient(&inputs) {
            return Ok(Vec::new());
        }
        let gradients = inputs.iter().map(Tensor::f_grad).collect::<Result<Vec<Tensor>, _>>()?;
        // Either all of them are reached or nothing is trained that they lead to.
        Ok(if gradients.iter().all(Tensor::defined) { gradients } else { Vec::new() })
    }

    /// Runs the layers, and the loss after the model's last one.
    fn run(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        inputs: &[Tensor],
        kind: ForwardKind,
    ) -> Result<Vec<Tensor>, RankError> {
        let phase = if kind == ForwardKind::First { Phase::Forward } else { Phase::Backward };
        let clock = passes.times.clock();
        let mut values: Vec<Tensor> = inputs.iter().map(Tensor::shallow_clone).collect();
        if self.keep == Keep::Graph || kind == ForwardKind::Again {
            watch(&values, *self.layers.start())?;
        }
        let mut start = clock.now()?;
        for layer in passes.layers_of(&self.layers) {
            let index = layer.index();
            progress::enter(phase, Some(index));
            if layer.is_random() {
                let MicroBatch { iteration, index: micro_batch } = micro_batch;
                Purpose::Dropout { iteration, micro_batch, layer: index }.set(passes.seed);
            }
            values = layer.forward(&values)?;
            if index + 1 == passes.loss_edge {
                values = vec![passes.loss(micro_batch, values)?];
            } else if index < *self.layers.end() {
                watch(&values, index + 1)?;
            }
            let end = clock.now()?;
            passes.times.add_forward(index, kind, end - start);
            start = end;
        }
        Ok(values)
    }
}

fn wants_gradient(tensors: &[Tensor]) -> bool {
    tensors.iter().any(Tensor::requires_grad)
}

/// Notes when the gradient at this edge is complete. The first tensor is what the layer before computed;
/// others only pass by.
fn watch(values: &[Tensor], edge: usize) -> Result<(), RankError> {
    match values.first().filter(|value| value.requires_grad()) {
        Some(value) => timing::watch(value, edge),
        None => Ok(()),
    }
}
