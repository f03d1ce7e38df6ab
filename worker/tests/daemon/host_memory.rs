//! Pins what a worker offers of its host beside devices, and that runs take no more of it than there is.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::measure::run::RunSpec;
use loadmaster_proto::wire::v1;
use v1::run_failure::Kind;

use crate::harness::{Daemon, Setup, gone, welcomed};
use crate::planner::{Planner, spec};

const OFFER: [&str; 4] = ["--host-memory", "3MiB", "--cpu-links", "host=1GB/s,peer=8GB/s"];

fn setup(rank: &str) -> Setup<'_> {
    Setup { rank, args: &OFFER, ..Setup::default() }
}

/// A stage alone whose device takes so much of the host.
fn taking(mebibytes: u64) -> RunSpec {
    let mut spec = spec(1);
    spec.strategy.stages[0].actions.host_pool = Bytes(mebibytes << 20);
    spec
}

#[tokio::test]
async fn the_hello_says_what_is_offered_and_ranks_what_holds_for_them() {
    let (_planner, daemon, mut connection) = welcomed(setup("measure")).await;
    assert_eq!(connection.hello.host_memory_bytes, 3 << 20);
    let pace = v1::CopyBandwidth { host_bytes_per_second: Some(1e9), peer_bytes_per_second: Some(8e9) };
    assert_eq!(connection.hello.copy_bandwidth, Some(pace));
    connection.lease_run("one", 1, &["cpu0"], &taking(2), 600.0).await;
    connection.next_result().await;
    let told: RankSpec = serde_json::from_str(&daemon.written("spec-0.json").await).unwrap();
    assert_eq!(told.pace, CopyPace { host: Some(1e9), peer: Some(8e9) });
    assert_eq!(told.actions.host_pool, Bytes(2 << 20));
}

/// A whole model in chunks that may take so much of the host.
fn in_chunks(bytes: u64) -> RunSpec {
    let mut spec = spec(1);
    spec.strategy.stages[0].chunks = Some(Box::new(loadmaster_samples::chunked(bytes)));
    spec
}

/// What a stage in chunks takes of the host is counted as a pool is, and its rank is told how it trains.
#[tokio::test]
async fn a_rank_is_told_its_chunks_and_their_memory_is_taken() {
    let mut planner = Planner::start().await;
    let args = ["--host-memory", "3GiB"];
    let daemon = Daemon::start_with(&planner, Setup { rank: "wait", args: &args, ..Setup::default() });
    let mut connection = planner.welcome().await;
    connection.lease_run("one", 1, &["cpu0"], &in_chunks(2 << 30), 600.0).await;
    let told: RankSpec = serde_json::from_str(&daemon.written("spec-0.json").await).unwrap();
    assert_eq!(told.chunks.as_deref(), in_chunks(2 << 30).strategy.chunks());
    connection.lease_run("two", 2, &["cpu1"], &in_chunks(2 << 30), 600.0).await;
    let failure = connection.next_failure().await;
    assert_eq!(failure.kind(), Kind::HandedBack);
    assert!(
        failure.message.contains("needs 2.00 GiB") && failure.message.contains("1.00 GiB are free"),
        "{failure:?}"
    );
    connection.acknowledge("two", 2).await;
    daemon.go();
    connection.next_result().await;
    connection.acknowledge("one", 1).await;
    connection.lease_run("two", 3, &["cpu1"], &in_chunks(3 << 30), 600.0).await;
    assert_eq!(connection.next_result().await.lease_token, 3);
}

/// Chunks that the model does not fit into are no run that another worker could do.
#[tokio::test]
async fn chunks_that_do_not_hold_their_model_never_begin() {
    let (_planner, _daemon, mut connection) = welcomed(setup("measure")).await;
    connection.lease_run("one", 1, &["cpu0"], &in_chunks(1), 600.0).await;
    let failure = connection.next_failure().await;
    assert_eq!(failure.kind(), Kind::NotStarted);
    assert!(failure.message.contains("chunks.host_memory"), "{}", failure.message);
}

#[tokio::test]
async fn nothing_of_the_host_is_offered_unless_somebody_says_so() {
    let (_planner, daemon, mut connection) = welcomed("measure").await;
    assert_eq!((connection.hello.host_memory_bytes, connection.hello.copy_bandwidth), (0, None));
    connection.lease_run("one", 1, &["cpu0"], &taking(1), 600.0).await;
    assert_eq!(connection.next_failure().await.kind(), Kind::HandedBack);
    connection.acknowledge("one", 1).await;
    connection.lease("two", 2, &["cpu0"]).await;
    connection.next_result().await;
    let told: RankSpec = serde_json::from_str(&daemon.written("spec-0.json").await).unwrap();
    assert!(told.pace.is_free());
}

#[tokio::test]
async fn two_runs_that_do_not_fit_together_are_not_run_together() {
    let (_planner, daemon, mut connection) = welcomed(setup("wait")).await;
    connection.lease_run("one", 1, &["cpu0"], &taking(2), 600.0).await;
    daemon.pid("pid-0").await;
    connection.lease_run("two", 2, &["cpu1"], &taking(2), 600.0).await;
    let failure = connection.next_failure().await;
    assert_eq!(failure.kind(), Kind::HandedBack);
    assert!(failure.message.contains("1.00 MiB are free"), "{}", failure.message);
    connection.acknowledge("two", 2).await;
    daemon.go();
    connection.next_result().await;
    connection.acknowledge("one", 1).await;
    connection.lease_run("two", 3, &["cpu1"], &taking(3), 600.0).await;
    assert_eq!(connection.next_result().await.lease_token, 3);
}

/// What a run had of the host goes with its processes, and these with their daemon: the next one offers all of it.
#[tokio::test]
async fn a_killed_daemon_leaves_the_memory_of_its_host_to_the_next_one() {
    let (mut planner, daemon, connection) = welcomed(setup("wait")).await;
    connection.lease_run("one", 1, &["cpu0"], &taking(3), 600.0).await;
    let rank = daemon.pid("pid-0").await;
    drop(connection);
    let _folder = daemon.murder().await;
    gone(rank).await;
    let _daemon = Daemon::start_with(&planner, setup("measure"));
    let mut connection = planner.welcome().await;
    assert_eq!(connection.hello.host_memory_bytes, 3 << 20);
    connection.lease_run("two", 2, &["cpu0"], &taking(3), 600.0).await;
    connection.next_result().await;
}

#[tokio::test]
async fn a_pool_that_cannot_be_had_is_out_of_memory_in_the_hosts_ledger() {
    let (_planner, _daemon, mut connection) = welcomed(setup("host-out-of-memory")).await;
    connection.lease_run("one", 1, &["cpu0"], &taking(1), 600.0).await;
    let failure = connection.next_failure().await;
    assert_eq!((failure.kind(), failure.stage_index), (Kind::OutOfMemory, Some(0)));
    for told in ["3.00 MiB requested", "of 1.00 MiB were in use (host memory)", "less offloading"] {
        assert!(failure.message.contains(told), "{told}: {}", failure.message);
    }
    let lack = failure.out_of_memory.unwrap();
    assert_eq!((lack.accounting(), lack.allowed_bytes), (v1::MemoryAccounting::Host, 1 << 20));
}

#[tokio::test]
async fn more_of_the_host_than_there_is_ends_the_worker_with_what_there_is() {
    let planner = Planner::start().await;
    let args = ["--host-memory", "8000TiB"];
    let mut daemon = Daemon::start_with(&planner, Setup { args: &args, ..Setup::default() });
    assert_eq!(daemon.exit_code().await, 2, "{}", daemon.log());
    let log = daemon.log();
    assert!(log.contains("--host-memory 8000.00 TiB") && log.contains("exceeds the CPU memory of"), "{log}");
}
