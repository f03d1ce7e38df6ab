//! How long an iteration takes, and in the long run.

use super::event_loop::{CopyEventLoop, TripProgress};
use super::jobs::Phase;
use super::lanes::What;
use super::outcome::{Copied, WayTimes};
use super::tables::Tables;
use super::{CopiesError, CopyPipeline};

/// Most iterations that are simulated until one repeats the one before.
pub const MOST_ITERATIONS: u32 = 12;
/// How far the last iteration may be from the one before, as a share of it, to be the same.
const SAME: f64 = 1e-9;

/// What to keep besides sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// Start and end of each step.
    pub steps: bool,
    /// Each copy, and each time that a device waits for one.
    pub copies: bool,
}

/// Simulates an iteration; where blocks stay away from one to the next, one of the long run.
///
/// # Errors
/// Numbers that make no pipeline; the text names them.
pub fn simulate(stepped: &CopyPipeline<'_>, keep: Keep) -> Result<Copied, CopiesError> {
    let copied = simulated(stepped, keep, None)?;
    copied.ok_or(CopiesError::Empty)
}

/// How long an iteration may take for anybody to care.
#[derive(Debug, Clone, Copy)]
pub struct Limit<'a> {
    /// Of an iteration.
    pub seconds: f64,
    /// By device: seconds between its last step and the end of the iteration, at least.
    pub after: &'a [f64],
}

/// The same with sums alone; none as soon as it is sure that the iteration takes longer than the limit. Where blocks stay away
/// from one iteration to the next, nothing that is shared may let a later one be shorter than the first: then it is
/// simulated to its end.
///
/// # Errors
/// As there.
pub fn simulate_within(stepped: &CopyPipeline<'_>, limit: Limit<'_>) -> Result<Option<Copied>, CopiesError> {
    simulated(stepped, Keep::default(), Some(limit))
}

fn simulated(
    stepped: &CopyPipeline<'_>,
    keep: Keep,
    limit: Option<Limit<'_>>,
) -> Result<Option<Copied>, CopiesError> {
    let tables = Tables::of(*stepped)?;
    let limit = limit.filter(|_| !tables.is_cyclic || tables.components == 0);
    let mut walk = CopyEventLoop::new(&tables, keep, limit);
    let (mut now, mut seconds) = (0.0, Vec::new());
    let mut before: Option<Left> = None;
    let mut is_steady = !tables.is_cyclic;
    for iteration in 0..if tables.is_cyclic { MOST_ITERATIONS } else { 1 } {
        walk.begin(iteration, now);
        let Some(end) = walk.go()? else { return Ok(None) };
        seconds.push(end - now);
        now = end;
        if tables.is_cyclic {
            let left = walk.left(end);
            is_steady = before.is_some_and(|before| before.is_as(&left, end - walk.began));
            if is_steady {
                break;
            }
            before = Some(left);
        }
    }
    let last = seconds.last().copied().unwrap_or(0.0);
    let half = &seconds[seconds.len() / 2..];
    let iteration_seconds = if is_steady { last } else { half.iter().sum::<f64>() / half.len() as f64 };
    let iterations = seconds.len() as u32;
    Ok(Some(Copied { iteration_seconds, iterations, is_steady, ..walk.outcome(now) }))
}

/// What an iteration leaves to the next one.
#[derive(Debug)]
struct Left {
    /// When devices ended, from its start. From its end: until when ways are taken and trips under way, what copies at work
    /// have left, and when what is pending happens.
    seconds: Vec<f64>,
    /// What has been asked for and is not over, and how far it is.
    ongoing: Vec<(Phase, What)>,
}

impl Left {
    /// Whether two iterations that take so many seconds leave the same.
    fn is_as(&self, other: &Self, seconds: f64) -> bool {
        let is_near = |(one, other): (&f64, &f64)| (one - other).abs() <= SAME * seconds;
        self.ongoing == other.ongoing && self.seconds.iter().zip(&other.seconds).all(is_near)
    }
}

impl CopyEventLoop<'_> {
    /// What an iteration leaves, once all has happened that does before its end: no one need have waited for that.
    fn left(&mut self, end: f64) -> Left {
        while self.happen_next_before(end) {}
        let mut seconds: Vec<f64> = self.devices.iter().map(|device| device.time - self.began).collect();
        seconds.extend(self.lanes.iter().map(|lane| (lane.free - end).max(0.0)));
        let known = |underway: &TripProgress| underway.end.map(|at| (at - end).max(0.0));
        seconds.extend(self.trips.iter().flat_map(known));
        let (mut ongoing, until_done): (Vec<_>, Vec<f64>) = self.at_work(end).unzip();
        seconds.extend(until_done);
        let queued = self.lanes.iter().flat_map(|lane| &lane.queue);
        ongoing.extend(queued.map(|&copy| (Phase::Queued, What::asks(copy))));
        for (what, at) in self.pending() {
            ongoing.push((Phase::Pending, what));
            seconds.push(at - end);
        }
        Left { seconds, ongoing }
    }

    /// What came of the last iteration.
    fn outcome(mut self, end: f64) -> Copied {
        if self.keep.copies {
            // Those that are still on their way end, too.
            while self.happen_next() {}
        }
        let began = self.began;
        let mut devices: Vec<_> = self.devices.into_iter().map(|of| (of.time, of.times)).collect();
        for (time, times) in &mut devices {
            times.end = *time - began;
            times.steps.iter_mut().for_each(|(start, end)| {
                *start -= began;
                *end -= began;
            });
        }
        let of_way =
            |(lane, table): (&super::lanes::CopyLane, &super::concurrent_copies::WayTable)| WayTimes {
                way: table.way,
                copies: lane.copies,
                bytes: lane.bytes,
                busy: lane.busy,
                waited: lane.waited,
            };
        let mut copies = self.copies;
        copies.retain(|copy| copy.start < end && copy.end > began);
        for copy in &mut copies {
            copy.asked -= began;
            copy.start -= began;
            copy.end -= began;
        }
        copies.sort_by(|one, other| {
            (one.device, one.trip).cmp(&(other.device, other.trip)).then(one.start.total_cmp(&other.start))
        });
        let mut waits = self.waits;
        for wait in &mut waits {
            wait.start -= began;
            wait.end -= began;
        }
        Copied {
            devices: devices.into_iter().map(|(_, times)| times).collect(),
            ways: self.lanes.iter().zip(&self.tables.ways).map(of_way).collect(),
            copies,
            waits,
            ..Copied::default()
        }
    }
}
