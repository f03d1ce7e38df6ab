//! PipeDream: steps without a flush, and what they do in the long run.

use std::collections::BTreeMap;
use std::ops::Range;

use loadmaster_proto::training::actions::Step;
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::schedule::Pass;

use super::outcome::{DeviceTimes, TimedWait, WaitSeconds, WayTimes};
use super::stage_steps::pass_of;
use super::{
    Copied, CopiesError, CopyPipeline, DeviceSteps, Handover, Keep, Links, Place, StageSteps, TimedCopy,
    TimedStep, Trip, Way, simulate,
};
use crate::Edge;

/// Micro-batches, in multiples of the stages, after which what is done is taken for the long run, and as many that follow.
const FILLING: u32 = 4;
/// How far two stretches of time may be from each other, as a share of them, to be the same.
const SAME: f64 = 1e-9;

/// A stage that updates its weights behind every backward pass, from the first micro-batch on.
#[derive(Debug, Clone, PartialEq)]
pub struct Endless {
    /// What its device does. Turns that fill the pipeline have all their steps, but only forward passes take time.
    pub device: DeviceSteps,
    /// Of each of its steps, what it is.
    pub done: Vec<Done>,
    /// Of each of its trips, which of the stage's it is.
    pub trips: Vec<usize>,
    /// By backward pass: how many steps are done when its update is over.
    updated: Vec<usize>,
}

/// A step of a device that never flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Which of its stage's steps.
    pub step: usize,
    /// The micro-batch, counted from the start of the training, that a pass is of.
    pub micro_batch: Option<u32>,
}

/// What stages do in the long run.
#[derive(Debug, Clone, PartialEq)]
pub struct LongRun {
    /// Between two updates.
    pub seconds_per_micro_batch: f64,
    /// As many micro-batches as were asked for, once the pipeline is full. Trips are those of the stages.
    pub copied: Copied,
    /// By device, what each of its steps there is, if steps are kept.
    pub done: Vec<Vec<Done>>,
}

impl Endless {
    /// Micro-batches that a simulation of so many in the long run needs.
    pub fn simulated(stages: usize, micro_batches: u32) -> u32 {
        let stages = u32::try_from(stages).unwrap_or(u32::MAX);
        micro_batches.saturating_add(stages.saturating_mul(2 * FILLING))
    }

    /// A stage with these trips for so many micro-batches. Its steps, and boundaries of its trips, are those of its turns.
    ///
    /// # Errors
    /// Steps of a stage that flushes.
    pub fn of(stage: &StageSteps<'_>, trips: &[Trip], micro_batches: u32) -> Result<Self, CopiesError> {
        let (all, timed) = (stage.steps.all(), stage.timed()?);
        let turn = stage.steps.turn().filter(|&turn| turn > 0).ok_or(CopiesError::Empty)?;
        let in_flight = stage.steps.slots();
        let mut endless =
            Self { device: DeviceSteps::default(), done: Vec::new(), trips: Vec::new(), updated: Vec::new() };
        // The first turn in which a micro-batch goes forward is the second of as many as are in flight.
        for number in 1..micro_batches.saturating_add(in_flight) {
            let back = number.checked_sub(in_flight);
            let first = (number % in_flight) as usize * turn;
            for (at, (&step, &timed)) in (first..).zip(all.iter().zip(&timed).skip(first).take(turn)) {
                let micro_batch = match pass_of(step) {
                    Some(Pass::Forward(_)) => Some(number - 1).filter(|&of| of < micro_batches),
                    _ => back,
                };
                endless
                    .device
                    .steps
                    .push(micro_batch.map_or_else(TimedStep::default, |of| numbered(timed, of)));
                endless
                    .done
                    .push(Done { step: at, micro_batch: micro_batch.filter(|_| pass_of(step).is_some()) });
            }
            if back.is_some() {
                endless.updated.push(endless.device.steps.len());
            }
        }
        endless.add_trips(trips, turn, all.len());
        Ok(endless)
    }

    /// Trips as often as their blocks leave and are back until the end.
    fn add_trips(&mut self, trips: &[Trip], turn: usize, steps: usize) {
        let all = self.device.steps.len();
        let mut own: Vec<(usize, Trip)> = Vec::new();
        for begin in (0..=all / steps.max(1)).map(|time| time * steps) {
            for (index, trip) in trips.iter().enumerate() {
                // What leaves before the first turn is not there.
                let Some(leaves) = (trip.at.leaves + begin).checked_sub(turn).filter(|&leaves| leaves > 0)
                else {
                    continue;
                };
                let at = trip.at.map(|boundary| boundary - trip.at.leaves + leaves);
                if at.needed < all {
                    own.push((index, Trip { at, parcels: trip.parcels.clone() }));
                }
            }
        }
        own.sort_by_key(|(index, trip)| (trip.at.leaves, *index));
        (self.trips, self.device.trips) = own.into_iter().unzip();
    }
}

/// A step that takes and gives what is of this micro-batch.
fn numbered(step: TimedStep, micro_batch: u32) -> TimedStep {
    let of = |handed: Option<Handover>| handed.map(|handed| Handover { micro_batch, ..handed });
    TimedStep { takes: of(step.takes), gives: of(step.gives), ..step }
}

/// What stages do for so many micro-batches in the long run; `each` says what one takes where that is known.
///
/// # Errors
/// As [`simulate()`], and too few micro-batches.
pub fn long_run(
    stages: &[Endless],
    edges: &[Edge],
    overlap: Overlap,
    links: &Links,
    (micro_batches, each): (u32, Option<f64>),
) -> Result<LongRun, CopiesError> {
    let devices: Vec<DeviceSteps> = stages.iter().map(|stage| stage.device.clone()).collect();
    let stepped = CopyPipeline { devices: &devices, edges, overlap, links };
    let copied = simulate(&stepped, Keep { steps: true, copies: true })?;
    let first = stages.first().zip(copied.devices.first()).ok_or(CopiesError::Empty)?;
    let updates: Option<Vec<f64>> =
        first.0.updated.iter().map(|pass| Some(first.1.steps.get(pass.checked_sub(1)?)?.1)).collect();
    let updates = updates.ok_or(CopiesError::Empty)?;
    // Behind these the pipeline runs dry.
    let full = updates.get(..updates.len().saturating_sub(stages.len())).unwrap_or_default();
    let seconds_per_micro_batch = each.or_else(|| between(full)).ok_or(CopiesError::Empty)?;
    let filled = u32::try_from(stages.len()).unwrap_or(u32::MAX).saturating_mul(FILLING);
    let from = updates.get(filled.saturating_sub(1) as usize).copied().ok_or(CopiesError::Empty)?;
    let seconds = f64::from(micro_batches) * seconds_per_micro_batch;
    let named = |device: u32, trip: u32| {
        let of = stages.get(device as usize).and_then(|stage| stage.trips.get(trip as usize));
        of.map_or(trip, |&of| u32::try_from(of).unwrap_or(u32::MAX))
    };
    let bytes = |copy: &TimedCopy| {
        let trip = devices.get(copy.device as usize).and_then(|device| device.trips.get(copy.trip as usize));
        let goes = |place: Place| if copy.is_back { place.back(copy.device) } else { place.out(copy.device) };
        let parcels = trip.into_iter().flat_map(|trip| &trip.parcels);
        parcels.filter(|parcel| goes(parcel.place) == copy.way).map(|parcel| parcel.bytes).sum()
    };
    let (copied, kept) = cut(copied, from, seconds, named, bytes);
    let of_device = |(stage, kept): (&Endless, std::ops::Range<usize>)| {
        stage.done.get(kept).map_or(Vec::new(), <[Done]>::to_vec)
    };
    let done = stages.iter().zip(kept).map(of_device).collect();
    Ok(LongRun { seconds_per_micro_batch, copied, done })
}

/// Seconds between two updates in the long run: as soon as the same recurs after c of them, their mean over c is exact;
/// otherwise that over the second half. What recurs does so over a quarter of them: of three one after another two
/// may be the same.
fn between(updates: &[f64]) -> Option<f64> {
    let last = updates.len().checked_sub(1)?;
    for recurs in 1..=last / 3 {
        let over = |at: usize| updates[at] - updates[at - recurs];
        let all = over(last);
        let seen = (recurs * 2).max(last / 4);
        if (0..seen).all(|back| (over(last - back) - all).abs() <= SAME * all) {
            return Some(all / recurs as f64);
        }
    }
    let half = last / 2;
    (half < last).then(|| (updates[last] - updates[half]) / (last - half) as f64)
}

impl Done {
    /// A step of a stage that flushes.
    pub fn step(step: usize) -> Self {
        Self { step, micro_batch: None }
    }

    /// The pass that it is part of, with the number of its micro-batch; none of what follows a pass.
    pub fn pass(self, step: Step) -> Option<Pass> {
        let number = self.micro_batch;
        pass_of(step).map(|pass| match pass {
            Pass::Forward(of) => Pass::Forward(number.unwrap_or(of)),
            Pass::Backward(of) => Pass::Backward(number.unwrap_or(of)),
        })
    }
}

/// Returns what happens from a moment on for so long, with trips by other names, and by device which of its steps these
/// are. Ways count what arrives meanwhile; `bytes` returns the bytes of a copy.
pub(super) fn cut(
    copied: Copied,
    from: f64,
    seconds: f64,
    named: impl Fn(u32, u32) -> u32,
    bytes: impl Fn(&TimedCopy) -> u64,
) -> (Copied, Vec<Range<usize>>) {
    let until = from + seconds;
    let within = |start: f64, end: f64| {
        let (start, end) = (start.max(from), end.min(until));
        (start < end).then_some((start - from, end - from))
    };
    let mut waits = Vec::with_capacity(copied.waits.len());
    for wait in copied.waits {
        if let Some((start, end)) = within(wait.start, wait.end) {
            waits.push(TimedWait { start, end, trip: named(wait.device, wait.trip), ..wait });
        }
    }
    let mut kept = Vec::with_capacity(copied.devices.len());
    let mut devices = Vec::with_capacity(copied.devices.len());
    for (device, times) in (0_u32..).zip(copied.devices) {
        // Steps come in order; those that take no time belong to what is around them.
        let begin = times.steps.partition_point(|step| step.1 <= from);
        let end = times.steps.partition_point(|step| step.0 < until).max(begin);
        let of_range = times.steps.get(begin..end).unwrap_or_default();
        let steps: Vec<(f64, f64)> =
            of_range.iter().map(|&(start, end)| (start.max(from) - from, end.min(until) - from)).collect();
        let mut waited = WaitSeconds::default();
        for wait in waits.iter().filter(|wait| wait.device == device) {
            waited.add(wait.is_back, wait.end - wait.start);
        }
        let busy = steps.iter().map(|(start, end)| end - start).sum();
        kept.push(begin..end);
        devices.push(DeviceTimes { end: seconds, busy, waited, steps });
    }
    let mut copies = Vec::with_capacity(copied.copies.len());
    let mut arrived: BTreeMap<Way, (u64, u64)> = BTreeMap::new();
    for mut copy in copied.copies {
        if copy.end <= from || copy.start >= until {
            continue;
        }
        if copy.end <= until {
            let (count, sum) = arrived.entry(copy.way).or_default();
            (*count, *sum) = (*count + 1, sum.saturating_add(bytes(&copy)));
        }
        copy.trip = named(copy.device, copy.trip);
        (copy.asked, copy.start, copy.end) = (copy.asked - from, copy.start - from, copy.end - from);
        copies.push(copy);
    }
    let of_way = |way: WayTimes| {
        let own = copies.iter().filter(|copy| copy.way == way.way);
        let mut waited = WaitSeconds::default();
        waits
            .iter()
            .filter(|wait| wait.way == way.way)
            .for_each(|wait| waited.add(wait.is_back, wait.end - wait.start));
        let (count, bytes) = arrived.get(&way.way).copied().unwrap_or_default();
        WayTimes {
            way: way.way,
            copies: count,
            bytes,
            busy: own.map(|copy| copy.end.min(seconds) - copy.start.max(0.0)).sum(),
            waited,
        }
    };
    let ways = copied.ways.into_iter().map(of_way).collect();
    let copied =
        Copied { iteration_seconds: seconds, iterations: 1, is_steady: true, devices, ways, copies, waits };
    (copied, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What recurs after three updates is no shorter cycle because two of them are alike, wherever the last one is.
    #[test]
    fn a_cycle_is_seen_as_a_whole() {
        let cycle = [5.0, 5.0, 4.75];
        for count in 30..40 {
            let mut updates = vec![0.0];
            updates.extend((0..count).scan(0.0, |at, index| {
                *at += cycle[index % 3];
                Some(*at)
            }));
            let found = between(&updates).unwrap();
            assert!((found - 14.75 / 3.0).abs() < 1e-9, "{count}: {found}");
        }
    }
}
