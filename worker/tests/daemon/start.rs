//! Pins what is checked before a worker offers anything, and what ends it for good.

use loadmaster_proto::{LIBTORCH_VERSION, WORKER_PROTOCOL_VERSION};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::harness::{Daemon, Setup, welcomed};
use crate::planner::Planner;

#[tokio::test]
async fn the_hello_says_what_the_worker_is() {
    let mut planner = Planner::start().await;
    let _daemon = Daemon::start(&planner, "measure");
    let hello = planner.welcome().await.hello;
    assert_eq!(hello.protocol_version, WORKER_PROTOCOL_VERSION);
    assert_eq!(hello.worker, "workers/node-1");
    assert_eq!(hello.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(hello.libtorch_version, LIBTORCH_VERSION);
    assert!(
        hello.core_count > 0 && hello.thread_count == (hello.core_count / 2).max(1),
        "two slots share the cores"
    );
    assert!(!hello.host.is_empty() && !hello.session_id.is_empty());
    let ids: Vec<&str> = hello.devices.iter().map(|device| device.id.as_str()).collect();
    assert_eq!(ids, ["cpu0", "cpu1"]);
    assert!(hello.devices.iter().all(|device| device.capacity_bytes == 64 << 20));
}

/// The exit code and the last words of a daemon that cannot start.
async fn end_of(setup: Setup<'_>) -> (i32, String) {
    let planner = Planner::start().await;
    let mut daemon = Daemon::start_with(&planner, setup);
    let code = daemon.exit_code().await;
    assert!(daemon.folders().is_empty(), "{:?}", daemon.folders());
    (code, daemon.log())
}

#[tokio::test]
async fn a_rank_of_another_libtorch_is_refused_at_start() {
    let (code, log) = end_of(Setup { probe: "old-libtorch", ..Setup::default() }).await;
    assert_eq!(code, 4, "{log}");
    assert!(log.contains("finds libtorch 2.10.0") && log.contains("LD_LIBRARY_PATH"), "{log}");
}

#[tokio::test]
async fn a_missing_libtorch_is_told_with_its_remedy() {
    let (code, log) = end_of(Setup { probe: "no-libtorch", ..Setup::default() }).await;
    assert_eq!(code, 4, "{log}");
    assert!(log.contains("libtorch_cpu.so") && log.contains("Install libtorch"), "{log}");
}

#[tokio::test]
async fn a_path_too_long_for_sockets_is_found_at_start() {
    let planner = Planner::start().await;
    let long = tempfile::Builder::new().prefix(&"x".repeat(90)).tempdir().unwrap();
    let mut daemon = Daemon::start_in(long, &format!("http://{}", planner.address), Setup::default());
    assert_eq!(daemon.exit_code().await, 1);
    assert!(daemon.log().contains("--work-dir"));
}

#[tokio::test]
async fn a_wrong_command_line_is_an_exit_code_of_its_own() {
    let (code, log) = end_of(Setup { args: &["--gpus", "first"], ..Setup::default() }).await;
    assert_eq!(code, 2, "{log}");
    assert!(log.contains("neither an index nor a UUID"), "{log}");
}

async fn end_after(refusal: Status) -> (i32, String) {
    let planner = Planner::start().await;
    planner.refuse(refusal);
    let mut daemon = Daemon::start(&planner, "measure");
    let code = daemon.exit_code().await;
    assert!(daemon.folders().is_empty(), "{:?}", daemon.folders());
    (code, daemon.log())
}

#[tokio::test]
async fn a_planner_that_speaks_another_version_ends_the_worker() {
    let details = ErrorDetails::with_error_info("PROTOCOL_VERSION_UNSUPPORTED", "loadmaster.dev", []);
    let status =
        Status::with_error_details(Code::FailedPrecondition, "this planner speaks version 9", details);
    let (code, log) = end_after(status).await;
    assert_eq!(code, 3, "{log}");
    assert!(log.contains("this planner speaks version 9"), "{log}");
}

#[tokio::test]
async fn a_planner_that_denies_permission_ends_the_worker() {
    let (code, log) = end_after(Status::permission_denied("workers/node-1 is not yours")).await;
    assert_eq!(code, 3, "{log}");
    assert!(log.contains("workers/node-1 is not yours"), "{log}");
}

/// A refusal in the middle of a run leaves nothing running.
#[tokio::test]
async fn a_refused_reconnect_ends_the_runs() {
    let (planner, mut daemon, connection) = welcomed("busy-family").await;
    connection.lease("one", 1, &["cpu0"]).await;
    let child = daemon.pid("child-0").await;
    planner.refuse(Status::unauthenticated("who are you?"));
    drop(connection);
    assert_eq!(daemon.exit_code().await, 3);
    assert!(!crate::harness::is_alive(child));
    assert!(daemon.folders().is_empty(), "{:?}", daemon.folders());
}

#[tokio::test]
async fn a_planner_that_restarts_is_dialled_again() {
    let mut planner = Planner::start().await;
    planner.refuse(Status::unavailable("starting"));
    let daemon = Daemon::start(&planner, "measure");
    crate::harness::eventually("it was turned away", || daemon.log().contains("starting (Unavailable)"))
        .await;
    planner.refuse(None);
    planner.welcome().await;
}
