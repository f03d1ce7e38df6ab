//! A passage of a micro-batch through a stage of one layer, with nothing held that the layer itself does
//! not need.
//!
//! What [`Stage::forward`] and [`Stage::backward`] hold around a layer depends on the layer's place in a
//! stage; the planner adds it. So here the inputs belong to the graph alone.

use loadmaster_proto::measure::trace::Slot;

use super::segment::{Keep, MicroBatch, Segment};
use super::stage::{Forwarded, Stage, handed_over};
use crate::error::RankError;
use crate::ffi::Finder;
use crate::layers::ForwardKind;
use crate::tape::{Edge, at_edge, enter};
use crate::transport::{Crossing, Neighbours};

/// How far a recorded passage goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// A forward pass that leaves nothing for a backward pass.
    Forward,
    /// Forward and backward, as in a stage of this layer.
    Through,
    /// Forward and backward where nothing before the layer is trained.
    FromUntrained,
}

impl Stage {
    /// Takes a micro-batch through the stage and remarks its slots and edges.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn record(
        &mut self,
        neighbours: &mut dyn Neighbours,
        micro_batch: MicroBatch,
        flow: Flow,
    ) -> Result<(), RankError> {
        let segment = Segment { layers: self.layer_range(), keep: Keep::Graph };
        let index = micro_batch.index;

        enter(Slot::Input);
        let received =
            if self.is_first() { None } else { Some(neighbours.receive(Crossing::Activation, index)?) };
        let mut inputs = self.inputs(micro_batch, received)?;
        inputs.want_gradients &= flow == Flow::Through;
        at_edge(Edge::Inputs, &inputs.tensors)?;

        enter(Slot::Forward);
        let version = self.newest.clone();
        let (mut passes, _) = self.parts(&version, micro_batch);
        let (outputs, graph) = if flow == Flow::Forward {
            (segment.forward_without_graph(&mut passes, micro_batch, inputs)?, None)
        } else {
            let saved = Finder::begin()?;
            let (outputs, graph) =
                segment.forward_with_graph(&mut passes, micro_batch, inputs, ForwardKind::First)?;
            saved.remark()?;
            (outputs, Some(graph))
        };
        at_edge(Edge::Outputs, &outputs)?;

        enter(Slot::Output);
        if let Forwarded::Activation(outputs) = self.forwarded(outputs)? {
            neighbours.send(Crossing::Activation, index, outputs)?;
        }
        let Some(graph) = graph else { return Ok(()) };

        enter(Slot::Gradient);
        let received =
            if self.is_last() { None } else { Some(neighbours.receive(Crossing::Gradient, index)?) };
        let gradients = self.gradients(received)?;
        at_edge(Edge::OutputGradients, &gradients)?;

        enter(Slot::Backward);
        let (mut passes, _) = self.parts(&version, micro_batch);
        let gradients = segment.backward_through(&mut passes, micro_batch, graph, gradients)?;
        at_edge(Edge::InputGradients, &gradients)?;

        enter(Slot::InputGradient);
        if let Some(gradients) = handed_over(gradients)? {
            neighbours.send(Crossing::Gradient, index, gradients)?;
        }
        Ok(())
    }
}
