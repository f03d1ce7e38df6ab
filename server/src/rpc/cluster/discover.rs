//! `DiscoverCluster`.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::name::WorkerName;
use loadmaster_proto::wire::v1;
use loadmaster_search::fleet::{DiscoveredWorker, discover};

use super::Clusters;
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::rpc::limits::MAX_WORKERS;
use crate::rpc::messages::request_key;
use crate::store::StoreError;
use crate::store::records::{LinkRecord, WorkerRecord};

impl Clusters {
    pub(super) async fn discover(
        &self,
        mut request: v1::DiscoverClusterRequest,
    ) -> Result<v1::Cluster, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        if let Some(first) = self.first_answer(key.as_ref(), request.validate_only).await? {
            return Ok(first);
        }
        let workers = self.connected(&request.workers).await?;
        let names: Vec<&WorkerName> = workers.iter().map(|worker| &worker.name).collect();
        let measured = self.store.newest_link_measurements(&names).await?;
        let v1::DiscoverClusterRequest {
            device_kind,
            network_bytes_per_second,
            cluster_id,
            validate_only,
            ..
        } = request;
        let network = Some(network_bytes_per_second).filter(|&speed| speed != 0.0);
        let cluster = blocking("a cluster cannot be discovered", move || {
            of_workers(&workers, &measured, &device_kind, network)
        })
        .await?;
        self.keep(cluster, &cluster_id, validate_only, key).await
    }

    /// The workers that are connected; those of these names, if there are any.
    ///
    /// # Errors
    /// When one of the names is not that of a connected worker, or none is connected.
    pub(super) async fn connected(&self, names: &[String]) -> Result<Vec<WorkerRecord>, ApiError> {
        let most = MAX_WORKERS as usize;
        if names.len() > most {
            let why = format!("{} worker names are too many. Use at most {most}.", names.len());
            return Err(Invalid::field("workers", why).into());
        }
        let wanted = names
            .iter()
            .enumerate()
            .map(|(index, name)| WorkerName::parse(&format!("workers[{index}]"), name))
            .collect::<Result<Vec<_>, _>>()?;
        let mut connected = self.store.connected_workers(&wanted, MAX_WORKERS).await?;
        for (index, name) in wanted.iter().enumerate() {
            if connected.iter().all(|worker| worker.name != *name) {
                // Says of a worker that no one knows that it does not exist.
                self.store.get_worker(name).await?;
                let why = format!("{name} is not connected. Start it, or leave it out.");
                return Err(Invalid::field(format!("workers[{index}]"), why).into());
            }
        }
        if connected.is_empty() {
            return Err(ApiError::NoConnectedWorker);
        }
        // In order of their names: the same workers are the same cluster.
        connected.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(connected)
    }
}

/// # Errors
/// When the workers have no device of this kind.
fn of_workers(
    workers: &[WorkerRecord],
    measured: &[LinkRecord],
    device_kind: &str,
    network: Option<f64>,
) -> Result<loadmaster_proto::cluster::Cluster, ApiError> {
    let is_wanted = |kind: &str| device_kind.is_empty() || kind == device_kind;
    let discovered: Vec<DiscoveredWorker<'_>> = workers
        .iter()
        .map(|worker| DiscoveredWorker {
            name: worker.name.to_string(),
            host: &worker.host,
            devices: worker.devices.iter().filter(|device| is_wanted(&device.kind)).collect(),
            links: &worker.links,
            measured: measured.iter().find(|of| of.worker == worker.name).map(|of| &of.measurement),
            host_memory: Bytes(worker.host_memory),
        })
        .collect();
    if discovered.iter().all(|worker| worker.devices.is_empty()) {
        let why =
            format!("no connected worker has devices of kind {device_kind:?}. See `loadmaster worker list`.");
        return Err(Invalid::field("device_kind", why).into());
    }
    discover(&discovered, network).map_err(|invalid| {
        // What workers report cannot be mended by who asks, but for the network that is given here.
        let is_network = invalid.violations().iter().all(|of| of.field.contains("network"));
        match is_network && network.is_some() {
            true => Invalid::field("network_bytes_per_second", invalid.to_string()).into(),
            false => {
                StoreError::Corrupt { what: format!("the workers do not form a valid cluster: {invalid}") }
                    .into()
            }
        }
    })
}
