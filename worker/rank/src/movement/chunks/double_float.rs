//! Numbers in nearly twice the precision of fp32, each as the sum of two.
//!
//! In fp64 a vector holds half as many numbers, and each has to be converted twice. Sums and products of fp32 numbers are
//! exact in two of them (Knuth; Dekker, 1971; a product takes one fused multiply-add), and operations on these are those of fp32,
//! which all instructions round alike.

/// A number as a sum, of which the high part is the number in fp32 or next to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DoubleFloat {
    pub(super) high: f32,
    pub(super) low: f32,
}

impl DoubleFloat {
    /// A number in fp64, to 48 bits.
    pub(super) fn new(value: f64) -> Self {
        let high = value as f32;
        Self { high, low: (value - f64::from(high)) as f32 }
    }

    /// A number in fp32.
    #[inline(always)]
    pub(super) fn exact(high: f32) -> Self {
        Self { high, low: 0.0 }
    }

    /// The sum of two numbers, exactly.
    #[inline(always)]
    pub(super) fn sum(one: f32, other: f32) -> Self {
        let high = one + other;
        let of_other = high - one;
        Self { high, low: (one - (high - of_other)) + (other - of_other) }
    }

    /// The same of two numbers above zero, or of zero, in one operation less.
    #[inline(always)]
    pub(super) fn sum_of_positive(one: f32, other: f32) -> Self {
        let (larger, smaller) = if one > other { (one, other) } else { (other, one) };
        let high = larger + smaller;
        Self { high, low: smaller - (high - larger) }
    }

    /// Its product with a number, to about 46 bits.
    #[inline(always)]
    pub(super) fn times(self, by: f32) -> Self {
        let high = self.high * by;
        Self { high, low: self.low.mul_add(by, self.high.mul_add(by, -high)) }
    }

    /// The same number with something little added.
    #[inline(always)]
    pub(super) fn plus(self, low: f32) -> Self {
        Self { low: self.low + low, ..self }
    }

    /// The number in fp32 that is nearest, or next to that.
    #[inline(always)]
    pub(super) fn rounded(self) -> f32 {
        self.high + self.low
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers whose products and rests are within what fp32 can tell apart.
    fn numbers() -> impl Strategy<Value = f32> {
        (-1.0_f32..1.0, -20_i32..20).prop_map(|(value, exponent)| value * 2.0_f32.powi(exponent))
    }

    fn value(of: DoubleFloat) -> f64 {
        f64::from(of.high) + f64::from(of.low)
    }

    proptest! {
        /// Sums are exact; what is kept of a product and of a number in fp64 is far more than fp32 has.
        #[test]
        fn pairs_lose_next_to_nothing(one in numbers(), other in numbers(), constant in -2.0..2.0_f64) {
            let [wide, other_wide] = [one, other].map(f64::from);
            prop_assert_eq!(value(DoubleFloat::sum(one, other)), wide + other_wide);
            prop_assert_eq!(value(DoubleFloat::sum_of_positive(one.abs(), other.abs())), wide.abs() + other_wide.abs());
            let kept = DoubleFloat::new(constant);
            prop_assert!((value(kept) - constant).abs() <= constant.abs() * 2.0_f64.powi(-48));
            let product = value(kept.times(one));
            prop_assert!((product - constant * wide).abs() <= (constant * wide).abs() * 2.0_f64.powi(-45));
            prop_assert_eq!(kept.rounded(), constant as f32);
        }
    }
}
