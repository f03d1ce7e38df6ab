//! The optimizer's rules for one element.
//!
//! They are those of [`Stepper`](crate::optimizer::Stepper), which works tensor by tensor, in several operations each and in
//! fp32. Here an element is worked out to far more bits between its one reading and its one writing, which takes no longer where
//! memory is what is waited for. So the results of both differ in their last bits. What an element becomes depends neither
//! on the instructions nor on the cores that compute it: each operation is rounded alike by all.

use loadmaster_proto::training::Optimizer;

use super::double_float::DoubleFloat;

/// What a rule needs in one step of a training, the same for all elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HostStep {
    /// SGD without momentum: `w ← w − rate · g`.
    PlainSgd(PlainSgd),
    /// SGD: `v ← momentum · v + g`, `w ← w − rate · v`.
    Sgd(Sgd),
    /// `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²`, `w ← w − rate / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)` in the t-th
    /// step.
    Adam(Adam),
    /// The same of gradients to which a share of the weights is added.
    DecayingAdam(DecayingAdam),
    /// `AdamW`: the same of weights that are multiplied by a number below 1 before anything else.
    AdamW(AdamW),
}

/// What is kept of an element between steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Element {
    /// The weight.
    pub weight: f32,
    /// SGD's velocity or Adam's first moment; 0 before the first step.
    pub first: f32,
    /// Adam's second moment; 0 before the first step.
    pub second: f32,
}

/// What becomes of an element.
pub trait Rule {
    /// What an element with this gradient becomes. What the rule keeps nothing in stays as it is.
    fn update(&self, element: Element, gradient: f32) -> Element;
}

impl HostStep {
    /// The `steps`-th step of a training, counted from 1.
    pub fn new(rule: Optimizer, steps: i32) -> Self {
        match rule {
            Optimizer::Sgd { learning_rate: rate, momentum, weight_decay } => {
                let plain = PlainSgd { rate, weight_decay };
                if momentum == 0.0 { Self::PlainSgd(plain) } else { Self::Sgd(Sgd { plain, momentum }) }
            }
            Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                let adam = Adam::new([learning_rate, beta1, beta2, epsilon], steps);
                if weight_decay == 0.0 {
                    Self::Adam(adam)
                } else {
                    Self::DecayingAdam(DecayingAdam { adam, weight_decay: DoubleFloat::new(weight_decay) })
                }
            }
            Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                let adam = Adam::new([learning_rate, beta1, beta2, epsilon], steps);
                Self::AdamW(AdamW { adam, shrink: DoubleFloat::new(1.0 - learning_rate * weight_decay) })
            }
        }
    }
}

/// The numbers of SGD without momentum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlainSgd {
    rate: f64,
    weight_decay: f64,
}

impl PlainSgd {
    #[inline(always)]
    fn gradient(&self, weight: f64, gradient: f32) -> f64 {
        self.weight_decay.mul_add(weight, gradient.into())
    }
}

impl Rule for PlainSgd {
    #[inline(always)]
    fn update(&self, element: Element, gradient: f32) -> Element {
        let weight = f64::from(element.weight);
        let gradient = self.gradient(weight, gradient);
        Element { weight: (-self.rate).mul_add(gradient, weight) as f32, ..element }
    }
}

/// The numbers of SGD with momentum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    plain: PlainSgd,
    momentum: f64,
}

impl Rule for Sgd {
    #[inline(always)]
    fn update(&self, element: Element, gradient: f32) -> Element {
        let [weight, velocity] = [element.weight, element.first].map(f64::from);
        let velocity = self.momentum.mul_add(velocity, self.plain.gradient(weight, gradient));
        let weight = (-self.plain.rate).mul_add(velocity, weight);
        Element { weight: weight as f32, first: velocity as f32, ..element }
    }
}

/// The numbers of `Adam` in one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    first_kept: DoubleFloat,
    first_share: DoubleFloat,
    second_kept: DoubleFloat,
    second_share: DoubleFloat,
    /// ε times the root of what the second moment lacks because it began at zero: both sides of the fraction are multiplied
    /// by that.
    epsilon: DoubleFloat,
    /// The learning rate, as far as the moments are not yet what they become because they began at zero.
    rate: DoubleFloat,
}

impl Adam {
    fn new([learning_rate, beta1, beta2, epsilon]: [f64; 4], steps: i32) -> Self {
        let (first, second) = (1.0 - beta1.powi(steps), (1.0 - beta2.powi(steps)).sqrt());
        Self {
            first_kept: DoubleFloat::new(beta1),
            first_share: DoubleFloat::new(1.0 - beta1),
            second_kept: DoubleFloat::new(beta2),
            second_share: DoubleFloat::new(1.0 - beta2),
            epsilon: DoubleFloat::new(epsilon * second),
            rate: DoubleFloat::new(learning_rate * second / first),
        }
    }

    /// The first moment, of which a gradient may take away nearly all, so that nothing of it may be lost before.
    #[inline(always)]
    fn first(&self, first: f32, gradient: f32) -> DoubleFloat {
        let (kept, share) = (self.first_kept.times(first), self.first_share.times(gradient));
        DoubleFloat::sum(kept.high, share.high).plus(kept.low + share.low)
    }

    /// The second moment. All of it is above zero, so that it is enough to round its sum once.
    #[inline(always)]
    fn second(&self, second: f32, gradient: f32) -> DoubleFloat {
        let (kept, share) = (self.second_kept.times(second), self.second_share.times(gradient));
        let square = share.high * gradient;
        let low = share.low.mul_add(gradient, share.high.mul_add(gradient, -square));
        DoubleFloat { high: kept.high + square, low: kept.low + low }
    }

    /// A weight with these moments: `weight − rate · first / (√second + ε)`. The root and the reciprocal are rounded once each, and
    /// one step of Newton's finds what that took: both take several times as long as a product.
    #[inline(always)]
    fn moved(&self, weight: DoubleFloat, first: DoubleFloat, second: DoubleFloat) -> Element {
        let rounded = second.rounded();
        let root = rounded.sqrt();
        let lacks = (-root).mul_add(root, rounded) + (second.low - (rounded - second.high));
        let under = DoubleFloat::sum_of_positive(root, self.epsilon.high);
        let inverse = 1.0 / under.high;
        let low = (0.5 * inverse).mul_add(lacks, under.low + self.epsilon.low);
        let quotient = first.high * inverse;
        let rest = (-quotient).mul_add(low, (-quotient).mul_add(under.high, first.high) + first.low);
        let moved = (-self.rate.high).mul_add(quotient, weight.high);
        let beside = self.rate.high.mul_add(rest * inverse, self.rate.low * quotient);
        Element { weight: moved + (weight.low - beside), first: first.rounded(), second: rounded }
    }
}

impl Rule for Adam {
    #[inline(always)]
    fn update(&self, element: Element, gradient: f32) -> Element {
        let (first, second) = (self.first(element.first, gradient), self.second(element.second, gradient));
        self.moved(DoubleFloat::exact(element.weight), first, second)
    }
}

/// The numbers of `Adam` with weight decay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecayingAdam {
    adam: Adam,
    weight_decay: DoubleFloat,
}

impl Rule for DecayingAdam {
    #[inline(always)]
    fn update(&self, element: Element, gradient: f32) -> Element {
        let Self { adam, weight_decay } = self;
        let decay = weight_decay.times(element.weight);
        let gradient = DoubleFloat::sum(gradient, decay.high).plus(decay.low);
        // What the rounded gradient lacks is added to what each moment takes of it.
        let first = adam.first(element.first, gradient.high).plus(adam.first_share.high * gradient.low);
        let twice = 2.0 * adam.second_share.high * gradient.high;
        let second = adam.second(element.second, gradient.high).plus(twice * gradient.low);
        adam.moved(DoubleFloat::exact(element.weight), first, second)
    }
}

/// The numbers of `AdamW`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    adam: Adam,
    /// What weights are multiplied by before anything else.
    shrink: DoubleFloat,
}

impl Rule for AdamW {
    #[inline(always)]
    fn update(&self, element: Element, gradient: f32) -> Element {
        let Self { adam, shrink } = self;
        let (first, second) = (adam.first(element.first, gradient), adam.second(element.second, gradient));
        adam.moved(shrink.times(element.weight), first, second)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rules in fp64, as the papers write them.
    fn exact(rule: Optimizer, steps: i32, [w, m, v]: [f64; 3], g: f64) -> [f64; 3] {
        let adam = |w: f64, g: f64, [rate, beta1, beta2, epsilon]: [f64; 4]| {
            let m = beta1 * m + (1.0 - beta1) * g;
            let v = beta2 * v + (1.0 - beta2) * g * g;
            let (ahead, root) = (m / (1.0 - beta1.powi(steps)), (v / (1.0 - beta2.powi(steps))).sqrt());
            [w - rate * ahead / (root + epsilon), m, v]
        };
        match rule {
            Optimizer::Sgd { learning_rate, momentum, weight_decay } => {
                let velocity = momentum * m + g + weight_decay * w;
                [w - learning_rate * velocity, velocity, v]
            }
            Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                adam(w, g + weight_decay * w, [learning_rate, beta1, beta2, epsilon])
            }
            Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                adam(w - learning_rate * weight_decay * w, g, [learning_rate, beta1, beta2, epsilon])
            }
        }
    }

    /// One unit in the last place of an fp32 number of this size.
    fn ulp(size: f64) -> f64 {
        let size = size.abs().max(f64::from(f32::MIN_POSITIVE)) as f32;
        f64::from(f32::from_bits(size.to_bits() + 1)) - f64::from(size)
    }

    fn rules() -> impl Strategy<Value = Optimizer> {
        let numbers = (1e-5..1e-1_f64, 0.5..0.99_f64, 0.9..0.9999_f64, prop_oneof![Just(0.0), 1e-4..0.3_f64]);
        let epsilons = prop_oneof![2 => Just(1e-8), 1 => Just(1e-3), 1 => Just(1e-12)];
        (numbers, epsilons, 0..3).prop_map(|((learning_rate, beta1, beta2, weight_decay), epsilon, kind)| {
            match kind {
                0 => Optimizer::Sgd { learning_rate, momentum: beta1, weight_decay },
                1 => Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay },
                _ => Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay },
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// A step is right to two units in the last place of the larger of what an element was and by how much it changes.
        #[test]
        fn a_step_is_within_two_units_of_fp64(
            rule in rules(),
            steps in 1..10_000_i32,
            weight in (-1.0..1.0_f32, -20..1_i32).prop_map(|(weight, exponent)| weight * 2.0_f32.powi(exponent)),
            first in -0.1..0.1_f32,
            second in prop_oneof![1 => Just(0.0_f32), 3 => 1e-8..0.1_f32],
            gradient in prop_oneof![1 => Just(0.0_f32), 7 => -1.0..1.0_f32],
            cancels in proptest::option::weighted(0.3, -1e-5..1e-5_f64),
        ) {
            // A gradient may take away nearly all of a first moment.
            let first = match (cancels, rule) {
                (Some(but), Optimizer::Adam { beta1, .. } | Optimizer::AdamW { beta1, .. }) => {
                    (f64::from(gradient) * (beta1 - 1.0) / beta1 * (1.0 + but)) as f32
                }
                _ => first,
            };
            let element = Element { weight, first, second };
            let next = match HostStep::new(rule, steps) {
                HostStep::PlainSgd(rule) => rule.update(element, gradient),
                HostStep::Sgd(rule) => rule.update(element, gradient),
                HostStep::Adam(rule) => rule.update(element, gradient),
                HostStep::DecayingAdam(rule) => rule.update(element, gradient),
                HostStep::AdamW(rule) => rule.update(element, gradient),
            };
            let [w, m, v] = exact(rule, steps, [weight, first, second].map(f64::from), gradient.into());
            let moved = (w - f64::from(weight)).abs();
            let sizes = [
                moved.max(weight.abs().into()).max(w.abs()),
                f64::from(first.abs().max(gradient.abs())).max(m.abs()),
                v,
            ];
            let found = [next.weight, next.first, next.second].map(f64::from);
            for ((found, exact), size) in found.into_iter().zip([w, m, v]).zip(sizes) {
                let off = (found - exact).abs() / ulp(size);
                prop_assert!(off <= 2.0, "{found} for {exact}: {off} units in the last place of {size}");
            }
        }
    }
}
