//! Searches whose callers do not wait for them.

use std::time::Duration;

use futures_util::future::join_all;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_client::PlanServiceClient;
use loadmaster_tests::{Planner, call, chain, processor_seconds, resident_bytes};
use serde_json::json;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Request};

use super::meter::{Called, Others};

const LAYERS: usize = 96;
const MIB: u64 = 1 << 20;

/// A table of so many layers, of which hardly two that are next to each other are alike.
fn document(layers: usize) -> String {
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
    let mut document = chain(layers, &(0..layers).map(row).collect::<Vec<_>>());
    document["training"]["micro_batch_size"] = json!(8);
    document["training"]["micro_batches"] = json!(256);
    document.to_string()
}

pub(crate) fn devices(groups: usize, each: i32) -> Vec<v1::DeviceGroup> {
    (0..groups)
        .map(|_| v1::DeviceGroup { count: each, capacity_bytes: 8 << 30, ..Default::default() })
        .collect()
}

/// A caller of a planner that has the profile `long` of so many layers, and `short` of a few.
pub(crate) async fn with_profiles(planner: &Planner, layers: usize) -> PlanServiceClient<Channel> {
    let channel = planner.channel().await;
    for (profile_id, layers) in [("long", layers), ("short", 12)] {
        let (profile_id, document) = (profile_id.to_owned(), document(layers));
        let request = v1::ImportProfileRequest { document, profile_id, ..Default::default() };
        call(&channel, request).await.expect("the document is valid");
    }
    PlanServiceClient::new(channel)
}

/// What everybody may search for at any time.
fn small() -> v1::RecommendPlanRequest {
    v1::RecommendPlanRequest {
        problem: Some(v1::Problem {
            profile: "profiles/short".to_owned(),
            devices: devices(1, 2),
            ..Default::default()
        }),
        constraints: Some(v1::Constraints {
            parallelism_layout: v1::ParallelismLayout::SinglePipeline.into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// What takes long, or took minutes once.
fn heavy() -> Vec<v1::RecommendPlanRequest> {
    let searched = |objective: v1::Objective, shape: v1::ParallelismLayout, max_iteration_seconds: i64| {
        v1::RecommendPlanRequest {
            problem: Some(v1::Problem {
                profile: "profiles/long".to_owned(),
                devices: devices(128, 8),
                ..Default::default()
            }),
            objective: Some(v1::ObjectiveOptions {
                kind: objective.into(),
                hourly_prices: [("gpu".to_owned(), 2.0)].into(),
                ..Default::default()
            }),
            constraints: Some(v1::Constraints {
                parallelism_layout: shape.into(),
                node_spanning: v1::NodeSpanning::Anywhere.into(),
                max_iteration_time: (max_iteration_seconds > 0)
                    .then_some(prost_types::Duration { seconds: max_iteration_seconds, nanos: 0 }),
                ..Default::default()
            }),
            ..Default::default()
        }
    };
    let stages: Vec<v1::StageConfig> = (0..LAYERS as i32)
        .map(|layer| v1::StageConfig {
            first_layer: layer,
            last_layer: layer,
            // As many devices as no other stage has: every number of devices taken is a place of its own.
            data_parallel_size: layer + 1,
            ..Default::default()
        })
        .collect();
    let total: i32 = stages.iter().map(|stage| stage.data_parallel_size).sum();
    let given = v1::RecommendPlanRequest {
        problem: Some(v1::Problem {
            profile: "profiles/long".to_owned(),
            devices: devices(1, total),
            ..Default::default()
        }),
        constraints: Some(v1::Constraints {
            pipeline_layout: Some(v1::PipelineLayout { stages }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let mesh = v1::ParallelismLayout::PerStageMesh;
    vec![
        searched(v1::Objective::MinDevices, mesh, 1),
        searched(v1::Objective::MinCost, v1::ParallelismLayout::PerStageReplicas, 1),
        searched(v1::Objective::MinIterationTime, mesh, 0),
        searched(v1::Objective::Pareto, mesh, 0),
        searched(v1::Objective::MinPeakMemory, mesh, 0),
        searched(v1::Objective::MaxBatch, mesh, 0),
        given,
    ]
}

/// Callers ask for searches of minutes and leave: the cores are free for the next who asks, and little memory is
/// taken meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn searches_that_nobody_waits_for_give_their_cores_back() {
    let mut planner = Planner::start();
    let pid = planner.program().pid();
    let plans = with_profiles(&planner, LAYERS).await;
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
            problem: Some(v1::Problem {
                profile: "profiles/long".to_owned(),
                devices: devices(1, 32),
                ..Default::default()
            }),
            search: Some(v1::SearchOptions { seed: 1, ..Default::default() }),
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

/// One caller searches through more than any search ends, all the time, with more calls than there are slots.
#[tokio::test(flavor = "multi_thread")]
async fn long_searches_of_one_caller_keep_no_small_search_out() {
    let planner = Planner::start();
    let plans = with_profiles(&planner, LAYERS).await;
    let others = Others::calling(&planner, Called { search: Some(small()), ..Called::default() });
    let endless = v1::RecommendPlanRequest {
        problem: Some(v1::Problem {
            profile: "profiles/long".to_owned(),
            devices: devices(1, 16),
            ..Default::default()
        }),
        search: Some(v1::SearchOptions {
            mode: v1::SearchMode::McapBruteForce.into(),
            time_limit: Some(prost_types::Duration { seconds: 15, nanos: 0 }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut attack = JoinSet::<()>::new();
    for _ in 0..16 {
        let (mut plans, request) = (plans.clone(), endless.clone());
        attack.spawn(async move {
            loop {
                // Refused for want of a slot, or answered with what was found by then.
                if let Err(status) = plans.recommend_plan(request.clone()).await {
                    let expected = [Code::DeadlineExceeded, Code::ResourceExhausted];
                    assert!(expected.contains(&status.code()), "{status}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    others.were_served("one caller searches for long in 16 calls").await;
    if let Some(ended) = attack.try_join_next() {
        ended.expect("the attack goes on");
    }
    attack.abort_all();
}

/// A pipeline of a stage per layer.
fn many_stages(layers: usize, micro_batches: i32, schedule: v1::Schedule) -> v1::RecommendPlanRequest {
    let stage = |layer: usize| v1::StageConfig {
        first_layer: layer as i32,
        last_layer: layer as i32,
        data_parallel_size: 1,
        tensor_parallel_size: 1,
        ..Default::default()
    };
    v1::RecommendPlanRequest {
        problem: Some(v1::Problem {
            profile: "profiles/long".to_owned(), // Where everything fits that is in flight.
            devices: vec![v1::DeviceGroup {
                count: layers as i32,
                capacity_bytes: 1 << 40,
                ..Default::default()
            }],
            micro_batch_count: micro_batches,
            micro_batch_size: 1,
            schedule: schedule.into(),
            ..Default::default()
        }),
        constraints: Some(v1::Constraints {
            pipeline_layout: Some(v1::PipelineLayout { stages: (0..layers).map(stage).collect() }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Requests of 80 KB for plans of thousands of stages, most of which nobody waits for, to a planner that may take 8 GB.
#[tokio::test(flavor = "multi_thread")]
async fn plans_of_thousands_of_stages_take_little_and_nothing_stays() {
    const STAGES: usize = 4_096;
    let limited = ["sh", "-c", "ulimit -v 8388608; exec \"$@\"", "sh"];
    let mut planner = Planner::start_under(&limited, &[]);
    let pid = planner.program().pid();
    let plans = with_profiles(&planner, STAGES).await;
    plans.clone().recommend_plan(small()).await.expect("a small plan");
    let others = Others::calling(&planner, Called { search: Some(small()), ..Called::default() });
    let before = resident_bytes(pid);
    let schedules = [v1::Schedule::Gpipe, v1::Schedule::OneFOneB, v1::Schedule::Pipedream];
    let mut most = before;
    for round in 0..3 {
        let asked = (0..6).map(|number| {
            // As many passes as are simulated at most, and more.
            let request = many_stages(STAGES, [128, 1_024][number % 2], schedules[(round + number) % 3]);
            let (mut plans, mut request) = (plans.clone(), Request::new(request));
            request.set_timeout(Duration::from_millis(if number == 0 { 60_000 } else { 300 }));
            async move { plans.recommend_plan(request).await }
        });
        for answer in join_all(asked).await {
            if let Err(status) = answer {
                let expected = [Code::DeadlineExceeded, Code::ResourceExhausted, Code::Cancelled];
                assert!(expected.contains(&status.code()), "{status}");
            }
        }
        most = most.max(resident_bytes(pid));
    }
    others.were_served("plans of 4,096 stages are asked for").await;
    let busy = processor_seconds(pid);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let busy = processor_seconds(pid) - busy;
    assert!(busy < 0.5, "{busy} seconds of a core in one second, for nobody");
    let [grown, most] = [resident_bytes(pid), most].map(|bytes| bytes.saturating_sub(before) / MIB);
    eprintln!("plans of 4,096 stages: the planner grew by {most} MiB at most, and by {grown} MiB in the end");
    assert!(grown < 200, "{grown} MiB stay");
}
