//! Questions as they are asked, and what is wrong with some of them.

use crate::chunks::question::ChunkQuestion;
use crate::error::Invalid;
use crate::model::Model;
use crate::model::zoo::{Gpt2, Vgg, Zoo};
use crate::wire::v1;
use crate::wire::v1::chunk_spec::Size;

fn gpt2() -> Model {
    Zoo::Gpt2(Gpt2 { blocks: 2, ..Gpt2::default() }).build().unwrap()
}

fn asked(model: &Model, spec: v1::ChunkSpec) -> Result<v1::ComputeChunkLayoutResponse, Invalid> {
    let question = ChunkQuestion::try_from(spec)?;
    question.answer(model).map(|answer| answer.message(&question, model))
}

#[test]
fn a_question_without_a_word_is_about_what_is_trained() {
    let chunks = asked(&gpt2(), v1::ChunkSpec::default()).unwrap();
    let spec = chunks.spec.unwrap();
    assert_eq!((spec.layout(), spec.precision()), (v1::ChunkLayout::Aligned, v1::Precision::Bf16));
    assert_eq!((spec.rank_count, spec.group_chunk_count, spec.max_chunk_elements), (1, 1, 512 << 20));
    assert_eq!(spec.size, Some(Size::SizeCandidates(v1::ChunkSizes::Breakpoints.into())));
    assert_eq!((chunks.bytes_per_parameter, chunks.footprints.iter().filter(|of| of.best).count()), (14, 1));
    assert!(chunks.footprints.is_sorted_by_key(|of| of.chunk_elements) && chunks.footprints.len() <= 20);
    // A request with the returned spec returns the same spec.
    assert_eq!(asked(&gpt2(), spec).unwrap().spec, Some(spec));
}

#[test]
fn a_size_may_be_bytes() {
    let of = |size| {
        asked(&gpt2(), v1::ChunkSpec { size: Some(size), ..v1::ChunkSpec::default() }).unwrap().footprints
    };
    let sizes = of(Size::ChunkBytes(128 << 20));
    assert_eq!(sizes, of(Size::ChunkElements(64 << 20)));
    assert_eq!((sizes[0].parameter_chunk_bytes, sizes[0].fp32_chunk_bytes), (128 << 20, 256 << 20));
}

/// Each names its field and what to do.
#[test]
fn wrong_questions_are_refused() {
    let paper = v1::ChunkSpec { layout: v1::ChunkLayout::Patrickstar.into(), ..v1::ChunkSpec::default() };
    let default = v1::ChunkSpec::default;
    let named = |size, spec: v1::ChunkSpec| v1::ChunkSpec { size: Some(size), ..spec };
    let sizes = |sizes: v1::ChunkSizes| Size::SizeCandidates(sizes.into());
    for (spec, field, remedy) in [
        (named(Size::ChunkElements(1 << 20), paper), "chunk_elements", "the layout aligned"),
        (named(Size::ChunkBytes(1 << 20), paper), "chunk_bytes", "36.8093M"),
        (named(Size::ChunkBytes(1_000_001), default()), "chunk_bytes", "a multiple of 2"),
        (named(Size::ChunkElements(0), default()), "chunk_elements", "Use 1 to"),
        (named(Size::ChunkElements(-1), default()), "chunk_elements", "out of range"),
        (named(Size::ChunkElements(i64::MAX), default()), "chunk_elements", "Use 1 to"),
        (
            v1::ChunkSpec { max_chunk_elements: 5, ..named(Size::ChunkElements(5), default()) },
            "max_chunk_elements",
            "Remove one of the two",
        ),
        (
            v1::ChunkSpec { rank_count: 4, group_chunk_count: 6, ..paper },
            "group_chunk_count",
            "multiple of rank_count (4), but each rank owns whole chunks. Remove this field, or use the layout aligned",
        ),
        (v1::ChunkSpec { rank_count: -1, ..default() }, "rank_count", "out of range"),
        (v1::ChunkSpec { rank_count: 1 << 20, ..default() }, "rank_count", "Use 1 to 65536"),
        (v1::ChunkSpec { max_size_count: 1_001, ..default() }, "max_size_count", "Use 1 to 1000"),
        (v1::ChunkSpec { max_chunk_elements: 1 << 20, ..paper }, "max_chunk_elements", "the layout aligned"),
        (v1::ChunkSpec { max_chunk_elements: i64::MAX, ..default() }, "max_chunk_elements", "Use 1 to"),
        (v1::ChunkSpec { max_chunk_elements: 100, ..default() }, "max_chunk_elements", "Use at least"),
        (
            v1::ChunkSpec { max_chunk_elements: 40 << 20, ..named(sizes(v1::ChunkSizes::GridB), paper) },
            "size_candidates",
            "Use breakpoints",
        ),
        (v1::ChunkSpec { layout: 9, ..default() }, "layout", "not a known value"),
        (v1::ChunkSpec { precision: 9, ..default() }, "precision", "not a known value"),
        (named(Size::SizeCandidates(9), default()), "size_candidates", "not a known value"),
        (
            v1::ChunkSpec { optimizer: Some(v1::Optimizer::default()), ..default() },
            "optimizer.kind",
            "is required",
        ),
    ] {
        let refused = asked(&gpt2(), spec).unwrap_err();
        let violation = &refused.violations()[0];
        assert_eq!(violation.field, field, "{spec:?}: {refused}");
        assert!(violation.description.contains(remedy), "{spec:?}: {refused}");
    }
}

/// Whatever is asked is answered or refused: no number of a request makes arithmetic overflow.
#[test]
fn the_largest_numbers_are_counted() {
    let most = v1::ChunkSpec {
        layout: v1::ChunkLayout::Patrickstar.into(),
        size: Some(Size::ChunkElements(1 << 40)),
        rank_count: 1 << 16,
        ..v1::ChunkSpec::default()
    };
    let vgg = Zoo::Vgg11(Vgg::default()).build().unwrap();
    let found = asked(&vgg, most).unwrap();
    assert_eq!(found.footprints[0].sharded_bytes, 14 << 56);
    let refused = asked(&vgg, v1::ChunkSpec { group_chunk_count: 1 << 16, rank_count: 1, ..most });
    assert_eq!(refused.unwrap().footprints[0].rank_bytes, 14 << 56);
}
