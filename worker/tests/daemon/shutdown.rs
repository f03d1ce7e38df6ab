//! Pins how the daemon ends: politely, at once, or murdered, nothing of it stays.

use loadmaster_proto::wire::{v1, worker_v1};
use nix::sys::signal::Signal;
use v1::run_failure::Kind;
use worker_v1::worker_message::Message as ToPlanner;

use crate::harness::{Daemon, Setup, eventually, folders, gone, is_alive, welcomed};
use crate::planner::{Connection, Planner};

async fn says_goodbye(connection: &mut Connection) {
    let message = connection.next_report().await;
    assert!(matches!(message, ToPlanner::Goodbye(_)), "{message:?}");
}

#[tokio::test]
async fn sigterm_ends_the_runs_it_holds_and_takes_no_more() {
    let (_planner, mut daemon, mut connection) = welcomed("wait").await;
    connection.lease("one", 1, &["cpu0"]).await;
    let pid = daemon.pid("pid-0").await;
    daemon.signal(Signal::SIGTERM);
    says_goodbye(&mut connection).await;
    connection.lease("two", 2, &["cpu1"]).await;
    assert_eq!(connection.next_failure().await.kind(), Kind::HandedBack);
    connection.acknowledge("two", 2).await;
    assert!(is_alive(pid));
    daemon.go();
    assert_eq!(connection.next_result().await.run, "runs/one");
    connection.acknowledge("one", 1).await;
    connection.hung_up().await;
    drop(connection);
    assert_eq!(daemon.exit_code().await, 0);
    assert!(!is_alive(pid) && daemon.folders().is_empty(), "{:?}", daemon.folders());
}

#[tokio::test]
async fn the_drain_timeout_hands_runs_back() {
    let mut planner = Planner::start().await;
    let setup = Setup { rank: "busy-family", args: &["--drain-timeout", "500ms"], ..Setup::default() };
    let mut daemon = Daemon::start_with(&planner, setup);
    let mut connection = planner.welcome().await;
    connection.lease("one", 1, &["cpu0"]).await;
    let child = daemon.pid("child-0").await;
    daemon.signal(Signal::SIGTERM);
    says_goodbye(&mut connection).await;
    assert_eq!(connection.next_failure().await.kind(), Kind::HandedBack);
    assert!(!is_alive(child));
    connection.acknowledge("one", 1).await;
    connection.hung_up().await;
    drop(connection);
    assert_eq!(daemon.exit_code().await, 0);
    assert!(daemon.folders().is_empty(), "{:?}", daemon.folders());
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let (_planner, mut daemon, mut connection) = welcomed("busy-family").await;
    connection.lease("one", 1, &["cpu0", "cpu1"]).await;
    let pids = [daemon.pid("pid-0").await, daemon.pid("child-1").await];
    daemon.signal(Signal::SIGINT);
    says_goodbye(&mut connection).await;
    daemon.signal(Signal::SIGTERM);
    let failure = connection.next_failure().await;
    assert_eq!(failure.kind(), Kind::HandedBack);
    assert!(!pids.into_iter().any(is_alive));
    // Without an acknowledgement it does not wait for long.
    assert_eq!(daemon.exit_code().await, 0);
    assert!(daemon.folders().is_empty(), "{:?}", daemon.folders());
}

#[tokio::test]
async fn a_worker_without_a_planner_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    // Port 9 (discard): no one listens there.
    let mut daemon = Daemon::start_in(folder, "http://127.0.0.1:9", Setup::default());
    eventually("it tries and fails", || daemon.log().contains("not connected to the planner")).await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code().await, 0);
    assert!(daemon.folders().is_empty(), "{:?}", daemon.folders());
}

/// No handler of its own can help it then: the kernel must kill its ranks.
#[tokio::test]
async fn ranks_die_with_a_murdered_daemon_and_the_next_one_cleans_up() {
    let (mut planner, daemon, connection) = welcomed("hang").await;
    connection.lease("one", 1, &["cpu0", "cpu1"]).await;
    let ranks = [daemon.pid("pid-0").await, daemon.pid("pid-1").await];
    let folder = daemon.murder().await;
    for rank in ranks {
        gone(rank).await;
    }
    let left = folders(&folder.path().join("work"));
    assert_eq!(left.len(), 2, "the folders of the dead daemon and of its run: {left:?}");

    let address = format!("http://{}", planner.address);
    let next = Daemon::start_in(folder, &address, Setup::default());
    let again = planner.welcome().await;
    assert_ne!(again.hello.session_id, connection.hello.session_id, "a restart is no reconnect");
    assert!(again.hello.held_runs.is_empty());
    let folders = next.folders();
    assert!(folders.len() == 1 && !left.contains(&folders[0]), "{folders:?}");
}
