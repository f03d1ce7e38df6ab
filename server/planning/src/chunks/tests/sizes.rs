//! Which sizes of a grid are tried.

use loadmaster_proto::chunks::lists::Lists;
use loadmaster_proto::chunks::packing::{ChunkLayout, Packing};
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::chunks::sizes::ChunkSizes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::training::Precision;
use loadmaster_proto::training::stage::StageConfig;

use super::draw::{gpt, training};
use crate::chunks::TriedSizes;

/// The sizes of a grid that are tried of a model, largest first.
fn tried(model: &Model, layout: ChunkLayout, grid: ChunkSizes) -> Result<Vec<u64>, Invalid> {
    let whole = StageConfig::single(0, model.layers().len() - 1);
    let sequence = Sequence::of_stage(model, &whole, 0);
    let lists = Lists::new(Precision::Fp32, &training(Precision::Fp32, 1).optimizer).unwrap();
    TriedSizes::Best(grid).of(&Packing::new(&sequence, layout, lists).unwrap())
}

/// Elements of whole chunks of a size, by next-fit.
fn footprint(atoms: &[u64], size: u64) -> u64 {
    let (mut chunks, mut left) = (0, 0);
    for &atom in atoms {
        if atom > left {
            (chunks, left) = (chunks + 1, size);
        }
        left -= atom;
    }
    chunks * size
}

/// Of all sums of neighbours that hold the largest atom none makes smaller chunks, all together, than the best of those that are
/// tried; and these are few.
#[test]
fn the_least_wasteful_sums_are_tried() {
    for blocks in 1..6 {
        let model = gpt(blocks, 8, false);
        let whole = StageConfig::single(0, model.layers().len() - 1);
        // Bare, as PatrickStar has them.
        let atoms: Vec<u64> =
            Sequence::of_stage(&model, &whole, 0).atoms().map(|atom| atom.iter().sum()).collect();
        let largest = atoms.iter().copied().max().unwrap();
        let sums = (0..atoms.len()).flat_map(|first| {
            let atoms = &atoms;
            (first..atoms.len()).map(move |last| atoms[first..=last].iter().sum::<u64>())
        });
        let least = sums.filter(|&sum| sum >= largest).map(|sum| footprint(&atoms, sum)).min();
        let tried = tried(&model, ChunkLayout::Patrickstar, ChunkSizes::Breakpoints).unwrap();
        assert_eq!(tried.iter().map(|&size| footprint(&atoms, size)).min(), least, "{blocks} blocks");
        assert!(tried.len() <= 64 && tried.windows(2).all(|pair| pair[0] > pair[1]), "{tried:?}");
    }
}

/// A grid that ends below an atom which may have no chunk of its own says so, by its name.
#[test]
fn a_grid_without_room_for_an_atom_is_refused() {
    let large =
        Gpt2 { blocks: 1, vocabulary_size: 300_000, hidden_size: 2_048, heads: 16, ..Gpt2::default() };
    let model = Zoo::Gpt2(large).build().unwrap();
    let refused = tried(&model, ChunkLayout::Patrickstar, ChunkSizes::GridA).unwrap_err();
    let [only] = refused.violations() else { panic!("{refused}") };
    assert_eq!(only.field, "grid");
    assert!(
        only.description
            .starts_with("is grid-a, whose largest size is 512M elements, but the largest atom has"),
        "{refused}"
    );
    let aligned = tried(&model, ChunkLayout::Aligned, ChunkSizes::GridB).unwrap();
    assert_eq!((aligned.first(), aligned.last()), (Some(&(312 << 20)), Some(&(88 << 20))));
}
