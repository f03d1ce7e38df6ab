//! Copies of a device: those of a rank's mover, between its capped memory and pools outside it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::rank::LinkSpec;
use tch::Tensor;

use super::super::{Cooling, Rank};
use crate::actions::lane::Lane;
use crate::clock::Clock;
use crate::error::RankError;
use crate::ffi::{Direction, Mapping, Storage, Transfer};
use crate::tape::defect;
use crate::tensor::Form;
use crate::transport::SharedPools;

/// A device's memory, and pools outside it.
#[derive(Debug)]
pub(super) struct Scene {
    /// What leaves, and what comes back; with what holds it.
    leaves: (Storage, Tensor),
    comes: (Storage, Tensor),
    /// Where what comes back lies in a pool.
    offset: u64,
    /// To and from the host, to and from other ranks.
    host: [Lane; 2],
    peers: [Lane; 2],
    /// The pool of the host, and those of other ranks.
    pools: BTreeMap<Option<u32>, Arc<Mapping>>,
    clock: Clock,
    /// What others copy into.
    _shared: SharedPools,
    /// What is copied comes from memory, not from a cache, as it does behind a step.
    pub(super) cooling: Cooling,
}

impl Scene {
    pub(super) fn new(rank: &mut Rank<'_>, spec: &LinkSpec, largest: u64) -> Result<Self, RankError> {
        let Form { kind, shape } = Form::of_bytes(largest);
        // Every page is one of its own, as those of blocks are.
        let tensor = || -> Result<(Storage, Tensor), RankError> {
            let tensor = Tensor::f_ones(shape.as_slice(), (kind, rank.memory.device()))?;
            Ok((Storage::of(&tensor)?, tensor))
        };
        let (leaves, comes) = (tensor()?, tensor()?);
        let both = largest.saturating_mul(2);
        let patience = Duration::try_from_secs_f64(spec.neighbour_timeout_seconds).unwrap_or_default();
        let deadline = Instant::now() + patience;
        let shared = SharedPools::exchange(rank.mesh.pool_streams(), both, deadline, rank.memory)?;
        let gpu = rank.memory.gpu();
        let host = rank.memory.host_pool(Bytes(both))?;
        let mut pools = BTreeMap::from([(None, Arc::new(host))]);
        pools.extend(shared.others.iter().map(|(peer, memory)| (Some(peer.shard), memory.clone())));
        let lanes = |place: &str, pace: Option<f64>| -> Result<[Lane; 2], RankError> {
            let lane = |way: &str| Lane::start(format!("{way} {place}"), pace, gpu);
            Ok([lane("to")?, lane("from")?])
        };
        Ok(Self {
            leaves,
            comes,
            offset: largest,
            pools,
            host: lanes("host", spec.pace.host)?,
            peers: lanes("peers", spec.pace.peer)?,
            _shared: shared,
            clock: rank.clock,
            cooling: Cooling::new(spec.work.devices, gpu.is_some()),
        })
    }

    /// Seconds of a copy each of these ways, all at once.
    pub(super) fn seconds(&self, to: Option<u32>, bytes: u64, ways: &[Direction]) -> Result<f64, RankError> {
        let pool = self.pools.get(&to).ok_or_else(|| defect("a pool is missing"))?;
        let lanes = if to.is_none() { &self.host } else { &self.peers };
        let mut asked = Vec::new();
        for &way in ways {
            let (lane, storage, at) = match way {
                Direction::Out => (&lanes[0], &self.leaves.0, 0),
                Direction::Back => (&lanes[1], &self.comes.0, self.offset),
            };
            let transfer = Transfer::new(storage, (0, bytes), pool, at, way);
            asked.push((lane, transfer.ok_or_else(|| defect("a pool is too small"))?));
        }
        let start = self.clock.now()?;
        // All are asked for before any of them is waited for.
        let tickets: Vec<_> =
            asked.into_iter().map(|(lane, transfer)| lane.ask(vec![transfer])).collect::<Result<_, _>>()?;
        for ticket in tickets {
            ticket.wait()?;
        }
        Ok((self.clock.now()? - start).as_secs_f64())
    }
}
