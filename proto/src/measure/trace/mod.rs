//! Allocation traces: every allocation and free of a layer, in order.
//!
//! The rank records them when it trains one layer alone. An allocation trace does not depend on the schedule, on the
//! number of micro-batches or on what is recomputed, because each of these only decides *when* the
//! same passes happen. The predictor `component` concatenates the allocation traces of a stage's layers in the order
//! of its passes and reads the peak from the running sum.
//!
//! # Who owns the tensors at a layer's edges
//!
//! The tensors at an edge are one block each for both neighbours: the layer below makes the activation,
//! the layer above makes its gradient, and either may keep it. An allocation trace reports how long *its own* layer
//! needs them, because nothing else holds them while it is recorded.
//!
//! The input is handed over without a handle left behind, with a gradient function that only catches its
//! gradient. The gradient of the output is given away as it would be in the middle of a longer chain. In a stage the block lives
//! until the last of its holders lets go.
//!
//! Ambiguous by nature, and decided so:
//!
//! * An activation that both neighbours keep is counted once, at the edge.
//! * A layer may hand its input on (flattening, dropout of nothing, the skip of a cell): then both edges
//!   are the same block, and it counts at both.
//! * The first gradient of a parameter is not copied but taken over, perhaps with the memory of something
//!   larger. It counts as a gradient once the pass that made it is over, as transient before.

mod components;
mod wire;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::error::{Invalid, in_range};
use crate::model::layer::{LayerKind, Shape, fingerprint};
use crate::model::{Loss, Model, ModelInput};

pub use components::{LayerComponents, Retained};

/// Most blocks of one passage, and most events of one of its slots.
pub const MAX_EVENTS: usize = 1 << 20;

/// Most tensors at one edge of a passage.
const MAX_TENSORS: usize = 1 << 10;

/// Most bytes of all blocks of one passage: far more than any device has, and sums over the layers and
/// micro-batches of a stage still have room.
const MAX_BYTES: u64 = 1 << 48;

/// A block as it was allocated (`b + 1`) or freed (`-(b + 1)`), where b is its index in the list of
/// blocks.
pub type Event = i32;

/// All that a layer allocates, recorded while it was trained alone.
///
/// A layer that keeps its output for the backward pass, and makes the gradient of its input there:
///
/// ```
/// use loadmaster_proto::measure::trace::{LayerTrace, Passage, Slot, TraceStep};
///
/// let mut passage = Passage { blocks: vec![4_096, 4_096], ..Passage::default() };
/// passage.slots[Slot::Forward as usize] = vec![1];
/// passage.slots[Slot::Backward as usize] = vec![2, -1];
/// passage.slots[Slot::InputGradient as usize] = vec![-2];
/// let trace = LayerTrace {
///     layer: 0,
///     content: "relu".to_owned(),
///     first: passage.clone(),
///     later: passage,
///     without_graph: Passage::default(),
///     untrained_input: None,
///     step: TraceStep::default(),
///     has_saved: false,
///     overhead: 0,
/// };
/// assert!(trace.first.left().is_empty(), "each block is freed");
/// # drop(trace);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTrace {
    /// Index in the model.
    pub layer: usize,
    /// [`LayerContent::fingerprint`] of the layer.
    pub content: String,
    /// The first micro-batch of an iteration: its backward pass creates the parameters' gradients, which
    /// stay when the passage ends.
    pub first: Passage,
    /// Any later micro-batch: its backward pass adds to the gradients.
    pub later: Passage,
    /// A forward pass of which no backward pass follows, as when all is recomputed later: slots
    /// `input`, `forward` and `output` alone.
    pub without_graph: Passage,
    /// First and later micro-batch where the input carries no gradient because no layer before it has
    /// parameters. Recorded for the layers up to the first one with parameters; there it holds inside a
    /// stage, while a stage that *begins* with the layer still owes a gradient to the stage before. None
    /// for the model's first layer, whose input never carries one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrained_input: Option<Box<[Passage; 2]>>,
    /// The end of an iteration.
    pub step: TraceStep,
    /// Whether its passages say which blocks autograd saved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_saved: bool,
    /// Bytes that the device held between iterations beyond parameters, buffers and optimizer state:
    /// rounding and workspaces; 0 on CPU slots.
    #[serde(default)]
    pub overhead: u64,
}

/// What happens to one micro-batch in a layer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Passage {
    /// Bytes of each block.
    pub blocks: Vec<u64>,
    /// Blocks that are buffers of collectives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub communication: Vec<u32>,
    /// Blocks of the tensors that enter the layer.
    pub inputs: Vec<u32>,
    /// Blocks of the tensors that leave it; the loss behind the model's last layer.
    pub outputs: Vec<u32>,
    /// Blocks of the gradients of what leaves it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_gradients: Vec<u32>,
    /// Blocks of the gradients of what enters it; none where nothing before it is trained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_gradients: Vec<u32>,
    /// Blocks that autograd saved in the forward pass, in order and each once, those at the edges included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub saved: Vec<u32>,
    /// Events of each slot, see [`Slot`].
    pub slots: [Vec<Event>; Slot::ALL.len()],
}

/// The parts of a passage, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// Making or receiving the input.
    Input,
    /// The forward pass. The loss is part of it behind the model's last layer.
    Forward,
    /// Handing the output over.
    Output,
    /// Receiving the gradient of the output.
    Gradient,
    /// The backward pass.
    Backward,
    /// Handing the gradient of the input over.
    InputGradient,
}

choice! { Slot { Input, Forward, Output, Gradient, Backward, InputGradient = "input_gradient" } }

/// The end of an iteration in a layer. Gradients are freed after it and are not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceStep {
    /// Bytes of each block.
    pub blocks: Vec<u64>,
    /// Blocks that are buffers of collectives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub communication: Vec<u32>,
    /// Adding up the gradients of a weight that first and last stage share; it happens only where the
    /// other end is in another stage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exchange: Vec<Event>,
    /// The optimizer.
    pub update: Vec<Event>,
}

impl Passage {
    /// Events of a slot.
    pub fn slot(&self, slot: Slot) -> &[Event] {
        &self.slots[slot as usize]
    }

    /// Blocks that are live when the passage is over: in the first one of an iteration, the gradients of
    /// the parameters.
    pub fn left(&self) -> BTreeSet<usize> {
        let mut live = BTreeSet::new();
        for &event in Slot::ALL.into_iter().flat_map(|slot| self.slot(slot)) {
            let (block, allocated) = block_of(event);
            if allocated {
                live.insert(block)
            } else {
                live.remove(&block)
            };
        }
        live
    }

    /// Checks that events name blocks that exist and that none is freed before it was allocated.
    ///
    /// # Errors
    /// Names the field.
    pub fn check(&self) -> Result<(), Invalid> {
        check_blocks(&self.blocks)?;
        check_names("communication", &self.communication, &self.blocks, MAX_EVENTS)?;
        check_names("saved", &self.saved, &self.blocks, MAX_EVENTS)?;
        for (field, blocks) in [
            ("inputs", &self.inputs),
            ("outputs", &self.outputs),
            ("output_gradients", &self.output_gradients),
            ("input_gradients", &self.input_gradients),
        ] {
            check_names(field, blocks, &self.blocks, MAX_TENSORS)?;
        }
        let mut live = vec![false; self.blocks.len()];
        Slot::ALL.into_iter().try_for_each(|slot| check_events(slot.as_str(), self.slot(slot), &mut live))
    }
}

impl TraceStep {
    /// Checks that events name blocks that exist and that none is freed before it was allocated.
    ///
    /// # Errors
    /// Names the field.
    pub fn check(&self) -> Result<(), Invalid> {
        check_blocks(&self.blocks)?;
        check_names("communication", &self.communication, &self.blocks, MAX_EVENTS)?;
        let mut live = vec![false; self.blocks.len()];
        check_events("exchange", &self.exchange, &mut live)?;
        check_events("update", &self.update, &mut live)
    }
}

fn check_blocks(blocks: &[u64]) -> Result<(), Invalid> {
    in_range("blocks", blocks.len(), 0..=MAX_EVENTS)?;
    let total = blocks.iter().fold(0, |total: u64, &bytes| total.saturating_add(bytes));
    if total > MAX_BYTES {
        let why =
            format!("add up to {total} bytes, above the limit of {MAX_BYTES}. Use fewer or smaller blocks");
        return Err(Invalid::field("blocks", why));
    }
    Ok(())
}

fn check_names(field: &str, names: &[u32], blocks: &[u64], most: usize) -> Result<(), Invalid> {
    in_range(field, names.len(), 0..=most)?;
    match names.iter().find(|&&block| block as usize >= blocks.len()) {
        Some(block) => Err(invalid!(field, "contains block {block}, which does not exist")),
        None => Ok(()),
    }
}

fn check_events(field: &str, events: &[Event], live: &mut [bool]) -> Result<(), Invalid> {
    in_range(field, events.len(), 0..=MAX_EVENTS)?;
    for &event in events {
        let (block, allocated) = block_of(event);
        match live.get_mut(block) {
            Some(live) if *live != allocated => *live = allocated,
            Some(_) => {
                let what = if allocated {
                    "allocates a block that is already allocated"
                } else {
                    "frees a block that is not allocated"
                };
                return Err(invalid!(field, "{what}: {event}"));
            }
            None => return Err(invalid!(field, "{event} has no block")),
        }
    }
    Ok(())
}

/// The index of an event's block, and whether it is allocated.
pub fn block_of(event: Event) -> (usize, bool) {
    // Zero names no block: the difference wraps to an index that no list has.
    ((event.unsigned_abs() as usize).wrapping_sub(1), event > 0)
}

impl LayerTrace {
    /// Checks every part.
    ///
    /// # Errors
    /// Names the field.
    pub fn checked(self) -> Result<Self, Invalid> {
        self.check()?;
        Ok(self)
    }

    /// As [`Self::checked`].
    ///
    /// # Errors
    /// Names the field.
    pub fn check(&self) -> Result<(), Invalid> {
        self.first.check().map_err(|invalid| invalid.under("first"))?;
        self.later.check().map_err(|invalid| invalid.under("later"))?;
        self.without_graph.check().map_err(|invalid| invalid.under("without_graph"))?;
        for passage in self.untrained_input.iter().flat_map(|pair| pair.iter()) {
            passage.check().map_err(|invalid| invalid.under("untrained_input"))?;
        }
        self.step.check().map_err(|invalid| invalid.under("step"))
    }
}

/// What a layer's allocation trace depends on besides training settings, micro-batch size and shard: layers of equal
/// content have equal allocation traces, so one of them is recorded for all, in any model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerContent {
    /// What it computes.
    pub kind: LayerKind,
    /// Shapes of one sample of what enters it.
    pub inputs: Vec<Shape>,
    /// Samples enter it, made on the device.
    pub is_first: bool,
    /// The loss follows it.
    pub is_last: bool,
    /// It shares a weight with the model's other end.
    pub is_tied: bool,
    /// No layer before it has parameters: its allocation trace has [`LayerTrace::untrained_input`] too.
    pub untrained_before: bool,
    /// What samples and targets are made of, and what is made small, where the layer meets them: first and
    /// last.
    pub data: Option<(ModelInput, Loss)>,
}

impl LayerContent {
    /// The content of a layer of a model; none where the model has no such layer.
    pub fn of(model: &Model, layer: usize) -> Option<Self> {
        let layers = model.layers();
        let kind = layers.get(layer)?.kind;
        let (is_first, is_last) = (layer == 0, layer + 1 == layers.len());
        Some(Self {
            kind,
            inputs: model.edge(layer).to_vec(),
            is_first,
            is_last,
            is_tied: model.has_tied_head() && (is_first || is_last),
            untrained_before: layers[..layer].iter().all(|before| before.kind.parameter_count() == 0),
            data: (is_first || is_last).then(|| (model.input(), model.loss())),
        })
    }

    /// A short identity for look-ups: the first 16 bytes of a SHA-256, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        fingerprint(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(slots: [&[Event]; 6]) -> Passage {
        Passage { blocks: vec![10, 20], slots: slots.map(<[Event]>::to_vec), ..Passage::default() }
    }

    /// An allocation trace from elsewhere cannot make a replay free what is not there.
    #[test]
    fn events_must_make_sense() {
        assert_eq!(passage([&[1], &[2, -1], &[], &[], &[-2], &[]]).check(), Ok(()));
        for (slots, field) in [
            ([&[1][..], &[1], &[], &[], &[], &[]], "forward"),
            ([&[][..], &[], &[], &[], &[-1], &[]], "backward"),
            ([&[3][..], &[], &[], &[], &[], &[]], "input"),
            ([&[][..], &[], &[0], &[], &[], &[]], "output"),
            ([&[][..], &[], &[], &[], &[], &[i32::MIN]], "input_gradient"),
        ] {
            assert_eq!(passage(slots).check().unwrap_err().violations()[0].field, field);
        }
        let outputs = Passage { outputs: vec![2], ..passage([&[]; 6]) };
        assert_eq!(outputs.check().unwrap_err().violations()[0].field, "outputs");
        let huge = Passage { blocks: vec![u64::MAX, 20], ..passage([&[]; 6]) };
        assert_eq!(huge.check().unwrap_err().violations()[0].field, "blocks");
    }
}
