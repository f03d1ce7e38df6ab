//! What a `RunProfileRequest` asks for, checked.

use loadmaster_predict::campaign::default_micro_batch_sizes;
use loadmaster_predict::campaign::runs::scenarios;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::{Invalid, in_range, required};
use loadmaster_proto::measure::run::{ProfilingMode, RunSpec};
use loadmaster_proto::model::Model;
use loadmaster_proto::name::{CommandName, ModelName, ProfileName};
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::Parallelism;
use loadmaster_proto::wire::{field, v1};

use crate::rpc::limits::{MAX_HOST_MEMORY, MAX_PARALLELISMS, count_or, run_seconds};

/// A checked request, but for its subject and device kind.
pub(super) struct Order {
    training: TrainingSpec,
    campaign: ProfilingMode,
    devices: Option<u32>,
    scenarios: Vec<Scenario>,
    scale_by_pipeline: bool,
    micro_batch_sizes: Vec<u32>,
    iterations: u32,
    command: Option<CommandName>,
    min_capacity: u64,
    deadline_seconds: u32,
    fresh: bool,
    reuse_contended: bool,
    host_memory: Option<Bytes>,
}

impl Order {
    /// Checks everything that does not depend on the workers.
    ///
    /// # Errors
    /// Names the field that is missing or wrong.
    pub(super) fn check(request: &v1::CreateProfileRequest, model: &Model) -> Result<Self, Invalid> {
        let training: TrainingSpec = field("training", required("training", request.training)?)?;
        training.check_model(model).map_err(|invalid| invalid.under("training"))?;
        let campaign: Option<ProfilingMode> = field("profiling_mode", request.profiling_mode)?;
        let campaign = campaign.unwrap_or(ProfilingMode::PerLayer);
        if campaign == ProfilingMode::Imported {
            return Err(Invalid::field("profiling_mode", "is what ImportProfile makes: name one that runs"));
        }
        let devices = devices(request.device_count, campaign, model)?;
        let degrees = degrees(&request.parallel_sizes)?;
        let parallelisms = parallelisms(&request.parallelisms)?;
        let scenarios = scenarios(campaign, &parallelisms, &degrees, (model, &training, devices));
        let command: Option<CommandName> = field("custom_profiler", request.custom_profiler.clone())?;
        Settings::default()
            .when(parallelisms.is_empty(), Setting::NoParallelisms)
            .when(!degrees.is_empty(), Setting::ProfiledDegrees)
            .when(command.is_some(), Setting::Command)
            .when(campaign == ProfilingMode::PerLayer, Setting::MinimalCampaign)
            .when(campaign != ProfilingMode::PerLayer, Setting::StagesCampaign)
            .when(request.host_memory_bytes != 0, Setting::HostMemory)
            .when(request.scale_from_single_devices, Setting::ScaleByPipeline)
            .when(request.reuse_contended, Setting::ReuseContended)
            .when(request.ignore_stored_runs, Setting::Fresh)
            .check()
            .map_err(of_profile)?;
        Ok(Self {
            training,
            campaign,
            devices,
            scenarios,
            scale_by_pipeline: request.scale_from_single_devices,
            micro_batch_sizes: micro_batch_sizes(&request.micro_batch_sizes, &training, campaign)?,
            iterations: count_or(
                "iteration_count",
                request.iteration_count,
                RunSpec::DEFAULT_ITERATIONS,
                RunSpec::MAX_ITERATIONS,
            )?,
            command,
            min_capacity: field("min_capacity_bytes", request.min_capacity_bytes)?,
            deadline_seconds: run_seconds(request.run_time_limit)?,
            fresh: request.ignore_stored_runs,
            reuse_contended: request.reuse_contended,
            host_memory: host_memory(request.host_memory_bytes)?,
        })
    }

    /// The settings of the profile.
    pub(super) fn settings(
        self,
        name: ProfileName,
        model: ModelName,
        device_kind: String,
    ) -> ProfileSettings {
        let Self {
            training,
            campaign,
            devices,
            scenarios,
            scale_by_pipeline,
            micro_batch_sizes,
            iterations,
            command,
            min_capacity,
            deadline_seconds,
            fresh,
            reuse_contended,
            host_memory,
        } = self;
        ProfileSettings {
            name,
            model,
            training,
            campaign,
            devices,
            scenarios,
            scale_by_pipeline,
            micro_batch_sizes,
            command,
            device_kind,
            iterations,
            min_capacity,
            deadline_seconds,
            fresh,
            reuse_contended,
            host_memory,
        }
    }
}

/// Violations of rules that plans and profiles share, by the fields of a profile: it has no group of memory options.
fn of_profile(invalid: Invalid) -> Invalid {
    invalid.map(|mut violation| {
        if let Some(field) = violation.field.strip_prefix("memory.") {
            violation.field = field.to_owned();
        }
        violation
    })
}

/// Memory of the host that a run in chunks may take; none where none is made. A command belongs to the other campaigns.
fn host_memory(asked: i64) -> Result<Option<Bytes>, Invalid> {
    let asked: Bytes = field("host_memory_bytes", asked)?;
    if asked.0 == 0 {
        return Ok(None);
    }
    in_range("host_memory_bytes", asked, Bytes(1)..=MAX_HOST_MEMORY).map(Some)
}

/// Devices that the campaign is laid out for, which `per-layer` is not.
fn devices(asked: i32, campaign: ProfilingMode, model: &Model) -> Result<Option<u32>, Invalid> {
    let layers = i32::try_from(model.layers().len()).unwrap_or(i32::MAX);
    let most = match campaign {
        ProfilingMode::PerLayer | ProfilingMode::Imported => {
            return in_range("device_count", asked, 0..=i32::MAX).map(|_| None);
        }
        ProfilingMode::PerStage => layers,
        ProfilingMode::WholePipeline => layers.saturating_mul(Scenario::MAX_DEGREE as i32),
    };
    if asked == 0 {
        let why = "is required: the stages that this profiling mode measures follow from it (`per-layer` needs none)";
        return Err(Invalid::field("device_count", why));
    }
    if campaign == ProfilingMode::PerStage && asked > layers {
        let why = format!("is {asked}, more stages than the model's {layers} layers");
        return Err(Invalid::field("device_count", why));
    }
    in_range("device_count", asked, 1..=most).map(|devices| Some(devices.unsigned_abs()))
}

fn parallelisms(asked: &[i32]) -> Result<Vec<Parallelism>, Invalid> {
    in_range("parallelisms", asked.len(), 0..=MAX_PARALLELISMS)?;
    field("parallelisms", asked.to_vec())
}

fn degrees(asked: &[i32]) -> Result<Vec<u32>, Invalid> {
    let mut degrees = Vec::with_capacity(asked.len().min(8));
    for (index, &degree) in asked.iter().enumerate() {
        let path = format!("parallel_sizes[{index}]");
        let degree = in_range(&path, degree, 2..=Scenario::MAX_DEGREE as i32)?.unsigned_abs();
        if !degree.is_power_of_two() {
            return Err(Invalid::field(path, format!("is {degree}, must be a power of two")));
        }
        if degrees.contains(&degree) {
            return Err(Invalid::field(path, format!("is {degree} for the second time")));
        }
        degrees.push(degree);
    }
    Ok(degrees)
}

fn micro_batch_sizes(
    asked: &[i32],
    training: &TrainingSpec,
    campaign: ProfilingMode,
) -> Result<Vec<u32>, Invalid> {
    if asked.is_empty() {
        return Ok(default_micro_batch_sizes(campaign, training.micro_batch_size));
    }
    let mut sizes = asked
        .iter()
        .enumerate()
        .map(|(index, &size)| {
            in_range(
                &format!("micro_batch_sizes[{index}]"),
                i64::from(size),
                1..=i64::from(TrainingSpec::MAX_MICRO_BATCH_SIZE),
            )
            .map(|size| u32::try_from(size).unwrap_or(1))
        })
        .collect::<Result<Vec<u32>, Invalid>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() != asked.len() || sizes.len() > 2 {
        return Err(Invalid::field("micro_batch_sizes", "must be one or two different sizes"));
    }
    Ok(sizes)
}
