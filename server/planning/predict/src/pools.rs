//! How much is away in which place, and between which boundaries.

use std::collections::BTreeMap;

use loadmaster_proto::training::boundaries::CycleBytes;

use super::memory_optimizations::{Away, Pool};

impl Away {
    /// What goes where: no stage is the host.
    fn parts(&self) -> impl Iterator<Item = (Option<u32>, u64)> {
        let host = self.stripes.is_empty().then_some((None, self.bytes));
        host.into_iter().chain(self.stripes.iter().map(|&(stage, bytes)| (Some(stage), bytes)))
    }
}

/// What is in each place at each boundary before one of so many steps, the host first.
pub(super) fn in_places(away: &[Away], steps: usize) -> Vec<Pool> {
    let mut places: BTreeMap<Option<u32>, (CycleBytes, u64)> = BTreeMap::new();
    for away in away {
        for (place, bytes) in away.parts().filter(|&(_, bytes)| bytes > 0) {
            let (cycle, moved) = places.entry(place).or_insert_with(|| (CycleBytes::new(steps), 0));
            cycle.add(away.absence.at.stored(), bytes);
            *moved = moved.saturating_add(bytes);
        }
    }
    let pool = |(peer, (cycle, moved_bytes)): (Option<u32>, (CycleBytes, u64))| {
        let at_boundaries = cycle.sums();
        let peak = at_boundaries.iter().copied().max().unwrap_or_default();
        Pool { peer, peak, moved_bytes, at_boundaries }
    };
    places.into_iter().map(pool).collect()
}
