//! The bytes of a device while tapes are played on it.

use loadmaster_proto::measure::tape::{Event, Passage, Slot, Step, block_of};

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockClass {
    /// A parameter's gradient.
    Gradient,
    /// Lies between forward and backward passes.
    Activation,
    /// An activation or gradient at the stage's own edges.
    Edge,
    /// A buffer of a collective.
    Communication,
    /// Lives within one layer's pass or step.
    Transient,
}

/// Bytes of each class. Recordings may come from a file and say any number of bytes, so sums stop at the
/// largest number instead of beginning again at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ClassBytes([u64; 5]);

impl ClassBytes {
    pub(super) fn of(self, class: BlockClass) -> u64 {
        self.0[class as usize]
    }

    pub(super) fn total(self) -> u64 {
        self.0.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    pub(super) fn add(&mut self, class: BlockClass, bytes: u64) {
        self.0[class as usize] = self.0[class as usize].saturating_add(bytes);
    }

    fn remove(&mut self, class: BlockClass, bytes: u64) {
        // A tape frees only what it allocated, so nothing can be missing.
        self.0[class as usize] = self.0[class as usize].saturating_sub(bytes);
    }

    /// Sums, class by class.
    pub(super) fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|class| self.0[class].saturating_add(other.0[class])))
    }

    /// So many times as much.
    pub(super) fn times(self, count: u64) -> Self {
        Self(self.0.map(|bytes| bytes.saturating_mul(count)))
    }

    /// What is here and not there.
    pub(super) fn minus(self, other: Self) -> Self {
        Self(std::array::from_fn(|class| self.0[class].saturating_sub(other.0[class])))
    }
}

/// A block of the device: its position in the machine's list.
pub(super) type BlockId = usize;

#[derive(Debug, Clone, Copy)]
struct Block {
    bytes: u64,
    class: BlockClass,
    holders: u32,
    /// It has a place elsewhere.
    is_moving: bool,
    /// It takes no bytes of the device.
    is_away: bool,
}

impl Block {
    fn is_here(&self) -> bool {
        self.holders > 0 && !self.is_away
    }
}

/// The live blocks of a device and the most that they ever were.
#[derive(Debug, Default)]
pub(super) struct Machine {
    blocks: Vec<Block>,
    held: ClassBytes,
    peak: ClassBytes,
    peak_total: u64,
    total: u64,
}

impl Machine {
    /// What is live now.
    pub(super) fn held(&self) -> ClassBytes {
        self.held
    }

    /// What was live when it was most, since the last reset. The first such moment counts.
    pub(super) fn peak(&self) -> ClassBytes {
        self.peak
    }

    /// Forgets what was most.
    pub(super) fn reset_peak(&mut self) {
        self.peak = self.held;
        self.peak_total = self.total;
    }

    /// Allocates a block for one holder.
    pub(super) fn allocate(&mut self, bytes: u64, class: BlockClass) -> BlockId {
        self.blocks.push(Block { bytes, class, holders: 1, is_moving: false, is_away: false });
        self.add(bytes, class);
        self.blocks.len() - 1
    }

    fn add(&mut self, bytes: u64, class: BlockClass) {
        self.held.add(class, bytes);
        self.total = self.total.saturating_add(bytes);
        if self.total > self.peak_total {
            self.peak = self.held;
            self.peak_total = self.total;
        }
    }

    fn remove(&mut self, bytes: u64, class: BlockClass) {
        self.held.remove(class, bytes);
        self.total = self.total.saturating_sub(bytes);
    }

    /// One holder more.
    pub(super) fn hold(&mut self, id: BlockId) {
        if let Some(block) = self.blocks.get_mut(id) {
            block.holders += 1;
        }
    }

    /// One holder less; the last one frees the block.
    pub(super) fn release(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get_mut(id).filter(|block| block.holders > 0) else { return };
        let was_here = block.is_here();
        block.holders -= 1;
        let Block { bytes, class, holders, .. } = *block;
        if was_here && holders == 0 {
            self.remove(bytes, class);
        }
    }

    /// From now on a live block is something else.
    pub(super) fn reclassify(&mut self, id: BlockId, class: BlockClass) {
        if let Some(block) = self.blocks.get_mut(id).filter(|block| block.holders > 0) {
            if block.is_here() {
                self.held.remove(block.class, block.bytes);
                self.held.add(class, block.bytes);
            }
            block.class = class;
        }
    }

    /// A live block begins to leave: its bytes. None where it does already.
    pub(super) fn begin_to_leave(&mut self, id: BlockId) -> Option<u64> {
        let block = self.blocks.get_mut(id).filter(|block| block.holders > 0 && !block.is_moving)?;
        block.is_moving = true;
        Some(block.bytes)
    }

    /// A block that is leaving is gone.
    pub(super) fn leave(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get_mut(id).filter(|block| block.is_moving && !block.is_away) else {
            return;
        };
        let was_here = block.is_here();
        block.is_away = true;
        let Block { bytes, class, .. } = *block;
        if was_here {
            self.remove(bytes, class);
        }
    }

    /// It has memory again.
    pub(super) fn come(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get_mut(id).filter(|block| block.is_away) else { return };
        block.is_away = false;
        let Block { bytes, class, holders, .. } = *block;
        if holders > 0 {
            self.add(bytes, class);
        }
    }

    /// It is needed, and has no place elsewhere from now on.
    pub(super) fn settle(&mut self, id: BlockId) {
        if let Some(block) = self.blocks.get_mut(id) {
            block.is_moving = false;
        }
    }
}

/// Which of its edges a layer shares with the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StageEnds {
    pub(super) first: bool,
    pub(super) last: bool,
}

/// A micro-batch in one layer: its tape, and where its blocks are on the device.
#[derive(Debug)]
pub(super) struct Playing<'a> {
    passage: &'a Passage,
    classes: Vec<BlockClass>,
    on_device: Vec<Option<BlockId>>,
}

impl<'a> Playing<'a> {
    pub(super) fn new(passage: &'a Passage, ends: StageEnds) -> Self {
        Self { passage, classes: classes(passage, ends), on_device: vec![None; passage.blocks.len()] }
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
    }

    pub(super) fn passage(&self) -> &'a Passage {
        self.passage
    }

    /// What is still live: after the first backward pass of an iteration, the parameters' gradients.
    pub(super) fn left(self) -> impl Iterator<Item = BlockId> {
        self.on_device.into_iter().flatten()
    }
}

/// Plays a part of the end of an iteration: everything in it is transient.
pub(super) fn play_step(machine: &mut Machine, step: &Step, events: &[Event]) {
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
            *place = Some(machine.allocate(bytes, class));
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
