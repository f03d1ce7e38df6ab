//! The optimizer's rules for one element.
//!
//! They are those of [`Stepper`](crate::optimizer::Stepper), which works tensor by tensor, in several operations each and in
//! fp32. Here an element is worked out in fp64 between its one reading and its one writing, which takes no longer where
//! memory is what is waited for; so the results of both differ in their last bits. What an element becomes depends neither
//! on the instructions nor on the cores that compute it: each operation is exact but for its rounding.

use loadmaster_proto::training::Optimizer;

/// What a rule needs in one step of a training, the same for all elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HostStep {
    /// SGD: `v ← momentum · v + g`, `w ← w − rate · v`. Without momentum there is no `v`.
    Sgd(Sgd),
    /// `Adam` and `AdamW`: `m ← m + (1 − β₁)(g − m)`, `v ← β₂ v + (1 − β₂) g²`,
    /// `w ← w − rate / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)` in the t-th step.
    Adam(Adam),
}

/// The numbers of SGD.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    rate: f64,
    momentum: f64,
    weight_decay: f64,
}

/// The numbers of `Adam` in one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// Of the weights, to the gradient.
    weight_decay: f64,
    /// What weights are multiplied by before anything else: 1 but for `AdamW`.
    shrink: f64,
    first_share: f64,
    second_kept: f64,
    second_share: f64,
    /// ε times the root of what the second moment lacks because it began at zero: both sides of the fraction are multiplied
    /// by that.
    epsilon: f64,
    /// The learning rate, as far as the moments are not yet what they become because they began at zero.
    rate: f64,
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

impl HostStep {
    /// The `steps`-th step of a training, counted from 1.
    pub fn new(rule: Optimizer, steps: i32) -> Self {
        match rule {
            Optimizer::Sgd { learning_rate, momentum, weight_decay } => {
                Self::Sgd(Sgd { rate: learning_rate, momentum, weight_decay })
            }
            Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                Self::Adam(Adam::new([learning_rate, beta1, beta2, epsilon], [weight_decay, 1.0], steps))
            }
            Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                let shrink = 1.0 - learning_rate * weight_decay;
                Self::Adam(Adam::new([learning_rate, beta1, beta2, epsilon], [0.0, shrink], steps))
            }
        }
    }
}

impl Sgd {
    /// Whether an element has a velocity.
    pub fn has_velocity(&self) -> bool {
        self.momentum != 0.0
    }

    /// What an element with this gradient becomes.
    #[inline(always)]
    pub fn update(&self, element: Element, gradient: f32) -> Element {
        let [weight, velocity] = [element.weight, element.first].map(f64::from);
        let gradient = self.weight_decay.mul_add(weight, gradient.into());
        let velocity = self.momentum.mul_add(velocity, gradient);
        Element { weight: (-self.rate).mul_add(velocity, weight) as f32, first: velocity as f32, ..element }
    }
}

impl Adam {
    fn new([learning_rate, beta1, beta2, epsilon]: [f64; 4], [decay, shrink]: [f64; 2], steps: i32) -> Self {
        let (first, second) = (1.0 - beta1.powi(steps), (1.0 - beta2.powi(steps)).sqrt());
        Self {
            weight_decay: decay,
            shrink,
            first_share: 1.0 - beta1,
            second_kept: beta2,
            second_share: 1.0 - beta2,
            epsilon: epsilon * second,
            rate: learning_rate * second / first,
        }
    }

    /// What an element with this gradient becomes.
    #[inline(always)]
    pub fn update(&self, element: Element, gradient: f32) -> Element {
        let [weight, first, second] = [element.weight, element.first, element.second].map(f64::from);
        let weight = weight * self.shrink;
        let gradient = self.weight_decay.mul_add(weight, gradient.into());
        let first = self.first_share.mul_add(gradient - first, first);
        let second = self.second_kept.mul_add(second, self.second_share * gradient * gradient);
        let weight = (-self.rate).mul_add(self.over_root(first, second), weight);
        Element { weight: weight as f32, first: first as f32, second: second as f32 }
    }

    /// `first / (√second + ε)`. Roots and quotients in fp64 take several times as long as those in fp32, and two cores of one
    /// kind often share what computes them: so both are begun in fp32, and one step of Newton's makes them right.
    #[inline(always)]
    fn over_root(&self, first: f64, second: f64) -> f64 {
        let root = (second as f32).sqrt();
        let inverse = f64::from(1.0 / (root + self.epsilon as f32));
        let root = f64::from(root);
        let exact_root = (0.5 * inverse).mul_add((-root).mul_add(root, second), root);
        let quotient = first * inverse;
        inverse.mul_add((-quotient).mul_add(exact_root + self.epsilon, first), quotient)
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
        (numbers, 0..3).prop_map(|((learning_rate, beta1, beta2, weight_decay), kind)| {
            let epsilon = 1e-8;
            match kind {
                0 => Optimizer::Sgd { learning_rate, momentum: beta1, weight_decay },
                1 => Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay },
                _ => Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay },
            }
        })
    }

    proptest! {
        /// A step is right to two units in the last place of the larger of what an element was and by how much it changes.
        #[test]
        fn a_step_is_within_two_units_of_fp64(
            rule in rules(),
            steps in 1..10_000_i32,
            weight in -1.0..1.0_f32,
            first in -0.1..0.1_f32,
            second in 1e-8..0.1_f32,
            gradient in -1.0..1.0_f32,
        ) {
            let element = Element { weight, first, second };
            let next = match HostStep::new(rule, steps) {
                HostStep::Sgd(sgd) => sgd.update(element, gradient),
                HostStep::Adam(adam) => adam.update(element, gradient),
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
