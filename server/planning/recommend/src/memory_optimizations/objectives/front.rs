//! What less memory costs in time: a front between both, sampled at some peaks.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;

use super::peaks::{Point, fill, kept};
use super::proof::looked_at;
use super::subproblem::{ActionSolution, Subproblem};
use super::{ActionsQuestion, NamedPlan, QuestionError};
use crate::memory_optimizations::certificate::seconds;
use crate::plan::front_points;
use loadmaster_search::Unit;

/// Most peaks that plans are held to.
const MOST_CAPS: u32 = 32;
/// As many of them to find the lowest.
const FOR_THE_LOWEST: u32 = 8;

impl ActionsQuestion<'_> {
    /// The fastest plan, with a front between peak and seconds that is sampled.
    pub(super) fn front(&self) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let subproblem = Subproblem::whole(self);
        let first = self.annotated(&subproblem).map_err(|error| self.explained(error, &subproblem))?;
        let (points, caps) = self.sampled(&subproblem, first.clone())?;
        let (highest, lowest) =
            (points.first().map_or(0, |point| point.peak), points.last().map_or(0, |point| point.peak));
        let mut plans = Vec::with_capacity(points.len());
        for point in kept(points, |found| seconds(&found.plan)) {
            let mut plan = point.found.plan;
            plan.found.baselines = Vec::new();
            // Before it is named: that follows from all of it.
            self.builder.tell_saved(&mut plan)?;
            plans.push(plan);
        }
        let (front, others) = front_points(plans)?;
        let ActionSolution { mut plan, mut certificate, bound_is, .. } = first;
        // The whole front is asked for, and that is not proven.
        certificate.proven = false;
        certificate.stopped |= self.stop.is_requested();
        plan.found.certificate = Some(certificate);
        plan.found.front = front;
        plan.warnings.push(looked_at(self.criteria.shape));
        plan.warnings.push(format!(
            "the front is sampled: the fastest plans that were found within {caps} peaks from {} to {}; between them, and with \
             other actions, there may be others, and only the fastest end has a bound",
            self.peak_text(lowest),
            self.peak_text(highest)
        ));
        plan.warnings.push(bound_is);
        Ok((plan, others))
    }

    /// Plans within peaks, the highest first, and how many peaks were asked for.
    fn sampled(
        &self,
        subproblem: &Subproblem,
        first: ActionSolution,
    ) -> Result<(Vec<Point<ActionSolution>>, u32), QuestionError> {
        let peak = self.peak(&first.plan);
        let floor = self.floor(subproblem, peak);
        let (lowest, for_the_lowest) = self.lowest(subproblem, first.clone(), floor, FOR_THE_LOWEST)?;
        let least = self.peak(&lowest.plan);
        let mut points = vec![Point { cap: u64::MAX, peak, found: first }];
        if least < peak {
            points.push(Point { cap: least, peak: least, found: lowest });
        }
        let more = MOST_CAPS.saturating_sub(for_the_lowest);
        let caps = for_the_lowest + fill(&mut points, more, self.stop, |cap| self.point(subproblem, cap))?;
        // The plan within no peak but the devices' memory is one of them.
        Ok((points, caps + 1))
    }

    fn peak_text(&self, peak: u64) -> String {
        match self.criteria.unit {
            Unit::Bytes => Bytes(peak).to_string(),
            Unit::Share => format!("{:.1} %", 100.0 * peak as f64 / Unit::WHOLE as f64),
        }
    }
}
