//! The steps of an iteration, which many choices have in common: found out once.

use std::rc::Rc;

use loadmaster_proto::chunks::embedding::{EmbeddingPlace, HostTable};
use loadmaster_proto::chunks::residency::tensors::TensorUses;
use loadmaster_proto::chunks::residency::uses::{LayerTensor, layer_tensors};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::Steps;
use loadmaster_proto::training::chunk_order::ChunkOrder;

use super::question::{ChunkQuestion, PassChoice};

/// The steps of an iteration.
#[derive(Debug)]
pub(super) struct StepSequence {
    pub(super) order: ChunkOrder,
    pub(super) recompute: RecomputePolicy,
    pub(super) embedding: EmbeddingPlace,
    /// The table of tokens, where that is on the host.
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
    /// The table of tokens cannot be where it is to be.
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
