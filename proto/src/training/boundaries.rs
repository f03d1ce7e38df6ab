//! Boundaries between the steps of an iteration: what is due at each.
//!
//! What leaves a device and what comes back do so at boundaries, whether it is a block of a memory action or a chunk. Four things
//! happen at a boundary, in the order of [`BoundaryAct`]. Planner, simulator and rank look them up in the same [`BoundaryTable`].

use crate::chunks::residency::group_index::GroupIndex;

/// What happens at a boundary, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundaryAct {
    /// Copies of what leaves begin.
    Leave,
    /// What is gone gives its memory back.
    Free,
    /// What comes gets memory, and its copy begins.
    Fetch,
    /// What the next step needs is waited for.
    Settle,
}

impl BoundaryAct {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Leave, Self::Free, Self::Fetch, Self::Settle];
}

/// What is due at each boundary: indices of things that leave and come, in the order in which they are told.
#[derive(Debug, Clone, Default)]
pub struct BoundaryTable {
    acts: [GroupIndex; 4],
    boundaries: usize,
}

impl BoundaryTable {
    /// Makes the table of `count` things and so many boundaries. `at` says at which boundary each act of a thing is due, none where it
    /// has nothing to do. Of things that are fetched at one boundary, those come first that are `awaited` first.
    pub fn new<K: Ord>(
        (count, boundaries): (usize, usize),
        at: impl Fn(usize) -> [Option<usize>; 4],
        awaited: impl Fn(usize) -> K,
    ) -> Self {
        let of = |act: BoundaryAct| GroupIndex::of(count, boundaries, |index| at(index)[act as usize]);
        let [leave, free, fetch, settle] = BoundaryAct::ALL.map(of);
        Self { acts: [leave, free, fetch.sorted_by_key(awaited), settle], boundaries }
    }

    /// Returns the number of boundaries.
    pub fn boundaries(&self) -> usize {
        self.boundaries
    }

    /// Returns the things of which an act is due at a boundary.
    pub fn due(&self, boundary: usize, act: BoundaryAct) -> &[usize] {
        if boundary < self.boundaries { self.acts[act as usize].at(boundary) } else { &[] }
    }

    /// Returns the things of each act that is due at a boundary, in the order of the acts.
    pub fn at(&self, boundary: usize) -> [&[usize]; 4] {
        BoundaryAct::ALL.map(|act| self.due(boundary, act))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The table says at each boundary what a list of all things says, and what comes is in the order in which it is awaited.
        #[test]
        fn the_table_is_the_list_by_boundaries(
            things in prop::collection::vec(prop::array::uniform4(prop::option::of(0..6_usize)), 0..20),
        ) {
            let awaited = |index: usize| things[index][3].unwrap_or(usize::MAX);
            let table = BoundaryTable::new((things.len(), 6), |index| things[index], awaited);
            for boundary in 0..8 {
                for (act, due) in table.at(boundary).into_iter().enumerate() {
                    let mut listed: Vec<usize> =
                        (0..things.len()).filter(|&index| things[index][act] == Some(boundary)).collect();
                    if act == BoundaryAct::Fetch as usize {
                        listed.sort_by_key(|&index| awaited(index));
                    }
                    prop_assert_eq!(due, listed);
                }
            }
        }
    }
}
