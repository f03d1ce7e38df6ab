//! The fastest plan over the orders of a fleet's nodes.

use super::super::{Best, Ended, Layouts, Question, Searched, StageCosts, Stop};
use super::questions::Race;
use super::{Cap, Limits, Time, fastest};

/// The fastest plan of a question in any of the layouts, and the index of its places; the question's own places
/// are not looked at. The costs must know the links of the layouts.
///
/// Where the layouts leave orders out, the answer is [`Ended::Bounded`]: no order is faster than its bound, which
/// counts every device as the fastest kind, with the best links everywhere.
pub fn fastest_over<C: StageCosts>(
    question: &Question<'_, C>,
    layouts: &Layouts,
    limits: &Limits,
    stop: &Stop,
) -> (Option<usize>, Searched<Time>) {
    let mut race = Race::new(1, limits.cap);
    for (index, places) in layouts.places.iter().enumerate() {
        let below = race.limits().below.or(limits.below);
        let one = Question { places, stages: question.stages.clone(), ..*question };
        race.note(index, fastest(&one, &Limits { below, ..*limits }, stop));
    }
    let (index, mut answer) = race.finish();
    if layouts.is_complete {
        return (index, answer);
    }
    let bound = relaxed_bound(question, layouts, limits.cap, stop);
    let found = answer.best.as_ref().map(|plan| plan.value);
    // Where even the relaxed question is too large, nothing is known of the orders that were left out.
    answer.bound = bound.map(|bound| found.map_or(bound, |found| Time(bound.0.min(found.0))));
    let is_proven = found.is_some() && answer.bound == found;
    answer.ended = match answer.ended {
        _ if is_proven => Ended::Proven,
        Ended::Stopped => Ended::Stopped,
        Ended::Proven | Ended::Bounded => Ended::Bounded,
    };
    (index, answer)
}

/// What no plan on any order of the nodes is below; none where that is not known, or where stages that do not fit
/// may be squeezed: [`Best`] does not know by how much.
fn relaxed_bound<C: StageCosts>(
    question: &Question<'_, C>,
    layouts: &Layouts,
    cap: Option<Cap>,
    stop: &Stop,
) -> Option<Time> {
    if question.costs.squeezes() {
        return None;
    }
    let (fleet, places) = &layouts.relaxed;
    let cuts = question.cuts.without_pins();
    let relaxed = Question {
        costs: &Best::of(question.costs, question.fleet),
        fleet,
        places,
        choices: question.choices,
        schedule: question.schedule,
        micro_batches: question.micro_batches,
        stages: question.stages.clone(),
        cuts: &cuts,
        within_capacity: question.within_capacity,
    };
    fastest(&relaxed, &Limits { cap, below: None }, stop).bound
}
