//! Runs that measure links: one worker's, fenced like any other, stored once.

use loadmaster::store::records::{
    Fenced, FreeDevice, NewLinkRun, OperationState, OperationTarget, PageRequest, RequestKey, RunState,
    RunWork,
};
use loadmaster::store::{Store, StoreError};
use loadmaster_filter::Query;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::measure::links::{
    Collectives, GroupLink, LinkMeasurement, LinkPoint, LinkWork, PairLink,
};
use loadmaster_proto::measure::run::Task;
use loadmaster_proto::name::WorkerName;
use uuid::Uuid;

use crate::support::samples::{LEASE, claim, cpu, failure, measurement, new_worker, profile, worker};
use crate::support::{execute, store};

async fn join(store: &Store, id: &str) -> WorkerName {
    store.upsert_worker(&new_worker(id, "one"), LEASE).await.unwrap();
    worker(id)
}

fn work() -> LinkWork {
    LinkWork { devices: 2, payload_bytes: vec![4 << 10, 1 << 20], repeats: 3 }
}

fn run(by: &WorkerName) -> NewLinkRun {
    NewLinkRun {
        worker: by.clone(),
        work: work(),
        device_kind: "cpu".to_owned(),
        min_capacity: 1 << 20,
        deadline_seconds: 60,
    }
}

fn links(bytes_per_second: f64) -> LinkMeasurement {
    let point =
        |payload_bytes: u64| LinkPoint { payload_bytes, seconds: payload_bytes as f64 / bytes_per_second };
    let points: Vec<LinkPoint> = work().payload_bytes.into_iter().map(point).collect();
    LinkMeasurement {
        device_ids: vec!["cpu0".to_owned(), "cpu1".to_owned()],
        transport: Collectives::Host,
        pairs: vec![PairLink::new(0, 1, points.clone()).unwrap()],
        groups: vec![GroupLink::new(vec![0, 1], points).unwrap()],
        environment: Environment::default(),
        copies: None,
        updates: Vec::new(),
    }
}

const FREE: usize = 2;

fn free() -> Vec<FreeDevice> {
    vec![cpu(1 << 30); FREE]
}

/// No other worker gets the run, however long it waits; its own one does, and nothing but the work is in it.
#[tokio::test]
async fn only_the_worker_itself_measures_its_links() {
    let store = store().await;
    let (own, other) = (join(&store, "own").await, join(&store, "other").await);
    let operation = store.create_link_runs(&[run(&own)], None).await.unwrap();
    assert_eq!(store.get_operation(&operation).await.unwrap().target, OperationTarget::Links);
    assert_eq!(store.claim_run(&other, &free(), &free(), LEASE).await.unwrap(), None);
    let claim = store.claim_run(&own, &free(), &free(), LEASE).await.unwrap().expect("its own run");
    assert_eq!((claim.task, claim.device_count), (Task::Links(work()), 2));
    assert_eq!(store.get_run(&claim.run).await.unwrap().work, RunWork::Links(work()));
}

/// A run that only an absent worker may take says so, and does not keep others from their runs.
#[tokio::test]
async fn a_run_of_another_worker_blocks_nobody() {
    let store = store().await;
    let (own, other) = (join(&store, "own").await, join(&store, "other").await);
    let operation = store.create_link_runs(&[run(&own)], None).await.unwrap();
    execute(&store, "UPDATE runs SET not_before = now() - interval '1 minute'").await;
    profile(&store, "a", 1).await;
    let claimed = store.claim_run(&other, &free()[..1], &free(), LEASE).await.unwrap();
    assert!(claimed.expect("the training run").task.trained().is_some());
    assert_eq!(store.unplaceable_run(&operation).await.unwrap(), None);
    execute(&store, "UPDATE workers SET state = 'lost' WHERE id = 'own'").await;
    assert!(store.unplaceable_run(&operation).await.unwrap().is_some(), "others have the devices, in vain");
}

/// A result is stored once, under the current fence; with an old one it is refused.
#[tokio::test]
async fn a_late_result_is_refused_and_a_repeated_one_stored_once() {
    let store = store().await;
    let own = join(&store, "own").await;
    let operation = store.create_link_runs(&[run(&own)], None).await.unwrap();
    let first = store.claim_run(&own, &free(), &free(), LEASE).await.unwrap().unwrap();
    let broke = failure(FailureKind::Crashed { signal: 11 });
    let failed = store.fail_run(&own, &first.run, first.lease_token, &broke, 1.0).await.unwrap();
    assert_eq!(failed, Fenced::Applied);
    execute(&store, "UPDATE runs SET not_before = now()").await;
    let second = store.claim_run(&own, &free(), &free(), LEASE).await.unwrap().unwrap();
    let complete = async |token, bytes_per_second| {
        store.complete_links(&own, &first.run, token, &links(bytes_per_second), 1.0).await.unwrap()
    };
    assert_eq!(complete(first.lease_token, 1e9).await, Fenced::Stale);
    assert_eq!(complete(second.lease_token, 2e9).await, Fenced::Applied);
    assert_eq!(complete(second.lease_token, 3e9).await, Fenced::Applied, "in name only");
    assert_eq!(store.get_run(&first.run).await.unwrap().state, RunState::Succeeded);

    let page = PageRequest { size: 10, after: None };
    let listed = store.list_link_measurements(Some(&own), &Query::default(), &page).await.unwrap().rows;
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].worker, &listed[0].measurement), (&own, &links(2e9)));
    assert_eq!(store.operation_link_measurements(&operation).await.unwrap(), listed);
    assert_eq!(store.newest_link_measurements(&[&own]).await.unwrap(), listed);
}

/// A result of the other kind ends no run: neither links for a training run nor measurements for links.
#[tokio::test]
async fn a_result_of_the_other_kind_is_refused() {
    let store = store().await;
    let own = join(&store, "own").await;
    store.create_link_runs(&[run(&own)], None).await.unwrap();
    let exchange = store.claim_run(&own, &free(), &free(), LEASE).await.unwrap().unwrap();
    let token = exchange.lease_token;
    let stored = store.complete_run(&own, &exchange.run, token, &[measurement(0)], 1.0).await.unwrap();
    assert_eq!(stored, Fenced::Stale);
    profile(&store, "a", 1).await;
    let training = claim(&store, &own).await;
    let stored = store.complete_links(&own, &training.run, training.lease_token, &links(1e9), 1.0).await;
    assert_eq!(stored.unwrap(), Fenced::Stale);
    for run in [&exchange.run, &training.run] {
        assert_eq!(store.get_run(run).await.unwrap().state, RunState::Running);
    }
}

/// A repeated call finds the first call's operation; unknown workers are not found; cancelling ends the runs.
#[tokio::test]
async fn operations_are_found_again_and_cancelled() {
    let store = store().await;
    let own = join(&store, "own").await;
    let request = RequestKey { id: Uuid::from_u128(3), fingerprint: "links".to_owned() };
    let first = store.create_link_runs(&[run(&own)], Some(request.clone())).await.unwrap();
    assert_eq!(store.create_link_runs(&[run(&own)], Some(request)).await.unwrap(), first);
    let unknown = store.create_link_runs(&[run(&worker("nobody"))], None).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })), "{unknown:?}");
    store.cancel_operation(&first).await.unwrap();
    assert_eq!(store.get_operation(&first).await.unwrap().state, OperationState::Cancelled);
    assert_eq!(store.claim_run(&own, &free(), &free(), LEASE).await.unwrap(), None);
}
