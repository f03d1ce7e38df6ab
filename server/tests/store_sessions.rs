//! Workers over the wire: what a planner promises them about their leases and reports.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails the test")]

mod support;

use std::time::Duration;

use loadmaster::dispatch::{Dispatcher, LeaseTerms};
use loadmaster::rpc::{Limits, Services};
use loadmaster::store::Store;
use loadmaster::store::records::{NewRun, RunState};
use loadmaster_proto::WORKER_PROTOCOL_VERSION;
use loadmaster_proto::name::RunName;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::planner_message::Message as FromPlanner;
use loadmaster_proto::wire::v1::worker_message::Message as ToPlanner;
use loadmaster_proto::wire::v1::worker_service_client::WorkerServiceClient;
use support::samples::{LEASE, claim, measurement, model, new_profile, profile, run, worker};
use support::{execute, store};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Streaming;
use tonic::transport::Endpoint;
use tonic_health::server::HealthReporter;

/// Longest wait for what must come.
const SOON: Duration = Duration::from_secs(20);

/// A planner on a port of its own.
struct Planner {
    address: String,
    _stop: DropGuard,
}

async fn planner(store: &Store, heartbeat: Duration) -> Planner {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let services = Services {
        store: store.clone(),
        dispatcher: Dispatcher::start(store.clone(), LeaseTerms { lease: LEASE, heartbeat }),
        reflection: false,
        limits: Limits { calls: 8, ..Limits::default() },
    };
    let served = services.build(HealthReporter::new()).unwrap();
    tokio::spawn(served.serve(listener, stop.clone()));
    Planner { address, _stop: stop.drop_guard() }
}

/// The worker's end of a stream.
struct Worker {
    outgoing: mpsc::Sender<v1::WorkerMessage>,
    incoming: Streaming<v1::PlannerMessage>,
}

impl Worker {
    async fn connect(planner: &Planner, held_runs: Vec<v1::HeldRun>) -> Self {
        Self::with(planner, v1::Hello { held_runs, ..hello(1) }).await
    }

    async fn with(planner: &Planner, hello: v1::Hello) -> Self {
        let (outgoing, to_send) = mpsc::channel(8);
        outgoing.send(message(ToPlanner::Hello(hello))).await.unwrap();
        let endpoint = Endpoint::from_shared(planner.address.clone()).unwrap();
        let mut client = WorkerServiceClient::new(endpoint.connect().await.unwrap());
        let incoming = client.connect(ReceiverStream::new(to_send)).await.unwrap().into_inner();
        let mut worker = Self { outgoing, incoming };
        assert!(matches!(worker.next().await, FromPlanner::Welcome(_)));
        worker
    }

    /// Ends a run with a result, and waits until that is stored.
    async fn measured(&mut self, lease: &v1::Lease) {
        let v1::Lease { run, lease_token, device_ids, .. } = lease;
        let measurements = (0..).zip(device_ids).map(|(stage, _)| (&measurement(stage)).into()).collect();
        let (run, lease_token) = (run.clone(), *lease_token);
        self.send(ToPlanner::Result(v1::RunResult {
            run,
            lease_token,
            measurements,
            links: None,
            seconds: 1.0,
        }))
        .await;
        let answer = self.next().await;
        assert!(matches!(&answer, FromPlanner::Acknowledged(stored) if stored.applied), "{answer:?}");
    }

    async fn is_given_nothing(&mut self) {
        let message = tokio::time::timeout(Duration::from_millis(500), self.incoming.message()).await;
        assert!(message.is_err(), "{message:?}");
    }

    async fn send(&self, what: ToPlanner) {
        self.outgoing.send(message(what)).await.unwrap();
    }

    async fn next(&mut self) -> FromPlanner {
        let message = tokio::time::timeout(SOON, self.incoming.message()).await.expect("in time");
        message.unwrap().expect("the stream goes on").message.unwrap()
    }

    async fn lease(&mut self) -> v1::Lease {
        match self.next().await {
            FromPlanner::Lease(lease) => lease,
            other => panic!("not a lease: {other:?}"),
        }
    }
}

/// A worker with this many CPU slots.
fn hello(slots: i32) -> v1::Hello {
    let slot = |ordinal: i32| v1::Device {
        id: format!("cpu{ordinal}"),
        backend: v1::Backend::Cpu.into(),
        kind: "cpu".to_owned(),
        capacity_bytes: 1 << 30,
        physical_bytes: 1 << 30,
        ordinal,
        ..v1::Device::default()
    };
    v1::Hello {
        protocol_version: WORKER_PROTOCOL_VERSION,
        worker: "workers/w".to_owned(),
        devices: (0..slots).map(slot).collect(),
        session_id: "one".to_owned(),
        ..v1::Hello::default()
    }
}

fn message(message: ToPlanner) -> v1::WorkerMessage {
    v1::WorkerMessage { message: Some(message) }
}

#[tokio::test]
async fn a_hello_renews_the_leases_that_it_names() {
    let store = store().await;
    profile(&store, "a", 1).await;
    let claim = claim(&store, &worker("w")).await;
    execute(&store, "UPDATE runs SET lease_expires_at = now() + interval '3 seconds'").await;
    // No heartbeat comes in time, and none may be waited for.
    let planner = planner(&store, LEASE / 3).await;
    let held = v1::HeldRun {
        run: claim.run.to_string(),
        lease_token: claim.lease_token,
        device_ids: vec!["cpu0".to_owned()],
        ..v1::HeldRun::default()
    };
    let _worker = Worker::connect(&planner, vec![held]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let run = store.get_run(&claim.run).await.unwrap();
    assert_eq!((run.state, run.failures.len()), (RunState::Running, 0));
}

#[tokio::test]
async fn a_result_that_cannot_be_stored_is_a_failed_attempt_and_ends_no_connection() {
    let store = store().await;
    let planner = planner(&store, Duration::from_secs(1)).await;
    profile(&store, "a", 1).await;
    let mut worker = Worker::connect(&planner, Vec::new()).await;
    let v1::Lease { run, lease_token, .. } = worker.lease().await;
    let twice = vec![v1::Measurement::from(&measurement(0)); 2];
    let result =
        v1::RunResult { run: run.clone(), lease_token, measurements: twice, links: None, seconds: 1.0 };
    worker.send(ToPlanner::Result(result)).await;
    let answer = worker.next().await;
    assert_eq!(
        answer,
        FromPlanner::Acknowledged(v1::Acknowledged { run: run.clone(), lease_token, applied: true })
    );
    let name = RunName::parse("run", &run).unwrap();
    let failed = store.get_run(&name).await.unwrap();
    let why = &failed.failures.last().unwrap().failure.message;
    assert!(why.contains("two measurements of device 0 of stage 0"), "{why}");
    execute(&store, "UPDATE runs SET not_before = now()").await;
    let again = worker.lease().await;
    assert!((&again.run, again.lease_token) == (&run, 2), "{again:?}");
}

#[tokio::test]
async fn a_worker_whose_heartbeats_fail_to_come_is_given_nothing() {
    let store = store().await;
    let heartbeat = Duration::from_millis(200);
    let planner = planner(&store, heartbeat).await;
    let mut worker = Worker::connect(&planner, Vec::new()).await;
    tokio::time::sleep(heartbeat * 4).await;
    let (_, operation) = profile(&store, "a", 1).await;
    tokio::time::sleep(heartbeat * 4).await;
    assert_eq!(store.get_operation(&operation).await.unwrap().runs.queued, 1);
    worker.send(ToPlanner::Heartbeat(v1::Heartbeat::default())).await;
    assert_eq!(worker.lease().await.device_ids, ["cpu0"]);
}

/// Four slots on two cores: runs are timed two at a time, and one that needs all four slots alone.
#[tokio::test]
async fn no_more_runs_are_leased_at_once_than_there_are_cores_for() {
    let store = store().await;
    let planner = planner(&store, LEASE / 3).await;
    let all_slots = NewRun { device_count: 4, ..run() };
    let model = model(&store).await;
    let runs = vec![run(), run(), run(), all_slots];
    store.create_profile(new_profile("a", &model), runs, &[], None).await.unwrap();

    let mut worker = Worker::with(&planner, v1::Hello { cores: 2, threads: 1, ..hello(4) }).await;
    let (first, second) = (worker.lease().await, worker.lease().await);
    worker.is_given_nothing().await;
    worker.measured(&first).await;
    let third = worker.lease().await;
    worker.is_given_nothing().await;
    worker.measured(&second).await;
    worker.is_given_nothing().await;
    worker.measured(&third).await;
    assert_eq!(worker.lease().await.device_ids.len(), 4, "idle, it is given what needs more than its cores");
}

/// A worker that does not know its cores is given a run per slot.
#[tokio::test]
async fn unknown_cores_limit_nothing() {
    let store = store().await;
    let planner = planner(&store, LEASE / 3).await;
    profile(&store, "a", 3).await;
    let mut worker = Worker::with(&planner, hello(3)).await;
    for _ in 0..3 {
        assert_eq!(worker.lease().await.device_ids.len(), 1);
    }
}
