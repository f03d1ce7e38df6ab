//! What each launcher runs, restated from its table in the documentation.

use crate::scene::Training;
use crate::words::{Launcher, Recompute, Schedule, Shape};

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
    /// A stage takes a power of two of a node's devices, or whole nodes.
    pub(crate) powers_of_two: bool,
    /// The whole model is on every device.
    pub(crate) is_one_stage: bool,
}

const FLUSHED: &[Schedule] = &[Schedule::OneFOneB];
const BOTH: &[Schedule] = &[Schedule::OneFOneB, Schedule::Gpipe];

impl Rules {
    pub(crate) fn of(launcher: Launcher, training: &Training) -> Self {
        use Launcher::*;
        let policies: &[Recompute] = match launcher {
            Nnscaler | Pipedream => &[Recompute::None],
            Torchgpipe => &[Recompute::None, Recompute::Stage],
            Torchtitan | ColossalAi | Galvatron | Alpa | Trainer => &[Recompute::None, Recompute::Layer],
            _ => Recompute::ALL,
        };
        let rules = |shape, schedules, policy_per_stage, is_even, powers_of_two| Self {
            shape,
            schedules,
            policies,
            policy_per_stage,
            is_even,
            powers_of_two,
            // What Megatron-Bridge passes between stages is bf16.
            is_one_stage: launcher == Trainer || launcher == MegatronBridge && !training.is_bf16,
        };
        match launcher {
            Megatron | MegatronBridge | Accelerate | Deepspeed => {
                rules(Shape::UniformGrid, FLUSHED, false, true, false)
            }
            Torchtitan => rules(Shape::UniformGrid, BOTH, false, true, false),
            TorchPipelining => rules(Shape::UniformGrid, BOTH, true, true, false),
            ColossalAi => rules(Shape::UniformGrid, FLUSHED, true, true, false),
            Galvatron => rules(Shape::EqualDevices, BOTH, true, true, false),
            Alpa => rules(Shape::PerStageMesh, BOTH, true, false, true),
            Nnscaler => rules(Shape::PerStageMesh, FLUSHED, false, true, false),
            Pipedream => rules(Shape::PerStageReplicas, FLUSHED, false, false, false),
            Torchgpipe => rules(Shape::SinglePipeline, &[Schedule::Gpipe], false, false, false),
            Trainer => rules(Shape::PerStageReplicas, FLUSHED, false, true, false),
            Other => rules(Shape::PerStageMesh, BOTH, true, false, false),
        }
    }
}
