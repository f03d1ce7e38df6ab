//! The searches as the papers describe them: selectable, and what the exact ones are compared with.
//!
//! | mode | paper | what it is |
//! |---|---|---|
//! | [`enumeration()`] | CAPTURE, III-C, Algorithm 4 | every plan, without stages above the best peak so far |
//! | [`brute_force`] | mCAP-BF | every partitioning over devices that take a stage each |
//! | [`bayesian()`] | mCAP-BO | 75 partitionings that a Gaussian process chooses |
//! | [`pipe_ast`] | AMP, 3.5 | the layer assignment in O(k · L⁴) |
//! | [`annealing()`] | AMP, 6.3, Algorithm 2 | degrees, micro-batch and placement by simulated annealing |
//!
//! All answer the same [`Question`] as the exact searches. Where a paper chooses at random between
//! equal plans, the fixed order of [`memory`](super::memory) decides.

mod amp;
mod annealing;
mod bayesian;
mod domino;
mod enumeration;
mod gaussian;

pub use amp::{Recursion, pipe_ast};
pub use annealing::{Annealed, Annealing, Strategy, annealing};
pub use bayesian::{Bayesian, bayesian};
pub use enumeration::{brute_force, enumeration};

use super::{Choice, PlacedStage, Question, StageCosts};

/// CAPTURE's ways to run a stage on nodes of so many devices: on one device, or data- or tensor-parallel on
/// a power of two of them. The paper counts 2·log2 k − 1 of them; there are 2·log2 k + 1.
pub fn capture_choices(devices_per_node: u32) -> Vec<Choice> {
    let degrees =
        (1..u32::BITS).map(|power| 1 << power).take_while(|&degree: &u32| degree <= devices_per_node);
    let parallel = degrees.flat_map(|degree| {
        [Choice { data: degree, ..Choice::SINGLE }, Choice { tensor: degree, ..Choice::SINGLE }]
    });
    std::iter::once(Choice::SINGLE).chain(parallel).collect()
}

/// Whether a stage keeps to the cuts, and its pinned layers are where they have to be.
fn is_allowed<C: StageCosts>(question: &Question<'_, C>, stage: &PlacedStage) -> bool {
    let walls = question.walls(stage.from, stage.step);
    question.cuts.may_be_stage(stage.first, stage.last)
        && walls.get(stage.first).is_none_or(|&wall| stage.last < wall)
}

/// `SplitMix64` (Steele, Lea and Flood, 2014): the modes of the papers that choose at random answer the same question in
/// the same way, whatever version of whichever library they are built with.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `end`; 0 where that is 0. The bias is below `end` in 2^64.
    pub fn below(&mut self, end: usize) -> usize {
        let wide = u128::from(self.draw()) * end as u128;
        (wide >> 64) as usize
    }

    /// A number from 0 on, below 1.
    pub fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
