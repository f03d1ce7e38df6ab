//! `MeasureLinks`.

use std::collections::BTreeMap;

use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::measure::links::LinkWork;
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;

use super::Clusters;
use crate::rpc::error::ApiError;
use crate::rpc::limits::run_seconds;
use crate::rpc::messages::{Waiting, operation_message, request_key};
use crate::store::records::{NewLinkRun, WorkerRecord, WorkerState};

/// Fewest devices: one alone has a link to its host.
const FEWEST: u32 = 1;

impl Clusters {
    pub(super) async fn measure(&self, mut request: v1::MeasureLinksRequest) -> Result<Operation, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        let deadline_seconds = run_seconds(request.run_time_limit)?;
        let wanted = match request.device_count {
            0 => None,
            devices => {
                let most = LinkWork::MAX_DEVICES.cast_signed();
                Some(in_range("devices", devices, FEWEST.cast_signed()..=most)?.unsigned_abs())
            }
        };
        // The same call gets the same answer, whoever has left since.
        let operation = match self.store.find_request(key.as_ref()).await? {
            Some(first) => first,
            None => {
                let workers = self.connected(&request.workers).await?;
                let runs = runs(&workers, !request.workers.is_empty(), wanted, deadline_seconds)?;
                self.store.create_link_runs(&runs, key).await?
            }
        };
        let record = self.store.get_operation(&operation).await?;
        Ok(operation_message(&record, Waiting::default(), None, None))
    }
}

/// A run per worker that can measure. Of workers that were asked for by name, each must.
fn runs(
    workers: &[WorkerRecord],
    are_named: bool,
    wanted: Option<u32>,
    deadline_seconds: u32,
) -> Result<Vec<NewLinkRun>, ApiError> {
    let mut runs = Vec::new();
    for worker in workers {
        match run(worker, wanted, deadline_seconds) {
            Some(run) => runs.push(run),
            None if are_named => {
                let why = format!(
                    "{} accepts no runs, or has fewer than {} devices of one kind. Name another worker.",
                    worker.name,
                    wanted.unwrap_or(FEWEST)
                );
                return Err(Invalid::field("workers", why).into());
            }
            None => {}
        }
    }
    if runs.is_empty() { Err(ApiError::NothingToMeasure) } else { Ok(runs) }
}

/// All devices of the worker's commonest kind, or as many of them as are wanted.
fn run(worker: &WorkerRecord, wanted: Option<u32>, deadline_seconds: u32) -> Option<NewLinkRun> {
    if worker.state != WorkerState::Alive {
        return None;
    }
    let mut capacities: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for device in &worker.devices {
        capacities.entry(&device.kind).or_default().push(device.capacity.0);
    }
    let (kind, mut capacities) = capacities.into_iter().max_by_key(|(_, of)| of.len())?;
    capacities.sort_unstable_by(|one, other| other.cmp(one));
    let there = u32::try_from(capacities.len()).unwrap_or(u32::MAX).min(LinkWork::MAX_DEVICES);
    let devices = wanted.unwrap_or(there);
    if devices < FEWEST || devices > there {
        return None;
    }
    // The queue gives a run the largest devices: this is what each of them has at least.
    let min_capacity = *capacities.get(devices as usize - 1)?;
    Some(NewLinkRun {
        worker: worker.name.clone(),
        work: LinkWork::standard(devices, min_capacity),
        device_kind: kind.to_owned(),
        min_capacity,
        deadline_seconds,
    })
}
