//! What is true of a question: the best of all plans, or how far the nearest is from fitting.

use crate::certificates::asked::Asked;
use crate::certificates::places::Places;
use crate::certificates::prices::Sharing;
use crate::certificates::question::{Objective, Question, Unit};
use crate::certificates::scene::Scene;
use crate::certificates::space::{Plan, Space, TooMany};

/// How far two numbers that should be equal may be apart, as a share.
pub(crate) const SAME: f64 = 1e-9;

/// What all plans of a question come to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Truth {
    /// Plans, whatever they need.
    pub(crate) plans: u64,
    /// Of these, plans that fit into memory.
    pub(crate) fitting: u64,
    /// Of these, plans that keep to the limits as well.
    pub(crate) kept: u64,
    /// The best value.
    pub(crate) best: Option<f64>,
    /// A plan that has it, for people.
    pub(crate) best_plan: String,
    /// Of the lowest peaks: all of them, device by device.
    pub(crate) peaks: Option<Vec<u64>>,
    /// The whole front: seconds and highest peak.
    pub(crate) front: Vec<(f64, f64)>,
    /// Seconds of the fastest plan that fits, whatever the limit on time.
    pub(crate) fastest: Option<f64>,
    /// Lowest highest peak of a plan that fits, whatever the limits.
    pub(crate) lowest: Option<u64>,
    /// Fewest bytes that a plan lacks on its worst device.
    pub(crate) least_lack: Option<u64>,
    pub(crate) nearest_plan: String,
    /// By layer: whether a plan's stage with it fits.
    pub(crate) layer_fits: Vec<bool>,
    /// A plan is so near a limit that rounding decides.
    pub(crate) is_borderline: bool,
}

/// What plans are weighed by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) sharing: Sharing,
    /// Most plans to look at.
    pub(crate) limit: u64,
}

impl Truth {
    pub(crate) fn of(scene: &Scene, question: &Question, terms: Terms) -> Result<Self, TooMany> {
        let (asked, places) = (Asked::of(scene, question), Places::of(scene, question));
        let space = Space {
            scene,
            question,
            asked: &asked,
            places: &places,
            sharing: terms.sharing,
            by_ranks: false,
        };
        let mut truth = Self { layer_fits: vec![false; scene.layers()], ..Self::default() };
        let mut points: Vec<(f64, f64)> = Vec::new();
        truth.plans =
            space.each(terms.limit, &mut |plan| truth.weigh(plan, question, &places, &mut points))?;
        truth.front = front(points);
        Ok(truth)
    }

    fn weigh(&mut self, plan: &Plan<'_>, question: &Question, places: &Places, points: &mut Vec<(f64, f64)>) {
        let memory = plan.memory(question.margin);
        if memory.lack > 0 {
            if self.fitting == 0 && self.least_lack.is_none_or(|least| memory.lack < least) {
                self.least_lack = Some(memory.lack);
                self.nearest_plan = plan.describe();
            }
            for (index, placed) in plan.stages.iter().enumerate() {
                if crate::certificates::prices::needed(plan.peak(index), question.margin) <= placed.capacity {
                    self.layer_fits[placed.stage.first..=placed.stage.last].fill(true);
                }
            }
            return;
        }
        self.fitting += 1;
        self.layer_fits.fill(true);
        self.lowest = Some(self.lowest.map_or(memory.highest, |least| least.min(memory.highest)));
        let objective = question.objective;
        let limit = question.max_seconds;
        let is_low = question.max_peak.is_none_or(|most| memory.highest <= most);
        let needs_seconds = objective.is_timed() || limit.is_some();
        // A plan that cannot be among the fastest need not be simulated.
        let is_slow = objective == Objective::MinIterationTime
            && self.best.is_some_and(|best| plan.at_least() > best * (1.0 + 1e-6))
            && limit.is_none_or(|limit| plan.at_least() > limit * 1.2);
        if is_slow {
            self.kept += u64::from(is_low && limit.is_none());
            return;
        }
        let seconds = needs_seconds.then(|| plan.seconds(question.transfers()));
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
        let peak = match question.unit {
            Some(Unit::Share) => memory.share,
            _ => memory.highest as f64,
        };
        let value = match objective {
            Objective::MinPeakMemory | Objective::MaxModel => Some(peak),
            Objective::MinIterationTime | Objective::Pareto => seconds,
            Objective::MinDevices => Some(plan.devices.len() as f64),
            Objective::MinCost => plan.price(places),
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
            let peaks = plan.peaks();
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
pub(crate) fn front(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
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
