//! The exact search for the lowest peaks: the lowest possible highest cost, then one peak after the other.
//!
//! The lowest possible highest cost of a stage.
//! It is the cost of some stage. Of those that are still possible the middle one is tried: either the end
//! can be reached by stages that cost no more, or not, and half of them are gone. Finding the middle takes
//! linear time, so all of it does, but for the tries, of which there are as many as halvings.

use super::super::{Assignment, Ended, PlacedStage, Question, Searched, StageCosts, Stop};
use super::bits::Bits;
use super::classes::{Class, ClassGraph, classed};
use super::costs::{self, Costs, Measure, NONE};
use super::effort::{MemoryEffort, SizeLimits, Stopped, Unfinished};
use super::leximax::{self, Untied};
use super::reach::{Hop, Reachable};
use super::{Peaks, Run};

/// The plan with the leximax-lowest costs.
///
/// # Errors
/// The search could not begin.
pub(super) fn leximax<C: StageCosts>(
    question: &Question<'_, C>,
    measure: Measure,
    stop: &Stop,
    limits: SizeLimits,
) -> Result<Searched<Peaks>, Unfinished> {
    let mut effort = MemoryEffort::new(stop, limits);
    let (graph, classes) = classed(question, &effort)?;
    let costs = Costs::ask(question, &graph, &classes, measure, &effort)?;
    let Narrowed { best, at_least, is_stopped } = narrow(&graph, &costs, &mut effort);
    let Some((limit, hops)) = best else {
        let ended = if is_stopped { Ended::Stopped } else { Ended::Proven };
        return Ok(Searched { best: None, bound: None, states: effort.states, ended });
    };
    let untied = match is_stopped {
        true => Untied {
            known: at_least.map(lone).into_iter().collect(),
            unfinished: Some(Unfinished::Stopped),
            hops: None,
        },
        false => leximax::untie(&graph, &costs, limit, &mut effort),
    };
    let (stages, value) = placed(question, untied.hops.as_ref().unwrap_or(&hops), measure);
    let bound = if untied.unfinished.is_some() { Peaks::of(untied.known) } else { value.clone() };
    // Where all devices have the highest peak there is nothing left to decide.
    let unfinished = untied.unfinished.filter(|_| bound != value);
    let ended = unfinished.map_or(Ended::Proven, Unfinished::ended);
    let best = Some(Assignment { stages, value });
    Ok(Searched { best, bound: Some(bound), states: effort.states, ended })
}

/// A plan with the lowest highest cost.
///
/// # Errors
/// The search could not begin.
pub(super) fn bottleneck<C: StageCosts>(
    question: &Question<'_, C>,
    measure: Measure,
    stop: &Stop,
    limits: SizeLimits,
) -> Result<Searched<u64>, Unfinished> {
    let mut effort = MemoryEffort::new(stop, limits);
    let (graph, classes) = classed(question, &effort)?;
    let costs = Costs::ask(question, &graph, &classes, measure, &effort)?;
    let Narrowed { best, at_least, is_stopped } = narrow(&graph, &costs, &mut effort);
    let best = best.map(|(value, hops)| Assignment { stages: placed(question, &hops, measure).0, value });
    let ended = if is_stopped { Ended::Stopped } else { Ended::Proven };
    Ok(Searched { best, bound: at_least, states: effort.states, ended })
}

/// The highest peak alone, on one device: it begins, or is less than, the peaks of every plan with one as high.
pub(super) fn lone(peak: u64) -> Run {
    Run { peak, devices: 1 }
}

/// The stages of a path with their choices, and their peaks.
fn placed<C: StageCosts>(
    question: &Question<'_, C>,
    hops: &[Hop],
    measure: Measure,
) -> (Vec<PlacedStage>, Peaks) {
    let stages = hops.iter().enumerate().filter_map(|(index, hop)| {
        let step = *question.places.steps(hop.from).get(hop.step)?;
        let in_flight = question.in_flight(hops.len() - 1 - index);
        let class = Class { step, in_flight, walls: 0 };
        let (choice, peak) = costs::best_choice(question, &class, hop.layers.clone(), measure)?;
        let (first, last) = (hop.layers.start, hop.layers.end - 1);
        let stage = PlacedStage { first, last, choice, from: hop.from, step: hop.step };
        Some((stage, Run { peak, devices: step.devices }))
    });
    let (stages, runs): (Vec<PlacedStage>, Vec<Run>) = stages.unzip();
    (stages, Peaks::of(runs))
}

/// What is known of the bottleneck.
#[derive(Debug)]
pub(super) struct Narrowed {
    /// The lowest highest cost that was reached, and a path with it. None where there is no path.
    pub(super) best: Option<(u64, Vec<Hop>)>,
    /// No path has a lower one; none where that is not known.
    pub(super) at_least: Option<u64>,
    /// Whether the search was stopped before the two met.
    pub(super) is_stopped: bool,
}

/// Finds the lowest limit within which the end can be reached.
pub(super) fn narrow(graph: &ClassGraph, costs: &Costs, effort: &mut MemoryEffort<'_>) -> Narrowed {
    let mut narrowed = Narrowed { best: None, at_least: None, is_stopped: false };
    narrowed.is_stopped = halve(graph, costs, effort, &mut narrowed).is_err();
    if !narrowed.is_stopped {
        narrowed.at_least = narrowed.best.as_ref().map(|&(limit, _)| limit);
    }
    narrowed
}

fn halve(
    graph: &ClassGraph,
    costs: &Costs,
    effort: &mut MemoryEffort<'_>,
    narrowed: &mut Narrowed,
) -> Result<(), Stopped> {
    // States on paths within the lowest limit that was reached.
    let mut known: Option<Bits> = None;
    let mut attempt = |limit: u64| {
        let reach = Reachable::of(graph, costs, limit, known.as_ref(), effort)?;
        if !reach.is_open(graph) {
            return Ok(None);
        }
        known = Some(reach.met(graph, effort)?);
        Ok(Some(reach.walk(graph, costs)))
    };
    let highest = |hops: &[Hop]| hops.iter().map(|hop| hop.cost).max().unwrap_or(0);
    let Some(hops) = attempt(NONE - 1)? else { return Ok(()) };
    let mut lowest = highest(&hops);
    narrowed.best = Some((lowest, hops));

    let mut possible: Vec<u64> = costs.values.iter().copied().filter(|&value| value < lowest).collect();
    narrowed.at_least = possible.iter().copied().min().or(Some(lowest));
    while !possible.is_empty() {
        let middle = possible.len() / 2;
        let (_, &mut limit, _) = possible.select_nth_unstable(middle);
        match attempt(limit)? {
            Some(hops) => {
                lowest = highest(&hops);
                narrowed.best = Some((lowest, hops));
                possible.retain(|&value| value < lowest);
            }
            None => {
                possible.retain(|&value| value > limit);
                narrowed.at_least = Some(possible.iter().copied().min().unwrap_or(lowest));
            }
        }
    }
    Ok(())
}
