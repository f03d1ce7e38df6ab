//! Asks a planner over the wire.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_client::PlanServiceClient;
use tonic::Code;
use tonic::transport::Channel;
use tonic_types::StatusExt;

use crate::certificates::question::Question;
use crate::certificates::scene::Scene;
use crate::rpc::subject::{store_cluster, store_profile};

#[derive(Debug, Clone)]
pub(crate) struct Planner {
    channel: Channel,
}

/// Names under which a scene is stored.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) profiles: Vec<String>,
    pub(crate) cluster: String,
}

/// A plan, or why there is none.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Plan(Box<v1::Plan>),
    Refused(Refused),
}

#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) code: Code,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Set where no plan satisfies the request.
    pub(crate) infeasible: Option<v1::Infeasible>,
}

impl Answer {
    fn of(response: v1::RecommendPlanResponse) -> Result<Self> {
        use v1::recommend_plan_response::Result as Found;
        let infeasible = match response.result {
            Some(Found::Plan(plan)) => return Ok(Self::Plan(Box::new(plan))),
            Some(Found::Infeasible(infeasible)) => infeasible,
            None => bail!("a response without a result"),
        };
        let missing = infeasible.missing_bytes.map_or_else(String::new, |bytes| bytes.to_string());
        let metadata = [
            ("missing_bytes", missing),
            ("layer", infeasible.layer.clone()),
            ("device", infeasible.device.clone()),
        ];
        Ok(Self::Refused(Refused {
            code: Code::Ok,
            reason: infeasible.cause().as_str_name().to_owned(),
            message: infeasible.message.clone(),
            metadata: metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            infeasible: Some(infeasible),
        }))
    }
}

impl Refused {
    /// The planner says that no plan keeps to the request.
    pub(crate) fn is_no_plan(&self) -> bool {
        self.infeasible.is_some()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.reason == "SEARCH_STOPPED"
    }
}

impl Planner {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel }
    }

    /// Stores the profiles and the cluster of a scene.
    pub(crate) async fn store(&self, scene: &Scene) -> Result<Stored> {
        let refused = || format!("{} is refused", scene.id);
        let mut profiles = Vec::new();
        for kind in &scene.kinds {
            let stored = store_profile(&self.channel, scene.document(kind)).await;
            profiles.push(stored.with_context(refused)?);
        }
        let Some(cluster) = scene.cluster() else { return Ok(Stored { profiles, cluster: String::new() }) };
        let cluster = store_cluster(&self.channel, cluster).await.with_context(refused)?;
        Ok(Stored { profiles, cluster })
    }

    /// The answer to a question.
    pub(crate) async fn ask(&self, scene: &Scene, stored: &Stored, question: &Question) -> Result<Answer> {
        self.call(question.request(scene, &stored.profiles, &stored.cluster)).await
    }

    /// The timeline of a stored plan.
    pub(crate) async fn simulate(&self, request: v1::SimulatePlanRequest) -> Result<v1::Timeline> {
        let mut client = PlanServiceClient::new(self.channel.clone());
        for _ in 0..100 {
            match client.simulate_plan(request.clone()).await {
                Ok(timeline) => return Ok(timeline.into_inner()),
                Err(status) if matches!(status.code(), Code::ResourceExhausted | Code::Unavailable) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(status) => bail!("{} has no timeline: {status}", request.name),
            }
        }
        bail!("the planner stays busy")
    }

    /// The answer to a request; again where the planner is busy.
    pub(crate) async fn call(&self, request: v1::RecommendPlanRequest) -> Result<Answer> {
        let mut client = PlanServiceClient::new(self.channel.clone());
        for _ in 0..100 {
            let status = match client.recommend_plan(request.clone()).await {
                Ok(response) => return Answer::of(response.into_inner()),
                Err(status) => status,
            };
            if matches!(status.code(), Code::ResourceExhausted | Code::Unavailable) {
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
            let info = status.get_details_error_info();
            let (reason, metadata) = info.map(|info| (info.reason, info.metadata)).unwrap_or_default();
            return Ok(Answer::Refused(Refused {
                code: status.code(),
                reason,
                message: status.message().to_owned(),
                metadata: metadata.into_iter().collect(),
                infeasible: None,
            }));
        }
        bail!("the planner stays busy")
    }
}
