//! What stands for the stage of another slot while a stage is timed: its own layers, computed forward and backward by another thread
//! with a copy of their weights. Another slot has weights of its own in the caches that both share.

use std::sync::atomic::{AtomicBool, Ordering};

use loadmaster_proto::model::layer::LayerKind;
use tch::{TchError, Tensor};

use super::stage::Stage;
use super::version::LayerFrame;
use crate::error::RankError;
use crate::ffi;
use crate::layers::{ForwardKind, Layer, LayerTensors};
use crate::tensor::copy_of;

/// The layers of a stage, for another thread. Their tensors are the stage's own until it computes.
#[derive(Debug)]
pub struct ContentionLoad {
    layers: Vec<LayerCopy>,
    inputs: Vec<Tensor>,
}

/// What makes a layer.
#[derive(Debug)]
struct LayerCopy {
    index: usize,
    kind: LayerKind,
    parameters: Vec<Tensor>,
    buffers: Vec<Tensor>,
}

impl Stage {
    /// A companion that takes what the stage takes: the previous stage's outputs, or samples on the first. It leaves dropout out, as
    /// all threads have one source of random numbers. None where a layer computes with another one's weights.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn companion(&self, inputs: Option<Vec<Tensor>>) -> Result<Option<ContentionLoad>, RankError> {
        let mut layers = Vec::with_capacity(self.frames.len());
        for &LayerFrame { index, kind, ref buffers, .. } in &self.frames {
            let own = self.trained().iter().filter(|own| own.layer == index);
            let parameters = handles(own.map(|own| &own.value));
            let needed = kind.parameters().len() + usize::from(kind.shared_parameter().is_some());
            if parameters.len() != needed {
                return Ok(None);
            }
            let kind = kind.without_dropout();
            layers.push(LayerCopy { index, kind, parameters, buffers: handles(buffers.iter()) });
        }
        let inputs = match inputs {
            Some(tensors) => tensors,
            None => vec![self.data.samples(0, 0)?],
        };
        Ok(Some(ContentionLoad { layers, inputs }))
    }
}

impl ContentionLoad {
    /// Another with the same tensors.
    pub fn shallow_clone(&self) -> Self {
        let of = |layer: &LayerCopy| LayerCopy {
            index: layer.index,
            kind: layer.kind,
            parameters: handles(layer.parameters.iter()),
            buffers: handles(layer.buffers.iter()),
        };
        Self { layers: self.layers.iter().map(of).collect(), inputs: handles(self.inputs.iter()) }
    }

    /// Computes on so many threads until it is told to end, in memory that is no device's. Says so when it has gone through its
    /// layers for the first time.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn compute(self, threads: u32, begun: impl FnOnce(), ended: &AtomicBool) -> Result<(), RankError> {
        tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
        ffi::aside(|| {
            let layers: Vec<Layer> =
                self.layers.into_iter().map(LayerCopy::of_its_own).collect::<Result<_, _>>()?;
            let inputs: Vec<Tensor> = self.inputs.iter().map(of_its_own).collect::<Result<_, _>>()?;
            there_and_back(&layers, &inputs)?;
            begun();
            while !ended.load(Ordering::Relaxed) {
                there_and_back(&layers, &inputs)?;
            }
            Ok(())
        })
    }
}

impl LayerCopy {
    /// The layer with tensors that nothing else has.
    fn of_its_own(self) -> Result<Layer, RankError> {
        let Self { index, kind, parameters, buffers } = self;
        let parameters = parameters.iter().map(of_its_own).collect::<Result<_, _>>()?;
        let buffers = buffers.iter().map(copy_of).collect::<Result<_, _>>()?;
        Layer::new(index, kind, LayerTensors { parameters, buffers, ..LayerTensors::default() })
    }
}

/// A copy that has a gradient where numbers of its kind can have one.
fn of_its_own(tensor: &Tensor) -> Result<Tensor, TchError> {
    let copy = copy_of(&tensor.f_detach()?)?;
    if copy.is_floating_point() { copy.f_set_requires_grad(true) } else { Ok(copy) }
}

/// Forward and backward, gradients on top of the last ones. What is done again changes no running statistics.
fn there_and_back(layers: &[Layer], inputs: &[Tensor]) -> Result<(), RankError> {
    let mut values = handles(inputs.iter());
    for layer in layers {
        values = layer.forward(&values, ForwardKind::Again)?;
    }
    let mut sums = values.iter().map(|of| of.f_sum(None));
    let Some(first) = sums.next() else { return Ok(()) };
    let all = sums.try_fold(first?, |all, of| all.f_add(&of?))?;
    Ok(all.f_backward()?)
}

fn handles<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Vec<Tensor> {
    tensors.map(Tensor::shallow_clone).collect()
}
