//! What a device of a stage holds when, beside what is in its host's memory and what others have in its own.

use loadmaster_proto::plan::Plan;

use super::IterationTimeline;
use crate::plan::scaled;
use loadmaster_predict::{Breakdown, Pool};

/// What the device with the highest peak of a stage holds in an iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct StageCurve {
    /// The most: the plan's predicted peak.
    pub peak: u64,
    /// What it takes of its host's memory.
    pub host_pool: u64,
    /// What it sets aside for others, part of each point.
    pub peer_pool: u64,
    /// How many steps a point stands for.
    pub steps_per_point: usize,
    /// In order.
    pub points: Vec<CurvePoint>,
}

/// From here to the next point, or to the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// Seconds since the start of the iteration.
    pub start: f64,
    /// When it is most.
    pub held: Breakdown,
    /// The most of its own blocks in the host's memory.
    pub host: u64,
    /// The most of others' blocks in its own.
    pub peer_pools: u64,
}

impl IterationTimeline {
    /// The curve of a stage in at most so many points; none where its most is not what the plan says. Steps that share a
    /// point are shown with the one that needs most of them.
    pub fn curve(&self, plan: &Plan, stage: usize, most: usize) -> Option<StageCurve> {
        let (acted, of_plan) = (self.acted.get(stage)?, plan.stages.get(stage)?);
        let (peer_pool, times) = (*self.peer_pools.get(stage)?, &self.copied.devices.get(stage)?.steps);
        let done = self.done.get(stage)?;
        let (predicted, peak) = (acted.prediction(peer_pool).bytes.0, of_plan.predicted_peak);
        let is_corrected = plan.found.corrections.iter().any(|of| of.ledger.is_some());
        if acted.curve.is_empty() || (predicted != peak && !is_corrected) {
            return None;
        }
        let factor = peak as f64 / predicted.max(1) as f64;
        let held = |parts: Breakdown| {
            let parts = Breakdown { overhead: parts.overhead.saturating_add(peer_pool), ..parts };
            let total = parts.total();
            scaled(parts, total, if predicted == peak { total } else { corrected(total, factor, peak) })
        };
        let own = acted.pools.iter().find(|pool| pool.peer.is_none());
        let others = self.hosted_by(plan, stage);
        let steps_per_point = done.len().div_ceil(most.max(1)).max(1);
        let mut points: Vec<CurvePoint> = Vec::with_capacity(done.len() / steps_per_point + 1);
        for (chunk, steps) in done.chunks(steps_per_point).enumerate() {
            let first = chunk * steps_per_point;
            let next = first + steps.len();
            let start = if chunk == 0 { 0.0 } else { times.get(first)?.0 };
            let end = times.get(next).map_or(f64::INFINITY, |next| next.0);
            let fullest = steps
                .iter()
                .filter_map(|done| Some(acted.curve.get(done.step)?.most))
                .reduce(|one, other| if other.total() > one.total() { other } else { one })?;
            let at_host =
                |pool: &Pool| steps.iter().filter_map(|of| pool.at_boundaries.get(of.step)).max().copied();
            let host = own.and_then(at_host);
            let peer_pools = others.most(start, end);
            points.push(CurvePoint { start, held: held(fullest), host: host.unwrap_or(0), peer_pools });
        }
        let host_pool = of_plan.actions.host_pool.0;
        Some(StageCurve { peak, host_pool, peer_pool, steps_per_point, points })
    }

    /// What other stages have on a device of a stage.
    fn hosted_by(&self, plan: &Plan, host: usize) -> Levels {
        let devices = |stage: usize| plan.stages.get(stage).map_or(1, |of| of.config.devices().max(1));
        let mut changes: Vec<(f64, i128)> = Vec::new();
        let donors = self.acted.iter().zip(&self.copied.devices).zip(&self.done);
        for (donor, ((acted, times), done)) in donors.enumerate() {
            let here = |peer: Option<u32>| peer.is_some_and(|peer| peer as usize == host);
            // One device may host several of a stage that has more of them.
            let times_each = i128::from(devices(donor).div_ceil(devices(host)));
            for pool in acted.pools.iter().filter(|pool| here(pool.peer)) {
                let mut before = 0;
                let at_boundaries = done.iter().filter_map(|done| pool.at_boundaries.get(done.step));
                for (boundary, &bytes) in at_boundaries.enumerate() {
                    let at = boundary.checked_sub(1).and_then(|step| times.steps.get(step));
                    let bytes = i128::from(bytes) * times_each;
                    if bytes != before {
                        changes.push((at.map_or(0.0, |step| step.1), bytes - before));
                        before = bytes;
                    }
                }
            }
        }
        Levels::of(changes)
    }
}

/// Predicted bytes as the plan's peak was corrected.
fn corrected(bytes: u64, factor: f64, peak: u64) -> u64 {
    ((bytes as f64 * factor).ceil() as u64).min(peak)
}

/// Bytes that change at moments.
struct Levels(Vec<(f64, u64)>);

impl Levels {
    fn of(mut changes: Vec<(f64, i128)>) -> Self {
        changes.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (mut levels, mut level) = (Vec::<(f64, u64)>::new(), 0_i128);
        for (at, change) in changes {
            level += change;
            let bytes = u64::try_from(level).unwrap_or(0);
            match levels.last_mut().filter(|last| last.0 == at) {
                Some(last) => last.1 = bytes,
                None => levels.push((at, bytes)),
            }
        }
        Self(levels)
    }

    /// The most from one moment to before another.
    fn most(&self, from: f64, until: f64) -> u64 {
        let first = self.0.partition_point(|level| level.0 <= from).saturating_sub(1);
        let within =
            self.0.iter().skip(first).take_while(|level| level.0 < until.max(from) || level.0 <= from);
        within.map(|level| level.1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_the_most_within_a_while() {
        let levels = Levels::of(vec![(1.0, 10), (3.0, -10), (2.0, 5), (2.0, 20), (3.0, 2)]);
        let most = [(0.0, 1.0), (0.0, 1.5), (1.0, 2.0), (1.5, 3.5), (3.0, 9.0), (5.0, 5.0)];
        let most = most.map(|(from, until)| levels.most(from, until));
        // Nothing is there before the first change but what it begins with.
        assert_eq!(most, [0, 10, 10, 35, 27, 27]);
        assert_eq!(Levels::of(Vec::new()).most(0.0, 1.0), 0);
    }
}
