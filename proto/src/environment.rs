//! The software and the device behind a measurement.

use serde::{Deserialize, Serialize};

/// What a measurement depends on besides what was measured. Texts are empty where nobody knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Kind of device.
    pub device_kind: String,
    /// libtorch version of Loadmaster's rank; empty where a command measured.
    pub libtorch_version: String,
    /// CUDA version.
    pub cuda_version: String,
    /// Driver version.
    pub driver_version: String,
    /// Loadmaster version.
    pub loadmaster_version: String,
    /// Threads that libtorch computed with; 0 where nobody knows.
    pub threads: u32,
    /// The worker's command that measured; empty for Loadmaster's own rank.
    #[serde(default)]
    pub command: String,
    /// Framework of that command, as its script says: `torch`.
    #[serde(default)]
    pub framework: String,
    /// Version of the framework.
    #[serde(default)]
    pub framework_version: String,
    /// The GPU just before the run; none on CPU slots.
    #[serde(default)]
    pub before: Option<DeviceSample>,
    /// The GPU just after the run; none on CPU slots.
    #[serde(default)]
    pub after: Option<DeviceSample>,
    /// Somebody else used the GPU before or after the run: times, and bytes of the device ledger, are not
    /// this run's alone.
    #[serde(default)]
    pub contended: bool,
}

/// A GPU at one moment, as its driver shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSample {
    /// Clock of the multiprocessors, megahertz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory, megahertz.
    pub memory_clock_mhz: Option<u32>,
    /// Temperature of the chip, degrees Celsius.
    pub temperature_celsius: Option<u32>,
    /// Why clocks are lower than they could be, in NVML's words: `sw_power_cap`, `hw_thermal_slowdown`. A
    /// GPU without work is `gpu_idle`.
    pub throttle_reasons: Vec<String>,
}
