//! What leaves a layer when tensors of given shapes enter it.

use super::{LayerKind, MAX_ELEMENTS, MAX_EXTENT, Shape, elements};
use crate::error::Invalid;

impl LayerKind {
    /// The shapes of the tensors that leave the layer when tensors of shapes `inputs` enter it: one,
    /// unless the layer is a cell of a network whose cells also read their predecessor's input.
    ///
    /// # Errors
    /// When the layer cannot take such inputs, or a hyper-parameter is out of range.
    pub fn output_shapes(&self, inputs: &[Shape]) -> Result<Vec<Shape>, Invalid> {
        self.check()?;
        let takes = |wanted: String| match inputs {
            [input] => invalid!("", "needs {wanted}, but its input has the shape {input:?}"),
            _ => invalid!("", "needs {wanted}, but its inputs have the shapes {inputs:?}"),
        };
        let outputs = match (*self, inputs) {
            (Self::AmoebaCell(cell), _) => cell.output_shapes(inputs),
            (_, [input]) => self.output_shape(input).map(|shape| vec![shape]),
            _ => return Err(invalid!("", "needs one tensor, but {} enter it", inputs.len())),
        }
        .map_err(takes)?;
        for shape in &outputs {
            if let Some(extent) = shape.iter().find(|&&extent| !(1..=MAX_EXTENT).contains(&extent)) {
                return Err(invalid!(
                    "",
                    "has the output shape {shape:?} for the input shapes {inputs:?}. The dimension {extent} is out of \
                     range. Use 1 to {MAX_EXTENT}"
                ));
            }
            if elements(shape) > MAX_ELEMENTS {
                return Err(invalid!(
                    "",
                    "has the output shape {shape:?}. Use at most {MAX_ELEMENTS} values per sample"
                ));
            }
        }
        Ok(outputs)
    }

    /// Of a layer that takes one tensor; or what it takes instead of this one.
    fn output_shape(&self, input: &[i64]) -> Result<Shape, String> {
        match (*self, input) {
            (
                Self::Conv2d { in_channels, out_channels, kernel, stride, padding }
                | Self::ReluConvBatchNorm { in_channels, out_channels, kernel, stride, padding },
                &[c, h, w],
            ) => {
                if c != in_channels {
                    return Err(format!("{in_channels} channels"));
                }
                Ok(vec![out_channels, pooled(h, kernel, stride, padding), pooled(w, kernel, stride, padding)])
            }
            (Self::MaxPool2d { kernel, stride }, &[c, h, w]) => {
                Ok(vec![c, pooled(h, kernel, stride, 0), pooled(w, kernel, stride, 0)])
            }
            (Self::AdaptiveAvgPool2d { output }, &[c, _, _]) => Ok(vec![c, output, output]),
            (Self::ImageClassifier { channels, classes }, &[c, _, _]) if c == channels => Ok(vec![classes]),
            (Self::ImageClassifier { channels, .. }, &[_, _, _]) => Err(format!("{channels} channels")),
            (
                Self::Conv2d { .. }
                | Self::ReluConvBatchNorm { .. }
                | Self::MaxPool2d { .. }
                | Self::AdaptiveAvgPool2d { .. }
                | Self::ImageClassifier { .. },
                _,
            ) => Err("channels, height and width".to_owned()),
            (Self::Relu | Self::Dropout { .. }, _) => Ok(input.to_vec()),
            (Self::Flatten, _) => Ok(vec![i64::try_from(elements(input)).unwrap_or(i64::MAX)]),
            (Self::Linear { in_features, out_features }, &[.., last]) if last == in_features => {
                Ok(replace_last(input, out_features))
            }
            (Self::Linear { in_features, .. }, _) => Err(format!("{in_features} features")),
            (Self::TokenEmbedding(embedding), _) => embedding.output_shape(input),
            (Self::TransformerBlock(block), _) => block.output_shape(input),
            (Self::LayerNorm { hidden_size, .. } | Self::RmsNorm { hidden_size, .. }, &[.., last])
                if last == hidden_size =>
            {
                Ok(input.to_vec())
            }
            (Self::LanguageModelHead { hidden_size, vocabulary_size, .. }, &[.., last])
                if last == hidden_size =>
            {
                Ok(replace_last(input, vocabulary_size))
            }
            (
                Self::LayerNorm { hidden_size, .. }
                | Self::RmsNorm { hidden_size, .. }
                | Self::LanguageModelHead { hidden_size, .. },
                _,
            ) => Err(format!("a hidden size of {hidden_size}")),
            (Self::Pooler { hidden_size }, &[_, last]) if last == hidden_size => Ok(vec![hidden_size]),
            (Self::Pooler { hidden_size }, _) => Err(format!("tokens with a hidden size of {hidden_size}")),
            (Self::LatentTokens { latent_size, tokens, hidden_size }, &[size]) if size == latent_size => {
                Ok(vec![tokens, hidden_size])
            }
            (Self::LatentTokens { latent_size, .. }, _) => Err(format!("a vector of {latent_size}")),
            (Self::PixelShuffle { hidden_size, height, width }, &[tokens, last])
                if last == hidden_size && tokens == height * width =>
            {
                Ok(vec![tokens.saturating_mul(4), hidden_size / 4])
            }
            (Self::TokensToImage { hidden_size, height, width, channels }, &[tokens, last])
                if last == hidden_size && tokens == height * width =>
            {
                Ok(vec![channels, height, width])
            }
            (
                Self::PixelShuffle { hidden_size, height, width }
                | Self::TokensToImage { hidden_size, height, width, .. },
                _,
            ) => Err(format!("{height} × {width} tokens with a hidden size of {hidden_size}")),
            // `output_shapes` asks it itself: a cell may take two tensors.
            (Self::AmoebaCell(cell), _) => cell
                .output_shapes(&[input.to_vec()])
                .map(|shapes| shapes.into_iter().next().unwrap_or_default()),
        }
    }
}

/// The extent after a window slid over it.
fn pooled(extent: i64, kernel: i64, stride: i64, padding: i64) -> i64 {
    (extent + 2 * padding - kernel).div_euclid(stride) + 1
}

fn replace_last(shape: &[i64], extent: i64) -> Shape {
    let mut shape = shape.to_vec();
    if let Some(last) = shape.last_mut() {
        *last = extent;
    }
    shape
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::layer::{AmoebaCell, TokenEmbedding, TransformerBlock};

    /// Any number a user could write, small ones more often.
    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![1_i64..40, -2_i64..3, Just(i64::MAX), Just(i64::MIN), Just(1 << 31), any::<i64>()]
    }

    fn kind() -> impl Strategy<Value = LayerKind> {
        (0_usize..12, [number(), number(), number(), number(), number()], any::<[bool; 4]>()).prop_map(
            |(kind, [a, b, c, d, e], [p, q, r, s])| match kind {
                0 => LayerKind::Conv2d { in_channels: a, out_channels: b, kernel: c, stride: d, padding: e },
                1 => LayerKind::MaxPool2d { kernel: a, stride: b },
                2 => LayerKind::Linear { in_features: a, out_features: b },
                3 => LayerKind::TokenEmbedding(TokenEmbedding::gpt2(a, b, c, 0.0)),
                4 => LayerKind::TransformerBlock(TransformerBlock {
                    key_value_heads: p.then_some(d),
                    head_size: q.then_some(e),
                    rotary_base: r.then_some(1e4),
                    query_key_norm: s,
                    ..TransformerBlock::gpt2(a, b, c, 0.0)
                }),
                5 => LayerKind::AmoebaCell(AmoebaCell {
                    channels_before_previous: a,
                    channels_previous: b,
                    channels: c,
                    reduction: p,
                    after_reduction: q,
                    single_input: r,
                    last: s,
                }),
                6 => LayerKind::LatentTokens { latent_size: a, tokens: b, hidden_size: c },
                7 => LayerKind::PixelShuffle { hidden_size: a, height: b, width: c },
                8 => LayerKind::TokensToImage { hidden_size: a, height: b, width: c, channels: d },
                9 => LayerKind::AdaptiveAvgPool2d { output: a },
                10 => LayerKind::ImageClassifier { channels: a, classes: b },
                _ => LayerKind::Flatten,
            },
        )
    }

    proptest! {
        /// A window has as many positions as can be counted.
        #[test]
        fn pooling_counts_the_positions_of_its_window(
            extent in 1_i64..50, kernel in 1_i64..12, stride in 1_i64..6, padding in 0_i64..6,
        ) {
            let counted = (0..).map(|at| at * stride).take_while(|at| at + kernel <= extent + 2 * padding);
            let conv = LayerKind::Conv2d { in_channels: 3, out_channels: 5, kernel, stride, padding };
            let outputs = conv.output_shapes(&[vec![3, extent, extent + stride]]);
            match i64::try_from(counted.count()).unwrap() {
                0 => prop_assert!(outputs.is_err()),
                count => prop_assert_eq!(outputs.unwrap(), [[5, count, count + 1]]),
            }
        }

        /// Whatever a user writes is a valid layer or an error, never a panic; and what a valid layer yields
        /// and holds has sizes that can be.
        #[test]
        fn any_numbers_are_checked(kind in kind(), shapes in prop::collection::vec(
            prop::collection::vec(prop_oneof![1_i64..40, 1_i64..=MAX_EXTENT], 1..4), 1..3,
        )) {
            if let Ok(outputs) = kind.output_shapes(&shapes) {
                for shape in &outputs {
                    prop_assert!(elements(shape) <= MAX_ELEMENTS && elements(shape) > 0);
                }
                let parameters = kind.parameters();
                prop_assert!(parameters.iter().all(|parameter| parameter.elements() <= MAX_ELEMENTS));
                kind.buffers(&shapes);
            }
        }

        /// What leaves a cell is what the next one of the same kind takes.
        #[test]
        fn cells_fit_each_other(quarter in 1_i64..20, half in 1_i64..20, previous in 1_i64..50, reduction: bool) {
            let cell = AmoebaCell {
                channels_before_previous: previous,
                channels_previous: previous,
                channels: 4 * quarter,
                reduction,
                after_reduction: false,
                single_input: true,
                last: false,
            };
            let outputs = LayerKind::AmoebaCell(cell).output_shapes(&[vec![previous, 2 * half, 2 * half]]);
            let next = AmoebaCell {
                channels_before_previous: previous,
                channels_previous: cell.output_channels(),
                channels: 4 * quarter,
                reduction: false,
                after_reduction: reduction,
                single_input: false,
                last: true,
            };
            let last = LayerKind::AmoebaCell(next).output_shapes(&outputs.unwrap()).unwrap();
            let extent = if reduction { half } else { 2 * half };
            prop_assert_eq!(last, [[16 * quarter, extent, extent]]);
        }
    }
}
