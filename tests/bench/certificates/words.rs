//! The words of requests, as a file of an instance spells them, with their numbers on the wire.

use loadmaster_proto::wire::v1;
use serde::{Deserialize, Serialize};

/// An enum whose values have one name here and one number on the wire.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident as $wire:ident { $($word:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub(crate) enum $name { $($word),+ }

        impl $name {
            #[allow(dead_code, reason = "not every list is drawn from")]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$word),+];

            pub(crate) fn to_wire(self) -> i32 {
                match self { $(Self::$word => v1::$wire::$word.into()),+ }
            }

            #[allow(dead_code, reason = "not all of them come back")]
            pub(crate) fn of_wire(number: i32) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.to_wire() == number)
            }
        }
    };
}

words!(
    /// What a plan should be best at.
    Objective as Objective {
        MinPeakMemory, MinIterationTime, Pareto, MinDevices, MinCost, MaxBatch, MaxModel,
    }
);
words!(
    /// What kinds of stages a plan may mix.
    Shape as PlanShape { SinglePipeline, UniformGrid, EqualDevices, PerStageReplicas, PerStageMesh }
);
words!(
    /// How plans are searched.
    Mode as SearchMode { Exact, Capture, McapBruteForce, McapBayesian, Amp, AmpAnnealing }
);
words!(
    /// Whether a stage may take devices of several nodes.
    Spanning as NodeSpanning { Never, WholeNodes, Anywhere }
);
words!(
    /// Order of the passes.
    Schedule as Schedule { Gpipe, OneFOneB }
);
words!(
    /// What is computed again.
    Recompute as RecomputePolicy { None, Stage, Layer }
);
words!(
    /// Whether devices compute while they send to the stages next to them and receive from them.
    Transfers as Transfers { Overlapping, Blocking }
);
words!(
    /// What peaks are compared as.
    Unit as MemoryUnit { Bytes, Share }
);
words!(
    /// The program that is to run a plan.
    Launcher as Launcher {
        Megatron, MegatronBridge, Torchtitan, TorchPipelining, Deepspeed, ColossalAi, Accelerate, Galvatron,
        Torchgpipe, Trainer, Other,
    }
);

impl Objective {
    pub(crate) fn is_timed(self) -> bool {
        matches!(self, Self::MinIterationTime | Self::Pareto)
    }

    pub(crate) fn is_maximum(self) -> bool {
        matches!(self, Self::MaxBatch | Self::MaxModel)
    }

    /// Whether any devices may be left out.
    pub(crate) fn chooses_devices(self) -> bool {
        matches!(self, Self::MinDevices | Self::MinCost)
    }
}

impl Shape {
    /// Whether every plan of `other` is one of this shape.
    pub(crate) fn includes(self, other: Self) -> bool {
        use Shape::*;
        match self {
            PerStageMesh => true,
            EqualDevices => matches!(other, EqualDevices | UniformGrid | SinglePipeline),
            UniformGrid => matches!(other, UniformGrid | SinglePipeline),
            PerStageReplicas => matches!(other, PerStageReplicas | SinglePipeline),
            SinglePipeline => other == SinglePipeline,
        }
    }
}
