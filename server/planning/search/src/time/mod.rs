//! Lowest iteration time, exactly.
//!
//! AMP's objective (its equations 4 and 5), over every plan that a [`Question`] allows:
//!
//! ```text
//! T = Σ t + Σ e + (m − 1) · max t + max s
//! ```
//!
//! t: both passes of a stage for one micro-batch; e: the input of a stage over its link; s: what a stage does
//! once per iteration, gradient synchronisation and optimizer step; m: micro-batches. AMP's program takes
//! O(k · L⁴) for k stages and L layers; here the bounds on max t and max s are searched (`sweep`), and each pair
//! of bounds costs one shortest path over (place, layer): O(k · L²) at most where all stages have equally
//! many devices.
//!
//! | module | what it does |
//! |---|---|
//! | `step_classes` | what distinguishes stages, for the graph of which may follow which (`search::graph`) |
//! | `tables` | seconds and room of every stage, asked once |
//! | `levels` | the best of the choices of each stage within bounds |
//! | `program` | one shortest path |
//! | `sweep` | the search over the bounds |
//! | `recompute` | stages that fit only if they recompute some layers, and costs under which stages choose those |
//! | `value` | what a given plan is worth |
//! | `questions` | the best of several questions, and of the orders of nodes |

mod levels;
mod program;
mod questions;
mod recompute;
mod step_classes;
mod sweep;
mod tables;
#[cfg(test)]
mod tests;
mod value;

use super::graph::{Counting, Counts};
use super::{Assignment, Ended, Peak, PlacedStage, Question, Searched, StageAt, StageCosts, Stop, Unit};
use step_classes::{StepClasses, StepGraph, enough, graph};
use sweep::{PathStage, Survey, Swept, survey, sweep};
use tables::{Tables, stages_of};

pub use questions::{Race, fastest_over};
pub use recompute::{PerLayer, Saving, Savings};
pub use value::{Parts, Time, highest_peak, is_within_limits, parts};

/// Name and version of this search.
pub const SOLVER: &str = "time/1";

/// A limit on the peak of every stage, besides the devices' capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// How peaks are measured.
    pub unit: Unit,
    /// The most that a peak may be.
    pub most: u64,
}

/// Which plans are of interest at all.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Those whose peaks keep to this.
    pub cap: Option<Cap>,
    /// Those that are faster than this.
    pub below: Option<Time>,
}

impl Limits {
    /// Whether bytes are limited at all.
    fn are_of_bytes<C>(&self, question: &Question<'_, C>) -> bool {
        question.within_capacity || self.cap.is_some()
    }

    /// The bytes by which a peak exceeds the devices' capacity, where that is asked, or the cap.
    fn excess<C>(&self, question: &Question<'_, C>, stage: &StageAt, peak: Peak) -> u64 {
        let capacity = question.fleet.capacity(stage.kinds);
        let room = if question.within_capacity { capacity.0 } else { u64::MAX };
        let allowed = self.cap.map_or(u64::MAX, |cap| cap.unit.most_bytes(cap.most, capacity));
        peak.needed.saturating_sub(room).max(peak.bytes.saturating_sub(allowed))
    }
}

/// Values that a program which counts stages may hold at once: 64 MiB of them for each direction.
const MOST_VALUES: usize = 8 << 20;

/// Values that any program may hold at once, and stages that tables may hold: an eighth and a quarter of a GiB.
const MOST_PLAIN_VALUES: usize = 16 << 20;
const MOST_STAGES: usize = 12 << 20;

/// The plan with the lowest iteration time within the limits.
///
/// The answer is [`Ended::Bounded`] where counting the stages to come, on which peaks under 1F1B and limits on
/// the number of stages depend, would take too many states. Its plan is then the best of those that fit even
/// if the longest possible pipeline followed. It is that too, without a plan or a bound, where not even that can
/// be held in memory. Nothing found and nothing bounded below [`Limits::below`] means
/// that no plan within the limits is faster than that.
pub fn fastest<C: StageCosts>(question: &Question<'_, C>, limits: &Limits, stop: &Stop) -> Searched<Time> {
    let found = fastest_counting(question, limits, WhenCounted::USUAL, stop);
    // What effort ends is bounded.
    let ended = if found.ended == Ended::Stopped { stop.ended() } else { found.ended };
    Searched { ended, ..found }
}

/// When stages to come are counted.
#[derive(Debug, Clone, Copy)]
struct WhenCounted {
    /// At once, if that takes no more nodes than so many times those that are needed without.
    at_once: usize,
    /// At all, if that takes no more values than so many.
    at_all: usize,
}

impl WhenCounted {
    const USUAL: Self = Self { at_once: 2, at_all: MOST_VALUES };
}

fn fastest_counting<C: StageCosts>(
    question: &Question<'_, C>,
    limits: &Limits,
    when_counted: WhenCounted,
    stop: &Stop,
) -> Searched<Time> {
    let is_limited = limits.are_of_bytes(question);
    let nothing = Searched { best: None, bound: None, states: 0, ended: Ended::Bounded };
    let Some(counts) = Counts::of(question, enough(question, is_limited), usize::MAX) else { return nothing };
    let alike = StepClasses::of(question, &counts);
    let layers = question.costs.layers();
    let plain_values = counts.plain_nodes().saturating_mul(layers + 1);
    if plain_values > MOST_PLAIN_VALUES || stages_of(question, &alike) > MOST_STAGES {
        return nothing;
    }
    let most_held = question.in_flight(counts.longest().min(layers).saturating_sub(1));
    let Some(tables) = Tables::of(question, &alike, most_held, limits, stop) else {
        return Searched { ended: Ended::Stopped, ..nothing };
    };
    let graph = |counting: Counting| graph(question, &counts, &alike, counting);
    let limit = limits.below.map_or(f64::INFINITY, |time| time.0);
    let run = |graph: &StepGraph, limit: f64, survey: Option<&Survey>| {
        sweep(graph, &tables, question.micro_batches, limit, survey, stop)
    };
    // A plan that was valued too well, or too badly, as it really is; none where it breaks the limits.
    let realised = |plan: Assignment<Time>| {
        let value = value::realised(question, &plan.stages, limits)?;
        let is_allowed = question.stages.contains(&plan.stages.len());
        // Its terms may have been added up in another order.
        let is_as_valued = (value.0 - plan.value.0).abs() <= 1e-12 * plan.value.0;
        let value = if is_as_valued { plan.value } else { value };
        is_allowed.then_some(Assignment { value, ..plan })
    };

    let (exact, plain) = (counts.exact_nodes(), counts.plain_nodes());
    let is_small = exact.saturating_mul(tables.layers + 1) <= when_counted.at_all;
    if exact <= when_counted.at_once * plain && is_small {
        let exact = graph(Counting::Exact);
        return searched(&exact, run(&exact, limit, None), 0);
    }
    // The larger graph is rarely needed: mostly the best plan of the smaller one keeps to the limits.
    let fewest = graph(Counting::Fewest);
    let mut answer = searched(&fewest, run(&fewest, limit, None), 0);
    let bound = answer.bound;
    let Some(plan) = answer.best.take() else { return answer };
    answer.best = realised(plan).filter(|plan| plan.value.0 < limit);
    if answer.ended != Ended::Proven || answer.best.as_ref().is_some_and(|plan| Some(plan.value) == bound) {
        return answer;
    }
    // Counted too badly, plans that fit are found quickly.
    let limit_of = |answer: &Searched<Time>| answer.best.as_ref().map_or(limit, |plan| plan.value.0);
    let most = graph(Counting::Most);
    let tight = searched(&most, run(&most, limit_of(&answer), None), answer.states);
    answer.states = tight.states;
    if let Some(plan) = tight.best.and_then(realised).filter(|plan| plan.value.0 < limit_of(&answer)) {
        answer.best = Some(plan);
    }
    if tight.ended == Ended::Stopped || !is_small {
        answer.ended = if tight.ended == Ended::Stopped { Ended::Stopped } else { Ended::Bounded };
        return answer;
    }
    let limit = limit_of(&answer);
    let survey = survey(&fewest, &tables, question.micro_batches, limit, question.places.count(), stop);
    let exact = graph(Counting::Exact);
    let counted = searched(&exact, run(&exact, limit, survey.as_ref()), answer.states);
    Searched { best: counted.best.or(answer.best), ..counted }
}

/// A sweep's answer in the question's terms.
fn searched(graph: &StepGraph, swept: Swept, states_before: u64) -> Searched<Time> {
    let Swept { best, bound, states, is_stopped } = swept;
    let best = best
        .map(|(value, start, path)| Assignment { stages: placed(graph, start, &path), value: Time(value) });
    let ended = match &best {
        _ if is_stopped => Ended::Stopped,
        Some(best) if bound < best.value.0 => Ended::Bounded,
        _ => Ended::Proven,
    };
    Searched { best, bound: Some(Time(bound)), states: states + states_before, ended }
}

fn placed(graph: &StepGraph, start: u32, path: &[PathStage]) -> Vec<PlacedStage> {
    let (mut node, mut first) = (start, 0);
    let stage = |part: &PathStage| {
        let arc = &graph.arcs[part.arc];
        let from = graph.nodes[node as usize].place;
        let placed =
            PlacedStage { first, last: part.last, choice: part.choice, from, step: arc.step as usize };
        (node, first) = (arc.to, part.last + 1);
        placed
    };
    path.iter().map(stage).collect()
}
