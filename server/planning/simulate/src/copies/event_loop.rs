//! When each step starts, and when its output arrives at the next stage.
//!
//! Each device goes on until it waits for what is not known yet: what another one hands over, a copy whose speed may
//! change, or its own step where cores are shared. What is known is looked at first; then the earliest event is, and
//! nothing that comes later can change what happens before it.

use std::collections::BinaryHeap;

use loadmaster_proto::training::boundaries::BoundaryAct;

use super::lanes::{CopyLane, Event, What};
use super::sharing::{Component, Scratch, Taken};
use super::simulate::{Keep, Limit};
use super::tables::{BoundaryEvent, Tables};
use super::{CopiesError, DeviceSteps, DeviceTimes, Handover, TimedCopy, TimedWait};
use crate::Overlap;

/// An iteration in progress.
pub(super) struct CopyEventLoop<'t> {
    pub(super) tables: &'t Tables<'t>,
    pub(super) keep: Keep,
    pub(super) devices: Vec<Device>,
    pub(super) trips: Vec<TripProgress>,
    pub(super) lanes: Vec<CopyLane>,
    pub(super) components: Vec<Component<'t>>,
    /// Those whose speeds are to be set anew, and since when; never, where there is none.
    pub(super) changed: Vec<u32>,
    pub(super) changed_at: f64,
    /// When the next job of a component is done, and of which.
    pub(super) next_done: (f64, u32),
    pub(super) scratch: Scratch<'t>,
    /// How many transfers go over each route, and what they take.
    pub(super) transits: Vec<u32>,
    pub(super) taken: Taken,
    /// Not a number while it is not known.
    pub(super) arrivals: Vec<f64>,
    /// Devices that may go on.
    pub(super) awake: Vec<u32>,
    pub(super) events: BinaryHeap<Event>,
    pub(super) asked: u64,
    /// When the iteration began, and how many did before it.
    pub(super) began: f64,
    pub(super) iteration: u32,
    pub(super) copies: Vec<TimedCopy>,
    pub(super) waits: Vec<TimedWait>,
    /// By device: when it must have done what it has done so far, less the seconds of that, for anybody to care; empty where
    /// there is no limit.
    latest: Vec<f64>,
    /// Whether a device is later.
    is_beyond: bool,
}

/// A device on its way.
#[derive(Debug, Clone, Default)]
pub(super) struct Device {
    /// The step that comes next, or is under way.
    pub(super) step: usize,
    pub(super) at: Stage,
    /// How many of the trips that are waited for have arrived.
    arrived: usize,
    /// Until when it is busy.
    pub(super) time: f64,
    /// When its links, forward and backward, have sent what they were given.
    pub(super) sent: [f64; 2],
    pub(super) times: DeviceTimes,
}

/// How far a device is at a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Stage {
    #[default]
    Leaving,
    Freeing,
    Fetching,
    Needing,
    Taking,
    Computing,
}

/// A trip on its way: out, and back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TripProgress {
    /// Parcels whose end is not known yet.
    pub(super) pending: [u32; 2],
    /// When the slowest of those that are known ends.
    pub(super) end: [f64; 2],
    /// The way that it takes.
    pub(super) slowest: [u32; 2],
}

impl<'t> CopyEventLoop<'t> {
    pub(super) fn new(tables: &'t Tables<'t>, keep: Keep, limit: Option<Limit<'_>>) -> Self {
        let busy = |steps: &DeviceSteps| steps.steps.iter().map(|step| step.seconds).sum::<f64>();
        let latest = limit.map_or_else(Vec::new, |Limit { seconds, after }| {
            let after = after.iter().copied().chain(std::iter::repeat(0.0));
            tables.of.devices.iter().zip(after).map(|(steps, after)| seconds - after - busy(steps)).collect()
        });
        let trips = tables.first_parcel.len() - 1;
        Self {
            tables,
            keep,
            devices: vec![Device::default(); tables.of.devices.len()],
            trips: vec![TripProgress::default(); trips],
            lanes: tables.ways.iter().map(|_| CopyLane::default()).collect(),
            components: (0..tables.components).map(|_| Component::default()).collect(),
            changed: Vec::new(),
            changed_at: f64::INFINITY,
            next_done: (f64::INFINITY, 0),
            scratch: Scratch::default(),
            transits: vec![0; tables.route_ways.len()],
            taken: Taken::nothing(tables.ways.len(), tables.groups.len()),
            arrivals: vec![f64::NAN; tables.takers.len()],
            awake: Vec::new(),
            events: BinaryHeap::new(),
            asked: 0,
            began: 0.0,
            iteration: 0,
            copies: Vec::new(),
            waits: Vec::new(),
            latest,
            is_beyond: false,
        }
    }

    /// All devices begin an iteration at this moment. Copies of the one before go on.
    pub(super) fn begin(&mut self, iteration: u32, now: f64) {
        (self.iteration, self.began) = (iteration, now);
        for (device, steps) in self.devices.iter_mut().zip(self.tables.of.devices) {
            *device = Device { time: now, ..Device::default() };
            if self.keep.steps {
                device.times.steps.reserve_exact(steps.steps.len());
            }
        }
        self.lanes.iter_mut().for_each(CopyLane::forget);
        self.arrivals.fill(f64::NAN);
        self.copies.retain(|copy| copy.end > now);
        self.waits.clear();
    }

    /// Goes through an iteration; when its last step ends, if that is within the limit.
    pub(super) fn go(&mut self) -> Result<Option<f64>, CopiesError> {
        self.awake.extend((0..self.devices.len() as u32).rev());
        let mut last_seen = 0;
        loop {
            while let Some(device) = self.awake.pop() {
                self.go_on(device as usize);
                if self.is_beyond {
                    return Ok(None);
                }
            }
            // Devices never go back, so that each is seen to be over once.
            while self.devices.get(last_seen).is_some_and(|of| of.step == self.steps(last_seen)) {
                last_seen += 1;
            }
            if last_seen == self.devices.len() {
                return Ok(Some(self.devices.iter().map(|of| of.time).fold(self.began, f64::max)));
            }
            if !self.happen_next() {
                return Err(CopiesError::Deadlock { device: last_seen, step: self.devices[last_seen].step });
            }
        }
    }

    fn steps(&self, device: usize) -> usize {
        self.tables.of.devices[device].steps.len()
    }

    fn go_on(&mut self, device: usize) {
        let tables = self.tables;
        let table = &tables.devices[device];
        let steps = &tables.of.devices[device].steps;
        while let Some(step) = steps.get(self.devices[device].step) {
            let own = &mut self.devices[device];
            let (boundary, time) = (own.step, own.time);
            match own.at {
                Stage::Leaving if table.is_idle(boundary) => own.at = Stage::Taking,
                Stage::Leaving => {
                    own.at = Stage::Freeing;
                    self.ask(device, table.due(boundary, BoundaryAct::Leave), false, time);
                }
                Stage::Freeing => {
                    if !self.wait(device, boundary, table.due(boundary, BoundaryAct::Free), false) {
                        return;
                    }
                    self.devices[device].at = Stage::Fetching;
                }
                Stage::Fetching => {
                    own.at = Stage::Needing;
                    self.ask(device, table.due(boundary, BoundaryAct::Fetch), true, time);
                }
                Stage::Needing => {
                    if !self.wait(device, boundary, table.due(boundary, BoundaryAct::Settle), true) {
                        return;
                    }
                    self.devices[device].at = Stage::Taking;
                }
                Stage::Taking => {
                    let (mut there, mut receiving) = (time, 0.0);
                    if let Some(handed) = step.takes {
                        let arrival = self.arrivals[tables.at(handed)];
                        if arrival.is_nan() {
                            return;
                        }
                        there = there.max(arrival);
                        if self.is_late(device, there) {
                            return;
                        }
                        if tables.of.overlap == Overlap::Nothing {
                            receiving = self.crossing(handed);
                        }
                    }
                    let start = there + receiving;
                    let own = &mut self.devices[device];
                    if table.node.is_some() {
                        own.at = Stage::Computing;
                        own.time = start;
                        self.happens_at(start, device as u32, What::Step);
                        return;
                    }
                    self.end_step(device, start, start + step.seconds);
                }
                Stage::Computing => return,
            }
        }
    }

    /// Whether a device that goes on at this moment will not be done within the limit.
    fn is_late(&mut self, device: usize, now: f64) -> bool {
        let own = &self.devices[device];
        let is_late =
            self.latest.get(device).is_some_and(|latest| now - self.began - own.times.busy > *latest);
        self.is_beyond |= is_late;
        is_late
    }

    /// Waits for the copies of trips, as far as their ends are known; whether all are.
    fn wait(&mut self, device: usize, boundary: usize, due: &[BoundaryEvent], is_back: bool) -> bool {
        let way = usize::from(is_back);
        while let Some(&BoundaryEvent { trip, is_of_last }) = due.get(self.devices[device].arrived) {
            let underway = self.trips[trip as usize];
            if underway.pending[way] > 0 {
                return false;
            }
            let own = &mut self.devices[device];
            own.arrived += 1;
            let (start, end) = (own.time, underway.end[way]);
            // Nothing is away when the training begins.
            if end > start && !(is_of_last && self.iteration == 0) {
                own.time = end;
                own.times.waited.add(is_back, end - start);
                self.lanes[underway.slowest[way] as usize].waited.add(is_back, end - start);
                if self.keep.copies {
                    let trip = trip - self.tables.devices[device].first_trip;
                    let (device, way) = (device as u32, self.tables.ways[underway.slowest[way] as usize].way);
                    self.waits.push(TimedWait { device, boundary, trip, is_back, way, start, end });
                }
            }
        }
        self.devices[device].arrived = 0;
        true
    }
}

impl CopyEventLoop<'_> {
    /// Seconds over an edge.
    pub(super) fn crossing(&self, handed: Handover) -> f64 {
        let edge = self.tables.of.edges[handed.edge as usize];
        if handed.is_backward { edge.backward } else { edge.forward }
    }

    /// Ends a step and hands on what came out of it.
    pub(super) fn end_step(&mut self, device: usize, start: f64, end: f64) {
        let step = self.tables.of.devices[device].steps[self.devices[device].step];
        let sends = step.gives.map(|handed| (handed, self.crossing(handed)));
        let own = &mut self.devices[device];
        own.time = end;
        own.times.busy += end - start;
        own.step += 1;
        own.at = Stage::Leaving;
        if self.keep.steps {
            own.times.steps.push((start, end));
        }
        let Some((handed, sends)) = sends else { return };
        let sent = &mut own.sent[usize::from(handed.is_backward)];
        let from = match self.tables.of.overlap {
            Overlap::Computing => {
                let from = end.max(*sent);
                *sent = from + sends;
                from
            }
            // A receiving device spends the seconds of the transfer itself if it cannot compute meanwhile.
            Overlap::Nothing => {
                *sent = end;
                own.time = end + sends;
                end
            }
        };
        let at = self.tables.at(handed);
        self.arrivals[at] = *sent;
        let taker = self.tables.takers[at];
        if (taker as usize) < self.devices.len() && taker as usize != device {
            self.awake.push(taker);
        }
        let over = from + sends;
        if over <= from {
            // What takes no time takes nothing of a way: its end, which comes first at a moment, would find no beginning.
            return;
        }
        for &route in &self.tables.routes[2 * handed.edge as usize + usize::from(handed.is_backward)] {
            self.happens_at(from, device as u32, What::Crosses { route });
            self.happens_at(over, device as u32, What::Crossed { route });
        }
    }
}
