//! What is asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_client::PlanServiceClient;
use tonic::Status;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::rpc::load::Limit;
use crate::rpc::subject::{KIND, Subject};

/// A call that is made again and again.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    /// Asks nothing: what any call costs.
    Empty,
    /// A stored plan by name.
    GetPlan(String),
    /// A page of so many plans.
    ListPlans(i32),
    /// A recommendation that was answered before.
    Again(Box<v1::RecommendPlanRequest>),
    /// One that nobody asked before, on a profile that was asked about.
    New(Box<v1::RecommendPlanRequest>),
    /// A plan as a framework runs it.
    Export(v1::ExportPlanRequest),
    /// A plan of 8,192 devices on the nodes of a scheduler, with the gap of the answer; nothing is stored.
    Place(v1::CreatePlacementRequest, String),
}

/// Numbers that no call of this program was made with.
pub(crate) fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Call {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Empty => "health Check (empty)",
            Self::GetPlan(_) => "GetPlan",
            Self::ListPlans(_) => "ListPlans, page of 100",
            Self::Again(_) => "RecommendPlan, asked again",
            Self::New(_) => "RecommendPlan, new, profile known",
            Self::Export(_) => "ExportPlan, 96 layers",
            Self::Place(..) => "CreatePlacement, 1,024 nodes of two kinds",
        }
    }

    /// How long it may take.
    pub(crate) fn limit(&self) -> Option<Limit> {
        match self {
            Self::GetPlan(_) => Some(Limit::Median(1e-3)),
            Self::Export(_) => Some(Limit::Slow(0.02)),
            Self::Place(..) => Some(Limit::Slow(0.1)),
            Self::Empty | Self::ListPlans(_) | Self::Again(_) | Self::New(_) => None,
        }
    }

    /// How many there are to be in a second.
    pub(crate) fn per_second(&self) -> Option<f64> {
        match self {
            Self::Empty | Self::ListPlans(_) | Self::Export(_) | Self::Place(..) => None,
            Self::GetPlan(_) => Some(5_000.0),
            Self::Again(_) => Some(1_000.0),
            Self::New(_) => Some(300.0),
        }
    }

    /// Numbers of clients that make it at once. Of a plan that is to be run schedulers ask one after another.
    pub(crate) fn clients(&self) -> &'static [usize] {
        if matches!(self, Self::Export(_) | Self::Place(..)) { &[1] } else { &[1, 8, 64] }
    }

    /// Makes the call; `fresh` tells it from all others where it must differ.
    pub(crate) async fn send(&self, channel: &Channel, fresh: u64) -> Result<(), Status> {
        let mut plans = PlanServiceClient::new(channel.clone());
        match self {
            Self::Empty => {
                HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await.map(drop)
            }
            Self::GetPlan(name) => plans
                .get_plan(v1::GetPlanRequest { name: name.clone(), ..Default::default() })
                .await
                .map(drop),
            Self::ListPlans(page_size) => {
                let request = v1::ListPlansRequest { page_size: *page_size, ..Default::default() };
                plans.max_decoding_message_size(usize::MAX).list_plans(request).await.map(drop)
            }
            Self::Again(request) => plans.recommend_plan((**request).clone()).await.map(drop),
            Self::Export(request) => plans.export_plan(request.clone()).await.map(drop),
            Self::Place(request, _) => plans.create_placement(request.clone()).await.map(drop),
            Self::New(request) => plans.recommend_plan(changed((**request).clone(), fresh)).await.map(drop),
        }
    }
}

/// A request that was not made before: another margin, or another limit on bytes that limits nothing.
fn changed(mut request: v1::RecommendPlanRequest, fresh: u64) -> v1::RecommendPlanRequest {
    if fresh.is_multiple_of(2) {
        request.problem_mut().safety_margin = Some(0.01 + 1e-8 * fresh as f64);
    } else {
        let constraints = request.constraints.get_or_insert_default();
        constraints.max_peak_bytes = i64::MAX / 2 - fresh as i64;
    }
    request
}

/// A recommendation on the cluster of a subject.
pub(crate) fn request(subject: &Subject, objective: v1::Objective) -> v1::RecommendPlanRequest {
    v1::RecommendPlanRequest {
        problem: Some(v1::Problem {
            profile: subject.profile.clone(),
            cluster: subject.cluster.clone(),
            ..Default::default()
        }),
        objective: Some(v1::ObjectiveOptions {
            kind: objective.into(),
            hourly_prices: HashMap::from([(KIND.to_owned(), 2.0)]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Stores at least so many plans; the name of one.
pub(crate) async fn fill(channel: &Channel, subject: &Subject, plans: i32) -> Result<String> {
    let mut client = PlanServiceClient::new(channel.clone());
    let request = request(subject, v1::Objective::Unspecified);
    let mut name = String::new();
    for _ in 0..plans {
        let answer = client.recommend_plan(changed(request.clone(), fresh())).await;
        name = answer
            .context("a first plan is refused")?
            .into_inner()
            .into_plan()
            .context("a first plan does not fit")?
            .name;
    }
    Ok(name)
}

/// What an answer says of its own quality.
pub(crate) fn found(plan: &v1::Plan) -> String {
    let Some(certificate) = &plan.certificate else { return String::new() };
    let searched = format!("searched {:.1} ms", 1e3 * certificate.search_seconds);
    if certificate.optimal {
        return format!("proven, {searched}");
    }
    let gap = certificate
        .optimality_gap
        .map_or_else(|| "open".to_owned(), |gap| format!("open by {:.2} %", 100.0 * gap));
    let stopped = if certificate.deadline_reached { ", stopped" } else { "" };
    format!("{gap}{stopped}, {searched}")
}

/// An objective as the command line names it.
pub(crate) fn name_of(objective: v1::Objective) -> String {
    objective.as_str_name().trim_start_matches("OBJECTIVE_").to_lowercase().replace('_', "-")
}
