//! What decides how long an optimizer's step on the host takes.

use serde::{Deserialize, Serialize};

use super::{Optimizer, Precision};
use crate::choice;
use crate::wire::v1;

/// What the optimizer's step does with each parameter in one pass over its lists: which lists there are, and in which number
/// format parameters and gradients are. `AdamW` has the lists of Adam.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// SGD without momentum, in fp32.
    SgdFp32,
    /// The same in bf16.
    SgdBf16,
    /// SGD with momentum, in fp32.
    MomentumFp32,
    /// The same in bf16.
    MomentumBf16,
    /// Adam or `AdamW`, in fp32.
    AdamFp32,
    /// The same in bf16.
    AdamBf16,
}

choice! {
    StepKind = v1::StepKind { SgdFp32, SgdBf16, MomentumFp32, MomentumBf16, AdamFp32, AdamBf16 }
}

impl StepKind {
    /// That of a training.
    pub fn of(optimizer: &Optimizer, precision: Precision) -> Self {
        match (optimizer.state_scalars(), precision) {
            (0, Precision::Fp32) => Self::SgdFp32,
            (0, _) => Self::SgdBf16,
            (1, Precision::Fp32) => Self::MomentumFp32,
            (1, _) => Self::MomentumBf16,
            (_, Precision::Fp32) => Self::AdamFp32,
            _ => Self::AdamBf16,
        }
    }

    /// Number format of parameters and gradients.
    pub fn precision(self) -> Precision {
        match self {
            Self::SgdFp32 | Self::MomentumFp32 | Self::AdamFp32 => Precision::Fp32,
            Self::SgdBf16 | Self::MomentumBf16 | Self::AdamBf16 => Precision::Bf16,
        }
    }

    /// Lists in fp32 that the optimizer keeps besides the weights.
    pub fn state_lists(self) -> u64 {
        match self {
            Self::SgdFp32 | Self::SgdBf16 => 0,
            Self::MomentumFp32 | Self::MomentumBf16 => 1,
            Self::AdamFp32 | Self::AdamBf16 => 2,
        }
    }

    /// Bytes that are read and written for each parameter: its gradient and what layers compute with, the weight and the
    /// optimizer's lists.
    pub fn moved_bytes(self) -> u64 {
        2 * self.precision().scalar_bytes() + 8 * (1 + self.state_lists())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gradient, weight and moments are read; parameter, weight and moments are written.
    #[test]
    fn a_step_moves_each_list_once_each_way() {
        let moved = StepKind::ALL.map(StepKind::moved_bytes);
        assert_eq!(moved, [16, 12, 24, 20, 32, 28]);
    }

    #[test]
    fn the_step_of_a_training_has_its_lists_and_format() {
        let sgd = |momentum| Optimizer::Sgd { learning_rate: 0.1, momentum, weight_decay: 0.0 };
        let (learning_rate, beta1, beta2, epsilon) = (1e-3, 0.9, 0.999, 1e-8);
        let adamw = Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay: 0.01 };
        assert_eq!(StepKind::of(&sgd(0.0), Precision::Bf16Fp32Gradients), StepKind::SgdBf16);
        assert_eq!(StepKind::of(&sgd(0.9), Precision::Fp32), StepKind::MomentumFp32);
        assert_eq!(StepKind::of(&adamw, Precision::Bf16), StepKind::AdamBf16);
        for step in StepKind::ALL {
            let rule = [sgd(0.0), sgd(0.9), adamw][step.state_lists() as usize];
            assert_eq!(StepKind::of(&rule, step.precision()), step);
        }
    }
}
