//! Searches whose callers do not wait for them.

use std::time::Duration;

use futures_util::future::join_all;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_client::PlanServiceClient;
use loadmaster_proto::wire::v1::profile_service_client::ProfileServiceClient;
use loadmaster_tests::{Planner, chain, processor_seconds, resident_bytes};
use serde_json::json;
use tonic::{Code, Request};

use super::meter::Others;

const LAYERS: usize = 96;
const MIB: u64 = 1 << 20;

/// A table of layers of which no two are alike.
fn document() -> String {
    let row = |layer: usize| {
        let seconds = 1e-3 * (1.0 + (layer * 37 % 11) as f64);
        let kept = (4 + layer * 53 % 7) << 20;
        json!({
            "first_layer": layer, "last_layer": layer,
            "times": [{"micro_batch_size": 1, "tensor_degree": 1, "update_seconds": 1e-4,
                       "forward_seconds": seconds, "backward_seconds": 2.0 * seconds}],
            "bytes": [{"micro_batch_size": 1, "tensor_degree": 1, "parameter_bytes": 8 << 20,
                       "activation_bytes": kept, "input_bytes": 65_536, "output_bytes": 65_536}],
        })
    };
    let mut document = chain(LAYERS, &(0..LAYERS).map(row).collect::<Vec<_>>());
    document["training"]["micro_batch_size"] = json!(8);
    document["training"]["micro_batches"] = json!(256);
    document.to_string()
}

fn devices(groups: usize, each: i32) -> Vec<v1::DeviceGroup> {
    (0..groups)
        .map(|_| v1::DeviceGroup { count: each, capacity_bytes: 8 << 30, ..Default::default() })
        .collect()
}

/// What takes long, or took minutes once.
fn heavy() -> Vec<v1::RecommendPlanRequest> {
    let searched = |objective: v1::Objective, shape: v1::PlanShape, max_iteration_seconds: f64| {
        v1::RecommendPlanRequest {
            profile: "profiles/long".to_owned(),
            devices: devices(128, 8),
            objective: objective.into(),
            shape: shape.into(),
            constraints: Some(v1::Constraints {
                spanning: v1::NodeSpanning::Anywhere.into(),
                max_iteration_seconds,
                ..Default::default()
            }),
            hourly_prices: [("gpu".to_owned(), 2.0)].into(),
            ..Default::default()
        }
    };
    let stages: Vec<v1::StageConfig> = (0..LAYERS as i32)
        .map(|layer| v1::StageConfig {
            first_layer: layer,
            last_layer: layer,
            // As many devices as no other stage has: every number of devices taken is a place of its own.
            data_degree: layer + 1,
            ..Default::default()
        })
        .collect();
    let total: i32 = stages.iter().map(|stage| stage.data_degree).sum();
    let given = v1::RecommendPlanRequest {
        profile: "profiles/long".to_owned(),
        devices: devices(1, total),
        partitioning: Some(v1::Partitioning { stages }),
        ..Default::default()
    };
    let mesh = v1::PlanShape::PerStageMesh;
    vec![
        searched(v1::Objective::MinDevices, mesh, 1e-6),
        searched(v1::Objective::MinCost, v1::PlanShape::PerStageReplicas, 0.5),
        searched(v1::Objective::MinIterationTime, mesh, 0.0),
        searched(v1::Objective::Pareto, mesh, 0.0),
        searched(v1::Objective::MinPeakMemory, mesh, 0.0),
        searched(v1::Objective::MaxBatch, mesh, 0.0),
        given,
    ]
}

/// Callers ask for searches of minutes and leave: the cores are free for the next who asks, and little memory is
/// taken meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn searches_that_nobody_waits_for_give_their_cores_back() {
    let mut planner = Planner::start();
    let pid = planner.program().pid();
    let channel = planner.channel().await;
    let mut profiles = ProfileServiceClient::new(channel.clone());
    let request = v1::ImportProfileRequest {
        document: document(),
        profile_id: "long".to_owned(),
        ..Default::default()
    };
    profiles.import_profile(request).await.expect("the document is valid");
    let plans = PlanServiceClient::new(channel);
    let before = resident_bytes(pid);
    let others = Others::of(&planner);
    for heavy in heavy() {
        let asked = (0..4).map(|_| {
            let (mut plans, mut request) = (plans.clone(), Request::new(heavy.clone()));
            request.set_timeout(Duration::from_millis(300));
            async move { plans.recommend_plan(request).await }
        });
        for answer in join_all(asked).await {
            // Some plan, or none in time, or nobody free to look for one; never a defect.
            if let Err(status) = answer {
                let expected = [Code::DeadlineExceeded, Code::ResourceExhausted, Code::Cancelled];
                let is_told =
                    status.code() == Code::FailedPrecondition || status.code() == Code::InvalidArgument;
                assert!(expected.contains(&status.code()) || is_told, "{status}");
            }
        }
        let small = v1::RecommendPlanRequest {
            profile: "profiles/long".to_owned(),
            devices: devices(1, 32),
            search_seed: 1,
            ..Default::default()
        };
        let answer = plans.clone().recommend_plan(small).await;
        answer.unwrap_or_else(|status| panic!("after {:?}: {status}", heavy.objective()));
    }
    others.were_served("searches of minutes are asked for and left").await;
    let grown = resident_bytes(pid).saturating_sub(before) / MIB;
    eprintln!("searches that were left: the planner grew by {grown} MiB");
    assert!(grown < 512, "{grown} MiB");

    // Nobody computes any more.
    let begin = processor_seconds(pid);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let busy = processor_seconds(pid) - begin;
    assert!(busy < 0.5, "{busy} seconds of a core in one second");
}
