//! Which blocks are the same one in two recordings of a layer whose events differ.
//!
//! In each slot the allocations of both are laid side by side, in order, such that as many as possible go
//! together by their bytes: the classic alignment of two sequences.

use loadmaster_proto::measure::trace::{Passage, Slot, block_of};

/// Largest table of an alignment, in cells: a slot of two thousand allocations.
const MAX_CELLS: usize = 1 << 22;

/// For each block of `second` its counterpart in `first`, if it has one. `fit` says how well bytes of the
/// two go together, 0 not at all.
pub(super) fn counterparts(
    first: &Passage,
    second: &Passage,
    fit: &impl Fn(u64, u64) -> u32,
) -> Vec<Option<usize>> {
    let mut counterparts = vec![None; second.blocks.len()];
    for slot in Slot::ALL {
        let (ours, theirs) = (allocations(first, slot), allocations(second, slot));
        for (block, other) in aligned(&ours, &theirs, fit) {
            if let Some(place) = counterparts.get_mut(other) {
                *place = Some(block);
            }
        }
    }
    counterparts
}

/// Blocks that are allocated in a slot, in order, with their bytes.
fn allocations(passage: &Passage, slot: Slot) -> Vec<(usize, u64)> {
    let events = passage.slot(slot).iter().map(|&event| block_of(event));
    let bytes = |block: usize| passage.blocks.get(block).copied().unwrap_or_default();
    events.filter(|&(_, allocated)| allocated).map(|(block, _)| (block, bytes(block))).collect()
}

/// Pairs of blocks in order, such that the sum of their fits is highest.
fn aligned(
    first: &[(usize, u64)],
    second: &[(usize, u64)],
    fit: &impl Fn(u64, u64) -> u32,
) -> Vec<(usize, usize)> {
    let columns = second.len() + 1;
    if (first.len() + 1).saturating_mul(columns) > MAX_CELLS {
        return Vec::new();
    }
    // best[row * columns + column]: of what is left from these positions on.
    let mut best = vec![0_u32; (first.len() + 1) * columns];
    for row in (0..first.len()).rev() {
        for column in (0..second.len()).rev() {
            let at = row * columns + column;
            let without = best[at + columns].max(best[at + 1]);
            let fit = fit(first[row].1, second[column].1);
            let with = if fit > 0 { fit + best[at + columns + 1] } else { 0 };
            best[at] = without.max(with);
        }
    }
    let mut pairs = Vec::new();
    let (mut row, mut column) = (0, 0);
    while row < first.len() && column < second.len() {
        let at = row * columns + column;
        let fit = fit(first[row].1, second[column].1);
        if fit > 0 && best[at] == fit + best[at + columns + 1] {
            pairs.push((first[row].0, second[column].0));
            (row, column) = (row + 1, column + 1);
        } else if best[at] == best[at + columns] {
            row += 1;
        } else {
            column += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(first: u64, second: u64) -> u32 {
        u32::from(first == second)
    }

    fn numbered(bytes: &[u64]) -> Vec<(usize, u64)> {
        bytes.iter().copied().enumerate().collect()
    }

    /// Longest common subsequence by trying everything.
    fn longest(first: &[u64], second: &[u64]) -> usize {
        match (first, second) {
            ([a, left @ ..], [b, right @ ..]) if a == b => 1 + longest(left, right),
            ([_, left @ ..], [_, right @ ..]) => longest(left, second).max(longest(first, right)),
            _ => 0,
        }
    }

    proptest! {
        /// No alignment pairs more blocks, and pairs are in order and go together.
        #[test]
        fn alignments_are_best(
            first in prop::collection::vec(0_u64..4, 0..8),
            second in prop::collection::vec(0_u64..4, 0..8),
        ) {
            let pairs = aligned(&numbered(&first), &numbered(&second), &same);
            prop_assert_eq!(pairs.len(), longest(&first, &second));
            prop_assert!(pairs.iter().all(|&(block, other)| first[block] == second[other]));
            prop_assert!(pairs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
        }
    }

    /// Another algorithm puts scratch blocks in between; all others find each other.
    #[test]
    fn scratch_in_between_does_not_disturb() {
        let passage = |blocks: &[u64], forward: &[i32]| Passage {
            blocks: blocks.to_vec(),
            slots: [vec![], forward.to_vec(), vec![], vec![], vec![], vec![]],
            ..Passage::default()
        };
        let first = passage(&[100, 7, 30], &[1, 2, -2, 3]);
        let second = passage(&[100, 9, 8, 30], &[1, 2, 3, -2, -3, 4]);
        assert_eq!(counterparts(&first, &second, &same), [Some(0), None, None, Some(2)]);
    }
}
