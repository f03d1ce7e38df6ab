//! When each copy begins and ends.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::event_loop::CopyEventLoop;
use super::tables::BoundaryEvent;
use super::{TimedCopy, WaitSeconds};

/// A way while copies go over it.
#[derive(Debug, Default)]
pub(super) struct CopyLane {
    /// Until when it copies, where its speed never changes.
    pub(super) free: f64,
    /// Where it may: whether it copies, and what has been asked for meanwhile.
    pub(super) is_taken: bool,
    pub(super) queue: VecDeque<ParcelCopy>,
    pub(super) copies: u64,
    pub(super) bytes: u64,
    pub(super) busy: f64,
    pub(super) waited: WaitSeconds,
}

/// A copy that a boundary asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParcelCopy {
    /// The number of its parcel.
    pub(super) parcel: u32,
    pub(super) is_back: bool,
    pub(super) asked: f64,
}

/// Something that begins, or a transfer that ends, and may change the speed of something else.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    at: f64,
    device: u32,
    number: u64,
    pub(super) what: What,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Activations are over with a route.
    Crossed {
        route: u32,
    },
    /// Activations begin to go over a route.
    Crosses {
        route: u32,
    },
    /// A boundary asks for a copy out, or back.
    Leaves {
        parcel: u32,
    },
    Returns {
        parcel: u32,
    },
    /// The device of the event begins its step.
    Step,
}

impl CopyLane {
    /// Forgets what was counted.
    pub(super) fn forget(&mut self) {
        (self.copies, self.bytes, self.busy, self.waited) = (0, 0, 0.0, WaitSeconds::default());
    }

    /// Counts a copy that is asked for.
    fn count(&mut self, bytes: u64) {
        self.copies += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl CopyEventLoop<'_> {
    /// Asks for copies of all parcels of trips.
    pub(super) fn ask(&mut self, device: usize, due: &[BoundaryEvent], is_back: bool, now: f64) {
        let tables = self.tables;
        let direction = usize::from(is_back);
        for &BoundaryEvent { trip, is_of_last } in due {
            if is_of_last && self.iteration == 0 {
                continue;
            }
            let underway = &mut self.trips[trip as usize];
            (underway.pending[direction], underway.end[direction]) = (0, now);
            for (parcel, of) in tables.parcels_of(trip) {
                let to = tables.place(of).way(is_back);
                let way = &tables.ways[to as usize];
                let lane = &mut self.lanes[to as usize];
                lane.count(of.bytes);
                if way.component.is_some() {
                    self.trips[trip as usize].pending[direction] += 1;
                    let what = What::asks(ParcelCopy { parcel, is_back, asked: now });
                    self.happens_at(now, device as u32, what);
                    continue;
                }
                let start = lane.free.max(now);
                let end = start + (way.latency_seconds + of.bytes as f64 / way.bytes_per_second);
                lane.free = end;
                self.ends(ParcelCopy { parcel, is_back, asked: now }, (trip, to), start, end);
            }
        }
    }

    /// Notes that a copy of a trip over a way ends at a known moment.
    #[inline]
    pub(super) fn ends(&mut self, copy: ParcelCopy, (trip, way): (u32, u32), start: f64, end: f64) {
        self.lanes[way as usize].busy += end - start;
        let direction = usize::from(copy.is_back);
        let underway = &mut self.trips[trip as usize];
        if end >= underway.end[direction] {
            (underway.end[direction], underway.slowest[direction]) = (end, way);
        }
        if self.keep.copies {
            let ParcelCopy { is_back, asked, .. } = copy;
            let (_, device, _) = self.tables.parcel(copy);
            let trip = trip - self.tables.devices[device as usize].first_trip;
            let way = self.tables.ways[way as usize].way;
            self.copies.push(TimedCopy { device, trip, way, is_back, asked, start, end });
        }
    }

    /// Has something happen when all that comes before it has.
    pub(super) fn happens_at(&mut self, at: f64, device: u32, what: What) {
        self.asked += 1;
        self.events.push(Event { at, device, number: self.asked, what });
    }

    pub(super) fn happen(&mut self, event: Event) {
        let Event { at, device, what, .. } = event;
        match what {
            What::Crossed { route } => self.transit(route, false, at),
            What::Crosses { route } => self.transit(route, true, at),
            What::Leaves { parcel } => self.asked_for(ParcelCopy { parcel, is_back: false, asked: at }),
            What::Returns { parcel } => self.asked_for(ParcelCopy { parcel, is_back: true, asked: at }),
            What::Step => self.begin_step(device, at),
        }
    }
}

impl What {
    /// A boundary asks for a copy.
    pub(super) fn asks(ParcelCopy { parcel, is_back, .. }: ParcelCopy) -> Self {
        if is_back { Self::Returns { parcel } } else { Self::Leaves { parcel } }
    }

    /// What ends comes before what begins at the same moment.
    fn rank(&self) -> u8 {
        match self {
            Self::Crossed { .. } => 0,
            Self::Crosses { .. } => 1,
            Self::Leaves { .. } | Self::Returns { .. } => 2,
            Self::Step => 3,
        }
    }
}

impl Event {
    /// When it happens.
    pub(super) fn at(&self) -> f64 {
        self.at
    }
}

impl Ord for Event {
    /// The earliest is the greatest, as a heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        let ranks = (other.what.rank(), other.device, other.number);
        other.at.total_cmp(&self.at).then_with(|| ranks.cmp(&(self.what.rank(), self.device, self.number)))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}
