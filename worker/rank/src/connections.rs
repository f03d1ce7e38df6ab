//! Everybody that a rank talks to: the neighbours of its stage, and the other devices of it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use loadmaster_proto::measure::rank::{Edges, RankSpec};

use crate::collective::{Group, Groups};
use crate::error::RankError;
use crate::memory::Memory;
use crate::peers::{Address, Appointment, Membership, Tie};
use crate::transport::{Forms, Lending, Neighbours, Place, Plan, Pools, Synthetic, meet};

/// Everybody that a rank talks to.
#[derive(Debug)]
pub struct Connections {
    /// The stages before and after it, and the one that it shares a weight with.
    pub neighbours: Box<dyn Neighbours>,
    /// The other devices of its stage.
    pub groups: Groups,
    /// Ranks on whose devices it parks blocks, and those that park theirs here.
    pub(crate) pools: Pools,
}

/// Reaches everybody that the rank of a specification talks to.
///
/// # Errors
/// When a peer does not connect in time.
pub fn connect(spec: &RankSpec, forms: Forms, memory: &Memory) -> Result<Connections, RankError> {
    let own = Address { stage: spec.position.stage_index, shard: spec.shard };
    let [replicas, shards] = Membership::of(&spec.position.stage, own);
    let peers = replicas.peers().iter().chain(shards.peers());
    let mut wanted: BTreeSet<Appointment> = peers.map(|&peer| (Tie::Shard, peer)).collect();
    // Cannot fail on a checked specification.
    let lending = Lending::of(spec);
    let patience = Duration::try_from_secs_f64(spec.neighbour_timeout_seconds).unwrap_or_default();
    let deadline = Instant::now() + patience;
    let (neighbours, mut met, pools): (Box<dyn Neighbours>, _, _) = match &spec.edges {
        Edges::Synthetic => {
            let met = meet(&spec.folder, own, &wanted, deadline)?;
            (Box::new(Synthetic::new(forms, spec.training.seed)), met, lending.alone(memory)?)
        }
        Edges::Sockets { partitioning } => {
            let place = Place {
                model: &spec.model,
                partitioning,
                position: spec.position,
                shard: spec.shard,
                micro_batch_size: spec.training.micro_batch_size,
            };
            let plan = Plan::of(&place, forms);
            wanted.extend(plan.appointments());
            wanted.extend(lending.appointments());
            let mut met = meet(&spec.folder, own, &wanted, deadline)?;
            let pools = lending.exchange(&mut met, deadline, memory)?;
            (Box::new(plan.start(&mut met)?), met, pools)
        }
    };
    // NCCL's ranks meet once more when they join: all in the same order.
    let shards = Group::join(&shards, &mut met, spec.collectives)?;
    let replicas = Group::join(&replicas, &mut met, spec.collectives)?;
    Ok(Connections { neighbours, groups: Groups { replicas, shards }, pools })
}
