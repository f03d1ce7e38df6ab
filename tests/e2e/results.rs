//! What a worker reports is held against what it was asked for: nothing wrong is stored, or ever reused.

use loadmaster_proto::wire::v1::run_spec::Work;
use loadmaster_proto::wire::worker_v1::planner_message::Message as FromPlanner;
use loadmaster_proto::wire::worker_v1::session_service_client::SessionServiceClient;
use loadmaster_proto::wire::worker_v1::worker_message::Message as ToPlanner;
use loadmaster_proto::wire::{v1, worker_v1};
use loadmaster_tests::{Planner, Worker, WorkerOptions, cli, hello, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use crate::campaigns::run;

/// Takes every run and answers at once with what nobody asked for, until the planner hangs up.
async fn lie(channel: Channel) {
    let (outgoing, to_send) = mpsc::channel(64);
    let say = async |message| outgoing.send(worker_v1::WorkerMessage { message: Some(message) }).await;
    say(ToPlanner::Hello(hello("liar", 1))).await.unwrap();
    let mut heard =
        SessionServiceClient::new(channel).connect(ReceiverStream::new(to_send)).await.unwrap().into_inner();
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(500));
    loop {
        tokio::select! {
            _ = ticks.tick() => say(ToPlanner::Heartbeat(worker_v1::Heartbeat::default())).await.unwrap(),
            message = heard.message() => match message {
                Ok(Some(worker_v1::PlannerMessage { message: Some(FromPlanner::Lease(lease)) })) => {
                    say(ToPlanner::Result(result(lease))).await.unwrap();
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            },
        }
    }
}

/// As an honest rank would report it, but of twice the micro-batch size.
fn result(lease: worker_v1::Lease) -> worker_v1::RunResult {
    let spec = lease.spec.unwrap();
    let training = spec.training.unwrap();
    let Some(Work::SoloStage(solo)) = spec.work else { panic!("not alone: {:?}", spec.work) };
    let stage = solo.stage.unwrap();
    let times = |layer| v1::LayerSeconds {
        layer,
        forward_seconds: 0.1,
        backward_seconds: 0.1,
        ..v1::LayerSeconds::default()
    };
    let measurement = v1::Measurement {
        layer_seconds: (stage.first_layer..=stage.last_layer).map(times).collect(),
        stage: Some(stage),
        stage_index: solo.stage_index,
        stage_count: solo.stage_count,
        solo: true,
        micro_batch_size: training.micro_batch_size * 2,
        in_flight_micro_batch_count: training.micro_batch_count,
        recompute: v1::RecomputePolicy::None.into(),
        peak_allocated_bytes: 1 << 20,
        capacity_bytes: 1 << 30,
        iteration_seconds: 0.5,
        environment: Some(v1::Environment { device_kind: "cpu".to_owned(), ..v1::Environment::default() }),
        ..v1::Measurement::default()
    };
    let worker_v1::Lease { run, lease_token, .. } = lease;
    worker_v1::RunResult {
        run,
        lease_token,
        measurements: vec![measurement],
        link_measurement: None,
        seconds: 1.0,
    }
}

/// A lying worker costs a few runs and no profile: its results are refused by name, the campaign stops, and an
/// honest worker completes the profile without measuring everything `--ignore-stored-runs`.
#[tokio::test(flavor = "multi_thread")]
async fn results_that_contradict_their_runs_are_refused_and_an_honest_worker_completes_the_profile() {
    let planner = Planner::start();
    let liar = tokio::spawn(lie(planner.channel().await));
    // The runs wait until it is there.
    loadmaster_tests::wait_until("the liar is connected", || {
        (cli(&planner, &["worker", "show", "liar"]).code == 0).then_some(())
    });
    let output = cli(&planner, &run("p", &[]));
    assert_eq!(output.code, 1, "{}", output.stderr);
    for part in [
        "3 runs failed with the same error",
        "micro_batch_size: 4",
        "is not the requested value",
        "profile resume p",
    ] {
        assert!(output.stderr.contains(part), "no {part:?} in {}", output.stderr);
    }
    let runs = json(&planner, &["run", "list", "--limit", "0"]);
    let kinds: Vec<&str> = runs["runs"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|run| run["failures"][0]["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["RESULT_REFUSED"; 3]);
    assert_eq!(json(&planner, &["profile", "show", "p"])["state"], "INCOMPLETE");
    liar.abort();

    let _worker = Worker::start(&planner, &WorkerOptions::default());
    let profile = json(&planner, &["profile", "resume", "p"]);
    assert_eq!(profile["state"], "COMPLETE", "{profile}");
    let predicted = cli(&planner, &["plan", "predict", "--profile", "p", "--pipeline-layout", "3-3"]);
    assert_eq!(predicted.code, 0, "{}", predicted.stderr);
}
