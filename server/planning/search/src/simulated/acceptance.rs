//! Which plans are wanted.

use super::super::PlacedStage;
use super::super::memory::Peaks;

/// By what part of itself a bound may differ from a value that it equals but for rounding.
const SAME: f64 = 1e-12;

/// What plans that end with given stages need at least.
#[derive(Debug, Clone, PartialEq)]
pub struct Least {
    /// Simulated seconds of the iteration.
    pub seconds: f64,
    /// The highest peak.
    pub highest: u64,
    /// Peaks of the stages that are chosen; whatever comes before only adds to them.
    pub peaks: Peaks,
}

/// A whole plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighed {
    /// The stages, first to last.
    pub stages: Vec<PlacedStage>,
    /// Simulated seconds of the iteration.
    pub seconds: f64,
    /// Peaks of all devices.
    pub peaks: Peaks,
}

impl Weighed {
    fn highest(&self) -> u64 {
        self.peaks.highest().unwrap_or(0)
    }
}

/// Says which plans are wanted, and takes them.
pub trait Wanted {
    /// Whether a plan that needs at least this may be wanted.
    fn may_be(&self, least: &Least) -> bool;

    /// Takes a plan.
    fn take(&mut self, plan: Weighed);

    /// Hands over what was taken and is still wanted.
    fn found(&mut self) -> Vec<Weighed>;
}

/// The fastest plan; of equally fast ones the first that is found.
#[derive(Debug, Clone, PartialEq)]
pub struct Fastest {
    /// Plans that are not faster than this are not wanted.
    pub below: f64,
    /// The fastest so far.
    pub best: Option<Weighed>,
}

impl Fastest {
    /// Below a limit.
    pub fn below(limit: f64) -> Self {
        Self { below: limit, best: None }
    }
}

impl Wanted for Fastest {
    fn may_be(&self, least: &Least) -> bool {
        // Infinite as it is, a limit has nothing to round.
        least.seconds * (1.0 + SAME) < self.below
    }

    fn take(&mut self, plan: Weighed) {
        if plan.seconds < self.below {
            self.below = plan.seconds;
            self.best = Some(plan);
        }
    }

    fn found(&mut self) -> Vec<Weighed> {
        self.best.take().into_iter().collect()
    }
}

/// The plan with the leximax-lowest peaks of those that keep a limit on time; of equals the faster.
#[derive(Debug, Clone, PartialEq)]
pub struct LowestPeaks {
    /// The longest that an iteration may take.
    pub within: f64,
    /// The best so far, or one that is known already: its peaks and seconds.
    pub known: Option<(Peaks, f64)>,
    /// The best that was found here.
    pub best: Option<Weighed>,
}

impl LowestPeaks {
    /// Better than what is known, within a limit on time.
    pub fn within(limit: f64, known: Option<(Peaks, f64)>) -> Self {
        Self { within: limit, known, best: None }
    }
}

impl Wanted for LowestPeaks {
    fn may_be(&self, least: &Least) -> bool {
        if least.seconds > self.within * (1.0 + SAME) {
            return false;
        }
        let Some((peaks, _)) = &self.known else { return true };
        least.highest <= peaks.highest().unwrap_or(0) && least.peaks < *peaks
    }

    fn take(&mut self, plan: Weighed) {
        let is_better = self.known.as_ref().is_none_or(|(peaks, seconds)| {
            plan.peaks.cmp(peaks).then(plan.seconds.total_cmp(seconds)).is_lt()
        });
        if plan.seconds <= self.within && is_better {
            self.known = Some((plan.peaks.clone(), plan.seconds));
            self.best = Some(plan);
        }
    }

    fn found(&mut self) -> Vec<Weighed> {
        self.best.take().into_iter().collect()
    }
}

/// The plans that no other one beats in both seconds and the highest peak.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SimulatedFront {
    /// Plans slower than this are not wanted.
    pub within: Option<f64>,
    /// What is known: seconds and highest peaks of plans.
    pub known: Vec<(f64, u64)>,
    /// The plans that were found here, each beaten by none that was known before.
    pub found: Vec<Weighed>,
}

impl SimulatedFront {
    fn is_beaten(&self, seconds: f64, highest: u64) -> bool {
        let slower = |known: f64| known <= seconds * (1.0 + SAME);
        self.known.iter().any(|&(known, peak)| slower(known) && peak <= highest)
    }
}

impl Wanted for SimulatedFront {
    fn may_be(&self, least: &Least) -> bool {
        let is_within = self.within.is_none_or(|within| least.seconds <= within * (1.0 + SAME));
        is_within && !self.is_beaten(least.seconds, least.highest)
    }

    fn take(&mut self, plan: Weighed) {
        let (seconds, highest) = (plan.seconds, plan.highest());
        if self.within.is_some_and(|within| seconds > within) || self.is_beaten(seconds, highest) {
            return;
        }
        self.known.retain(|&(known, peak)| known < seconds || peak < highest);
        self.found.retain(|plan| plan.seconds < seconds || plan.highest() < highest);
        self.known.push((seconds, highest));
        self.found.push(plan);
    }

    fn found(&mut self) -> Vec<Weighed> {
        std::mem::take(&mut self.found)
    }
}
