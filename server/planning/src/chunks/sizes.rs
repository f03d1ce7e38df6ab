//! Which chunk sizes are tried.

use loadmaster_proto::chunks::groups::Groups;
use loadmaster_proto::chunks::lists::Lists;
use loadmaster_proto::chunks::packing::{ChunkLayout, Packing};
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::chunks::sizes::ChunkSizes;
use loadmaster_proto::error::Invalid;

use super::question::TriedSizes;

/// Halvings of the model down to the smallest size that is tried.
const MOST_HALVINGS: u32 = 9;

impl TriedSizes {
    /// The sizes that are tried of a sequence, largest first. Named ones that cannot be are left out.
    ///
    /// # Errors
    /// Why the last that was named cannot be.
    pub(super) fn of(
        &self,
        sequence: &Sequence,
        layout: ChunkLayout,
        lists: Lists,
    ) -> Result<Vec<u64>, Invalid> {
        let packing = Packing::new(sequence, layout, lists)?;
        let mut refused = None;
        let mut sizes = Vec::new();
        let mut add = |size: u64| match packing.checked_size(size) {
            Ok(size) => sizes.push(size),
            Err(why) => refused = Some(why),
        };
        match self {
            Self::Named(named) => named.iter().for_each(|&size| add(size)),
            Self::Spread => spread(&packing, layout)?.into_iter().for_each(&mut add),
        }
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        sizes.dedup();
        match refused {
            Some(why) if sizes.is_empty() => Err(why.under("sizes")),
            _ => Ok(sizes),
        }
    }
}

/// All of it in one chunk, powers of two below that, and of the sums of atoms up to each of them the one that wastes least.
fn spread(packing: &Packing<'_>, layout: ChunkLayout) -> Result<Vec<u64>, Invalid> {
    let all: u64 = packing.extents().sum();
    let groups = Groups::new(layout, 1, None)?;
    let mut sizes = vec![all, packing.largest_atom()];
    for halvings in 0..=MOST_HALVINGS {
        let power = (all.next_power_of_two() >> (halvings + 1)).max(1);
        if packing.checked_size(power).is_ok() {
            sizes.push(shrunk(packing, power)?);
        }
        // Where no atom is as small, powers of two are all.
        if let Ok(found) = packing.choose(ChunkSizes::Breakpoints, power, &groups, 1) {
            sizes.extend(found.footprints.iter().map(|of| of.chunk_elements));
        }
    }
    Ok(sizes)
}

/// What the fullest chunk of a size holds: the same atoms are in the same chunks, with less room beside them.
fn shrunk(packing: &Packing<'_>, size: u64) -> Result<u64, Invalid> {
    let layout = packing.lay_out(size)?;
    let fit = layout.chunks().iter().map(|chunk| chunk.extent).filter(|&extent| extent <= size);
    Ok(fit.max().unwrap_or(size))
}
