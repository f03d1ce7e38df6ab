//! What the devices of one stage exchange: sums of gradients, and parts of tensors that are put together.
//!
//! * [`Groups`] are the two that a rank of a stage belongs to: the ranks that hold the same tensors in other
//!   replicas, and those that hold the other shards of its own replica.
//! * [`Group`] is what the rest of the rank sees of each; all its members call the same methods in the same
//!   order, with tensors of the same shapes.
//! * [`host`](mod@host) exchanges over sockets through the host's memory, in an order that does not change, so that
//!   all devices get the same bits; `nccl` exchanges between different GPUs, but for what their hosts have.
//! * [`Group::join`] brings a group's members together.
//! * [`sum_gradients`] adds up what replicas of a data-parallel stage have found; [`divided`] does so where they divide states.
//! * [`operators`] are the points
//!   where a tensor-parallel stage's passes meet, [`vocabulary`] those of its embedding and its loss.

pub(crate) mod divided;
mod host;
mod line;
#[cfg(feature = "nccl")]
pub(crate) mod nccl;
pub mod operators;
mod sum;
pub(crate) mod vocabulary;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadmaster_proto::measure::links::Collectives;
use loadmaster_proto::training::gradient_buckets::{BUCKET_BYTES, buckets};
use loadmaster_proto::training::shard::Shard;
use tch::{Device, Tensor};

use crate::error::RankError;
use crate::peers::{Appointment, Membership, Tie};
use crate::tape;
use host::Host;

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

/// Replaces every gradient by its sum over all replicas, bucket by bucket.
///
/// # Errors
/// Out of memory, or another replica is gone.
pub fn sum_gradients(group: &Group, gradients: Vec<Tensor>) -> Result<(), RankError> {
    let _no_grad = tch::no_grad_guard();
    let mut sizes = Vec::with_capacity(gradients.len());
    for gradient in &gradients {
        sizes.push((gradient.numel() * gradient.f_kind()?.elt_size_in_bytes()) as u64);
    }
    for bucket in buckets(&sizes, BUCKET_BYTES) {
        match gradients.get(bucket.gradients).unwrap_or_default() {
            [alone] => group.all_reduce(alone, Reduction::Sum)?,
            several => sum_together(group, several)?,
        }
    }
    Ok(())
}

fn sum_together(group: &Group, gradients: &[Tensor]) -> Result<(), RankError> {
    let flat: Vec<Tensor> =
        gradients.iter().map(|gradient| gradient.f_view([-1])).collect::<Result<_, _>>()?;
    let buffer = {
        let _communication = tape::Communication::begin();
        Tensor::f_cat(&flat, 0)?
    };
    group.all_reduce(&buffer, Reduction::Sum)?;
    let mut start = 0;
    for mut gradient in flat {
        let length = gradient.size1()?;
        gradient.f_copy_(&buffer.f_narrow(0, start, length)?)?;
        start += length;
    }
    Ok(())
}

impl Group {
    /// The group, over connections to all peers; none where there is one member.
    ///
    /// # Errors
    /// When a peer is missing or gone.
    pub(crate) fn join(
        membership: &Membership,
        met: &mut BTreeMap<Appointment, UnixStream>,
        collectives: Collectives,
    ) -> Result<Option<Self>, RankError> {
        if membership.members.len() <= 1 {
            return Ok(None);
        }
        let host = host(membership, met)?;
        let collective: Box<dyn Collective> = match collectives {
            Collectives::Host => Box::new(host),
            Collectives::Nccl => between_gpus(membership.own, host)?,
        };
        Ok(Some(Self { own: membership.own, collective: Arc::new(Mutex::new(collective)) }))
    }
}

/// The members' exchange through the host's memory.
fn host(membership: &Membership, met: &mut BTreeMap<Appointment, UnixStream>) -> Result<Host, RankError> {
    let peers = membership.peers().iter();
    let peers = peers.filter_map(|&peer| Some((peer, met.remove(&(Tie::Shard, peer))?)));
    Host::new(membership.own, peers.collect())
}

/// The members' exchange between different GPUs, if all of them find NCCL.
///
/// # Errors
/// When a peer is missing or gone.
#[cfg(feature = "nccl")]
pub(crate) fn nccl(
    membership: &Membership,
    met: &mut BTreeMap<Appointment, UnixStream>,
) -> Result<Option<nccl::Nccl>, RankError> {
    nccl::Nccl::join(membership.own, &mut host(membership, met)?)
}

#[cfg(feature = "nccl")]
fn between_gpus(own: Shard, mut host: Host) -> Result<Box<dyn Collective>, RankError> {
    Ok(match nccl::Nccl::join(own, &mut host)? {
        Some(nccl) => Box::new(nccl::BetweenGpus { nccl, host }),
        None => Box::new(host),
    })
}

#[cfg(not(feature = "nccl"))]
fn between_gpus(_own: Shard, host: Host) -> Result<Box<dyn Collective>, RankError> {
    eprintln!("loadmaster-rank: built without NCCL, so GPUs communicate through CPU memory");
    Ok(Box::new(host))
}
