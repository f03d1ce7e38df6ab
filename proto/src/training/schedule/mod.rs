//! The order of the passes of a stage, and how many micro-batches are in flight.
//!
//! Predictor and rank must agree on both, so they are defined here alone.
//!
//! PipeDream is 1F1B whose micro-batches go on from one iteration to the next: nothing is flushed, and an iteration is
//! no more than as many of them. Behind every backward pass the weights are updated; `endless` says what comes of it.

mod endless;

pub use endless::Endless;

use crate::training::Schedule;

/// One pass of one micro-batch through a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Forward pass of this micro-batch.
    Forward(u32),
    /// Backward pass of this micro-batch.
    Backward(u32),
}

impl Schedule {
    /// The passes of stage `stage` of `stages` (from 0) for `micro_batches` micro-batches, in order.
    ///
    /// GPipe: all forward, then all backward passes from the last micro-batch to the first, as
    /// torchgpipe's autograd does. 1F1B: `in_flight - 1` forward passes, then one forward and one
    /// backward one after another, then the rest of the backward passes, each from the first micro-batch on.
    /// PipeDream: as 1F1B, where these are all micro-batches of the training ([`Endless`]).
    pub fn passes(self, stages: u32, stage: u32, micro_batches: u32) -> Vec<Pass> {
        match self {
            Self::Gpipe => (0..micro_batches)
                .map(Pass::Forward)
                .chain((0..micro_batches).rev().map(Pass::Backward))
                .collect(),
            Self::OneFOneB | Self::PipeDream => {
                let warm_up = Self::OneFOneB.in_flight(stages, stage, micro_batches).saturating_sub(1);
                let mut passes: Vec<Pass> = (0..warm_up).map(Pass::Forward).collect();
                for forward in warm_up..micro_batches {
                    passes.push(Pass::Forward(forward));
                    passes.push(Pass::Backward(forward - warm_up));
                }
                passes.extend((micro_batches - warm_up..micro_batches).map(Pass::Backward));
                passes
            }
        }
    }

    /// The most micro-batches of stage `stage` of `stages` that are between their forward and
    /// backward pass at once. All of them under GPipe, `min(m, S − s)` under 1F1B, `S − s` under PipeDream, where
    /// micro-batches of the next iterations follow.
    pub fn in_flight(self, stages: u32, stage: u32, micro_batches: u32) -> u32 {
        let from_here = stages.saturating_sub(stage).max(1);
        match self {
            Self::Gpipe => micro_batches,
            Self::OneFOneB => micro_batches.min(from_here),
            Self::PipeDream => from_here,
        }
    }

    /// Whether weights are updated behind every backward pass, into new ones, instead of once at the end of an
    /// iteration.
    pub fn updates_always(self) -> bool {
        self == Self::PipeDream
    }

    /// Versions of its weights that a stage with so many micro-batches in flight holds at once. Each of them went
    /// forward with another one where weights are updated always, the last of them with the newest.
    pub fn weight_versions(self, in_flight: u32) -> u32 {
        if self.updates_always() { in_flight.max(1) } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each micro-batch goes forward once and then backward once, and the most in flight is what
        /// `in_flight` says; PipeDream's are those of `endless`.
        #[test]
        fn passes_are_complete_and_in_flight_is_exact(
            schedule in prop_oneof![Just(Schedule::Gpipe), Just(Schedule::OneFOneB)],
            stages in 1_u32..9,
            offset in 0_u32..9,
            micro_batches in 1_u32..20,
        ) {
            let stage = offset % stages;
            let passes = schedule.passes(stages, stage, micro_batches);
            let mut open = Vec::new();
            let mut most = 0;
            let mut done = Vec::new();
            for pass in passes {
                match pass {
                    Pass::Forward(index) => open.push(index),
                    Pass::Backward(index) => {
                        let position = open.iter().position(|&other| other == index);
                        prop_assert!(position.is_some(), "backward of {index} before its forward");
                        open.remove(position.unwrap());
                        done.push(index);
                    }
                }
                most = most.max(open.len());
            }
            done.sort_unstable();
            prop_assert_eq!(done, (0..micro_batches).collect::<Vec<_>>());
            prop_assert_eq!(most, schedule.in_flight(stages, stage, micro_batches) as usize);
        }
    }

    /// Every pass finds its input when stages run side by side: no schedule may deadlock.
    #[test]
    fn stages_never_wait_for_each_other_forever() {
        for schedule in Schedule::ALL {
            for (stages, micro_batches) in [(1, 1), (2, 1), (4, 3), (4, 8), (7, 5)] {
                let mut left: Vec<std::collections::VecDeque<Pass>> =
                    (0..stages).map(|stage| schedule.passes(stages, stage, micro_batches).into()).collect();
                let mut finished: Vec<Vec<Pass>> = vec![Vec::new(); stages as usize];
                loop {
                    let mut moved = false;
                    for stage in 0..stages as usize {
                        let Some(&pass) = left[stage].front() else { continue };
                        let ready = match pass {
                            Pass::Forward(_) => stage == 0 || finished[stage - 1].contains(&pass),
                            Pass::Backward(_) => {
                                stage + 1 == stages as usize || finished[stage + 1].contains(&pass)
                            }
                        };
                        if ready {
                            left[stage].pop_front();
                            finished[stage].push(pass);
                            moved = true;
                        }
                    }
                    if !moved {
                        break;
                    }
                }
                assert!(
                    left.iter().all(std::collections::VecDeque::is_empty),
                    "{schedule:?} {stages} {micro_batches}"
                );
            }
        }
    }
}
