//! A whole training that never flushes.

use super::Pass;

/// The passes of a stage under PipeDream, from the first micro-batch of the training to the last. Micro-batches are
/// counted from the start of the training: number n is the `n mod m`-th of iteration `n / m`.
///
/// A stage of k micro-batches in flight is always k − 1 forward passes ahead, so those of the first micro-batches of an
/// iteration belong to the one before. Behind the last iteration as many more micro-batches are trained as the first
/// stage is ahead of the last one: until then all stages are as full as in the long run.
///
/// ```
/// use loadmaster_proto::training::schedule::{Endless, Pass};
///
/// let stage = Endless { stages: 2, stage: 0, micro_batches: 2, iterations: 1 };
/// assert_eq!(
///     stage.passes(0),
///     [Pass::Forward(0), Pass::Forward(1), Pass::Backward(0), Pass::Forward(2), Pass::Backward(1)]
/// );
/// assert_eq!(stage.rest(), [Pass::Backward(2)]);
/// assert_eq!([0, 1, 2].map(|micro_batch| stage.updates_before(micro_batch)), [0, 0, 1]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endless {
    /// Stages of the pipeline.
    pub stages: u32,
    /// Which of them, from 0.
    pub stage: u32,
    /// Micro-batches of an iteration.
    pub micro_batches: u32,
    /// Iterations in all.
    pub iterations: u32,
}

impl Endless {
    /// Iterations after which every stage holds as many micro-batches, and each of those another version of its weights,
    /// as in the long run.
    pub fn warm_up(stages: u32, micro_batches: u32) -> u32 {
        stages.max(1).div_ceil(micro_batches.max(1))
    }

    /// How far its forward passes are ahead of its backward passes.
    fn ahead(&self) -> u32 {
        self.stages.saturating_sub(self.stage).max(1) - 1
    }

    /// Its micro-batches in flight.
    pub fn in_flight(&self) -> u32 {
        self.ahead() + 1
    }

    /// Whether nothing goes backward yet behind the forward pass of a micro-batch.
    pub fn fills(&self, micro_batch: u32) -> bool {
        micro_batch < self.ahead()
    }

    /// Micro-batches in all.
    pub fn total(&self) -> u32 {
        self.micro_batches.saturating_mul(self.iterations).saturating_add(self.stages.max(1) - 1)
    }

    /// Its passes up to the last backward pass of an iteration, from that of the iteration before on.
    pub fn passes(&self, iteration: u32) -> Vec<Pass> {
        let begin = self.micro_batches.saturating_mul(iteration);
        let filling = if iteration == 0 { self.ahead() } else { 0 };
        (0..filling)
            .map(Pass::Forward)
            .chain(self.in_turn(begin, begin.saturating_add(self.micro_batches)))
            .collect()
    }

    /// Its passes behind the last iteration.
    pub fn rest(&self) -> Vec<Pass> {
        self.in_turn(self.micro_batches.saturating_mul(self.iterations), self.total()).collect()
    }

    /// The backward passes of these micro-batches, before each the forward pass of the next one, as far as there are.
    fn in_turn(&self, begin: u32, end: u32) -> impl Iterator<Item = Pass> {
        let (ahead, total) = (self.ahead(), self.total());
        (begin..end).flat_map(move |micro_batch| {
            let next = micro_batch.saturating_add(ahead);
            let forward = (next < total).then_some(Pass::Forward(next));
            forward.into_iter().chain([Pass::Backward(micro_batch)])
        })
    }

    /// How often its weights were updated when a micro-batch goes forward.
    pub fn updates_before(&self, micro_batch: u32) -> u32 {
        micro_batch.saturating_sub(self.ahead())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::training::Schedule;

    proptest! {
        /// Its parts are 1F1B of all micro-batches; updates are counted as they come; and from the end of the warm-up to
        /// the end of the last iteration each micro-batch in flight has a version of its own, as many as are said.
        #[test]
        fn an_endless_training_is_1f1b_of_all_its_micro_batches(
            stages in 1_u32..7, offset in 0_u32..7, micro_batches in 1_u32..9, measured in 1_u32..4,
        ) {
            let stage = offset % stages;
            let warm_up = Endless::warm_up(stages, micro_batches);
            let endless = Endless { stages, stage, micro_batches, iterations: warm_up + measured };
            let parts: Vec<Vec<Pass>> =
                (0..endless.iterations).map(|iteration| endless.passes(iteration)).collect();
            let all: Vec<Pass> = parts.concat().into_iter().chain(endless.rest()).collect();
            prop_assert_eq!(&all, &Schedule::PipeDream.passes(stages, stage, endless.total()));
            let in_flight = Schedule::PipeDream.in_flight(stages, stage, micro_batches);
            let steady = parts[..warm_up as usize].concat().len()..parts.concat().len();
            let (mut updates, mut open, mut most, mut held) = (0, Vec::new(), 0, 0);
            for (index, pass) in all.into_iter().enumerate() {
                match pass {
                    Pass::Forward(micro_batch) => {
                        prop_assert_eq!(endless.updates_before(micro_batch), updates);
                        open.push((micro_batch, updates));
                        let mut versions: Vec<u32> = open.iter().map(|&(_, version)| version).collect();
                        versions.dedup();
                        held = held.max(versions.len());
                        if steady.contains(&index) {
                            prop_assert_eq!(versions.len(), open.len());
                            most = most.max(open.len());
                        }
                    }
                    Pass::Backward(micro_batch) => {
                        prop_assert_eq!(open.remove(0).0, micro_batch);
                        updates += 1;
                    }
                }
            }
            prop_assert_eq!((updates, most), (endless.total(), in_flight as usize));
            prop_assert_eq!(held, Schedule::PipeDream.weight_versions(in_flight) as usize);
        }
    }
}
