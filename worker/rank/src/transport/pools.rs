//! Who lends memory of its device to whom. The rank that sets it aside counts it as its own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use loadmaster_proto::measure::rank::{Edges, RankSpec};
use loadmaster_proto::training::actions::{Destination, Optimization, Stripe};
use rustix::net::RecvFlags;

use super::shared_memory::{MemoryGrant, cannot_share, give, hear, lost, say, take};
use crate::error::RankError;
use crate::ffi::Mapping;
use crate::memory::Memory;
use crate::peers::{Address, Appointment, Tie};

/// A made-up pool has room for whatever comes.
const ENDLESS: u64 = 1 << 40;

/// Who lends memory to whom, seen from one rank.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    /// What is set aside for each rank of other stages.
    peer_pools: BTreeMap<Address, u64>,
    /// The ranks on whose devices this one parks blocks: one of each stage.
    borrowed: BTreeSet<Address>,
}

impl Lending {
    /// That of the rank of a specification.
    pub(crate) fn of(spec: &RankSpec) -> Self {
        let devices = |stage: u32| match &spec.edges {
            Edges::Sockets { partitioning } => {
                partitioning.stages().get(stage as usize).map_or(1, |stage| stage.devices()).max(1)
            }
            // No one knows them.
            Edges::Synthetic => spec.position.stage.devices().max(1),
        };
        let own_devices = spec.position.stage.devices().max(1);
        let mut lending = Self::default();
        for peer_pools in &spec.actions.peer_pools {
            for shard in (0..devices(peer_pools.stage)).filter(|shard| shard % own_devices == spec.shard) {
                lending.peer_pools.insert(Address { stage: peer_pools.stage, shard }, peer_pools.bytes.0);
            }
        }
        for action in &spec.actions.actions {
            if let Optimization::Swap(swap) = &action.optimization
                && let Destination::Peers(stripes) = &swap.to
            {
                let rank = |stripe: &Stripe| Address {
                    stage: stripe.stage,
                    shard: spec.shard % devices(stripe.stage),
                };
                lending.borrowed.extend(stripes.iter().map(rank));
            }
        }
        lending
    }

    /// Who must be met for it.
    pub(crate) fn appointments(&self) -> impl Iterator<Item = Appointment> + '_ {
        self.peer_pools.keys().chain(&self.borrowed).map(|&peer| (Tie::Pool, peer))
    }

    /// Pools that nothing else has a part in: theirs are made up, this one's count.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn alone(&self, memory: &Memory) -> Result<Pools, RankError> {
        let mut pools = Pools::default();
        for &bytes in self.peer_pools.values().filter(|&&bytes| bytes > 0) {
            pools.lent.push(MemoryGrant::new(bytes, memory)?);
        }
        for peer in &self.borrowed {
            let endless = Mapping::endless(ENDLESS).map_err(|error| cannot_share(*peer, &error))?;
            pools.borrowed.insert(peer.stage, Arc::new(endless));
        }
        Ok(pools)
    }

    /// Hands pools over and takes those of others, over the connections that were made.
    ///
    /// # Errors
    /// Out of memory; or a peer is gone, or sets nothing aside although it should.
    pub(crate) fn exchange(
        &self,
        met: &mut BTreeMap<Appointment, UnixStream>,
        deadline: Instant,
        memory: &Memory,
    ) -> Result<Pools, RankError> {
        let mut pools = Pools { lenders: self.borrowed.clone(), ..Pools::default() };
        let appointments: BTreeSet<Appointment> = self.appointments().collect();
        // Each rank writes to all peers before it reads from one, so no rank waits for a rank that waits.
        for &(tie, peer) in &appointments {
            let stream = met
                .remove(&(tie, peer))
                .ok_or_else(|| RankError::Other(format!("{peer} did not connect")))?;
            let bytes = self.peer_pools.get(&peer).copied().unwrap_or_default();
            let lent = if bytes > 0 { Some(MemoryGrant::new(bytes, memory)?) } else { None };
            give(&stream, lent.as_ref()).map_err(|error| lost(peer, &error))?;
            pools.lent.extend(lent);
            pools.streams.insert(peer, stream);
        }
        for (&peer, stream) in &pools.streams {
            let taken = take(peer, stream, deadline, memory)?;
            if self.borrowed.contains(&peer) {
                // Of nothing there is no memory: whatever is put there is too much.
                let nothing = || Mapping::made(0).map_err(|error| cannot_share(peer, &error));
                pools.borrowed.insert(peer.stage, Arc::new(taken.map_or_else(nothing, Ok)?));
            }
        }
        Ok(pools)
    }
}

/// Memory that a rank lends and borrows. It is lent for as long as this lives.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// On the device of each stage.
    pub(crate) borrowed: BTreeMap<u32, Arc<Mapping>>,
    /// Which devices these are.
    lenders: BTreeSet<Address>,
    lent: Vec<MemoryGrant>,
    streams: BTreeMap<Address, UnixStream>,
}

impl Pools {
    /// Bytes of this device that others may use.
    pub(crate) fn set_aside(&self) -> u64 {
        self.lent.iter().map(MemoryGrant::bytes).sum()
    }

    /// Notices when one of them has ended.
    ///
    /// # Errors
    /// When one has.
    pub(crate) fn check_peers(&self) -> Result<(), RankError> {
        for (&peer, stream) in &self.streams {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            if let Ok((_, 0)) = rustix::net::recv(stream, &mut [0_u8; 1][..], flags) {
                return Err(lost(peer, &io::Error::from(io::ErrorKind::UnexpectedEof)));
            }
        }
        Ok(())
    }

    /// Tells everybody how much of theirs was used at most, and returns how much of this device's was: the sum of what each
    /// had at its worst.
    ///
    /// # Errors
    /// When a peer is gone.
    pub(crate) fn finish(self, used: &[(u32, u64)]) -> Result<u64, RankError> {
        for (&peer, stream) in &self.streams {
            let of = used.iter().find(|&&(stage, _)| stage == peer.stage && self.lenders.contains(&peer));
            say(stream, of.map_or(0, |&(_, bytes)| bytes)).map_err(|error| lost(peer, &error))?;
        }
        let mut most = 0_u64;
        for (&peer, stream) in &self.streams {
            most = most.saturating_add(hear(stream).map_err(|error| lost(peer, &error))?);
        }
        Ok(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_gone_is_noticed() {
        let (here, there) = UnixStream::pair().unwrap();
        let pools =
            Pools { streams: BTreeMap::from([(Address { stage: 1, shard: 0 }, here)]), ..Pools::default() };
        assert!(pools.check_peers().is_ok());
        drop(there);
        assert!(matches!(pools.check_peers(), Err(RankError::LostNeighbour(_))));
    }
}
