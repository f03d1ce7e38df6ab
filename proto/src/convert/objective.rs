//! Objectives, shapes, launchers and the ways to search; a wire value of 0 is none.

use crate::error::Invalid;
use crate::plan::objective::{Launcher, MemoryUnit, NodeSpanning, Objective, PlanShape, SearchMode};
use crate::wire::v1;

/// Both directions between a wire enum and a domain enum.
macro_rules! named {
    ($(#[$doc:meta])* $from_wire:ident: $wire:ident <-> $domain:ident { $($name:ident),+ $(,)? }) => {
        impl From<$domain> for v1::$wire {
            fn from(value: $domain) -> Self {
                match value {
                    $($domain::$name => Self::$name,)+
                }
            }
        }

        $(#[$doc])*
        ///
        /// # Errors
        /// The number is unknown.
        pub fn $from_wire(field: &str, wire: i32) -> Result<Option<$domain>, Invalid> {
            match v1::$wire::try_from(wire) {
                Ok(v1::$wire::Unspecified) => Ok(None),
                $(Ok(v1::$wire::$name) => Ok(Some($domain::$name)),)+
                Err(_) => Err(Invalid::field(field, format!("{wire} is unknown"))),
            }
        }
    };
}

named! {
    /// What a plan should be best at.
    objective_from_wire: Objective <-> Objective {
        MinPeakMemory, MinIterationTime, Pareto, MinDevices, MinCost, MaxBatch, MaxModel,
    }
}

named! {
    /// The shape of plans.
    shape_from_wire: PlanShape <-> PlanShape {
        SinglePipeline, UniformGrid, EqualDevices, PerStageReplicas, PerStageMesh,
    }
}

named! {
    /// The program that is to run a plan.
    launcher_from_wire: Launcher <-> Launcher {
        Megatron, MegatronBridge, Torchtitan, TorchPipelining, Deepspeed, ColossalAi, Accelerate, Galvatron,
        Alpa, Nnscaler, Pipedream, Torchgpipe,
    }
}

named! {
    /// What peaks are compared as.
    memory_unit_from_wire: MemoryUnit <-> MemoryUnit { Bytes, Share }
}

named! {
    /// How to search.
    search_mode_from_wire: SearchMode <-> SearchMode {
        Exact, Capture, McapBruteForce, McapBayesian, Amp, AmpAnnealing,
    }
}

named! {
    /// Whether a stage may take devices of several nodes.
    spanning_from_wire: NodeSpanning <-> NodeSpanning { Never, WholeNodes, Anywhere }
}
