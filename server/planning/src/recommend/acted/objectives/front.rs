//! What less memory costs in time: a front between both, sampled at some peaks.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::compared::FrontPoint;

use super::impossible::nothing_found;
use super::proof::looked_at;
use super::room::{Found, Room};
use super::{ActionsQuestion, NamedPlan, QuestionError};
use crate::search::Unit;

/// Most peaks that plans are held to.
const MOST_CAPS: u32 = 32;
/// As many of them to find the lowest.
const FOR_THE_LOWEST: u32 = 8;
/// As close as this part of the highest peak no further one is looked for.
const CLOSE: u64 = 256;

/// A plan, and the peak that it was held to.
struct Point {
    cap: u64,
    peak: u64,
    found: Found,
}

impl ActionsQuestion<'_> {
    /// The fastest plan, with a front between peak and seconds that is sampled.
    pub(super) fn front(&self) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let room = Room::whole(self);
        let first = self.told(&room).map_err(|error| self.explained(error, &room))?;
        let (points, caps) = self.sampled(&room, first.clone())?;
        let (highest, lowest) =
            (points.first().map_or(0, |point| point.peak), points.last().map_or(0, |point| point.peak));
        let mut others: Vec<NamedPlan> = Vec::new();
        let mut front = Vec::with_capacity(points.len());
        // The least memory first, as fronts are told.
        for point in kept(points).into_iter().rev() {
            let mut plan = point.found.plan;
            plan.found.baselines = Vec::new();
            // Before it is named: that follows from all of it.
            self.writer.tell_saved(&mut plan)?;
            let name = plan.name()?;
            front.push(FrontPoint {
                plan: Some(name.clone()),
                summary: plan.outline()?,
                recompute: plan.stages.iter().map(|stage| stage.recompute).collect(),
            });
            if others.iter().all(|(other, _)| *other != name) {
                others.push((name, plan));
            }
        }
        let Found { mut plan, mut certificate, bound_is, .. } = first;
        // The whole front is asked for, and that is not proven.
        certificate.proven = false;
        certificate.stopped |= self.stop.is_requested();
        plan.found.certificate = Some(certificate);
        plan.found.front = front;
        plan.warnings.push(looked_at(self.wish.shape));
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
    fn sampled(&self, room: &Room, first: Found) -> Result<(Vec<Point>, u32), QuestionError> {
        let peak = self.peak(&first.plan);
        let floor = self.floor(room, peak);
        let (lowest, mut caps) = self.lowest(room, first.clone(), floor, FOR_THE_LOWEST)?;
        let least = self.peak(&lowest.plan);
        let mut points = vec![Point { cap: u64::MAX, peak, found: first }];
        if least < peak {
            points.push(Point { cap: least, peak: least, found: lowest });
        }
        // Within a peak that an answer for a higher one keeps to, the answer is the same: only below it there is another.
        let mut empty: Vec<(u64, u64)> = Vec::new();
        while caps < MOST_CAPS && !self.stop.is_requested() {
            let gaps = points.windows(2).map(|pair| (pair[1].cap, pair[0].peak));
            let widest =
                gaps.filter(|gap| !empty.contains(gap)).max_by_key(|(low, high)| high.saturating_sub(*low));
            let Some((low, high)) = widest.filter(|(low, high)| high.saturating_sub(*low) > peak / CLOSE)
            else {
                break;
            };
            let cap = low + (high - low) / 2;
            caps += 1;
            match self.fastest(&room.within(cap)) {
                Ok(found) => {
                    let at = points.partition_point(|point| point.cap > cap);
                    points.insert(at, Point { cap, peak: self.peak(&found.plan), found });
                }
                Err(error) => {
                    nothing_found(error)?;
                    empty.push((low, high));
                }
            }
        }
        // The plan within no peak but the devices' memory is one of them.
        Ok((points, caps + 1))
    }

    fn peak_text(&self, peak: u64) -> String {
        match self.wish.unit {
            Unit::Bytes => Bytes(peak).to_string(),
            Unit::Share => format!("{:.1} %", 100.0 * peak as f64 / Unit::WHOLE as f64),
        }
    }
}

/// The points that no other one beats in both, the fastest first.
fn kept(mut points: Vec<Point>) -> Vec<Point> {
    let seconds = |point: &Point| point.found.plan.iteration_seconds().unwrap_or(f64::INFINITY);
    points.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)).then(a.peak.cmp(&b.peak)));
    let mut least = u64::MAX;
    points.retain(|point| {
        let is_lower = point.peak < least;
        least = least.min(point.peak);
        is_lower
    });
    points
}
