//! An iteration as lanes: of passes, and of copies.

use loadmaster_proto::training::actions::Absence;

use super::IterationTimeline;
use loadmaster_predict::Away;
use loadmaster_simulate::copies::{Copied, LaneOf, Shown, TimedWait, WayTimes};
use loadmaster_simulate::{Lane, TimedPass};

/// What goes over a way.
#[derive(Debug)]
pub struct CopyLane<'a> {
    /// Which one, and how much in all.
    pub times: WayTimes,
    /// Its copies in order, none of which overlap.
    pub copies: Vec<LaneCopy<'a>>,
}

/// A block, or a stripe of it, on its way.
#[derive(Debug)]
pub struct LaneCopy<'a> {
    /// Whose it is.
    pub stage: u32,
    /// Whether it comes back.
    pub is_back: bool,
    /// What it is.
    pub absence: &'a Absence,
    /// How much of it goes this way.
    pub bytes: u64,
    /// Seconds since the start of the iteration.
    pub start: f64,
    pub end: f64,
}

impl IterationTimeline {
    /// What a stage's devices do: a pass is from the start of its first step to the end of its last one.
    pub fn lane(&self, stage: usize) -> Option<Lane> {
        let (acted, times) = (self.acted.get(stage)?, self.copied.devices.get(stage)?);
        let flushes = acted.steps.turn().is_none();
        let mut lane = Lane { passes: Vec::new(), step: None, busy: times.busy };
        for (done, &(start, end)) in self.done.get(stage)?.iter().zip(&times.steps) {
            let Some(pass) = done.pass(*acted.steps.all().get(done.step)?) else {
                // Updates behind every backward pass are no end of anything.
                if flushes {
                    lane.step = Some((lane.step.map_or(start, |(start, _)| start), end));
                }
                continue;
            };
            match lane.passes.last_mut().filter(|last| last.pass == pass) {
                Some(last) => last.end = end,
                None => {
                    lane.passes.push(TimedPass { stage: u32::try_from(stage).ok()?, pass, start, end });
                }
            }
        }
        Some(lane)
    }

    /// When a stage's devices wait for copies, in order.
    pub fn waits(&self, stage: usize) -> impl Iterator<Item = &TimedWait> {
        self.copied.waits.iter().filter(move |wait| wait.device as usize == stage)
    }

    /// All ways that copies use.
    pub fn ways(&self) -> Vec<CopyLane<'_>> {
        ways_of(&self.copied, |device, trip, place| {
            let away = self.acted.get(device as usize)?.away.get(trip as usize)?;
            Some((device, &away.absence, part(away, place)))
        })
    }
}

/// All ways that copies use. Of a trip of a device, and the device at the far end of its way, `of_trip` tells the stage, why it
/// is away, and its bytes there.
pub(super) fn ways_of<'a>(
    copied: &Copied,
    of_trip: impl Fn(u32, u32, Option<u32>) -> Option<(u32, &'a Absence, u64)>,
) -> Vec<CopyLane<'a>> {
    let mut ways = Vec::new();
    for lane in copied.lanes() {
        let LaneOf::Way(way) = lane.of else { continue };
        let Some(times) = copied.ways.iter().find(|times| times.way == way) else { continue };
        let copies = lane.spans.iter().filter_map(|span| {
            let Shown::Copy { device, trip, is_back } = span.what else { return None };
            let (from, to) = way.ends();
            let (stage, absence, bytes) = of_trip(device, trip, if is_back { from } else { to })?;
            Some(LaneCopy { stage, is_back, absence, bytes, start: span.start, end: span.end })
        });
        ways.push(CopyLane { times: *times, copies: copies.collect() });
    }
    ways
}

/// What of a block is with a stage, or with the host.
fn part(away: &Away, place: Option<u32>) -> u64 {
    let stripes = away.stripes.iter().filter(|(stage, _)| Some(*stage) == place);
    if away.stripes.is_empty() { away.bytes } else { stripes.map(|(_, bytes)| bytes).sum() }
}
