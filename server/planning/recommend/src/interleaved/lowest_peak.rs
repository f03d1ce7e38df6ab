//! The lowest highest peak that is reached with memory actions.

use loadmaster_proto::plan::Plan;

use super::InterleavedQuestion;
use super::subproblem::{InterleavedSolution, InterleavedSubproblem};
use crate::memory_optimizations::{Point, Progress, by_halves, seconds_note};
use crate::result::QuestionError;
use loadmaster_search::Unit;

/// Most peaks that are asked for.
const MOST_ASKED: u32 = 12;

impl InterleavedQuestion<'_> {
    /// The fastest plan within the lowest peak for which one was found.
    pub(super) fn lowest_peak(&self) -> Result<Plan, QuestionError> {
        let subproblem = InterleavedSubproblem::whole(self);
        let first = self.fastest(&subproblem)?;
        let floor = self.least_bytes(&subproblem);
        let (Point { peak, found, .. }, asked) = self.lowest(&subproblem, first, (floor, MOST_ASKED))?;
        let InterleavedSolution { mut plan, certificate: of_seconds, .. } = found;
        let tried = Progress {
            states: of_seconds.states,
            is_stopped: self.stop.is_requested(),
            doubtful: Some(self.counted(floor.min(peak))),
            passed_over: Vec::new(),
        };
        self.tell_looked_at(&mut plan);
        plan.warnings.push(format!(
            "{asked} peaks were asked for: a lower one may be reached down to the bound, which is what one layer needs alone; what it is \
             compared with is held to the same peak"
        ));
        plan.warnings.push(seconds_note("within this peak", &of_seconds));
        let unit = if self.criteria.unit == Unit::Share { "share" } else { self.criteria.objective.unit() };
        plan.found.certificate = Some(tried.certificate(self.counted(peak), unit));
        let criteria = self.criteria_within(&InterleavedSubproblem { most: Some(peak), ..subproblem });
        self.annotate_comparison(&mut plan, &criteria)?;
        Ok(plan)
    }

    /// From a plan on, the one with the lowest peak above a floor that is found with so many asks; and the asks that it took.
    pub(super) fn lowest(
        &self,
        subproblem: &InterleavedSubproblem,
        first: InterleavedSolution,
        floor_and_most: (u64, u32),
    ) -> Result<(Point<InterleavedSolution>, u32), QuestionError> {
        let first = Point { cap: u64::MAX, peak: first.plan.peak(), found: first };
        by_halves(first, floor_and_most, self.stop, |cap| self.point(subproblem, cap))
    }
}
