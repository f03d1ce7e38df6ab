//! Whether a run's GPUs are its own, and in what state they were: looked at before and after each run.
//!
//! A GPU that somebody else computes on gives wrong times, and wrong bytes in the device ledger. Such a run
//! is handed back unless the operator allows it, and then its measurements say so. What a look means
//! is decided in [`judge`]; [`nvml`] only looks.

mod judge;
mod nvml;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use loadmaster_proto::device::Device;
use loadmaster_proto::run::{FailureKind, RunFailure};
use tokio::time::timeout;
use tracing::warn;

use crate::supervise::outcome::Outcome;
use judge::Look;
use nvml::Monitor;

/// Longest wait for a driver. A healthy one answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the driver showed of a run's GPUs at one moment, by UUID. Empty on CPU slots.
pub(crate) type Looks = BTreeMap<String, Look>;

/// Looks at GPUs.
#[derive(Debug)]
pub(crate) struct Health {
    monitor: Option<Arc<Monitor>>,
    allow_shared: bool,
}

impl Health {
    /// For these devices; without a GPU among them there is nothing to look at.
    pub(crate) fn new(devices: &[Device], allow_shared: bool) -> Self {
        let gpus = devices.iter().any(|device| !device.uuid.is_empty());
        let monitor = if gpus { Monitor::open() } else { None };
        Self { monitor: monitor.map(Arc::new), allow_shared }
    }

    /// What the run's GPUs look like now, or why the run cannot begin on them.
    pub(crate) async fn before(&self, devices: &[Device]) -> Result<Looks, RunFailure> {
        let looks = self.look(devices).await;
        let foreign = judge::foreign(devices, &looks, judge::is_ours);
        if foreign.is_empty() || self.allow_shared {
            if !foreign.is_empty() {
                warn!("the run begins on a shared device: {}", judge::describe(&foreign));
            }
            return Ok(looks);
        }
        Err(RunFailure {
            kind: FailureKind::HandedBack,
            message: judge::refusal(&foreign),
            stage_index: None,
        })
    }

    /// Adds to a run's measurements what its GPUs looked like before and after it.
    pub(crate) async fn after(&self, devices: &[Device], before: Looks, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Measured(mut measurements) => {
                let after = self.look(devices).await;
                judge::stamp(&mut measurements, devices, &before, &after, judge::is_ours);
                Outcome::Measured(measurements)
            }
            Outcome::Links(mut links) => {
                let after = self.look(devices).await;
                links.environment.contended = judge::is_contended(devices, &before, &after, judge::is_ours);
                Outcome::Links(links)
            }
            Outcome::Failed(_) | Outcome::Stopped => outcome,
        }
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
                warn!("looking at the GPUs failed: {defect}");
                Looks::new()
            }
            Err(_) => {
                warn!("the NVIDIA driver did not answer within {} s", PATIENCE.as_secs());
                Looks::new()
            }
        }
    }
}
