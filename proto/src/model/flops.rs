//! FLOPs of training a language model, as Megatron-LM counts them.
//!
//! `num_floating_point_operations` of `megatron/training/training.py` (commit 001b00c) counts the matrix products of attention, MLP
//! and logits in the forward pass, and three times as many for forward and backward pass. It halves causal attention, and it leaves out
//! recomputation, embeddings, normalisations and the optimizer. Megatron pads the vocabulary; here it has the model's own size.

use super::layer::{LayerKind, Perceptron, TransformerBlock, elements};
use super::{Model, ModelInput};

/// FLOPs of forward and backward pass, by those of the forward pass.
const PASSES: f64 = 3.0;

impl Model {
    /// Returns the tokens of a sample; none of a model whose input is no sequence of tokens.
    pub fn tokens_per_sample(&self) -> Option<u64> {
        match self.input {
            ModelInput::Tokens { sequence_length, .. } => u64::try_from(sequence_length).ok(),
            ModelInput::Image { .. } | ModelInput::Vector { .. } => None,
        }
    }

    /// Returns the FLOPs of training on one sample; none of a model that is no transformer over tokens.
    ///
    /// ```
    /// use loadmaster_proto::model::zoo::{Gpt2, Zoo};
    ///
    /// // 12 blocks of 12·s·h²·(1 + 1 + s/2h + 4), and 6·s·h·V for the logits.
    /// let model = Zoo::Gpt2(Gpt2::default()).build()?;
    /// let (s, h, v) = (1024.0, 768.0, 50_257.0);
    /// let blocks = 12.0 * 12.0 * s * h * h * (6.0 + s / (2.0 * h));
    /// assert_eq!(model.training_flops_per_sample(), Some(blocks + 6.0 * s * h * v));
    /// # Ok::<(), loadmaster_proto::error::Invalid>(())
    /// ```
    pub fn training_flops_per_sample(&self) -> Option<f64> {
        self.tokens_per_sample()?;
        let values = |edge: usize| self.edge(edge).first().map(|shape| elements(shape) as f64);
        let layers = self.layers.iter().enumerate();
        let forward: Option<f64> = layers.map(|(index, layer)| flops(&layer.kind, values(index)?)).sum();
        forward.map(|flops| PASSES * flops).filter(|&flops| flops > 0.0)
    }
}

/// FLOPs of a layer's forward pass for an input of so many scalars; none of layers that Megatron does not count.
fn flops(layer: &LayerKind, values: f64) -> Option<f64> {
    Some(match *layer {
        LayerKind::TransformerBlock(block) => block_flops(&block, values / block.hidden_size as f64),
        LayerKind::LanguageModelHead { vocabulary_size, .. } => 2.0 * values * vocabulary_size as f64,
        LayerKind::Linear { out_features, .. } => 2.0 * values * out_features as f64,
        // It maps the first token alone.
        LayerKind::Pooler { hidden_size } => 2.0 * (hidden_size as f64).powi(2),
        LayerKind::TokenEmbedding(_)
        | LayerKind::LayerNorm { .. }
        | LayerKind::RmsNorm { .. }
        | LayerKind::Dropout { .. }
        | LayerKind::Flatten
        | LayerKind::Relu => 0.0,
        _ => return None,
    })
}

fn block_flops(block: &TransformerBlock, tokens: f64) -> f64 {
    let (hidden, queries) = (block.hidden_size as f64, block.query_size() as f64);
    let projections = hidden * 2.0 * (queries + block.key_value_size() as f64);
    let maps = match block.perceptron {
        Perceptron::TwoLayer => 2.0,
        Perceptron::Gated => 3.0,
    };
    let mlp = maps * hidden * block.feed_forward_size as f64;
    // Scores and weighted values: two products of s × s × queries.
    let attention = 4.0 * tokens * tokens * queries * if block.bidirectional { 1.0 } else { 0.5 };
    2.0 * tokens * (projections + mlp) + attention
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::zoo::{Bert, Gpt2, Llama, Vgg, Zoo};

    fn llama(change: impl FnOnce(&mut Llama)) -> Model {
        let mut llama = Llama::default();
        change(&mut llama);
        Zoo::Llama(llama).build().unwrap()
    }

    /// Llama-3.1-8B at 8,192 tokens by hand, from its published sizes: 4.216e14 FLOPs a sample, 51.5 GFLOPs a token. Without
    /// attention these are 6 per parameter of its 7.50e9 that are multiplied: the embedding table's 0.525e9 are not.
    #[test]
    fn llama_by_hand() {
        let model = llama(|of| {
            of.key_value_heads = 8;
            of.feed_forward_size = 14_336;
            of.sequence_length = 8_192;
            of.vocabulary_size = 128_256;
            of.rotary_base = 500_000.0;
        });
        let flops = model.training_flops_per_sample().unwrap();
        // Per block: queries and output 2 × 4096², keys and values 2 × 4096 × 1024, MLP 3 × 4096 × 14336.
        let weights = 32_u64 * (2 * 16_777_216 + 2 * 4_194_304 + 3 * 58_720_256) + 525_336_576;
        assert_eq!(weights, 7_504_658_432);
        let attention = 32_u64 * 6 * 8_192 * 8_192 * 4_096;
        assert_eq!(flops, (6 * 8_192 * weights + attention) as f64);
        assert!((flops / 4.2164e14 - 1.0).abs() < 1e-4, "{flops:e}");
    }

    /// BERT sees all tokens at once: its attention is not halved. Images have no tokens.
    #[test]
    fn other_models() {
        let bert = Zoo::Bert(Bert::default()).build().unwrap();
        assert!(bert.training_flops_per_sample().is_some_and(|flops| flops > 0.0));
        let vgg = Zoo::Vgg11(Vgg::default()).build().unwrap();
        assert_eq!((vgg.tokens_per_sample(), vgg.training_flops_per_sample()), (None, None));
    }

    proptest! {
        /// The formula of Megatron's function, written as it was before it had parts for each layer, but for the halved attention.
        #[test]
        fn equals_megatrons_closed_form(
            blocks in 1_i64..5, groups in 0_u32..4, head_size in prop::sample::select(vec![8_i64, 16, 64]),
            feed_forward in 1_i64..40, sequence in 1_i64..300, vocabulary in 10_i64..5_000,
        ) {
            let (heads, key_value_heads) = (8_i64, 8 >> groups);
            let (hidden, feed_forward) = (heads * head_size, 8 * feed_forward);
            let model = llama(|of| {
                (of.blocks, of.hidden_size, of.heads) = (blocks, hidden, heads);
                (of.key_value_heads, of.feed_forward_size) = (key_value_heads, feed_forward);
                (of.sequence_length, of.vocabulary_size) = (sequence, vocabulary);
            });
            let [l, h, s, v, f] = [blocks, hidden, sequence, vocabulary, feed_forward].map(|of| of as f64);
            let groups = key_value_heads as f64 / heads as f64;
            let expected = 12.0 * s * l * h * h
                * (1.0 + groups + s / (2.0 * h) + (f / h) * 1.5 + v / (2.0 * l * h));
            let flops = model.training_flops_per_sample().unwrap();
            prop_assert!((flops / expected - 1.0).abs() < 1e-12, "{flops:e} {expected:e}");
        }

        /// A longer sequence takes more FLOPs a token, and twice the blocks take twice as many besides the head.
        #[test]
        fn grows_with_the_sequence(sequence in 1_i64..2_000) {
            let of = |blocks: i64, sequence_length: i64| {
                let model = Zoo::Gpt2(Gpt2 { blocks, sequence_length: sequence_length.min(1024), ..Gpt2::default() });
                model.build().unwrap().training_flops_per_sample().unwrap()
            };
            let sequence = sequence.min(1_023);
            prop_assert!(of(2, sequence + 1) / (sequence + 1) as f64 > of(2, sequence) / sequence as f64);
            let (one, two, three) = (of(1, sequence), of(2, sequence), of(3, sequence));
            prop_assert!(((three - two) / (two - one) - 1.0).abs() < 1e-9);
        }
    }
}
