//! Devices of clusters as searches see them, as they were read before.

use std::sync::Arc;

use loadmaster_proto::name::ClusterName;
use loadmaster_search::fleet::{self, PlannedFleet, Selection};

use super::{Revisions, json_bytes};
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::rpc::plan::{Plans, request};

/// A cluster's id, and what may not be used of it.
pub(super) type FleetKey = (String, Vec<String>);

/// A fleet of a cluster at a revision.
#[derive(Clone)]
pub(super) struct FleetEntry {
    revision: String,
    fleet: Arc<PlannedFleet>,
}

impl Plans {
    /// The devices of a cluster but for those that are excluded, `node` or `node/index`: as they were read before, unless
    /// the cluster has changed since.
    ///
    /// # Errors
    /// The cluster is not stored, or does not have what is named.
    pub(in crate::rpc::plan) async fn fleet(
        &self,
        name: &ClusterName,
        excluded: &[String],
        revisions: &Revisions,
    ) -> Result<Arc<PlannedFleet>, ApiError> {
        let fleets = &self.memory.0.fleets;
        let key = (name.id().to_owned(), excluded.to_vec());
        let revision = revisions.of(name);
        let known = fleets.get(&key).filter(|known| revision == Some(known.revision.as_str()));
        if let Some(FleetEntry { fleet, .. }) = known {
            return Ok(fleet);
        }
        let cluster = self.store.get_cluster(name).await?.cluster;
        let selection = Selection { excluded: request::excluded(excluded)?, ..Selection::default() };
        // A cluster may have 160,000 devices.
        let read = blocking("planning failed", move || {
            let fleet = fleet::fleet(&cluster, &selection);
            fleet
                .map(|fleet| {
                    let bytes = json_bytes(cluster.parts());
                    (fleet.with_cluster(cluster), bytes)
                })
                .map_err(|error| request::fleet_error("cluster", &error))
        });
        let (fleet, bytes) = read.await?;
        let fleet = Arc::new(fleet);
        if let Some(revision) = revision {
            let known = FleetEntry { revision: revision.to_owned(), fleet: Arc::clone(&fleet) };
            fleets.put(key, known, bytes);
        }
        Ok(fleet)
    }
}
