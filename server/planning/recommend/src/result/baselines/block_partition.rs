//! The rule behind torchgpipe's `balance_by_time` and `balance_by_size`: "Block partitions of sequences" (Bárány
//! and Grinberg, arXiv:1308.2452), with the start and the normalisation that torchgpipe gives it.
//!
//! Values are brought into 0 to 1. From blocks of equal length, elements move one by one towards a smallest
//! block, from the largest one's side, until the largest block is within 1 of the smallest. The result is not the
//! best there is; that is why it is a baseline.

/// Lengths of the blocks. There are at least as many values as blocks.
pub(super) fn block_partition(values: &[f64], blocks: usize) -> Vec<usize> {
    let count = values.len();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let spread = values.iter().copied().fold(f64::NEG_INFINITY, f64::max) - least;
    let normal: Vec<f64> =
        values.iter().map(|value| if spread > 0.0 { (value - least) / spread } else { 0.0 }).collect();
    // Sums before each value, so that a block is a difference.
    let before: Vec<f64> = std::iter::once(0.0)
        .chain(normal.iter().scan(0.0, |sum, value| {
            *sum += value;
            Some(*sum)
        }))
        .collect();
    let mut ends: Vec<usize> = (1..blocks).map(|block| count / blocks * block).chain([count]).collect();
    let size = |ends: &[usize], block: usize| {
        let start = if block == 0 { 0 } else { ends[block - 1] };
        before[ends[block]] - before[start]
    };
    // The paper proves O(k · n³) moves; rounding must not make it more.
    let mut moves =
        blocks.saturating_mul(count).saturating_mul(count).saturating_mul(count).saturating_add(1);
    loop {
        // (1) Fix a largest block. Of equal ones the last.
        let largest = (0..blocks).max_by(|&a, &b| size(&ends, a).total_cmp(&size(&ends, b))).unwrap_or(0);
        let most = size(&ends, largest);
        loop {
            // (2) Stop where no block is larger than a smallest by more than 1. Of equal smallest ones the first.
            let smallest =
                (0..blocks).min_by(|&a, &b| size(&ends, a).total_cmp(&size(&ends, b))).unwrap_or(0);
            moves = moves.saturating_sub(1);
            if most <= size(&ends, smallest) + 1.0 || moves == 0 {
                return std::iter::once(0)
                    .chain(ends.iter().copied())
                    .zip(&ends)
                    .map(|(a, b)| b - a)
                    .collect();
            }
            // (3) A smallest block gets the nearest element of its neighbour on the largest one's side.
            let giver = if largest < smallest { smallest - 1 } else { smallest + 1 };
            if largest < smallest {
                ends[giver] -= 1;
            } else {
                ends[smallest] += 1;
            }
            // The largest one is another then: go to (1), otherwise to (2).
            if giver == largest {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By hand, from torchgpipe's documentation of the rule: equal values make equal blocks, a heavy one is left
    /// alone as far as moves of single elements reach.
    #[test]
    fn blocks_are_nearly_equal() {
        assert_eq!(block_partition(&[1.0; 6], 3), [2, 2, 2]);
        assert_eq!(block_partition(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2), [4, 2]);
        assert_eq!(block_partition(&[5.0], 1), [1]);
    }

    proptest! {
        /// It ends with all values in non-empty runs, the largest within the spread of the smallest.
        #[test]
        fn the_largest_block_is_within_one_element_of_the_smallest(
            values in proptest::collection::vec(0.0..10.0_f64, 1..24), offset in 0_usize..24,
        ) {
            let blocks = offset % values.len() + 1;
            let lengths = block_partition(&values, blocks);
            prop_assert_eq!((lengths.len(), lengths.iter().sum::<usize>()), (blocks, values.len()));
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let spread = values.iter().copied().fold(0.0, f64::max) - least;
            let mut first = 0;
            let sums: Vec<f64> = lengths.iter().map(|&length| {
                first += length;
                values[first - length..first].iter().map(|value| value - least).sum::<f64>()
            }).collect();
            let (low, high) =
                sums.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &sum| (low.min(sum), high.max(sum)));
            prop_assert!(high <= low + spread + 1e-6, "{sums:?}");
        }
    }
}
