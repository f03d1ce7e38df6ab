//! An allocation trace while it is played: where its blocks are on the device.

use loadmaster_proto::measure::trace::{Event, Passage, Slot, TraceStep, block_of};

use super::machine::{BlockClass, BlockId, Machine};

/// Which of its edges a layer shares with the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StageEnds {
    pub(super) first: bool,
    pub(super) last: bool,
}

/// A micro-batch in one layer: its allocation trace, and where its blocks are on the device.
#[derive(Debug)]
pub(super) struct Playing<'a> {
    passage: &'a Passage,
    classes: Vec<BlockClass>,
    on_device: Vec<Option<BlockId>>,
    /// What the passage leaves is another process's.
    has_given: bool,
}

impl<'a> Playing<'a> {
    pub(super) fn new(passage: &'a Passage, ends: StageEnds) -> Self {
        let on_device = vec![None; passage.blocks.len()];
        Self { passage, classes: classes(passage, ends), on_device, has_given: false }
    }

    /// Plays one slot.
    pub(super) fn play(&mut self, machine: &mut Machine, slot: Slot) {
        for &event in self.passage.slot(slot) {
            let (block, allocated) = block_of(event);
            let (Some(&bytes), Some(&class), Some(place)) =
                (self.passage.blocks.get(block), self.classes.get(block), self.on_device.get_mut(block))
            else {
                continue;
            };
            if allocated {
                *place = Some(machine.allocate(bytes, class));
            } else if let Some(id) = place.take() {
                machine.release(id);
            }
        }
    }

    /// Where the tensors at an edge are.
    pub(super) fn places(&self, edge: &[u32]) -> Vec<Option<BlockId>> {
        edge.iter().map(|&block| self.on_device.get(block as usize).copied().flatten()).collect()
    }

    /// Those of these blocks that are live.
    pub(super) fn live(&self, blocks: impl IntoIterator<Item = usize>) -> impl Iterator<Item = BlockId> {
        blocks.into_iter().filter_map(|block| self.on_device.get(block).copied().flatten())
    }

    /// Takes tensors at an edge over from where they are, as one more holder.
    pub(super) fn take_over(&mut self, machine: &mut Machine, edge: &[u32], places: &[Option<BlockId>]) {
        for (&block, &id) in edge.iter().zip(places) {
            if let (Some(place @ None), Some(id)) = (self.on_device.get_mut(block as usize), id) {
                machine.hold(id);
                *place = Some(id);
            }
        }
    }

    /// Lets go of the tensors at an edge that the slot would have freed, without the rest of the slot:
    /// what happens where they are passed on within a stage instead of being handed over.
    pub(super) fn pass_on(&mut self, machine: &mut Machine, edge: &[u32], slot: Slot) {
        for &event in self.passage.slot(slot) {
            let (block, allocated) = block_of(event);
            if !allocated
                && edge.iter().any(|&other| other as usize == block)
                && let Some(id) = self.on_device.get_mut(block).and_then(Option::take)
            {
                machine.release(id);
            }
        }
        for &block in edge.iter().filter(|_| self.has_given) {
            if let Some(id) = self.on_device.get_mut(block as usize).and_then(Option::take) {
                machine.release(id);
            }
        }
    }

    /// Gives away what the passage leaves. A block of it that is also the gradient of an input is held until that one has
    /// been passed on.
    pub(super) fn give_left(&mut self, machine: &mut Machine) -> Vec<BlockId> {
        self.has_given = true;
        let is_passed_on = |block: usize| self.passage.input_gradients.iter().any(|&of| of as usize == block);
        let mut given = Vec::new();
        for block in self.passage.left() {
            let Some(place) = self.on_device.get_mut(block) else { continue };
            if is_passed_on(block) {
                place.iter().for_each(|&id| machine.hold(id));
                given.extend(*place);
            } else {
                given.extend(place.take());
            }
        }
        given
    }

    pub(super) fn passage(&self) -> &'a Passage {
        self.passage
    }

    /// What is still live: after the first backward pass of an iteration, the parameters' gradients.
    pub(super) fn left(self) -> impl Iterator<Item = BlockId> {
        self.on_device.into_iter().flatten()
    }
}

/// Plays a part of the end of an iteration: everything in it is transient. `bytes_of` says what a block of so many bytes takes.
pub(super) fn play_step(
    machine: &mut Machine,
    step: &TraceStep,
    events: &[Event],
    bytes_of: impl Fn(u64) -> u64,
) {
    let mut on_device = vec![None; step.blocks.len()];
    let mut classes = vec![BlockClass::Transient; step.blocks.len()];
    for &block in &step.communication {
        if let Some(class) = classes.get_mut(block as usize) {
            *class = BlockClass::Communication;
        }
    }
    for &event in events {
        let (block, allocated) = block_of(event);
        let (Some(&bytes), Some(&class), Some(place)) =
            (step.blocks.get(block), classes.get(block), on_device.get_mut(block))
        else {
            continue;
        };
        if allocated {
            *place = Some(machine.allocate(bytes_of(bytes), class));
        } else if let Some(id) = place.take() {
            machine.release(id);
        }
    }
    on_device.into_iter().flatten().for_each(|id| machine.release(id));
}

fn classes(passage: &Passage, ends: StageEnds) -> Vec<BlockClass> {
    let mut classes = vec![BlockClass::Transient; passage.blocks.len()];
    let mut set = |block: usize, class: BlockClass| {
        if let Some(place) = classes.get_mut(block) {
            *place = class;
        }
    };
    // What the forward pass leaves behind is what was allocated and not freed when it was over.
    for slot in [Slot::Forward, Slot::Output] {
        for &event in passage.slot(slot) {
            let (block, allocated) = block_of(event);
            set(block, if allocated { BlockClass::Activation } else { BlockClass::Transient });
        }
    }
    let edges = [
        (&passage.communication, BlockClass::Communication),
        (&passage.input_gradients, if ends.first { BlockClass::Edge } else { BlockClass::Transient }),
        (&passage.output_gradients, if ends.last { BlockClass::Edge } else { BlockClass::Transient }),
        (&passage.outputs, if ends.last { BlockClass::Edge } else { BlockClass::Activation }),
        (&passage.inputs, if ends.first { BlockClass::Edge } else { BlockClass::Activation }),
    ];
    for (blocks, class) in edges {
        blocks.iter().for_each(|&block| set(block as usize, class));
    }
    classes
}
