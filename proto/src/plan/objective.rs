//! What a plan is asked to be: best at what, of which shape, for which framework, found how.

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::choice::TextChoice;
use crate::wire::v1;

/// What a plan should be best at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// The lowest highest peak over the devices, then the lowest second highest, and so on (CAPTURE).
    #[default]
    MinPeakMemory,
    /// The shortest iteration that fits (AMP, with memory).
    MinIterationTime,
    /// All plans that no other one beats in both.
    Pareto,
    /// The fewest devices that hold the training.
    MinDevices,
    /// The cheapest devices that do.
    MinCost,
    /// The largest micro-batch that fits.
    MaxBatch,
    /// The model with the most parameters that fits.
    MaxModel,
}

impl Objective {
    /// What the objective's value is counted in.
    pub fn unit(self) -> &'static str {
        match self {
            Self::MinPeakMemory => "bytes",
            Self::MinIterationTime | Self::Pareto => "seconds",
            Self::MinDevices => "devices",
            Self::MinCost => "per hour",
            Self::MaxBatch => "samples",
            Self::MaxModel => "parameters",
        }
    }

    /// Whether plans are weighed by their seconds.
    pub fn is_timed(self) -> bool {
        matches!(self, Self::MinIterationTime | Self::Pareto)
    }

    /// Whether a larger value is better.
    pub fn is_maximum(self) -> bool {
        matches!(self, Self::MaxBatch | Self::MaxModel)
    }
}

choice! {
    Objective = v1::Objective {
        MinPeakMemory, MinIterationTime, Pareto, MinDevices, MinCost, MaxBatch, MaxModel,
    }
}

/// What kinds of stages a plan may mix; decides which frameworks can run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanShape {
    /// One device per stage.
    #[default]
    SinglePipeline,
    /// The same data and tensor-parallel size for every stage.
    UniformGrid,
    /// Equally many devices for every stage, shared as each stage likes.
    EqualDevices,
    /// Any number of replicas per stage, no tensor shards.
    PerStageReplicas,
    /// Any data and tensor-parallel size per stage.
    PerStageMesh,
}

impl PlanShape {
    /// Whether every plan of `other` is one of this shape.
    pub fn includes(self, other: Self) -> bool {
        match self {
            Self::PerStageMesh => true,
            Self::EqualDevices => {
                matches!(other, Self::EqualDevices | Self::UniformGrid | Self::SinglePipeline)
            }
            Self::UniformGrid => matches!(other, Self::UniformGrid | Self::SinglePipeline),
            Self::PerStageReplicas => matches!(other, Self::PerStageReplicas | Self::SinglePipeline),
            Self::SinglePipeline => other == Self::SinglePipeline,
        }
    }
}

choice! {
    PlanShape = v1::ParallelismLayout {
        SinglePipeline, UniformGrid, EqualDevices, PerStageReplicas, PerStageMesh,
    }
}

/// The program that is to run a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framework {
    /// Megatron-LM and Megatron-Core.
    Megatron,
    /// `NeMo` and Megatron-Bridge.
    MegatronBridge,
    /// torchtitan.
    Torchtitan,
    /// torch.distributed.pipelining.
    TorchPipelining,
    /// DeepSpeed.
    Deepspeed,
    /// Colossal-AI.
    ColossalAi,
    /// accelerate with Megatron-LM.
    Accelerate,
    /// Hetu-Galvatron.
    Galvatron,
    /// torchgpipe.
    Torchgpipe,
    /// Trainer of transformers: replicas of the whole model.
    Trainer,
    /// A program of the user's own, which can do all that a plan says.
    Other,
}

choice! {
    Framework {
        Megatron, MegatronBridge, Torchtitan, TorchPipelining, Deepspeed, ColossalAi, Accelerate,
        Galvatron, Torchgpipe, Trainer, Other,
    }
}

impl TextChoice for Framework {}

/// What the peaks of different devices are compared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryUnit {
    /// Bytes.
    #[default]
    Bytes,
    /// Shares of each device's capacity.
    Share,
}

choice! { MemoryUnit = v1::MemoryUnit { Bytes, Share } }

/// How plans are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchMode {
    /// Exactly, where the space allows.
    #[default]
    Exact,
    /// CAPTURE's enumeration with pruning (III-C).
    Capture,
    /// mCAP's brute force.
    McapBruteForce,
    /// mCAP's Bayesian optimisation.
    McapBayesian,
    /// AMP's dynamic program for the layers of each stage.
    Amp,
    /// AMP's with simulated annealing over placements.
    AmpAnnealing,
    /// MPress's choice of memory optimizations for given stages.
    Mpress,
}

choice! {
    SearchMode = v1::SearchMode {
        Exact, Capture, McapBruteForce, McapBayesian, Amp, AmpAnnealing, Mpress,
    }
}

/// Whether a stage may take devices of several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeSpanning {
    /// Never (CAPTURE).
    #[default]
    Never,
    /// Only all devices of each.
    WholeNodes,
    /// Any devices that follow each other.
    Anywhere,
}

choice! { NodeSpanning = v1::NodeSpanning { Never, WholeNodes, Anywhere } }

#[cfg(test)]
mod tests {
    use super::*;

    /// Inclusion is a partial order with the free shape on top and the single pipeline at the bottom.
    #[test]
    fn shapes_include_each_other_as_their_definitions_say() {
        for one in PlanShape::ALL {
            assert!(one.includes(one) && PlanShape::PerStageMesh.includes(one));
            assert!(one.includes(PlanShape::SinglePipeline));
            for other in PlanShape::ALL {
                assert!(one == other || !(one.includes(other) && other.includes(one)), "{one} {other}");
            }
        }
        assert!(!PlanShape::UniformGrid.includes(PlanShape::PerStageReplicas));
        assert!(!PlanShape::PerStageReplicas.includes(PlanShape::UniformGrid));
    }
}
