//! What stands for the stage of another slot while a stage is timed: its own layers, computed forward by another thread.

use std::sync::atomic::{AtomicBool, Ordering};

use loadmaster_proto::model::layer::LayerKind;
use tch::Tensor;

use super::stage::Stage;
use super::version::Frame;
use crate::error::RankError;
use crate::ffi;
use crate::layers::{ForwardKind, Layer, LayerTensors};

/// The layers of a stage, for another thread. Their tensors are the stage's own.
#[derive(Debug)]
pub struct Companion {
    layers: Vec<Layered>,
    inputs: Vec<Tensor>,
}

/// What makes a layer.
#[derive(Debug)]
struct Layered {
    index: usize,
    kind: LayerKind,
    parameters: Vec<Tensor>,
    buffers: Vec<Tensor>,
}

impl Stage {
    /// A companion that takes what the stage takes: the previous stage's outputs, or samples on the first. None where a layer draws
    /// random numbers, of which there is one source for all threads, or computes with another one's weights.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn companion(&self, inputs: Option<Vec<Tensor>>) -> Result<Option<Companion>, RankError> {
        let mut layers = Vec::with_capacity(self.frames.len());
        for &Frame { index, kind, ref buffers, .. } in &self.frames {
            let own = self.trained().iter().filter(|own| own.layer == index);
            let parameters = handles(own.map(|own| &own.value));
            let needed = kind.parameters().len() + usize::from(kind.shared_parameter().is_some());
            if kind.is_random() || parameters.len() != needed {
                return Ok(None);
            }
            layers.push(Layered { index, kind, parameters, buffers: handles(buffers.iter()) });
        }
        let inputs = match inputs {
            Some(tensors) => tensors,
            None => vec![self.data.samples(0, 0)?],
        };
        Ok(Some(Companion { layers, inputs }))
    }
}

impl Companion {
    /// Another with the same tensors.
    pub fn shallow_clone(&self) -> Self {
        let of = |layer: &Layered| Layered {
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
            let _no_grad = tch::no_grad_guard();
            let layers: Vec<Layer> = self.layers.into_iter().map(Layered::layer).collect::<Result<_, _>>()?;
            go_through(&layers, &self.inputs)?;
            begun();
            while !ended.load(Ordering::Relaxed) {
                go_through(&layers, &self.inputs)?;
            }
            Ok(())
        })
    }
}

impl Layered {
    fn layer(self) -> Result<Layer, RankError> {
        let Self { index, kind, parameters, buffers } = self;
        Layer::new(index, kind, LayerTensors { parameters, buffers, ..LayerTensors::default() })
    }
}

/// What is done again changes no running statistics.
fn go_through(layers: &[Layer], inputs: &[Tensor]) -> Result<(), RankError> {
    let mut values = handles(inputs.iter());
    for layer in layers {
        values = layer.forward(&values, ForwardKind::Again)?;
    }
    Ok(())
}

fn handles<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Vec<Tensor> {
    tensors.map(Tensor::shallow_clone).collect()
}
