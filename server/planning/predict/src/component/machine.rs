//! The bytes of a device while allocation traces are played on it.

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
/// largest number instead of restarting at 0.
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
        // An allocation trace frees only what it allocated, so nothing can be missing.
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

    /// It has memory once more.
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
