//! In which pieces the gradients of a data-parallel stage are summed over its replicas.
//!
//! Small gradients are copied into one buffer, so that one exchange sums many of them; a gradient that
//! fills a buffer is summed where it is. The buffers are what data parallelism costs in memory, so
//! planner and rank must agree on them.

use std::ops::Range;

/// Most bytes of a buffer: the default of PyTorch's `DistributedDataParallel`, 25 MiB.
pub const BUCKET_BYTES: u64 = 25 << 20;

/// Gradients that are summed in one exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Positions of the gradients in the list of all.
    pub gradients: Range<usize>,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Bucket {
    /// Bytes of the buffer that they are copied into: none where there is only one gradient.
    pub fn buffer_bytes(&self) -> u64 {
        if self.gradients.len() > 1 { self.bytes } else { 0 }
    }
}

/// Packs gradients of these sizes, in their order, into buckets of at most `limit` bytes. A larger
/// gradient has a bucket of its own.
pub fn buckets(gradient_bytes: &[u64], limit: u64) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    for (position, &bytes) in gradient_bytes.iter().enumerate() {
        match buckets.last_mut() {
            Some(last) if last.bytes.saturating_add(bytes) <= limit => {
                last.gradients.end = position + 1;
                last.bytes += bytes;
            }
            _ => buckets.push(Bucket { gradients: position..position + 1, bytes }),
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every gradient is in one bucket, in order; no buffer exceeds the limit; and no two
        /// neighbours would have fitted into one.
        #[test]
        fn buckets_cover_all_and_are_full(sizes in proptest::collection::vec(0_u64..50, 0..40), limit in 1_u64..60) {
            let buckets = buckets(&sizes, limit);
            let covered: Vec<usize> = buckets.iter().flat_map(|bucket| bucket.gradients.clone()).collect();
            prop_assert_eq!(covered, (0..sizes.len()).collect::<Vec<usize>>());
            for bucket in &buckets {
                prop_assert_eq!(bucket.bytes, sizes[bucket.gradients.clone()].iter().sum::<u64>());
                prop_assert!(bucket.buffer_bytes() <= limit);
            }
            for pair in buckets.windows(2) {
                prop_assert!(pair[0].bytes + sizes[pair[1].gradients.start] > limit);
            }
        }
    }

    #[test]
    fn a_gradient_of_its_own_needs_no_buffer() {
        let buckets = buckets(&[4, 40, 4, 4], 10);
        let buffers: Vec<u64> = buckets.iter().map(Bucket::buffer_bytes).collect();
        assert_eq!(buffers, [0, 0, 8]);
    }
}
