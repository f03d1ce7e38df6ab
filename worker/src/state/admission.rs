//! Whether a lease can be worked on.

use std::time::Duration;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::failure::RunFailure;
use loadmaster_proto::measure::run::Task;
use loadmaster_proto::wire::worker_v1;

use crate::run::{Claim, Job, Lease, handed_back, not_started};

/// Longest deadline.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// What the worker offers, and what runs have of it.
#[derive(Debug)]
pub(super) struct Room<'a> {
    pub(super) devices: &'a [Device],
    /// Ids of those that are not free.
    pub(super) taken: Vec<&'a str>,
    /// Memory of the host for runs.
    pub(super) host_memory: Bytes,
    /// How much of it is not free.
    pub(super) host_memory_taken: Bytes,
}

/// The job, or the answer to the planner.
///
/// Devices that are unknown or taken, and memory of the host that is not free, hand the run back: another worker, or this one later, can do it.
/// A lease that makes no sense counts as a failed attempt, or it would come back for ever.
pub(super) fn admit(claim: Claim, lease: worker_v1::Lease, room: &Room<'_>) -> Result<Job, RunFailure> {
    let mut chosen: Vec<Device> = Vec::with_capacity(lease.device_ids.len());
    for id in &lease.device_ids {
        let Some(device) = room.devices.iter().find(|device| device.id == *id) else {
            return Err(handed_back(format!("this worker has no device {id:?}")));
        };
        if room.taken.contains(&id.as_str()) {
            return Err(handed_back(format!("device {id} is in use by another run")));
        }
        if chosen.iter().any(|other| other.id == *id) {
            return Err(not_started(format!("the lease names device {id} twice")));
        }
        chosen.push(device.clone());
    }
    let deadline = Duration::try_from_secs_f64(lease.deadline_seconds)
        .ok()
        .filter(|deadline| !deadline.is_zero())
        .ok_or_else(|| {
            not_started(format!(
                "the planner sent a deadline of {} s for this run: expected more than 0 s",
                lease.deadline_seconds
            ))
        })?
        .min(LONGEST);
    let wire = lease.spec.ok_or_else(|| not_started("the lease has no run specification"))?;
    let task = Task::try_from(wire).map_err(|invalid| not_started(format!("spec: {invalid}")))?;
    let ranks = task.device_count();
    if u32::try_from(chosen.len()) != Ok(ranks) {
        return Err(not_started(format!(
            "the planner assigned {} devices to a run of {ranks} ranks: expected one device for each rank",
            chosen.len()
        )));
    }
    room.check_host_memory(task.host_memory())?;
    Ok(Job { lease: Lease { claim, devices: chosen, deadline }, task })
}

impl Room<'_> {
    /// The pools of all ranks are made before they begin, so all of it must be free now.
    fn check_host_memory(&self, needed: Bytes) -> Result<(), RunFailure> {
        let free = Bytes(self.host_memory.0.saturating_sub(self.host_memory_taken.0));
        if needed <= free {
            return Ok(());
        }
        Err(handed_back(format!(
            "the run needs {needed} of CPU (host) memory, but of the {} that this worker offers only {free} are free",
            self.host_memory
        )))
    }
}
