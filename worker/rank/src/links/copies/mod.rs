//! Copies as memory actions make them: to the host's memory and back, and into the memory of another device.
//!
//! The same lanes copy as in training (`actions/lane.rs`), between the device's capped memory and a pool of the host or of
//! another rank, a slot's at its pace.

mod scene;

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
use scene::Scene;

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
    // Nobody takes away what another one still copies into.
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
