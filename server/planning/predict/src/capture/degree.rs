//! From two profiled degrees of a parallelism to another one (III-B3).
//!
//! The paper argues that a device's memory is a part that is fixed and a part that shrinks with the
//! degree n, which is `A + B/n`, and then fits a logarithm. Through the same two points the logarithm
//! lies below `A + B/n` beyond them: by 10 % to 37 % at degree 8 where activations are 30 % to 70 % of the
//! memory at degree 2. It crosses zero in the end. The logarithm is kept because this is the paper's
//! predictor; [`Curve::disagreement`] says when to mistrust it.

/// The peaks of a stage at two profiled degrees, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Curve {
    /// The lower degree and its bytes.
    pub(super) low: (u32, i128),
    /// The higher degree and its bytes.
    pub(super) high: (u32, i128),
}

impl Curve {
    /// The logarithm through both points, read at `degree`, rounded up to whole bytes and never below
    /// zero. Beyond the higher degree it falls for ever, as the paper's does.
    pub(super) fn logarithm(self, degree: u32) -> i128 {
        let (low, high) = (f64::from(self.low.0), f64::from(self.high.0));
        // Powers of two have whole logarithms, so that profiled degrees are read exactly.
        let share = (f64::from(degree).log2() - low.log2()) / (high.log2() - low.log2());
        self.at(share)
    }

    /// `A + B/n` through both points, read at `degree`; never below zero.
    fn inverse(self, degree: u32) -> i128 {
        let (low, high) = (1.0 / f64::from(self.low.0), 1.0 / f64::from(self.high.0));
        self.at((low - 1.0 / f64::from(degree)) / (low - high))
    }

    /// How far the logarithm lies from `A + B/n` at `degree`, as a share of the latter; negative where
    /// the logarithm is lower. None where the latter is nothing.
    pub(super) fn disagreement(self, degree: u32) -> Option<f64> {
        let inverse = self.inverse(degree);
        (inverse > 0).then(|| (self.logarithm(degree) - inverse) as f64 / inverse as f64)
    }

    /// The bytes at this share of the way from the lower to the higher degree.
    fn at(self, share: f64) -> i128 {
        let step = ((self.high.1 - self.low.1) as f64 * share).ceil();
        (self.low.1 + step as i128).max(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The published errors of the logarithm against `A + B/n`: `shrinking` is the share of B/2 in the
    /// bytes at degree 2.
    #[test]
    fn the_logarithm_errs_as_published() {
        let errors = |shrinking: i128| {
            let at = |n: i128| 1_000_000 * (100 - shrinking) + 2_000_000 * shrinking / n;
            let curve = Curve { low: (2, at(2)), high: (4, at(4)) };
            [8, 16].map(|degree| format!("{:.1}", 100.0 * curve.disagreement(degree).unwrap()))
        };
        assert_eq!(errors(30), ["-9.7", "-25.4"]);
        assert_eq!(errors(50), ["-20.0", "-55.6"]);
        assert_eq!(errors(70), ["-36.8", "-100.0"], "below zero, which nothing can need");
    }

    proptest! {
        /// Profiled degrees are read as they were measured, doubling the degree takes equal steps, and
        /// nothing is ever negative.
        #[test]
        fn the_logarithm_meets_both_points_and_takes_equal_steps(
            low in 0_i128..1 << 40,
            high in 0_i128..1 << 40,
        ) {
            let curve = Curve { low: (2, low), high: (4, high) };
            prop_assert_eq!(curve.logarithm(2), low);
            prop_assert_eq!(curve.logarithm(4), high);
            prop_assert_eq!(curve.logarithm(8), (2 * high - low).max(0));
            prop_assert_eq!(curve.logarithm(16), (3 * high - 2 * low).max(0));
        }

        /// Where memory shrinks with the degree, the paper's curve is never above the one that its own
        /// argument leads to.
        #[test]
        fn beyond_the_profiled_degrees_the_logarithm_is_the_lower_curve(
            high in 1_i128..1 << 40,
            more in 0_i128..1 << 40,
            degree in prop_oneof![Just(8_u32), Just(16), Just(64)],
        ) {
            let curve = Curve { low: (2, high + more), high: (4, high) };
            prop_assert!(curve.logarithm(degree) <= curve.inverse(degree));
        }
    }
}
