//! What comes of a simulation with copies.

use super::Way;

/// What a simulation says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Copied {
    /// Seconds of one iteration.
    pub iteration_seconds: f64,
    /// How many were simulated: 1 where no block stays away from one to the next.
    pub iterations: u32,
    /// Whether the last one repeats the one before. Otherwise [`iteration_seconds`](Self::iteration_seconds) is a mean,
    /// and all else is of the last one.
    pub is_steady: bool,
    /// By device.
    pub devices: Vec<DeviceTimes>,
    /// Of all ways that the pipeline has, in order.
    pub ways: Vec<WayTimes>,
    /// All copies, if asked for, by device and trip; of those that go on from the iteration before, or into the next
    /// one, both ends count from the start of this one.
    pub copies: Vec<TimedCopy>,
    /// All waiting for copies, if asked for.
    pub waits: Vec<TimedWait>,
}

/// Seconds for which a device waits for copies, all else being there.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WaitSeconds {
    /// For copies out, so that memory is free.
    pub frees: f64,
    /// For copies back, which a step needs.
    pub needs: f64,
}

/// What a device does.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceTimes {
    /// When its last step is over.
    pub end: f64,
    /// Seconds of its steps; where cores are shared, as long as they take.
    pub busy: f64,
    /// Seconds that it waits for copies.
    pub waited: WaitSeconds,
    /// Start and end of each step, if asked for.
    pub steps: Vec<(f64, f64)>,
}

/// What goes over a way in an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WayTimes {
    /// Which one.
    pub way: Way,
    /// Copies.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds in which it copies, latencies included.
    pub busy: f64,
    /// Seconds for which a device waits for it: of a trip that several ways carry, for the last one to end.
    pub waited: WaitSeconds,
}

/// A copy that was simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedCopy {
    /// Whose block it is.
    pub device: u32,
    /// Which of its trips.
    pub trip: u32,
    /// The way that it takes.
    pub way: Way,
    /// Whether it is a copy back.
    pub is_back: bool,
    /// When the boundary asks for it.
    pub asked: f64,
    pub start: f64,
    pub end: f64,
}

/// A device that waits for a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedWait {
    pub device: u32,
    /// At which boundary.
    pub boundary: usize,
    /// For which of its trips.
    pub trip: u32,
    /// Whether for its copy back.
    pub is_back: bool,
    /// The way of that copy; of several the last one to end.
    pub way: Way,
    pub start: f64,
    pub end: f64,
}

impl WaitSeconds {
    /// For either.
    pub fn all(self) -> f64 {
        self.frees + self.needs
    }

    pub(super) fn add(&mut self, is_back: bool, seconds: f64) {
        *(if is_back { &mut self.needs } else { &mut self.frees }) += seconds;
    }
}

impl Copied {
    /// Share of the iteration in which a way copies.
    pub fn busy_share(&self, way: Way) -> f64 {
        let busy = self.ways.binary_search_by(|of| of.way.cmp(&way)).map_or(0.0, |at| self.ways[at].busy);
        if self.iteration_seconds > 0.0 { busy / self.iteration_seconds } else { 0.0 }
    }
}
