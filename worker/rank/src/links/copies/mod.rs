//! Copies as memory actions make them: to the host's memory and back, and into the memory of another device.
//!
//! The same lanes copy as in training (`movement/lane.rs`), between the device's capped memory and a pool of the host or of
//! another rank, a slot's at its pace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::links::copies::{
    CopyMeasurement, CopySpeeds, CopyWay, DeviceCopies, PairCopies,
};
use loadmaster_proto::measure::links::{LinkPoint, LinkWork};
use loadmaster_proto::measure::rank::LinkSpec;
use tch::Tensor;

use super::{Cooling, Rank, typical};
use crate::clock::Clock;
use crate::error::RankError;
use crate::ffi::{Direction, Mapping, Storage, Transfer};
use crate::movement::lane::Ways;
use crate::progress;
use crate::tape::defect;
use crate::tensor::Form;
use crate::transport::SharedPools;

/// How many passes of progress this is.
pub(super) fn passes(work: &LinkWork) -> usize {
    work.devices as usize + 2 + usize::from(work.devices > 1) + work.pairs().count()
}

const OUT: &[Direction] = &[Direction::Out];
const BACK: &[Direction] = &[Direction::Back];
const BOTH: &[Direction] = &[Direction::Out, Direction::Back];

/// Copies of this rank, and of the pairs whose earlier member it is. Others wait meanwhile, but for where all copy at once.
pub(super) fn measure(rank: &mut Rank<'_>, spec: &LinkSpec) -> Result<CopyMeasurement, RankError> {
    let largest = spec.work.copied_bytes(None).last().copied().unwrap_or_default();
    let mut scene = Scene::new(rank, spec, largest)?;
    let mut host = None;
    for device in 0..spec.work.devices {
        rank.mesh.wait_for_all()?;
        if device == spec.index {
            host = Some(speeds(spec, &mut scene, None)?);
        }
        progress::pass_done();
    }
    let all_out = while_all_do(rank, spec, &mut scene, (None, OUT))?;
    let all_back = while_all_do(rank, spec, &mut scene, (None, BACK))?;
    let mut measured = CopyMeasurement::default();
    for (first, second) in spec.work.pairs() {
        rank.mesh.wait_for_all()?;
        if first == spec.index {
            let copies = speeds(spec, &mut scene, Some(second))?;
            measured.pairs.push(PairCopies { first, second, copies });
        }
        progress::pass_done();
    }
    // A device alone has none to copy into.
    let next = (spec.work.devices > 1).then(|| (spec.index + 1) % spec.work.devices);
    let all_next = next.map(|next| while_all_do(rank, spec, &mut scene, (Some(next), OUT))).transpose()?;
    // No one takes away what another one still copies into.
    rank.mesh.wait_for_all()?;
    let host = host.ok_or_else(|| defect("a rank is not among the devices"))?;
    measured.devices.push(DeviceCopies { device: spec.index, host, all_out, all_back, all_next });
    Ok(measured)
}

/// Alone: out, back, and both at once.
fn speeds(spec: &LinkSpec, scene: &mut Scene, to: Option<u32>) -> Result<CopySpeeds, RankError> {
    let mut way = |ways: &[Direction]| {
        let points = points(spec, to, scene, |scene, bytes| scene.seconds(to, bytes, ways))?;
        Ok::<_, RankError>(CopyWay::new(points, u32::try_from(ways.len()).unwrap_or(u32::MAX))?)
    };
    Ok(CopySpeeds { out: way(OUT)?, back: way(BACK)?, both: Some(way(BOTH)?) })
}

/// One way, while all ranks do the same.
fn while_all_do(
    rank: &Rank<'_>,
    spec: &LinkSpec,
    scene: &mut Scene,
    (to, ways): (Option<u32>, &[Direction]),
) -> Result<CopyWay, RankError> {
    let points = points(spec, to, scene, |scene, bytes| {
        rank.mesh.wait_for_all()?;
        scene.seconds(to, bytes, ways)
    })?;
    progress::pass_done();
    Ok(CopyWay::new(points, 1)?)
}

/// Median seconds of a copy of each size, the first one of a size not counted.
fn points(
    spec: &LinkSpec,
    to: Option<u32>,
    scene: &mut Scene,
    copy: impl Fn(&Scene, u64) -> Result<f64, RankError>,
) -> Result<Vec<LinkPoint>, RankError> {
    let mut points = Vec::new();
    // Slots of a worker have one pace: all ranks walk through the same sizes.
    let pace = if to.is_none() { spec.pace.host } else { spec.pace.peer };
    for payload_bytes in spec.work.copied_bytes(pace) {
        copy(scene, payload_bytes)?;
        let mut seconds = Vec::with_capacity(spec.work.repeats as usize);
        for _ in 0..spec.work.repeats {
            // A pace is slower than any memory.
            if pace.is_none() {
                scene.cooling.cool();
            }
            seconds.push(copy(scene, payload_bytes)?);
            progress::tick();
        }
        points.push(LinkPoint { payload_bytes, seconds: typical(&seconds) });
    }
    Ok(points)
}

/// A device's memory, and pools outside it.
#[derive(Debug)]
struct Scene {
    /// What leaves, and what comes back; with what holds it.
    leaves: (Storage, Tensor),
    comes: (Storage, Tensor),
    /// Where what comes back lies in a pool.
    offset: u64,
    /// To and from the host, to and from other ranks.
    host: Ways,
    peers: Ways,
    /// The pool of the host, and those of other ranks.
    pools: BTreeMap<Option<u32>, Arc<Mapping>>,
    clock: Clock,
    /// What others copy into.
    _shared: SharedPools,
    /// What is copied comes from memory, not from a cache, as it does behind a step.
    cooling: Cooling,
}

impl Scene {
    fn new(rank: &mut Rank<'_>, spec: &LinkSpec, largest: u64) -> Result<Self, RankError> {
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
        Ok(Self {
            leaves,
            comes,
            offset: largest,
            pools,
            host: Ways::start("host", spec.pace.host, gpu)?,
            peers: Ways::start("peers", spec.pace.peer, gpu)?,
            _shared: shared,
            clock: rank.clock,
            cooling: Cooling::new(spec.work.devices, gpu.is_some()),
        })
    }

    /// Seconds of a copy each of these ways, all at once.
    fn seconds(&self, to: Option<u32>, bytes: u64, ways: &[Direction]) -> Result<f64, RankError> {
        let pool = self.pools.get(&to).ok_or_else(|| defect("a memory pool is missing"))?;
        let lanes = if to.is_none() { &self.host } else { &self.peers };
        let mut asked = Vec::new();
        for &way in ways {
            let (storage, at) = match way {
                Direction::Out => (&self.leaves.0, 0),
                Direction::Back => (&self.comes.0, self.offset),
            };
            let transfer = Transfer::new(storage, (0, bytes), pool, at, way);
            asked.push((way, transfer.ok_or_else(|| defect("a memory pool is too small"))?));
        }
        let start = self.clock.now()?;
        // All are asked for before any of them is waited for.
        let tickets: Vec<_> = asked
            .into_iter()
            .map(|(way, transfer)| lanes.ask(way, None, vec![transfer]))
            .collect::<Result<_, _>>()?;
        for ticket in tickets {
            ticket.wait()?;
        }
        Ok((self.clock.now()? - start).as_secs_f64())
    }
}
