//! Numbers that depend on a seed alone.

/// The finalizer of `SplitMix64` over a seed and words: the same number each time, whatever else is asked for.
pub fn mixed(seed: u64, words: &[u64]) -> u64 {
    words.iter().fold(seed, |state, word| {
        let mut z = (state ^ word.wrapping_mul(0xff51_afd7_ed55_8ccd)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// Numbers one after another, by a linear congruential generator.
#[derive(Debug)]
pub struct Draws(u64);

impl Draws {
    pub fn new(state: u64) -> Self {
        Self(state)
    }

    /// Those of a seed, far from those of the next one.
    pub fn with_seed(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
