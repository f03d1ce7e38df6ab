//! What less memory costs in time: the whole front where few steps go down it and each is proven, else sampled at some peaks.

use loadmaster_proto::warning::WarningCode;

use super::lowest_peak::lowest;
use super::{Answer, FamilyContext, FamilySolution, PlanFamily, Point, Verdict, nothing_found};
use crate::memory_optimizations::tell_saved;
use crate::plan::front_points;
use crate::result::{QuestionError, RecommendError};
use loadmaster_search::Stop;
use loadmaster_search::cost::Market as _;

/// Most peaks that plans are held to.
const MOST_CAPS: u32 = 32;
/// As many of them one right below another.
const STEPS: u32 = 16;
/// As many of them to find the lowest.
const FOR_THE_LOWEST: u32 = 8;
/// As close as this part of the highest peak no further point is looked for.
const NEAR: u64 = 256;

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
    let FamilyContext { context, criteria, stop, .. } = *family.context();
    if !context.prices.has_times() {
        return Err(RecommendError::NoTimes { objective: criteria.objective }.into());
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
            tell_saved(context, &mut plan)?;
        }
        plans.push(plan);
        // The fastest plan keeps the findings that only a single plan reports.
        fastest.get_or_insert(found);
    }
    let Some(mut found) = fastest else { return Err(RecommendError::Stopped.into()) };
    let (front, others) = front_points(plans)?;
    found.plan.found.front = front;
    let mut certificate = found.certificate.clone();
    let mut notes = Vec::new();
    if !is_whole {
        notes.push(WarningCode::SearchIncomplete.says(format!(
            "the Pareto front is a sample: the fastest plans that were found within {caps} limits on the peak memory, \
             from {} to {}. There may be other plans between these limits{}{}",
            family.peak_text(lowest),
            family.peak_text(highest),
            if family.is_exact() { "" } else { " and with other memory optimizations" },
            if certificate.bound.is_some() { ". Only the fastest plan has a bound on its iteration time" } else { "" }
        )));
    }
    if !found.bound_is.is_empty() {
        notes.push(WarningCode::BoundScope.says(found.bound_is.clone()));
    }
    // The whole front is asked for.
    certificate.proven &= is_whole;
    certificate.stopped |= stop.is_requested();
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
        && !family.context().stop.is_requested()
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
    caps += fill(&mut points, more, family.context().stop, |cap| family.point(&subproblem, cap))?;
    // The plan within no peak but the devices' memory is one of them.
    Ok(Sampled { points, caps: caps + 1, is_whole: false })
}

/// Looks for points between others, which come the highest first, with at most so many asks; and says how many it took.
///
/// # Errors
/// What is wrong with the question.
fn fill<T>(
    points: &mut Vec<Point<T>>,
    most: u32,
    stop: &Stop,
    ask: impl Fn(u64) -> Result<Point<T>, QuestionError>,
) -> Result<u32, QuestionError> {
    let near = points.first().map_or(0, |point| point.peak / NEAR);
    // Within a peak that an answer for a higher one keeps to, the answer is the same: only below it there is another.
    let mut empty: Vec<(u64, u64)> = Vec::new();
    let mut asked = 0;
    while asked < most && !stop.is_requested() {
        let gaps = points.windows(2).map(|pair| (pair[1].cap, pair[0].peak));
        let widest =
            gaps.filter(|gap| !empty.contains(gap)).max_by_key(|(low, high)| high.saturating_sub(*low));
        let Some((low, high)) = widest.filter(|(low, high)| high.saturating_sub(*low) > near) else { break };
        let Some(cap) = rung_between(low, high) else {
            empty.push((low, high));
            continue;
        };
        asked += 1;
        match ask(cap) {
            Ok(found) => {
                let at = points.partition_point(|point| point.cap > cap);
                points.insert(at, found);
            }
            Err(error) => {
                nothing_found(error)?;
                empty.push((low, high));
            }
        }
    }
    Ok(asked)
}

/// The points that no other one beats in both, the fastest first.
fn kept<T>(mut points: Vec<Point<T>>, seconds: impl Fn(&T) -> f64) -> Vec<Point<T>> {
    points.sort_by(|a, b| seconds(&a.found).total_cmp(&seconds(&b.found)).then(a.peak.cmp(&b.peak)));
    let mut least = u64::MAX;
    points.retain(|point| {
        let is_lower = point.peak < least;
        least = least.min(point.peak);
        is_lower
    });
    points
}

/// Peaks that are asked for between others are *rungs*: whatever devices have, multiples of the power of two that is between a
/// thirty-second and a sixteenth of them.
const RUNGS: u64 = 16;

fn step(peak: u64) -> u64 {
    1 << (peak / RUNGS).max(1).ilog2()
}

/// The rungs around a peak, from so many parts of it less to as many more, the next ones first.
pub(crate) fn rungs_around(peak: u64, parts: [f64; 2]) -> Vec<u64> {
    let part = |part: f64| (peak as f64 * part) as u64;
    let (step, range) =
        (step(peak), peak.saturating_sub(part(parts[0]))..=peak.saturating_add(part(parts[1])));
    let first = range.start().checked_next_multiple_of(step);
    let next = move |of: &u64| of.checked_add(step);
    let rungs = std::iter::successors(first, next).take_while(|rung| range.contains(rung));
    let mut rungs: Vec<u64> = rungs.filter(|&rung| rung > 0 && rung != peak).collect();
    rungs.sort_by_key(|rung| rung.abs_diff(peak));
    rungs
}

/// A rung about halfway between two peaks, if there is any.
fn rung_between(low: u64, high: u64) -> Option<u64> {
    let middle = low + high.saturating_sub(low) / 2;
    let below = middle - middle % step(middle);
    let above = below.checked_add(step(middle))?;
    [above, below].into_iter().find(|rung| (low + 1..high).contains(rung))
}
