//! The zoo's models are the published ones.

use super::*;
use crate::model::Loss;
use crate::model::layer::{Buffer, Parameter};

#[test]
fn vgg11_is_torchgpipes_sequence() {
    let model = Zoo::Vgg11(Vgg::default()).build().unwrap();
    assert_eq!(model.layers().len(), 30);
    assert_eq!(model.parameter_count(), 132_863_336);
    let counts: Vec<u64> =
        model.layers().iter().map(|layer| layer.kind.parameter_count()).filter(|&count| count > 0).collect();
    assert_eq!(
        counts,
        [
            1_792,
            73_856,
            295_168,
            590_080,
            1_180_160,
            2_359_808,
            2_359_808,
            2_359_808,
            102_764_544,
            16_781_312,
            4_097_000
        ]
    );
    assert_eq!(model.edge(30), [[1000]]);
}

#[test]
fn gpt2_small_has_its_published_parameters_tied_and_untied() {
    let tied = Zoo::Gpt2(Gpt2::default()).build().unwrap();
    assert_eq!(tied.layers().len(), 15);
    assert_eq!(tied.parameter_count(), 124_439_808);
    let untied = Zoo::Gpt2(Gpt2 { untied_head: true, ..Gpt2::default() }).build().unwrap();
    assert_eq!(untied.parameter_count(), 124_439_808 + 50_257 * 768);
}

#[test]
fn a_tied_weight_is_held_once_by_a_stage_with_both_ends_and_twice_by_two_stages() {
    let model = Zoo::Gpt2(Gpt2::default()).build().unwrap();
    let scalars =
        |first, last| -> u64 { model.stage_parameters(first, last).iter().map(Parameter::elements).sum() };
    assert_eq!(scalars(0, 14), 124_439_808);
    assert_eq!(scalars(0, 7) + scalars(8, 14), 124_439_808 + 50_257 * 768);
}

#[test]
fn hyper_parameters_out_of_range_are_named() {
    let error = Zoo::Gpt2(Gpt2 { heads: 5, ..Gpt2::default() }).build().unwrap_err();
    assert_eq!(error.violations()[0].field, "heads");
    let error = Zoo::Gpt2(Gpt2 { blocks: 0, ..Gpt2::default() }).build().unwrap_err();
    assert_eq!(error.violations()[0].field, "blocks");
    let error = Zoo::Vgg11(Vgg { image_size: 8, ..Vgg::default() }).build().unwrap_err();
    assert_eq!(error.violations()[0].field, "image_size");
}

#[test]
fn the_id_follows_the_content() {
    let small = Zoo::Vgg11(Vgg { image_size: 32, ..Vgg::default() });
    assert_eq!(small.build().unwrap().id(), small.build().unwrap().id());
    assert_ne!(small.build().unwrap().id(), Zoo::Vgg11(Vgg::default()).build().unwrap().id());
}

/// BERT base and its pooler, and a classifier of two classes; and the sizes in which PatrickStar counts.
#[test]
fn bert_has_its_published_parameters() {
    let count = |bert: Bert| Zoo::Bert(bert).build().unwrap().parameter_count();
    assert_eq!(count(Bert::default()), 109_482_240 + 2 * 768 + 2);
    for (hidden_size, blocks, parameters) in
        [(2048, 20, 1_075_980_290), (3072, 53, 6_110_533_634), (9216, 66, 67_651_881_986)]
    {
        let (heads, positions) = (16, 1024);
        let bert = Bert { hidden_size, blocks, heads, positions, ..Bert::default() };
        assert_eq!(count(bert), parameters, "{hidden_size} × {blocks}");
    }
}

#[test]
fn llama_has_its_published_parameters() {
    let model = Zoo::Llama(Llama::default()).build().unwrap();
    assert_eq!(model.parameter_count(), 6_738_415_616);
    assert_eq!(Llama::feed_forward_size_for(4096), 11_008);
    let tied = Zoo::Llama(Llama { tied_head: true, ..Llama::default() }).build().unwrap();
    assert_eq!(tied.parameter_count(), 6_738_415_616 - 32_000 * 4096);
    // Two tables of half a head per token.
    let buffers: u64 = model.stage_buffers(0, 34).iter().map(Buffer::elements).sum();
    assert_eq!(buffers, 32 * 2 * 4096 * 64);
}

/// The sum of 12 c² + 10 c per block (no biases of queries, keys and values), the latent map, positions and
/// the map to pixels.
#[test]
fn transgan_grows_its_image_group_by_group() {
    let model = Zoo::TransGan(TransGan::default()).build().unwrap();
    assert_eq!(model.parameter_count(), 16_908_288 + 62_965_760 + 3_155_968 + 99_584 + 131_072 + 195);
    assert_eq!(model.edge(1), [[64, 1024]]);
    assert_eq!(model.edge(7), [[256, 256]]);
    assert_eq!(model.edge(12), [[1024, 64]]);
    assert_eq!(model.edge(15), [[3, 32, 32]]);
    assert_eq!(model.loss(), Loss::MeanSquare);
    let error = Zoo::TransGan(TransGan { hidden_size: 1000, ..TransGan::default() }).build().unwrap_err();
    assert_eq!(error.violations()[0].field, "hidden_size");
}
