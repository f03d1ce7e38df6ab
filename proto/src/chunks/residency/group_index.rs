//! Things by group, side by side.

use std::ops::Range;

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
