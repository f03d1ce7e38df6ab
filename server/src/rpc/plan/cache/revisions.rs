//! The revisions of what a call names, as they were before anything of it was read.

use std::collections::HashMap;

use loadmaster_proto::name::{ClusterName, ProfileName};
use loadmaster_proto::wire::v1;

use crate::rpc::error::ApiError;
use crate::rpc::plan::Plans;

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
        let main = std::iter::once(&request.profile).filter(|name| !name.is_empty());
        let names = main.chain(&request.other_profiles).chain(&request.candidate_profiles);
        let profiles = names.map(|name| ProfileName::parse("profile", name)).collect::<Result<_, _>>();
        let cluster = Some(request.cluster.as_str()).filter(|name| !name.is_empty());
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
