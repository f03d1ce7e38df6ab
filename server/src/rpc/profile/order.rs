//! What a `RunProfileRequest` asks for, checked.

use loadmaster_predict::profiling::default_micro_batch_sizes;
use loadmaster_predict::profiling::runs::scenarios;
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
    profiling_mode: ProfilingMode,
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
        let profiling_mode: Option<ProfilingMode> = field("profiling_mode", request.profiling_mode)?;
        let profiling_mode = profiling_mode.unwrap_or(ProfilingMode::PerLayer);
        if profiling_mode == ProfilingMode::Imported {
            return Err(Invalid::field(
                "profiling_mode",
                "only set by ImportProfile. Use another profiling mode.",
            ));
        }
        let devices = devices(request.device_count, profiling_mode, model)?;
        let degrees = degrees(&request.parallel_sizes)?;
        let parallelisms = parallelisms(&request.parallelisms)?;
        let scenarios = scenarios(profiling_mode, &parallelisms, &degrees, (model, &training, devices));
        let command: Option<CommandName> = field("custom_profiler", request.custom_profiler.clone())?;
        Settings::default()
            .when(parallelisms.is_empty(), Setting::NoParallelisms)
            .when(!degrees.is_empty(), Setting::ProfiledDegrees)
            .when(command.is_some(), Setting::Command)
            .when(profiling_mode == ProfilingMode::PerLayer, Setting::PerLayerProfiling)
            .when(profiling_mode != ProfilingMode::PerLayer, Setting::PerStageProfiling)
            .when(request.host_memory_bytes != 0, Setting::HostMemory)
            .when(request.single_device_scaling, Setting::ScaleByPipeline)
            .when(request.reuse_contended, Setting::ReuseContended)
            .when(request.ignore_stored_runs, Setting::Fresh)
            .check()
            .map_err(of_profile)?;
        Ok(Self {
            training,
            profiling_mode,
            devices,
            scenarios,
            scale_by_pipeline: request.single_device_scaling,
            micro_batch_sizes: micro_batch_sizes(&request.micro_batch_sizes, &training, profiling_mode)?,
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
            profiling_mode,
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
            profiling_mode,
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

/// Devices of the profiling mode; `per-layer` has none.
fn devices(asked: i32, profiling_mode: ProfilingMode, model: &Model) -> Result<Option<u32>, Invalid> {
    let layers = i32::try_from(model.layers().len()).unwrap_or(i32::MAX);
    let most = match profiling_mode {
        ProfilingMode::PerLayer | ProfilingMode::Imported => {
            return in_range("device_count", asked, 0..=i32::MAX).map(|_| None);
        }
        ProfilingMode::PerStage => layers,
        ProfilingMode::WholePipeline => layers.saturating_mul(Scenario::MAX_DEGREE as i32),
    };
    if asked == 0 {
        let why = "required, because it decides which stages this profiling mode measures. PROFILING_MODE_PER_LAYER needs \
                   none.";
        return Err(Invalid::field("device_count", why));
    }
    if profiling_mode == ProfilingMode::PerStage && asked > layers {
        let why = format!("{asked} is more than the model's {layers} layers. Use at most that many.");
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
            return Err(Invalid::field(path, format!("{degree} is not a power of two. Use 2, 4, 8, ….")));
        }
        if degrees.contains(&degree) {
            return Err(Invalid::field(path, format!("{degree} is present twice. Name each size once.")));
        }
        degrees.push(degree);
    }
    Ok(degrees)
}

fn micro_batch_sizes(
    asked: &[i32],
    training: &TrainingSpec,
    profiling_mode: ProfilingMode,
) -> Result<Vec<u32>, Invalid> {
    if asked.is_empty() {
        return Ok(default_micro_batch_sizes(profiling_mode, training.micro_batch_size));
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
        let why = "not valid. Use one micro-batch size, or two different micro-batch sizes.";
        return Err(Invalid::field("micro_batch_sizes", why));
    }
    Ok(sizes)
}
