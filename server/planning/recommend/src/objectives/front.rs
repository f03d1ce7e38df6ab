//! What less memory costs in time: the whole front where few steps go down it and each is proven, else sampled at some peaks.

use super::lowest_peak::lowest;
use super::peaks::{Point, fill, kept};
use super::proof::nothing_found;
use super::{Answer, FamilySolution, PlanFamily, Verdict};
use crate::plan::front_points;
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
    points: Vec<Point<FamilySolution>>,
    /// How many peaks were asked for.
    caps: u32,
    /// Whether there is no other plan that none of them beats in both.
    is_whole: bool,
}

/// The fastest plan, with a front between peak and seconds.
pub(super) fn front<F: PlanFamily>(family: &F) -> Answer {
    if !family.builder().prices.has_times() {
        return Err(RecommendError::NoTimes { objective: family.criteria().objective }.into());
    }
    let Sampled { points, caps, is_whole } = sampled(family)?;
    let (highest, lowest) =
        (points.first().map_or(0, |point| point.peak), points.last().map_or(0, |point| point.peak));
    let seconds = |found: &FamilySolution| found.plan.iteration_seconds().unwrap_or(f64::INFINITY);
    let mut plans = Vec::with_capacity(points.len());
    let mut fastest = points.first().filter(|_| !family.compares_points()).map(|point| point.found.clone());
    for Point { found, .. } in kept(points, seconds) {
        let mut plan = found.plan.clone();
        if !family.compares_points() {
            plan.found.baselines = Vec::new();
            // Before it is named: that follows from all of it.
            family.builder().tell_saved(&mut plan)?;
        }
        plans.push(plan);
        // The fastest end, with what is told of it alone.
        fastest.get_or_insert(found);
    }
    let Some(mut found) = fastest else { return Err(RecommendError::Stopped.into()) };
    let (front, others) = front_points(plans)?;
    found.plan.found.front = front;
    let mut certificate = found.certificate.clone();
    let mut notes = Vec::new();
    if !is_whole {
        notes.push(format!(
            "the front is sampled: the fastest plans that were found within {caps} peaks from {} to {}; between them{} there may be \
             others{}",
            family.peak_text(lowest),
            family.peak_text(highest),
            if family.is_exact() { "" } else { ", and with other actions," },
            if certificate.bound.is_some() { ", and only the fastest end has a bound" } else { "" }
        ));
    }
    notes.extend(Some(found.bound_is.clone()).filter(|bound_is| !bound_is.is_empty()));
    // The whole front is asked for.
    certificate.proven &= is_whole;
    certificate.stopped |= family.stop().is_requested();
    let whole = family.whole();
    let verdict = Verdict { certificate, notes, among: None, beside: Some(&whole), next_worth: None };
    let (plan, _) = family.told(found, verdict)?;
    Ok((plan, others))
}

fn sampled<F: PlanFamily>(family: &F) -> Result<Sampled, QuestionError> {
    let subproblem = family.whole();
    let first = family.compared(&subproblem).map_err(|error| family.explained(error, &subproblem))?;
    let mut points = vec![Point { cap: u64::MAX, peak: family.peak(&first.plan), found: first }];
    let mut caps = 0;
    // Where each is proven the fastest within its peak, one right below another is all that there is.
    while let Some(last) =
        points.last().filter(|last| family.compares_points() && last.found.certificate.proven)
        && caps + 1 < STEPS
        && !family.stop().is_requested()
    {
        caps += 1;
        match family.point(&subproblem, last.peak.saturating_sub(1)) {
            Ok(found) => points.push(found),
            Err(error) => {
                if nothing_found(error)?.is_proof() {
                    return Ok(Sampled { points, caps: caps + 1, is_whole: true });
                }
                break;
            }
        }
    }
    let Some(last) = points.last() else { return Err(RecommendError::Stopped.into()) };
    let floor = family.floor(&subproblem, last.peak);
    let (lowest, asked) = lowest(family, &subproblem, last.found.clone(), (floor, FOR_THE_LOWEST))?;
    caps += asked;
    if lowest.peak < last.peak {
        points.push(Point { cap: lowest.peak, ..lowest });
    }
    let more = MOST_CAPS.saturating_sub(caps);
    caps += fill(&mut points, more, family.stop(), |cap| family.point(&subproblem, cap))?;
    // The plan within no peak but the devices' memory is one of them.
    Ok(Sampled { points, caps: caps + 1, is_whole: false })
}
