//! Pins that each way in which a run can end is reported as what it is, and that nothing of it stays.

use loadmaster_proto::measure::links::Collectives;
use loadmaster_proto::measure::rank::{Edges, HUGE_PAGES, RankSpec};
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::wire::v1;
use v1::run_failure::Kind;

use crate::harness::{Daemon, Setup, eventually, is_alive, welcomed};
use crate::planner::Connection;

/// What a run of the pipeline of two stages fails with.
async fn failure_of(rank: &str, args: &[&str]) -> v1::RunFailure {
    let (_planner, daemon, mut connection) = welcomed(Setup { rank, args, ..Setup::default() }).await;
    connection.lease("one", 1, &["cpu0", "cpu1"]).await;
    let failure = connection.next_failure().await;
    assert_released(&daemon, &mut connection).await;
    failure
}

/// No process, no folder, and the devices are free, as soon as the outcome is known.
async fn assert_released(daemon: &Daemon, connection: &mut Connection) {
    assert_eq!(daemon.folders().len(), 1, "a run's folder is left: {:?}", daemon.folders());
    connection.acknowledge("one", 1).await;
    let heartbeat = connection.heartbeat_where(|heartbeat| heartbeat.held_runs.is_empty()).await;
    assert!(heartbeat.held_runs.is_empty());
}

#[tokio::test]
async fn a_pipeline_is_measured_in_order_of_its_stages() {
    let (_planner, daemon, mut connection) = welcomed("measure-slowly").await;
    connection.lease("one", 7, &["cpu1", "cpu0"]).await;
    let result = connection.next_result().await;
    assert_eq!((result.run.as_str(), result.lease_token), ("runs/one", 7));
    let stages: Vec<i32> = result.measurements.iter().map(|measurement| measurement.stage_index).collect();
    assert_eq!(stages, [0, 1]);
    assert!(result.seconds > 0.0);

    let spec: RankSpec = serde_json::from_str(&daemon.written("spec-1.json").await).unwrap();
    let folder = daemon.written("folder-1").await;
    assert_eq!(spec.edges, Edges::Sockets { partitioning: Partitioning::from_sizes(&[1, 1]).unwrap() });
    assert_eq!((spec.folder, spec.shard, spec.collectives), (folder.trim().into(), 0, Collectives::Host));
    assert_eq!((spec.position.stage_index, spec.position.stage_count), (1, 2));
    assert_eq!(spec.device.capacity.0, 64 << 20);
    assert!(spec.threads >= 1 && spec.neighbour_timeout_seconds > 120.0);
    let environment = format!("{}  {}", spec.threads, HUGE_PAGES.1);
    assert_eq!(daemon.written("env-1").await, environment, "threads, no GPU in sight, and pages");
    assert!(!std::path::Path::new(folder.trim()).exists(), "the folder of the run is left");
    connection.acknowledge("one", 7).await;
}

#[tokio::test]
async fn a_stage_alone_has_synthetic_edges() {
    let (_planner, daemon, mut connection) = welcomed("measure").await;
    connection.lease("one", 1, &["cpu0"]).await;
    assert_eq!(connection.next_result().await.measurements.len(), 1);
    let spec: RankSpec = serde_json::from_str(&daemon.written("spec-0.json").await).unwrap();
    assert_eq!(spec.edges, Edges::Synthetic);
}

#[tokio::test]
async fn out_of_memory_comes_with_its_bytes() {
    let failure = failure_of("0:out-of-memory 1:lost-neighbour", &[]).await;
    assert_eq!((failure.kind(), failure.stage_index), (Kind::OutOfMemory, Some(0)));
    let oom = failure.out_of_memory.unwrap();
    assert_eq!((oom.requested_bytes, oom.held_bytes, oom.allowed_bytes), (300, 800, 1000));
    assert_eq!((oom.phase.as_str(), oom.layer), ("backward", Some(1)));
}

/// Its neighbour ends first, because it lost it; the crash is what is reported.
#[tokio::test]
async fn a_crash_is_reported_with_the_name_of_its_signal() {
    let failure = failure_of("0:lost-neighbour 1:segfault", &[]).await;
    assert_eq!((failure.kind(), failure.exit_code, failure.stage_index), (Kind::Crashed, 11, Some(1)));
    assert!(failure.message.contains("SIGSEGV"), "{}", failure.message);
}

/// The other rank would go on for ever: it is killed with the failed one.
#[tokio::test]
async fn a_killed_rank_is_a_crash_that_says_so_and_takes_the_run_down() {
    let failure = failure_of("0:killed 1:wait", &[]).await;
    assert_eq!((failure.kind(), failure.exit_code, failure.stage_index), (Kind::Crashed, 9, Some(0)));
    assert!(failure.message.contains("out-of-memory killer"), "{}", failure.message);
}

#[tokio::test]
async fn an_exit_code_comes_with_the_end_of_standard_error() {
    let failure = failure_of("0:exit3 1:lost-neighbour", &[]).await;
    assert_eq!((failure.kind(), failure.exit_code, failure.stage_index), (Kind::Exited, 3, Some(0)));
    assert!(failure.message.contains("cannot open the tensor cupboard"), "{}", failure.message);
}

#[tokio::test]
async fn a_rank_may_say_itself_what_went_wrong() {
    let failure = failure_of("0:measure 1:error", &[]).await;
    assert_eq!((failure.kind(), failure.exit_code), (Kind::Exited, 1));
    assert!(failure.message.contains("the loss is not a number"), "{}", failure.message);
}

#[tokio::test]
async fn a_rank_whose_libtorch_went_away_was_not_started() {
    let failure = failure_of("loader", &[]).await;
    assert_eq!(failure.kind(), Kind::NotStarted);
    assert!(failure.message.contains("libtorch_cpu.so"), "{}", failure.message);
    let failure = failure_of("wrong-libtorch", &[]).await;
    assert_eq!(failure.kind(), Kind::NotStarted);
    assert!(failure.message.contains("found 2.13.0"), "{}", failure.message);
}

#[tokio::test]
async fn a_rank_that_measures_nothing_failed() {
    let failure = failure_of("mute", &[]).await;
    assert_eq!((failure.kind(), failure.exit_code), (Kind::Exited, 0));
    assert!(failure.message.contains("without a measurement"), "{}", failure.message);
}

#[tokio::test]
async fn a_quiet_rank_hangs() {
    let failure = failure_of("0:hang 1:hang", &["--hang-timeout", "1s"]).await;
    assert_eq!(failure.kind(), Kind::Hung);
    assert!(failure.message.contains("reported nothing for 1 s"), "{}", failure.message);
}

/// It says all the time that it works: only the deadline can end it.
#[tokio::test]
async fn the_deadline_of_the_lease_is_enforced() {
    let (_planner, daemon, mut connection) = welcomed("wait").await;
    connection.lease_until("one", 1, &["cpu0"], 1.0).await;
    let pid = daemon.pid("pid-0").await;
    let failure = connection.next_failure().await;
    assert_eq!((failure.kind(), failure.stage_index), (Kind::Hung, None));
    assert!(failure.message.contains("deadline of 1 s"), "{}", failure.message);
    assert!(!is_alive(pid));
    assert_released(&daemon, &mut connection).await;
}

/// A library that prints, and a line without end, cost neither the result nor the memory.
#[tokio::test]
async fn lines_that_are_no_events_are_survived() {
    let (_planner, daemon, mut connection) = welcomed("garbage").await;
    connection.lease("one", 1, &["cpu0"]).await;
    connection.next_result().await;
    assert!(daemon.log().contains("that is not a valid event"));
}

/// Devices are free only when whatever a rank started is gone too.
#[tokio::test]
async fn children_of_ranks_are_killed_before_the_outcome_is_known() {
    let (_planner, daemon, mut connection) = welcomed("family").await;
    connection.lease("one", 1, &["cpu0"]).await;
    connection.next_result().await;
    let child = daemon.pid("child-0").await;
    assert!(!is_alive(child), "a child of a rank outlived the run");
    eventually("it is reaped", || !std::path::Path::new(&format!("/proc/{child}")).exists()).await;
}
