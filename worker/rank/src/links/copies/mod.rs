//! Copies as memory actions make them: to the host's memory and back, and into the memory of another device.
//!
//! On CPU slots the same threads copy as in training (`actions/lane.rs`), between the slot's capped memory and a pool of
//! the host or of another rank, at the slot's pace. On CUDA a pinned pool of the host stands for it; copies into another
//! GPU, and both ways at once, need what is not there yet: streams of their own and memory shared between processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::links::copies::{
    CopyMeasurement, CopySpeeds, CopyWay, DeviceCopies, PairCopies,
};
use loadmaster_proto::measure::links::{LinkPoint, LinkWork};
use loadmaster_proto::measure::rank::LinkSpec;
use tch::{Device, Kind, Tensor};

use super::{Rank, typical};
use crate::actions::lane::Lane;
use crate::error::RankError;
use crate::ffi::{Direction, Mapping, Storage, Transfer};
use crate::peers::Address;
use crate::progress;
use crate::tape::defect;
use crate::tensor::Form;
use crate::timing::Clock;
use crate::transport::SharedPools;

/// Copies that are asked for at once where others copy, too: one that has to itself what the others do not use yet is few
/// among them.
const BURST: u32 = 4;

/// How many passes of progress this is.
pub(super) fn passes(work: &LinkWork, backend: Backend) -> usize {
    let devices = work.devices as usize;
    match backend {
        Backend::Cpu => devices + 3 + work.pairs().count(),
        Backend::Cuda => devices + 2,
    }
}

/// What a rank copies with.
enum Copier {
    Slot(Box<Slot>),
    Gpu(Gpu),
}

/// Which ways at once, and how often each.
type Ways<'a> = (&'a [Direction], u32);

const OUT: &[Direction] = &[Direction::Out];
const BACK: &[Direction] = &[Direction::Back];
const BOTH: &[Direction] = &[Direction::Out, Direction::Back];

impl Copier {
    /// Seconds of one copy each of these ways, to the host or to another rank.
    fn seconds(&mut self, to: Option<u32>, bytes: u64, ways: Ways<'_>) -> Result<f64, RankError> {
        match self {
            Self::Slot(slot) => slot.seconds(to, bytes, ways),
            Self::Gpu(gpu) => gpu.seconds(bytes, ways),
        }
    }
}

/// A CPU slot's memory, and pools outside it.
struct Slot {
    /// What leaves, and what comes back; with what holds it.
    leaves: (Storage, Tensor),
    comes: (Storage, Tensor),
    /// Where what comes back lies in a pool.
    offset: u64,
    /// The pool of the host, and those of other ranks.
    pools: BTreeMap<Option<u32>, Arc<Mapping>>,
    /// To and from the host, to and from other ranks.
    host: [Lane; 2],
    peers: [Lane; 2],
    /// What others copy into.
    _shared: SharedPools,
}

impl Slot {
    fn new(rank: &mut Rank<'_>, spec: &LinkSpec, largest: u64) -> Result<Self, RankError> {
        let Form { kind, shape } = Form::of_bytes(largest);
        // Every page is one of its own, as those of blocks are.
        let tensor = || -> Result<(Storage, Tensor), RankError> {
            let tensor = Tensor::f_ones(shape.as_slice(), (kind, Device::Cpu))?;
            Ok((Storage::of(&tensor)?, tensor))
        };
        let (leaves, comes) = (tensor()?, tensor()?);
        let both = largest.saturating_mul(2);
        let patience = Duration::try_from_secs_f64(spec.neighbour_timeout_seconds).unwrap_or_default();
        let own = Address { stage: 0, shard: spec.index };
        let shared = SharedPools::exchange(rank.mesh.pool_streams(), own, both, Instant::now() + patience)?;
        let host = Mapping::made(both).map_err(|error| {
            RankError::Other(format!("cannot make a pool of {both} bytes in the host's memory: {error}"))
        })?;
        let mut pools = BTreeMap::from([(None, Arc::new(host))]);
        pools.extend(shared.others.iter().map(|(peer, memory)| (Some(peer.shard), memory.clone())));
        let lanes = |place: &str, pace: Option<f64>| -> Result<[Lane; 2], RankError> {
            Ok([Lane::start(format!("to {place}"), pace)?, Lane::start(format!("from {place}"), pace)?])
        };
        Ok(Self {
            leaves,
            comes,
            offset: largest,
            pools,
            host: lanes("host", spec.pace.host)?,
            peers: lanes("peers", spec.pace.peer)?,
            _shared: shared,
        })
    }

    fn seconds(&self, to: Option<u32>, bytes: u64, (ways, times): Ways<'_>) -> Result<f64, RankError> {
        let pool = self.pools.get(&to).ok_or_else(|| defect("a pool is missing"))?;
        let lanes = if to.is_none() { &self.host } else { &self.peers };
        let mut asked = Vec::new();
        for _ in 0..times {
            for &way in ways {
                let (lane, storage, at) = match way {
                    Direction::Out => (&lanes[0], &self.leaves.0, 0),
                    Direction::Back => (&lanes[1], &self.comes.0, self.offset),
                };
                let transfer = Transfer::new(storage, (0, bytes), pool, at, way);
                asked.push((lane, transfer.ok_or_else(|| defect("a pool is too small"))?));
            }
        }
        let start = Instant::now();
        let tickets: Vec<_> = asked.into_iter().map(|(lane, transfer)| lane.ask(vec![transfer])).collect();
        tickets.iter().try_for_each(|ticket| ticket.wait())?;
        Ok(start.elapsed().as_secs_f64() / f64::from(times.max(1)))
    }
}

/// A GPU's memory, and pinned memory of the host.
struct Gpu {
    device: Tensor,
    pinned: Tensor,
    clock: Clock,
}

impl Gpu {
    fn new(device: Device, clock: Clock, largest: u64) -> Result<Self, RankError> {
        let Form { kind, shape } = Form::of_bytes(largest);
        let on_device = Tensor::f_ones(shape.as_slice(), (kind, device))?;
        let pinned = Tensor::f_ones(shape.as_slice(), (kind, Device::Cpu))?.f_pin_memory(device)?;
        Ok(Self { device: on_device, pinned, clock })
    }

    fn seconds(&self, bytes: u64, (ways, times): Ways<'_>) -> Result<f64, RankError> {
        let scalars = i64::try_from(bytes / Kind::Float.elt_size_in_bytes() as u64).unwrap_or(i64::MAX);
        let part = |of: &Tensor| of.f_narrow(0, 0, scalars);
        let (device, pinned) = (part(&self.device)?, part(&self.pinned)?);
        let start = self.clock.now()?;
        for _ in 0..times {
            for way in ways {
                let (mut to, from) = match way {
                    Direction::Out => (pinned.shallow_clone(), &device),
                    Direction::Back => (device.shallow_clone(), &pinned),
                };
                to.f_copy_(from)?;
            }
        }
        Ok((self.clock.now()? - start).as_secs_f64() / f64::from(times.max(1)))
    }
}

/// Copies of this rank, and of the pairs whose earlier member it is. Others wait meanwhile, but for where all copy at once.
pub(super) fn measure(rank: &mut Rank<'_>, spec: &LinkSpec) -> Result<CopyMeasurement, RankError> {
    let largest = spec.work.copied_bytes(None).last().copied().unwrap_or_default();
    let mut copier = match spec.device.backend {
        Backend::Cpu => Copier::Slot(Box::new(Slot::new(rank, spec, largest)?)),
        Backend::Cuda => Copier::Gpu(Gpu::new(rank.device, rank.clock, largest)?),
    };
    let is_slot = spec.device.backend == Backend::Cpu;
    let mut host = None;
    for device in 0..spec.work.devices {
        rank.mesh.wait_for_all()?;
        if device == spec.index {
            host = Some(speeds(spec, &mut copier, None, is_slot)?);
        }
        progress::pass_done();
    }
    let all_out = while_all_do(rank, spec, &mut copier, (None, OUT))?;
    let all_back = while_all_do(rank, spec, &mut copier, (None, BACK))?;
    let mut measured = CopyMeasurement::default();
    let mut all_next = None;
    if is_slot {
        for (first, second) in spec.work.pairs() {
            rank.mesh.wait_for_all()?;
            if first == spec.index {
                let copies = speeds(spec, &mut copier, Some(second), true)?;
                measured.pairs.push(PairCopies { first, second, copies });
            }
            progress::pass_done();
        }
        let next = (spec.index + 1) % spec.work.devices;
        all_next = Some(while_all_do(rank, spec, &mut copier, (Some(next), OUT))?);
    }
    // Nobody takes away what another one still copies into.
    rank.mesh.wait_for_all()?;
    let host = host.ok_or_else(|| defect("a rank is not among the devices"))?;
    measured.devices.push(DeviceCopies { device: spec.index, host, all_out, all_back, all_next });
    Ok(measured)
}

/// Alone: out, back, and both at once where that can be.
fn speeds(
    spec: &LinkSpec,
    copier: &mut Copier,
    to: Option<u32>,
    can_both: bool,
) -> Result<CopySpeeds, RankError> {
    let mut way = |ways: &[Direction], times: u32| {
        let points = points(spec, to, |bytes| copier.seconds(to, bytes, (ways, times)))?;
        Ok::<_, RankError>(CopyWay::new(points, u32::try_from(ways.len()).unwrap_or(u32::MAX))?)
    };
    Ok(CopySpeeds {
        out: way(OUT, 1)?,
        back: way(BACK, 1)?,
        both: if can_both { Some(way(BOTH, BURST)?) } else { None },
    })
}

/// One way, while all ranks do the same.
fn while_all_do(
    rank: &Rank<'_>,
    spec: &LinkSpec,
    copier: &mut Copier,
    (to, ways): (Option<u32>, &[Direction]),
) -> Result<CopyWay, RankError> {
    let points = points(spec, to, |bytes| {
        rank.mesh.wait_for_all()?;
        copier.seconds(to, bytes, (ways, BURST))
    })?;
    progress::pass_done();
    Ok(CopyWay::new(points, 1)?)
}

/// Median seconds of a copy of each size, the first one of a size not counted.
fn points(
    spec: &LinkSpec,
    to: Option<u32>,
    mut copy: impl FnMut(u64) -> Result<f64, RankError>,
) -> Result<Vec<LinkPoint>, RankError> {
    let mut points = Vec::new();
    // Slots of a worker have one pace: all ranks walk through the same sizes.
    let pace = if to.is_none() { spec.pace.host } else { spec.pace.peer };
    for payload_bytes in spec.work.copied_bytes(pace) {
        copy(payload_bytes)?;
        let mut seconds = Vec::with_capacity(spec.work.repeats as usize);
        for _ in 0..spec.work.repeats {
            seconds.push(copy(payload_bytes)?);
            progress::tick();
        }
        points.push(LinkPoint { payload_bytes, seconds: typical(&seconds) });
    }
    Ok(points)
}
