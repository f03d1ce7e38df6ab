//! The search put together.

use super::super::{Assignment, Ended, PlacedStage, Question, Searched, StageCosts, Stop};
use super::bottleneck::{self, Narrowed};
use super::classes::{Class, classed};
use super::costs::{self, Costs, Measure};
use super::effort::{MemoryEffort, SizeLimits, Unfinished};
use super::leximax::{self, Untied};
use super::reach::Hop;
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
    let Narrowed { best, at_least, is_stopped } = bottleneck::narrow(&graph, &costs, &mut effort);
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
    let Narrowed { best, at_least, is_stopped } = bottleneck::narrow(&graph, &costs, &mut effort);
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
