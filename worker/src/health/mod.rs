//! Whether a run's devices are its own, and in what state they were: looked at before and after each run.
//!
//! A GPU that someone else computes on gives wrong times, and wrong bytes in the device accounting. Such a run
//! is handed back unless the operator allows it, and then its measurements say so. What a look means
//! is decided in [`judge`]; [`Monitor`] only looks.
//!
//! The cores of CPU slots are everybody's, and someone always uses a little of them: no run is handed back,
//! and its measurements say how much others used ([`cores`]).

mod cores;
mod judge;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use loadmaster_proto::cluster::device::{Backend, Device};
use loadmaster_proto::measure::environment::{DeviceSample, Environment};
use loadmaster_proto::measure::failure::RunFailure;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use tokio::time::timeout;
use tracing::warn;

use crate::run::{Outcome, handed_back};
use cores::{Cores, Usage};
use judge::{GpuProcess, Look};

/// Longest wait for a driver. A healthy one answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the driver showed of a run's GPUs at one moment, by UUID. Empty on CPU slots.
pub(crate) type Looks = BTreeMap<String, Look>;

/// A run's devices before the run.
#[derive(Debug)]
pub(crate) struct Before {
    gpus: Looks,
    cores: Option<Usage>,
}

#[derive(Debug)]
pub(crate) struct Health {
    monitor: Option<Arc<Monitor>>,
    /// The cores of CPU slots, where some are offered.
    cores: Option<Cores>,
    allow_shared: bool,
}

impl Health {
    pub(crate) fn new(devices: &[Device], allow_shared: bool) -> Self {
        let gpus = devices.iter().any(|device| !device.uuid.is_empty());
        let monitor = if gpus { Monitor::open() } else { None };
        let slots = devices.iter().any(|device| device.backend == Backend::Cpu);
        let cores = if slots { Cores::here() } else { None };
        if slots && cores.is_none() {
            warn!(
                "the kernel does not report which processes use the CPU cores, so contention by other programs is not detected"
            );
        }
        Self { monitor: monitor.map(Arc::new), cores, allow_shared }
    }

    /// What the run's devices look like now, or why the run cannot begin on them.
    pub(crate) async fn before(&self, devices: &[Device]) -> Result<Before, RunFailure> {
        let looks = self.look(devices).await;
        let foreign = judge::foreign(devices, &looks, judge::is_ours);
        if foreign.is_empty() || self.allow_shared {
            if !foreign.is_empty() {
                warn!("a run starts on a GPU that other processes use: {}", judge::describe(&foreign));
            }
            return Ok(Before { gpus: looks, cores: self.usage(devices) });
        }
        Err(handed_back(judge::refusal(&foreign)))
    }

    /// Adds to a run's measurements what its devices looked like before and after it.
    pub(crate) async fn after(&self, devices: &[Device], before: Before, outcome: Outcome) -> Outcome {
        let usage = self.usage(devices);
        let stamp = |environment: &mut Environment| {
            if let Some(cores) = &self.cores {
                cores.stamp(environment, devices, before.cores.as_ref(), usage.as_ref());
            }
        };
        match outcome {
            Outcome::Measured(mut measurements) => {
                let after = self.look(devices).await;
                judge::stamp(&mut measurements, devices, &before.gpus, &after, judge::is_ours);
                measurements.iter_mut().for_each(|measurement| stamp(&mut measurement.environment));
                Outcome::Measured(measurements)
            }
            Outcome::Links(mut links) => {
                let after = self.look(devices).await;
                links.environment.contended =
                    judge::is_contended(devices, &before.gpus, &after, judge::is_ours);
                stamp(&mut links.environment);
                Outcome::Links(links)
            }
            Outcome::Failed(_) | Outcome::Stopped => outcome,
        }
    }

    /// What the cores have done, where the run is on CPU slots. Not beside the daemon's thread: no rank may be
    /// waited for meanwhile, or its time would be counted twice or not at all.
    fn usage(&self, devices: &[Device]) -> Option<Usage> {
        let is_on_slots = devices.iter().any(|device| device.backend == Backend::Cpu);
        self.cores.as_ref().filter(|_| is_on_slots)?.usage()
    }

    async fn look(&self, devices: &[Device]) -> Looks {
        let mut uuids: Vec<String> =
            devices.iter().map(|device| device.uuid.clone()).filter(|uuid| !uuid.is_empty()).collect();
        uuids.sort();
        uuids.dedup();
        let (Some(monitor), false) = (&self.monitor, uuids.is_empty()) else { return Looks::new() };
        let monitor = Arc::clone(monitor);
        // A driver in trouble may not answer, and the daemon has but one thread.
        let looking = tokio::task::spawn_blocking(move || monitor.look(&uuids));
        match timeout(PATIENCE, looking).await {
            Ok(Ok(looks)) => looks,
            Ok(Err(defect)) => {
                warn!("the thread that reads the state of the GPUs failed: {defect}");
                Looks::new()
            }
            Err(_) => {
                warn!("the NVIDIA driver did not answer within {} s", PATIENCE.as_secs());
                Looks::new()
            }
        }
    }
}

/// The library, loaded.
#[derive(Debug)]
struct Monitor(Nvml);

impl Monitor {
    fn open() -> Option<Self> {
        Nvml::init()
            .inspect_err(|error| warn!("clocks and processes of the GPUs cannot be read: {error}"))
            .ok()
            .map(Self)
    }

    /// Looks at the GPUs of these UUIDs.
    fn look(&self, uuids: &[String]) -> Looks {
        let each = uuids.iter().filter_map(|uuid| {
            self.look_at(uuid)
                .inspect_err(|error| warn!(gpu.uuid = uuid, "the state of a GPU cannot be read: {error}"))
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
