//! Whether a lease can be worked on.

use std::time::Duration;

use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::failure::RunFailure;
use loadmaster_proto::measure::run::Task;
use loadmaster_proto::wire::v1;

use crate::run::job::{Claim, Job, Lease};
use crate::run::outcome::{handed_back, not_started};

/// Longest deadline.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// The job, or the answer to the planner.
///
/// Devices that are unknown or taken hand the run back: another worker, or this one later, can do it.
/// A lease that makes no sense counts as a failed attempt, or it would come back for ever.
pub(super) fn admit(
    claim: Claim,
    lease: v1::Lease,
    devices: &[Device],
    taken: &[&str],
) -> Result<Job, RunFailure> {
    let mut chosen: Vec<Device> = Vec::with_capacity(lease.device_ids.len());
    for id in &lease.device_ids {
        let Some(device) = devices.iter().find(|device| device.id == *id) else {
            return Err(handed_back(format!("this worker has no device {id:?}")));
        };
        if taken.contains(&id.as_str()) {
            return Err(handed_back(format!("device {id} is taken by another run")));
        }
        if chosen.iter().any(|other| other.id == *id) {
            return Err(not_started(format!("the lease names device {id} twice")));
        }
        chosen.push(device.clone());
    }
    let deadline = Duration::try_from_secs_f64(lease.deadline_seconds)
        .ok()
        .filter(|deadline| !deadline.is_zero())
        .ok_or_else(|| not_started(format!("the lease has a deadline of {} s", lease.deadline_seconds)))?
        .min(LONGEST);
    let wire = lease.spec.ok_or_else(|| not_started("the lease has no run specification"))?;
    let task = Task::try_from(wire).map_err(|invalid| not_started(format!("spec: {invalid}")))?;
    let ranks = task.device_count();
    if u32::try_from(chosen.len()) != Ok(ranks) {
        return Err(not_started(format!("the lease names {} devices for {ranks} ranks", chosen.len())));
    }
    Ok(Job { lease: Lease { claim, devices: chosen, deadline }, task })
}
