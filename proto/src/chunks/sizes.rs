//! Chunk sizes: how people write them, which are tried, and which is best.

use std::fmt;
use std::str::FromStr;

use super::MEBI;
use super::footprint::Footprint;
use super::groups::Groups;
use super::packing::{ChunkLayout, Packing};
use crate::bytes::Bytes;
use crate::choice;
use crate::error::Invalid;
use crate::wire::v1;

/// The largest chunk that is tried unless another is named, elements.
pub const LARGEST: u64 = 512 * MEBI;

/// Sums of neighbours that are looked at, and chunks that are opened, before a search for a size gives up: about a
/// second of work. Models of equal blocks are far below either.
const MOST_SUMS: usize = 1 << 23;
const MOST_CHUNKS: u64 = 1 << 24;

/// The sizes that are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ChunkSizes {
    /// 64M to 512M in steps of 32M: PatrickStar's first version.
    GridA,
    /// 312M down to 88M in steps of 32M: PatrickStar's last version.
    GridB,
    /// Every sum of parameter groups that follow each other, from the largest parameter group on. No size from there
    /// on is better than the best of them: a chunk may always shrink to what the largest of its size holds, and all
    /// others stay as they are. Smaller ones, beside which a parameter group has a chunk of its own, are not tried.
    #[default]
    Breakpoints,
}

choice! { ChunkSizes = v1::ChunkSizes { GridA, GridB, Breakpoints } }

/// What came of trying sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct TriedSizes {
    /// The best sizes, in ascending order.
    pub footprints: Vec<Footprint>,
    /// The best of them.
    pub best: usize,
    /// Sizes that were tried.
    pub tried: usize,
    /// Sizes of the grid below the largest parameter group.
    pub too_small: usize,
}

impl Packing<'_> {
    /// Tries sizes of up to `largest` elements and keeps the `rows` best: those with the smallest footprint of whole
    /// chunks, counting padding chunks; among equals the smallest without, and then the fewest chunks.
    ///
    /// # Errors
    /// No size can be tried, or there are too many.
    pub fn choose(
        &self,
        sizes: ChunkSizes,
        largest: u64,
        groups: &Groups,
        rows: usize,
    ) -> Result<TriedSizes, Invalid> {
        let least = self.least_size(largest)?;
        let rows = rows.max(1);
        let candidates: Vec<u64> = match sizes {
            ChunkSizes::GridA => (2..=16).map(|step| 32 * step * MEBI).collect(),
            ChunkSizes::GridB => (0..8).map(|step| (88 + 32 * step) * MEBI).collect(),
            ChunkSizes::Breakpoints => self.breakpoints(least, largest)?,
        };
        let within: Vec<u64> = candidates.into_iter().filter(|&size| size <= largest).collect();
        let tried = &within[within.partition_point(|&size| size < least)..];
        let mut found = Vec::new();
        let mut opened = 0_u64;
        let mut chunks = |size: u64| {
            let chunks = self.next_fit(size).count();
            opened = opened.saturating_add(chunks as u64);
            if opened > MOST_CHUNKS { Err(too_long()) } else { Ok(chunks) }
        };
        // Larger chunks are never more: next-fit keeps the order, so it fills as few as can be. Of as many chunks smaller
        // ones are better, so of each such run of sizes the first ones tell all.
        let mut rest = tried;
        while let Some(&first) = rest.first() {
            let count = chunks(first)?;
            let run = first_where(rest, |size| Ok(chunks(size)? < count))?;
            for &size in &rest[..run.min(rows)] {
                found.push(self.footprint(size, groups)?);
            }
            if found.len() > 2 * rows + 1_000 {
                keep_best(&mut found, rows);
            }
            rest = &rest[run..];
        }
        if found.is_empty() {
            let why = format!(
                "none of the chunk sizes to try is between the largest parameter group ({} elements) and the maximum \
                 ({}). Use {}, or set a chunk size",
                mebi(least),
                mebi(largest),
                ChunkSizes::Breakpoints
            );
            return Err(Invalid::field("size_candidates", why));
        }
        keep_best(&mut found, rows);
        found.sort_by_key(|of| of.chunk_elements);
        let best = found.iter().enumerate().min_by_key(|(_, of)| of.rank()).map_or(0, |(index, _)| index);
        Ok(TriedSizes { footprints: found, best, tried: tried.len(), too_small: within.len() - tried.len() })
    }

    /// The least size: that of the largest parameter group which may share a chunk.
    fn least_size(&self, largest: u64) -> Result<u64, Invalid> {
        let has_outliers = self.layout == ChunkLayout::Aligned;
        let shared = self.extents().filter(|&extent| !has_outliers || extent <= largest).max();
        shared.filter(|&least| least <= largest).ok_or_else(|| {
            let (which, extent, otherwise) = if has_outliers {
                ("smallest", self.extents().min(), "")
            } else {
                let aligned =
                    ", or use the layout aligned, which puts a large parameter group into its own chunk";
                ("largest", Some(self.largest_atom()), aligned)
            };
            let why = format!(
                "{} elements is too small: the {which} parameter group has {} elements. Use at least as \
                 many{otherwise}",
                mebi(largest),
                mebi(extent.unwrap_or(0))
            );
            Invalid::field("max_chunk_elements", why)
        })
    }

    /// Every sum of parameter groups that follow each other within these bounds, each once, in ascending order.
    fn breakpoints(&self, least: u64, largest: u64) -> Result<Vec<u64>, Invalid> {
        let mut sums = Vec::new();
        // What is apart shares its chunk with no one.
        for (first, &start) in self.starts.iter().enumerate().skip(self.apart) {
            let ends = &self.starts[first + 1..];
            let below = ends.partition_point(|&end| end - start < least);
            let within = below + ends[below..].partition_point(|&end| end - start <= largest);
            if sums.len() + (within - below) > MOST_SUMS {
                return Err(too_long());
            }
            sums.extend(ends[below..within].iter().map(|end| end - start));
        }
        sums.sort_unstable();
        sums.dedup();
        Ok(sums)
    }
}

/// Position of the first size of which something is true that is true of all after it; their number if there is none.
fn first_where(sizes: &[u64], mut is: impl FnMut(u64) -> Result<bool, Invalid>) -> Result<usize, Invalid> {
    let (mut low, mut high) = (0, sizes.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if is(sizes[middle])? { high = middle } else { low = middle + 1 }
    }
    Ok(low)
}

/// Forgets all but the best.
fn keep_best(found: &mut Vec<Footprint>, rows: usize) {
    found.sort_by_key(Footprint::rank);
    found.truncate(rows);
}

fn too_long() -> Invalid {
    let why = format!(
        "this model has too many layers to try all chunk sizes. Use {} or {}, or lower the maximum chunk size",
        ChunkSizes::GridA,
        ChunkSizes::GridB
    );
    Invalid::field("size_candidates", why)
}

/// A chunk size in either unit.
///
/// ```
/// use loadmaster_proto::bytes::Bytes;
/// use loadmaster_proto::chunks::ChunkSize;
///
/// assert_eq!("480M".parse(), Ok(ChunkSize::Elements(480 << 20)));
/// assert_eq!("503316480".parse(), Ok(ChunkSize::Elements(480 << 20)));
/// assert_eq!("960MiB".parse(), Ok(ChunkSize::Bytes(Bytes(960 << 20))));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkSize {
    /// Elements, of every list.
    Elements(u64),
    /// Bytes of a chunk of parameters.
    Bytes(Bytes),
}

/// A text that is no chunk size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a chunk size. Use a number of elements, for example 480M (M is 2^20) or 503316480. Or use the size \
     of a chunk's parameters in bytes, for example 960MiB"
)]
pub struct ParseChunkSizeError(String);

impl FromStr for ChunkSize {
    type Err = ParseChunkSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseChunkSizeError(text.to_owned());
        let trimmed = text.trim();
        let (number, unit) = trimmed.strip_suffix('M').map_or((trimmed, 1), |number| (number, MEBI));
        if let Ok(number) = number.parse::<u64>() {
            return number.checked_mul(unit).map(Self::Elements).ok_or_else(error);
        }
        // Without the B of bytes it might be either.
        match trimmed.ends_with(['B', 'b']) {
            true => trimmed.parse().map(Self::Bytes).map_err(|_| error()),
            false => Err(error()),
        }
    }
}

/// Elements in the paper's unit, with as many digits as it takes to tell sizes apart: `192.0508M`.
pub fn mebi(elements: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        if elements < MEBI {
            write!(f, "{elements}")
        } else if elements.is_multiple_of(MEBI) {
            write!(f, "{}M", elements / MEBI)
        } else {
            write!(f, "{:.4}M", elements as f64 / MEBI as f64)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_says_its_unit() {
        for wrong in ["", "M", "-1M", "480m", "1.5M", "480G", "480K", "99999999999999M", "B", "1 parsec"] {
            assert!(wrong.parse::<ChunkSize>().is_err(), "{wrong:?}");
        }
        assert_eq!("480".parse(), Ok(ChunkSize::Elements(480)));
        assert_eq!(" 1.5GiB ".parse(), Ok(ChunkSize::Bytes(Bytes(3 << 29))));
    }

    #[test]
    fn sizes_are_told_apart() {
        assert_eq!(mebi(480 << 20).to_string(), "480M");
        assert_eq!(mebi(201_379_840).to_string(), "192.0508M");
        assert_eq!(mebi(31).to_string(), "31");
    }
}
