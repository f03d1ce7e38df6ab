//! What every gRPC service of ours owes its callers: health, reflection, paging, idempotency, drain.

use loadmaster_proto::wire::longrunning::WaitOperationRequest;
use loadmaster_proto::wire::v1;
use loadmaster_tests::{Planner, TINY_GPT2, Worker, WorkerOptions, call, cli, json, wait_until};
use nix::sys::signal::Signal;
use tonic::Code;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_types::StatusExt;

fn gpt2_source() -> v1::ModelSource {
    let gpt2 = v1::Gpt2Options {
        blocks: 2,
        hidden_size: 32,
        heads: 2,
        sequence_length: 16,
        vocabulary_size: 100,
        ..Default::default()
    };
    let options = Some(v1::zoo_model::Options::Gpt2(gpt2));
    let zoo = v1::ZooModel { family: "gpt2".to_owned(), options };
    v1::ModelSource { source: Some(v1::model_source::Source::Zoo(zoo)) }
}

fn profile_request(request_id: &str, micro_batches: i32) -> v1::CreateProfileRequest {
    v1::CreateProfileRequest {
        subject: Some(v1::create_profile_request::Subject::Source(gpt2_source())),
        training: Some(v1::TrainingSpec {
            micro_batch_size: 2,
            micro_batch_count: micro_batches,
            ..Default::default()
        }),
        device_count: 2,
        device_kind: "cpu".to_owned(),
        request_id: request_id.to_owned(),
        profiling_mode: v1::ProfilingMode::PerStage.into(),
        ..Default::default()
    }
}

/// Watchers learn of a stop before the port closes, the process ends with 0 and its database too.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_planner_says_so_drains_and_takes_its_database_along() {
    let mut planner = Planner::start();
    let mut health = HealthClient::new(planner.channel().await);
    let service = "loadmaster.v1.PlanService".to_owned();
    let mut watch = health.watch(HealthCheckRequest { service }).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    let unknown = HealthCheckRequest { service: "nonsense".to_owned() };
    assert_eq!(health.check(unknown).await.unwrap_err().code(), Code::NotFound);

    planner.program().signal(Signal::SIGTERM);
    let next = watch.message().await.unwrap().unwrap();
    assert_eq!(next.status(), ServingStatus::NotServing);
    drop(watch);
    let status = planner.program().wait();
    assert!(status.success(), "{status}: {}", planner.program().output());
    let pid_file = planner.data_dir().join("postgres").join("postmaster.pid");
    assert!(!pid_file.exists(), "Postgres was stopped cleanly");
}

/// A client that never lets go of its stream must not keep the planner from stopping.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_delays_a_stop_no_longer_than_the_limit() {
    let mut planner = Planner::start_with(&["--drain-timeout", "1s"]);
    let mut health = HealthClient::new(planner.channel().await);
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    watch.message().await.unwrap();
    let status = planner.program().stop();
    assert!(status.success(), "{status}: {}", planner.program().output());
    assert!(!planner.data_dir().join("postgres").join("postmaster.pid").exists());
    drop(watch);
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_every_service() {
    let planner = Planner::start();
    let mut client = ServerReflectionClient::new(planner.channel().await);
    let request = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut answers =
        client.server_reflection_info(tokio_stream::iter([request])).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("not a list of services");
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for wanted in [
        "loadmaster.v1.ModelService",
        "loadmaster.v1.ClusterService",
        "loadmaster.v1.ProfileService",
        "loadmaster.v1.PlanService",
        "loadmaster.v1.WorkerService",
        "loadmaster.v1.HistoryService",
        "loadmaster.worker.v1.SessionService",
        "google.longrunning.Operations",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
    }

    // Whoever asks for the health of what was listed gets it.
    let mut health = HealthClient::new(planner.channel().await);
    for service in names {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = health.check(request).await.unwrap_or_else(|error| panic!("{service}: {error}"));
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving, "{service}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_call_returns_the_first_calls_operation() {
    let planner = Planner::start();
    let channel = planner.channel().await;
    let id = "6f2c1f3e-6d0f-4c55-9a55-0f6f0a3f1d11";
    let first = call(&channel, profile_request(id, 2)).await.unwrap();
    let again = call(&channel, profile_request(id, 2)).await.unwrap();
    assert_eq!(first.name, again.name);
    let other = call(&channel, profile_request(id, 3)).await.unwrap_err();
    assert_eq!(other.code(), Code::InvalidArgument);
    assert_eq!(other.get_details_bad_request().unwrap().field_violations[0].field, "request_id");
    let nonsense = call(&channel, profile_request("nonsense", 3)).await.unwrap_err();
    assert_eq!(nonsense.get_details_bad_request().unwrap().field_violations[0].field, "request_id");

    // Nothing can run: waiting ends with the operation as it is, which says what it lacks.
    let timeout = Some(Default::default());
    let waited = call(&channel, WaitOperationRequest { name: first.name, timeout }).await.unwrap();
    assert!(!waited.done);
    let metadata = waited.metadata.unwrap().to_msg::<v1::RunMetadata>().unwrap();
    assert!(metadata.message.contains("Start such a worker"), "{metadata:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_cover_everything_once_and_tokens_fit_their_own_listing_alone() {
    let planner = Planner::start();
    let channel = planner.channel().await;
    for blocks in 1..=5 {
        let mut source = gpt2_source();
        let Some(v1::model_source::Source::Zoo(zoo)) = source.source.as_mut() else { unreachable!() };
        let Some(v1::zoo_model::Options::Gpt2(gpt2)) = zoo.options.as_mut() else { unreachable!() };
        gpt2.blocks = blocks;
        let request = v1::CreateModelRequest { source: Some(source), validate_only: false };
        call(&channel, request).await.unwrap();
    }
    let mut names = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListModelsRequest { page_size: 2, page_token, ..Default::default() };
        let page = call(&channel, request).await.unwrap();
        assert!(page.models.len() <= 2);
        names.extend(page.models.into_iter().map(|model| model.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
        let request =
            v1::ListProfilesRequest { page_size: 2, page_token: page_token.clone(), ..Default::default() };
        assert_eq!(call(&channel, request).await.unwrap_err().code(), Code::InvalidArgument);
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 5);
}

#[test]
fn a_cordoned_worker_stays_but_takes_no_more_runs() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    assert_eq!(json(&planner, &["worker", "cordon", "test"])["state"], "CORDONED");
    let options = "--device-kind cpu --no-wait --micro-batch-size 1 --micro-batches 1 --device-count 2";
    let begun = json(&planner, &format!("profile run {options} {TINY_GPT2}"));
    let operation = begun["name"].as_str().unwrap().to_owned();
    // Several heartbeats pass; the queue must not have moved.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let shown = json(&planner, &["operation", "show", &operation]);
    assert_eq!(
        shown["metadata"]["runCounts"]["queuedCount"], shown["metadata"]["runCounts"]["totalCount"],
        "{shown}"
    );
    assert_eq!(cli(&planner, &["operation", "cancel", &operation]).code, 0);
    wait_until("a cancelled queue is empty", || {
        let shown = json(&planner, &["operation", "show", &operation]);
        (shown["done"] == true).then_some(())
    });
    assert_eq!(json(&planner, &["worker", "uncordon", "test"])["state"], "ALIVE");
}
