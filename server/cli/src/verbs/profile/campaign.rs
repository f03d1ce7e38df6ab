//! Profiling options of `loadmaster profile run`: the runs, and the devices that they need.

use clap::Args;
use loadmaster_proto::wire::v1;

use crate::input::parse;
use crate::input::parse::{choice, request_id, sent};

/// The runs, and the devices that they need.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profiling")]
pub(crate) struct CampaignArgs {
    /// Which pieces of the model are trained.
    #[arg(long, value_parser = choice::<v1::ProfilingMode>(), default_value = "per-layer")]
    profiling_mode: v1::ProfilingMode,

    /// Number of devices that plans will have. `per-stage` and `whole-pipeline` need it. A `per-layer` profile serves
    /// any number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    device_count: Option<i32>,

    /// Also measure stages on several devices: data parallel, tensor parallel, or both. `none` measures single devices
    /// alone [default: none; with `whole-pipeline` all that the devices allow].
    #[arg(long, value_parser = choice::<v1::Parallelism>(), value_name = "KIND,KIND", value_delimiter = ',')]
    parallelism: Vec<v1::Parallelism>,

    /// Data-parallel or tensor-parallel sizes of these stages, powers of two [default: 2,4].
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(2..))]
    parallel_sizes: Vec<i32>,

    /// Measure these stages at one micro-batch size, and scale them to others as single devices scale. Takes half the
    /// runs.
    #[arg(long)]
    scale_from_single_devices: bool,

    /// One or two micro-batch sizes to measure at [default: the target's and half of it; for `per-stage` and
    /// `whole-pipeline` half and a quarter of it].
    #[arg(long, value_name = "N,N", value_delimiter = ',',
          value_parser = clap::value_parser!(i32).range(1..))]
    profile_micro_batch_sizes: Vec<i32>,

    /// Measured iterations of each run, after one warm-up iteration. Times are medians.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=1000))]
    iterations: i32,

    /// Measure everything anew. Default: stored measurements of other profiles are reused.
    #[arg(long)]
    ignore_stored_runs: bool,

    /// Also reuse measurements from devices that other processes used. Their bytes are exact, and their times too long
    /// [default: measure these anew].
    #[arg(long, conflicts_with = "ignore_stored_runs")]
    reuse_contended: bool,

    /// Kind of device to measure on, as `loadmaster worker show` prints it [default: the first device's].
    #[arg(long, value_name = "KIND")]
    device_kind: Option<String>,

    /// Smallest capacity of a device that may take a run, for example 2GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    min_capacity: Option<i64>,

    /// CPU (host) memory of a worker for one more run, which trains the whole model in chunks. Plans in chunks need it.
    /// For `per-layer`; a worker offers CPU memory with its own `--host-memory`.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    host_memory: Option<i64>,

    /// Time limit of one attempt of a run, for example 10m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse::duration)]
    run_time_limit: std::time::Duration,

    /// Custom profiler that trains instead of Loadmaster's rank. Workers list theirs in their configuration files.
    #[arg(long, value_name = "NAME")]
    custom_profiler: Option<String>,

    /// Id of the new profile: 1 to 63 of a-z, 0-9, '-' [default: derived from the model].
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// UUID that makes a repeated command return the first one's operation.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    request_id: Option<String>,

    /// Check the request, and print how many runs it would take. Nothing is queued.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl CampaignArgs {
    /// The request without its model and training.
    pub(crate) fn request(&self) -> v1::CreateProfileRequest {
        v1::CreateProfileRequest {
            profiling_mode: self.profiling_mode.into(),
            device_count: self.device_count.unwrap_or_default(),
            parallelisms: self.parallelism.iter().map(|&kind| kind.into()).collect(),
            parallel_sizes: self.parallel_sizes.clone(),
            single_device_scaling: self.scale_from_single_devices,
            micro_batch_sizes: self.profile_micro_batch_sizes.clone(),
            iteration_count: self.iterations,
            ignore_stored_runs: self.ignore_stored_runs,
            reuse_contended: self.reuse_contended,
            device_kind: self.device_kind.clone().unwrap_or_default(),
            min_capacity_bytes: self.min_capacity.unwrap_or_default(),
            host_memory_bytes: self.host_memory.unwrap_or_default(),
            run_time_limit: sent(self.run_time_limit),
            custom_profiler: self.custom_profiler.clone().unwrap_or_default(),
            profile_id: self.id.clone().unwrap_or_default(),
            request_id: request_id(self.request_id.as_ref()),
            validate_only: self.dry_run,
            ..v1::CreateProfileRequest::default()
        }
    }
}
