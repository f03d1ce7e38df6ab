//! Which steps use which tensors, whatever chunks these are in: asked once where many layouts of the same steps are tried.

use std::rc::Rc;

use super::Payload;
use super::uses::{LayerTensor, PayloadUses, Uses, deliveries};
use crate::chunks::layout::Layout;
use crate::training::actions::{Step, Steps};

/// What the steps of an iteration do with tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorUses {
    /// What each layer computes with.
    layers: Rc<[Vec<LayerTensor>]>,
    /// Whether a gradient of each tensor is there before the tensor is read for the last time.
    meets: Vec<bool>,
    /// Each step that is a pass of a layer.
    passes: Vec<Option<LayerPass>>,
    /// Whether each step ends with its layer's gradients in their chunks.
    delivers: Vec<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LayerPass {
    layer: usize,
    is_backward: bool,
}

/// A chunk that a layer computes with.
#[derive(Debug, Clone, Copy)]
struct LayerChunk {
    chunk: usize,
    /// Whether the layer's backward pass reads it.
    is_read_back: bool,
}

impl TensorUses {
    /// What these steps of [`Steps::of_chunks`] do with what [`layer_tensors`](super::uses::layer_tensors) says that each layer
    /// computes with.
    pub fn new(layers: Rc<[Vec<LayerTensor>]>, steps: &Steps) -> Self {
        let delivers = deliveries(layers.len(), steps);
        let passes: Vec<Option<LayerPass>> = steps.all().iter().map(LayerPass::of).collect();
        let meets = meets(&layers, &passes, &delivers);
        Self { layers, meets, passes, delivers }
    }

    /// What the same steps do with the payloads of this layout.
    pub fn in_chunks(&self, layout: &Layout) -> Uses {
        let count = layout.chunks().len();
        let mut meets = vec![false; count];
        for (place, &tensor_meets) in layout.tensors().iter().zip(&self.meets) {
            meets[place.chunk] |= tensor_meets;
        }
        let chunks: Vec<Vec<LayerChunk>> =
            self.layers.iter().map(|tensors| chunks_of(tensors, layout)).collect();
        let (mut needed, mut gradients) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (at, (pass, &delivers)) in self.passes.iter().zip(&self.delivers).enumerate() {
            let Some(LayerPass { layer, is_backward }) = *pass else { continue };
            for &LayerChunk { chunk, is_read_back } in chunks.get(layer).into_iter().flatten() {
                // Gradients that are apart are no use of the parameters.
                if is_read_back || !is_backward || delivers && !meets[chunk] {
                    needed[chunk].push(at);
                }
                if delivers {
                    gradients[chunk].push(at);
                }
            }
        }
        let (mut payloads, mut apart) = (Vec::with_capacity(count), Vec::new());
        for (chunk, (needed, gradients)) in needed.into_iter().zip(gradients).enumerate() {
            let parameters = Payload { chunk, is_gradients: false };
            if meets[chunk] {
                payloads.push(PayloadUses::new(parameters, needed, Vec::new()));
                let own = Payload { chunk, is_gradients: true };
                apart.push(PayloadUses::new(own, gradients.clone(), gradients));
            } else {
                payloads.push(PayloadUses::new(parameters, needed, gradients));
            }
        }
        Uses::new(payloads, apart, self.delivers.clone())
    }
}

impl LayerPass {
    fn of(step: &Step) -> Option<Self> {
        match *step {
            Step::Forward { layer, .. } | Step::Again { layer, .. } => {
                Some(Self { layer, is_backward: false })
            }
            Step::Backward { layer, .. } => Some(Self { layer, is_backward: true }),
            Step::Renew | Step::Exchange | Step::Update { .. } => None,
        }
    }
}

/// Whether a gradient of each tensor is there before the tensor is read for the last time.
fn meets(layers: &[Vec<LayerTensor>], passes: &[Option<LayerPass>], delivers: &[bool]) -> Vec<bool> {
    let count = layers.iter().flatten().map(|of| of.tensor + 1).max().unwrap_or(0);
    let (mut found, mut read) = (vec![None; count], vec![None; count]);
    for (at, (pass, &delivers)) in passes.iter().zip(delivers).enumerate() {
        let Some(LayerPass { layer, is_backward }) = *pass else { continue };
        for &LayerTensor { tensor, is_read_back } in layers.get(layer).into_iter().flatten() {
            if is_read_back || !is_backward {
                read[tensor] = Some(at);
            }
            if delivers {
                found[tensor].get_or_insert(at);
            }
        }
    }
    let meets = |(found, read): (Option<usize>, Option<usize>)| found.zip(read).is_some_and(|(f, r)| f < r);
    found.into_iter().zip(read).map(meets).collect()
}

/// The chunks that these tensors are in, each once.
fn chunks_of(tensors: &[LayerTensor], layout: &Layout) -> Vec<LayerChunk> {
    let mut chunks: Vec<LayerChunk> = Vec::new();
    for &LayerTensor { tensor, is_read_back } in tensors {
        let Some(chunk) = layout.tensors().get(tensor).map(|place| place.chunk) else { continue };
        // Neighbours are in the same chunk, mostly.
        match chunks.iter_mut().rev().find(|of| of.chunk == chunk) {
            Some(of) => of.is_read_back |= is_read_back,
            None => chunks.push(LayerChunk { chunk, is_read_back }),
        }
    }
    chunks
}
