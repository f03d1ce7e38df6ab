//! Searches that take longer than a call: operations with progress, which can be cancelled and do not survive their planner.

use std::process::{Command, Stdio};
use std::time::Duration;

use loadmaster_proto::reason::Reason;
use loadmaster_proto::wire::longrunning::{
    CancelOperationRequest, GetOperationRequest, Operation, operation,
};
use loadmaster_proto::wire::v1;
use loadmaster_tests::{Planner, binary, call, cli, json};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::Message;
use tonic::Code;
use tonic::transport::Channel;

use crate::hostile::searches::{devices, with_profiles};

const LAYERS: usize = 96;
const PATIENCE: Duration = Duration::from_secs(60);

/// A search that takes minutes.
fn heavy(seconds: f64) -> v1::RecommendPlanRequest {
    v1::RecommendPlanRequest {
        problem: Some(v1::Problem {
            profile: "profiles/long".to_owned(),
            devices: devices(128, 8),
            ..Default::default()
        }),
        objective: Some(v1::ObjectiveOptions {
            kind: v1::Objective::MinIterationTime.into(),
            ..Default::default()
        }),
        constraints: Some(v1::Constraints {
            parallelism_layout: v1::ParallelismLayout::PerStageMesh.into(),
            node_spanning: v1::NodeSpanning::Anywhere.into(),
            ..Default::default()
        }),
        search: Some(v1::SearchOptions {
            time_limit: prost_types::Duration::try_from(Duration::from_secs_f64(seconds)).ok(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

async fn start(planner: &Channel, request: v1::RecommendPlanRequest, id: &str) -> Operation {
    let request = v1::StartRecommendationRequest { request: Some(request), request_id: id.to_owned() };
    call(planner, request).await.expect("the search begins")
}

fn metadata(operation: &Operation) -> v1::StartRecommendationMetadata {
    operation.metadata.as_ref().expect("it has metadata").to_msg().expect("of this type")
}

/// The operation once it is as wanted.
async fn until(planner: &Channel, name: &str, wanted: impl Fn(&Operation) -> bool) -> Operation {
    let look = async {
        loop {
            let shown =
                call(planner, GetOperationRequest { name: name.to_owned() }).await.expect("it is there");
            if wanted(&shown) {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("in time")
}

fn error(operation: &Operation) -> (Code, String) {
    match &operation.result {
        Some(operation::Result::Error(error)) => (Code::from_i32(error.code), error.message.clone()),
        other => panic!("no error: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_search_shows_its_progress_and_can_be_cancelled() {
    let planner = Planner::start();
    with_profiles(&planner, LAYERS).await;
    let channel = planner.channel().await;
    let id = "6f2c1f3e-6d0f-4c55-9a55-0f6f0a3f1d22";
    let begun = start(&channel, heavy(600.0), id).await;
    assert!(!begun.done);
    assert_eq!(
        start(&channel, heavy(600.0), id).await.name,
        begun.name,
        "a retried call begins no second search"
    );
    let shown = until(&channel, &begun.name, |of| metadata(of).state_count > 0).await;
    let progress = metadata(&shown);
    assert_eq!(progress.phase(), v1::start_recommendation_metadata::Phase::Searching);
    assert_eq!(progress.time_limit.unwrap().seconds, 600);
    let listed = json(&planner, &["operation", "list", "--filter", "state = running"]);
    assert_eq!(listed["operations"][0]["name"], begun.name.as_str());

    call(&channel, CancelOperationRequest { name: begun.name.clone() }).await.unwrap();
    let ended = until(&channel, &begun.name, |of| of.done).await;
    assert_eq!(error(&ended).0, Code::Cancelled);

    let too_long = v1::StartRecommendationRequest { request: Some(heavy(3_601.0)), ..Default::default() };
    assert_eq!(call(&channel, too_long).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(call(&channel, heavy(51.0)).await.unwrap_err().code(), Code::InvalidArgument, "for one call");
}

/// A search that ends by itself has the plan that a call has; the command line waits for it, and cancels it when it is interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_waits_for_a_long_search_or_cancels_it() {
    let planner = Planner::start();
    with_profiles(&planner, LAYERS).await;
    let arguments = ["plan", "recommend", "--profile", "short", "--devices", "2x8GiB", "--search-time", "2m"];
    let plan = json(&planner, &arguments);
    let operations = json(&planner, &["operation", "list"]);
    let operation = operations["operations"][0]["name"].as_str().expect("an operation").to_owned();
    let ended = until(&planner.channel().await, &operation, |of| of.done).await;
    let Some(operation::Result::Response(response)) = ended.result else { panic!("{ended:?}") };
    let found: v1::RecommendPlanResponse = response.to_msg().expect("a response");
    let found = found.into_plan().expect("a plan");
    assert_eq!(plan["name"], found.name.as_str());
    assert_eq!(cli(&planner, &[&arguments[..], &["--dry-run"]].concat()[..]).code, 2);

    let line =
        "plan recommend --profile long --devices 64x8GiB --objective min-iteration-time --search-time 30m";
    let mut interrupted = Command::new(binary("loadmaster"))
        .args(line.split(' '))
        .env("LOADMASTER_ADDRESS", planner.address())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let running = || json(&planner, &["operation", "list", "--filter", "state = running"]);
    let begin = std::time::Instant::now();
    while running()["operations"].as_array().is_none_or(Vec::is_empty) {
        assert!(begin.elapsed() < PATIENCE, "no operation begins");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    kill(Pid::from_raw(interrupted.id().cast_signed()), Signal::SIGINT).expect("it runs");
    assert_eq!(interrupted.wait().expect("it ends").code(), Some(130));
    let begin = std::time::Instant::now();
    while !running()["operations"].as_array().is_some_and(Vec::is_empty) {
        assert!(begin.elapsed() < PATIENCE, "the search is not cancelled");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A planner that stops ends its searches; those of one that is killed end once another planner notices.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_does_not_survive_its_planner() {
    let mut planner = Planner::start();
    with_profiles(&planner, LAYERS).await;
    for is_killed in [false, true] {
        let channel = planner.channel().await;
        let name = start(&channel, heavy(600.0), "").await.name;
        until(&channel, &name, |of| {
            metadata(of).phase() == v1::start_recommendation_metadata::Phase::Searching
        })
        .await;
        if is_killed {
            planner.kill();
        } else {
            assert!(planner.program().stop().success());
        }
        planner.restart();
        let ended = until(&planner.channel().await, &name, |of| of.done).await;
        let (code, message) = error(&ended);
        assert_eq!(code, Code::Unavailable, "{message}");
        let Some(operation::Result::Error(error)) = &ended.result else { unreachable!() };
        let info = tonic_types::pb::ErrorInfo::decode(error.details[0].value.as_slice()).unwrap();
        assert_eq!(info.reason, Reason::PlannerRestarted.as_str());
    }
}
