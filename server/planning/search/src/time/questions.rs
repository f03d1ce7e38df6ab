//! The fastest plans of several questions: other micro-batches, degrees or orders of the nodes; and over all orders.

use super::super::{Assignment, Ended, Question, Searched, StageCosts, Stop};
use super::{Cap, Limits, Time, fastest};
use crate::{Best, Layouts};

/// Questions entered one by one, the fastest plans kept. A later question is searched only for plans that are
/// faster than the slowest one kept, so most of them end early.
#[derive(Debug, Clone)]
pub struct Race<K> {
    most: usize,
    cap: Option<Cap>,
    kept: Vec<(K, Assignment<Time>)>,
    bound: f64,
    states: u64,
    ended: Ended,
}

impl<K> Race<K> {
    /// Keeps this many plans, at least one, each of another question and within the cap.
    pub fn new(most: usize, cap: Option<Cap>) -> Self {
        Self {
            most: most.max(1),
            cap,
            kept: Vec::new(),
            bound: f64::INFINITY,
            states: 0,
            ended: Ended::Proven,
        }
    }

    /// What a plan must be to be kept.
    pub fn limits(&self) -> Limits {
        let slowest = self.kept.last().filter(|_| self.kept.len() == self.most);
        Limits { cap: self.cap, below: slowest.map(|(_, plan)| plan.value) }
    }

    /// Searches one more question.
    pub fn enter<C: StageCosts>(&mut self, key: K, question: &Question<'_, C>, stop: &Stop) {
        let answer = fastest(question, &self.limits(), stop);
        self.note(key, answer);
    }

    /// Takes in what a search within [`Self::limits`] found.
    pub fn note(&mut self, key: K, answer: Searched<Time>) {
        self.states += answer.states;
        self.bound = self.bound.min(answer.bound.map_or(0.0, |bound| bound.0));
        self.ended = self.ended.and(answer.ended);
        if let Some(plan) = answer.best {
            // Behind equals: the earlier question goes first.
            let rank = self.kept.partition_point(|(_, kept)| kept.value <= plan.value);
            self.kept.insert(rank, (key, plan));
            self.kept.truncate(self.most);
        }
    }

    /// The plans kept, fastest first, each with its question's key.
    pub fn kept(&self) -> &[(K, Assignment<Time>)] {
        &self.kept
    }

    /// The answer to all questions together, and the key of the one that has it.
    pub fn finish(self) -> (Option<K>, Searched<Time>) {
        let Self { kept, bound, states, ended, .. } = self;
        let (key, best) = kept.into_iter().next().unzip();
        let value = best.as_ref().map_or(f64::INFINITY, |plan: &Assignment<Time>| plan.value.0);
        let is_proven = bound >= value && bound.is_finite();
        let answer = Searched {
            best,
            bound: Some(Time(bound.min(value))),
            states,
            ended: if is_proven { Ended::Proven } else { ended },
        };
        (key, answer)
    }
}

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
