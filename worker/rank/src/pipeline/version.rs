//! Versions of a stage's weights: what its layers compute with, from one update to the next.
//!
//! Under PipeDream an update writes new weights while micro-batches in flight still need the old ones: autograd saved some
//! of them, and layers that are recomputed read them once more. So each micro-batch holds the version that it went
//! forward with until its backward pass is over, and what no one holds any more is freed. Without such micro-batches there
//! is one version for ever, and it is updated in place.

use std::rc::Rc;

use loadmaster_proto::model::layer::LayerKind;
use loadmaster_proto::training::actions::{Block, Step};
use tch::Tensor;

use super::stage::Stage;
use crate::collective::Group;
use crate::error::RankError;
use crate::ffi;
use crate::layers::{Layer, LayerTensors, Trained};
use crate::movement::Movement;

/// Weights as they are between two updates.
#[derive(Debug)]
pub(super) struct Version {
    /// Layers that compute with them.
    pub(super) layers: Vec<Layer>,
    /// The same, in the order of the layers.
    pub(super) trained: Vec<Trained>,
}

/// A layer of a stage but for what is trained of it.
#[derive(Debug)]
pub(super) struct LayerFrame {
    pub(super) index: usize,
    pub(super) kind: LayerKind,
    pub(super) buffers: Vec<Tensor>,
    /// The shards of a tensor-parallel stage.
    pub(super) shards: Option<Group>,
    /// Its output is what the loss is computed of.
    pub(super) feeds_loss: bool,
    /// From where the rows of a table on the host come.
    pub(super) movement: Movement,
}

impl LayerFrame {
    /// The layer with these parameters.
    pub(super) fn layer(&self, parameters: Vec<Tensor>) -> Result<Layer, RankError> {
        let tensors = LayerTensors {
            parameters,
            buffers: self.buffers.iter().map(Tensor::shallow_clone).collect(),
            shards: self.shards.clone(),
            feeds_loss: self.feeds_loss,
            movement: self.movement.clone(),
        };
        Layer::new(self.index, self.kind, tensors)
    }
}

impl Version {
    /// The same weights with memory of their own. No two layers may share one.
    fn renewed(&self, frames: &[LayerFrame]) -> Result<Self, RankError> {
        let trained: Vec<Trained> = self.trained.iter().map(Trained::renewed).collect::<Result<_, _>>()?;
        let layer = |frame: &LayerFrame| {
            let own = trained.iter().filter(|own| own.layer == frame.index);
            frame.layer(own.map(|own| own.value.shallow_clone()).collect())
        };
        let layers = frames.iter().map(layer).collect::<Result<_, _>>()?;
        Ok(Self { layers, trained })
    }
}

impl Stage {
    /// Makes room for an update behind the backward pass of a micro-batch: its gradients become those of the newest
    /// weights, with memory of their own where a micro-batch in flight went forward with them.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn renew(&mut self) -> Result<(), RankError> {
        self.movement.lock().before(Step::Renew)?;
        let Some(gone) = self.gone_back.take() else { return Ok(()) };
        let mut gradients = Vec::with_capacity(gone.trained.len());
        for trained in &gone.trained {
            // Those that are added up elsewhere are of all versions.
            let gradient = if trained.main.is_some() { None } else { trained.gradient()? };
            if gradient.is_some() {
                trained.forget_gradient()?;
            }
            gradients.push(gradient);
        }
        drop(gone);
        self.give_own_memory()?;
        for (trained, gradient) in self.newest.trained.iter().zip(gradients) {
            if let Some(gradient) = gradient {
                ffi::set_gradient(&trained.value, &gradient)?;
            }
        }
        Ok(())
    }

    /// Where the pipeline is still being filled and versions leave: each of its micro-batches gets one of its own, as later
    /// ones do, so that none needs more than these.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn renew_without_update(&mut self) -> Result<(), RankError> {
        self.movement.lock().before(Step::Renew)?;
        if self.movement.lock().actions.moves(Block::Versions) { self.give_own_memory() } else { Ok(()) }
    }

    /// Leaves the newest weights to the micro-batches in flight that went forward with them.
    fn give_own_memory(&mut self) -> Result<(), RankError> {
        if Rc::strong_count(&self.newest) == 1 {
            return Ok(());
        }
        let renewed = Rc::new(self.newest.renewed(&self.frames)?);
        let older = std::mem::replace(&mut self.newest, renewed);
        let holders = self.in_flight.iter().filter(|(_, flight)| Rc::ptr_eq(&flight.version, &older));
        let holders: Vec<u32> = holders.map(|(micro_batch, _)| micro_batch.in_steps).collect();
        self.movement.lock().actions.blocks.renewed(&holders, &older.trained, &self.newest.trained)
    }
}
