//! Pins what a lease means: when it ends, its processes end; and nothing is lost between planner and
//! worker, however often they lose each other.

use std::time::Duration;

use loadmaster_proto::wire::{v1, worker_v1};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use v1::run_failure::Kind;
use worker_v1::planner_message::Message as FromPlanner;

use crate::harness::{Daemon, gone, is_alive, welcomed};
use crate::planner::Planner;

#[tokio::test]
async fn a_kill_ends_every_process_and_frees_the_devices_without_a_report() {
    let (_planner, daemon, mut connection) = welcomed("busy-family").await;
    connection.lease("one", 1, &["cpu0", "cpu1"]).await;
    let mut pids = Vec::new();
    for name in ["pid-0", "pid-1", "child-0", "child-1"] {
        pids.push(daemon.pid(name).await);
    }
    let working =
        |heartbeat: &worker_v1::Heartbeat| heartbeat.held_runs.iter().any(|held| held.progress > 0.4);
    let heartbeat = connection.heartbeat_where(working).await;
    assert_eq!(heartbeat.held_runs[0].device_ids, ["cpu0", "cpu1"]);
    assert_eq!(heartbeat.held_runs[0].phase, "backward");

    connection.kill("one", 1).await;
    connection.heartbeat_where(|heartbeat| heartbeat.held_runs.is_empty()).await;
    assert!(!pids.into_iter().any(is_alive), "a process outlived its run");
    assert_eq!(daemon.folders().len(), 1, "{:?}", daemon.folders());

    connection.lease("two", 2, &["cpu0"]).await;
    connection
        .heartbeat_where(|heartbeat| heartbeat.held_runs.iter().any(|held| held.run == "runs/two"))
        .await;
    daemon.pid("child-0").await;
    connection.kill("two", 2).await;
    connection.heartbeat_where(|heartbeat| heartbeat.held_runs.is_empty()).await;
}

/// Whatever a planner sends: each of its texts stays in its line, and within its quotes.
#[tokio::test]
async fn texts_of_a_planner_begin_no_line_of_the_log() {
    let (_planner, daemon, connection) = welcomed("busy-family").await;
    let forged = "cancelled\n2026-01-01T00:00:00.000000Z ERROR forged: everything is lost \u{1b}[2J\u{202e}";
    let long = format!("{forged}{}", "x".repeat(1 << 20));
    let kill = worker_v1::Kill { run: "runs/one".to_owned(), lease_token: 1, reason: long.clone() };
    connection.say(FromPlanner::Kill(kill)).await;
    connection.say(FromPlanner::Notice(worker_v1::Notice { text: long })).await;
    let nameless = worker_v1::Kill { run: format!("runs/{forged}"), lease_token: 1, reason: String::new() };
    connection.say(FromPlanner::Kill(nameless)).await;
    daemon.logged("ignored a message from the planner").await;
    let log = daemon.log();
    assert!(log.contains("everything is lost"), "{log}");
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01")), "{log}");
    assert!(!log.contains("\u{1b}[2J") && !log.contains('\u{202e}'), "{log}");
    assert!(log.len() < 64 << 10, "{} bytes", log.len());
}

#[tokio::test]
async fn a_lease_of_devices_that_are_taken_or_unknown_is_handed_back() {
    let (_planner, _daemon, mut connection) = welcomed("wait").await;
    connection.lease("one", 1, &["cpu0"]).await;
    connection.lease("two", 2, &["cpu0"]).await;
    let failure = connection.next_failure().await;
    assert_eq!(failure.kind(), Kind::HandedBack);
    assert!(failure.message.contains("cpu0 is in use"), "{}", failure.message);
    connection.acknowledge("two", 2).await;
    connection.lease("three", 3, &["gpu0"]).await;
    let failure = connection.next_failure().await;
    assert_eq!(failure.kind(), Kind::HandedBack);
    assert!(failure.message.contains("no device \"gpu0\""), "{}", failure.message);
}

#[tokio::test]
async fn a_lost_connection_costs_neither_the_run_nor_its_result() {
    let (mut planner, daemon, connection) = welcomed("wait").await;
    assert!(connection.hello.held_runs.is_empty());
    connection.lease("one", 5, &["cpu0"]).await;
    let pid = daemon.pid("pid-0").await;
    let session = connection.hello.session_id.clone();
    drop(connection);

    let mut connection = planner.welcome().await;
    assert_eq!(connection.hello.session_id, session, "a reconnect is no restart");
    let held = &connection.hello.held_runs[0];
    assert_eq!((held.run.as_str(), held.lease_token), ("runs/one", 5));
    assert_eq!(held.device_ids, ["cpu0"]);
    assert!(is_alive(pid));
    daemon.go();
    assert_eq!(connection.next_result().await.lease_token, 5);
    // The planner dies before it has stored it.
    drop(connection);

    let mut connection = planner.welcome().await;
    assert_eq!(connection.hello.held_runs[0].run, "runs/one", "the lease lives until the result has arrived");
    assert_eq!(connection.next_result().await.lease_token, 5);
    connection.acknowledge("one", 5).await;
    connection.heartbeat_where(|heartbeat| heartbeat.held_runs.is_empty()).await;
    drop(connection);

    let connection = planner.welcome().await;
    assert!(connection.hello.held_runs.is_empty(), "what was acknowledged is not sent again");
}

/// Someone else has the run by then: two may not work on it.
#[tokio::test]
async fn a_worker_out_of_contact_for_longer_than_a_lease_kills_its_runs() {
    let mut planner = Planner::start().await;
    let daemon = Daemon::start(&planner, "busy-family");
    let connection = planner.welcome_for(1.0).await;
    connection.lease("one", 1, &["cpu0"]).await;
    let (rank, child) = (daemon.pid("pid-0").await, daemon.pid("child-0").await);
    planner.refuse(Status::unavailable("restarting"));
    drop(connection);
    gone(rank).await;
    gone(child).await;
    planner.refuse(None);
    let connection = planner.welcome().await;
    assert!(connection.hello.held_runs.is_empty());
    assert_eq!(daemon.folders().len(), 1, "{:?}", daemon.folders());
}

#[tokio::test]
async fn a_cordoned_worker_stays_and_takes_no_more_runs() {
    let (_planner, daemon, mut connection) = welcomed("wait").await;
    connection.lease("one", 1, &["cpu0"]).await;
    connection.say(FromPlanner::Cordon(worker_v1::Cordon {})).await;
    connection.lease("two", 2, &["cpu1"]).await;
    assert_eq!(connection.next_failure().await.kind(), Kind::HandedBack);
    connection.acknowledge("two", 2).await;
    daemon.go();
    assert_eq!(connection.next_result().await.run, "runs/one");
    connection.acknowledge("one", 1).await;
    connection.heartbeat_where(|heartbeat| heartbeat.held_runs.is_empty()).await;

    connection.say(FromPlanner::Uncordon(worker_v1::Uncordon {})).await;
    connection.lease("three", 3, &["cpu1"]).await;
    assert_eq!(connection.next_result().await.run, "runs/three", "it works again");
}

/// A planner that asks for a minute's patience does not know what this worker holds.
#[tokio::test]
async fn a_worker_with_a_run_is_back_before_its_lease_ends_whatever_wait_is_asked_for() {
    let mut planner = Planner::start().await;
    let daemon = Daemon::start(&planner, "wait");
    // Within the test's patience, and well below the wait that is asked for.
    let connection = planner.welcome_for(24.0).await;
    connection.lease("one", 1, &["cpu0"]).await;
    let rank = daemon.pid("pid-0").await;
    let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(60)));
    planner.refuse(Status::with_error_details(Code::Unavailable, "busy", details));
    drop(connection);
    daemon.logged("busy").await;
    planner.refuse(None);
    let connection = planner.welcome().await;
    assert_eq!(connection.hello.held_runs[0].run, "runs/one");
    assert!(is_alive(rank));
}
