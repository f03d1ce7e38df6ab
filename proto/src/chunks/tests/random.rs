//! Random sequences against a naive next-fit: one parameter group after the other goes into the last chunk or a new one.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::golden::ADAM;
use crate::chunks::groups::Groups;
use crate::chunks::layout::{List, Lists};
use crate::chunks::packing::{ChunkLayout, Packing};
use crate::chunks::sequence::Sequence;
use crate::chunks::sizes::ChunkSizes;
use crate::training::Precision;

/// Parameter groups of one to three tensors.
fn atoms(most: u64) -> impl Strategy<Value = Vec<Vec<u64>>> {
    proptest::collection::vec(proptest::collection::vec(1..=most, 1..=3), 1..12)
}

fn precision() -> impl Strategy<Value = Precision> {
    prop_oneof![Just(Precision::Bf16), Just(Precision::Fp32)]
}

/// Elements of 64 bytes in the narrowest list.
fn step(layout: ChunkLayout, precision: Precision) -> u64 {
    match (layout, precision) {
        (ChunkLayout::Patrickstar, _) => 1,
        (ChunkLayout::Aligned, Precision::Fp32) => 16,
        (ChunkLayout::Aligned, _) => 32,
    }
}

/// (chunk, offset) of every tensor, and (capacity, end of the last tensor) of every chunk.
type Told = (Vec<(usize, u64)>, Vec<(u64, u64)>);

/// Next-fit without sums or searches: every parameter group is tried in the last chunk by placing its tensors there.
fn told(atoms: &[Vec<u64>], size: u64, step: u64) -> Told {
    let up = |offset: u64| offset + (step - offset % step) % step;
    let (mut places, mut chunks) = (Vec::new(), Vec::<(u64, u64)>::new());
    for atom in atoms {
        let place = |from: u64| {
            let mut end = from;
            let starts: Vec<u64> = atom
                .iter()
                .map(|&elements| {
                    let start = up(end);
                    end = start + elements;
                    start
                })
                .collect();
            (starts, end)
        };
        let last = chunks.last().map(|&(_, end)| place(end)).filter(|&(_, end)| end <= size);
        let (starts, end) = last.unwrap_or_else(|| {
            chunks.push((size, 0));
            place(0)
        });
        *chunks.last_mut().unwrap() = (size.max(up(end)), end);
        let chunk = chunks.len() - 1;
        places.extend(starts.into_iter().map(|start| (chunk, start)));
    }
    (places, chunks)
}

fn largest(atoms: &[Vec<u64>]) -> u64 {
    atoms.iter().map(|atom| atom.iter().sum()).max().unwrap()
}

proptest! {
    /// Every tensor is where the rule puts it, in either layout: in order, aligned, no parameter group cut, nothing
    /// overlapping.
    #[test]
    fn tensors_are_where_next_fit_puts_them(
        atoms in atoms(200), size in 1_u64..900, precision in precision(), bare in any::<bool>()
    ) {
        let layout = if bare { ChunkLayout::Patrickstar } else { ChunkLayout::Aligned };
        let step = step(layout, precision);
        let sequence = Sequence::of_atoms(atoms.clone()).unwrap();
        let lists = Lists::new(precision, &ADAM).unwrap();
        let packing = Packing::new(&sequence, layout, lists).unwrap();
        let found = packing.lay_out(size);
        if bare && size < largest(&atoms) {
            prop_assert!(found.is_err());
            return Ok(());
        }
        let found = found.unwrap();
        let size = size + (step - size % step) % step;
        let (places, chunks) = told(&atoms, size, step);
        prop_assert_eq!(found.chunk_elements(), size);
        let made: Vec<(usize, u64)> = found.tensors().iter().map(|of| (of.chunk, of.offset)).collect();
        prop_assert_eq!(made, places);
        // Told without tensors, too, whether or not a table is apart.
        for packing in [packing.clone(), packing.with_table_apart()] {
            let chunks = packing.lay_out(size).unwrap();
            let sizes: Vec<(u64, u64)> = chunks.chunks().iter().map(|of| (of.capacity, of.extent)).collect();
            prop_assert_eq!(packing.chunk_sizes(size).collect::<Vec<_>>(), sizes);
        }
        let capacities: Vec<u64> = found.chunks().iter().map(|of| of.capacity).collect();
        prop_assert_eq!(capacities, chunks.iter().map(|of| of.0).collect::<Vec<u64>>());

        // And as anybody would check it who knows no rule.
        let mut before = (0, 0);
        for place in found.tensors() {
            prop_assert!((place.chunk, place.offset) >= before, "in order, apart");
            before = (place.chunk, place.range().end);
            prop_assert!(place.range().end <= found.chunks()[place.chunk].extent);
            prop_assert!(found.chunks()[place.chunk].extent <= found.chunks()[place.chunk].capacity);
            for &list in lists.all() {
                let bytes = place.offset * lists.scalar_bytes(list);
                prop_assert!(bare || bytes.is_multiple_of(64), "{list:?} at {bytes}");
            }
        }
        let mut rest = found.tensors();
        for atom in &atoms {
            let (own, after) = rest.split_at(atom.len());
            prop_assert!(own.iter().all(|place| place.chunk == own[0].chunk), "an atom is cut");
            rest = after;
        }
        for (index, chunk) in found.chunks().iter().enumerate() {
            let own: Vec<usize> = (0..found.tensors().len()).filter(|&of| found.tensors()[of].chunk == index).collect();
            prop_assert_eq!(chunk.tensors.clone().collect::<Vec<usize>>(), own);
        }
    }

    /// What a size costs is what its layout adds up to.
    #[test]
    fn footprints_are_sums_over_the_layout(
        atoms in atoms(200), size in 600_u64..900, bare in any::<bool>(), ranks in 1_u32..6, times in 1_u32..4
    ) {
        let layout = if bare { ChunkLayout::Patrickstar } else { ChunkLayout::Aligned };
        let step = step(layout, Precision::Bf16);
        let sequence = Sequence::of_atoms(atoms.clone()).unwrap();
        let lists = Lists::new(Precision::Bf16, &ADAM).unwrap();
        let packing = Packing::new(&sequence, layout, lists).unwrap();
        let group = if bare { ranks * times } else { times };
        let groups = Groups::new(layout, ranks, Some(group)).unwrap();
        let footprint = packing.footprint(size, &groups).unwrap();
        let (_, chunks) = told(&atoms, footprint.chunk_elements, step);
        let all: u64 = atoms.iter().flatten().sum();
        prop_assert_eq!(footprint.chunks, chunks.len() as u64);
        prop_assert_eq!(footprint.bytes().0, 14 * chunks.iter().map(|of| of.0).sum::<u64>());
        prop_assert_eq!(footprint.outliers, chunks.iter().filter(|of| of.0 > footprint.chunk_elements).count() as u64);
        prop_assert!((footprint.utilisation() - all as f64 / chunks.iter().map(|of| of.0).sum::<u64>() as f64).abs() < 1e-12);
        let mut own: u64 = 0;
        for group in chunks.chunks(group as usize) {
            own += if bare {
                u64::from(times) * footprint.chunk_elements
            } else {
                let up = |value: u64| value.div_ceil(step) * step;
                let extent: u64 = group.iter().map(|of| up(of.1)).sum();
                up(extent.div_ceil(ranks.into()))
            };
        }
        prop_assert_eq!(footprint.rank_bytes().0, 14 * own);
        if bare {
            let padded = chunks.len().div_ceil(group as usize) * group as usize;
            prop_assert_eq!(footprint.chunks + footprint.dummies, padded as u64);
            prop_assert_eq!(footprint.sharded_bytes().0, 14 * padded as u64 * footprint.chunk_elements);
        }
    }

    /// Of every element of every chunk that has a tensor in it one rank is the owner, and only one; and where ranks own
    /// parts, what is added is less than 64 bytes for each rank and group, and each part starts at a multiple of 64.
    #[test]
    fn every_element_has_one_owner(
        atoms in atoms(200), size in 600_u64..900, bare in any::<bool>(), ranks in 1_u32..6, times in 1_u32..4
    ) {
        let layout = if bare { ChunkLayout::Patrickstar } else { ChunkLayout::Aligned };
        let sequence = Sequence::of_atoms(atoms).unwrap();
        let lists = Lists::new(Precision::Bf16, &ADAM).unwrap();
        let packing = Packing::new(&sequence, layout, lists).unwrap();
        let groups = Groups::new(layout, ranks, Some(if bare { ranks * times } else { times })).unwrap();
        let laid_out = packing.lay_out(size).unwrap();
        let mut owners: BTreeMap<(usize, u64), Vec<u32>> = BTreeMap::new();
        let (mut parts, mut next) = (0, 0);
        for group in groups.of(&laid_out).unwrap() {
            prop_assert_eq!(group.chunks().start, next, "no chunk is left out");
            next = group.chunks().end;
            parts += group.part_elements();
            let mut extent = 0;
            for rank in 0..ranks {
                for piece in group.owned(rank) {
                    prop_assert!(group.chunks().contains(&piece.chunk));
                    extent += piece.elements.end - piece.elements.start;
                    for element in piece.elements {
                        owners.entry((piece.chunk, element)).or_default().push(rank);
                    }
                }
            }
            if !bare {
                prop_assert_eq!(group.part_elements() * lists.scalar_bytes(List::Parameters) % 64, 0);
                prop_assert!(group.part_elements() * u64::from(ranks) - extent < 32 * u64::from(ranks));
            }
        }
        prop_assert_eq!(next, laid_out.chunks().len());
        prop_assert_eq!(parts, packing.footprint(size, &groups).unwrap().rank_elements);
        prop_assert!(owners.values().all(|of| of.len() == 1), "two own the same");
        for place in laid_out.tensors() {
            for element in place.range() {
                prop_assert!(owners.contains_key(&(place.chunk, element)), "nobody owns {place:?}");
            }
        }
    }

    /// No size at all is better than the best breakpoint, on any number of ranks, also where the largest size is below
    /// some parameter groups; and what is listed are the best of all breakpoints.
    #[test]
    fn no_size_is_better_than_the_best_breakpoint(
        atoms in atoms(12), share in 0_u64..=100, bare in any::<bool>(), ranks in 1_u32..5
    ) {
        let layout = if bare { ChunkLayout::Patrickstar } else { ChunkLayout::Aligned };
        let step = step(layout, Precision::Bf16);
        let sequence = Sequence::of_atoms(atoms.clone()).unwrap();
        let lists = Lists::new(Precision::Bf16, &ADAM).unwrap();
        let packing = Packing::new(&sequence, layout, lists).unwrap();
        let groups = Groups::new(layout, ranks, None).unwrap();
        let up = |value: u64| value.div_ceil(step) * step;
        let extents: Vec<u64> = atoms.iter().map(|atom| atom.iter().map(|&of| up(of)).sum()).collect();
        let most = extents.iter().sum::<u64>() * share / 100;
        let shared = extents.iter().copied().filter(|&extent| bare || extent <= most).max();
        let tried = packing.choose(ChunkSizes::Breakpoints, most, &groups, 3);
        let Some(least) = shared.filter(|&least| least <= most) else {
            let refused = tried.unwrap_err();
            prop_assert_eq!(&refused.violations()[0].field, "max_chunk_elements");
            return Ok(());
        };
        let tried = tried.unwrap();
        let cost = |size: u64| {
            let (_, chunks) = told(&atoms, size, step);
            let group = if bare { ranks as usize } else { 1 };
            let dummies = (chunks.len().div_ceil(group) * group - chunks.len()) as u64;
            let capacity: u64 = chunks.iter().map(|of| of.0).sum();
            (capacity + dummies * size, capacity, chunks.len())
        };
        let optimum = (least..=most).filter(|size| size.is_multiple_of(step)).map(cost).min().unwrap();
        let best = &tried.footprints[tried.best];
        prop_assert_eq!(cost(best.chunk_elements), optimum, "{}", best.chunk_elements);

        let neighbours = (0..extents.len()).flat_map(|first| (first..extents.len()).map(move |last| (first, last)));
        let sums = neighbours.map(|(first, last)| extents[first..=last].iter().sum::<u64>());
        let sums: BTreeSet<u64> = sums.filter(|sum| (least..=most).contains(sum)).collect();
        prop_assert_eq!(tried.tried, sums.len());
        let mut costs: Vec<_> = sums.into_iter().map(cost).collect();
        costs.sort_unstable();
        costs.truncate(3);
        let mut listed: Vec<_> = tried.footprints.iter().map(|of| cost(of.chunk_elements)).collect();
        listed.sort_unstable();
        prop_assert_eq!(listed, costs);
    }
}
