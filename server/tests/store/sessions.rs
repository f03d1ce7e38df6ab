//! Workers over the wire: what a planner promises them about their leases and reports.

use std::time::Duration;

use loadmaster::dispatch::{Dispatcher, LeaseTerms};
use loadmaster::retention::Purges;
use loadmaster::rpc::{Limits, Services, Settings};
use loadmaster::store::Store;
use loadmaster::store::records::{NewRun, OperationState, ProfileState, RunState, WorkerState};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::name::{RunName, WorkerName};
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::wire::v1::worker_service_client::WorkerServiceClient;
use loadmaster_proto::wire::worker_v1::planner_message::Message as FromPlanner;
use loadmaster_proto::wire::worker_v1::session_service_client::SessionServiceClient;
use loadmaster_proto::wire::worker_v1::worker_message::Message as ToPlanner;
use loadmaster_proto::wire::{v1, worker_v1};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tonic_health::server::HealthReporter;
use tonic_types::StatusExt;

use crate::support::samples::{LEASE, claim, measurement, profile, queue, run, worker};
use crate::support::{count, execute, store};

/// Longest wait for what must come.
const SOON: Duration = Duration::from_secs(20);

/// Waits for what must come.
async fn eventually(what: &str, has_come: impl AsyncFn() -> bool) {
    for _ in 0..200 {
        if has_come().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it does not happen that {what}");
}

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
        purges: Purges::new(store.clone()),
        reflection: false,
        limits: Limits { calls: 8, ..Limits::default() },
        settings: Settings::default(),
    };
    let served = services.build(HealthReporter::new()).unwrap();
    tokio::spawn(served.serve(listener, None, stop.clone()));
    Planner { address, _stop: stop.drop_guard() }
}

impl Planner {
    async fn channel(&self) -> Channel {
        Endpoint::from_shared(self.address.clone()).unwrap().connect().await.unwrap()
    }
}

/// The worker's end of a stream.
struct Worker {
    outgoing: mpsc::Sender<worker_v1::WorkerMessage>,
    incoming: Streaming<worker_v1::PlannerMessage>,
}

impl Worker {
    async fn connect(planner: &Planner, held_runs: Vec<worker_v1::HeldRun>) -> Self {
        Self::with(planner, worker_v1::Hello { held_runs, ..hello(1) }).await
    }

    async fn with(planner: &Planner, hello: worker_v1::Hello) -> Self {
        Self::try_with(planner, hello).await.unwrap()
    }

    async fn try_with(planner: &Planner, hello: worker_v1::Hello) -> Result<Self, Status> {
        let (outgoing, to_send) = mpsc::channel(8);
        outgoing.send(message(ToPlanner::Hello(hello))).await.unwrap();
        let mut client = SessionServiceClient::new(planner.channel().await);
        let incoming = client.connect(ReceiverStream::new(to_send)).await?.into_inner();
        let mut worker = Self { outgoing, incoming };
        assert!(matches!(worker.next().await, FromPlanner::Welcome(_)));
        Ok(worker)
    }

    /// Reports what it likes of a run, and waits until that is taken note of.
    async fn reported(&mut self, lease: &worker_v1::Lease, measurements: Vec<v1::Measurement>) {
        let (run, lease_token) = (lease.run.clone(), lease.lease_token);
        let result =
            worker_v1::RunResult { run, lease_token, measurements, link_measurement: None, seconds: 1.0 };
        self.send(ToPlanner::Result(result)).await;
        self.is_acknowledged().await;
    }

    /// Fails a run.
    async fn failed(&mut self, lease: &worker_v1::Lease, message: &str) {
        let failure = v1::RunFailure {
            kind: v1::run_failure::Kind::Exited.into(),
            exit_code: 1,
            message: message.to_owned(),
            stage_index: None,
            ..v1::RunFailure::default()
        };
        let (run, lease_token) = (lease.run.clone(), lease.lease_token);
        let failed = worker_v1::RunFailed { run, lease_token, failure: Some(failure), seconds: 1.0 };
        self.send(ToPlanner::Failed(failed)).await;
        self.is_acknowledged().await;
    }

    async fn is_acknowledged(&mut self) {
        let answer = self.next().await;
        assert!(matches!(&answer, FromPlanner::Acknowledged(stored) if stored.applied), "{answer:?}");
    }

    /// Ends a run with a result, and waits until that is stored.
    async fn measured(&mut self, lease: &worker_v1::Lease) {
        let measurements = (0..).zip(&lease.device_ids).map(|(stage, _)| (&measurement(stage)).into());
        self.reported(lease, measurements.collect()).await;
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

    async fn lease(&mut self) -> worker_v1::Lease {
        match self.next().await {
            FromPlanner::Lease(lease) => lease,
            other => panic!("not a lease: {other:?}"),
        }
    }
}

/// A worker with this many CPU slots, which does not know its cores.
fn hello(slots: i32) -> worker_v1::Hello {
    worker_v1::Hello {
        session_id: "one".to_owned(),
        host: "here".to_owned(),
        core_count: 0,
        thread_count: 0,
        ..loadmaster_tests::hello("w", slots)
    }
}

fn message(message: ToPlanner) -> worker_v1::WorkerMessage {
    worker_v1::WorkerMessage { message: Some(message) }
}

#[tokio::test]
async fn a_hello_renews_the_leases_that_it_names() {
    let store = store().await;
    profile(&store, "a", 1).await;
    let claim = claim(&store, &worker("w")).await;
    execute(&store, "UPDATE runs SET lease_expires_at = now() + interval '3 seconds'").await;
    // No heartbeat comes in time, and none may be waited for.
    let planner = planner(&store, LEASE / 3).await;
    let held = worker_v1::HeldRun {
        run: claim.run.to_string(),
        lease_token: claim.lease_token,
        device_ids: vec!["cpu0".to_owned()],
        ..worker_v1::HeldRun::default()
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
    let worker_v1::Lease { run, lease_token, .. } = worker.lease().await;
    let twice = vec![v1::Measurement::from(&measurement(0)); 2];
    let result = worker_v1::RunResult {
        run: run.clone(),
        lease_token,
        measurements: twice,
        link_measurement: None,
        seconds: 1.0,
    };
    worker.send(ToPlanner::Result(result)).await;
    let answer = worker.next().await;
    assert_eq!(
        answer,
        FromPlanner::Acknowledged(worker_v1::Acknowledged { run: run.clone(), lease_token, applied: true })
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
    worker.send(ToPlanner::Heartbeat(worker_v1::Heartbeat::default())).await;
    assert_eq!(worker.lease().await.device_ids, ["cpu0"]);
}

/// Four slots on two cores: runs are timed two at a time, and one that needs all four slots alone.
#[tokio::test]
async fn no_more_runs_are_leased_at_once_than_there_are_cores_for() {
    let store = store().await;
    let planner = planner(&store, LEASE / 3).await;
    let all_slots = NewRun { device_count: 4, ..run() };
    queue(&store, "a", vec![run(), run(), run(), all_slots]).await;

    let mut worker =
        Worker::with(&planner, worker_v1::Hello { core_count: 2, thread_count: 1, ..hello(4) }).await;
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

/// A worker is given what its host's memory holds, and the next run when that is free again.
#[tokio::test]
async fn runs_that_the_hosts_memory_does_not_hold_together_are_leased_one_after_the_other() {
    let store = store().await;
    let planner = planner(&store, LEASE / 3).await;
    let pool = StageActions { host_pool: Bytes(60), ..StageActions::default() };
    let strategy = run().strategy.with_actions(vec![pool.clone()]).unwrap();
    let taking = NewRun { strategy, ..run() };
    queue(&store, "a", vec![taking.clone(), taking]).await;

    let mut plain =
        Worker::with(&planner, worker_v1::Hello { worker: "workers/plain".to_owned(), ..hello(2) }).await;
    plain.is_given_nothing().await;
    let mut worker = Worker::with(&planner, worker_v1::Hello { host_memory_bytes: 100, ..hello(2) }).await;
    let first = worker.lease().await;
    assert_eq!(first.spec.as_ref().unwrap().stage_memory_optimizations, [(&pool).into()]);
    worker.is_given_nothing().await;
    worker.measured(&first).await;
    worker.lease().await;
    plain.is_given_nothing().await;
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

/// What a worker measured is held against what it was asked for: a field that contradicts is named, nothing is
/// stored, and the run is free for somebody else.
#[tokio::test]
async fn a_result_that_contradicts_its_run_is_refused_by_its_field() {
    let store = store().await;
    let planner = planner(&store, LEASE / 3).await;
    profile(&store, "a", 1).await;
    let mut worker = Worker::connect(&planner, Vec::new()).await;
    type Bend = fn(&mut v1::Measurement);
    let lie: [(&str, Bend); 3] = [
        ("measurements[0].micro_batch_size: 8 is not the requested value, 4", |of| of.micro_batch_size = 8),
        ("measurements[0].peak_allocated_bytes", |of| of.peak_allocated_bytes = 1 << 40),
        ("measurements[0].iteration_seconds", |of| of.iteration_seconds = f64::NAN),
    ];
    let mut name = None;
    for (token, (field, bend)) in (1..).zip(lie) {
        let lease = worker.lease().await;
        assert_eq!(lease.lease_token, token);
        let mut measurement = v1::Measurement::from(&measurement(0));
        bend(&mut measurement);
        worker.reported(&lease, vec![measurement]).await;
        let run = RunName::parse("run", &lease.run).unwrap();
        let failed = store.get_run(&run).await.unwrap();
        let last = failed.failures.last().unwrap();
        assert_eq!(last.failure.kind, FailureKind::ResultRefused);
        assert!(last.failure.message.contains(field), "{}", last.failure.message);
        execute(&store, "UPDATE runs SET not_before = now()").await;
        name = Some(run);
    }
    assert_eq!(store.get_run(&name.unwrap()).await.unwrap().state, RunState::Failed);
    assert_eq!(count(&store, "SELECT count(*) FROM measurements").await, 0);
}

/// The first keeps name and leases, the second is refused until the first has gone; both are told.
#[tokio::test]
async fn of_two_workers_of_one_name_the_second_is_refused_and_both_are_told() {
    let store = store().await;
    let planner = planner(&store, LEASE / 3).await;
    let mut first = Worker::connect(&planner, Vec::new()).await;
    let twin = || worker_v1::Hello { session_id: "two".to_owned(), host: "there".to_owned(), ..hello(1) };
    let refused = Worker::try_with(&planner, twin()).await.err().unwrap();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(
        refused.message().contains("from host \"here\", with its last heartbeat at 20"),
        "{}",
        refused.message()
    );
    let info = refused.get_details_error_info().unwrap();
    assert_eq!((info.reason.as_str(), info.metadata["host"].as_str()), ("WORKER_NAME_TAKEN", "here"));
    match first.next().await {
        FromPlanner::Notice(worker_v1::Notice { text }) => {
            assert!(text.contains("on host \"there\""), "{text}")
        }
        other => panic!("{other:?}"),
    }
    profile(&store, "a", 1).await;
    let lease = first.lease().await;
    first.measured(&lease).await;

    drop(first);
    eventually("the name is free", async || Worker::try_with(&planner, twin()).await.is_ok()).await;
}

/// Heartbeats of all workers are written together, and a change of a cordon reaches the worker without a query for each.
#[tokio::test]
async fn heartbeats_are_written_and_cordons_followed_and_undone() {
    let store = store().await;
    let heartbeat = Duration::from_millis(200);
    let planner = planner(&store, heartbeat).await;
    let mut worker = Worker::connect(&planner, Vec::new()).await;
    let name = WorkerName::from_id("w").unwrap();
    let begin = store.get_worker(&name).await.unwrap().heartbeat_time;
    let mut client = WorkerServiceClient::new(planner.channel().await);
    worker.send(ToPlanner::Heartbeat(worker_v1::Heartbeat::default())).await;
    let cordon = v1::CordonWorkerRequest { name: name.to_string() };
    let cordoned = client.cordon_worker(cordon).await.unwrap().into_inner();
    assert_eq!(cordoned.state(), v1::worker::State::Cordoned);
    assert_eq!(worker.next().await, FromPlanner::Cordon(worker_v1::Cordon {}));
    profile(&store, "a", 1).await;
    worker.send(ToPlanner::Heartbeat(worker_v1::Heartbeat::default())).await;
    worker.is_given_nothing().await;
    worker.send(ToPlanner::Heartbeat(worker_v1::Heartbeat::default())).await;
    let uncordon = v1::UncordonWorkerRequest { name: name.to_string() };
    let uncordoned = client.uncordon_worker(uncordon).await.unwrap().into_inner();
    assert_eq!(uncordoned.state(), v1::worker::State::Alive);
    assert_eq!(worker.next().await, FromPlanner::Uncordon(worker_v1::Uncordon {}));
    // Heard of within two heartbeats, or it is given nothing.
    worker.send(ToPlanner::Heartbeat(worker_v1::Heartbeat::default())).await;
    let lease = worker.lease().await;
    worker.measured(&lease).await;
    let is_written = async || store.get_worker(&name).await.unwrap().heartbeat_time > begin;
    eventually("a heartbeat is written", is_written).await;
}

/// A command that cannot work is not started for every run three times: three runs are enough.
#[tokio::test]
async fn a_campaign_whose_runs_fail_alike_stops_and_says_how_to_go_on() {
    let store = store().await;
    let planner = planner(&store, LEASE / 3).await;
    let (name, operation) = profile(&store, "a", 50).await;
    let mut worker = Worker::connect(&planner, Vec::new()).await;
    // Alike but for a number; the first one's own second attempt does not count twice.
    for process in 1..=3 {
        let lease = worker.lease().await;
        worker
            .failed(&lease, &format!("the command gpt ended with code 1: process {process}: no megatron"))
            .await;
    }
    worker.is_given_nothing().await;
    let ended = store.get_operation(&operation).await.unwrap();
    let OperationState::Failed { reason, message, .. } = &ended.state else { panic!("{ended:?}") };
    assert_eq!(reason, "RUN_FAILED");
    for part in
        ["3 runs failed with the same error", "no megatron", "workers/w", "loadmaster profile resume a"]
    {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!((ended.runs.cancelled, ended.runs.total()), (50, 50));
    let attempts = store.profile_attempts(&name).await.unwrap();
    assert_eq!(attempts.iter().filter(|attempt| attempt.failed).count(), 3);
    assert_eq!(store.get_profile(&name).await.unwrap().state, ProfileState::Incomplete);
}

/// What succeeds between failures shows that the command can work.
#[tokio::test]
async fn a_campaign_that_yields_something_between_failures_goes_on() {
    let store = store().await;
    let planner = planner(&store, LEASE / 3).await;
    let (_, operation) = profile(&store, "a", 10).await;
    let mut worker = Worker::connect(&planner, Vec::new()).await;
    for _ in 0..2 {
        for _ in 0..2 {
            let lease = worker.lease().await;
            worker.failed(&lease, "no megatron").await;
        }
        let lease = worker.lease().await;
        worker.measured(&lease).await;
    }
    worker.lease().await;
    assert_eq!(store.get_operation(&operation).await.unwrap().state, OperationState::Running);
}

/// What workers without work cost does not grow with their heartbeats: these are written together.
#[tokio::test]
async fn heartbeats_of_idle_workers_ask_the_database_for_nothing() {
    const HEARTBEATS: i64 = 200;
    let store = store().await;
    let planner = planner(&store, LEASE / 3).await;
    let mut workers = Vec::new();
    for id in ["a", "b", "c", "d"] {
        let hello =
            worker_v1::Hello { worker: format!("workers/{id}"), session_id: id.to_owned(), ..hello(1) };
        workers.push((WorkerName::from_id(id).unwrap(), Worker::with(&planner, hello).await));
    }
    for (name, worker) in &workers {
        for _ in 0..HEARTBEATS {
            worker.send(ToPlanner::Heartbeat(worker_v1::Heartbeat::default())).await;
        }
        worker.send(ToPlanner::Goodbye(worker_v1::Goodbye {})).await;
        // Messages are heard in order: once this one was, the others were.
        let is_heard = async || store.get_worker(name).await.unwrap().state == WorkerState::Gone;
        eventually("the goodbye is heard", is_heard).await;
    }
    // Connections tell their statistics about once a second.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let statements =
        count(&store, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").await;
    assert!(statements < HEARTBEATS * 4 / 2, "{statements} statements");
}
