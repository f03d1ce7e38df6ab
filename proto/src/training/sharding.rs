//! State sharding: which states of a stage its replicas divide among each other instead of holding all of them (ZeRO).
//!
//! Every parameter, as one device computes with it, is divided separately: replica r of d has its r-th part of
//! `ceil(scalars / d)` scalars, and the last parts are shorter or empty. The first replica has the largest part.
//!
//! Collectives need parts of equal length. Parameters of up to [`BUCKET_BYTES`](super::gradient_buckets::BUCKET_BYTES) in
//! all are copied into one buffer, each part padded. A parameter that is alone in its bucket, and whose length is a
//! multiple of d, is exchanged in place.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::training::gradient_buckets::Bucket;
use crate::training::shard::Shard;
use crate::wire::v1;

/// States that the replicas of a stage divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateSharding {
    /// Nothing: each replica holds all states, and gradients are all-reduced.
    #[default]
    None,
    /// Optimizer states and fp32 master weights (ZeRO-1, Megatron's distributed optimizer). Gradients are reduce-scattered. Each
    /// replica updates its parts of the parameters, which are then all-gathered.
    Optimizer,
}

choice! { StateSharding = v1::StateSharding { None, Optimizer } }

impl StateSharding {
    /// Returns whether nothing is divided.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// The stage of ZeRO that it is.
    pub fn zero_stage(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Optimizer => 1,
        }
    }

    /// Replicas among which optimizer states are divided, of so many.
    pub fn optimizer_parts(self, replicas: u32) -> u32 {
        match self {
            Self::None => 1,
            Self::Optimizer => replicas.max(1),
        }
    }
}

/// Scalars of each part of a tensor of so many scalars, padding included.
///
/// ```
/// use loadmaster_proto::training::sharding::part_length;
///
/// assert_eq!([part_length(8, 2), part_length(9, 2), part_length(1, 4)], [4, 5, 1]);
/// ```
pub fn part_length(scalars: u64, parts: u32) -> u64 {
    scalars.div_ceil(u64::from(parts.max(1)))
}

/// A part of a tensor of so many scalars, as a range of them.
pub fn part(scalars: u64, of: Shard) -> Range<u64> {
    let length = part_length(scalars, of.degree);
    let at = |index: u64| index.saturating_mul(length).min(scalars);
    at(of.index.into())..at(u64::from(of.index) + 1)
}

/// Scalars of all these tensors that are in one part of each.
pub fn scalars_of_part(tensors: impl IntoIterator<Item = u64>, of: Shard) -> u64 {
    let own = |scalars: u64| {
        let part = part(scalars, of);
        part.end - part.start
    };
    tensors.into_iter().map(own).sum()
}

/// Scalars of the buffer in which so many replicas exchange the tensors of a bucket: none where a tensor is exchanged in
/// place.
pub fn buffer_scalars(scalars: &[u64], bucket: &Bucket, parts: u32) -> u64 {
    match scalars.get(bucket.gradients.clone()).unwrap_or_default() {
        [alone] if alone.is_multiple_of(parts.max(1).into()) => 0,
        several => {
            let padded = several.iter().fold(0, |sum: u64, &of| sum.saturating_add(part_length(of, parts)));
            padded.saturating_mul(parts.max(1).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::training::gradient_buckets::buckets;

    proptest! {
        /// Parts are in order, cover the tensor once, and the first one is the longest.
        #[test]
        fn parts_cover_a_tensor_once(scalars in 0_u64..1_000, parts in 1_u32..20) {
            let one = |index| part(scalars, Shard { index, degree: parts });
            let all: Vec<u64> = (0..parts).flat_map(one).collect();
            prop_assert_eq!(all, (0..scalars).collect::<Vec<_>>());
            let longest = (0..parts).map(|index| one(index).count() as u64).max();
            prop_assert_eq!(longest, Some(one(0).count() as u64));
            prop_assert!(longest <= Some(part_length(scalars, parts)));
        }

        /// A buffer has room for all parts, and padding takes less than one scalar of each tensor and replica.
        #[test]
        fn buffers_are_padded_by_less_than_a_scalar_of_each_part(
            sizes in proptest::collection::vec(1_u64..40, 1..12), parts in 1_u32..6, limit in 1_u64..80,
        ) {
            for bucket in buckets(&sizes, limit) {
                let own: u64 = sizes[bucket.gradients.clone()].iter().sum();
                let buffer = buffer_scalars(&sizes, &bucket, parts);
                let is_in_place = bucket.gradients.len() == 1 && own.is_multiple_of(parts.into());
                prop_assert_eq!(buffer == 0, is_in_place);
                let padding = u64::from(parts) * bucket.gradients.len() as u64;
                prop_assert!(is_in_place || (own..own + padding).contains(&buffer));
            }
        }
    }
}
