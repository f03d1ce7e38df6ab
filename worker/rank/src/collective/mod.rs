//! What the devices of one stage exchange: sums of gradients, and parts of tensors that are put together.
//!
//! * [`Group`] is what the rest of the rank sees; all devices of the stage call the same methods in the
//!   same order, with tensors of the same shapes.
//! * [`host`] exchanges over sockets through the host's memory, in an order that does not change, so that
//!   all devices get the same bits; `nccl` exchanges between different GPUs.
//! * [`gradients`] adds up what replicas of a data-parallel stage have found; [`operators`] are the points
//!   where a tensor-parallel stage's passes meet, [`vocabulary`] those of its embedding and its loss.

pub mod gradients;
mod host;
mod line;
#[cfg(feature = "nccl")]
mod nccl;
pub mod operators;
mod sum;
pub(crate) mod vocabulary;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadmaster_proto::rank::Collectives;
use loadmaster_proto::shard::Shard;
use tch::{Device, Tensor};

use crate::error::RankError;
use crate::transport::Address;
use host::Host;

/// How values of several devices become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
}

/// A way for the devices of a stage to exchange tensors.
trait Collective: Send + std::fmt::Debug {
    /// Replaces the values of a contiguous tensor by their reduction over all devices: the same bits on
    /// each.
    fn all_reduce(&mut self, tensor: &Tensor, reduction: Reduction) -> Result<(), RankError>;

    /// Fills in the parts of the other devices. This one's is in its place; all are contiguous.
    fn all_gather(&mut self, parts: &[Tensor]) -> Result<(), RankError>;
}

/// The devices of a stage, seen from one of them.
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

    /// Adds up numbers over all devices.
    ///
    /// # Errors
    /// When another device is gone.
    pub fn sum(&self, numbers: &[f64], device: Device) -> Result<Vec<f64>, RankError> {
        let tensor = Tensor::f_from_slice(numbers)?.f_to(device)?;
        self.all_reduce(&tensor, Reduction::Sum)?;
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

/// A rank's place among the devices of its stage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership {
    pub(crate) own: Address,
    pub(crate) degree: u32,
}

impl Membership {
    /// The devices that this one talks to: all of them talk to the first.
    pub(crate) fn peers(self) -> Vec<Address> {
        let first = Address { shard: 0, ..self.own };
        if self.own == first {
            (1..self.degree).map(|shard| Address { shard, ..self.own }).collect()
        } else {
            vec![first]
        }
    }

    /// The group, over connections to all peers; none where the stage has one device.
    ///
    /// # Errors
    /// When a peer is missing or gone.
    pub(crate) fn join(
        self,
        peers: BTreeMap<Address, UnixStream>,
        collectives: Collectives,
    ) -> Result<Option<Group>, RankError> {
        if self.degree == 1 {
            return Ok(None);
        }
        let own = Shard { index: self.own.shard, degree: self.degree };
        let host = Host::new(own, peers)?;
        let collective = match collectives {
            Collectives::Host => Box::new(host),
            Collectives::Nccl => between_gpus(own, host)?,
        };
        Ok(Some(Group { own, collective: Arc::new(Mutex::new(collective)) }))
    }
}

#[cfg(feature = "nccl")]
fn between_gpus(own: Shard, mut host: Host) -> Result<Box<dyn Collective>, RankError> {
    Ok(match nccl::Nccl::join(own, &mut host)? {
        Some(nccl) => Box::new(nccl),
        None => Box::new(host),
    })
}

#[cfg(not(feature = "nccl"))]
fn between_gpus(_own: Shard, host: Host) -> Result<Box<dyn Collective>, RankError> {
    eprintln!("loadmaster-rank: built without NCCL: GPUs exchange through the host's memory");
    Ok(Box::new(host))
}
