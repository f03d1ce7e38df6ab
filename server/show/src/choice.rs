//! The enums of the protocol for people: which words stand for their values, and what is said about each.

use std::fmt;

use loadmaster_proto::wire::v1;

/// An enum of the protocol whose values are chosen by their words.
pub trait Choice: Copy + Default + Send + Sync + fmt::Debug + 'static {
    /// The values that can be chosen, in the order of `--help`, and what it says about them.
    const ALL: &'static [(Self, &'static str)];

    /// The value's constant in the protocol.
    fn constant(self) -> &'static str;

    /// The value's word: `SEARCH_MODE_AMP_ANNEALING` is `amp-annealing`.
    fn word(self) -> String {
        // The constant of "none" is the prefix of all of them.
        let prefix = Self::default().constant().trim_end_matches("UNSPECIFIED");
        let constant = self.constant();
        match constant.strip_prefix(prefix).unwrap_or(constant) {
            "ONE_F_ONE_B" => "1f1b".to_owned(),
            words => words.to_ascii_lowercase().replace('_', "-"),
        }
    }

    /// The value of a word; none of another one.
    fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().map(|&(value, _)| value).find(|value| value.word() == word)
    }
}

/// The word of a value that can be chosen, by its constant in the protocol; none of another one.
pub fn word_of(constant: &str) -> Option<String> {
    OF_ENUMS.iter().find_map(|of| of(constant))
}

fn word_in<T: Choice>(constant: &str) -> Option<String> {
    T::ALL.iter().map(|&(value, _)| value).find(|value| value.constant() == constant).map(Choice::word)
}

/// Ids with what `--help` says of them. Planners may have more.
pub type Ids = &'static [(&'static str, &'static str)];

/// The frameworks that this release knows of.
pub const FRAMEWORKS: Ids = &[
    ("megatron", "Megatron-LM and Megatron-Core"),
    ("megatron-bridge", "NeMo and Megatron-Bridge"),
    ("torchtitan", "torchtitan"),
    ("torch-pipelining", "torch.distributed.pipelining"),
    ("deepspeed", "DeepSpeed"),
    ("colossal-ai", "Colossal-AI"),
    ("accelerate", "accelerate with Megatron-LM"),
    ("galvatron", "Hetu-Galvatron"),
    ("torchgpipe", "torchgpipe"),
    ("trainer", "Trainer of Hugging Face transformers: data-parallel replicas of the whole model"),
    ("other", "Your own training program. Loadmaster assumes that it can train every plan"),
];

/// The variants of exports that this release knows of.
pub const VARIANTS: Ids = &[
    ("usual", "The usual configuration of the framework"),
    ("hybrid", "Megatron's hybrid model: its layer pattern contains the stage boundaries"),
];

/// The manifests that this release knows of.
pub const MANIFESTS: Ids = &[
    ("torchrun", "The framework's own command on each node"),
    (
        "jobset",
        "A JobSet with a replicated job for each group of equal nodes, or for each node of a rank placement",
    ),
    ("trainjob", "A TrainJob of Kubeflow Trainer 2"),
    ("pytorchjob", "A PyTorchJob of Kubeflow's training operator"),
    ("leaderworkerset", "A LeaderWorkerSet of one group"),
    ("job", "An indexed Job with a headless service"),
    ("ray", "A placement group of Ray with an actor for each rank"),
];

/// What people choose of each enum. Behind `but` is a value that is not chosen.
macro_rules! choices {
    ($($name:path $(, but $other:ident)? { $($value:ident: $help:literal),+ $(,)? })+) => {
        $(
            impl Choice for $name {
                const ALL: &'static [(Self, &'static str)] = &[$((Self::$value, $help)),+];

                fn constant(self) -> &'static str {
                    self.as_str_name()
                }
            }
        )+

        /// Of each enum the word of its constants.
        const OF_ENUMS: &[fn(&str) -> Option<String>] = &[$(word_in::<$name>),+];

        #[test]
        fn every_value_of_the_protocol_can_be_chosen() {
            $(tests::is_whole::<$name>(&[$(<$name>::$other)?]);)+
        }
    };
}

choices! {
    v1::Schedule {
        Gpipe: "All forward passes, then all backward passes",
        OneFOneB: "One forward, one backward (PipeDream-Flush, DAPPLE)",
        Pipedream: "Asynchronous 1F1B without flushes: an optimizer step after every backward pass. Gradients are computed with older weights, so the result differs from synchronous SGD",
    }
    v1::RecomputePolicy {
        None: "Nothing",
        Stage: "Everything inside a stage",
        Layer: "Everything inside a layer",
    }
    v1::StateSharding {
        None: "Nothing: each replica has all states",
        Optimizer: "Optimizer states and fp32 master weights (ZeRO-1, Megatron's distributed optimizer)",
    }
    v1::Precision {
        Fp32: "32-bit everywhere",
        Bf16: "bfloat16 with fp32 master weights and optimizer state",
    }
    v1::ChunkLayout {
        Patrickstar: "The layout of PatrickStar: no padding between tensors, and each rank owns whole chunks",
        Aligned: "The layout of Loadmaster: tensors start at multiples of 64 bytes, and each rank owns a part of every chunk",
    }
    v1::ChunkSizes {
        GridA: "64M to 512M elements in steps of 32M, as in PatrickStar's first version (M: 2^20)",
        GridB: "88M to 312M elements in steps of 32M, as in PatrickStar's last version (M: 2^20)",
        Breakpoints: "Every size that consecutive parameter groups fill exactly. The best of all sizes is one of these",
    }
    v1::MemoryMode {
        Plain: "On the devices, all the time",
        Chunks: "In chunks in CPU memory, which are prefetched to the device and evicted from it. One stage has the whole model",
        Best: "Plain or chunks, whichever is better by the objective. A prediction uses plain if it fits, else chunks",
    }
    v1::MicroBatchOrder {
        MicroBatch: "All layers for one micro-batch, then for the next. With several micro-batches, gradients need additional chunks",
        Layer: "One layer for all micro-batches, then the next layer. A chunk is fetched once for all micro-batches",
    }
    v1::HostParameters {
        Stored: "All parameters in addition to their fp32 copy: 14 bytes per parameter with Adam in bf16",
        Cast: "Only the fp32 copy of the parameters, which is cast during each fetch: 12 bytes per parameter with Adam",
    }
    v1::EmbeddingPlace {
        Chunk: "The embedding table is in a chunk, which is fetched to the device like all other chunks",
        Host: "The embedding table stays in CPU memory. Only the rows of a micro-batch's tokens are copied to the device, also for tied embeddings",
    }
    v1::ActivationPlace {
        Device: "On the device",
        Host: "In CPU memory between a layer's forward pass and its backward pass (activation offloading)",
    }
    v1::ChunkPolicy {
        Loadmaster: "The fastest plan that the planner finds",
        Patrickstar: "Baseline: PatrickStar as published, with its chunk sizes, layout and safety margin",
        Static: "Baseline: all parameters stay on the device for the whole iteration (ZeRO-Offload)",
    }
    // Nobody runs what another program measured.
    v1::ProfilingMode, but Imported {
        PerLayer: "Measure each distinct layer alone: a few runs on one device, valid for every schedule and number of devices",
        PerStage: "Measure separately each distinct stage that CAPTURE's predictor needs. The runs are distributed over all workers",
        WholePipeline: "Measure whole pipelines over all devices (CAPTURE)",
    }
    v1::Parallelism {
        None: "One device per stage. Always measured",
        Data: "Replicas that split the micro-batch",
        Tensor: "Shards that split the tensors",
    }
    v1::run::State {
        Queued: "Waits for a worker",
        Running: "Leased by a worker",
        Succeeded: "Yielded measurements",
        OutOfMemory: "Did not fit",
        Failed: "Failed as often as allowed",
        Cancelled: "Its operation was cancelled",
    }
    // Peaks are of devices.
    v1::MemoryAccounting, but Host {
        Allocated: "Bytes of live tensors, for example `torch.cuda.max_memory_allocated`",
        Reserved: "Bytes that the framework's allocator holds, for example `torch.cuda.max_memory_reserved`",
        Device: "Bytes in use according to the driver, as in `nvidia-smi`",
    }
    v1::PredictorKind {
        Component: "Replays what each layer allocates and frees",
        Capture: "CAPTURE's: isolated and added memory",
        Table: "Sums the tables of an imported profile",
    }
    v1::CommunicationOverlap {
        On: "They do",
        Off: "They wait",
    }
    v1::SimulatedSchedule {
        Gpipe: "All forward, then all backward passes",
        OneFOneB: "One forward, one backward",
        Interleaved: "One forward, one backward, with several virtual pipeline stages per device (Megatron)",
        Pipedream: "One forward, one backward without a pipeline flush between iterations (PipeDream)",
    }
    v1::Objective {
        MinPeakMemory: "Lexicographic min-max of device peaks: the highest first, then the second highest, and so on (CAPTURE)",
        MinIterationTime: "The shortest iteration that fits (AMP, with memory)",
        Pareto: "All plans that no other plan beats in both memory and time",
        MinDevices: "The fewest devices that hold the training",
        MinCost: "The cheapest devices that do",
        MaxBatch: "The largest micro-batch that fits",
        MaxModel: "The model with the most parameters that fits",
    }
    v1::ParallelismLayout {
        SinglePipeline: "One device per stage",
        UniformGrid: "The same DP and TP size for every stage (Megatron, torchtitan, DeepSpeed)",
        EqualDevices: "The same number of devices for every stage, each with its own DP and TP size (Galvatron)",
        PerStageReplicas: "Any number of replicas per stage, no tensor shards (PipeDream)",
        PerStageMesh: "Any DP and TP size per stage (CAPTURE, Alpa)",
    }
    v1::ClusterFormat {
        Loadmaster: "Loadmaster's own format, YAML or JSON: see deploy/clusters/",
        Topograph: "Answer of NVIDIA Topograph's engine `graph`",
        NcclXml: "NCCL's topology: run a job with `NCCL_TOPO_DUMP_FILE=topo.xml`",
        SlurmYaml: "Slurm's topology.yaml",
        SlurmConf: "Slurm's topology.conf, or the output of `scontrol show topology`",
        NvidiaSmi: "Output of `nvidia-smi topo -m`",
    }
    v1::MemoryUnit {
        Bytes: "Bytes",
        Share: "Shares of each device's capacity",
    }
    v1::MemoryOptimizationKind {
        Recompute: "Recomputing layers",
        CpuOffload: "Offloading memory blocks to CPU (host) memory",
        PeerSwap: "Swapping memory blocks to devices of other stages",
    }
    v1::MemoryBlock {
        Activations: "What autograd saved for the backward pass",
        Inputs: "Inputs of recomputed layers",
        Versions: "Stashed weights: older versions of the weights, for micro-batches in flight (PipeDream)",
        Weights: "Parameters",
        Gradients: "Gradients of parameters",
        Optimizer: "State of the optimizer",
    }
    v1::SearchMode {
        Exact: "Exactly, where the space allows",
        Capture: "CAPTURE's enumeration with pruning",
        McapBruteForce: "mCAP's brute force; one device per stage",
        McapBayesian: "mCAP's Bayesian optimisation; one device per stage",
        Amp: "AMP's dynamic program; uniform grids",
        Mpress: "MPress's choice of memory optimizations for the stages of --pipeline-layout, or for those of the fastest pipeline",
        AmpAnnealing: "AMP's dynamic program with simulated annealing over placements; uniform grids",
    }
    v1::NodeSpanning {
        Never: "Never",
        WholeNodes: "Only all devices of each",
        Anywhere: "Any devices that follow each other",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A value that is added to the protocol needs its place here; no two values share a word.
    pub(super) fn is_whole<T: Choice + TryFrom<i32> + Into<i32>>(others: &[T]) {
        let chosen = T::ALL.iter().map(|&(value, _)| value).chain(others.iter().copied());
        let numbers: BTreeSet<i32> = chosen.map(Into::into).collect();
        let known: BTreeSet<i32> = (1..100).filter(|&number| T::try_from(number).is_ok()).collect();
        assert_eq!(numbers, known, "{:?}", T::ALL);
        let words: BTreeSet<String> = T::ALL.iter().map(|(value, _)| value.word()).collect();
        assert_eq!(words.len(), T::ALL.len(), "{words:?}");
        assert!(words.iter().all(|word| !word.contains("unspecified")), "{words:?}");
    }

    /// The manifests and variants are compared where their crate is used: `server/src/rpc/plan/export.rs`.
    #[test]
    fn frameworks_are_those_of_plans() {
        use loadmaster_proto::choice::Choice as _;
        use loadmaster_proto::plan::objective::Framework;

        let ids: Vec<&str> = FRAMEWORKS.iter().map(|&(id, _)| id).collect();
        assert_eq!(ids, Framework::words().collect::<Vec<_>>());
    }

    #[test]
    fn words_are_the_names_of_the_protocol() {
        assert_eq!(v1::Schedule::OneFOneB.word(), "1f1b");
        assert_eq!(v1::ProfilingMode::PerLayer.word(), "per-layer");
        assert_eq!(v1::run::State::OutOfMemory.word(), "out-of-memory");
        assert_eq!(v1::SearchMode::AmpAnnealing.word(), "amp-annealing");
        assert_eq!(word_of("SIMULATED_SCHEDULE_INTERLEAVED").as_deref(), Some("interleaved"));
        assert_eq!(word_of("MEMORY_MODE_CHUNKS").as_deref(), Some("chunks"));
        assert_eq!((word_of("MEMORY_MODE_UNSPECIFIED"), word_of("NO_FEASIBLE_PLAN")), (None, None));
    }
}
