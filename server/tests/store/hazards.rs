//! What has gone wrong elsewhere and must not here: a transaction that leaks into the next borrower of
//! its connection, a hot query that loses its index, and notifications that nobody hears.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use loadmaster::store::CLAIM;
use serde_json::Value;
use sqlx::{Connection, PgConnection};

use crate::support::samples::{claim, measurement, profile, try_claim, worker};
use crate::support::{count, end_leases, execute, store, store_with};

/// Polls a future that cannot be ready yet so many times, and drops it: what a server does to a handler
/// whose client goes away.
fn poll_and_drop<T>(future: impl Future<Output = T>, polls: u32) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if future.as_mut().poll(&mut context).is_ready() {
            return;
        }
    }
}

/// sqlx 0.9.0's `begin` is not cancel-safe: dropped while BEGIN is on its way, it returns its connection
/// inside an open transaction, and the next borrower's write is reported as done and then lost.
#[tokio::test]
async fn a_cancelled_begin_does_not_swallow_the_next_write() {
    let store = store_with(1).await;
    let pool = store.pool();
    sqlx::raw_sql("CREATE TABLE written (id int)").execute(pool).await.unwrap();
    for round in 0..20 {
        {
            let mut connection = pool.acquire().await.unwrap();
            poll_and_drop(connection.begin(), 1 + round % 2);
        }
        poll_and_drop(pool.begin(), 2);
        sqlx::query("INSERT INTO written VALUES ($1)").bind(round as i32).execute(pool).await.unwrap();
    }
    let options = pool.connect_options();
    let mut other = PgConnection::connect_with(&options).await.unwrap();
    let seen: i64 = sqlx::query_scalar("SELECT count(*) FROM written").fetch_one(&mut other).await.unwrap();
    assert_eq!(seen, 20, "others see what was written");
    store.close().await;
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM written").fetch_one(&mut other).await.unwrap();
    assert_eq!(kept, 20, "and it stays when the connection is gone");
}

/// The same through our own calls: whenever a caller goes away, the store goes on working.
#[tokio::test]
async fn calls_may_be_dropped_at_any_moment() {
    let store = store_with(2).await;
    profile(&store, "a", 40).await;
    let w = worker("w");
    for polls in 1..=20 {
        poll_and_drop(try_claim(&store, &w), polls);
        let limit = Duration::from_micros(u64::from(polls) * 100);
        drop(tokio::time::timeout(limit, try_claim(&store, &w)).await);
    }
    // Every claim was made whole or not at all, and the others can still be had.
    let mut claimed = 0;
    while try_claim(&store, &w).await.is_some() {
        claimed += 1;
    }
    let running =
        count(&store, "SELECT count(*) FROM runs WHERE state = 'running' AND lease_token = 1").await;
    assert_eq!(running, 40, "{claimed} of them now");
}

fn nodes<'a>(plan: &'a Value, all: &mut Vec<&'a Value>) {
    all.push(plan);
    for child in plan["Plans"].as_array().into_iter().flatten() {
        nodes(child, all);
    }
}

/// With a long backlog the claim must walk the partial index in its order: no sort, no scan of the
/// table, also with the generic plan that a prepared statement gets after some uses.
#[tokio::test]
async fn the_claim_walks_its_index_however_long_the_queue_is() {
    let store = store().await;
    profile(&store, "a", 1).await;
    execute(
        &store,
        "INSERT INTO runs (id, operation_id, profile_id, model_id, training, work, iterations, device_kind,
                           device_count, min_capacity_bytes, deadline_seconds, create_time, state, end_time)
         SELECT 'filler-' || n, operation_id, profile_id, model_id, training, work, iterations,
                CASE n % 3 WHEN 0 THEN 'NVIDIA H200' ELSE 'cpu' END, 1 + n % 4, min_capacity_bytes,
                deadline_seconds, now() - n * interval '1 second',
                CASE WHEN n % 10 < 7 THEN 'queued' ELSE 'cancelled' END,
                CASE WHEN n % 10 < 7 THEN NULL ELSE now() END
         FROM runs, generate_series(1, 30000) AS n WHERE runs.device_kind = 'cpu'",
    )
    .await;
    execute(&store, "ANALYZE runs").await;
    let mut connection = store.pool().acquire().await.unwrap();
    for mode in ["SET plan_cache_mode = force_generic_plan", "SET plan_cache_mode = force_custom_plan"] {
        sqlx::raw_sql(mode).execute(&mut *connection).await.unwrap();
        sqlx::raw_sql("DEALLOCATE ALL").execute(&mut *connection).await.unwrap();
        let prepare = format!("PREPARE pinned (text, bigint[], text, double precision, bigint[]) AS {CLAIM}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(prepare)).execute(&mut *connection).await.unwrap();
        let explain =
            "EXPLAIN (FORMAT JSON) EXECUTE pinned ('cpu', '{5000000,4000000}', 'w', 30, '{5000000,4000000}')";
        let row = sqlx::raw_sql(explain).fetch_one(&mut *connection).await.unwrap();
        let text: String = sqlx::Row::try_get_unchecked(&row, 0).unwrap();
        let plan: Value = serde_json::from_str(&text).unwrap();
        let mut all = Vec::new();
        nodes(&plan[0]["Plan"], &mut all);
        let kinds: Vec<&str> = all.iter().filter_map(|node| node["Node Type"].as_str()).collect();
        assert!(!kinds.iter().any(|kind| kind.contains("Sort") || *kind == "Seq Scan"), "{kinds:?}\n{text}");
        let scan = all.iter().find(|node| node["Index Name"] == "runs_queue");
        let scan = scan.unwrap_or_else(|| panic!("the index is not used: {text}"));
        let condition = scan["Index Cond"].as_str().unwrap();
        assert!(condition.contains("device_kind") && condition.contains("device_count"), "{condition}");
    }
    drop(connection);

    let begin = Instant::now();
    for _ in 0..50 {
        claim(&store, &worker("w")).await;
    }
    let each = begin.elapsed() / 50;
    assert!(each < Duration::from_millis(50), "a claim took {each:?}");
}

/// Heartbeats are the most frequent write: they must touch no index (Postgres calls it HOT).
#[tokio::test]
async fn a_heartbeat_writes_no_index() {
    let store = store().await;
    profile(&store, "a", 1).await;
    let w = worker("w");
    let claim = claim(&store, &w).await;
    let held = [loadmaster::store::records::HeldLease {
        run: claim.run.clone(),
        lease_token: 1,
        progress: 0.5,
        phase: "training".to_owned(),
    }];
    for _ in 0..20 {
        store.renew_leases(&w, &held, Duration::from_secs(30)).await.unwrap();
    }
    // Statistics come when a connection is idle for a moment.
    let begin = Instant::now();
    loop {
        let (updates, hot): (i64, i64) =
            sqlx::query_as("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'runs'")
                .fetch_one(store.pool())
                .await
                .unwrap();
        // The claim itself moves between indexes.
        if updates >= 21 {
            // A full page that cannot be tidied up at once is moved from, now and then.
            assert!(hot * 10 >= updates * 8, "{hot} of {updates}");
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "statistics never came: {updates}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn listeners_hear_of_new_work_and_of_nothing_else() {
    let store = store().await;
    let mut raw = sqlx::postgres::PgListener::connect_with(store.pool()).await.unwrap();
    raw.listen("loadmaster_runs").await.unwrap();
    let heard = async |raw: &mut sqlx::postgres::PgListener| {
        let mut count = 0;
        while tokio::time::timeout(Duration::from_millis(200), raw.recv()).await.is_ok() {
            count += 1;
        }
        count
    };
    let (_, operation) = profile(&store, "a", 50).await;
    assert_eq!(heard(&mut raw).await, 1, "one for all runs of a call");

    let w = worker("w");
    let first = claim(&store, &w).await;
    claim(&store, &w).await;
    let result = [measurement(0)];
    assert!(store.complete_run(&w, &first.run, 1, &result, 1.0).await.is_ok());
    store.renew_leases(&w, &[], Duration::from_secs(1)).await.unwrap();
    store.expire_leases().await.unwrap();
    assert_eq!(heard(&mut raw).await, 0, "claims, results, heartbeats and an idle reaper are quiet");

    end_leases(&store).await;
    store.expire_leases().await.unwrap();
    assert_eq!(heard(&mut raw).await, 1, "a run came back");
    store.cancel_operation(&operation).await.unwrap();
    assert_eq!(heard(&mut raw).await, 1, "cancelled");
}

#[tokio::test]
async fn a_listener_wakes_at_once_and_keeps_a_notification_that_came_early() {
    let store = store().await;
    let mut listener = store.listen();
    // The first wake-up says that it listens from now on.
    tokio::time::timeout(Duration::from_secs(4), listener.changed()).await.unwrap();
    profile(&store, "a", 1).await;
    let begin = Instant::now();
    listener.changed().await;
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    profile(&store, "b", 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begin = Instant::now();
    listener.changed().await;
    assert!(begin.elapsed() < Duration::from_millis(100), "it came before it was asked for");

    // Its connection is cut: it comes back by itself, and says so, because something may be lost.
    execute(
        &store,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND query LIKE 'LISTEN%'",
    )
    .await;
    let begin = Instant::now();
    listener.changed().await;
    assert!(begin.elapsed() < Duration::from_secs(4), "reconnected, not polled: {:?}", begin.elapsed());
}
