//! How much is away in which place, and between which boundaries.

use std::collections::BTreeMap;

use loadmaster_proto::training::actions::Absence;

use super::memory_optimizations::{Away, Pool};

/// Bytes at each moment of an iteration that begins again when it is over.
#[derive(Debug, Clone)]
pub(super) struct Cycle(Vec<i128>);

impl Cycle {
    pub(super) fn new(moments: usize) -> Self {
        Self(vec![0; moments])
    }

    /// So many more from one moment to before another; those at or behind the end are in the next iteration.
    pub(super) fn add(&mut self, from: usize, until: usize, bytes: u64) {
        let moments = self.0.len();
        if moments == 0 || from >= until {
            return;
        }
        // Longer than an iteration would be the same block twice.
        let length = (until - from).min(moments);
        let (from, bytes) = (from % moments, i128::from(bytes));
        let end = from + length;
        self.0[from] += bytes;
        if let Some(place) = self.0.get_mut(end) {
            *place -= bytes;
        } else if end > moments {
            self.0[0] += bytes;
            self.0[end - moments] -= bytes;
        }
    }

    /// The bytes of each moment.
    pub(super) fn sums(&self) -> Vec<u64> {
        let mut sum = 0_i128;
        let of = |&change: &i128| {
            sum += change;
            u64::try_from(sum).unwrap_or(if sum < 0 { 0 } else { u64::MAX })
        };
        self.0.iter().map(of).collect()
    }
}

impl Away {
    /// What goes where: no stage is the host.
    fn parts(&self) -> impl Iterator<Item = (Option<u32>, u64)> {
        let host = self.stripes.is_empty().then_some((None, self.bytes));
        host.into_iter().chain(self.stripes.iter().map(|&(stage, bytes)| (Some(stage), bytes)))
    }
}

/// What is in each place at each boundary before one of so many steps, the host first.
pub(super) fn in_places(away: &[Away], steps: usize) -> Vec<Pool> {
    let mut places: BTreeMap<Option<u32>, (Cycle, u64)> = BTreeMap::new();
    for away in away {
        let Absence { leaves, needed, .. } = away.absence;
        for (place, bytes) in away.parts().filter(|&(_, bytes)| bytes > 0) {
            let (cycle, moved) = places.entry(place).or_insert_with(|| (Cycle::new(steps), 0));
            // At both boundaries: copies begin before others' places are given back.
            cycle.add(leaves, needed + 1, bytes);
            *moved = moved.saturating_add(bytes);
        }
    }
    let pool = |(peer, (cycle, moved_bytes)): (Option<u32>, (Cycle, u64))| {
        let at_boundaries = cycle.sums();
        let peak = at_boundaries.iter().copied().max().unwrap_or_default();
        Pool { peer, peak, moved_bytes, at_boundaries }
    };
    places.into_iter().map(pool).collect()
}
