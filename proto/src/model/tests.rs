//! What a chain of layers must be to be a model.

use super::*;
use crate::model::layer::TokenEmbedding;

const TOKENS: ModelInput = ModelInput::Tokens { sequence_length: 4, vocabulary_size: 9 };

fn layers(kinds: &[LayerKind]) -> Vec<Layer> {
    kinds.iter().enumerate().map(|(index, &kind)| Layer { name: format!("l{index}"), kind }).collect()
}

fn embedding(rows: i64) -> LayerKind {
    LayerKind::TokenEmbedding(TokenEmbedding::gpt2(rows, 4, 8, 0.0))
}

#[test]
fn tokens_enter_an_embedding_and_nothing_else_does() {
    let head = |tied| LayerKind::LanguageModelHead { hidden_size: 8, vocabulary_size: 9, tied };
    let image = ModelInput::Image { channels: 3, height: 4, width: 4 };
    assert!(Model::new("x".to_owned(), TOKENS, layers(&[embedding(9), head(true)])).is_ok());
    for (input, kinds, field) in [
        (TOKENS, &[embedding(8), head(false)][..], "layers[0] (l0)"),
        (TOKENS, &[LayerKind::Relu], "layers[0] (l0)"),
        (TOKENS, &[embedding(9), LayerKind::Flatten, embedding(9)], "layers[2] (l2)"),
        (ModelInput::Vector { size: 4 }, &[embedding(9)], "layers[0] (l0)"),
        (image, &[LayerKind::Flatten, head(false)], "layers[1] (l1)"),
        (TOKENS, &[embedding(10), head(true)], "layers[1] (l1)"),
        (ModelInput::Vector { size: 0 }, &[LayerKind::Relu], "input.size"),
        (TOKENS, &[], "layers"),
    ] {
        let invalid = Model::new("x".to_owned(), input, layers(kinds)).unwrap_err();
        assert_eq!(invalid.violations()[0].field, field, "{invalid}");
    }
}

#[test]
fn any_family_makes_an_id() {
    for (family, slug) in [("amoebanet_d", "amoebanet-d"), ("My Model", "my-model"), ("漢字", "model")] {
        let model = Model::new(family.to_owned(), TOKENS, layers(&[embedding(9)])).unwrap();
        assert_eq!(model.slug(), slug);
        assert!(crate::name::ModelName::from_id(model.id()).is_ok(), "{}", model.id());
    }
}

#[test]
fn one_tensor_leaves_a_model() {
    let cell = crate::model::layer::AmoebaCell {
        channels_before_previous: 4,
        channels_previous: 4,
        channels: 4,
        reduction: false,
        after_reduction: false,
        single_input: true,
        last: false,
    };
    let input = ModelInput::Image { channels: 4, height: 2, width: 2 };
    let model = |last| {
        let cell = crate::model::layer::AmoebaCell { last, ..cell };
        Model::new("x".to_owned(), input, layers(&[LayerKind::AmoebaCell(cell)]))
    };
    assert!(model(true).is_ok());
    assert_eq!(model(false).unwrap_err().violations()[0].field, "layers[0] (l0)");
}
