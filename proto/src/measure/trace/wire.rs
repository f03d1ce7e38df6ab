//! Allocation traces and their numbers human-readable.

use crate::error::{Invalid, required};
use crate::measure::trace::{LayerComponents, LayerTrace, Passage, Slot, TraceStep};
use crate::message;
use crate::wire::{ToWire, field, v1};

message! { LayerTrace <=> v1::LayerAllocationTrace }

impl From<&LayerTrace> for v1::LayerAllocationTrace {
    fn from(trace: &LayerTrace) -> Self {
        Self {
            layer: trace.layer.to_wire(),
            content: trace.content.clone(),
            first: Some((&trace.first).into()),
            later: Some((&trace.later).into()),
            without_graph: Some((&trace.without_graph).into()),
            frozen_input_passages: trace
                .untrained_input
                .iter()
                .flat_map(|pair| pair.iter())
                .map(Into::into)
                .collect(),
            step: Some((&trace.step).into()),
            overhead_bytes: trace.overhead.to_wire(),
            has_saved: trace.has_saved,
        }
    }
}

impl TryFrom<v1::LayerAllocationTrace> for LayerTrace {
    type Error = Invalid;

    fn try_from(wire: v1::LayerAllocationTrace) -> Result<Self, Invalid> {
        let passage = |name: &str, wire: Option<v1::layer_allocation_trace::Passage>| {
            Passage::try_from(required(name, wire)?).map_err(|invalid| invalid.under(name))
        };
        let untrained_input = wire
            .frozen_input_passages
            .into_iter()
            .map(Passage::try_from)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|invalid| invalid.under("untrained_input"))?;
        let untrained_input = match <[Passage; 2]>::try_from(untrained_input) {
            Ok(pair) => Some(Box::new(pair)),
            Err(none) if none.is_empty() => None,
            Err(other) => {
                return Err(invalid!("untrained_input", "has {} passages. Use two or none", other.len()));
            }
        };
        Self {
            layer: field("layer", wire.layer)?,
            content: wire.content,
            first: passage("first", wire.first)?,
            later: passage("later", wire.later)?,
            without_graph: passage("without_graph", wire.without_graph)?,
            untrained_input,
            step: TraceStep::try_from(required("step", wire.step)?)
                .map_err(|invalid| invalid.under("step"))?,
            has_saved: wire.has_saved,
            overhead: field("overhead_bytes", wire.overhead_bytes)?,
        }
        .checked()
    }
}

impl From<&Passage> for v1::layer_allocation_trace::Passage {
    fn from(passage: &Passage) -> Self {
        let slot = |slot: Slot| passage.slot(slot).to_vec();
        Self {
            block_bytes: passage.blocks.iter().map(ToWire::to_wire).collect(),
            communication: passage.communication.clone(),
            inputs: passage.inputs.clone(),
            outputs: passage.outputs.clone(),
            output_gradients: passage.output_gradients.clone(),
            input_gradients: passage.input_gradients.clone(),
            saved: passage.saved.clone(),
            input: slot(Slot::Input),
            forward: slot(Slot::Forward),
            output: slot(Slot::Output),
            gradient: slot(Slot::Gradient),
            backward: slot(Slot::Backward),
            input_gradient: slot(Slot::InputGradient),
        }
    }
}

impl TryFrom<v1::layer_allocation_trace::Passage> for Passage {
    type Error = Invalid;

    fn try_from(wire: v1::layer_allocation_trace::Passage) -> Result<Self, Invalid> {
        Ok(Self {
            blocks: block_bytes(&wire.block_bytes)?,
            communication: wire.communication,
            inputs: wire.inputs,
            outputs: wire.outputs,
            output_gradients: wire.output_gradients,
            input_gradients: wire.input_gradients,
            saved: wire.saved,
            slots: [wire.input, wire.forward, wire.output, wire.gradient, wire.backward, wire.input_gradient],
        })
    }
}

impl From<&TraceStep> for v1::layer_allocation_trace::Step {
    fn from(step: &TraceStep) -> Self {
        Self {
            block_bytes: step.blocks.iter().map(ToWire::to_wire).collect(),
            communication: step.communication.clone(),
            exchange: step.exchange.clone(),
            update: step.update.clone(),
        }
    }
}

impl TryFrom<v1::layer_allocation_trace::Step> for TraceStep {
    type Error = Invalid;

    fn try_from(wire: v1::layer_allocation_trace::Step) -> Result<Self, Invalid> {
        Ok(Self {
            blocks: block_bytes(&wire.block_bytes)?,
            communication: wire.communication,
            exchange: wire.exchange,
            update: wire.update,
        })
    }
}

fn block_bytes(wire: &[i64]) -> Result<Vec<u64>, Invalid> {
    wire.iter().map(|&bytes| field("block_bytes", bytes)).collect()
}

message! { LayerComponents => v1::LayerComponents }

impl From<&LayerComponents> for v1::LayerComponents {
    fn from(components: &LayerComponents) -> Self {
        Self {
            layer: components.layer.to_wire(),
            parameter_bytes: components.static_bytes.parameters.to_wire(),
            gradient_bytes: components.static_bytes.gradients.to_wire(),
            optimizer_bytes: components.static_bytes.optimizer.to_wire(),
            retained_inner_bytes: components.retained.inner.to_wire(),
            retained_input_bytes: components.retained.inputs.to_wire(),
            retained_output_bytes: components.retained.outputs.to_wire(),
            forward_transient_bytes: components.forward_transient.to_wire(),
            backward_transient_bytes: components.backward_transient.to_wire(),
            step_transient_bytes: components.step_transient.to_wire(),
            input_bytes: components.input_bytes.to_wire(),
            output_bytes: components.output_bytes.to_wire(),
            communication_bytes: components.communication_bytes.to_wire(),
            forward_seconds: components.times.forward_seconds,
            backward_seconds: components.times.backward_seconds,
            step_seconds: components.step_seconds,
            buffer_bytes: components.static_bytes.buffers.to_wire(),
        }
    }
}
