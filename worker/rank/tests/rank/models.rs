//! A tiny model of every family.

use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::{LayerKind, TransformerBlock};
use loadmaster_proto::model::zoo::{AmoebaNet, Bert, Llama, TransGan, Zoo};

/// Two post-norm blocks between embedding and classifier, with dropout.
pub(crate) fn small_bert() -> Model {
    Zoo::Bert(Bert {
        blocks: 2,
        hidden_size: 16,
        heads: 2,
        sequence_length: 12,
        positions: 20,
        vocabulary_size: 50,
        classes: 3,
        dropout: 0.1,
    })
    .build()
    .unwrap()
}

/// Two blocks with rotary positions and two query heads per key head.
pub(crate) fn small_llama() -> Model {
    llama(false)
}

/// The same, whose head shares the table of tokens or not.
pub(crate) fn llama(tied_head: bool) -> Model {
    Zoo::Llama(Llama {
        blocks: 2,
        hidden_size: 16,
        heads: 4,
        key_value_heads: 2,
        feed_forward_size: 24,
        sequence_length: 12,
        vocabulary_size: 50,
        rotary_base: 10_000.0,
        tied_head,
    })
    .build()
    .unwrap()
}

/// As [`small_llama`], but with Qwen3's normalised queries and keys and heads larger than the hidden size
/// asks for.
pub(crate) fn small_qwen3() -> Model {
    let llama = small_llama();
    let mut layers = llama.layers().to_vec();
    for layer in &mut layers {
        if let LayerKind::TransformerBlock(block) = layer.kind {
            layer.kind = LayerKind::TransformerBlock(TransformerBlock {
                head_size: Some(6),
                query_key_norm: true,
                ..block
            });
        }
    }
    Model::new("qwen3".to_owned(), llama.input(), layers).unwrap()
}

/// Three normal cells of AmoebaNet-D, its stem, reductions and classifier.
pub(crate) fn small_amoebanet() -> Model {
    Zoo::AmoebaNetD(AmoebaNet { cells: 3, filters: 16, image_size: 64, classes: 10 }).build().unwrap()
}

/// One block per group: images of 4, 8 and 16 pixels.
pub(crate) fn small_transgan() -> Model {
    Zoo::TransGan(TransGan { latent_size: 10, hidden_size: 64, heads: 2, bottom_size: 4, blocks: [1, 1, 1] })
        .build()
        .unwrap()
}

/// One of each.
pub(crate) fn families() -> [Model; 5] {
    [small_bert(), small_llama(), small_qwen3(), small_amoebanet(), small_transgan()]
}
