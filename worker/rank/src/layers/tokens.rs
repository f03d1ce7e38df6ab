//! Sequences of tokens that are made of something else, or become something else.

use tch::{TchError, Tensor};

use super::affine::Affine;
use crate::error::RankError;

/// Sizes of an axis that pixel shuffle divides into rows and columns.
const SHUFFLE: i64 = 2;

/// The first token, an affine map of it, tanh.
pub(super) fn pool(map: &Affine, input: &Tensor) -> Result<Tensor, RankError> {
    Ok(map.forward(&input.f_select(1, 0)?)?.f_tanh()?)
}

/// From samples × size of the latent vector to samples × tokens × hidden.
pub(super) fn of_latent(map: &Affine, position: &Tensor, input: &Tensor) -> Result<Tensor, RankError> {
    let hidden = position.size().last().copied().unwrap_or_default();
    // In place: autograd needs no part of the sum.
    let mut sum = map.forward(input)?.f_unflatten(-1, [-1, hidden])?;
    drop(sum.f_add_(position)?);
    Ok(sum)
}

/// From samples × (rows · columns) × hidden to four times the tokens and a quarter of the hidden size:
/// each group of four channels becomes a square of pixels, as `pixel_shuffle` has it.
pub(super) fn shuffle(
    [height, width]: [i64; 2],
    position: &Tensor,
    input: &Tensor,
) -> Result<Tensor, RankError> {
    let size = input.size();
    let &[samples, _, hidden] = size.as_slice() else {
        return Err(TchError::Shape(format!(
            "pixel shuffle needs the shape [samples, tokens, hidden], not {size:?}"
        ))
        .into());
    };
    let quarter = hidden / (SHUFFLE * SHUFFLE);
    let pixels = input
        .f_reshape([samples, height, width, quarter, SHUFFLE, SHUFFLE])?
        .f_permute([0, 1, 4, 2, 5, 3])?;
    let mut sum = pixels.f_reshape([samples, -1, quarter])?;
    drop(pixels);
    drop(sum.f_add_(position)?);
    Ok(sum)
}

/// From samples × (rows · columns) × hidden to samples × channels × rows × columns.
pub(super) fn to_image(map: &Affine, [height, width]: [i64; 2], input: &Tensor) -> Result<Tensor, RankError> {
    let pixels = map.forward(input)?.f_transpose(1, 2)?;
    Ok(pixels.f_unflatten(2, [height, width])?.f_contiguous()?)
}

/// The average over rows and columns of samples × channels × rows × columns, then an affine map.
pub(super) fn classify(map: &Affine, input: &Tensor) -> Result<Tensor, RankError> {
    map.forward(&input.f_mean_dim([2_i64, 3].as_slice(), false, None)?)
}
