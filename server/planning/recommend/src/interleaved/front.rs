//! What less memory costs in time: the whole front where few steps go down it and each is proven, else sampled at some peaks.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;

use super::InterleavedQuestion;
use super::subproblem::{InterleavedSolution, InterleavedSubproblem};
use crate::memory_optimizations::{Point, fill, kept, nothing_found};
use crate::plan::{NamedPlan, front_points};
use crate::result::{QuestionError, RecommendError};
use loadmaster_search::cost::Market as _;

/// Most peaks that plans are held to.
const MOST_CAPS: u32 = 32;
/// As many of them one right below another.
const STEPS: u32 = 16;
/// As many of them to find the lowest.
const FOR_THE_LOWEST: u32 = 8;

/// Plans within peaks.
struct Sampled {
    /// The highest first.
    points: Vec<Point<InterleavedSolution>>,
    /// How many peaks were asked for.
    caps: u32,
    /// Whether there is no other plan that none of them beats in both.
    is_whole: bool,
}

impl InterleavedQuestion<'_> {
    /// The fastest plan, with a front between peak and seconds.
    pub(super) fn front(&self) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        if !self.prices.has_times() {
            return Err(RecommendError::NoTimes { objective: self.criteria.objective }.into());
        }
        let Sampled { points, caps, is_whole } = self.sampled()?;
        let (highest, lowest) =
            (points.first().map_or(0, |point| point.peak), points.last().map_or(0, |point| point.peak));
        let seconds = |found: &InterleavedSolution| found.plan.iteration_seconds().unwrap_or(f64::INFINITY);
        let points: Vec<InterleavedSolution> =
            kept(points, seconds).into_iter().map(|point| point.found).collect();
        // The fastest end, before what is told of it alone.
        let Some(InterleavedSolution { mut plan, mut certificate, .. }) = points.first().cloned() else {
            return Err(RecommendError::Stopped.into());
        };
        let (front, others) = front_points(points.into_iter().map(|found| found.plan).collect())?;
        let has_bound = certificate.bound.is_some();
        certificate.proven &= is_whole;
        certificate.stopped |= self.stop.is_requested();
        plan.found.certificate = Some(certificate);
        plan.found.front = front;
        self.tell_looked_at(&mut plan);
        if !is_whole {
            plan.warnings.push(format!(
                "the front is sampled: the fastest plans that were found within {caps} peaks from {} to {}; between them{} there may \
                 be others{}",
                Bytes(lowest),
                Bytes(highest),
                if self.allowed.is_some() { ", and with other actions," } else { "" },
                if has_bound { ", and only the fastest end has a bound" } else { "" }
            ));
        }
        self.annotate_comparison(&mut plan, &self.criteria_within(&InterleavedSubproblem::whole(self)))?;
        Ok((plan, others))
    }

    fn sampled(&self) -> Result<Sampled, QuestionError> {
        let subproblem = InterleavedSubproblem::whole(self);
        let first = self.fastest(&subproblem)?;
        let mut points = vec![Point { cap: u64::MAX, peak: first.plan.peak(), found: first }];
        let mut caps = 1;
        // Where each is proven the fastest within its peak, one right below another is all that there is.
        while let Some(last) = points.last().filter(|last| last.found.certificate.proven)
            && caps < STEPS
            && !self.stop.is_requested()
        {
            caps += 1;
            match self.point(&subproblem, last.peak.saturating_sub(1)) {
                Ok(found) => points.push(found),
                Err(error) => {
                    if nothing_found(error)?.is_proof() {
                        return Ok(Sampled { points, caps, is_whole: true });
                    }
                    break;
                }
            }
        }
        let Some(last) = points.last() else { return Err(RecommendError::Stopped.into()) };
        let floor = self.least_bytes(&subproblem);
        let (lowest, asked) = self.lowest(&subproblem, last.found.clone(), (floor, FOR_THE_LOWEST))?;
        caps += asked;
        if lowest.peak < last.peak {
            points.push(Point { cap: lowest.peak, ..lowest });
        }
        let more = MOST_CAPS.saturating_sub(caps);
        caps += fill(&mut points, more, self.stop, |cap| self.point(&subproblem, cap))?;
        Ok(Sampled { points, caps, is_whole: false })
    }
}
