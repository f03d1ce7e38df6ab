//! Which ranks of a stage form a group, and how they come together.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use loadmaster_proto::measure::collectives::Collectives;
use loadmaster_proto::training::shard::Shard;
use loadmaster_proto::training::stage::StageConfig;

use super::host::Host;
use super::{Collective, Group};
use crate::error::RankError;
use crate::transport::{Address, Appointment, Tie};

/// A rank's place in one of the groups of its stage.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    /// Which member it is, of how many.
    pub(super) own: Shard,
    /// All members, in order.
    pub(super) members: Vec<Address>,
}

impl Membership {
    /// The places of device `own` of a stage: among the ranks that hold the same tensors, and among the
    /// shards of its replica.
    pub(crate) fn of(stage: &StageConfig, own: Address) -> [Self; 2] {
        let (degree, replica) = (stage.tensor_degree.max(1), stage.replica(own.shard));
        let shard = own.shard % degree;
        let group = |index: u32, members: u32, rank: &dyn Fn(u32) -> u32| Self {
            own: Shard { index, degree: members },
            members: (0..members).map(|member| Address { shard: rank(member), ..own }).collect(),
        };
        [
            group(replica, stage.data_degree, &|member| member * degree + shard),
            group(shard, degree, &|member| replica * degree + member),
        ]
    }

    /// The members that this one talks to: all of them talk to the first.
    pub(crate) fn peers(&self) -> &[Address] {
        let peers = if self.own.index == 0 { self.members.get(1..) } else { self.members.get(..1) };
        peers.unwrap_or_default()
    }

    /// The group, over connections to all peers; none where there is one member.
    ///
    /// # Errors
    /// When a peer is missing or gone.
    pub(crate) fn join(
        &self,
        met: &mut BTreeMap<Appointment, UnixStream>,
        collectives: Collectives,
    ) -> Result<Option<Group>, RankError> {
        if self.members.len() <= 1 {
            return Ok(None);
        }
        let host = self.host(met)?;
        let collective = match collectives {
            Collectives::Host => Box::new(host),
            Collectives::Nccl => between_gpus(self.own, host)?,
        };
        Ok(Some(Group { own: self.own, collective: Arc::new(Mutex::new(collective)) }))
    }

    /// The members' exchange through the host's memory.
    pub(super) fn host(&self, met: &mut BTreeMap<Appointment, UnixStream>) -> Result<Host, RankError> {
        let peers = self.peers().iter();
        let peers = peers.filter_map(|&peer| Some((peer, met.remove(&(Tie::Shard, peer))?)));
        Host::new(self.own, peers.collect())
    }
}

#[cfg(feature = "nccl")]
fn between_gpus(own: Shard, mut host: Host) -> Result<Box<dyn Collective>, RankError> {
    Ok(match super::nccl::Nccl::join(own, &mut host)? {
        Some(nccl) => Box::new(nccl),
        None => Box::new(host),
    })
}

#[cfg(not(feature = "nccl"))]
fn between_gpus(_own: Shard, host: Host) -> Result<Box<dyn Collective>, RankError> {
    eprintln!("loadmaster-rank: built without NCCL: GPUs exchange through the host's memory");
    Ok(Box::new(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two replicas of three shards, device 4 is the second shard of the second replica.
    #[test]
    fn a_device_is_in_the_group_of_its_shard_and_in_that_of_its_replica() {
        let stage = StageConfig { data_degree: 2, tensor_degree: 3, ..StageConfig::single(0, 0) };
        let own = Address { stage: 5, shard: 4 };
        let [replicas, shards] = Membership::of(&stage, own);
        let numbers = |of: &[Address]| of.iter().map(|address| address.shard).collect::<Vec<u32>>();
        assert_eq!((numbers(&replicas.members), replicas.own), (vec![1, 4], Shard { index: 1, degree: 2 }));
        assert_eq!((numbers(&shards.members), shards.own), (vec![3, 4, 5], Shard { index: 1, degree: 3 }));
        assert_eq!((numbers(replicas.peers()), numbers(shards.peers())), (vec![1], vec![3]));
        let [_, first] = Membership::of(&stage, Address { shard: 3, ..own });
        assert_eq!(numbers(first.peers()), [4, 5]);
    }
}
