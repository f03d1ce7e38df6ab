//! One pass over the lists of a chunk in the host's memory.
//!
//! A row of libtorch's operations reads and writes each list several times, and what is larger than the caches comes from
//! memory each time. Here every byte passes once: gradient, fp32 weights and moments are read, moments, weights and the
//! parameter are written, which takes the gradient's place. That is 28 bytes for each parameter in bf16 with `Adam` and 32
//! in fp32.
//!
//! Memory is what it waits for: rules need only be few enough operations of wide instructions, which compilers see to
//! where loops are of one kind and one length.

use pulp::{Arch, NullaryFnOnce};

use super::host_step::{Element, HostStep, Rule};

/// Fewest elements that are worth a thread of their own.
const LEAST_PER_THREAD: usize = 1 << 16;
/// Threads begin at multiples of so many elements: no two of them write to one line of a cache.
const APART: usize = 64;

/// A number as parameters and gradients are kept.
pub trait Scalar: Copy + Send + Sync {
    /// In fp32.
    fn read(self) -> f32;
    /// The nearest to an fp32 number, of two the even one.
    fn round(value: f32) -> Self;
}

impl Scalar for f32 {
    #[inline(always)]
    fn read(self) -> f32 {
        self
    }

    #[inline(always)]
    fn round(value: f32) -> Self {
        value
    }
}

/// A number in bf16: the upper half of one in fp32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl Scalar for Bf16 {
    #[inline(always)]
    fn read(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn round(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        // As libtorch writes what is not a number; rounded it could become infinite.
        Self(if value.is_nan() { 0x7fc0 } else { rounded as u16 })
    }
}

/// Which instructions compute. Results are the same with all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Instructions {
    /// The widest that the processor has: AVX-512, AVX2, or what every one of its kind has.
    #[default]
    Widest,
    /// AVX2, or what every processor has where there is none.
    Avx2,
}

/// Rounds weights to what layers compute with, on so many threads at most.
pub fn round_all(from: &[f32], to: &mut [Bf16], threads: usize) {
    let each = of_each_thread(from.len().min(to.len()), threads);
    side_by_side(from.chunks(each).zip(to.chunks_mut(each)), |(from, to)| round_here(from, to));
}

/// Does something with parts of lists on a thread each: the first on this one, which waits for all. Threads stay for the next
/// time: to start sixteen of them takes as long as a small chunk's update.
pub(super) fn side_by_side<P: Send>(mut parts: impl Iterator<Item = P>, work: impl Fn(P) + Sync) {
    let Some(own) = parts.next() else { return };
    let Some(other) = parts.next() else { return work(own) };
    let work = &work;
    rayon::in_place_scope(|scope| {
        [other].into_iter().chain(parts).for_each(|part| scope.spawn(move |_| work(part)));
        work(own);
    });
}

/// How many of so many elements each of so many threads takes, at least one.
pub(super) fn of_each_thread(elements: usize, threads: usize) -> usize {
    let worth = elements / LEAST_PER_THREAD;
    elements.div_ceil(threads.min(worth).max(1)).next_multiple_of(APART).max(APART)
}

fn round_here(from: &[f32], to: &mut [Bf16]) {
    struct RoundingKernel<'a>(&'a [f32], &'a mut [Bf16]);
    impl NullaryFnOnce for RoundingKernel<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            self.1.iter_mut().zip(self.0).for_each(|(to, &from)| *to = Bf16::round(from));
        }
    }
    Arch::new().dispatch(RoundingKernel(from, to));
}

/// The lists of a chunk, or of a part of one: element for element the same tensors.
#[derive(Debug)]
pub struct Lists<'a, L> {
    /// Gradients at first, then the new parameters.
    pub parameters: &'a mut [L],
    /// Weights in fp32.
    pub weights: &'a mut [f32],
    /// SGD's velocity or Adam's first moment. Zero before the first step.
    pub first: &'a mut [f32],
    /// Adam's second moment, zero before the first step; of SGD nothing.
    pub second: &'a mut [f32],
}

impl<'a, L: Scalar> Lists<'a, L> {
    /// Updates all elements, on so many threads at most.
    pub fn step(self, step: &HostStep, instructions: Instructions, threads: usize) {
        let each = of_each_thread(self.weights.len(), threads);
        let mut rest = Some(self);
        let parts = std::iter::from_fn(|| {
            let lists = rest.take()?;
            if lists.weights.len() <= each {
                return Some(lists);
            }
            let (part, others) = lists.split(each);
            rest = Some(others);
            Some(part)
        });
        side_by_side(parts, |part| part.step_here(step, instructions));
    }

    fn split(self, at: usize) -> (Self, Self) {
        let (parameters, others) = self.parameters.split_at_mut(at);
        let (weights, other_weights) = self.weights.split_at_mut(at);
        let (first, other_first) = self.first.split_at_mut(at.min(self.first.len()));
        let (second, other_second) = self.second.split_at_mut(at.min(self.second.len()));
        (
            Self { parameters, weights, first, second },
            Self { parameters: others, weights: other_weights, first: other_first, second: other_second },
        )
    }

    fn step_here(self, step: &HostStep, instructions: Instructions) {
        let pass = Pass { lists: self, step };
        match instructions {
            Instructions::Widest => Arch::new().dispatch(pass),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => match pulp::x86::V3::try_new() {
                Some(avx2) => avx2.vectorize(pass),
                None => pass.call(),
            },
            #[cfg(not(target_arch = "x86_64"))]
            Instructions::Avx2 => pass.call(),
        }
    }
}

/// One pass over lists: made once for each kind of instructions.
struct Pass<'a, L> {
    lists: Lists<'a, L>,
    step: &'a HostStep,
}

impl<L: Scalar> NullaryFnOnce for Pass<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        match self.step {
            HostStep::PlainSgd(rule) => self.lists.by(rule),
            HostStep::Sgd(rule) => self.lists.by(rule),
            HostStep::Adam(rule) => self.lists.by(rule),
            HostStep::DecayingAdam(rule) => self.lists.by(rule),
            HostStep::AdamW(rule) => self.lists.by(rule),
        }
    }
}

/// Elements that go through a step together, in the nearest cache: first all gradients become fp32, then all elements become what
/// they become, then all parameters are rounded. Each of the three is a loop that compilers make wide instructions of.
const BLOCK: usize = 128;

impl<L: Scalar> Lists<'_, L> {
    #[inline(always)]
    fn by<R: Rule>(self, rule: &R) {
        let (parameters, last_parameters) = self.parameters.as_chunks_mut();
        let (weights, last_weights) = self.weights.as_chunks_mut();
        let (first, last_first) = self.first.as_chunks_mut();
        let (second, last_second) = self.second.as_chunks_mut();
        // Of a list that the rule keeps nothing in.
        let mut none = [[0.0; BLOCK]; 2];
        let [no_first, no_second] = &mut none;
        for (index, (parameters, weights)) in parameters.iter_mut().zip(weights).enumerate() {
            let first = first.get_mut(index).unwrap_or(no_first);
            let second = second.get_mut(index).unwrap_or(no_second);
            block(rule, parameters, weights, first, second);
        }
        // What is left goes through a block of its own.
        let mut parameters = [L::round(0.0); BLOCK];
        let mut lists = [[0.0; BLOCK]; 3];
        let [weights, first, second] = &mut lists;
        copy_into(&mut parameters, last_parameters);
        copy_into(weights, last_weights);
        copy_into(first, last_first);
        copy_into(second, last_second);
        block(rule, &mut parameters, weights, first, second);
        copy_into(last_parameters, &parameters);
        copy_into(last_weights, weights);
        copy_into(last_first, first);
        copy_into(last_second, second);
    }
}

/// As many numbers as both have.
fn copy_into<T: Copy>(to: &mut [T], from: &[T]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

/// A block of each list. They are arguments and not a struct's, and loops count: so compilers see that they do not overlap, and
/// keep nothing between in memory.
#[inline(always)]
fn block<L: Scalar, R: Rule>(
    rule: &R,
    parameters: &mut [L; BLOCK],
    weights: &mut [f32; BLOCK],
    first: &mut [f32; BLOCK],
    second: &mut [f32; BLOCK],
) {
    let mut gradients = [0.0; BLOCK];
    for at in 0..BLOCK {
        gradients[at] = parameters[at].read();
    }
    for at in 0..BLOCK {
        let element = Element { weight: weights[at], first: first[at], second: second[at] };
        let next = rule.update(element, gradients[at]);
        (weights[at], first[at], second[at]) = (next.weight, next.first, next.second);
    }
    for at in 0..BLOCK {
        parameters[at] = L::round(weights[at]);
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::Optimizer;
    use proptest::prelude::*;
    use tch::{Device, Kind, Tensor};

    use super::*;
    use crate::tensor::copy_of;

    const ADAM: Optimizer =
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 };
    const SGD: Optimizer = Optimizer::Sgd { learning_rate: 0.1, momentum: 0.9, weight_decay: 0.01 };
    const PLAIN: Optimizer = Optimizer::Sgd { learning_rate: 0.1, momentum: 0.0, weight_decay: 0.01 };

    /// A chunk of its own.
    #[derive(Debug, Clone, PartialEq)]
    struct Chunk<L> {
        parameters: Vec<L>,
        weights: Vec<f32>,
        first: Vec<f32>,
        second: Vec<f32>,
    }

    impl<L: Scalar> Chunk<L> {
        fn new(elements: usize, rule: Optimizer) -> Self {
            tch::manual_seed(7);
            let weights = values(elements);
            let seconds = if matches!(rule, Optimizer::Sgd { .. }) { 0 } else { elements };
            Self {
                parameters: vec![L::round(0.0); elements],
                weights,
                first: vec![0.0; elements],
                second: vec![0.0; seconds],
            }
        }

        fn step(&mut self, gradients: &[f32], step: &HostStep, how: (Instructions, usize)) {
            for (parameter, &gradient) in self.parameters.iter_mut().zip(gradients) {
                *parameter = L::round(gradient);
            }
            let Self { parameters, weights, first, second } = self;
            Lists { parameters, weights, first, second }.step(step, how.0, how.1);
        }
    }

    fn values(elements: usize) -> Vec<f32> {
        Vec::try_from(Tensor::randn([elements as i64], (Kind::Float, Device::Cpu))).unwrap()
    }

    /// Neither instructions nor threads change a bit, wherever a thread's part ends.
    #[test]
    fn results_are_the_same_however_they_are_computed() {
        for (rule, elements) in [
            (ADAM, 5 * LEAST_PER_THREAD + 13),
            (SGD, 3 * LEAST_PER_THREAD),
            (PLAIN, 2 * LEAST_PER_THREAD + 1),
            (ADAM, 3),
        ] {
            let mut chunks: [Chunk<Bf16>; 4] = std::array::from_fn(|_| Chunk::new(elements, rule));
            let hows = [
                (Instructions::Widest, 1),
                (Instructions::Avx2, 1),
                (Instructions::Widest, 3),
                (Instructions::Avx2, 64),
            ];
            for steps in 1..4 {
                let gradients = values(elements);
                for (chunk, how) in chunks.iter_mut().zip(hows) {
                    chunk.step(&gradients, &HostStep::new(rule, steps), how);
                }
            }
            assert!(chunks.iter().all(|chunk| chunk == &chunks[0]), "{rule:?}");
            let begun = Chunk::<Bf16>::new(elements, rule).weights;
            let moved = chunks[0].weights.iter().zip(&begun).filter(|(now, begun)| now != begun).count();
            // By chance a weight is back where it was.
            assert!(moved > elements * 9 / 10, "{moved} of {elements}");
        }
    }

    /// The tensor-wise step is libtorch's: after five steps both have nearly the same weights and moments.
    #[test]
    fn it_is_the_step_of_tensors() {
        for rule in [ADAM, SGD, PLAIN] {
            let mut chunk: Chunk<f32> = Chunk::new(1000, rule);
            let weights = Tensor::from_slice(&chunk.weights);
            let mut state = [Tensor::zeros_like(&weights), Tensor::zeros_like(&weights)];
            for steps in 1..=5 {
                let gradients = values(1000);
                let gradient = Tensor::from_slice(&gradients);
                tensor_wise(rule, steps, &weights, &gradient, &mut state);
                chunk.step(&gradients, &HostStep::new(rule, steps), (Instructions::Widest, 1));
            }
            let near = |ours: &[f32], theirs: &Tensor| {
                let off = f64::try_from((Tensor::from_slice(ours) - theirs).abs().max()).unwrap();
                // Velocities reach 10, where libtorch rounds by a millionth in each operation.
                assert!(off < 2e-5, "{rule:?}: {off}");
            };
            near(&chunk.weights, &weights);
            if rule != PLAIN {
                near(&chunk.first, &state[0]);
            }
            assert_eq!(chunk.parameters, chunk.weights);
        }
    }

    /// Libtorch's own operations, in another order than ours.
    fn tensor_wise(
        rule: Optimizer,
        steps: i32,
        weights: &Tensor,
        gradient: &Tensor,
        state: &mut [Tensor; 2],
    ) {
        let mut weights = weights.shallow_clone();
        match rule {
            Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                let gradient = gradient + &weights * weight_decay;
                state[0] = &state[0] * beta1 + &gradient * (1.0 - beta1);
                state[1] = &state[1] * beta2 + &gradient * &gradient * (1.0 - beta2);
                let ahead = &state[0] / (1.0 - beta1.powi(steps));
                let root = (&state[1] / (1.0 - beta2.powi(steps))).sqrt() + epsilon;
                weights -= ahead / root * learning_rate;
            }
            Optimizer::Sgd { learning_rate, momentum, weight_decay } => {
                state[0] = &state[0] * momentum + gradient + &weights * weight_decay;
                weights -= &state[0] * learning_rate;
            }
            Optimizer::AdamW { .. } => unreachable!("not asked for here"),
        }
    }

    proptest! {
        /// Whatever the bits are: numbers, what is none, and what is between two numbers in bf16.
        #[test]
        fn numbers_are_rounded_as_libtorch_rounds(bits in prop::collection::vec(any::<u32>(), 1..200)) {
            let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
            let theirs = Tensor::from_slice(&values).to_kind(Kind::BFloat16).to_kind(Kind::Float);
            let theirs: Vec<f32> = Vec::try_from(copy_of(&theirs)?).unwrap();
            for (value, theirs) in values.into_iter().zip(theirs) {
                let ours = Bf16::round(value).read();
                prop_assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{value}");
            }
        }
    }
}
