//! Objectives, shapes, schedules and policies, each with its number on the wire.

use loadmaster_proto::wire::v1;
use serde::{Deserialize, Serialize};

/// An enum whose values have one name here and one number on the wire. Its caller has `v1` and serde's traits in scope.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident as $wire:ident { $($word:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($word),+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$word),+];

            pub fn to_wire(self) -> i32 {
                match self { $(Self::$word => v1::$wire::$word.into()),+ }
            }

            pub fn from_wire(number: i32) -> Option<Self> {
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
    Shape as ParallelismLayout { SinglePipeline, UniformGrid, EqualDevices, PerStageReplicas, PerStageMesh }
);
words!(
    /// Whether a stage may take devices of several nodes.
    Spanning as NodeSpanning { Never, WholeNodes, Anywhere }
);
words!(
    /// Pipeline schedule.
    Schedule as Schedule { Gpipe, OneFOneB, Pipedream }
);
words!(
    /// What the backward pass recomputes.
    Recompute as RecomputePolicy { None, Stage, Layer }
);
words!(
    /// What the replicas of a stage divide.
    Sharding as StateSharding { None, Optimizer }
);
words!(
    /// Whether devices compute while they send to the stages next to them and receive from them.
    CommunicationOverlap as CommunicationOverlap { On, Off }
);
words!(
    /// What peaks are compared as.
    Unit as MemoryUnit { Bytes, Share }
);

impl Objective {
    pub fn is_timed(self) -> bool {
        matches!(self, Self::MinIterationTime | Self::Pareto)
    }

    pub fn is_maximum(self) -> bool {
        matches!(self, Self::MaxBatch | Self::MaxModel)
    }

    /// Whether any devices may be left out.
    pub fn chooses_devices(self) -> bool {
        matches!(self, Self::MinDevices | Self::MinCost)
    }
}

impl Shape {
    /// Whether a stage may have these data and tensor degrees where any other one has those of `like`.
    pub fn allows(self, degrees: (u32, u32), like: (u32, u32)) -> bool {
        match self {
            Self::UniformGrid => degrees == like,
            Self::EqualDevices => degrees.0 * degrees.1 == like.0 * like.1,
            Self::PerStageReplicas => degrees.1 == 1,
            Self::SinglePipeline => degrees == (1, 1),
            Self::PerStageMesh => true,
        }
    }

    /// Whether every plan of `other` is one of this shape.
    pub fn includes(self, other: Self) -> bool {
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
