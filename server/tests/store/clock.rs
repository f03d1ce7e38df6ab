//! The database's clock may be set: nobody's lease ends early for it, and no dead worker's goes on.

use std::time::{Duration, Instant};

use loadmaster::dispatch::{Dispatcher, LeaseTerms};
use loadmaster::store::records::{Claim, HeldLease, Renewal, RunState, WorkerState};
use loadmaster::store::{ConnectOptions, Store};
use loadmaster_proto::measure::failure::FailureKind;
use sqlx::{Connection, PgConnection};

use crate::support::samples::{cpu, new_worker, profile, try_claim, worker};
use crate::support::{database, execute};

/// What planners of these tests grant.
const LEASE: Duration = Duration::from_secs(3);
/// Longest wait for what must come: far less than the jumps.
const SOON: Duration = Duration::from_secs(60);

/// A database whose `now()` is another function, which a test sets.
async fn store() -> Store {
    let url = database().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(
        "CREATE SCHEMA clock;
         CREATE TABLE clock.ahead (seconds double precision NOT NULL);
         INSERT INTO clock.ahead VALUES (0);
         CREATE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE AS
             'SELECT pg_catalog.now() + make_interval(secs => seconds) FROM clock.ahead';
         DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = clock, public, pg_catalog', current_database()); END $$",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    Store::connect(&ConnectOptions::new(url)).await.unwrap()
}

fn planner(store: &Store) -> Dispatcher {
    Dispatcher::start(store.clone(), LeaseTerms { lease: LEASE, heartbeat: LEASE / 3 })
}

async fn claim(store: &Store) -> Claim {
    let devices = [cpu(1 << 30)];
    let claim = store.claim_run(&worker("w"), &devices, &devices, LEASE).await.unwrap();
    claim.expect("a run is queued")
}

/// Waits until something of the store is so.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < SOON, "{what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_clock_that_goes_back_keeps_no_dead_worker_alive() {
    let store = store().await;
    store.upsert_worker(&new_worker("w", "one"), LEASE).await.unwrap();
    profile(&store, "a", 2).await;
    let claimed = claim(&store).await;
    let planner = planner(&store);
    tokio::time::sleep(LEASE / 2).await;
    execute(&store, "UPDATE clock.ahead SET seconds = -3600").await;
    until("the lease ends", async || store.get_run(&claimed.run).await.unwrap().state == RunState::Queued)
        .await;
    let record = store.get_run(&claimed.run).await.unwrap();
    assert_eq!(record.failures[0].failure.kind, FailureKind::LeaseExpired);
    until("the worker is lost", async || {
        store.get_worker(&worker("w")).await.unwrap().state == WorkerState::Lost
    })
    .await;
    // What was queued before the clock went back waits no hour.
    assert!(try_claim(&store, &worker("v")).await.is_some());
    planner.stop().await;
}

#[tokio::test]
async fn a_clock_that_jumps_forward_ends_no_lease_and_no_run() {
    let store = store().await;
    store.upsert_worker(&new_worker("w", "one"), LEASE).await.unwrap();
    profile(&store, "a", 1).await;
    let claimed = claim(&store).await;
    let planner = planner(&store);
    let held = || HeldLease {
        run: claimed.run.clone(),
        lease_token: claimed.lease_token,
        progress: 0.5,
        phase: String::new(),
    };
    // One look of the planner at the clock of before.
    tokio::time::sleep(LEASE / 2).await;
    execute(&store, "UPDATE clock.ahead SET seconds = 3600").await;
    let begin = Instant::now();
    while begin.elapsed() < 3 * LEASE {
        let renewals = store.renew_leases(&worker("w"), &[held()], LEASE).await.unwrap();
        assert_eq!(renewals[0].1, Renewal::Renewed);
        tokio::time::sleep(LEASE / 6).await;
    }
    let record = store.get_run(&claimed.run).await.unwrap();
    assert_eq!((record.state, record.failures.len()), (RunState::Running, 0));
    // A worker that dies then loses its lease as ever.
    until("the lease ends", async || store.get_run(&claimed.run).await.unwrap().state == RunState::Queued)
        .await;
    assert_eq!(
        store.get_run(&claimed.run).await.unwrap().failures[0].failure.kind,
        FailureKind::LeaseExpired
    );
    planner.stop().await;
}
