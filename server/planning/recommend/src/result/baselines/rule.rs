//! The rules: how many layers each of them gives every stage.
//!
//! torchgpipe's `balance_by_time` and `balance_by_size` are "Block partitions of sequences" (Bárány and Grinberg, arXiv:1308.2452),
//! with the start and the normalisation that torchgpipe gives it. Values are brought into 0 to 1. From blocks of equal length,
//! elements move one by one towards a smallest block, from the largest one's side, until the largest block is within 1 of the
//! smallest. The result is not the best there is; that is why it is a baseline.

use loadmaster_proto::choice;
use loadmaster_proto::training::Optimizer;

use loadmaster_search::cost::LayerFacts;

/// A rule that cuts a chain for a number of stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// As many layers in each.
    UniformLayers,
    /// As many parameters.
    UniformParameters,
    /// As long a time, by torchgpipe.
    TorchgpipeTime,
    /// As many bytes, by torchgpipe.
    TorchgpipeSize,
}

choice! {
    Rule {
        UniformLayers = "uniform-layers",
        UniformParameters = "uniform-parameters",
        TorchgpipeTime = "torchgpipe-time",
        TorchgpipeSize = "torchgpipe-size",
    }
}

impl Rule {
    /// Layers of each stage, in order.
    ///
    /// # Errors
    /// What the rule needs and is not known, or more stages than layers.
    pub(super) fn cut(
        self,
        facts: &[LayerFacts],
        stages: usize,
        optimizer: &Optimizer,
    ) -> Result<Vec<usize>, String> {
        if stages == 0 || stages > facts.len() {
            return Err(format!("{} layers cannot be divided into {stages} stages", facts.len()));
        }
        match self {
            Self::UniformLayers => Ok(uniform(facts.len(), stages)),
            Self::UniformParameters => {
                let known: Option<Vec<u64>> = facts.iter().map(|layer| layer.parameter_bytes).collect();
                let weights =
                    known.ok_or_else(|| "the parameter bytes of some layers are not known".to_owned())?;
                Ok(uniform_weights(&weights, stages))
            }
            Self::TorchgpipeTime => {
                let known: Option<Vec<f64>> = facts.iter().map(|layer| layer.seconds).collect();
                Ok(block_partition(&known.ok_or_else(|| "the profile has no times".to_owned())?, stages))
            }
            Self::TorchgpipeSize => {
                let scale = parameter_scale(optimizer);
                let size = |layer: &LayerFacts| {
                    Some(layer.activation_bytes? as f64 + scale * layer.parameter_bytes? as f64)
                };
                let known: Option<Vec<f64>> = facts.iter().map(size).collect();
                let unknown = "the parameter bytes or the activation bytes of some layers are not known";
                let sizes = known.ok_or_else(|| unknown.to_owned())?;
                Ok(block_partition(&sizes, stages))
            }
        }
    }
}

/// torchgpipe's `param_scale`: how many times a parameter's bytes its training takes. Its documentation gives 2
/// to 3 for SGD and 4 to 5 for Adam; the parameter, its gradient and its state are 2 and 3, and 4.
pub(super) fn parameter_scale(optimizer: &Optimizer) -> f64 {
    2.0 + optimizer.state_scalars() as f64
}

/// Degrees of Megatron's heuristic in the order in which it tries them: (tensor, pipeline), by their product,
/// tensor shards as far as a node reaches first. The rest are replicas.
pub(super) fn megatron_degrees(devices: u32, per_node: u32, layers: usize) -> Vec<(u32, u32)> {
    let mut degrees = Vec::new();
    let products = (0..u32::BITS).map(|power| 1_u32 << power).take_while(|&product| product <= devices);
    for product in products.filter(|&product| devices.is_multiple_of(product)) {
        let tensors = (0..=product.ilog2()).rev().map(|power| 1_u32 << power);
        for tensor in tensors.filter(|&tensor| tensor <= per_node && per_node.is_multiple_of(tensor)) {
            let pipeline = product / tensor;
            if pipeline as usize <= layers {
                degrees.push((tensor, pipeline));
            }
        }
    }
    degrees
}

/// Lengths of the blocks. There are at least as many values as blocks.
fn block_partition(values: &[f64], blocks: usize) -> Vec<usize> {
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

/// Returns as many of `layers` for each of `stages`; the first stages have one more where they do not divide.
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
    use loadmaster_oracle::compositions;
    use proptest::prelude::*;

    use super::*;

    fn facts() -> Vec<LayerFacts> {
        let layer = |seconds, parameters, activations| LayerFacts {
            seconds: Some(seconds),
            parameter_bytes: Some(parameters),
            activation_bytes: Some(activations),
        };
        vec![layer(1.0, 10, 8), layer(1.0, 10, 8), layer(2.0, 50, 1), layer(4.0, 100, 1)]
    }

    /// Each rule balances what its name says.
    #[test]
    fn rules_balance_what_they_are_named_after() {
        let cut = |rule: Rule| rule.cut(&facts(), 2, &Optimizer::default()).unwrap();
        assert_eq!(cut(Rule::UniformLayers), [2, 2]);
        assert_eq!(cut(Rule::UniformParameters), [3, 1]);
        assert_eq!(cut(Rule::TorchgpipeTime), [3, 1]);
        assert_eq!(cut(Rule::TorchgpipeSize).iter().sum::<usize>(), 4);
    }

    /// A rule without its numbers makes no plan, and says which it lacks.
    #[test]
    fn a_rule_without_its_numbers_makes_no_plan() {
        let unknown = [LayerFacts::default(); 3];
        for rule in Rule::ALL {
            let cut = rule.cut(&unknown, 2, &Optimizer::default());
            assert_eq!(cut.is_ok(), rule == Rule::UniformLayers, "{rule:?}");
        }
        assert!(Rule::UniformLayers.cut(&unknown, 4, &Optimizer::default()).is_err());
    }

    /// Tensor shards fill a node before a pipeline begins.
    #[test]
    fn megatron_takes_tensor_shards_within_a_node_first() {
        let degrees = megatron_degrees(16, 4, 12);
        assert_eq!(degrees[..6], [(1, 1), (2, 1), (1, 2), (4, 1), (2, 2), (1, 4)]);
        assert!(degrees.iter().all(|&(tensor, pipeline)| tensor <= 4 && pipeline <= 12));
        assert_eq!(megatron_degrees(6, 6, 12), [(1, 1), (2, 1), (1, 2)]);
    }

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

    proptest! {
        /// No other cut has a smaller largest sum, and every stage has a layer.
        #[test]
        fn the_largest_sum_is_smallest(weights in proptest::collection::vec(0_u64..20, 1..8), offset in 0_usize..8) {
            let stages = offset % weights.len() + 1;
            let sizes = uniform_weights(&weights, stages);
            prop_assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (stages, weights.len()));
            prop_assert!(sizes.iter().all(|&size| size > 0));
            let least = compositions(weights.len(), stages).iter().map(|cut| largest(&weights, cut)).min().unwrap();
            prop_assert_eq!(largest(&weights, &sizes), least);
        }
    }

    #[test]
    fn layers_are_shared_evenly() {
        assert_eq!(uniform(10, 4), [3, 3, 2, 2]);
        assert_eq!(uniform(8, 4), [2, 2, 2, 2]);
    }
}
