//! The steps of an iteration and their passes: what choices have in common that differ in chunks alone.

use std::rc::Rc;

use loadmaster_proto::chunks::activations::{ActivationPlace, on_host};
use loadmaster_proto::chunks::embedding::{EmbeddingPlace, HostTable};
use loadmaster_proto::chunks::residency::tensors::TensorUses;
use loadmaster_proto::chunks::residency::uses::{LayerTensor, layer_tensors};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{StageActions, Steps};
use loadmaster_proto::training::chunk_order::ChunkOrder;

use super::question::{ChunkQuestion, PassChoice, Passes, StepCosts};
use super::refusal::NoChunks;

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

/// The steps of an iteration.
#[derive(Debug)]
pub(super) struct StepSequence {
    pub(super) order: ChunkOrder,
    pub(super) recompute: RecomputePolicy,
    pub(super) embedding: EmbeddingPlace,
    /// The embedding table, where that is on the host.
    pub(super) table: Option<HostTable>,
    pub(super) steps: Steps,
    pub(super) tensors: TensorUses,
}

/// Those of a question that were asked for so far: they are the same wherever activations are.
#[derive(Debug, Default)]
pub(super) struct StepSequences {
    known: Vec<Rc<StepSequence>>,
    /// What layers compute with, by the place of the embedding.
    layers: Vec<(EmbeddingPlace, Rc<[Vec<LayerTensor>]>)>,
}

impl StepSequences {
    /// The steps of a choice, always of the same question.
    ///
    /// # Errors
    /// The embedding table cannot be where it is to be.
    pub(super) fn of(
        &mut self,
        question: &ChunkQuestion,
        of: PassChoice,
    ) -> Result<Rc<StepSequence>, Invalid> {
        let PassChoice { order, recompute, embedding, .. } = of;
        let is_it = |known: &&Rc<StepSequence>| {
            (known.order, known.recompute, known.embedding) == (order, recompute, embedding)
        };
        if let Some(known) = self.known.iter().find(is_it) {
            return Ok(Rc::clone(known));
        }
        let (model, training) = (&question.model, question.training(recompute));
        let steps = Steps::of_chunks(&training, model.layers().len(), order);
        let table = HostTable::of(embedding, model, &training, &question.stage(), &steps)?;
        let tensors = TensorUses::new(self.layers(question, embedding), &steps);
        let course = Rc::new(StepSequence { order, recompute, embedding, table, steps, tensors });
        self.known.push(Rc::clone(&course));
        Ok(course)
    }

    fn layers(&mut self, question: &ChunkQuestion, embedding: EmbeddingPlace) -> Rc<[Vec<LayerTensor>]> {
        if let Some((_, known)) = self.layers.iter().find(|(place, _)| *place == embedding) {
            return Rc::clone(known);
        }
        let layers: Rc<[Vec<LayerTensor>]> = layer_tensors(&question.model, embedding).into();
        self.layers.push((embedding, Rc::clone(&layers)));
        layers
    }
}
