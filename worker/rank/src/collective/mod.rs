//! What the devices of one stage exchange: sums of gradients, and parts of tensors that are put together.
//!
//! * [`Groups`] are the two that a rank of a stage belongs to: the ranks that hold the same tensors in other
//!   replicas, and those that hold the other shards of its own replica.
//! * [`Group`] is what the rest of the rank sees of each; all its members call the same methods in the same
//!   order, with tensors of the same shapes.
//! * [`host`] exchanges over sockets through the host's memory, in an order that does not change, so that
//!   all devices get the same bits; `nccl` exchanges between different GPUs, but for what their hosts have.
//! * [`join`] brings a group's members together.
//! * [`gradients`] adds up what replicas of a data-parallel stage have found; [`operators`] are the points
//!   where a tensor-parallel stage's passes meet, [`vocabulary`] those of its embedding and its loss.

pub mod gradients;
mod host;
pub(crate) mod join;
mod line;
#[cfg(feature = "nccl")]
pub(crate) mod nccl;
pub mod operators;
mod sum;
pub(crate) mod vocabulary;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadmaster_proto::training::shard::Shard;
use tch::{Device, Tensor};

use crate::error::RankError;

/// How values of several devices become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    Sum,
    /// The largest.
    Max,
}

/// A way for the members of a group to exchange tensors.
trait Collective: Send + std::fmt::Debug {
    /// Replaces the values of a contiguous tensor by their reduction over all devices: the same bits on
    /// each.
    fn all_reduce(&mut self, tensor: &Tensor, reduction: Reduction) -> Result<(), RankError>;

    /// Fills in the parts of the other devices. This one's is in its place; all are contiguous.
    fn all_gather(&mut self, parts: &[Tensor]) -> Result<(), RankError>;

    /// Replaces this device's part by the sum over all devices of theirs at its place. Others' parts are worth nothing
    /// afterwards; all are contiguous and of one length.
    fn reduce_scatter(&mut self, parts: &[Tensor]) -> Result<(), RankError>;
}

/// The groups that a rank belongs to; none where it would be the only member.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    /// The ranks that hold the same tensors, one of each replica of the stage.
    pub replicas: Option<Group>,
    /// The ranks that hold the shards of one replica.
    pub shards: Option<Group>,
}

/// Some devices of a stage, seen from one of them.
#[derive(Debug, Clone)]
pub struct Group {
    own: Shard,
    collective: Arc<Mutex<Box<dyn Collective>>>,
}

impl Group {
    /// Which of the devices this is.
    pub fn own(&self) -> Shard {
        self.own
    }

    /// Replaces the values of a tensor by their reduction over all devices: the same bits on each.
    ///
    /// # Errors
    /// When another device is gone, or the tensor is not contiguous.
    pub fn all_reduce(&self, tensor: &Tensor, reduction: Reduction) -> Result<(), RankError> {
        contiguous(tensor)?;
        self.collective().all_reduce(tensor, reduction)
    }

    /// Fills in the parts of the other devices: as many as there are devices, in their order, each of the
    /// shape that its device has.
    ///
    /// # Errors
    /// When another device is gone, or a tensor is not contiguous.
    pub fn all_gather(&self, parts: &[Tensor]) -> Result<(), RankError> {
        parts.iter().try_for_each(contiguous)?;
        self.collective().all_gather(parts)
    }

    /// Replaces this device's part by its sum over all devices; what is in the other parts is worth nothing afterwards. As many
    /// parts as there are devices, in their order, of one length.
    ///
    /// # Errors
    /// When another device is gone, or a tensor is not contiguous.
    pub fn reduce_scatter(&self, parts: &[Tensor]) -> Result<(), RankError> {
        parts.iter().try_for_each(contiguous)?;
        self.collective().reduce_scatter(parts)
    }

    /// Adds up numbers over all devices.
    ///
    /// # Errors
    /// When another device is gone.
    pub fn sum(&self, numbers: &[f64], device: Device) -> Result<Vec<f64>, RankError> {
        self.reduce(numbers, Reduction::Sum, device)
    }

    /// The largest of each number over all devices.
    ///
    /// # Errors
    /// When another device is gone.
    pub fn largest(&self, numbers: &[f64], device: Device) -> Result<Vec<f64>, RankError> {
        self.reduce(numbers, Reduction::Max, device)
    }

    fn reduce(&self, numbers: &[f64], reduction: Reduction, device: Device) -> Result<Vec<f64>, RankError> {
        let tensor = Tensor::f_from_slice(numbers)?.f_to(device)?;
        self.all_reduce(&tensor, reduction)?;
        Ok(Vec::try_from(tensor)?)
    }

    fn collective(&self) -> MutexGuard<'_, Box<dyn Collective>> {
        self.collective.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn contiguous(tensor: &Tensor) -> Result<(), RankError> {
    if tensor.is_contiguous() {
        return Ok(());
    }
    Err(RankError::Other(format!("a defect: a tensor of shape {:?} is not contiguous", tensor.size())))
}
