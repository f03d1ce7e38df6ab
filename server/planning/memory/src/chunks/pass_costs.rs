//! The passes of an iteration: what choices have in common that differ in chunks alone.

use std::rc::Rc;

use loadmaster_proto::chunks::activations::{ActivationPlace, on_host};
use loadmaster_proto::training::actions::StageActions;

use super::question::{ChunkQuestion, PassChoice, Passes, StepCosts};
use super::refusal::NoChunks;
use super::step_sequence::{StepSequence, StepSequences};

/// The passes of an iteration.
#[derive(Debug, Clone)]
pub(super) struct PassCosts {
    pub(super) course: Rc<StepSequence>,
    pub(super) costs: StepCosts,
    /// What is done so that activations are where they are.
    pub(super) actions: StageActions,
}

impl PassCosts {
    /// All that may be chosen with activations in one of these places and can be predicted.
    ///
    /// # Errors
    /// None can be.
    pub(super) fn all(
        question: &ChunkQuestion,
        passes: &impl Passes,
        places: &[ActivationPlace],
        courses: &mut StepSequences,
    ) -> Result<Vec<Self>, NoChunks> {
        question.check()?;
        let mut refused = None;
        let mut grounds = Vec::new();
        for of in question.pass_choices_in(places) {
            match Self::of(question, passes, of, courses) {
                Ok(ground) => grounds.push(ground),
                Err(why) => refused = Some(why),
            }
        }
        match refused {
            Some(why) if grounds.is_empty() => Err(why),
            _ => Ok(grounds),
        }
    }

    pub(super) fn of(
        question: &ChunkQuestion,
        passes: &impl Passes,
        of: PassChoice,
        courses: &mut StepSequences,
    ) -> Result<Self, NoChunks> {
        let course = courses.of(question, of)?;
        let mut costs = passes.costs(of)?;
        let count = course.steps.all().len();
        costs.needed.resize(count, 0);
        costs.seconds.resize(count, 0.0);
        let actions = of.activations.map(|points| StageActions {
            host_pool: costs.pool,
            ..on_host(question.model.layers().len(), of.recompute, points)
        });
        Ok(Self { course, costs, actions: actions.unwrap_or_default() })
    }

    /// Whether another differs in nothing but what is beside chunks: bytes of steps, and what micro-batches have on the host.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.course, &other.course) && self.costs.seconds == other.costs.seconds
    }

    /// Seconds of the passes of an iteration, which takes no less.
    pub(super) fn pass_seconds(&self) -> f64 {
        self.costs.seconds.iter().sum()
    }

    /// The most bytes that a step needs beside chunks.
    pub(super) fn most_needed(&self) -> u64 {
        self.costs.needed.iter().copied().max().unwrap_or(0)
    }
}
