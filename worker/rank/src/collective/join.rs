//! How the members of a group come together.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use loadmaster_proto::measure::links::Collectives;
use loadmaster_proto::training::shard::Shard;

use super::host::Host;
use super::{Collective, Group};
use crate::error::RankError;
use crate::peers::{Appointment, Membership, Tie};

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
) -> Result<Option<super::nccl::Nccl>, RankError> {
    super::nccl::Nccl::join(membership.own, &mut host(membership, met)?)
}

#[cfg(feature = "nccl")]
fn between_gpus(own: Shard, mut host: Host) -> Result<Box<dyn Collective>, RankError> {
    Ok(match super::nccl::Nccl::join(own, &mut host)? {
        Some(nccl) => Box::new(super::nccl::BetweenGpus { nccl, host }),
        None => Box::new(host),
    })
}

#[cfg(not(feature = "nccl"))]
fn between_gpus(_own: Shard, host: Host) -> Result<Box<dyn Collective>, RankError> {
    eprintln!("loadmaster-rank: built without NCCL: GPUs exchange through the host's memory");
    Ok(Box::new(host))
}
