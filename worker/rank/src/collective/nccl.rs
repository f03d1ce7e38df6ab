//! Collectives between different GPUs, with NCCL.
//!
//! NCCL's own buffers are in no ledger of libtorch's: the driver alone sees them.

use loadmaster_proto::training::shard::Shard;
use tch::{Device, Tensor};

use super::host::Host;
use super::{Collective, Reduction};
use crate::error::RankError;
use crate::ffi::nccl::{self, Communicator, NcclFailure, UniqueId};

/// Collectives with NCCL.
#[derive(Debug)]
pub(crate) struct Nccl(Communicator);

impl Nccl {
    /// Joins the other devices, if all of them find NCCL. They agree over the host's memory.
    ///
    /// # Errors
    /// When a device is gone, or NCCL finds no way between them.
    pub(super) fn join(own: Shard, host: &mut Host) -> Result<Option<Self>, RankError> {
        let lacking = host.count(!nccl::is_available())?;
        if lacking > 0 {
            eprintln!(
                "loadmaster-rank: {lacking} of {} ranks of this stage find no libnccl.so, so they communicate through CPU \
                 memory, which is slower. Put libnccl.so.2 beside libtorch as libnccl.so.",
                own.degree
            );
            return Ok(None);
        }
        let mut id: UniqueId = [0; 128];
        if own.index == 0 {
            id = nccl::new_id()?;
        }
        host.share(&mut id)?;
        Ok(Some(Self(Communicator::join(id, own.index, own.degree)?)))
    }

    /// Gives a tensor to another device.
    pub(crate) fn send(&mut self, to: u32, tensor: &Tensor) -> Result<(), NcclFailure> {
        self.0.send(to, tensor)
    }

    /// Fills in what another device gives.
    pub(crate) fn receive(&mut self, from: u32, tensor: &Tensor) -> Result<(), NcclFailure> {
        self.0.receive(from, tensor)
    }
}

/// What different GPUs have in their memory is exchanged with NCCL, and what their hosts have, a table of tokens for one, there.
#[derive(Debug)]
pub(super) struct BetweenGpus {
    pub(super) nccl: Nccl,
    pub(super) host: Host,
}

impl Collective for BetweenGpus {
    fn all_reduce(&mut self, tensor: &Tensor, reduction: Reduction) -> Result<(), RankError> {
        if is_on_host(tensor) {
            return self.host.all_reduce(tensor, reduction);
        }
        Ok(self.nccl.0.all_reduce(tensor, reduction == Reduction::Sum)?)
    }

    fn all_gather(&mut self, parts: &[Tensor]) -> Result<(), RankError> {
        if parts.iter().all(is_on_host) {
            return self.host.all_gather(parts);
        }
        Ok(self.nccl.0.all_gather(parts)?)
    }

    fn reduce_scatter(&mut self, parts: &[Tensor]) -> Result<(), RankError> {
        if parts.iter().all(is_on_host) {
            return self.host.reduce_scatter(parts);
        }
        Ok(self.nccl.0.reduce_scatter(parts)?)
    }
}

fn is_on_host(tensor: &Tensor) -> bool {
    tensor.device() == Device::Cpu
}

impl From<NcclFailure> for RankError {
    fn from(failure: NcclFailure) -> Self {
        Self::Other(failure.to_string())
    }
}
