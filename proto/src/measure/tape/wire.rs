//! Tapes and their numbers for people.

use crate::convert::{to_i32, to_i64, unsigned};
use crate::error::{Invalid, required};
use crate::measure::tape::{LayerComponents, LayerTape, Passage, Slot, Step};
use crate::wire::v1;

impl From<&LayerTape> for v1::LayerTape {
    fn from(tape: &LayerTape) -> Self {
        Self {
            layer: to_i32(tape.layer),
            content: tape.content.clone(),
            first: Some((&tape.first).into()),
            later: Some((&tape.later).into()),
            without_graph: Some((&tape.without_graph).into()),
            untrained_input: tape
                .untrained_input
                .iter()
                .flat_map(|pair| pair.iter())
                .map(Into::into)
                .collect(),
            step: Some((&tape.step).into()),
            overhead_bytes: to_i64(tape.overhead),
        }
    }
}

impl TryFrom<v1::LayerTape> for LayerTape {
    type Error = Invalid;

    fn try_from(wire: v1::LayerTape) -> Result<Self, Invalid> {
        let passage = |field: &str, wire: Option<v1::layer_tape::Passage>| {
            Passage::try_from(required(field, wire)?).map_err(|invalid| invalid.under(field))
        };
        let untrained_input = wire
            .untrained_input
            .into_iter()
            .map(Passage::try_from)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|invalid| invalid.under("untrained_input"))?;
        let untrained_input = match <[Passage; 2]>::try_from(untrained_input) {
            Ok(pair) => Some(Box::new(pair)),
            Err(none) if none.is_empty() => None,
            Err(other) => {
                let why = format!("has {} passages, must have two or none", other.len());
                return Err(Invalid::field("untrained_input", why));
            }
        };
        Self {
            layer: unsigned("layer", wire.layer)?,
            content: wire.content,
            first: passage("first", wire.first)?,
            later: passage("later", wire.later)?,
            without_graph: passage("without_graph", wire.without_graph)?,
            untrained_input,
            step: Step::try_from(required("step", wire.step)?).map_err(|invalid| invalid.under("step"))?,
            overhead: unsigned("overhead_bytes", wire.overhead_bytes)?,
        }
        .checked()
    }
}

impl From<&Passage> for v1::layer_tape::Passage {
    fn from(passage: &Passage) -> Self {
        let slot = |slot: Slot| passage.slot(slot).to_vec();
        Self {
            block_bytes: passage.blocks.iter().map(|&bytes| to_i64(bytes)).collect(),
            communication: passage.communication.clone(),
            inputs: passage.inputs.clone(),
            outputs: passage.outputs.clone(),
            output_gradients: passage.output_gradients.clone(),
            input_gradients: passage.input_gradients.clone(),
            input: slot(Slot::Input),
            forward: slot(Slot::Forward),
            output: slot(Slot::Output),
            gradient: slot(Slot::Gradient),
            backward: slot(Slot::Backward),
            input_gradient: slot(Slot::InputGradient),
        }
    }
}

impl TryFrom<v1::layer_tape::Passage> for Passage {
    type Error = Invalid;

    fn try_from(wire: v1::layer_tape::Passage) -> Result<Self, Invalid> {
        Ok(Self {
            blocks: block_bytes(&wire.block_bytes)?,
            communication: wire.communication,
            inputs: wire.inputs,
            outputs: wire.outputs,
            output_gradients: wire.output_gradients,
            input_gradients: wire.input_gradients,
            slots: [wire.input, wire.forward, wire.output, wire.gradient, wire.backward, wire.input_gradient],
        })
    }
}

impl From<&Step> for v1::layer_tape::Step {
    fn from(step: &Step) -> Self {
        Self {
            block_bytes: step.blocks.iter().map(|&bytes| to_i64(bytes)).collect(),
            communication: step.communication.clone(),
            exchange: step.exchange.clone(),
            update: step.update.clone(),
        }
    }
}

impl TryFrom<v1::layer_tape::Step> for Step {
    type Error = Invalid;

    fn try_from(wire: v1::layer_tape::Step) -> Result<Self, Invalid> {
        Ok(Self {
            blocks: block_bytes(&wire.block_bytes)?,
            communication: wire.communication,
            exchange: wire.exchange,
            update: wire.update,
        })
    }
}

fn block_bytes(wire: &[i64]) -> Result<Vec<u64>, Invalid> {
    wire.iter().map(|&bytes| unsigned("block_bytes", bytes)).collect()
}

impl From<LayerComponents> for v1::LayerComponents {
    fn from(components: LayerComponents) -> Self {
        Self {
            layer: to_i32(components.layer),
            parameter_bytes: to_i64(components.static_bytes.parameters),
            gradient_bytes: to_i64(components.static_bytes.gradients),
            optimizer_bytes: to_i64(components.static_bytes.optimizer),
            retained_inner_bytes: to_i64(components.retained.inner),
            retained_input_bytes: to_i64(components.retained.inputs),
            retained_output_bytes: to_i64(components.retained.outputs),
            forward_transient_bytes: to_i64(components.forward_transient),
            backward_transient_bytes: to_i64(components.backward_transient),
            step_transient_bytes: to_i64(components.step_transient),
            input_bytes: to_i64(components.input_bytes),
            output_bytes: to_i64(components.output_bytes),
            communication_bytes: to_i64(components.communication_bytes),
            forward_seconds: components.times.forward_seconds,
            backward_seconds: components.times.backward_seconds,
            step_seconds: components.step_seconds,
            buffer_bytes: to_i64(components.static_bytes.buffers),
        }
    }
}
