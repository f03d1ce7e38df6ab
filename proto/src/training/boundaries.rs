//! Boundaries between the steps of an iteration: what is due at each.
//!
//! What leaves a device and what comes back do so at boundaries, whether it is a block of a memory optimization or a
//! chunk. Four things happen at a boundary, in the order of [`BoundaryAct`]. Planner, simulator and rank look them
//! up in the same [`BoundaryTable`], and add up in the same [`CycleBytes`] how much is where between them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

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

/// The boundaries of an iteration at which something comes and leaves: of a block, which is on the device until it leaves, or of a
/// chunk, which is on the host until it is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct BoundaryInterval {
    /// Where it gets memory on the device, and its copy to there begins if there is one.
    pub fetched: usize,
    /// Where it must be there: in front of the step that needs it.
    pub needed: usize,
    /// Where its copy from the device begins if there is one: behind the last step that uses it.
    pub leaves: usize,
    /// Where its memory is given back, once its copy is complete.
    pub freed: usize,
}

impl BoundaryInterval {
    /// Returns the interval whose boundaries are these of its own.
    #[must_use]
    pub fn map(self, boundary: impl Fn(usize) -> usize) -> Self {
        let [fetched, needed, leaves, freed] =
            [self.fetched, self.needed, self.leaves, self.freed].map(boundary);
        Self { fetched, needed, leaves, freed }
    }

    /// Returns the boundaries of its acts, in their order.
    pub fn boundaries(&self) -> [usize; 4] {
        [self.leaves, self.freed, self.fetched, self.needed]
    }

    /// Returns the same in an iteration of so many steps: what is at its end is at the beginning of the next.
    pub fn boundaries_within(&self, steps: usize) -> [usize; 4] {
        self.boundaries().map(|boundary| boundary % steps.max(1))
    }

    /// Whether it is fetched in the iteration before the one that needs it.
    pub fn is_over_end(&self) -> bool {
        self.fetched > self.needed
    }

    /// Returns the boundary where it must be there, counted from the beginning of the iteration in which it is fetched, whose
    /// steps are so many.
    pub fn awaited(&self, steps: usize) -> usize {
        self.needed + if self.is_over_end() { steps } else { 0 }
    }

    /// Returns the steps in which it has memory on the device, counted from the beginning of the iteration in which it is
    /// fetched, whose steps are so many.
    pub fn held(&self, steps: usize) -> Range<usize> {
        self.fetched..self.freed + if self.is_over_end() { steps } else { 0 }
    }

    /// Returns the steps in which it has no memory on the device, of what leaves before it is fetched.
    pub fn away(&self) -> Range<usize> {
        self.freed..self.fetched
    }

    /// Returns the boundaries at which it has a place elsewhere, of what leaves before it is fetched: copies begin before others'
    /// places are given back.
    pub fn stored(&self) -> Range<usize> {
        self.leaves..self.needed + 1
    }
}

/// Bytes at each moment of an iteration that begins once more when it is over.
#[derive(Debug, Clone)]
pub struct CycleBytes(Vec<i128>);

impl CycleBytes {
    /// None at any of so many moments.
    pub fn new(moments: usize) -> Self {
        Self(vec![0; moments])
    }

    /// Adds so many at these moments; those at or behind the end are in the next iteration.
    pub fn add(&mut self, at: Range<usize>, bytes: impl Into<i128>) {
        let moments = self.0.len();
        if moments == 0 || at.is_empty() {
            return;
        }
        // Longer than an iteration would be the same block twice.
        let length = at.len().min(moments);
        let (from, bytes) = (at.start % moments, bytes.into());
        let end = from + length;
        self.0[from] += bytes;
        if let Some(place) = self.0.get_mut(end) {
            *place -= bytes;
        } else if end > moments {
            self.0[0] += bytes;
            self.0[end - moments] -= bytes;
        }
    }

    /// Returns the bytes of each moment.
    pub fn sums(&self) -> Vec<u64> {
        let mut sum = 0_i128;
        let added = |&change: &i128| {
            sum += change;
            u64::try_from(sum).unwrap_or(if sum < 0 { 0 } else { u64::MAX })
        };
        self.0.iter().map(added).collect()
    }

    /// Returns the most at a moment.
    pub fn most(&self) -> u64 {
        self.sums().into_iter().max().unwrap_or(0)
    }
}

/// Lists by boundary the things that leave or come there, by index. They are in index order, except fetches (see
/// [`Self::new`]).
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

/// Numbers of things by group, in one list.
#[derive(Debug, Clone, Default)]
pub struct GroupIndex {
    numbers: Vec<usize>,
    /// Where those of each group end.
    ends: Vec<usize>,
}

impl GroupIndex {
    /// Of so many things those that are in one of so many groups; those of one are in their order. `group` says which, always the
    /// same.
    pub fn of(count: usize, groups: usize, group: impl Fn(usize) -> Option<usize>) -> Self {
        let mut ends = vec![0; groups];
        let grouped = || (0..count).filter_map(|number| Some((number, group(number)?)));
        grouped().for_each(|(_, group)| ends[group] += 1);
        let mut before = 0;
        for of in &mut ends {
            // Where they begin, until they are in their places.
            before += std::mem::replace(of, before);
        }
        let mut numbers = vec![0; before];
        for (number, group) in grouped() {
            numbers[ends[group]] = number;
            ends[group] += 1;
        }
        Self { numbers, ends }
    }

    /// Those of a group.
    pub fn at(&self, group: usize) -> &[usize] {
        &self.numbers[self.range(group)]
    }

    /// Those of all groups, one group after the other.
    pub fn all(&self) -> &[usize] {
        &self.numbers
    }

    /// Where those of a group are among all.
    pub fn range(&self, group: usize) -> Range<usize> {
        group.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[group]
    }

    /// The same, those of each group in this order.
    #[must_use]
    pub fn sorted_by_key<K: Ord>(mut self, key: impl Fn(usize) -> K) -> Self {
        for group in 0..self.ends.len() {
            let range = self.range(group);
            self.numbers[range].sort_by_key(|&number| key(number));
        }
        self
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
