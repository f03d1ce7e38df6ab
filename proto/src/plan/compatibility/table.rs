//! The table: what requests say with their options, and which of that contradicts what.

/// Declares the settings with the fields that make them.
macro_rules! settings {
    ($($(#[doc = $what:literal])+ $name:ident = $field:literal,)+) => {
        /// What a request says with one of its options: the option, or some of its values.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Setting {
            $($(#[doc = $what])+ $name,)+
        }

        impl Setting {
            /// All settings.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the field that makes it, as `RecommendPlan` calls it where it has one.
            pub const fn field(self) -> &'static str {
                match self {
                    $(Self::$name => $field),+
                }
            }
        }
    };
}

settings! {
    /// An objective for which named stages leave nothing to choose.
    SearchObjective = "objective.kind",
    /// Another objective than the largest model.
    OtherThanLargestModel = "objective.kind",
    /// The largest of several models, each with a profile.
    LargestOfModels = "objective.kind",
    /// Another objective than the shortest iteration.
    OtherThanFastest = "objective.kind",
    /// Objectives that no training in one stage has: the fewest or cheapest devices, and the front.
    PipelineObjective = "objective.kind",
    /// Peaks as shares of devices.
    MemoryShares = "objective.memory_unit",
    /// A shape other than a single pipeline or a uniform grid.
    UnequalStages = "constraints.parallelism_layout",
    /// A shape whose stages have one device each, where memory actions are chosen.
    SingleDevices = "constraints.parallelism_layout",
    /// A framework that is to run the plan.
    Framework = "problem.framework",
    /// A framework that recomputes alike in all stages.
    AlikeFramework = "problem.framework",
    /// The same of this model.
    AlikeFrameworkOfModel = "problem.framework",
    /// A framework that starts as many processes on every node.
    EvenFramework = "problem.framework",
    /// A framework that counts what it recomputes.
    CountingFramework = "problem.framework",
    /// A framework that has no block away.
    FrameworkWithoutBlocks = "problem.framework",
    /// A framework without chunks.
    FrameworkWithoutChunks = "problem.framework",
    /// A framework whose devices have one stage each.
    FrameworkWithoutTurns = "problem.framework",
    /// A framework that has the published schemes of chunks alone.
    FrameworkAsPublished = "problem.framework",
    /// A framework whose stages do not exchange fp32, and a model in fp32.
    OneStageFramework = "problem.framework",
    /// A search other than exact.
    OtherMode = "search.mode",
    /// A search that chooses no memory actions.
    PlainMode = "search.mode",
    /// MPress's own search.
    MpressMode = "search.mode",
    /// Layers that are merged before the search.
    MergeLayers = "search.layer_group_count",
    /// Stages that are given.
    Partitioning = "constraints.pipeline_layout",
    /// Several stages that are given.
    Pipeline = "constraints.pipeline_layout",
    /// No stages are given, and no memory actions or chunks are chosen.
    NoStages = "constraints.pipeline_layout",
    /// Restrictions that given stages leave no plan to apply to.
    SearchConstraints = "constraints",
    /// Data degrees without 1.
    ManyReplicas = "constraints.data_parallel_sizes",
    /// Tensor degrees without 1.
    ManyShards = "constraints.tensor_parallel_sizes",
    /// Orders of passes to choose from that are not 1F1B alone.
    Schedules = "constraints.schedules",
    /// Fewest stages.
    MinStages = "constraints.min_stage_count",
    /// Two stages or more.
    SeveralStages = "constraints.min_stage_count",
    /// Most stages.
    MaxStages = "constraints.max_stage_count",
    /// Layers behind which the model is cut.
    CutAfter = "constraints.stage_end_layers",
    /// Layers on devices.
    Pins = "constraints.layer_pins",
    /// Whether stages span nodes.
    Spanning = "constraints.node_spanning",
    /// Devices may stay idle.
    IdleDevices = "constraints.allow_idle_devices",
    /// Devices of a cluster that no plan may use.
    ExcludedDevices = "constraints.excluded_devices",
    /// Policies of recomputation to choose from.
    RecomputeChoice = "constraints.recompute",
    /// Each stage has a policy of its own.
    RecomputePerStage = "constraints.recompute_per_stage",
    /// A policy of recomputation.
    Recompute = "problem.recompute",
    /// A policy that the framework has no words for.
    ForeignPolicy = "problem.recompute",
    /// Stages that are recomputed whole, and may have unequal numbers of blocks.
    UnequalRecompute = "problem.recompute",
    /// An order of passes.
    Schedule = "problem.schedule",
    /// An order of passes that the framework does not run.
    ForeignSchedule = "problem.schedule",
    /// An order of passes other than 1F1B.
    OtherThan1f1b = "problem.schedule",
    /// A number of micro-batches.
    MicroBatches = "problem.micro_batch_count",
    /// A size of micro-batches.
    MicroBatchSize = "problem.micro_batch_size",
    /// Several virtual pipeline stages on each device.
    VirtualStages = "problem.virtual_stage_count",
    /// Memory actions of given stages.
    StageActions = "memory.stage_memory_optimizations",
    /// A memory action that the framework cannot do.
    ForeignAction = "memory.stage_memory_optimizations",
    /// Recomputation of given stages that the framework cannot express.
    ForeignRecompute = "memory.stage_memory_optimizations",
    /// Rates of copies.
    CopyRates = "memory.copy_bandwidth",
    /// Memory actions are chosen.
    ChosenActions = "memory.optimizations",
    /// Ways to hold less.
    MemoryWays = "memory.optimizations",
    /// A way to hold less that the framework's exports do not express.
    ForeignWay = "memory.optimizations",
    /// Ways none of which the framework has.
    ForeignWays = "memory.optimizations",
    /// Ways none of which is the host's memory.
    WaysWithoutHost = "memory.optimizations",
    /// Ways in none of which a block leaves.
    WaysWithoutBlocks = "memory.optimizations",
    /// Blocks that may leave.
    MemoryBlocks = "memory.blocks",
    /// A block that the framework never has away.
    ForeignBlock = "memory.blocks",
    /// Blocks none of which leaves devices of interleaved stages.
    PassingBlocks = "memory.blocks",
    /// The smallest block that may leave.
    SmallestBlock = "memory.min_block_bytes",
    /// Memory of the host.
    HostMemory = "memory.host_memory_bytes",
    /// No memory of the host.
    NoHostMemory = "memory.host_memory_bytes",
    /// A training in chunks, alone or compared with one without.
    Chunks = "memory.mode",
    /// A training without chunks.
    Plain = "memory.mode",
    /// A prediction that has nothing of its chunks chosen.
    ChosenByNobody = "memory.mode",
    /// What is fixed of chunks.
    ChunkChoices = "memory.chunk_options",
    /// Chunks that are given whole.
    GivenChunks = "memory.chunked_training",
    /// PatrickStar's policy, as published.
    PatrickstarPolicy = "memory.chunk_options.policy",
    /// Sizes of chunks.
    ChunkSizes = "memory.chunk_options.chunk_elements",
    /// Orders in which micro-batches pass.
    ChunkOrders = "memory.chunk_options.micro_batch_orders",
    /// What the host holds of the parameters.
    HostCopies = "memory.chunk_options.host_parameters",
    /// Where the table of tokens is.
    Embeddings = "memory.chunk_options.embedding_places",
    /// Where activations are.
    ChunkActivations = "memory.chunk_options.activation_places",
    /// Chunks with their state on the device.
    ChunksOnDevice = "memory.chunk_options.resident_chunk_count",
    /// Parameters that the host updates in a second.
    HostUpdate = "memory.cpu_optimizer_rate",
    /// Models that are made of a profiled one.
    Grow = "objective.model_scaling",
    /// Models to choose from.
    CandidateProfiles = "objective.candidate_profiles",
    /// Profiles on other kinds of devices.
    OtherProfiles = "problem.other_profiles",
    /// One profile.
    Profile = "problem.profile",
    /// A profile of another kind than that of the devices.
    ForeignProfile = "problem.profile",
    /// A predictor that knows one model alone.
    ProfiledPredictor = "problem.predictor",
    /// CAPTURE's predictor.
    CapturePredictor = "problem.predictor",
    /// Devices in groups.
    Devices = "problem.devices",
    /// Devices of several kinds or sizes.
    UnlikeDevices = "problem.devices",
    /// Devices of nodes that have different numbers of them.
    UnevenNodes = "problem.devices",
    /// Devices of a stored cluster.
    Cluster = "problem.cluster",
    /// A single stage of a pipeline.
    SoloStage = "stage",
    /// Bytes of every device.
    Capacity = "device_capacity_bytes",
    /// A stored plan that trains in chunks.
    PlansChunks = "plan",
    /// An order of passes that is simulated without virtual stages.
    FlatSchedule = "problem.schedule",
    /// Stages that are tried alone.
    TriedStages = "stage_indices",
    /// Several plans that are tried.
    Candidates = "plan_count",
    /// A campaign that measures layers one by one.
    MinimalCampaign = "profiling_mode",
    /// Another campaign.
    StagesCampaign = "profiling_mode",
    /// A program of the worker's that measures.
    Command = "custom_profiler",
    /// Degrees of a profile.
    ProfiledDegrees = "parallel_sizes",
    /// No parallelism is profiled.
    NoParallelisms = "parallelisms",
    /// Figures that are scaled by those of a pipeline.
    ScaleByPipeline = "scale_from_single_devices",
    /// Disturbed measurements are reused.
    ReuseContended = "reuse_contended",
    /// Everything is measured again.
    Fresh = "ignore_stored_runs",
    /// Nodes one by one.
    Nodes = "nodes",
    /// Nodes as a list.
    NodeList = "node_list",
    /// A setting of Kubernetes.
    KubernetesSetting = "manifest_options",
    /// A manifest for another scheduler.
    OtherManifest = "manifest",
    /// A level of the topology that is required.
    RequiredTopology = "manifest_options.required_topology",
    /// A level of the topology that is preferred.
    PreferredTopology = "manifest_options.preferred_topology",
    /// A level of the topology.
    Topology = "manifest_options",
    /// Nodes of a placement.
    Placement = "placement",
}

impl Setting {
    /// Returns whether it is the lack of something: what contradicts it needs another value of its option.
    pub const fn is_absence(self) -> bool {
        matches!(
            self,
            Self::NoStages
                | Self::NoHostMemory
                | Self::NoParallelisms
                | Self::Plain
                | Self::ChosenByNobody
                | Self::OtherThanLargestModel
                | Self::OtherThanFastest
        )
    }
}

/// Options none of which goes with another one.
#[derive(Debug)]
pub struct Contradiction {
    /// Each of these is refused beside `with`.
    pub options: &'static [Setting],
    /// What they do not go with.
    pub with: Setting,
    /// The reason, which follows the name of the option. `{option}`, `{with}`: what the request says; `{can}`: what would be right.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

const fn contradiction(
    options: &'static [Setting],
    with: Setting,
    why: &'static str,
    remedy: &'static str,
) -> Contradiction {
    Contradiction { options, with, why, remedy }
}

/// What contradicts what.
pub const CONTRADICTIONS: &[Contradiction] = &{
    use Setting::*;
    [
        // Stages that are given.
        contradiction(
            &[SearchObjective, MergeLayers, PlainMode, SearchConstraints],
            Partitioning,
            "restricts a search, and `constraints.pipeline_layout` leaves nothing to search",
            "name one of the two",
        ),
        contradiction(
            &[StageActions, CopyRates],
            NoStages,
            "is of the stages of a partitioning that the request names",
            "name `constraints.pipeline_layout`, too",
        ),
        // Memory actions.
        contradiction(
            &[HostMemory],
            WaysWithoutHost,
            "is of blocks at the host, and `memory.optimizations` has none there",
            "add host, or leave it out",
        ),
        contradiction(
            &[MemoryBlocks, SmallestBlock],
            WaysWithoutBlocks,
            "is of blocks that leave, and `memory.optimizations` has none leave",
            "add host or peer, or leave it out",
        ),
        contradiction(
            &[PlainMode],
            ChosenActions,
            "is one that chooses no memory actions",
            "name exact or mpress, or leave out what may be chosen",
        ),
        contradiction(
            &[Recompute, RecomputeChoice, RecomputePerStage],
            ChosenActions,
            "says what every layer does, and that is to be chosen",
            "leave it out, or the choice of actions",
        ),
        contradiction(
            &[ManyReplicas, ManyShards],
            SingleDevices,
            "leaves out 1, and every stage of a single pipeline has one device",
            "add it, or name a `constraints.parallelism_layout` whose stages may have several",
        ),
        contradiction(
            &[Grow],
            ChosenActions,
            "makes models, of each of which `{with}` has actions searched for, which takes all the time that there is",
            "name `objective.candidate_profiles` instead, or leave out one of the two",
        ),
        contradiction(
            &[StageActions],
            ChosenActions,
            "are given, and `{with}` has others chosen",
            "leave out one of the two",
        ),
        // Chunks.
        contradiction(
            &[MemoryWays, MemoryBlocks, SmallestBlock, StageActions],
            Chunks,
            "is about memory actions, of which those that go with chunks are asked for as `{can}`",
            "leave it out, or `memory.mode`",
        ),
        contradiction(
            &[ChunkChoices, HostUpdate],
            Plain,
            "is about a training in chunks",
            "name `memory.mode` MEMORY_MODE_CHUNKS or MEMORY_MODE_BEST, or leave it out",
        ),
        contradiction(
            &[ChunkChoices, HostMemory, HostUpdate, CopyRates],
            ChosenByNobody,
            "is about a training in chunks that is to be chosen",
            "name `memory.mode` MEMORY_MODE_CHUNKS or MEMORY_MODE_BEST, or leave it out",
        ),
        contradiction(
            &[GivenChunks],
            Plain,
            "says how the model trains in chunks, and `memory.mode` that it does not",
            "leave out one of the two",
        ),
        contradiction(
            &[GivenChunks],
            Chunks,
            "says how the model trains in chunks, and `memory.mode` has that chosen",
            "leave out one of the two, or name what is fixed as `memory.chunk_options`",
        ),
        contradiction(
            &[SoloStage],
            Chunks,
            "is a part of a pipeline, and in chunks one stage trains the whole model",
            "name that as `constraints.pipeline_layout`, or leave out `memory.mode`",
        ),
        contradiction(
            &[CapturePredictor],
            Chunks,
            "is {option}, which knows no chunks",
            "name component or table, or leave it out",
        ),
        contradiction(
            &[VirtualStages],
            Chunks,
            "is of stages that take turns on a device, and a training in chunks is one stage on all of them",
            "leave it out, or `memory.mode`",
        ),
        contradiction(
            &[FrameworkWithoutChunks],
            Chunks,
            "is {option}, which has no chunks or partitions that leave the device",
            "name colossal-ai or deepspeed, or leave out `memory.mode`",
        ),
        contradiction(&[OtherMode], Chunks, "is {option}, which knows no chunks", "leave it out"),
        contradiction(
            &[NoHostMemory],
            Chunks,
            "is 0, and chunks are in the host's memory",
            "name how much of it they may take",
        ),
        contradiction(
            &[MemoryShares],
            Chunks,
            "is a share of each device, and peaks in chunks are told in bytes",
            "leave it out, or `memory.mode`",
        ),
        contradiction(
            &[Pipeline],
            Chunks,
            "is a pipeline, and a training in chunks is planned as one stage of replicas and shards",
            "leave it out, or `memory.mode`",
        ),
        contradiction(
            &[SeveralStages, CutAfter, Pins],
            Chunks,
            "asks for a pipeline, and a training in chunks is planned as one stage of replicas and shards",
            "leave it out, or `memory.mode`",
        ),
        contradiction(
            &[GivenChunks],
            Pipeline,
            "are of one stage with the whole model, and the request has a pipeline",
            "name one stage",
        ),
        contradiction(
            &[UnlikeDevices],
            Chunks,
            "are not alike, and devices that share chunks are",
            "name devices of one size",
        ),
        contradiction(
            &[PipelineObjective],
            Chunks,
            "is {option}, and a training in chunks is planned as one stage",
            "ask for the shortest iteration, the lowest peak, the largest micro-batch or the largest model",
        ),
        contradiction(
            &[ChunkSizes, ChunkOrders, HostCopies, Embeddings, ChunkActivations, ChunksOnDevice],
            PatrickstarPolicy,
            "is decided by the policy {with}",
            "leave it out, or the policy",
        ),
        contradiction(
            &[PatrickstarPolicy],
            OtherThanFastest,
            "is {option}, which has one plan for each model",
            "ask for the shortest iteration, or choose the policy {can}",
        ),
        contradiction(
            &[ChunkOrders, HostCopies, Embeddings, ChunkActivations],
            FrameworkAsPublished,
            "are {option}, and {with} has {can} alone",
            "name that, leave it out, or leave out `problem.framework`",
        ),
        contradiction(
            &[Recompute, MicroBatches, Schedule, MicroBatchSize],
            PlansChunks,
            "is another one than the plan's, whose chunks do not go with it ({with})",
            "leave it out, or have chunks chosen for it by `memory.mode`",
        ),
        // Interleaved stages.
        contradiction(
            &[FrameworkWithoutTurns],
            VirtualStages,
            "is {option}, of which no file says interleaved stages",
            "name {can} or other, or leave it out (`constraints.parallelism_layout` plans a uniform grid), or `problem.virtual_stage_count`",
        ),
        contradiction(
            &[OtherThan1f1b, Schedules],
            VirtualStages,
            "must be 1f1b alone where devices have several stages in turn",
            "name it, or leave `problem.virtual_stage_count` out",
        ),
        contradiction(
            &[OtherMode],
            VirtualStages,
            "is {option}, which knows no interleaved stages",
            "leave it out",
        ),
        contradiction(
            &[UnequalStages],
            VirtualStages,
            "is {option}, and interleaved stages have equally many devices",
            "ask for single-pipeline or uniform-grid",
        ),
        contradiction(
            &[RecomputePerStage, MinStages, MaxStages, Pins, Spanning, IdleDevices],
            VirtualStages,
            "is not known of interleaved stages, of which every device has equally many",
            "leave it out, or `problem.virtual_stage_count`",
        ),
        contradiction(
            &[PassingBlocks],
            VirtualStages,
            "are {option}, none of which leaves a device of interleaved stages",
            "add activations, weights, gradients or optimizer, or let `memory.optimizations` be recompute alone",
        ),
        contradiction(&[MergeLayers], VirtualStages, "is not known of interleaved stages", "leave it out"),
        contradiction(
            &[UnlikeDevices],
            VirtualStages,
            "has devices of several kinds or sizes ({option}), and interleaved stages are planned on equal ones",
            "name devices of one kind, or leave `problem.virtual_stage_count` out",
        ),
        contradiction(
            &[ForeignProfile],
            VirtualStages,
            "is of {option}",
            "of interleaved stages name the profile of the devices' kind first ({can})",
        ),
        contradiction(
            &[UnevenNodes],
            EvenFramework,
            "has nodes of other numbers of devices ({option}), all of which interleaved stages take, and the framework starts as many \
             processes on each",
            "exclude devices, or leave the framework out",
        ),
        // Frameworks.
        contradiction(
            &[ForeignAction],
            Framework,
            "is {option}, which {with} cannot do",
            "it can compute again {can}; leave the action out, or the framework",
        ),
        contradiction(
            &[ForeignRecompute],
            Framework,
            "{option}, and {with} can compute again, for all micro-batches, {can}",
            "change what stages compute again, or leave the framework out",
        ),
        contradiction(
            &[ForeignWays],
            Framework,
            "are to be chosen from, and {with} can do none of them",
            "leave the choice of memory actions out, or the framework",
        ),
        contradiction(
            &[ForeignWay],
            Framework,
            "has {option}, which no export for {with} says",
            "name {can}, or leave the framework out",
        ),
        contradiction(
            &[ForeignBlock],
            FrameworkWithoutBlocks,
            "has {option}, and {with} has no block away",
            "leave it out, or the framework",
        ),
        contradiction(
            &[ForeignBlock],
            Framework,
            "has {option}, which {with} never has away",
            "name {can}, or leave the framework out",
        ),
        contradiction(
            &[HostMemory, SmallestBlock],
            FrameworkWithoutBlocks,
            "is of blocks that are away, and {with} has none",
            "leave it out, or the framework",
        ),
        contradiction(
            &[RecomputePerStage],
            AlikeFramework,
            "is not possible with {with}, which recomputes alike in all stages",
            "leave it out, or name a framework that can ({can})",
        ),
        contradiction(
            &[RecomputePerStage],
            AlikeFrameworkOfModel,
            "is not for {with} of this model, all of whose stages recompute alike",
            "leave it out",
        ),
        contradiction(
            &[MpressMode],
            CountingFramework,
            "is mpress, which chooses layer by layer and slot by slot what {with} cannot say",
            "name exact, or leave the framework out",
        ),
        contradiction(&[ForeignSchedule], Framework, "is {option}, {with} runs {can}", "name one of these"),
        contradiction(
            &[ForeignPolicy],
            Framework,
            "is {option}, and {with} can do {can}",
            "choose from these",
        ),
        contradiction(
            &[UnequalRecompute],
            Framework,
            "is stage, which {with} can say of stages with equally many blocks alone",
            "give such stages (`constraints.pipeline_layout`), choose layer, or let blocks be chosen (`memory.optimizations` recompute)",
        ),
        contradiction(
            &[Pipeline, CutAfter, SeveralStages, VirtualStages],
            OneStageFramework,
            "asks for several stages, and {with} passes bf16 between them, so a model in fp32 is one",
            "profile with `--precision bf16`, or leave it out",
        ),
        // Models and devices.
        contradiction(
            &[Grow],
            OtherThanLargestModel,
            "makes larger models of one",
            "name the objective OBJECTIVE_MAX_MODEL, or leave it out",
        ),
        contradiction(
            &[CandidateProfiles],
            Grow,
            "are models to choose from, and `objective.model_scaling` makes others of one",
            "name one of the two",
        ),
        contradiction(
            &[OtherProfiles],
            Grow,
            "are of the profiled model alone, and `objective.model_scaling` makes others of one",
            "name one of the two",
        ),
        contradiction(
            &[CandidateProfiles],
            OtherThanLargestModel,
            "are models to choose from",
            "name the objective OBJECTIVE_MAX_MODEL, or leave them out",
        ),
        contradiction(
            &[Profile],
            LargestOfModels,
            "is one model, and OBJECTIVE_MAX_MODEL chooses from `objective.candidate_profiles`",
            "leave it out{can}",
        ),
        contradiction(
            &[ProfiledPredictor],
            Grow,
            "is {option}, which knows nothing of larger models than the profiled one",
            "name component, or leave it out",
        ),
        contradiction(
            &[Partitioning],
            Grow,
            "has the layers of one model, and `objective.model_scaling` makes others of it",
            "leave out one of the two",
        ),
        contradiction(&[Devices], Cluster, "and cluster name devices twice", "give one of them"),
        contradiction(
            &[ExcludedDevices],
            Devices,
            "names devices of a cluster, and the request has none",
            "leave them out of devices",
        ),
        contradiction(&[Capacity], Devices, "and devices say the same", "name one of the two"),
        contradiction(&[NodeList], Nodes, "and nodes name nodes twice", "give one of them"),
        // Other requests.
        contradiction(
            &[VirtualStages],
            FlatSchedule,
            "is of SIMULATED_SCHEDULE_INTERLEAVED alone",
            "leave it out, or name that schedule",
        ),
        contradiction(&[TriedStages], Candidates, "are for one plan", "leave out candidates, or stages"),
        contradiction(
            &[ProfiledDegrees],
            NoParallelisms,
            "needs `parallelisms`, too",
            "name data, tensor, or both",
        ),
        contradiction(
            &[MinimalCampaign],
            Command,
            "`per-layer` traces every allocation, which a command cannot",
            "name `stages` or `paper`",
        ),
        contradiction(
            &[HostMemory],
            StagesCampaign,
            "is for the model in chunks, which the profiling mode `per-layer` trains besides",
            "name that, or leave it out",
        ),
        contradiction(
            &[ScaleByPipeline],
            MinimalCampaign,
            "belongs to the profiling modes `whole-pipeline` and `per-stage`",
            "leave it out, since `minimal` measures no stages that could be scaled",
        ),
        contradiction(
            &[ReuseContended],
            Fresh,
            "contradicts `fresh`, which measures everything again",
            "leave out one of the two",
        ),
        contradiction(
            &[KubernetesSetting],
            OtherManifest,
            "is for Kubernetes, and the manifest is {with}",
            "name another manifest, or leave it out",
        ),
        contradiction(
            &[PreferredTopology],
            RequiredTopology,
            "is given with required_topology, and Kueue takes one of them",
            "leave one out",
        ),
        contradiction(
            &[Topology],
            Placement,
            "is given with a placement, which names the nodes",
            "leave one of them out",
        ),
    ]
};
