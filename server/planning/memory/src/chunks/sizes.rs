//! Which chunk sizes are tried.

use loadmaster_proto::chunks::packing::Packing;
use loadmaster_proto::error::Invalid;

use super::question::TriedSizes;

/// Halvings of the model down to the smallest size that is tried.
const MOST_HALVINGS: u32 = 9;
/// Sizes of which one is kept between a power of two and the one below.
const PER_OCTAVE: u64 = 8;

impl TriedSizes {
    /// The sizes that are tried of a packing, largest first. Named ones that cannot be are left out.
    ///
    /// # Errors
    /// Why the last that was named cannot be.
    pub(super) fn of(&self, packing: &Packing<'_>) -> Result<Vec<u64>, Invalid> {
        let mut refused = None;
        let mut sizes = Vec::new();
        let mut add = |size: u64| match packing.checked_size(size) {
            Ok(size) => sizes.push(size),
            Err(why) => refused = Some(why),
        };
        match self {
            Self::Named(named) => named.iter().for_each(|&size| add(size)),
            Self::Spread => spread(packing).into_iter().for_each(&mut add),
        }
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        sizes.dedup();
        match refused {
            Some(why) if sizes.is_empty() => Err(why.under("sizes")),
            _ => Ok(sizes),
        }
    }
}

/// All of it in one chunk, and of each octave below that what the fullest chunk of its power of two holds, and of some sizes
/// between its ends the one that wastes least.
fn spread(packing: &Packing<'_>) -> Vec<u64> {
    let all: u64 = packing.extents().sum();
    let mut sizes = vec![all, packing.largest_atom()];
    for halvings in 0..=MOST_HALVINGS {
        let power = (all.next_power_of_two() >> (halvings + 1)).max(1);
        let tried: Vec<(u64, u64)> = (0..PER_OCTAVE)
            .filter_map(|part| power.checked_sub(power / 2 / PER_OCTAVE * part))
            .filter_map(|size| shrunk(packing, size))
            .collect();
        sizes.extend(tried.first().map(|of| of.0));
        sizes.extend(tried.iter().min_by_key(|of| of.1).map(|of| of.0));
    }
    sizes
}

/// What the fullest chunk of a size holds, and what all chunks of this have room for: the same atoms are in the same chunks,
/// with less room beside them. None of a size that cannot be.
fn shrunk(packing: &Packing<'_>, size: u64) -> Option<(u64, u64)> {
    let chunk_elements = packing.checked_size(size).ok()?;
    // A table that is a chunk of its own by itself has no room beside it.
    let shared = packing.chunk_sizes(chunk_elements).filter(|&(capacity, _)| capacity >= chunk_elements);
    let extents: Vec<u64> = shared.map(|(_, extent)| extent).collect();
    let fullest = extents.iter().copied().filter(|&extent| extent <= size).max().unwrap_or(size);
    let capacity = extents.iter().fold(0_u64, |sum, &extent| sum.saturating_add(extent.max(fullest)));
    Some((fullest, capacity))
}
