//! The options of `loadmaster plan recommend`, under the headings of its help.

use clap::Args;
use loadmaster_proto::wire::v1;

use crate::input::parse::{self, Devices, NamedFramework, choice};

/// Where the plan is to run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Devices")]
pub(super) struct On {
    /// Devices in pipeline order, all on one node: `COUNTxBYTES[:KIND]`, separated by commas.
    #[arg(long, value_name = "DEVICES", required_unless_present = "cluster", conflicts_with = "cluster")]
    pub(super) devices: Option<Devices>,

    /// Cluster with its nodes and links: `clusters/ID` or the id alone.
    #[arg(long, value_name = "CLUSTER", value_parser = parse::cluster)]
    pub(super) cluster: Option<String>,

    /// Profiles of the same model on the other kinds of devices of the cluster.
    #[arg(long, value_name = "PROFILES", value_delimiter = ',', value_parser = parse::profile)]
    pub(super) other_profiles: Vec<String>,

    /// Hourly price of a kind of device: `KIND=PRICE`; may be repeated [default: the cluster's].
    #[arg(long = "price", value_name = "KIND=PRICE", value_parser = price)]
    pub(super) prices: Vec<(String, f64)>,

    /// Devices that no plan may use: `NODE` or `NODE/INDEX`, separated by commas.
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', conflicts_with = "devices")]
    pub(super) exclude: Vec<String>,

    /// Let devices stay idle where a plan without them is better.
    #[arg(long)]
    pub(super) allow_idle_devices: bool,

    /// Whether a stage may take devices of several nodes [default: never; anywhere for uniform-grid].
    #[arg(long, value_parser = choice::<v1::NodeSpanning>())]
    pub(super) spanning: Option<v1::NodeSpanning>,
}

/// What is asked for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Goal")]
pub(super) struct Goal {
    /// What the plan should be best at [default: min-peak-memory; min-iteration-time where memory actions are chosen].
    #[arg(long, value_parser = choice::<v1::Objective>())]
    pub(super) objective: Option<v1::Objective>,

    /// What kinds of stages it may mix [default: what the framework runs, else single-pipeline].
    #[arg(long, value_parser = choice::<v1::ParallelismLayout>())]
    pub(super) shape: Option<v1::ParallelismLayout>,

    /// Training framework that is to run the plan, with its version behind an @; restricts shape, stage boundaries,
    /// schedules and recomputation. `plan export --list` lists them; `other` is a program of your own, which can train
    /// every plan.
    #[arg(long, alias = "launcher", value_name = "FRAMEWORK[@VERSION]", value_parser = parse::framework)]
    pub(super) framework: Option<NamedFramework>,

    /// The version of the framework, as releases before 0.1 took it.
    #[arg(
        long = "launcher-version",
        alias = "framework-version",
        hide = true,
        value_name = "VERSION",
        requires = "framework"
    )]
    pub(super) framework_version: Option<String>,

    /// Whether devices compute while they exchange with the stages next to them [default: as the framework does,
    /// or what fits runs on their kind better].
    #[arg(long, value_parser = choice::<v1::CommunicationOverlap>())]
    pub(super) communication_overlap: Option<v1::CommunicationOverlap>,

    /// Compare peaks as bytes, or as shares of each device's capacity.
    #[arg(long, value_parser = choice::<v1::MemoryUnit>())]
    pub(super) memory_unit: Option<v1::MemoryUnit>,

    /// For max-model: profiles of the models to choose from, separated by commas.
    #[arg(long, value_name = "PROFILES", value_delimiter = ',', value_parser = parse::profile,
          conflicts_with = "profile")]
    pub(super) candidate_profiles: Vec<String>,
}

/// How it is trained, and what may be chosen of that.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(super) struct Batch {
    /// Samples of one pass of a whole stage [default: the profile's target; objectives in time choose it].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    pub(super) micro_batch_size: Option<i32>,

    /// Number of micro-batches per iteration [default: the profile's target; objectives in time choose it].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub(super) micro_batches: Option<i32>,

    /// Samples of one iteration [default: micro-batch size × micro-batches].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub(super) global_batch: Option<i64>,

    /// Micro-batch sizes to choose from, separated by commas.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', conflicts_with = "micro_batch_size",
          value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    pub(super) micro_batch_sizes: Vec<i32>,

    /// Order of the passes, or several to choose from [default: the profile's].
    #[arg(long, value_parser = choice::<v1::Schedule>(), value_delimiter = ',')]
    pub(super) schedule: Vec<v1::Schedule>,

    /// Stages that each device has in turn, interleaved under 1f1b (Megatron's virtual pipeline stages) [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=64))]
    pub(super) virtual_stages: Option<i32>,

    /// What is computed again, or several policies to choose from [default: the profile's].
    #[arg(long, value_parser = choice::<v1::RecomputePolicy>(), value_delimiter = ',')]
    pub(super) recompute: Vec<v1::RecomputePolicy>,

    /// Let each stage choose its own policy out of --recompute.
    #[arg(long, requires = "recompute")]
    pub(super) recompute_per_stage: bool,
}

/// What restricts it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Constraints")]
pub(super) struct Limits {
    /// Data degrees that a stage may have, separated by commas [default: any].
    #[arg(long, value_name = "DEGREES", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) data_degrees: Vec<i32>,

    /// Tensor degrees that a stage may have, powers of two, separated by commas [default: any].
    #[arg(long, value_name = "DEGREES", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) tensor_degrees: Vec<i32>,

    /// Fewest stages.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) min_stages: Option<i32>,

    /// Most stages.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) max_stages: Option<i32>,

    /// Put a layer on a device: `LAYER@NODE/INDEX`, or `LAYER@POSITION` in --devices; may be repeated.
    #[arg(long = "pin", value_name = "LAYER@DEVICE", value_parser = pin)]
    pub(super) pins: Vec<v1::LayerPin>,

    /// Never cut within these layers: `FIRST..LAST`, both included; may be repeated.
    #[arg(long, value_name = "LAYERS", value_parser = layers)]
    pub(super) keep_together: Vec<v1::LayerRange>,

    /// Cut after these layers, separated by commas.
    #[arg(long, value_name = "LAYERS", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(0..))]
    pub(super) cut_after: Vec<i32>,

    /// Longest iteration, for example 1.5s or 800ms.
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    pub(super) max_iteration: Option<std::time::Duration>,

    /// Most predicted bytes of any device, besides its capacity.
    #[arg(long, value_name = "BYTES", value_parser = parse::some_bytes)]
    pub(super) max_peak: Option<i64>,

    /// Share of the predicted bytes that must stay free, for example 5% [default: the predictor's own
    /// margin]. 0 keeps nothing free.
    #[arg(long, value_name = "SHARE", value_parser = parse::share)]
    pub(super) margin: Option<f64>,
}

/// How it is searched, and what is told besides.
#[derive(Debug, Args)]
#[command(next_help_heading = "Search")]
pub(super) struct Search {
    /// What computes the predictions [default: the best one that the profile has what it takes for].
    #[arg(long, value_parser = choice::<v1::PredictorKind>())]
    pub(super) predictor: Option<v1::PredictorKind>,

    /// Multiply predictions with what trials and reports on the same kind of device taught.
    #[arg(long)]
    pub(super) correct: bool,

    /// How to search: exactly, or as a paper did.
    #[arg(long, value_parser = choice::<v1::SearchMode>())]
    pub(super) search_mode: Option<v1::SearchMode>,

    /// Seed of search modes that draw lots.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub(super) search_seed: Option<i64>,

    /// End the search after this time with its best plan and the optimality gap, at most 1h [default: 10s]. From 2s on, the
    /// planner also improves an unproven plan and its bound. Above 50s the search is an operation: progress is shown, and Ctrl-C
    /// cancels it.
    #[arg(long, alias = "deadline", value_name = "DURATION", value_parser = parse::duration)]
    pub(super) search_time: Option<std::time::Duration>,

    /// How many of the next-best plans to store and list, up to 20 [default: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=20))]
    pub(super) alternatives: Option<i32>,

    /// Leave out baselines and the cost of restrictions.
    #[arg(long)]
    pub(super) brief: bool,

    /// Cut only between this many groups of layers, which CAPTURE's merger makes; for models that are too
    /// long to search layer by layer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) merge_layers_to: Option<i32>,
}

/// `KIND=PRICE`; a kind may have equals signs.
fn price(text: &str) -> Result<(String, f64), String> {
    let wrong = || "write KIND=PRICE, for example \"NVIDIA H200=4.50\"".to_owned();
    let (kind, price) = text.rsplit_once('=').ok_or_else(wrong)?;
    let price: f64 = price.trim().parse().map_err(|_| wrong())?;
    let is_price = price.is_finite() && price >= 0.0;
    if kind.trim().is_empty() || !is_price { Err(wrong()) } else { Ok((kind.trim().to_owned(), price)) }
}

/// `LAYER@DEVICE`.
fn pin(text: &str) -> Result<v1::LayerPin, String> {
    let wrong = || "write LAYER@NODE/INDEX or LAYER@POSITION, for example 0@node1/0".to_owned();
    let (layer, device) = text.split_once('@').ok_or_else(wrong)?;
    let layer: i32 = layer.trim().parse().map_err(|_| wrong())?;
    if layer < 0 || device.trim().is_empty() {
        return Err(wrong());
    }
    Ok(v1::LayerPin { layer, device: device.trim().to_owned() })
}

/// `FIRST..LAST`, both included.
fn layers(text: &str) -> Result<v1::LayerRange, String> {
    let wrong = || "write FIRST..LAST, both included, for example 3..5".to_owned();
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<i32>().ok().filter(|&layer| layer >= 0).ok_or_else(wrong);
    Ok(v1::LayerRange { first_layer: number(first)?, last_layer: number(last)? })
}
