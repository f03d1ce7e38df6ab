//! The revisions of what a call names, and the profiles and fleets that were read at these revisions.
//!
//! Revisions are read before anything else, so that what changes meanwhile has another revision than what was read.

use std::collections::HashMap;
use std::sync::Arc;

use loadmaster_predict::choose::PredictorKind;
use loadmaster_proto::name::{ClusterName, ProfileName};
use loadmaster_proto::wire::v1;
use loadmaster_recommend::ProfiledChain;
use loadmaster_search::fleet::{self, PlannedFleet, Selection};
use tokio::sync::OnceCell;

use super::json_bytes;
use crate::rpc::blocking::blocking;
use crate::rpc::error::ApiError;
use crate::rpc::plan::{Plans, request};

/// By name; without what is missing, or not complete. Asked once for each call, so that what changes meanwhile has
/// another revision than what was read.
#[derive(Debug, Default)]
pub(in crate::rpc::plan) struct Revisions(HashMap<String, String>);

impl Revisions {
    /// The revision of a profile or a cluster.
    pub(super) fn of(&self, name: &impl ToString) -> Option<&str> {
        self.0.get(&name.to_string()).map(String::as_str)
    }
}

/// What a request names, in this order: the profiles, and the cluster.
pub(super) struct Named {
    pub(super) profiles: Vec<ProfileName>,
    pub(super) cluster: Option<ClusterName>,
}

impl Named {
    /// None where a name is none: that is for whoever reads it to say.
    pub(super) fn by(request: &v1::RecommendPlanRequest) -> Option<Self> {
        let main = std::iter::once(&request.problem().profile).filter(|name| !name.is_empty());
        let names =
            main.chain(&request.problem().other_profiles).chain(&request.objective().candidate_profiles);
        let profiles = names.map(|name| ProfileName::parse("profile", name)).collect::<Result<_, _>>();
        let cluster = Some(request.problem().cluster.as_str()).filter(|name| !name.is_empty());
        let cluster = cluster.map(|name| ClusterName::parse("cluster", name)).transpose();
        Some(Self { profiles: profiles.ok()?, cluster: cluster.ok()? })
    }
}

impl Plans {
    /// The revisions of these.
    pub(in crate::rpc::plan) async fn revisions(
        &self,
        profiles: &[ProfileName],
        cluster: Option<&ClusterName>,
    ) -> Result<Revisions, ApiError> {
        let ids: Vec<&str> = profiles.iter().map(ProfileName::id).collect();
        if ids.is_empty() && cluster.is_none() {
            return Ok(Revisions::default());
        }
        Ok(Revisions(self.store.revisions(&ids, cluster.map(ClusterName::id)).await?))
    }
}

/// A profile's id, and the predictor that was asked for.
pub(super) type ChainKey = (String, Option<&'static str>);

/// What a profile weighs before it is read.
const UNREAD: usize = 1 << 10;

/// A profile at a revision. Whoever comes first reads it, and the others wait.
#[derive(Clone)]
pub(super) struct ChainEntry {
    revision: String,
    chain: Arc<OnceCell<(Arc<ProfiledChain>, usize)>>,
}

impl Plans {
    /// The profile of a request with its predictor: as it was read before, unless it has changed since. Where nothing is
    /// said of its revision it is read, and not kept.
    pub(in crate::rpc::plan) async fn chain(
        &self,
        name: ProfileName,
        kind: Option<PredictorKind>,
        revisions: &Revisions,
    ) -> Result<Arc<ProfiledChain>, ApiError> {
        let Some(revision) = revisions.of(&name) else {
            // Missing or unfinished: whoever reads it says which.
            return Ok(Arc::new(self.read_chain(name, kind).await?.0));
        };
        let chains = &self.memory.0.chains;
        let key = (name.id().to_owned(), kind.map(PredictorKind::as_str));
        let known = chains.get_or(
            &key,
            |known| known.revision == revision,
            UNREAD,
            || ChainEntry { revision: revision.to_owned(), chain: Arc::default() },
        );
        let read = || async {
            let (chain, bytes) = self.read_chain(name, kind).await?;
            Ok::<_, ApiError>((Arc::new(chain), bytes))
        };
        let (chain, bytes) = known.chain.get_or_try_init(read).await?;
        // The first question adds nothing to what it remembers; each later one is weighed with those before it.
        chains.weigh(&key, UNREAD + bytes + chain.predictor.remembered_bytes() + chain.known.bytes());
        Ok(Arc::clone(chain))
    }
}

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
                .map_err(|error| request::fleet_error("problem.cluster", &error))
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
