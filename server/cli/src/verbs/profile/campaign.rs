//! What `loadmaster profile run` measures, and on what.

use clap::Args;
use loadmaster_proto::wire::v1;

use crate::input::parse;
use crate::input::parse::{choice, request_id, sent};

/// What is measured, and on what.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profiling")]
pub(crate) struct CampaignArgs {
    /// Which runs the profile is made of.
    #[arg(long, value_parser = choice::<v1::ProfilingMode>(), default_value = "per-layer")]
    profiling_mode: v1::ProfilingMode,

    /// Devices of the pipelines that plans will be made for. `per-stage` and `whole-pipeline` need it; `per-layer` serves
    /// any number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    devices: Option<i32>,

    /// Measure stages that several devices share, too: data, tensor, or both; `none` under `whole-pipeline` for
    /// single devices alone [default: all that the devices allow under `whole-pipeline`, none otherwise].
    #[arg(long, value_parser = choice::<v1::Parallelism>(), value_name = "KIND,KIND", value_delimiter = ',')]
    parallelism: Vec<v1::Parallelism>,

    /// How many devices share such a stage, powers of two [default: 2 and 4].
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(2..))]
    degrees: Vec<i32>,

    /// Measure such stages at one micro-batch size, and let them grow as single devices do: half the runs.
    #[arg(long)]
    scale_by_pipeline: bool,

    /// One or two micro-batch sizes to measure at [default: the target's and half of it; for
    /// `per-stage` and `whole-pipeline` half and a quarter of it].
    #[arg(long, value_name = "N,N", value_delimiter = ',',
          value_parser = clap::value_parser!(i32).range(1..))]
    profile_micro_batch_sizes: Vec<i32>,

    /// Measured iterations per run, after one warm-up iteration; seconds are medians over them.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=1000))]
    iterations: i32,

    /// Measure everything again, also what the planner has from other profiles.
    #[arg(long)]
    fresh: bool,

    /// Reuse also what was measured while others used the devices: its bytes are right, its seconds too long
    /// [default: measure that again].
    #[arg(long, conflicts_with = "fresh")]
    reuse_contended: bool,

    /// Kind of device to measure on, as `loadmaster worker show` prints it [default: the first one's].
    #[arg(long, value_name = "KIND")]
    device_kind: Option<String>,

    /// Least capacity of a device that may take a run, for example 2GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    min_capacity: Option<i64>,

    /// Train the whole model in chunks, too, which may take so much of its worker's host: what plans in chunks need besides.
    /// For `minimal`; a worker offers memory of its host with its own `--host-memory`.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    host_memory: Option<i64>,

    /// Hard limit of one attempt of one run, for example 10m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse::duration)]
    run_deadline: std::time::Duration,

    /// A training command that the operator of a worker lists in the worker's configuration; it trains
    /// instead of Loadmaster's rank, and only workers that offer it take the runs.
    #[arg(long, value_name = "NAME")]
    command: Option<String>,

    /// Id of the new profile: 1 to 63 of a-z, 0-9, '-' [default: derived from the model].
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// UUID that makes a repeated command return the first one's operation.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    request_id: Option<String>,

    /// Check everything, and say how many runs it would take, but queue none.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl CampaignArgs {
    /// The request but for its model and training.
    pub(crate) fn request(&self) -> v1::CreateProfileRequest {
        v1::CreateProfileRequest {
            profiling_mode: self.profiling_mode.into(),
            device_count: self.devices.unwrap_or_default(),
            parallelisms: self.parallelism.iter().map(|&kind| kind.into()).collect(),
            parallel_sizes: self.degrees.clone(),
            scale_from_single_devices: self.scale_by_pipeline,
            micro_batch_sizes: self.profile_micro_batch_sizes.clone(),
            iteration_count: self.iterations,
            ignore_stored_runs: self.fresh,
            reuse_contended: self.reuse_contended,
            device_kind: self.device_kind.clone().unwrap_or_default(),
            min_capacity_bytes: self.min_capacity.unwrap_or_default(),
            host_memory_bytes: self.host_memory.unwrap_or_default(),
            run_time_limit: sent(self.run_deadline),
            custom_profiler: self.command.clone().unwrap_or_default(),
            profile_id: self.id.clone().unwrap_or_default(),
            request_id: request_id(self.request_id.as_ref()),
            validate_only: self.dry_run,
            ..v1::CreateProfileRequest::default()
        }
    }
}
