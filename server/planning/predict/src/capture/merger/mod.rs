//! CAPTURE's layer merger (III-A3): fewer, larger layers for models that are too long to search.
//!
//! Until the wanted number of layers is left, the adjacent pair with the smallest isolated memory of the
//! two together is merged,
//!
//! ```text
//! M_i(l, l+1) = M_i(l) + M_a(l+1)        M_a(l, l+1) = M_a(l) + M_a(l+1)
//! ```
//!
//! Merged layers are never cut once more: a search keeps them together
//! (`loadmaster_search::Cuts::keep_together`). By these sums the additive rule gives a
//! stage of merged layers the bytes that it gives the same stage of single layers, so merging loses choices
//! and never accuracy. Of equal pairs the first is merged: the same layers are always merged in the same way.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::stage::StageConfig;

use crate::{PredictionError, Predictor, StageSetting};

/// The two metrics of a layer, bytes. The added memory of the first layer counts as 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergedLayer {
    /// `M_i`.
    pub isolated: i128,
    /// `M_a`.
    pub added: i128,
}

impl MergedLayer {
    /// Two neighbours as one layer.
    fn with(self, next: Self) -> Self {
        Self { isolated: self.isolated + next.added, added: self.added + next.added }
    }
}

/// Merges until `left` groups are left, at least one, and returns them in order.
///
/// Takes O(L · log L) comparisons for L layers.
pub fn merge(layers: &[MergedLayer], left: usize) -> Vec<RangeInclusive<usize>> {
    let count = layers.len();
    let mut merged: Vec<MergedLayer> = layers.to_vec();
    // A group is named by its first layer; of the others neither list entry is read.
    let mut next: Vec<usize> = (1..=count).collect();
    let mut previous: Vec<Option<usize>> = (0..count).map(|layer| layer.checked_sub(1)).collect();
    let together =
        |merged: &[MergedLayer], first: usize, second: usize| merged[first].isolated + merged[second].added;
    let mut pairs: BTreeSet<(i128, usize)> =
        (1..count).map(|second| (together(&merged, second - 1, second), second - 1)).collect();

    for _ in left.max(1)..count {
        let Some((_, first)) = pairs.pop_first() else { break };
        let second = next[first];
        let after = next[second];
        if after < count {
            pairs.remove(&(together(&merged, second, after), second));
        }
        if let Some(before) = previous[first] {
            pairs.remove(&(together(&merged, before, first), before));
        }
        merged[first] = merged[first].with(merged[second]);
        next[first] = after;
        if after < count {
            previous[after] = Some(first);
            pairs.insert((together(&merged, first, after), first));
        }
        if let Some(before) = previous[first] {
            pairs.insert((together(&merged, before, first), before));
        }
    }

    let mut groups = Vec::new();
    let mut first = 0;
    while first < count {
        groups.push(first..=next[first] - 1);
        first = next[first];
    }
    groups
}

/// The two metrics of every layer as a predictor sees them, on one device at the head of a pipeline of
/// `stage_count` stages. For CAPTURE's predictor these are its own metrics at the target; for any other
/// one, those of a neighbour set of one layer.
///
/// # Errors
/// A layer or a pair of layers cannot be predicted.
pub fn metrics<P: Predictor + ?Sized>(
    predictor: &P,
    training: &TrainingSpec,
    stage_count: u32,
) -> Result<Vec<MergedLayer>, PredictionError> {
    let peak = |first: usize, last: usize| -> Result<i128, PredictionError> {
        let stage = StageConfig::single(first, last);
        let setting = StageSetting { stage, stage_index: 0, stage_count, training: *training };
        Ok(i128::from(predictor.stage(&setting)?.bytes.0))
    };
    (0..predictor.layers())
        .map(|layer| {
            let isolated = peak(layer, layer)?;
            let added = match layer.checked_sub(1) {
                Some(before) => peak(before, layer)? - peak(before, before)?,
                None => 0,
            };
            Ok(MergedLayer { isolated, added })
        })
        .collect()
}

#[cfg(test)]
mod tests;
