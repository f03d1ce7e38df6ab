//! Whose stages cost the same.

use super::super::places::SplitId;
use super::super::{KindSet, LinkId, Step};

/// What stages on a step's devices cost depends on, besides their layers, their choice and their input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Likeness {
    devices: u32,
    kinds: KindSet,
    inside: LinkId,
    across: LinkId,
    per_node: u32,
    split: SplitId,
    others: u32,
}

impl Likeness {
    pub(crate) fn of(step: &Step) -> Self {
        let &Step { to: _, devices, kinds, entry: _, inside, across, per_node, split, others } = step;
        Self { devices, kinds, inside, across, per_node, split, others }
    }
}
