//! What workers say they hold, within bounds.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::name::RunName;
use loadmaster_proto::wire::v1;

use crate::store::records::HeldLease;

/// Most devices of a worker, and most devices of a run.
pub const MAX_DEVICES: usize = 1_024;
/// Most runs that a worker names at once: one per device, and as many whose report is on its way.
const MAX_HELD: usize = 2 * MAX_DEVICES;
/// Most bytes of a device's id.
const MAX_ID: usize = 128;
/// Most characters of a phase that are kept.
const MAX_PHASE: usize = 200;

/// The leases that a worker names in a hello or heartbeat, each with the ids of its devices.
///
/// # Errors
/// Names the field, below `field`, that is too long or no name.
pub fn held_leases(field: &str, runs: Vec<v1::HeldRun>) -> Result<Vec<(HeldLease, Vec<String>)>, Invalid> {
    if runs.len() > MAX_HELD {
        return Err(Invalid::field(field, format!("has {} entries, at most {MAX_HELD}", runs.len())));
    }
    let runs = runs.into_iter().enumerate();
    runs.map(|(index, run)| held_lease(run).map_err(|invalid| invalid.under(&format!("{field}[{index}]"))))
        .collect()
}

fn held_lease(run: v1::HeldRun) -> Result<(HeldLease, Vec<String>), Invalid> {
    let v1::HeldRun { run, lease_token, device_ids, progress, phase } = run;
    if device_ids.len() > MAX_DEVICES {
        let why = format!("has {} entries, at most {MAX_DEVICES}", device_ids.len());
        return Err(Invalid::field("device_ids", why));
    }
    if let Some((index, id)) = device_ids.iter().enumerate().find(|(_, id)| id.len() > MAX_ID) {
        let why = format!("has {} bytes, at most {MAX_ID}", id.len());
        return Err(Invalid::field(format!("device_ids[{index}]"), why));
    }
    let lease = HeldLease {
        run: RunName::parse("run", &run)?,
        lease_token,
        progress: if progress.is_finite() { progress.clamp(0.0, 1.0) } else { 0.0 },
        phase: phase.chars().take(MAX_PHASE).collect(),
    };
    Ok((lease, device_ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(device_ids: Vec<String>) -> v1::HeldRun {
        v1::HeldRun { run: "runs/r".to_owned(), device_ids, ..v1::HeldRun::default() }
    }

    #[test]
    fn what_a_worker_holds_is_bounded_by_name() {
        let field = |runs| held_leases("held_runs", runs).unwrap_err().violations()[0].field.clone();
        assert_eq!(held_leases("held_runs", vec![run(vec!["cpu0".to_owned()]); 2_048]).unwrap().len(), 2_048);
        assert_eq!(field(vec![run(Vec::new()); 2_049]), "held_runs");
        assert_eq!(field(vec![run(Vec::new()), run(vec![String::new(); 1_025])]), "held_runs[1].device_ids");
        assert_eq!(field(vec![run(vec!["x".repeat(129)])]), "held_runs[0].device_ids[0]");
        let nameless = v1::HeldRun { run: "x".repeat(1_000), ..run(Vec::new()) };
        assert_eq!(field(vec![nameless]), "held_runs[0].run");
    }

    #[test]
    fn phases_and_progress_are_cut_to_what_they_can_be() {
        let odd = v1::HeldRun { progress: f64::NAN, phase: "ä".repeat(1_000), ..run(Vec::new()) };
        let held = held_leases("held_runs", vec![odd]).unwrap();
        assert_eq!((held[0].0.progress, held[0].0.phase.chars().count()), (0.0, 200));
    }
}
