//! What a profile is asked to measure.

pub mod document;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::measure::run::ProfilingMode;
use crate::name::{CommandName, ModelName, ProfileName};
use crate::training::TrainingSpec;
use crate::training::scenario::Scenario;

/// What a profile measures, as its caller asked for it. Its runs follow from this and the model alone, so
/// they can be laid out once more at any time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileSettings {
    /// Its name.
    pub name: ProfileName,
    /// A stored model.
    pub model: ModelName,
    /// Target settings.
    pub training: TrainingSpec,
    /// Which runs.
    pub profiling_mode: ProfilingMode,
    /// Devices that the profiling was laid out for; none where it does not depend on them.
    pub devices: Option<u32>,
    /// How stages are shared among devices, each once, [`Scenario::SINGLE`] first.
    pub scenarios: Vec<Scenario>,
    /// Scenarios of several devices are measured at the largest size alone: their growth with the
    /// micro-batch is taken from single devices (CAPTURE, III-A2).
    pub scale_by_pipeline: bool,
    /// Profiled sizes, ascending. Runs that did not fit may have been made at smaller ones instead.
    pub micro_batch_sizes: Vec<u32>,
    /// A worker's command that trains; none for Loadmaster's rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandName>,
    /// Kind of device to measure on.
    pub device_kind: String,
    /// Measured iterations of a run.
    pub iterations: u32,
    /// Least capacity of a device that may take a run, bytes.
    pub min_capacity: u64,
    /// Hard limit of one attempt of one run, seconds.
    pub deadline_seconds: u32,
    /// Nothing that was measured for other profiles is reused.
    pub fresh: bool,
    /// What was measured while others used the devices is reused too, for its bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reuse_contended: bool,
    /// Bytes of the host that a run in chunks may take, which is made besides; none where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<Bytes>,
}
