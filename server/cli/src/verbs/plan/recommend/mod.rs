//! `loadmaster plan recommend`.

use clap::Args;
use loadmaster_proto::wire::v1;

use crate::failure::Failure;
use crate::input::choice::choice;
use crate::input::parse::{self, Devices};
use crate::session::client::plans;
use crate::session::context::Context;
use crate::verbs::profile::document::{ProfileRef, profile_or_file};

/// See [`super::Verb::Recommend`].
#[derive(Debug, Args)]
pub(crate) struct Recommend {
    /// The profile behind the predictions: `profiles/ID`, the id alone, or a document (a path that ends with
    /// `.json` or has a slash).
    #[arg(long, value_name = "PROFILE", value_parser = profile_or_file,
          required_unless_present = "candidate_profiles")]
    profile: Option<ProfileRef>,

    #[command(flatten)]
    on: On,

    #[command(flatten)]
    goal: Goal,

    #[command(flatten)]
    batch: Batch,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    search: Search,

    /// Make a plan of this partitioning on all devices in order instead of searching, for example 8-8d2-7t4-7.
    #[arg(long, value_name = "STAGES", value_parser = parse::partitioning)]
    partition: Option<v1::Partitioning>,

    /// Answer without storing the plan.
    #[arg(long)]
    dry_run: bool,
}

/// Where the plan is to run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Devices")]
struct On {
    /// Devices in pipeline order, all on one node: `COUNTxBYTES[:KIND]`, separated by commas.
    #[arg(long, value_name = "DEVICES", required_unless_present = "cluster", conflicts_with = "cluster")]
    devices: Option<Devices>,

    /// Cluster with its nodes and links: `clusters/ID` or the id alone.
    #[arg(long, value_name = "CLUSTER", value_parser = parse::cluster)]
    cluster: Option<String>,

    /// Profiles of the same model on the other kinds of devices of the cluster.
    #[arg(long, value_name = "PROFILES", value_delimiter = ',', value_parser = parse::profile)]
    other_profiles: Vec<String>,

    /// Hourly price of a kind of device: `KIND=PRICE`; may be repeated [default: the cluster's].
    #[arg(long = "price", value_name = "KIND=PRICE", value_parser = price)]
    prices: Vec<(String, f64)>,

    /// Devices that no plan may use: `NODE` or `NODE/INDEX`, separated by commas.
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', conflicts_with = "devices")]
    exclude: Vec<String>,

    /// Let devices stay idle where a plan without them is better.
    #[arg(long)]
    allow_idle_devices: bool,

    /// Whether a stage may take devices of several nodes [default: never; anywhere for uniform-grid].
    #[arg(long, value_parser = choice::<v1::NodeSpanning>())]
    spanning: Option<v1::NodeSpanning>,
}

/// What is asked for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Goal")]
struct Goal {
    /// What the plan should be best at [default: min-peak-memory].
    #[arg(long, value_parser = choice::<v1::Objective>())]
    objective: Option<v1::Objective>,

    /// What kinds of stages it may mix [default: what the launcher runs, else single-pipeline].
    #[arg(long, value_parser = choice::<v1::PlanShape>())]
    shape: Option<v1::PlanShape>,

    /// The program that is to run it; restricts shape, cuts, schedules and recomputation.
    #[arg(long, value_parser = choice::<v1::Launcher>())]
    launcher: Option<v1::Launcher>,

    /// Version of the launcher.
    #[arg(long, value_name = "VERSION", requires = "launcher")]
    launcher_version: Option<String>,

    /// Whether devices compute while they exchange with the stages next to them [default: as the launcher does,
    /// or what fits runs on their kind better].
    #[arg(long, value_parser = choice::<v1::Transfers>())]
    transfers: Option<v1::Transfers>,

    /// Compare peaks as bytes, or as shares of each device's capacity.
    #[arg(long, value_parser = choice::<v1::MemoryUnit>())]
    memory_unit: Option<v1::MemoryUnit>,

    /// For max-model: profiles of the models to choose from, separated by commas.
    #[arg(long, value_name = "PROFILES", value_delimiter = ',', value_parser = parse::profile,
          conflicts_with = "profile")]
    candidate_profiles: Vec<String>,
}

/// How it is trained, and what may be chosen of that.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
struct Batch {
    /// Samples of one pass of a whole stage [default: the profile's target; objectives in time choose it].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    micro_batch_size: Option<i32>,

    /// Stage passes per iteration [default: the profile's target].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000))]
    micro_batches: Option<i32>,

    /// Samples of one iteration [default: micro-batch size × micro-batches].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    global_batch: Option<i64>,

    /// Micro-batch sizes to choose from, separated by commas.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', conflicts_with = "micro_batch_size",
          value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    micro_batch_sizes: Vec<i32>,

    /// Order of the passes, or several to choose from [default: the profile's].
    #[arg(long, value_parser = choice::<v1::Schedule>(), value_delimiter = ',')]
    schedule: Vec<v1::Schedule>,

    /// What is computed again, or several policies to choose from [default: the profile's].
    #[arg(long, value_parser = choice::<v1::RecomputePolicy>(), value_delimiter = ',')]
    recompute: Vec<v1::RecomputePolicy>,

    /// Let each stage choose its own policy out of --recompute.
    #[arg(long, requires = "recompute")]
    recompute_per_stage: bool,
}

/// What restricts it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Constraints")]
struct Limits {
    /// Data degrees that a stage may have, separated by commas [default: any].
    #[arg(long, value_name = "DEGREES", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..))]
    data_degrees: Vec<i32>,

    /// Tensor degrees that a stage may have, powers of two, separated by commas [default: any].
    #[arg(long, value_name = "DEGREES", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..))]
    tensor_degrees: Vec<i32>,

    /// Fewest stages.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    min_stages: Option<i32>,

    /// Most stages.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    max_stages: Option<i32>,

    /// Put a layer on a device: `LAYER@NODE/INDEX`, or `LAYER@POSITION` in --devices; may be repeated.
    #[arg(long = "pin", value_name = "LAYER@DEVICE", value_parser = pin)]
    pins: Vec<v1::LayerPin>,

    /// Never cut within these layers: `FIRST..LAST`, both included; may be repeated.
    #[arg(long, value_name = "LAYERS", value_parser = layers)]
    keep_together: Vec<v1::LayerRange>,

    /// Cut after these layers, separated by commas.
    #[arg(long, value_name = "LAYERS", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(0..))]
    cut_after: Vec<i32>,

    /// Longest iteration, for example 1.5s or 800ms.
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    max_iteration: Option<std::time::Duration>,

    /// Most predicted bytes of any device, besides its capacity.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    max_peak: Option<i64>,

    /// Share of the predicted bytes that must stay free, for example 5% [default: the predictor's own
    /// margin]. 0 keeps nothing free.
    #[arg(long, value_name = "SHARE", value_parser = parse::share)]
    margin: Option<f64>,
}

/// How it is searched, and what is told besides.
#[derive(Debug, Args)]
#[command(next_help_heading = "Search")]
struct Search {
    /// What computes the predictions [default: the best one that the profile has what it takes for].
    #[arg(long, value_parser = choice::<v1::PredictorKind>())]
    predictor: Option<v1::PredictorKind>,

    /// Multiply predictions with what trials and reports on the same kind of device taught.
    #[arg(long)]
    correct: bool,

    /// How to search: exactly, or as a paper did.
    #[arg(long, value_parser = choice::<v1::SearchMode>())]
    search_mode: Option<v1::SearchMode>,

    /// Seed of search modes that draw lots.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    search_seed: Option<i64>,

    /// End the search after this time with the best plan so far and its gap [default: 10s].
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    deadline: Option<std::time::Duration>,

    /// How many of the next-best plans to store and list, up to 20 [default: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=20))]
    alternatives: Option<i32>,

    /// Leave out baselines and the cost of restrictions.
    #[arg(long)]
    brief: bool,

    /// Cut only between this many groups of layers, which CAPTURE's merger makes; for models that are too
    /// long to search layer by layer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    merge_layers_to: Option<i32>,
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

impl Recommend {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let dry_run = self.dry_run;
        let document = self.profile.as_ref().map(ProfileRef::document).transpose()?;
        let profile_document = document.unwrap_or_default();
        let request = v1::RecommendPlanRequest { profile_document, ..self.request() };
        let plan =
            context.client.call(request, async |channel, q| plans(channel).recommend_plan(q).await).await?;
        if dry_run {
            context.remark("dry run: the plan is not stored");
        }
        context.output.print(&plan)
    }

    fn request(self) -> v1::RecommendPlanRequest {
        let Self { profile, on, goal, batch, limits, search, partition, dry_run } = self;
        // One value is the training's; several are there to choose from.
        let one = |values: &[i32]| if let [only] = values { *only } else { 0 };
        let several = |values: Vec<i32>| if values.len() > 1 { values } else { Vec::new() };
        let schedules: Vec<i32> = batch.schedule.into_iter().map(Into::into).collect();
        let policies: Vec<i32> = batch.recompute.into_iter().map(Into::into).collect();
        let constraints = v1::Constraints {
            data_degrees: limits.data_degrees,
            tensor_degrees: limits.tensor_degrees,
            micro_batch_sizes: batch.micro_batch_sizes,
            schedules: several(schedules.clone()),
            recompute: several(policies.clone()),
            recompute_per_stage: batch.recompute_per_stage,
            min_stages: limits.min_stages.unwrap_or_default(),
            max_stages: limits.max_stages.unwrap_or_default(),
            pins: limits.pins,
            keep_together: limits.keep_together,
            cut_after: limits.cut_after,
            excluded_devices: on.exclude,
            spanning: on.spanning.unwrap_or_default().into(),
            max_iteration_seconds: limits.max_iteration.map_or(0.0, |limit| limit.as_secs_f64()),
            max_peak_bytes: limits.max_peak.unwrap_or_default(),
            allow_idle_devices: on.allow_idle_devices,
        };
        v1::RecommendPlanRequest {
            profile: profile.map(ProfileRef::name).unwrap_or_default(),
            devices: on.devices.map(|devices| devices.0).unwrap_or_default(),
            cluster: on.cluster.unwrap_or_default(),
            other_profiles: on.other_profiles,
            hourly_prices: on.prices.into_iter().collect(),
            objective: goal.objective.unwrap_or_default().into(),
            shape: goal.shape.unwrap_or_default().into(),
            launcher: goal.launcher.unwrap_or_default().into(),
            launcher_version: goal.launcher_version.unwrap_or_default(),
            transfers: goal.transfers.unwrap_or_default().into(),
            memory_unit: goal.memory_unit.unwrap_or_default().into(),
            candidate_profiles: goal.candidate_profiles,
            micro_batch_size: batch.micro_batch_size.unwrap_or_default(),
            micro_batches: batch.micro_batches.unwrap_or_default(),
            global_batch_size: batch.global_batch.unwrap_or_default(),
            schedule: one(&schedules),
            recompute: one(&policies),
            constraints: Some(constraints).filter(|constraints| *constraints != v1::Constraints::default()),
            margin: limits.margin,
            predictor: search.predictor.unwrap_or_default().into(),
            correct: search.correct,
            search_mode: search.search_mode.unwrap_or_default().into(),
            search_seed: search.search_seed.unwrap_or_default(),
            search_seconds: search.deadline.map_or(0.0, |deadline| deadline.as_secs_f64()),
            // On the wire 0 is the default.
            alternatives: search.alternatives.map_or(0, |count| if count == 0 { -1 } else { count }),
            brief: search.brief,
            merge_layers_to: search.merge_layers_to.unwrap_or_default(),
            partitioning: partition,
            validate_only: dry_run,
            profile_document: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        recommend: Recommend,
    }

    fn request(options: &str) -> Result<v1::RecommendPlanRequest, clap::Error> {
        let line = format!("x --profile p {options}");
        Line::try_parse_from(line.split_whitespace()).map(|line| line.recommend.request())
    }

    /// Every option reaches the request.
    #[test]
    fn options_become_the_request() {
        let asked = request(
            "--cluster c --other-profiles q,r --price a=1.5 --exclude n1,n2/3 --allow-idle-devices --spanning \
             whole-nodes --objective min-cost --shape equal-devices --launcher galvatron --launcher-version 2 \
             --transfers blocking --memory-unit share --micro-batches 8 --global-batch 64 --micro-batch-sizes 4,8 --schedule gpipe,1f1b \
             --recompute none,layer --recompute-per-stage --data-degrees 1,2 --tensor-degrees 4 --min-stages 2 \
             --max-stages 6 --pin 3@n1/0 --keep-together 1..2 --cut-after 4,5 --max-iteration 800ms --max-peak 1GiB \
             --margin 5% --predictor table --correct --search-mode capture --search-seed 7 --deadline 3s \
             --alternatives 0 --brief --merge-layers-to 12 --dry-run",
        )
        .unwrap();
        let constraints = asked.constraints.clone().unwrap();
        assert_eq!((asked.cluster.as_str(), asked.other_profiles.len()), ("clusters/c", 2));
        assert_eq!(asked.hourly_prices.get("a"), Some(&1.5));
        assert_eq!(asked.objective(), v1::Objective::MinCost);
        assert_eq!(asked.shape(), v1::PlanShape::EqualDevices);
        assert_eq!(asked.launcher(), v1::Launcher::Galvatron);
        assert_eq!(asked.transfers(), v1::Transfers::Blocking);
        assert_eq!((asked.schedule, asked.recompute, constraints.schedules.len()), (0, 0, 2));
        assert_eq!((constraints.max_iteration_seconds, constraints.max_peak_bytes), (0.8, 1 << 30));
        assert_eq!(constraints.pins, [v1::LayerPin { layer: 3, device: "n1/0".to_owned() }]);
        assert_eq!(constraints.keep_together, [v1::LayerRange { first_layer: 1, last_layer: 2 }]);
        assert_eq!((asked.alternatives, asked.search_seconds), (-1, 3.0));
        assert!(asked.correct && asked.brief && asked.validate_only && constraints.recompute_per_stage);
    }

    /// One value settles it, several leave a choice.
    #[test]
    fn one_schedule_is_no_choice() {
        let asked = request("--devices 2x1GiB --schedule 1f1b --recompute stage").unwrap();
        assert_eq!(asked.schedule(), v1::Schedule::OneFOneB);
        assert_eq!(asked.recompute(), v1::RecomputePolicy::Stage);
        assert_eq!(asked.constraints, None);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for wrong in [
            "",
            "--devices 2x1GiB --cluster c",
            "--devices 2x1GiB --exclude n1",
            "--devices 2x1GiB --pin 3",
            "--devices 2x1GiB --pin x@0",
            "--devices 2x1GiB --keep-together 3",
            "--devices 2x1GiB --price 3",
            "--devices 2x1GiB --price a=-1",
            "--devices 2x1GiB --micro-batch-size 1 --micro-batch-sizes 1,2",
            "--devices 2x1GiB --recompute-per-stage",
            "--devices 2x1GiB --alternatives 21",
            "--devices 2x1GiB --candidate-profiles a,b",
        ] {
            assert!(request(wrong).is_err(), "{wrong:?}");
        }
    }
}
