//! What is at work, and how far it has come.

use super::concurrent_copies::WayTable;
use super::lanes::{ParcelCopy, What};
use super::max_min_fair::{Flow, Want};
use super::tables::DeviceTable;

/// Moments less than this share apart are the same: layers are alike, so that copies often end with a step, and rounding must not have
/// them wait for what that step begins.
const SAME_MOMENT: f64 = 1e-12;

/// What is at work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'t> {
    pub(super) work: Work,
    /// Of a copy: its way, and the most that this leaves it, which it may share.
    pub(super) way: u32,
    pub(super) flow: Flow<'t>,
    pub(super) began: f64,
    /// What was left to do at a moment, at which speed it is done since, and when that ends.
    pub(super) left: f64,
    pub(super) since: f64,
    pub(super) speed: f64,
    pub(super) end: f64,
    /// Of a copy: the speed that its way leaves it.
    pub(super) fair: f64,
    /// On CPU slots: their node, and what of its cores this takes at that speed.
    pub(super) node: Option<u32>,
    pub(super) want: Want,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// A copy before its first byte.
    Latency(ParcelCopy),
    /// A copy: bytes.
    Copy(ParcelCopy),
    /// A step of a CPU slot: seconds of a core.
    Step { device: u32 },
}

/// How far something is that has been asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing has come of it yet.
    Pending,
    /// A copy behind others.
    Queued,
    /// A copy before its first byte.
    Latency,
    /// At work.
    Working,
}

impl<'t> Job<'t> {
    pub(super) fn new(work: Work, left: f64, now: f64) -> Self {
        // Of no speed yet: its component says how fast.
        let want = Want { of_slot: 0.0, slots: 1.0 };
        Self {
            work,
            way: 0,
            flow: Flow { most: 0.0, groups: &[] },
            began: now,
            left,
            since: now,
            speed: 0.0,
            end: f64::INFINITY,
            fair: 1.0,
            node: None,
            want,
        }
    }

    /// What it comes of, and how far it is.
    pub(super) fn phase(&self) -> (Phase, What) {
        match self.work {
            Work::Latency(copy) => (Phase::Latency, What::asks(copy)),
            Work::Copy(copy) => (Phase::Working, What::asks(copy)),
            Work::Step { .. } => (Phase::Working, What::Step),
        }
    }

    /// Seconds until it ends, at its speed of now. A copy that stands still has no end: what it has left differs all the same,
    /// and counts by the seconds of its way alone.
    pub(super) fn seconds_left(&self, ways: &[WayTable], now: f64) -> f64 {
        if self.end < f64::INFINITY {
            return self.end - now;
        }
        self.left / ways[self.way as usize].bytes_per_second
    }

    pub(super) fn is_copy(&self) -> bool {
        matches!(self.work, Work::Copy(_))
    }

    /// Whether it is a copy that shares a rate with others.
    pub(super) fn shares(&self) -> bool {
        !self.flow.groups.is_empty()
    }

    /// A copy whose first byte goes over its way, which leaves it so much.
    pub(super) fn over(self, number: u32, way: &'t WayTable, left: f64) -> Self {
        let flow = Flow { most: left, groups: &way.groups };
        let mut job = Self { way: number, flow, ..self };
        job.gets(left, way);
        job
    }

    /// The same of a device.
    pub(super) fn on(self, table: &DeviceTable) -> Self {
        let node = table.node.map(|(node, _)| node);
        Self { node, want: Want { slots: table.slots, ..self.want }, ..self }
    }

    /// Its way leaves it so many bytes a second.
    pub(super) fn gets(&mut self, rate: f64, way: &WayTable) {
        if rate != self.fair || self.speed == 0.0 {
            self.fair = rate;
            if self.node.is_some() {
                self.want.of_slot = way.core_share * rate / way.bytes_per_second;
            }
        }
    }

    /// Does it at this speed from now on; when it ends then.
    pub(super) fn goes_at(&mut self, speed: f64, now: f64) -> f64 {
        if speed != self.speed {
            let left = self.left - (now - self.since) * self.speed;
            self.left = if left <= self.speed * now * SAME_MOMENT { 0.0 } else { left };
            (self.since, self.speed) = (now, speed);
            self.end = if self.left <= 0.0 {
                now
            } else if speed > 0.0 {
                now + self.left / speed
            } else {
                f64::INFINITY
            };
        }
        self.end
    }
}

/// The speed of jobs of which each slot gets so much of a core at most.
pub(super) struct Slowed {
    level: f64,
    /// What the last of them wanted, and which part of it it gets: most want the same.
    want: f64,
    part: f64,
}

impl Slowed {
    pub(super) fn to(level: f64) -> Self {
        Self { level, want: f64::NAN, part: f64::NAN }
    }

    pub(super) fn speed(&mut self, job: &Job<'_>) -> f64 {
        let want = job.want.of_slot;
        if want <= self.level {
            return job.fair;
        }
        if want != self.want {
            (self.want, self.part) = (want, self.level / want);
        }
        job.fair * self.part
    }
}

/// How many times as long as alone each of so many steps takes on these cores.
pub(super) fn crowded(steps: f64, cores: f64, ratio: f64) -> f64 {
    let others = (steps.min(cores) - 1.0).max(0.0);
    if others > 0.0 { 1.0 + (ratio - 1.0) * others / (cores - 1.0) } else { 1.0 }
}
