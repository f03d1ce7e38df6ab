//! What is found within peaks, whoever is asked for it: the lowest by halves, and more points of a front between those that are known.

use super::proof::nothing_found;
use crate::result::QuestionError;
use loadmaster_search::Stop;

/// As close as this part of a peak no lower one is looked for.
const CLOSE: u64 = 4_096;
/// As close as this part of the highest peak no further point is looked for.
const NEAR: u64 = 256;

/// What was found within a peak.
#[derive(Debug, Clone)]
pub(crate) struct Point<T> {
    /// The peak that it was held to.
    pub(crate) cap: u64,
    /// Its own.
    pub(crate) peak: u64,
    pub(crate) found: T,
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

/// From what was found on, what has the lowest peak above a floor that is found with at most so many asks, by halves; and the asks
/// that it took.
///
/// # Errors
/// What is wrong with the question.
pub(crate) fn by_halves<T>(
    first: Point<T>,
    (floor, most): (u64, u32),
    stop: &Stop,
    ask: impl Fn(u64) -> Result<Point<T>, QuestionError>,
) -> Result<(Point<T>, u32), QuestionError> {
    let (mut low, mut best, mut asked) = (floor, first, 0);
    loop {
        let high = best.peak;
        if high <= low || high - low <= high / CLOSE || asked >= most || stop.is_requested() {
            return Ok((best, asked));
        }
        // The floor itself first: it may be reached.
        let middle = if asked == 0 { low } else { low + (high - low) / 2 };
        asked += 1;
        match ask(middle) {
            Ok(found) if found.peak < high => best = found,
            Ok(_) => low = middle + 1,
            Err(error) => {
                nothing_found(error)?;
                low = middle + 1;
            }
        }
    }
}

/// Looks for points between others, which come the highest first, with at most so many asks; and says how many it took.
///
/// # Errors
/// What is wrong with the question.
pub(crate) fn fill<T>(
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
pub(crate) fn kept<T>(mut points: Vec<Point<T>>, seconds: impl Fn(&T) -> f64) -> Vec<Point<T>> {
    points.sort_by(|a, b| seconds(&a.found).total_cmp(&seconds(&b.found)).then(a.peak.cmp(&b.peak)));
    let mut least = u64::MAX;
    points.retain(|point| {
        let is_lower = point.peak < least;
        least = least.min(point.peak);
        is_lower
    });
    points
}
