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
    /// A shape whose stages have one device each.
    SinglePipeline = "constraints.parallelism_layout",
    /// A shape whose stages have one device each, where memory optimizations are chosen.
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
    /// A search that chooses no memory optimizations.
    PlainMode = "search.mode",
    /// MPress's own search.
    MpressMode = "search.mode",
    /// Layers that are merged before the search.
    MergeLayers = "search.layer_group_count",
    /// Stages that are given.
    Partitioning = "constraints.pipeline_layout",
    /// Several stages that are given.
    Pipeline = "constraints.pipeline_layout",
    /// No stages are given, and no memory optimizations or chunks are chosen.
    NoStages = "constraints.pipeline_layout",
    /// Restrictions that given stages leave no plan to apply to.
    SearchConstraints = "constraints",
    /// Data-parallel sizes without 1.
    ManyReplicas = "constraints.data_parallel_sizes",
    /// Data-parallel size 1 alone.
    OneReplica = "constraints.data_parallel_sizes",
    /// State sharding in every plan.
    OnlySharded = "constraints.state_shardings",
    /// State sharding in some plans.
    Sharded = "constraints.state_shardings",
    /// A state sharding that the framework does not have.
    ForeignSharding = "constraints.state_shardings",
    /// Tensor-parallel sizes without 1.
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
    RecomputeChoice = "constraints.recompute_policies",
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
    /// Memory optimizations of given stages.
    StageActions = "memory.stage_memory_optimizations",
    /// A memory optimization that the framework cannot do.
    ForeignAction = "memory.stage_memory_optimizations",
    /// Recomputation of given stages that the framework cannot express.
    ForeignRecompute = "memory.stage_memory_optimizations",
    /// Rates of copies.
    CopyRates = "memory.copy_bandwidth",
    /// Memory optimizations are chosen.
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
    /// Where the embedding table is.
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
    /// A profile of shards with sequence parallelism, and stages that may have several shards.
    SequenceProfile = "problem.profile",
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
    /// A profiling that measures layers one by one.
    PerLayerProfiling = "profiling_mode",
    /// Another profiling.
    PerStageProfiling = "profiling_mode",
    /// A program of the worker's that measures.
    Command = "custom_profiler",
    /// Degrees of a profile.
    ProfiledDegrees = "parallel_sizes",
    /// No parallelism is profiled.
    NoParallelisms = "parallelisms",
    /// Figures that are scaled by those of a pipeline.
    ScaleByPipeline = "single_device_scaling",
    /// Disturbed measurements are reused.
    ReuseContended = "reuse_contended",
    /// Everything is measured once more.
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

/// Declares the table: options, what they do not go with, the reason and the remedy.
macro_rules! contradictions {
    ($([$($option:ident),+] with $with:ident: $why:literal, $remedy:literal;)+) => {
        /// What contradicts what.
        pub const CONTRADICTIONS: &[Contradiction] = &[$(Contradiction {
            options: &[$(Setting::$option),+],
            with: Setting::$with,
            why: $why,
            remedy: $remedy,
        }),+];
    };
}

contradictions! {
    // Stages that are given.
    [SearchObjective, MergeLayers, PlainMode, SearchConstraints] with Partitioning:
        "applies only to a search for a pipeline layout, but `constraints.pipeline_layout` already sets the layout",
        "Remove one of the two";
    [StageActions, CopyRates] with NoStages:
        "applies to the stages of `constraints.pipeline_layout`, which is not set", "Set `constraints.pipeline_layout`";
    // Memory optimizations.
    [HostMemory] with WaysWithoutHost:
        "allows blocks in CPU memory, but `memory.optimizations` does not contain CPU offload",
        "Add cpu-offload to `memory.optimizations`, or remove this field";
    [MemoryBlocks, SmallestBlock] with WaysWithoutBlocks:
        "selects blocks to offload or swap, but `memory.optimizations` contains neither cpu-offload nor peer-swap",
        "Add cpu-offload or peer-swap to `memory.optimizations`, or remove this field";
    [PlainMode] with ChosenActions:
        "does not choose memory optimizations", "Use exact or mpress, or remove `memory.optimizations`";
    [Recompute, RecomputeChoice, RecomputePerStage] with ChosenActions:
        "sets the memory optimizations of every layer, but the request also lets the planner choose them",
        "Remove this field, or `memory.optimizations`";
    [ManyReplicas, ManyShards] with SingleDevices:
        "does not contain the size 1, but the parallelism layout single-pipeline has one device per stage",
        "Add 1, or set `constraints.parallelism_layout` to a layout with several devices per stage";
    [Grow] with ChosenActions:
        "creates many models, and a search for memory optimizations (`{with}`) for each model takes too long",
        "Use `objective.candidate_profiles` instead, or remove one of the two";
    [StageActions] with ChosenActions:
        "are set, but `{with}` lets the planner choose memory optimizations", "Remove one of the two";
    // State sharding.
    [OnlySharded] with OneReplica:
        "divides states among the replicas of a stage, but `constraints.data_parallel_sizes` allows only one replica",
        "Add none to this field, or larger data-parallel sizes";
    [OnlySharded] with SinglePipeline:
        "divides states among the replicas of a stage, but with the parallelism layout single-pipeline each stage has one device",
        "Set `constraints.parallelism_layout` to uniform-grid, or add none to this field";
    [Sharded] with PlainMode:
        "is not supported by this search mode",
        "Set `search.mode` to SEARCH_MODE_EXACT, or remove this field";
    [Sharded] with Chunks:
        "asks for state sharding, which applies only to training without chunks: ranks that share chunks divide all states",
        "Remove the state sharding, or `memory.mode`";
    [SequenceProfile] with Framework:
        "is of a training with sequence parallelism, which {with} does not support",
        "Use {can}, or set `constraints.tensor_parallel_sizes` to 1";
    [ForeignSharding] with Framework:
        "{option} is not possible with {with}, which supports only {can} with this optimizer",
        "Use {can}, or a framework that shards the states of this optimizer (of Adam: accelerate, deepspeed, megatron)";
    // Chunks.
    [MemoryWays, MemoryBlocks, SmallestBlock, StageActions] with Chunks:
        "applies only to training without chunks. In chunked training, set `{can}` instead",
        "Remove this field, or `memory.mode`";
    [ChunkChoices, HostUpdate] with Plain:
        "applies only to chunked training",
        "Set `memory.mode` to MEMORY_MODE_CHUNKS or MEMORY_MODE_BEST, or remove this field";
    [ChunkChoices, HostMemory, HostUpdate, CopyRates] with ChosenByNobody:
        "applies only to chunked training for which the planner chooses the chunks",
        "Set `memory.mode` to MEMORY_MODE_CHUNKS or MEMORY_MODE_BEST, or remove this field";
    [GivenChunks] with Plain:
        "sets the chunks of the model, but `memory.mode` excludes chunked training", "Remove one of the two";
    [GivenChunks] with Chunks:
        "sets the chunks of the model, but `memory.mode` lets the planner choose them",
        "Remove one of the two fields. To fix only some options of the chunks, set `memory.chunk_options`";
    [SoloStage] with Chunks:
        "is one stage of a pipeline, but in chunked training one stage has the whole model",
        "Set one stage with all layers in `constraints.pipeline_layout`, or remove `memory.mode`";
    [CapturePredictor] with Chunks:
        "{option} does not support chunked training",
        "The predictors component and table support chunked training. Use one of them, or remove this field";
    [VirtualStages] with Chunks:
        "sets virtual pipeline stages, but chunked training has one stage on all devices",
        "Remove this field, or `memory.mode`";
    [FrameworkWithoutChunks] with Chunks:
        "{option} does not support chunked training", "Use colossal-ai or deepspeed, or remove `memory.mode`";
    [OtherMode] with Chunks:
        "{option} does not support chunked training", "Remove this field";
    [NoHostMemory] with Chunks:
        "0 leaves no CPU memory for chunks", "Set the bytes that chunks may use";
    [MemoryShares] with Chunks:
        "compares peaks as shares of device capacity, but chunked training supports only bytes",
        "Remove this field, or `memory.mode`";
    [Pipeline] with Chunks:
        "is a pipeline, but chunked training has one stage with data and tensor parallelism",
        "Remove this field, or `memory.mode`";
    [SeveralStages, CutAfter, Pins] with Chunks:
        "requires a pipeline, but chunked training has one stage with data and tensor parallelism",
        "Remove this field, or `memory.mode`";
    [GivenChunks] with Pipeline:
        "apply to one stage with the whole model, but the request has a pipeline", "Use a layout with one stage";
    [UnlikeDevices] with Chunks:
        "have different memory sizes, but devices that share chunks need equal sizes", "Use devices of one size";
    [PipelineObjective] with Chunks:
        "{option} does not support chunked training, which has one stage",
        "Minimize the iteration time or the peak memory, or maximize the micro-batch size or the model size";
    [ChunkSizes, ChunkOrders, HostCopies, Embeddings, ChunkActivations, ChunksOnDevice] with PatrickstarPolicy:
        "is fixed by the policy {with}", "Remove this field, or the policy";
    [PatrickstarPolicy] with OtherThanFastest:
        "the chunk policy {option} determines the whole plan, so it supports no other objective than the shortest \
         iteration",
        "Minimize the iteration time, or use the policy {can}";
    [ChunkOrders, HostCopies, Embeddings, ChunkActivations] with FrameworkAsPublished:
        "{option} is not supported by {with}, which supports only {can}",
        "Use {can}, or remove this field or `problem.framework`";
    [Recompute, MicroBatches, Schedule, MicroBatchSize] with PlansChunks:
        "differs from the value in the stored plan, so the plan's chunks are not valid ({with})",
        "Remove this field, or let the planner choose chunks with `memory.mode`";
    // Interleaved stages.
    [FrameworkWithoutTurns] with VirtualStages:
        "Loadmaster cannot export virtual pipeline stages to {option}",
        "Use {can} or `other`, or remove `problem.virtual_stage_count`. You can also remove this field, and set \
         `constraints.parallelism_layout` to uniform-grid for equal stages";
    [OtherThan1f1b, Schedules] with VirtualStages:
        "is not 1f1b, but virtual pipeline stages need 1F1B", "Use 1f1b, or remove `problem.virtual_stage_count`";
    [OtherMode] with VirtualStages:
        "{option} does not support virtual pipeline stages", "Remove this field";
    [UnequalStages] with VirtualStages:
        "{option} is not possible: with virtual pipeline stages all stages must have equally many devices",
        "Use single-pipeline or uniform-grid";
    [RecomputePerStage, MinStages, MaxStages, Pins, Spanning, IdleDevices] with VirtualStages:
        "is not supported with virtual pipeline stages, which use all devices and place equally many stages on each",
        "Remove this field, or `problem.virtual_stage_count`";
    [PassingBlocks] with VirtualStages:
        "{option} cannot be offloaded or swapped with virtual pipeline stages",
        "Add activations, weights, gradients or optimizer to this field, or set `memory.optimizations` to recompute only";
    [MergeLayers] with VirtualStages:
        "does not apply to virtual pipeline stages", "Remove this field";
    [UnlikeDevices] with VirtualStages:
        "has devices of several kinds or sizes ({option}), but virtual pipeline stages need equal devices",
        "Use devices of one kind, or remove `problem.virtual_stage_count`";
    [ForeignProfile] with VirtualStages:
        "is a profile of {option}",
        "Virtual pipeline stages need a profile measured on the requested kind of device. Set this field to {can}";
    [UnevenNodes] with EvenFramework:
        "has nodes with different numbers of devices ({option}). Virtual pipeline stages use all devices, but the \
         framework starts the same number of processes on every node",
        "Exclude devices, or remove `problem.framework`";
    // Frameworks.
    [ForeignAction] with Framework:
        "{option} is not supported by {with}",
        "The framework can only recompute {can}. Remove this memory optimization, or `problem.framework`";
    [ForeignRecompute] with Framework:
        "{option}, but the framework {with} recomputes the same layers in all micro-batches. {with} can recompute only \
         {can}",
        "Change the recomputed layers of the stages, or remove `problem.framework`";
    [ForeignWays] with Framework:
        "lists memory optimizations to choose from, but {with} supports none of them",
        "Remove `memory.optimizations`, or remove `problem.framework`";
    [ForeignWay] with Framework:
        "{option} cannot be expressed in the exported files of {with}", "Use {can}, or remove `problem.framework`";
    [ForeignBlock] with FrameworkWithoutBlocks:
        "{option} is not possible: {with} cannot offload or swap blocks", "Remove this field, or remove `problem.framework`";
    [ForeignBlock] with Framework:
        "{option} cannot be offloaded or swapped by {with}", "Use {can}, or remove `problem.framework`";
    [HostMemory, SmallestBlock] with FrameworkWithoutBlocks:
        "applies to offloaded and swapped blocks, but {with} cannot offload or swap blocks",
        "Remove this field, or remove `problem.framework`";
    [RecomputePerStage] with AlikeFramework:
        "is not possible with {with}, which has one recompute policy for all stages",
        "Remove this field, or use a framework that supports it ({can})";
    [RecomputePerStage] with AlikeFrameworkOfModel:
        "is not possible with {with}, which has one recompute policy for all stages of this model", "Remove this field";
    [MpressMode] with CountingFramework:
        "the search mode mpress chooses recompute and swap per layer and micro-batch, which {with} does not support",
        "Use exact, or remove `problem.framework`";
    [ForeignSchedule] with Framework:
        "{option} is not supported by {with}, which supports {can}", "Use one of these";
    [ForeignPolicy] with Framework:
        "{option} is not supported by {with}, which supports {can}", "Use some of these";
    [UnequalRecompute] with Framework:
        "the recompute policy `stage` is possible with {with} only if all stages have equally many transformer blocks",
        "Set stages with equally many blocks in `constraints.pipeline_layout`, or use the policy `layer`. Or set \
         `memory.optimizations` to recompute, so that the planner chooses the blocks to recompute";
    [Pipeline, CutAfter, SeveralStages, VirtualStages] with OneStageFramework:
        "requires several stages, but {with} sends bf16 activations between stages, so a model in fp32 can have only one stage",
        "Profile the model in bf16, or remove this field";
    // Models and devices.
    [Grow] with OtherThanLargestModel:
        "applies only to the objective OBJECTIVE_MAX_MODEL",
        "Use OBJECTIVE_MAX_MODEL as objective, or remove this field";
    [CandidateProfiles] with Grow:
        "lists models to choose from, but `objective.model_scaling` derives all models from one profiled model",
        "Remove one of the two";
    [OtherProfiles] with Grow:
        "apply only to the profiled model, but `objective.model_scaling` changes that model", "Remove one of the two";
    [CandidateProfiles] with OtherThanLargestModel:
        "lists models to choose from, but only the objective OBJECTIVE_MAX_MODEL chooses a model",
        "Use OBJECTIVE_MAX_MODEL as objective, or remove this field";
    [Profile] with LargestOfModels:
        "names one model, but OBJECTIVE_MAX_MODEL chooses a model from `objective.candidate_profiles`",
        "Remove this field{can}";
    [ProfiledPredictor] with Grow:
        "the predictor {option} predicts only the profiled model, not a larger one",
        "Use component, or remove this field";
    [Partitioning] with Grow:
        "splits the layers of the profiled model, but `objective.model_scaling` changes that model",
        "Remove one of the two";
    [Devices] with Cluster:
        "is set, but the cluster also sets the devices", "Remove one of the two";
    [ExcludedDevices] with Devices:
        "names devices of a cluster, but the request has no cluster",
        "Reduce `problem.devices` instead, or set `problem.cluster`";
    [Capacity] with Devices:
        "is set, but `problem.devices` also sets the capacity of each device", "Remove one of the two";
    [NodeList] with Nodes:
        "is set, but `nodes` also sets the nodes", "Remove one of the two";
    // Other requests.
    [VirtualStages] with FlatSchedule:
        "applies only to SIMULATED_SCHEDULE_INTERLEAVED", "Remove this field, or set that schedule";
    [TriedStages] with Candidates:
        "apply to one plan, but several plans are requested", "Remove the number of plans, or the stages";
    [ProfiledDegrees] with NoParallelisms:
        "is set, but `parallelisms` is not", "Set data, tensor, or both";
    [PerLayerProfiling] with Command:
        "is not possible in the profiling mode `per-layer`, which needs allocation traces",
        "Use the profiling mode `per-stage` or `whole-pipeline`";
    [HostMemory] with PerStageProfiling:
        "applies to chunked training, which only the profiling mode `per-layer` measures",
        "Use that mode, or remove this field";
    [ScaleByPipeline] with PerLayerProfiling:
        "applies only to the profiling modes `whole-pipeline` and `per-stage`",
        "Remove this field: the mode `per-layer` does not measure whole stages";
    [ReuseContended] with Fresh:
        "contradicts `ignore_stored_runs`, which measures everything anew", "Remove one of the two";
    [KubernetesSetting] with OtherManifest:
        "applies only to Kubernetes, but the manifest is {with}", "Use another manifest, or remove this field";
    [PreferredTopology] with RequiredTopology:
        "is set together with required_topology, but Kueue accepts only one of the two", "Remove one of the two";
    [Topology] with Placement:
        "selects nodes by topology, but a placement already assigns every rank to a node", "Remove one of the two";
}
