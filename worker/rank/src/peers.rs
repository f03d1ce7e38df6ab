//! The ranks that a rank has to do with: where they are, why they talk, and the groups of a stage. Pure.

use std::fmt;

use loadmaster_proto::training::shard::Shard;
use loadmaster_proto::training::stage::StageConfig;

/// A rank of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    /// Index of its stage.
    pub(crate) stage: u32,
    /// Which device of the stage.
    pub(crate) shard: u32,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of stage {}", self.shard, self.stage)
    }
}

/// What connects two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tie {
    /// Their stages follow each other.
    Neighbour,
    /// Their stages share a weight.
    SharedWeight,
    /// They are devices of one stage.
    Shard,
    /// One of them parks blocks on the other's device.
    Pool,
}

/// Who is to be met, and why.
pub(crate) type Appointment = (Tie, Address);

/// A rank's place in one of the groups of its stage.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    /// Which member it is, of how many.
    pub(crate) own: Shard,
    /// All members, in order.
    pub(crate) members: Vec<Address>,
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

    /// The place of one of the first `size` devices of a stage in the group of these.
    pub(crate) fn of_first(size: u32, own: Address) -> Self {
        Self {
            own: Shard { index: own.shard, degree: size },
            members: (0..size).map(|shard| Address { shard, ..own }).collect(),
        }
    }
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
