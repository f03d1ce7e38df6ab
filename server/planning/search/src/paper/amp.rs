//! AMP's layer assignment (3.5), a dynamic program in O(k · L⁴).

use super::super::time::{Limits, Time, is_within_limits, parts};
use super::super::{
    Assignment, Ended, LinkId, PlaceId, PlacedStage, Question, Searched, StageAt, StageCosts, Stop,
};
use super::is_allowed;

/// Values of the program's table, at most: (layer, stages, tolerance).
const MOST_VALUES: usize = 64 << 20;

/// Table entries between two looks at the flag.
const ENTRIES_BETWEEN_LOOKS: usize = 1 << 12;

/// How a sub-problem's cost is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recursion {
    /// With the inputs of all its stages: equation 8. Where a stage costs the sum of its layers, and the devices
    /// are alike, the assignment is the best there is.
    Equation,
    /// As the authors' program does: without the input of its last stage, and compared with it. Where edges
    /// matter it misses the best by up to 1.6 %, and the cost it prints leaves the inputs out.
    Program,
}

/// Layers that stay together, and what they cost.
struct LayerUnit {
    last: usize,
    seconds: f64,
}

/// AMP's assignment of layers to stages, for each choice of the question that has one pipeline: as many stages
/// as its devices fit into the fleet's, in order. The best of them by the question's own costs, as
/// [`fastest`](super::super::time::fastest) counts them.
///
/// AMP knows one time per layer (the largest of its stages' here, where kinds differ) and adds layers up. It
/// does not look at memory: a plan that breaks the question's limits is dropped at the end. Nothing is
/// proven, so there is no bound. Questions beyond the size that the program can remember are not
/// answered.
pub fn pipe_ast<C: StageCosts>(
    question: &Question<'_, C>,
    recursion: Recursion,
    stop: &Stop,
) -> Searched<Time> {
    let mut answer = Searched { best: None, bound: None, states: 0, ended: Ended::Bounded };
    for &choice in question.choices {
        let Some(steps) = pipeline(question, choice) else { continue };
        let Some(lasts) = assign(question, choice, &steps, recursion, stop, &mut answer.states) else {
            if stop.is_requested() {
                answer.ended = Ended::Stopped;
                return answer;
            }
            continue;
        };
        let mut first = 0;
        let stages = steps.iter().zip(lasts).map(|(&(from, step), last)| {
            let stage = PlacedStage { first, last, choice, from, step };
            first = last + 1;
            stage
        });
        let stages: Vec<PlacedStage> = stages.collect();
        let Some(parts) = parts(question, &stages) else { continue };
        let value = parts.time(question.micro_batches);
        let is_better = answer.best.as_ref().is_none_or(|best| value < best.value);
        let keeps_to_limits = question.stages.contains(&stages.len())
            && stages.iter().all(|stage| is_allowed(question, stage))
            && is_within_limits(question, &stages, &Limits::default());
        if is_better && keeps_to_limits {
            answer.best = Some(Assignment { stages, value });
        }
    }
    answer
}

/// The steps of a choice's pipeline; none where it does not fill the places.
fn pipeline<C: StageCosts>(question: &Question<'_, C>, choice: usize) -> Option<Vec<(PlaceId, usize)>> {
    let devices = question.costs.choices().get(choice)?.devices();
    let mut place = 0;
    let mut steps = Vec::new();
    while place != question.places.last() {
        let step = question.places.steps(place).iter().position(|step| step.devices == devices)?;
        steps.push((place, step));
        place = question.places.steps(place)[step].to;
    }
    Some(steps)
}

/// The layers between two places where the chain may be cut.
fn units<C: StageCosts>(
    question: &Question<'_, C>,
    choice: usize,
    steps: &[(PlaceId, usize)],
) -> Option<Vec<LayerUnit>> {
    let layers = question.costs.layers();
    let mut kinds: Vec<StageAt> = Vec::new();
    for &(place, step) in steps {
        let at = question.stage_at(question.places.steps(place).get(step)?, 0, 0, choice);
        if !kinds.contains(&at) {
            kinds.push(at);
        }
    }
    let mut units = Vec::new();
    let mut first = 0;
    for last in (0..layers).filter(|&last| question.cuts.may_end(last)) {
        let on = kinds.iter().map(|&at| question.costs.seconds(&StageAt { first, last, ..at }));
        let seconds = on.map(|seconds| seconds.map(|seconds| seconds.passes()));
        let seconds = seconds.reduce(|one, other| Some(one?.max(other?)))??;
        units.push(LayerUnit { last, seconds });
        first = last + 1;
    }
    Some(units)
}

/// The last layer of each stage: the assignment that equation 6 is lowest for, with tolerance 0. Its term Σ t is the
/// same for all assignments, and left out.
fn assign<C: StageCosts>(
    question: &Question<'_, C>,
    choice: usize,
    steps: &[(PlaceId, usize)],
    recursion: Recursion,
    stop: &Stop,
    states: &mut u64,
) -> Option<Vec<usize>> {
    let units = units(question, choice, steps)?;
    let (count, stages) = (units.len(), steps.len());
    if stages == 0 || stages > count {
        return None;
    }
    let sums = prefix_sums(&units);
    let tolerances = tolerances(&sums);
    if count.saturating_mul(stages).saturating_mul(tolerances.len()) > MOST_VALUES {
        return None;
    }
    let rank = |value: f64| tolerances.partition_point(|&tolerance| tolerance < value);
    let ranks = sums.iter().map(|&sum| rank(sum)).collect();
    let repeats = f64::from(question.micro_batches.saturating_sub(1));
    let table = ProgramTable { count, stages, sums, tolerances, ranks, repeats };
    // e: the input of a stage after a cut.
    let entry = |cut: usize, stage: usize| -> f64 {
        let (place, step) = steps[stage];
        let link: LinkId = question.places.steps(place)[step].entry;
        question.costs.cut_seconds(units[cut].last, link, choice)
    };
    let cuts = table.fill(entry, recursion, stop, states)?;
    let lasts = table.trace_back(&cuts)?;
    Some(lasts.into_iter().map(|last| units[last].last).collect())
}

/// t: the seconds of every stage, by first and last unit, added from the left as the authors' program does.
fn prefix_sums(units: &[LayerUnit]) -> Vec<f64> {
    let count = units.len();
    let mut sums = vec![0.0; count * count];
    for first in 0..count {
        let mut sum = 0.0;
        for last in first..count {
            sum += units[last].seconds;
            sums[first * count + last] = sum;
        }
    }
    sums
}

/// m: 0, and the seconds of all stages, ascending.
fn tolerances(sums: &[f64]) -> Vec<f64> {
    let seconds = sums.iter().copied().filter(|&sum| sum > 0.0);
    let mut tolerances: Vec<f64> = std::iter::once(0.0).chain(seconds).collect();
    tolerances.sort_by(f64::total_cmp);
    tolerances.dedup();
    tolerances
}

/// The program's table `dp[i][j][m]`: by last unit i, stage j and tolerance m.
struct ProgramTable {
    count: usize,
    stages: usize,
    /// t, by first and last unit.
    sums: Vec<f64>,
    /// m, ascending.
    tolerances: Vec<f64>,
    /// By first and last unit: the index of its seconds as a tolerance.
    ranks: Vec<usize>,
    /// gas − 1.
    repeats: f64,
}

impl ProgramTable {
    /// Its cuts i': the last unit of the stage before; none when stopped.
    fn fill(
        &self,
        entry: impl Fn(usize, usize) -> f64,
        recursion: Recursion,
        stop: &Stop,
        states: &mut u64,
    ) -> Option<Vec<u32>> {
        let (count, width) = (self.count, self.tolerances.len());
        let size = count * width;
        let straggles = |sum: f64, tolerance: f64| self.repeats * (sum - tolerance).max(0.0);
        let mut cuts = vec![u32::MAX; self.stages * size];
        // (7): g(i) = (gas − 1) · max(0, t1 − m).
        let firsts = self.sums[..count].iter();
        let mut costs: Vec<f64> =
            firsts.flat_map(|&sum| self.tolerances.iter().map(move |&m| straggles(sum, m))).collect();
        for stage in 1..self.stages {
            let mut next = vec![f64::INFINITY; size];
            let entries: Vec<f64> = (0..count).map(|cut| entry(cut, stage)).collect();
            for last in stage..count {
                for (m, &tolerance) in self.tolerances.iter().enumerate() {
                    let mut best = f64::INFINITY;
                    for cut in stage - 1..last {
                        // (8): g(i') = dp[i'][j − 1][max(t2, m)] + (gas − 1) · max(0, t2 − m) + e.
                        let index = (cut + 1) * count + last;
                        let before = costs[cut * width + self.ranks[index].max(m)];
                        let cost = before + straggles(self.sums[index], tolerance) + entries[cut];
                        if cost < best {
                            best = match recursion {
                                Recursion::Equation => cost,
                                Recursion::Program => cost - entries[cut],
                            };
                            cuts[stage * size + last * width + m] = cut as u32;
                        }
                    }
                    next[last * width + m] = best;
                    *states += 1;
                    if (*states as usize).is_multiple_of(ENTRIES_BETWEEN_LOOKS) && stop.is_requested() {
                        return None;
                    }
                }
            }
            costs = next;
        }
        Some(cuts)
    }

    /// The last unit of each stage, from `dp[L][k][0]` back.
    fn trace_back(&self, cuts: &[u32]) -> Option<Vec<usize>> {
        let (count, width) = (self.count, self.tolerances.len());
        let (mut last, mut m) = (count - 1, 0);
        let mut lasts = vec![last];
        for stage in (1..self.stages).rev() {
            let cut = cuts[(stage * count + last) * width + m] as usize;
            m = m.max(*self.ranks.get((cut + 1) * count + last)?);
            last = cut;
            lasts.push(last);
        }
        lasts.reverse();
        Some(lasts)
    }
}
