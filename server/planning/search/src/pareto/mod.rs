//! The whole front between memory and time: every plan that is beaten by none in both, exactly.
//!
//! The fastest plan of all has some highest peak. The fastest plan of those whose peaks are below it is the next
//! point, and so on until nothing fits. One search for each point of the front and one more: none is
//! missed, because every plan with a lower peak is among those that the next search looks at.

#[cfg(test)]
mod tests;

use super::time::{Cap, Limits, Time, fastest, highest_peak};
use super::{Assignment, Ended, Question, StageCosts, Stop, Unit};

/// A plan that no other beats in both.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Its highest peak, in the front's unit.
    pub peak: u64,
    /// The plan and the seconds of its iteration.
    pub plan: Assignment<Time>,
}

/// The front, or the part of it that was found before the search was stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct Front {
    /// The fastest first, the one with the lowest peak last.
    pub points: Vec<Point>,
    /// States weighed.
    pub states: u64,
    /// [`Ended::Proven`] if no point is missing, and each is exact. [`Ended::Stopped`] if points with lower
    /// peaks than the last may be missing. [`Ended::Bounded`] if a better point than one of these may exist.
    pub ended: Ended,
}

/// The front of a question's plans, peaks measured in this unit. Of costs that squeeze stages it has the fastest
/// plan alone: every byte less would be another point.
pub fn front<C: StageCosts>(question: &Question<'_, C>, unit: Unit, stop: &Stop) -> Front {
    let mut front = Front { points: Vec::new(), states: 0, ended: Ended::Proven };
    let mut limits = Limits::default();
    loop {
        let answer = fastest(question, &limits, stop);
        front.states += answer.states;
        match answer.ended {
            Ended::Proven => {}
            // What was found by then may not be the fastest.
            Ended::Stopped => {
                front.ended = Ended::Stopped;
                return front;
            }
            Ended::Bounded => front.ended = Ended::Bounded,
        }
        let found = answer.best.and_then(|plan| Some((highest_peak(question, &plan.stages, unit)?, plan)));
        let Some((peak, plan)) = found else { return front };
        front.points.pop_if(|last| last.plan.value >= plan.value);
        front.points.push(Point { peak, plan });
        if question.costs.squeezes() {
            front.ended = Ended::Bounded;
            return front;
        }
        let Some(most) = peak.checked_sub(1) else { return front };
        limits.cap = Some(Cap { unit, most });
    }
}

/// The front of several fronts in the same unit: what no point of any of them beats. Of equal points the first
/// stays.
pub fn merged<K>(points: impl IntoIterator<Item = (K, Point)>) -> Vec<(K, Point)> {
    let mut points: Vec<(K, Point)> = points.into_iter().collect();
    points.sort_by(|(_, one), (_, other)| {
        one.plan.value.0.total_cmp(&other.plan.value.0).then(one.peak.cmp(&other.peak))
    });
    let mut lowest = None;
    points.retain(|(_, point)| {
        let is_lower = lowest.is_none_or(|lowest| point.peak < lowest);
        if is_lower {
            lowest = Some(point.peak);
        }
        is_lower
    });
    points
}
