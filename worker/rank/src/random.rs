//! Seeds: what is random depends on what it is for, never on the stage that makes it.
//!
//! So a layer starts with the same parameters and drops the same values whatever the partitioning, and
//! a forward pass that is done again repeats itself.

use std::sync::atomic::{AtomicI64, Ordering};

use loadmaster_proto::training::shard::Shard;

/// What a seed is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The start of a parameter.
    Parameter {
        /// Layer in the model.
        layer: usize,
        /// Position among the layer's parameters.
        parameter: usize,
    },
    /// A sample of a micro-batch.
    Data {
        /// Iteration, from 0.
        iteration: u32,
        /// Micro-batch of the iteration.
        micro_batch: u32,
        /// Sample of the micro-batch.
        sample: u32,
    },
    /// The targets of a sample, where they do not follow from it.
    Targets {
        /// Iteration, from 0.
        iteration: u32,
        /// Micro-batch of the iteration.
        micro_batch: u32,
        /// Sample of the micro-batch.
        sample: u32,
    },
    /// What a layer drops.
    Dropout {
        /// Iteration, from 0.
        iteration: u32,
        /// Micro-batch of the iteration.
        micro_batch: u32,
        /// Layer in the model.
        layer: usize,
        /// Replica of a data-parallel stage: each drops on its own.
        replica: u32,
    },
}

impl Purpose {
    /// The seed for this purpose in a training run with seed `seed`.
    pub fn seed(self, seed: u64) -> i64 {
        let words = match self {
            Self::Parameter { layer, parameter } => [1, layer as u64, parameter as u64, 0],
            Self::Data { iteration, micro_batch, sample } => {
                [2, iteration.into(), micro_batch.into(), sample.into()]
            }
            Self::Targets { iteration, micro_batch, sample } => {
                [3, iteration.into(), micro_batch.into(), sample.into()]
            }
            Self::Dropout { iteration, micro_batch, layer, replica } => {
                [4, iteration.into(), micro_batch.into(), (layer as u64) << 32 | u64::from(replica)]
            }
        };
        let mixed = words.into_iter().fold(mix(seed), |state, word| mix(state ^ mix(word)));
        (mixed >> 1) as i64
    }

    /// Makes libtorch's generators start from this seed.
    pub fn set(self, seed: u64) {
        let seed = self.seed(seed);
        STARTED_FROM.store(seed, Ordering::Relaxed);
        tch::manual_seed(seed);
    }
}

/// What libtorch's generators started from last.
static STARTED_FROM: AtomicI64 = AtomicI64::new(0);

/// Draws what each shard of a tensor-parallel stage draws for itself. What is drawn afterwards is the same
/// on all shards, and unrelated to what was drawn before.
pub fn apart<T>(shard: Shard, draw: impl FnOnce() -> T) -> T {
    let common = STARTED_FROM.load(Ordering::Relaxed) as u64;
    let start = |part: u64| tch::manual_seed((mix(common ^ mix(part)) >> 1) as i64);
    start(u64::from(shard.index) + 1);
    let drawn = draw();
    start(0);
    drawn
}

/// One step of `SplitMix64`: neighbouring inputs give unrelated outputs.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_purposes_have_different_seeds() {
        let mut seeds = std::collections::HashSet::new();
        for a in 0..20 {
            for b in 0..20 {
                assert!(seeds.insert(Purpose::Parameter { layer: a, parameter: b }.seed(7)));
                let (iteration, micro_batch) = (a as u32, b as u32);
                for part in 0..3 {
                    assert!(seeds.insert(Purpose::Data { iteration, micro_batch, sample: part }.seed(7)));
                    assert!(seeds.insert(Purpose::Targets { iteration, micro_batch, sample: part }.seed(7)));
                    let dropout = Purpose::Dropout { iteration, micro_batch, layer: 3, replica: part };
                    assert!(seeds.insert(dropout.seed(7)));
                }
            }
        }
        assert!(seeds.iter().all(|&seed| seed >= 0));
        assert!(!seeds.contains(&Purpose::Parameter { layer: 0, parameter: 0 }.seed(8)));
    }
}
