//! Equal numbers of layers, and equal sums.

/// As many of `layers` in each of `stages`; the first stages have one more where they do not divide.
pub(super) fn uniform(layers: usize, stages: usize) -> Vec<usize> {
    let (each, more) = (layers / stages.max(1), layers % stages.max(1));
    (0..stages).map(|stage| each + usize::from(stage < more)).collect()
}

/// The cut into `stages` runs of at least one weight each whose largest sum is smallest; of those the one whose
/// first runs are longest.
pub(super) fn uniform_weights(weights: &[u64], stages: usize) -> Vec<usize> {
    let total: u64 = weights.iter().fold(0, |sum, &weight| sum.saturating_add(weight));
    let (mut low, mut high) = (weights.iter().copied().max().unwrap_or(0), total);
    while low < high {
        let middle = low + (high - low) / 2;
        if runs(weights, middle) <= stages { high = middle } else { low = middle + 1 }
    }
    let mut sizes = Vec::with_capacity(stages);
    let mut first = 0;
    for stage in 0..stages {
        let left = stages - 1 - stage;
        let (mut last, mut sum) = (first, 0_u64);
        // Each later stage keeps a layer; the last one takes what is left.
        while last < weights.len() - left && (left == 0 || sum.saturating_add(weights[last]) <= low) {
            sum = sum.saturating_add(weights[last]);
            last += 1;
        }
        let taken = (last - first).max(1);
        sizes.push(taken);
        first += taken;
    }
    sizes
}

/// Runs that sums of at most `most` take.
fn runs(weights: &[u64], most: u64) -> usize {
    let (mut runs, mut sum) = (1, 0_u64);
    for &weight in weights {
        if sum.saturating_add(weight) > most {
            runs += 1;
            sum = 0;
        }
        sum = sum.saturating_add(weight);
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn largest(weights: &[u64], sizes: &[usize]) -> u64 {
        let mut first = 0;
        sizes
            .iter()
            .map(|&size| {
                first += size;
                weights[first - size..first].iter().sum::<u64>()
            })
            .max()
            .unwrap()
    }

    /// Every cut into this many runs.
    fn every_cut(layers: usize, stages: usize) -> Vec<Vec<usize>> {
        if stages == 1 {
            return vec![vec![layers]];
        }
        (1..=layers + 1 - stages)
            .flat_map(|first| {
                every_cut(layers - first, stages - 1)
                    .into_iter()
                    .map(move |rest| [vec![first], rest].concat())
            })
            .collect()
    }

    proptest! {
        /// No other cut has a smaller largest sum, and every stage has a layer.
        #[test]
        fn the_largest_sum_is_smallest(weights in proptest::collection::vec(0_u64..20, 1..8), offset in 0_usize..8) {
            let stages = offset % weights.len() + 1;
            let sizes = uniform_weights(&weights, stages);
            prop_assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (stages, weights.len()));
            prop_assert!(sizes.iter().all(|&size| size > 0));
            let least = every_cut(weights.len(), stages).iter().map(|cut| largest(&weights, cut)).min().unwrap();
            prop_assert_eq!(largest(&weights, &sizes), least);
        }
    }

    #[test]
    fn layers_are_shared_evenly() {
        assert_eq!(uniform(10, 4), [3, 3, 2, 2]);
        assert_eq!(uniform(8, 4), [2, 2, 2, 2]);
    }
}
