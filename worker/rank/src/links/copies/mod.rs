//! Copies as memory actions make them: to the host's memory and back, and into the memory of another device.
//!
//! On CPU slots the same threads copy as in training (`actions/lane.rs`), between the slot's capped memory and a pool of
//! the host or of another rank, at the slot's pace. On CUDA a pinned pool of the host stands for it; copies into another
//! GPU, and both ways at once, need what is not there yet: streams of their own and memory shared between processes.

mod gpu;
mod slot;

use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::links::copies::{
    CopyMeasurement, CopySpeeds, CopyWay, DeviceCopies, PairCopies,
};
use loadmaster_proto::measure::links::{LinkPoint, LinkWork};
use loadmaster_proto::measure::rank::LinkSpec;

use super::{Rank, typical};
use crate::error::RankError;
use crate::ffi::Direction;
use crate::progress;
use crate::tape::defect;
use gpu::Gpu;
use slot::Slot;

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

const OUT: &[Direction] = &[Direction::Out];
const BACK: &[Direction] = &[Direction::Back];
const BOTH: &[Direction] = &[Direction::Out, Direction::Back];

impl Copier {
    /// What comes next is copied as if it had not been touched for long.
    fn cool(&mut self) {
        if let Self::Slot(slot) = self {
            slot.cool();
        }
    }

    /// Seconds of one copy each of these ways, to the host or to another rank.
    fn seconds(&self, to: Option<u32>, bytes: u64, ways: &[Direction]) -> Result<f64, RankError> {
        match self {
            Self::Slot(slot) => slot.seconds(to, bytes, ways),
            Self::Gpu(gpu) => gpu.seconds(bytes, ways),
        }
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
    let mut way = |ways: &[Direction]| {
        let points = points(spec, to, copier, |copier, bytes| copier.seconds(to, bytes, ways))?;
        Ok::<_, RankError>(CopyWay::new(points, u32::try_from(ways.len()).unwrap_or(u32::MAX))?)
    };
    Ok(CopySpeeds { out: way(OUT)?, back: way(BACK)?, both: if can_both { Some(way(BOTH)?) } else { None } })
}

/// One way, while all ranks do the same.
fn while_all_do(
    rank: &Rank<'_>,
    spec: &LinkSpec,
    copier: &mut Copier,
    (to, ways): (Option<u32>, &[Direction]),
) -> Result<CopyWay, RankError> {
    let points = points(spec, to, copier, |copier, bytes| {
        rank.mesh.wait_for_all()?;
        copier.seconds(to, bytes, ways)
    })?;
    progress::pass_done();
    Ok(CopyWay::new(points, 1)?)
}

/// Median seconds of a copy of each size, the first one of a size not counted.
fn points(
    spec: &LinkSpec,
    to: Option<u32>,
    copier: &mut Copier,
    copy: impl Fn(&Copier, u64) -> Result<f64, RankError>,
) -> Result<Vec<LinkPoint>, RankError> {
    let mut points = Vec::new();
    // Slots of a worker have one pace: all ranks walk through the same sizes.
    let pace = if to.is_none() { spec.pace.host } else { spec.pace.peer };
    for payload_bytes in spec.work.copied_bytes(pace) {
        copy(copier, payload_bytes)?;
        let mut seconds = Vec::with_capacity(spec.work.repeats as usize);
        for _ in 0..spec.work.repeats {
            // A pace is slower than any memory.
            if pace.is_none() {
                copier.cool();
            }
            seconds.push(copy(copier, payload_bytes)?);
            progress::tick();
        }
        points.push(LinkPoint { payload_bytes, seconds: typical(&seconds) });
    }
    Ok(points)
}
