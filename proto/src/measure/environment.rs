//! The software and the device behind a measurement.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::measure::host::CopyCost;
use crate::message;
use crate::wire::v1;

/// What a measurement depends on besides what was measured. Texts are empty where it is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    /// Threads that libtorch computed with; 0 where it is not known.
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
    /// Another process used the GPU before or after the run, or more than a tenth of the cores of CPU slots
    /// during it: times, and bytes of the device accounting, are not this run's alone.
    #[serde(default)]
    pub contended: bool,
    /// Cores that the worker's processes may use; 0 where it is not known.
    #[serde(default)]
    pub cores: u32,
    /// The share of these cores that processes other than the worker's used during the run; none on GPUs.
    #[serde(default)]
    pub others_share: Option<f64>,
    /// The run's ranks had more threads than there are cores, on CPU slots: they waited for each other.
    #[serde(default)]
    pub oversubscribed: bool,
    /// How many times as long a core was busy with an iteration while the host's other slots computed the same, at least 1: they
    /// share caches and memory. Of a stage that was trained alone on a CPU slot beside which others have room; none of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention_slowdown: Option<f64>,
    /// What copies like those of memory optimizations cost it, of the same stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_cost: Option<CopyCost>,
}

impl Environment {
    /// No cores slow each other down as much as this.
    pub const MOST_SLOWDOWN: f64 = 1e3;

    /// What of it must be the same for numbers to be comparable: all but what happened during one run.
    #[must_use]
    pub fn lasting(&self) -> Self {
        Self {
            before: None,
            after: None,
            contended: false,
            others_share: None,
            oversubscribed: false,
            contention_slowdown: None,
            copy_cost: None,
            ..self.clone()
        }
    }
}

/// Ranks on CPU slots that can work at once, each with a core for each of its threads; one in any case. None
/// where the cores or threads are not known.
pub fn ranks_at_once(cores: u32, threads: u32) -> Option<u32> {
    (cores > 0).then(|| cores.checked_div(threads)).flatten().map(|ranks| ranks.max(1))
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

message! {
    Environment <=> v1::Environment {
        device_kind,
        libtorch_version,
        cuda_version,
        driver_version,
        loadmaster_version,
        threads = thread_count,
        command = custom_profiler,
        framework,
        framework_version,
        before = start_sample,
        after = end_sample,
        contended,
        cores = core_count,
        others_share = external_cpu_share,
        oversubscribed,
        contention_slowdown,
        copy_cost,
    } check Environment::checked
}

message! {
    DeviceSample <=> v1::DeviceSample {
        sm_clock_mhz,
        memory_clock_mhz,
        temperature_celsius,
        throttle_reasons,
    }
}

impl Environment {
    fn checked(self) -> Result<Self, Invalid> {
        if let Some(share) = self.others_share {
            in_range("others_share", share, 0.0..=1.0)?;
        }
        self.check_contention()?;
        Ok(self)
    }

    /// Whether what others cost is possible, where it was measured.
    pub(crate) fn check_contention(&self) -> Result<(), Invalid> {
        if let Some(ratio) = self.contention_slowdown {
            in_range("contention_slowdown", ratio, 1.0..=Self::MOST_SLOWDOWN)?;
        }
        self.copy_cost.map_or(Ok(()), |cost| cost.check().map_err(|error| error.under("copy_cost")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_ranks_work_at_once_as_have_a_core_for_each_thread() {
        assert_eq!(ranks_at_once(2, 1), Some(2));
        assert_eq!(ranks_at_once(8, 3), Some(2));
        assert_eq!(ranks_at_once(2, 4), Some(1), "one works in any case");
        assert_eq!(ranks_at_once(0, 1), None);
        assert_eq!(ranks_at_once(4, 0), None);
    }

    #[test]
    fn every_field_survives_the_wire() {
        let sample = |clock: u32| DeviceSample {
            sm_clock_mhz: Some(clock),
            memory_clock_mhz: None,
            temperature_celsius: Some(40),
            throttle_reasons: vec!["sw_power_cap".to_owned()],
        };
        let environment = Environment {
            device_kind: "NVIDIA H200".to_owned(),
            libtorch_version: String::new(),
            cuda_version: "13.0".to_owned(),
            driver_version: "580.1".to_owned(),
            loadmaster_version: "0.1.0".to_owned(),
            threads: 3,
            command: "megatron".to_owned(),
            framework: "torch".to_owned(),
            framework_version: "2.11.0".to_owned(),
            before: Some(sample(1_980)),
            after: Some(sample(1_755)),
            contended: true,
            cores: 8,
            others_share: Some(0.1 + 0.2),
            oversubscribed: true,
            contention_slowdown: Some(1.125),
            copy_cost: Some(CopyCost { bytes_per_second: 1.5e9, core_share: 0.3, contention_slowdown: 1.1 }),
        };
        let wire = v1::Environment::from(environment.clone());
        assert_eq!(Environment::try_from(wire.clone()), Ok(environment));
        let bent = v1::Environment {
            start_sample: Some(v1::DeviceSample { sm_clock_mhz: Some(-1), ..v1::DeviceSample::default() }),
            ..wire
        };
        let error = Environment::try_from(bent).unwrap_err();
        assert_eq!(error.violations()[0].field, "start_sample.sm_clock_mhz");
        for share in [-0.1, 1.5, f64::NAN] {
            let bent = v1::Environment { external_cpu_share: Some(share), ..v1::Environment::default() };
            let error = Environment::try_from(bent).unwrap_err();
            assert_eq!(error.violations()[0].field, "others_share");
        }
        for ratio in [0.5, f64::INFINITY, f64::NAN] {
            let bent = v1::Environment { contention_slowdown: Some(ratio), ..v1::Environment::default() };
            let error = Environment::try_from(bent).unwrap_err();
            assert_eq!(error.violations()[0].field, "contention_slowdown");
        }
    }
}
