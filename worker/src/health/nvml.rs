//! A look at GPUs through NVIDIA's management library. What a GPU does not show is left out.

use loadmaster_proto::measure::environment::DeviceSample;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use tracing::warn;

use super::Looks;
use super::judge::{GpuProcess, Look};

/// The library, loaded.
#[derive(Debug)]
pub(super) struct Monitor(Nvml);

impl Monitor {
    pub(super) fn open() -> Option<Self> {
        Nvml::init()
            .inspect_err(|error| warn!("clocks and other users of the GPUs stay unknown: {error}"))
            .ok()
            .map(Self)
    }

    /// Looks at the GPUs of these UUIDs.
    pub(super) fn look(&self, uuids: &[String]) -> Looks {
        let each = uuids.iter().filter_map(|uuid| {
            self.look_at(uuid)
                .inspect_err(|error| warn!(gpu.uuid = uuid, "a GPU shows nothing of itself: {error}"))
                .ok()
                .map(|look| (uuid.clone(), look))
        });
        each.collect()
    }

    fn look_at(&self, uuid: &str) -> Result<Look, NvmlError> {
        let device = self.0.device_by_uuid(uuid)?;
        let reasons = device.current_throttle_reasons().unwrap_or(ThrottleReasons::empty());
        let processes = device.running_compute_processes().unwrap_or_default();
        Ok(Look {
            sample: DeviceSample {
                sm_clock_mhz: device.clock_info(Clock::SM).ok(),
                memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
                temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
                throttle_reasons: reasons.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect(),
            },
            processes: processes
                .into_iter()
                .map(|process| GpuProcess {
                    pid: process.pid,
                    bytes: match process.used_gpu_memory {
                        UsedGpuMemory::Used(bytes) => Some(bytes),
                        UsedGpuMemory::Unavailable => None,
                    },
                })
                .collect(),
        })
    }
}
