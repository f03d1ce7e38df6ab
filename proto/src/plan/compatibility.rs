//! Options of requests that contradict each other, in one table: checks of requests and helps of commands are made from it.
//!
//! Whoever reads a request tells which [`Setting`]s it makes, with the words of the user ([`Settings`]). A [`Row`] holds choices of which
//! none goes with another one; [`Settings::check`] refuses the first pair of them, in the order of [`ROWS`].

use std::fmt::Display;

use crate::error::Invalid;

/// Declares the choices with the fields that make them.
macro_rules! settings {
    ($($(#[doc = $what:literal])+ $name:ident = $field:literal,)+) => {
        /// What a request says with one of its options: the option, or some of its values.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Setting {
            $($(#[doc = $what])+ $name,)+
        }

        impl Setting {
            /// All choices.
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
    SearchObjective = "objective",
    /// Another objective than the largest model.
    OtherThanLargestModel = "objective",
    /// The largest of several models, each with a profile.
    LargestOfModels = "objective",
    /// Another objective than the shortest iteration.
    OtherThanFastest = "objective",
    /// Objectives that no training in one stage has: the fewest or cheapest devices, and the front.
    PipelineObjective = "objective",
    /// Peaks as shares of devices.
    MemoryShares = "memory_unit",
    /// A shape other than a single pipeline or a uniform grid.
    UnequalStages = "shape",
    /// A shape whose stages have one device each, where memory actions are chosen.
    SingleDevices = "shape",
    /// A framework that is to run the plan.
    Launcher = "launcher",
    /// A framework that recomputes alike in all stages.
    AlikeLauncher = "launcher",
    /// The same of this model.
    AlikeLauncherOfModel = "launcher",
    /// A framework that starts as many processes on every node.
    EvenLauncher = "launcher",
    /// A framework that counts what it recomputes.
    CountingLauncher = "launcher",
    /// A framework that has no block away.
    LauncherWithoutBlocks = "launcher",
    /// A framework without chunks.
    LauncherWithoutChunks = "launcher",
    /// A framework whose devices have one stage each.
    LauncherWithoutTurns = "launcher",
    /// A framework that has the published schemes of chunks alone.
    LauncherAsPublished = "launcher",
    /// A framework whose stages do not exchange fp32, and a model in fp32.
    OneStageLauncher = "launcher",
    /// A search other than exact.
    OtherMode = "search_mode",
    /// A search that chooses no memory actions.
    PlainMode = "search_mode",
    /// MPress's own search.
    MpressMode = "search_mode",
    /// Layers that are merged before the search.
    MergeLayers = "merge_layers_to",
    /// Stages that are given.
    Partitioning = "partitioning",
    /// Several stages that are given.
    Pipeline = "partitioning",
    /// No stages are given, and no memory actions or chunks are chosen.
    NoStages = "partitioning",
    /// Restrictions that given stages leave no plan to apply to.
    SearchConstraints = "constraints",
    /// Data degrees without 1.
    ManyReplicas = "constraints.data_degrees",
    /// Tensor degrees without 1.
    ManyShards = "constraints.tensor_degrees",
    /// Orders of passes to choose from that are not 1F1B alone.
    Schedules = "constraints.schedules",
    /// Fewest stages.
    MinStages = "constraints.min_stages",
    /// Two stages or more.
    SeveralStages = "constraints.min_stages",
    /// Most stages.
    MaxStages = "constraints.max_stages",
    /// Layers behind which the model is cut.
    CutAfter = "constraints.cut_after",
    /// Layers on devices.
    Pins = "constraints.pins",
    /// Whether stages span nodes.
    Spanning = "constraints.spanning",
    /// Devices may stay idle.
    IdleDevices = "constraints.allow_idle_devices",
    /// Devices of a cluster that no plan may use.
    ExcludedDevices = "constraints.excluded_devices",
    /// Policies of recomputation to choose from.
    RecomputeChoice = "constraints.recompute",
    /// Each stage has a policy of its own.
    RecomputePerStage = "constraints.recompute_per_stage",
    /// A policy of recomputation.
    Recompute = "recompute",
    /// A policy that the framework has no words for.
    ForeignPolicy = "recompute",
    /// Stages that are recomputed whole, and may have unequal numbers of blocks.
    UnequalRecompute = "recompute",
    /// An order of passes.
    Schedule = "schedule",
    /// An order of passes that the framework does not run.
    ForeignSchedule = "schedule",
    /// An order of passes other than 1F1B.
    OtherThan1f1b = "schedule",
    /// A number of micro-batches.
    MicroBatches = "micro_batches",
    /// A size of micro-batches.
    MicroBatchSize = "micro_batch_size",
    /// Several virtual pipeline stages on each device.
    VirtualStages = "virtual_stages",
    /// Memory actions of given stages.
    StageActions = "stage_actions",
    /// A memory action that the framework cannot do.
    ForeignAction = "stage_actions",
    /// Recomputation of given stages that the framework cannot express.
    ForeignRecompute = "stage_actions",
    /// Rates of copies.
    CopyRates = "copy_pace",
    /// Memory actions are chosen.
    ChosenActions = "memory_ways",
    /// Ways to hold less.
    MemoryWays = "memory_ways",
    /// A way to hold less that the framework's exports do not express.
    ForeignWay = "memory_ways",
    /// Ways none of which the framework has.
    ForeignWays = "memory_ways",
    /// Ways none of which is the host's memory.
    WaysWithoutHost = "memory_ways",
    /// Ways in none of which a block leaves.
    WaysWithoutBlocks = "memory_ways",
    /// Blocks that may leave.
    MemoryBlocks = "memory_blocks",
    /// A block that the framework never has away.
    ForeignBlock = "memory_blocks",
    /// Blocks none of which leaves devices of interleaved stages.
    PassingBlocks = "memory_blocks",
    /// The smallest block that may leave.
    SmallestBlock = "smallest_block_bytes",
    /// Memory of the host.
    HostMemory = "host_memory_bytes",
    /// No memory of the host.
    NoHostMemory = "host_memory_bytes",
    /// A training in chunks, alone or compared with one without.
    Chunks = "memory_mode",
    /// A training without chunks.
    Plain = "memory_mode",
    /// A prediction that has nothing of its chunks chosen.
    ChosenByNobody = "memory_mode",
    /// What is fixed of chunks.
    ChunkChoices = "chunks",
    /// Chunks that are given whole.
    GivenChunks = "chunks",
    /// PatrickStar's policy, as published.
    PatrickstarPolicy = "chunks.policy",
    /// Sizes of chunks.
    ChunkSizes = "chunks.chunk_elements",
    /// Orders in which micro-batches pass.
    ChunkOrders = "chunks.orders",
    /// What the host holds of the parameters.
    HostCopies = "chunks.host_copies",
    /// Where the table of tokens is.
    Embeddings = "chunks.embeddings",
    /// Where activations are.
    ChunkActivations = "chunks.activations",
    /// Chunks with their state on the device.
    ChunksOnDevice = "chunks.on_device",
    /// Parameters that the host updates in a second.
    HostUpdate = "host_update_rate",
    /// Models that are made of a profiled one.
    Grow = "grow",
    /// Models to choose from.
    CandidateProfiles = "candidate_profiles",
    /// Profiles on other kinds of devices.
    OtherProfiles = "other_profiles",
    /// One profile.
    Profile = "profile",
    /// A profile of another kind than that of the devices.
    ForeignProfile = "profile",
    /// A predictor that knows one model alone.
    ProfiledPredictor = "predictor",
    /// CAPTURE's predictor.
    CapturePredictor = "predictor",
    /// Devices in groups.
    Devices = "devices",
    /// Devices of several kinds or sizes.
    UnlikeDevices = "devices",
    /// Devices of nodes that have different numbers of them.
    UnevenNodes = "devices",
    /// Devices of a stored cluster.
    Cluster = "cluster",
    /// A single stage of a pipeline.
    SoloStage = "stage",
    /// Bytes of every device.
    Capacity = "capacity_bytes",
    /// A stored plan that trains in chunks.
    PlansChunks = "plan",
    /// An order of passes that is simulated without virtual stages.
    FlatSchedule = "schedule",
    /// Stages that are tried alone.
    TriedStages = "stages",
    /// Several plans that are tried.
    Candidates = "candidates",
    /// A campaign that measures layers one by one.
    MinimalCampaign = "campaign",
    /// Another campaign.
    StagesCampaign = "campaign",
    /// A program of the worker's that measures.
    Command = "command",
    /// Degrees of a profile.
    ProfiledDegrees = "degrees",
    /// No parallelism is profiled.
    NoParallelisms = "parallelisms",
    /// Figures that are scaled by those of a pipeline.
    ScaleByPipeline = "scale_by_pipeline",
    /// Disturbed measurements are reused.
    ReuseContended = "reuse_contended",
    /// Everything is measured again.
    Fresh = "fresh",
    /// Nodes one by one.
    Nodes = "nodes",
    /// Nodes as a list.
    NodeList = "node_list",
    /// A setting of Kubernetes.
    KubernetesSetting = "envelope_options",
    /// An envelope for another scheduler.
    OtherEnvelope = "envelope",
    /// A level of the topology that is required.
    RequiredTopology = "envelope_options.required_topology",
    /// A level of the topology that is preferred.
    PreferredTopology = "envelope_options.preferred_topology",
    /// A level of the topology.
    Topology = "envelope_options",
    /// Nodes of a binding.
    Binding = "binding",
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
pub struct Row {
    /// Each of these is refused beside `with`.
    pub options: &'static [Setting],
    /// What they do not go with.
    pub with: Setting,
    /// The reason, which follows the name of the option. `{option}`, `{with}`: what the request says; `{can}`: what would be right.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

const fn row(options: &'static [Setting], with: Setting, why: &'static str, remedy: &'static str) -> Row {
    Row { options, with, why, remedy }
}

/// What contradicts what.
pub const ROWS: &[Row] = &{
    use Setting::*;
    [
        // Stages that are given.
        row(
            &[SearchObjective, MergeLayers, PlainMode, SearchConstraints],
            Partitioning,
            "restricts a search, and `partitioning` leaves nothing to search",
            "name one of the two",
        ),
        row(
            &[StageActions, CopyRates],
            NoStages,
            "is of the stages of a partitioning that the request names",
            "name `partitioning`, too",
        ),
        // Memory actions.
        row(
            &[HostMemory],
            WaysWithoutHost,
            "is of blocks at the host, and `memory_ways` has none there",
            "add host, or leave it out",
        ),
        row(
            &[MemoryBlocks, SmallestBlock],
            WaysWithoutBlocks,
            "is of blocks that leave, and `memory_ways` has none leave",
            "add host or peer, or leave it out",
        ),
        row(
            &[PlainMode],
            ChosenActions,
            "is one that chooses no memory actions",
            "name exact or mpress, or leave out what may be chosen",
        ),
        row(
            &[Recompute, RecomputeChoice, RecomputePerStage],
            ChosenActions,
            "says what every layer does, and that is to be chosen",
            "leave it out, or the choice of actions",
        ),
        row(
            &[ManyReplicas, ManyShards],
            SingleDevices,
            "leaves out 1, and every stage of a single pipeline has one device",
            "add it, or name a `shape` whose stages may have several",
        ),
        row(
            &[Grow],
            ChosenActions,
            "makes models, of each of which `{with}` has actions searched for, which takes all the time that there is",
            "name `candidate_profiles` instead, or leave out one of the two",
        ),
        row(
            &[StageActions],
            ChosenActions,
            "are given, and `{with}` has others chosen",
            "leave out one of the two",
        ),
        // Chunks.
        row(
            &[MemoryWays, MemoryBlocks, SmallestBlock, StageActions],
            Chunks,
            "is about memory actions, of which those that go with chunks are asked for as `{can}`",
            "leave it out, or `memory_mode`",
        ),
        row(
            &[ChunkChoices, HostUpdate],
            Plain,
            "is about a training in chunks",
            "name `memory_mode` MEMORY_MODE_CHUNKS or MEMORY_MODE_BEST, or leave it out",
        ),
        row(
            &[ChunkChoices, HostMemory, HostUpdate, CopyRates],
            ChosenByNobody,
            "is about a training in chunks that is to be chosen",
            "name `memory_mode` MEMORY_MODE_CHUNKS or MEMORY_MODE_BEST, or leave it out",
        ),
        row(
            &[GivenChunks],
            Plain,
            "says how the model trains in chunks, and `memory_mode` that it does not",
            "leave out one of the two",
        ),
        row(
            &[GivenChunks],
            Chunks,
            "says how the model trains in chunks, and `memory_mode` has that chosen",
            "leave out one of the two, or name what is fixed as `chunk_choices`",
        ),
        row(
            &[SoloStage],
            Chunks,
            "is a part of a pipeline, and in chunks one stage trains the whole model",
            "name that as `partitioning`, or leave out `memory_mode`",
        ),
        row(
            &[CapturePredictor],
            Chunks,
            "is {option}, which knows no chunks",
            "name component or table, or leave it out",
        ),
        row(
            &[VirtualStages],
            Chunks,
            "is of stages that take turns on a device, and a training in chunks is one stage on all of them",
            "leave it out, or `memory_mode`",
        ),
        row(
            &[LauncherWithoutChunks],
            Chunks,
            "is {option}, which has no chunks or partitions that leave the device",
            "name colossal-ai or deepspeed, or leave out `memory_mode`",
        ),
        row(&[OtherMode], Chunks, "is {option}, which knows no chunks", "leave it out"),
        row(
            &[NoHostMemory],
            Chunks,
            "is 0, and chunks are in the host's memory",
            "name how much of it they may take",
        ),
        row(
            &[MemoryShares],
            Chunks,
            "is a share of each device, and peaks in chunks are told in bytes",
            "leave it out, or `memory_mode`",
        ),
        row(
            &[Pipeline],
            Chunks,
            "is a pipeline, and a training in chunks is planned as one stage of replicas and shards",
            "leave it out, or `memory_mode`",
        ),
        row(
            &[SeveralStages, CutAfter, Pins],
            Chunks,
            "asks for a pipeline, and a training in chunks is planned as one stage of replicas and shards",
            "leave it out, or `memory_mode`",
        ),
        row(
            &[GivenChunks],
            Pipeline,
            "are of one stage with the whole model, and the request has a pipeline",
            "name one stage",
        ),
        row(
            &[UnlikeDevices],
            Chunks,
            "are not alike, and devices that share chunks are",
            "name devices of one size",
        ),
        row(
            &[PipelineObjective],
            Chunks,
            "is {option}, and a training in chunks is planned as one stage",
            "ask for the shortest iteration, the lowest peak, the largest micro-batch or the largest model",
        ),
        row(
            &[ChunkSizes, ChunkOrders, HostCopies, Embeddings, ChunkActivations, ChunksOnDevice],
            PatrickstarPolicy,
            "is decided by the policy {with}",
            "leave it out, or the policy",
        ),
        row(
            &[PatrickstarPolicy],
            OtherThanFastest,
            "is {option}, which has one plan for each model",
            "ask for the shortest iteration, or choose the policy {can}",
        ),
        row(
            &[ChunkOrders, HostCopies, Embeddings, ChunkActivations],
            LauncherAsPublished,
            "are {option}, and {with} has {can} alone",
            "name that, leave it out, or leave out `launcher`",
        ),
        row(
            &[Recompute, MicroBatches, Schedule, MicroBatchSize],
            PlansChunks,
            "is another one than the plan's, whose chunks do not go with it ({with})",
            "leave it out, or have chunks chosen for it by `memory_mode`",
        ),
        // Interleaved stages.
        row(
            &[LauncherWithoutTurns],
            VirtualStages,
            "is {option}, of which no file says interleaved stages",
            "name {can} or other, or leave it out (`shape` plans a uniform grid), or `virtual_stages`",
        ),
        row(
            &[OtherThan1f1b, Schedules],
            VirtualStages,
            "must be 1f1b alone where devices have several stages in turn",
            "name it, or leave `virtual_stages` out",
        ),
        row(&[OtherMode], VirtualStages, "is {option}, which knows no interleaved stages", "leave it out"),
        row(
            &[UnequalStages],
            VirtualStages,
            "is {option}, and interleaved stages have equally many devices",
            "ask for single-pipeline or uniform-grid",
        ),
        row(
            &[RecomputePerStage, MinStages, MaxStages, Pins, Spanning, IdleDevices],
            VirtualStages,
            "is not known of interleaved stages, of which every device has equally many",
            "leave it out, or `virtual_stages`",
        ),
        row(
            &[PassingBlocks],
            VirtualStages,
            "are {option}, none of which leaves a device of interleaved stages",
            "add activations, weights, gradients or optimizer, or let `memory_ways` be recompute alone",
        ),
        row(&[MergeLayers], VirtualStages, "is not known of interleaved stages", "leave it out"),
        row(
            &[UnlikeDevices],
            VirtualStages,
            "has devices of several kinds or sizes ({option}), and interleaved stages are planned on equal ones",
            "name devices of one kind, or leave `virtual_stages` out",
        ),
        row(
            &[ForeignProfile],
            VirtualStages,
            "is of {option}",
            "of interleaved stages name the profile of the devices' kind first ({can})",
        ),
        row(
            &[UnevenNodes],
            EvenLauncher,
            "has nodes of other numbers of devices ({option}), all of which interleaved stages take, and the launcher starts as many \
             processes on each",
            "exclude devices, or leave the launcher out",
        ),
        // Frameworks.
        row(
            &[ForeignAction],
            Launcher,
            "is {option}, which {with} cannot do",
            "it can compute again {can}; leave the action out, or the launcher",
        ),
        row(
            &[ForeignRecompute],
            Launcher,
            "{option}, and {with} can compute again, for all micro-batches, {can}",
            "change what stages compute again, or leave the launcher out",
        ),
        row(
            &[ForeignWays],
            Launcher,
            "are to be chosen from, and {with} can do none of them",
            "leave the choice of memory actions out, or the launcher",
        ),
        row(
            &[ForeignWay],
            Launcher,
            "has {option}, which no export for {with} says",
            "name {can}, or leave the launcher out",
        ),
        row(
            &[ForeignBlock],
            LauncherWithoutBlocks,
            "has {option}, and {with} has no block away",
            "leave it out, or the launcher",
        ),
        row(
            &[ForeignBlock],
            Launcher,
            "has {option}, which {with} never has away",
            "name {can}, or leave the launcher out",
        ),
        row(
            &[HostMemory, SmallestBlock],
            LauncherWithoutBlocks,
            "is of blocks that are away, and {with} has none",
            "leave it out, or the launcher",
        ),
        row(
            &[RecomputePerStage],
            AlikeLauncher,
            "is not possible with {with}, which recomputes alike in all stages",
            "leave it out, or name a launcher that can ({can})",
        ),
        row(
            &[RecomputePerStage],
            AlikeLauncherOfModel,
            "is not for {with} of this model, all of whose stages recompute alike",
            "leave it out",
        ),
        row(
            &[MpressMode],
            CountingLauncher,
            "is mpress, which chooses layer by layer and slot by slot what {with} cannot say",
            "name exact, or leave the launcher out",
        ),
        row(&[ForeignSchedule], Launcher, "is {option}, {with} runs {can}", "name one of these"),
        row(&[ForeignPolicy], Launcher, "is {option}, and {with} can do {can}", "choose from these"),
        row(
            &[UnequalRecompute],
            Launcher,
            "is stage, which {with} can say of stages with equally many blocks alone",
            "give such stages (`partitioning`), choose layer, or let blocks be chosen (`memory_ways` recompute)",
        ),
        row(
            &[Pipeline, CutAfter, SeveralStages, VirtualStages],
            OneStageLauncher,
            "asks for several stages, and {with} passes bf16 between them, so a model in fp32 is one",
            "profile with `--precision bf16`, or leave it out",
        ),
        // Models and devices.
        row(
            &[Grow],
            OtherThanLargestModel,
            "makes larger models of one",
            "name the objective OBJECTIVE_MAX_MODEL, or leave it out",
        ),
        row(
            &[CandidateProfiles],
            Grow,
            "are models to choose from, and `grow` makes others of one",
            "name one of the two",
        ),
        row(
            &[OtherProfiles],
            Grow,
            "are of the profiled model alone, and `grow` makes others of one",
            "name one of the two",
        ),
        row(
            &[CandidateProfiles],
            OtherThanLargestModel,
            "are models to choose from",
            "name the objective OBJECTIVE_MAX_MODEL, or leave them out",
        ),
        row(
            &[Profile],
            LargestOfModels,
            "is one model, and OBJECTIVE_MAX_MODEL chooses from `candidate_profiles`",
            "leave it out{can}",
        ),
        row(
            &[ProfiledPredictor],
            Grow,
            "is {option}, which knows nothing of larger models than the profiled one",
            "name component, or leave it out",
        ),
        row(
            &[Partitioning],
            Grow,
            "has the layers of one model, and `grow` makes others of it",
            "leave out one of the two",
        ),
        row(&[Devices], Cluster, "and cluster name devices twice", "give one of them"),
        row(
            &[ExcludedDevices],
            Devices,
            "names devices of a cluster, and the request has none",
            "leave them out of devices",
        ),
        row(&[Capacity], Devices, "and devices say the same", "name one of the two"),
        row(&[NodeList], Nodes, "and nodes name nodes twice", "give one of them"),
        // Other requests.
        row(
            &[VirtualStages],
            FlatSchedule,
            "is of SIMULATED_SCHEDULE_INTERLEAVED alone",
            "leave it out, or name that schedule",
        ),
        row(&[TriedStages], Candidates, "are for one plan", "leave out candidates, or stages"),
        row(&[ProfiledDegrees], NoParallelisms, "needs `parallelisms`, too", "name data, tensor, or both"),
        row(
            &[MinimalCampaign],
            Command,
            "`minimal` traces every allocation, which a command cannot",
            "name `stages` or `paper`",
        ),
        row(
            &[HostMemory],
            StagesCampaign,
            "is for the model in chunks, which the campaign `minimal` trains besides",
            "name that, or leave it out",
        ),
        row(
            &[ScaleByPipeline],
            MinimalCampaign,
            "belongs to the campaigns `paper` and `stages`",
            "leave it out, since `minimal` measures no stages that could be scaled",
        ),
        row(
            &[ReuseContended],
            Fresh,
            "contradicts `fresh`, which measures everything again",
            "leave out one of the two",
        ),
        row(
            &[KubernetesSetting],
            OtherEnvelope,
            "is for Kubernetes, and the envelope is {with}",
            "name another envelope, or leave it out",
        ),
        row(
            &[PreferredTopology],
            RequiredTopology,
            "is given with required_topology, and Kueue takes one of them",
            "leave one out",
        ),
        row(&[Topology], Binding, "is given with a binding, which names the nodes", "leave one of them out"),
    ]
};

/// What a request says, as far as rows of the table are about it.
///
/// ```
/// use loadmaster_proto::plan::compatibility::{Setting, Settings};
///
/// let asked = Settings::default().when(true, Setting::VirtualStages).when(true, Setting::Chunks);
/// let refused = asked.check().unwrap_err();
/// assert_eq!(refused.violations()[0].field, "virtual_stages");
/// assert!(refused.to_string().ends_with("leave it out, or `memory_mode`"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    made: Vec<Made>,
}

/// A choice that a request makes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Made {
    choice: Setting,
    /// Where it is not the usual one.
    field: Option<String>,
    says: String,
    can: String,
}

impl Settings {
    /// Adds a choice where the request makes it.
    #[must_use]
    pub fn when(self, is_made: bool, choice: Setting) -> Self {
        if is_made { self.says(choice, "") } else { self }
    }

    /// Adds a choice with what the request says.
    #[must_use]
    pub fn says(self, choice: Setting, says: impl Display) -> Self {
        self.says_instead(choice, says, "")
    }

    /// Adds a choice with what the request says, where it says something.
    #[must_use]
    pub fn says_some(self, choice: Setting, says: Option<impl Display>) -> Self {
        match says {
            Some(says) => self.says(choice, says),
            None => self,
        }
    }

    /// Adds a choice with what the request says, and what would be right instead.
    #[must_use]
    pub fn says_instead(mut self, choice: Setting, says: impl Display, can: impl Display) -> Self {
        let (says, can) = (says.to_string(), can.to_string());
        self.made.push(Made { choice, field: None, says, can });
        self
    }

    /// Names the field of the choice that was added last, where it is not the usual one.
    #[must_use]
    pub fn in_field(mut self, field: impl Into<String>) -> Self {
        if let Some(last) = self.made.last_mut() {
            last.field = Some(field.into());
        }
        self
    }

    /// Checks that no two choices contradict each other.
    ///
    /// # Errors
    /// Names the field of an option that another one excludes: the first by the order of [`ROWS`].
    pub fn check(&self) -> Result<(), Invalid> {
        let made = |choice: Setting| self.made.iter().find(|made| made.choice == choice);
        for row in ROWS {
            let Some(with) = made(row.with) else { continue };
            if let Some(option) = row.options.iter().find_map(|&option| made(option)) {
                let field = option.field.as_deref().unwrap_or(option.choice.field());
                return Err(Invalid::contradiction(field, row.text(option, with)));
            }
        }
        Ok(())
    }
}

impl Row {
    /// Returns the refusal in words: the reason, and what to do.
    fn text(&self, option: &Made, with: &Made) -> String {
        let can = if option.can.is_empty() { &with.can } else { &option.can };
        let text = format!("{}: {}", self.why, self.remedy);
        // Values may have braces of their own, so that each place is filled once.
        let mut told = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            told.push_str(before);
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            told.push_str(match name {
                "option" => &option.says,
                "with" => &with.says,
                _ => can,
            });
            rest = after;
        }
        told + rest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every choice is in a row, no pair is there twice, and each row says why and what to do.
    #[test]
    fn every_choice_has_a_row_and_every_pair_one() {
        let mut pairs = BTreeSet::new();
        for Row { options, with, why, remedy } in ROWS {
            assert!(!why.is_empty() && !remedy.is_empty() && !options.is_empty());
            for option in *options {
                assert_ne!(option, with);
                assert!(pairs.insert(format!("{option:?} {with:?}")), "{option:?} × {with:?} is there twice");
                assert!(
                    !pairs.contains(&format!("{with:?} {option:?}")),
                    "{option:?} × {with:?} is there twice"
                );
            }
        }
        for choice in Setting::ALL {
            let has = |row: &Row| row.with == *choice || row.options.contains(choice);
            assert!(ROWS.iter().any(has), "{choice:?}");
        }
    }

    /// Of all pairs of choices those of the table are refused, by the field of the option, and no others.
    #[test]
    fn pairs_of_the_table_are_refused_and_no_others() {
        for (index, &one) in Setting::ALL.iter().enumerate() {
            for &other in &Setting::ALL[index + 1..] {
                let asked =
                    Settings::default().says_instead(one, "{one}", "").says_instead(other, "{other}", "");
                let refused = asked.check();
                let of =
                    |a: Setting, b: Setting| ROWS.iter().any(|row| row.with == b && row.options.contains(&a));
                match (of(one, other), of(other, one)) {
                    (false, false) => assert_eq!(refused, Ok(())),
                    (is_first, _) => {
                        let field = if is_first { one.field() } else { other.field() };
                        assert_eq!(refused.unwrap_err().violations()[0].field, field);
                    }
                }
            }
        }
    }

    /// Words of users are told as they are, whatever braces they have.
    #[test]
    fn values_are_told_as_they_are() {
        let asked = Settings::default()
            .says_instead(Setting::ForeignWay, "{can}", "host")
            .in_field("memory_ways[1]")
            .says(Setting::Launcher, "megatron");
        let told = asked.check().unwrap_err().to_string();
        let expected = "memory_ways[1]: has {can}, which no export for megatron says: name host, or leave the launcher out";
        assert_eq!(told, expected);
    }
}
