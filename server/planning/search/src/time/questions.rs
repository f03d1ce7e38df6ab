//! The fastest plans of several questions: other micro-batches, degrees or orders of the nodes.

use super::super::{Assignment, Ended, Question, Searched, StageCosts, Stop};
use super::{Cap, Limits, Time, fastest};

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
