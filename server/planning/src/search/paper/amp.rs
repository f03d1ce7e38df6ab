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
struct Unit {
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
) -> Option<Vec<Unit>> {
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
        units.push(Unit { last, seconds });
        first = last + 1;
    }
    Some(units)
}

/// The last layer of each stage.
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
    // Seconds of every stage: the sum of its units from the left, as the authors' program adds them.
    let mut sums = vec![0.0; count * count];
    for first in 0..count {
        let mut sum = 0.0;
        for last in first..count {
            sum += units[last].seconds;
            sums[first * count + last] = sum;
        }
    }
    let mut tolerances: Vec<f64> =
        std::iter::once(0.0).chain(sums.iter().copied().filter(|&sum| sum > 0.0)).collect();
    tolerances.sort_by(f64::total_cmp);
    tolerances.dedup();
    let width = tolerances.len();
    if count.saturating_mul(stages).saturating_mul(width) > MOST_VALUES {
        return None;
    }
    let rank = |value: f64| tolerances.partition_point(|&tolerance| tolerance < value);
    let ranks: Vec<usize> = sums.iter().map(|&sum| rank(sum)).collect();
    let repeats = f64::from(question.micro_batches.saturating_sub(1));
    let entry = |cut: usize, stage: usize| -> f64 {
        let (place, step) = steps[stage];
        let link: LinkId = question.places.steps(place)[step].entry;
        question.costs.cut_seconds(units[cut].last, link, choice)
    };

    // By stage, last unit and tolerance: the cost, and the last unit of the stage before.
    let size = count * width;
    let mut costs = vec![f64::INFINITY; size];
    let mut cuts = vec![u32::MAX; stages * size];
    for last in 0..count {
        for (m, &tolerance) in tolerances.iter().enumerate() {
            costs[last * width + m] = repeats * (sums[last] - tolerance).max(0.0);
        }
    }
    for stage in 1..stages {
        let mut next = vec![f64::INFINITY; size];
        let entries: Vec<f64> = (0..count).map(|cut| entry(cut, stage)).collect();
        for last in stage..count {
            for (m, &tolerance) in tolerances.iter().enumerate() {
                let mut best = f64::INFINITY;
                for cut in stage - 1..last {
                    let index = (cut + 1) * count + last;
                    let sum = sums[index];
                    let before = costs[cut * width + ranks[index].max(m)];
                    let cost = before + repeats * (sum - tolerance).max(0.0) + entries[cut];
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

    // Back from the last stage, whose tolerance is 0.
    let (mut last, mut m) = (count - 1, 0);
    let mut lasts = vec![units[last].last];
    for stage in (1..stages).rev() {
        let cut = cuts[stage * size + last * width + m] as usize;
        let index = (cut + 1) * count + last;
        m = m.max(*ranks.get(index)?);
        last = cut;
        lasts.push(units[last].last);
    }
    lasts.reverse();
    Some(lasts)
}
