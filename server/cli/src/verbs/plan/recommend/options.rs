//! The options of `loadmaster plan recommend`, under the headings of its help. The short help has the twelve that most commands have.
//!
//! The names of the fields are those of the options, so that an error tells an option from a field of the request file.

use clap::Args;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::{MemoryOptimizationKind, ParallelismLayout};

use crate::input::parse::{self, Devices, Gpus, NamedFramework, StageCounts, choice};
use crate::input::training::copy_pace;

/// Where the plan runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Devices")]
pub(super) struct DeviceOptions {
    /// GPUs by kind, all on one node, in pipeline order: `8xH100`, or `4xH100,4xA100-80`. The planner has a catalog of kinds with
    /// their usable memory.
    #[arg(long, value_name = "COUNTxKIND", required_unless_present_any = ["devices", "cluster", "file"],
          conflicts_with_all = ["devices", "cluster"])]
    pub(super) gpus: Option<Gpus>,

    /// Devices without a kind of the catalog: `COUNTxBYTES[:KIND]`, separated by commas, all on one node, in pipeline order.
    #[arg(long, value_name = "DEVICES", conflicts_with = "cluster")]
    pub(super) devices: Option<Devices>,

    /// Cluster with its nodes and links: `clusters/ID` or the id alone.
    #[arg(long, value_name = "CLUSTER", value_parser = parse::cluster)]
    pub(super) cluster: Option<String>,

    /// Profiles of the same model on the other device kinds.
    #[arg(long, value_name = "PROFILES", value_delimiter = ',', value_parser = parse::profile, hide_short_help = true)]
    pub(super) other_profiles: Vec<String>,

    /// Hourly price of a device kind: `KIND=PRICE`; may be repeated [default: the prices of the cluster].
    #[arg(long = "hourly-price", value_name = "KIND=PRICE", value_parser = price, hide_short_help = true)]
    pub(super) hourly_price: Vec<(String, f64)>,

    /// Allow plans that leave devices idle.
    #[arg(long, hide_short_help = true)]
    pub(super) allow_idle_devices: bool,
}

/// What the plan is best at, and what runs it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Objective")]
pub(super) struct ObjectiveArgs {
    /// Objective [default: min-peak-memory; min-iteration-time if memory optimizations are chosen].
    #[arg(long, value_parser = choice::<v1::Objective>())]
    pub(super) objective: Option<v1::Objective>,

    /// Parallelism layout: which stages a plan may mix [default: the layout of the framework, else single-pipeline].
    #[arg(long, value_parser = choice::<ParallelismLayout>())]
    pub(super) layout: Option<ParallelismLayout>,

    /// Training framework that runs the plan, and its version after an @. It restricts layouts, stage boundaries, schedules and
    /// recomputation. `plan export --list` prints all frameworks; `other` is your own program, which can train every plan.
    #[arg(long, value_name = "FRAMEWORK[@VERSION]", value_parser = parse::framework)]
    pub(super) framework: Option<NamedFramework>,

    /// Whether P2P transfers between stages overlap with computation [default: as in the framework, or as fits measured runs].
    #[arg(long, value_parser = choice::<v1::CommunicationOverlap>(), hide_short_help = true)]
    pub(super) communication_overlap: Option<v1::CommunicationOverlap>,
}

/// How the model is trained.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(super) struct TrainingOptions {
    /// Samples of a micro-batch of a whole stage, which its replicas share; or several sizes to choose from, separated by commas
    /// [default: the target of the profile; objectives in time choose it].
    #[arg(long, alias = "mbs", value_name = "SIZES", value_delimiter = ',',
          value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    pub(super) micro_batch_size: Vec<i32>,

    /// Number of micro-batches per iteration [default: the target of the profile; objectives in time choose it].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000), hide_short_help = true)]
    pub(super) micro_batches: Option<i32>,

    /// Samples per iteration [default: micro-batch size × number of micro-batches].
    #[arg(long, aliases = ["gbs", "global-batch"], value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub(super) global_batch_size: Option<i64>,

    /// Pipeline schedule, or several to choose from [default: that of the profile].
    #[arg(long, value_parser = choice::<v1::Schedule>(), value_delimiter = ',', hide_short_help = true)]
    pub(super) schedule: Vec<v1::Schedule>,

    /// Virtual pipeline stages per device of an interleaved 1f1b schedule, as in Megatron-LM [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=64), hide_short_help = true)]
    pub(super) virtual_stages: Option<i32>,

    /// Activation recomputation, or several policies to choose from [default: that of the profile].
    #[arg(long, value_parser = choice::<v1::RecomputePolicy>(), value_delimiter = ',')]
    pub(super) recompute: Vec<v1::RecomputePolicy>,
}

/// What a plan must satisfy.
#[derive(Debug, Args)]
#[command(next_help_heading = "Constraints")]
pub(super) struct ConstraintOptions {
    /// Tensor-parallel sizes that a stage may have, powers of two, separated by commas [default: any].
    #[arg(long, visible_alias = "tp", aliases = ["tensor-parallel-size", "tensor-model-parallel-size"], value_name = "SIZES",
          value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..), hide_short_help = true)]
    pub(super) tensor_parallel_sizes: Vec<i32>,

    /// Data-parallel sizes that a stage may have, separated by commas [default: any].
    #[arg(long, visible_alias = "dp", alias = "data-parallel-size", value_name = "SIZES", value_delimiter = ',',
          value_parser = clap::value_parser!(i32).range(1..), hide_short_help = true)]
    pub(super) data_parallel_sizes: Vec<i32>,

    /// States that the replicas of a stage divide, or several choices to search: none, optimizer (ZeRO-1, Megatron's distributed
    /// optimizer) [default: none].
    #[arg(long, value_parser = choice::<v1::StateSharding>(), value_delimiter = ',',
          hide_short_help = true)]
    pub(super) state_sharding: Vec<v1::StateSharding>,

    /// Number of stages, or a range: `4`, `2..8`, `2..` [default: any].
    #[arg(long, visible_alias = "pp", aliases = ["pipeline-parallel-size", "pipeline-model-parallel-size"],
          value_name = "STAGES", hide_short_help = true)]
    pub(super) pipeline_parallel_sizes: Option<StageCounts>,

    /// Plan exactly these stages on all devices in order, without a search: the layers of each, for example 8-8d2-7t4-7.
    /// Suffixes of a stage: d (data-parallel size), t (tensor-parallel size), s (sequence parallelism), z1 (sharded optimizer states).
    #[arg(long, value_name = "STAGES", value_parser = parse::partitioning, hide_short_help = true)]
    pub(super) pipeline_layout: Option<v1::PipelineLayout>,

    /// Longest iteration, for example 1.5s or 800ms.
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, hide_short_help = true)]
    pub(super) max_iteration_time: Option<std::time::Duration>,

    /// Highest predicted peak memory of any device, besides its capacity.
    #[arg(long, value_name = "BYTES", value_parser = parse::some_bytes, hide_short_help = true)]
    pub(super) max_peak: Option<i64>,

    /// Share of the predicted bytes that must stay free, for example 5% [default: the margin of the predictor].
    #[arg(long, value_name = "SHARE", value_parser = parse::share, hide_short_help = true)]
    pub(super) safety_margin: Option<f64>,
}

/// How stages take less memory.
#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
pub(super) struct MemoryArgs {
    /// Memory optimizations that the planner may choose. It then chooses, for any --objective [default: all that --framework
    /// supports, if --host-memory or --search-mode mpress is set].
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = choice::<MemoryOptimizationKind>(),
          hide_short_help = true)]
    pub(super) optimizations: Vec<MemoryOptimizationKind>,

    /// Where parameters and optimizer states are. In chunks they are in CPU memory: --host-memory limits it, and one stage trains
    /// the whole model on like devices of one node. The best plan is then the fastest, unless --objective is set.
    #[arg(long, value_parser = choice::<v1::MemoryMode>(), hide_short_help = true)]
    pub(super) memory_mode: Option<v1::MemoryMode>,

    /// CPU memory of each host that offloaded blocks or chunks may take [default: none; no limit for --stage-optimization].
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes, hide_short_help = true)]
    pub(super) host_memory: Option<i64>,

    /// Bandwidth of copies to CPU memory and to peer devices: host=12GB/s,peer=92GB/s [default: an estimate per device kind].
    #[arg(long, value_name = "RATES", value_parser = copy_pace, hide_short_help = true)]
    pub(super) copy_rates: Option<v1::CopyBandwidth>,
}

/// How plans are predicted and searched.
#[derive(Debug, Args)]
#[command(next_help_heading = "Search")]
pub(super) struct SearchArgs {
    /// Predictor [default: the most accurate one that the profile supports].
    #[arg(long, value_parser = choice::<v1::PredictorKind>(), hide_short_help = true)]
    pub(super) predictor: Option<v1::PredictorKind>,

    /// Calibrate the predictions with earlier trials and reports of the same device kind.
    #[arg(long, hide_short_help = true)]
    pub(super) calibrate: bool,

    /// Search algorithm: exact, or one of a paper.
    #[arg(long, value_parser = choice::<v1::SearchMode>(), hide_short_help = true)]
    pub(super) search_mode: Option<v1::SearchMode>,

    /// Time after which the search ends with its best plan and the optimality gap, at most 1h [default: 10s]. From 2s on, the
    /// planner also improves an unproven plan and its bound. Above 50s the search is an operation: progress is shown, and Ctrl-C
    /// cancels it.
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, hide_short_help = true)]
    pub(super) search_time: Option<std::time::Duration>,
}

/// `KIND=PRICE`; a kind may have equals signs.
fn price(text: &str) -> Result<(String, f64), String> {
    let wrong = || "write KIND=PRICE, for example \"NVIDIA H200=4.50\"".to_owned();
    let (kind, price) = text.rsplit_once('=').ok_or_else(wrong)?;
    let price: f64 = price.trim().parse().map_err(|_| wrong())?;
    let is_price = price.is_finite() && price >= 0.0;
    if kind.trim().is_empty() || !is_price { Err(wrong()) } else { Ok((kind.trim().to_owned(), price)) }
}
