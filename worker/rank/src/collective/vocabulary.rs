//! Embedding and loss where the vocabulary is split over the shards of a stage: Megatron's way, in which
//! no one ever holds a whole vocabulary of anything.

use tch::{Kind, Tensor};

use super::{Group, Reduction, operators};
use crate::error::RankError;
use crate::ffi;

/// The vectors of tokens, from this shard's rows of a table of `vocabulary` rows.
///
/// # Errors
/// Out of memory, or another shard is gone.
pub(crate) fn embed(
    group: &Group,
    table: &Tensor,
    tokens: &Tensor,
    vocabulary: i64,
) -> Result<Tensor, RankError> {
    let range = group.own().range(vocabulary);
    let mut rows = tokens.f_sub_scalar(range.start)?;
    let elsewhere = rows.f_lt(0)?.f_logical_or(&rows.f_ge(range.end - range.start)?)?;
    drop(rows.f_masked_fill_(&elsewhere, 0)?);
    let mut vectors = Tensor::f_embedding(table, &rows, -1, false, false)?;
    // Each token's vector comes from the one shard that has it.
    drop(vectors.f_masked_fill_(&elsewhere.f_unsqueeze(-1)?, 0.0)?);
    operators::reduce(group, vectors)
}

/// Mean cross-entropy, from this shard's columns of the logits: rows × columns, in fp32.
///
/// # Errors
/// Out of memory, or another shard is gone.
pub(crate) fn cross_entropy(
    group: &Group,
    logits: &Tensor,
    targets: &Tensor,
    vocabulary: i64,
) -> Result<Tensor, RankError> {
    let (loss, mut probabilities, columns, elsewhere) = {
        let _no_grad = tch::no_grad_guard();
        let range = group.own().range(vocabulary);
        let largest = logits.f_amax(&[-1_i64][..], true)?;
        group.all_reduce(&largest, Reduction::Max)?;
        let mut scores = logits.f_sub(&largest)?;
        drop(largest);

        let mut columns = targets.f_sub_scalar(range.start)?;
        let elsewhere = columns.f_lt(0)?.f_logical_or(&columns.f_ge(range.end - range.start)?)?;
        drop(columns.f_masked_fill_(&elsewhere, 0)?);
        let (columns, elsewhere) = (columns.f_unsqueeze(1)?, elsewhere.f_unsqueeze(1)?);
        let mut picked = scores.f_gather(1, &columns, false)?;
        drop(picked.f_masked_fill_(&elsewhere, 0.0)?);
        group.all_reduce(&picked, Reduction::Sum)?;

        drop(scores.f_exp_()?);
        let sums = scores.f_sum_dim_intlist(&[-1_i64][..], true, Kind::Float)?;
        group.all_reduce(&sums, Reduction::Sum)?;
        let loss = sums.f_log()?.f_sub(&picked)?.f_mean(Kind::Float)?;
        drop(scores.f_div_(&sums)?);
        (loss, scores, columns, elsewhere)
    };
    // No variables of autograd, but kept as long as those.
    for kept in [&probabilities, &columns, &elsewhere] {
        ffi::offer(kept)?;
    }
    let rows = logits.size().first().copied().unwrap_or(1).max(1);
    operators::with_backward(logits, &loss, move |gradient| {
        // Softmax, minus one at the target, over the number of rows.
        let here = elsewhere.f_logical_not()?.f_to_kind(Kind::Float)?;
        drop(probabilities.f_scatter_add_(1, &columns, &here.f_neg()?)?);
        drop(probabilities.f_mul_(&gradient.f_div_scalar(rows)?)?);
        Ok(probabilities)
    })
}
