//! A simulation human-readable to look at: lanes, and what goes on in them.

use super::{Copied, Way};

/// What goes on in one lane during an iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownLane {
    /// Whose it is.
    pub of: LaneOf,
    /// What goes on, in order; nothing between.
    pub spans: Vec<Span>,
}

/// What has a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneOf {
    /// A device: its steps, and its waiting for copies.
    Device(u32),
    /// A direction of a link: its copies.
    Way(Way),
}

/// Something that takes a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Seconds from the start of the iteration.
    pub start: f64,
    pub end: f64,
    /// What it is.
    pub what: Shown,
}

/// What takes a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// This step of the device.
    Step(usize),
    /// It waits until a block of this trip has left or is back.
    Wait {
        /// An index in [`DeviceSteps::trips`](super::DeviceSteps::trips).
        trip: u32,
        /// Which of both.
        is_back: bool,
    },
    /// A block of this trip of a device leaves or comes back.
    Copy {
        /// Whose it is.
        device: u32,
        /// An index in [`DeviceSteps::trips`](super::DeviceSteps::trips).
        trip: u32,
        /// Which of both.
        is_back: bool,
    },
}

impl Copied {
    /// A lane of each device, then one of each way that is used; of what was kept. What began before the iteration, or goes
    /// on behind it, is cut off there.
    pub fn lanes(&self) -> Vec<ShownLane> {
        let all = self.devices.iter().map(|device| device.end).fold(0.0, f64::max);
        let span = |start: f64, end: f64, what| Span { start: start.max(0.0), end: end.min(all), what };
        let mut lanes: Vec<ShownLane> = Vec::with_capacity(self.devices.len() + self.ways.len());
        for (device, times) in (0..).zip(&self.devices) {
            let steps = times.steps.iter().enumerate();
            let spans = steps.map(|(index, &(start, end))| span(start, end, Shown::Step(index))).collect();
            lanes.push(ShownLane { of: LaneOf::Device(device), spans });
        }
        for wait in &self.waits {
            let what = Shown::Wait { trip: wait.trip, is_back: wait.is_back };
            if let Some(lane) = lanes.get_mut(wait.device as usize) {
                lane.spans.push(span(wait.start, wait.end, what));
            }
        }
        let first_way = lanes.len();
        let of_way = |way: &super::WayTimes| ShownLane { of: LaneOf::Way(way.way), spans: Vec::new() };
        lanes.extend(self.ways.iter().map(of_way));
        for copy in &self.copies {
            let what = Shown::Copy { device: copy.device, trip: copy.trip, is_back: copy.is_back };
            let at = self.ways.binary_search_by(|way| way.way.cmp(&copy.way)).ok();
            if let Some(lane) = at.and_then(|at| lanes.get_mut(first_way + at)) {
                lane.spans.push(span(copy.start, copy.end, what));
            }
        }
        for lane in &mut lanes {
            lane.spans
                .sort_by(|one, other| one.start.total_cmp(&other.start).then(one.end.total_cmp(&other.end)));
        }
        lanes.retain(|lane| matches!(lane.of, LaneOf::Device(_)) || !lane.spans.is_empty());
        lanes
    }
}
