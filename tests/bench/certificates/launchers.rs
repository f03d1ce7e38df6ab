//! What each launcher runs, restated from its table in the documentation.

use crate::certificates::scene::Training;
use crate::certificates::words::{Launcher, Recompute, Schedule, Shape};

/// What one launcher can run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The most general shape; the default.
    pub(crate) shape: Shape,
    /// Orders of the passes, the default first.
    pub(crate) schedules: &'static [Schedule],
    /// What it has words for.
    pub(crate) policies: &'static [Recompute],
    pub(crate) policy_per_stage: bool,
    /// Equally many devices on every node that is used.
    pub(crate) is_even: bool,
    /// The whole model is on every device.
    pub(crate) is_one_stage: bool,
}

const FLUSHED: &[Schedule] = &[Schedule::OneFOneB];
const BOTH: &[Schedule] = &[Schedule::OneFOneB, Schedule::Gpipe];

impl Rules {
    pub(crate) fn of(launcher: Launcher, training: &Training) -> Self {
        use Launcher::*;
        let policies: &[Recompute] = match launcher {
            Torchgpipe => &[Recompute::None, Recompute::Stage],
            Torchtitan | ColossalAi | Galvatron | Trainer => &[Recompute::None, Recompute::Layer],
            _ => Recompute::ALL,
        };
        let rules = |shape, schedules, policy_per_stage, is_even| Self {
            shape,
            schedules,
            policies,
            policy_per_stage,
            is_even,
            // What Megatron-Bridge passes between stages is bf16.
            is_one_stage: launcher == Trainer || launcher == MegatronBridge && !training.is_bf16,
        };
        match launcher {
            Megatron | MegatronBridge | Accelerate | Deepspeed => {
                rules(Shape::UniformGrid, FLUSHED, false, true)
            }
            Torchtitan => rules(Shape::UniformGrid, BOTH, false, true),
            TorchPipelining => rules(Shape::UniformGrid, BOTH, true, true),
            ColossalAi => rules(Shape::UniformGrid, FLUSHED, true, true),
            Galvatron => rules(Shape::EqualDevices, BOTH, true, true),
            Torchgpipe => rules(Shape::SinglePipeline, &[Schedule::Gpipe], false, false),
            Trainer => rules(Shape::PerStageReplicas, FLUSHED, false, true),
            Other => rules(Shape::PerStageMesh, BOTH, true, false),
        }
    }
}
