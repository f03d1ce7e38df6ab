//! Which part of a pool is whose. Pure.

use std::collections::BTreeMap;

/// A part of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Where it begins.
    pub(super) start: u64,
    /// How long it is.
    pub(super) bytes: u64,
}

/// The parts of a pool that are taken. A block may lie in several of them: what is free can always be used.
#[derive(Debug)]
pub(super) struct Pool {
    size: u64,
    used: u64,
    peak: u64,
    /// Lengths by where they begin; neighbours are one.
    free: BTreeMap<u64, u64>,
}

impl Pool {
    pub(super) fn new(size: u64) -> Self {
        let free = (size > 0).then_some((0, size)).into_iter().collect();
        Self { size, used: 0, peak: 0, free }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// The most that was used since the last reset.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }

    pub(super) fn reset_peak(&mut self) {
        self.peak = self.used;
    }

    /// Takes so many bytes, the first that are free; none where there are not so many.
    pub(super) fn take(&mut self, bytes: u64) -> Option<Vec<Extent>> {
        if bytes > self.size - self.used {
            return None;
        }
        let mut taken = Vec::new();
        let mut missing = bytes;
        while missing > 0 {
            let (start, length) = self.free.pop_first()?;
            let part = length.min(missing);
            if part < length {
                self.free.insert(start + part, length - part);
            }
            taken.push(Extent { start, bytes: part });
            missing -= part;
        }
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        Some(taken)
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&mut self, extents: &[Extent]) {
        for &Extent { mut start, mut bytes } in extents {
            self.used -= bytes;
            if let Some((&before, &length)) = self.free.range(..start).next_back()
                && before + length == start
            {
                self.free.remove(&before);
                (start, bytes) = (before, length + bytes);
            }
            if let Some(length) = self.free.remove(&(start + bytes)) {
                bytes += length;
            }
            self.free.insert(start, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is given back in any order is one piece again.
    #[test]
    fn neighbours_become_one() {
        let mut pool = Pool::new(30);
        let parts: Vec<_> = (0..3).map(|_| pool.take(10).unwrap()).collect();
        assert_eq!(pool.take(1), None);
        for part in [1, 0, 2] {
            pool.give_back(&parts[part]);
        }
        assert_eq!(
            (pool.take(30), pool.used(), pool.peak()),
            (Some(vec![Extent { start: 0, bytes: 30 }]), 30, 30)
        );
    }

    proptest! {
        /// As long as so many bytes are free they can be had, in whatever pieces; no byte is anybody's twice; and what
        /// all give back is the whole pool.
        #[test]
        fn what_is_free_can_be_had(
            size in 1_u64..2_000,
            turns in proptest::collection::vec((any::<bool>(), 0_u64..300, any::<prop::sample::Index>()), 1..60),
        ) {
            let mut pool = Pool::new(size);
            let mut held: Vec<Vec<Extent>> = Vec::new();
            let mut most = 0;
            for (takes, bytes, which) in turns {
                if takes || held.is_empty() {
                    let free = pool.size() - pool.used();
                    let taken = pool.take(bytes);
                    prop_assert_eq!(taken.is_some(), bytes <= free);
                    held.extend(taken);
                } else {
                    let index = which.index(held.len());
                    pool.give_back(&held.swap_remove(index));
                }
                let mut all: Vec<Extent> = held.iter().flatten().copied().collect();
                all.sort_by_key(|extent| extent.start);
                prop_assert!(all.windows(2).all(|pair| pair[0].start + pair[0].bytes <= pair[1].start));
                prop_assert!(all.last().is_none_or(|last| last.start + last.bytes <= size));
                prop_assert_eq!(all.iter().map(|extent| extent.bytes).sum::<u64>(), pool.used());
                most = most.max(pool.used());
            }
            prop_assert_eq!(pool.peak(), most);
            held.iter().for_each(|extents| pool.give_back(extents));
            pool.reset_peak();
            prop_assert_eq!((pool.used(), pool.peak()), (0, 0));
            prop_assert_eq!(pool.take(size), Some(vec![Extent { start: 0, bytes: size }]));
        }
    }
}
