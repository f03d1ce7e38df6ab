//! What is true of all plans: the best of them, or how far the nearest is from fitting.

use crate::space::{Plan, Prices, Space, TooMany};
use crate::words::{CommunicationOverlap, Objective, Unit};

/// How far two numbers that should be equal may be apart, as a share.
pub const SAME: f64 = 1e-9;

/// What plans are weighed by.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    pub objective: Objective,
    pub unit: Unit,
    pub transfers: CommunicationOverlap,
    pub max_seconds: Option<f64>,
    pub max_peak: Option<u64>,
}

/// What all plans come to.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// Plans, whatever they need.
    pub plans: u64,
    /// Of these, plans that fit into memory.
    pub fitting: u64,
    /// Of these, plans that keep to the limits as well.
    pub kept: u64,
    /// The best value.
    pub best: Option<f64>,
    /// A plan that has it, for people.
    pub best_plan: String,
    /// Of the lowest peaks: all of them, device by device.
    pub peaks: Option<Vec<f64>>,
    /// The whole front: seconds and highest peak.
    pub front: Vec<(f64, f64)>,
    /// Seconds of the fastest plan that fits, whatever the limit on time.
    pub fastest: Option<f64>,
    /// Fewest bytes that a plan lacks on its worst device, where none fits.
    pub least_lack: Option<u64>,
    pub nearest_plan: String,
    /// By layer: whether a plan's stage with it fits.
    pub layer_fits: Vec<bool>,
    /// A plan is so near a limit that rounding decides.
    pub is_borderline: bool,
}

impl Truth {
    /// Looks at all plans; at no more than a limit of them.
    pub fn find<P: Prices>(space: &Space<'_, P>, goal: &Goal, limit: u64) -> Result<Self, TooMany> {
        let mut truth = Self { layer_fits: vec![false; space.rules.layers], ..Self::default() };
        let mut points: Vec<(f64, f64)> = Vec::new();
        truth.plans = space.each(limit, &mut |plan| truth.weigh(plan, goal, space, &mut points))?;
        truth.front = front(points);
        if truth.fitting > 0 {
            truth.least_lack = None;
        }
        Ok(truth)
    }

    fn weigh<P: Prices>(
        &mut self,
        plan: &Plan<'_, P>,
        goal: &Goal,
        space: &Space<'_, P>,
        points: &mut Vec<(f64, f64)>,
    ) {
        let memory = plan.memory();
        if memory.lack > 0 {
            if self.fitting == 0 && self.least_lack.is_none_or(|least| memory.lack < least) {
                self.least_lack = Some(memory.lack);
                self.nearest_plan = plan.describe();
            }
            for (index, placed) in plan.stages.iter().enumerate() {
                if plan.peak(index).needed <= placed.capacity {
                    self.layer_fits[placed.stage.first..=placed.stage.last].fill(true);
                }
            }
            return;
        }
        self.fitting += 1;
        self.layer_fits.fill(true);
        let Goal { objective, unit, max_seconds: limit, .. } = *goal;
        let is_low = goal.max_peak.is_none_or(|most| memory.highest <= most);
        let needs_seconds = objective.is_timed() || limit.is_some();
        // A plan that cannot be among the fastest need not be simulated.
        let is_slow = objective == Objective::MinIterationTime
            && self.best.is_some_and(|best| plan.at_least() > best * (1.0 + 1e-6))
            && limit.is_none_or(|limit| plan.at_least() > limit * 1.2);
        if is_slow {
            self.kept += u64::from(is_low && limit.is_none());
            return;
        }
        let seconds = needs_seconds.then(|| plan.seconds(goal.transfers));
        if let Some(seconds) = seconds {
            self.fastest = Some(self.fastest.map_or(seconds, |least| least.min(seconds)));
        }
        if !is_low {
            return;
        }
        if let (Some(seconds), Some(limit)) = (seconds, limit) {
            self.is_borderline |= (seconds - limit).abs() <= 1e-8 * limit;
            if seconds > limit {
                return;
            }
        }
        self.kept += 1;
        let peak = if unit == Unit::Share { memory.share } else { memory.highest as f64 };
        let value = match objective {
            Objective::MinPeakMemory | Objective::MaxModel => Some(peak),
            Objective::MinIterationTime | Objective::Pareto => seconds,
            Objective::MinDevices => Some(plan.devices.len() as f64),
            Objective::MinCost => space.fleet.price(plan.devices),
            Objective::MaxBatch => Some(f64::from(plan.batch.size)),
        };
        let Some(value) = value else { return };
        let is_better = |best: f64| {
            if objective.is_maximum() && objective != Objective::MaxModel {
                value > best
            } else {
                value < best
            }
        };
        if self.best.is_none_or(is_better) {
            self.best = Some(value);
            self.best_plan = plan.describe();
        }
        if objective == Objective::MinPeakMemory && self.best == Some(value) {
            let peaks = plan.peaks(unit);
            if self.peaks.as_ref().is_none_or(|least| peaks < *least) {
                self.peaks = Some(peaks);
            }
        }
        if objective == Objective::Pareto {
            points.push((value, peak));
        }
    }
}

/// Points that no other one beats in both, the fastest first; of points that differ by rounding only, one.
pub fn front(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut front: Vec<(f64, f64)> = Vec::new();
    for point in points {
        let Some(last) = front.last().copied() else {
            front.push(point);
            continue;
        };
        if point.1 < last.1 * (1.0 - 1e-12) {
            if point.0 <= last.0 * (1.0 + SAME) {
                // As fast but for rounding, with less memory.
                front.pop();
            }
            front.push(point);
        }
    }
    front
}
