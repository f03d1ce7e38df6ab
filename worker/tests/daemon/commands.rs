//! Pins that a run which names a command is worked on by the operator's program and nothing else, with the
//! shipped helper and stand-in script: it allocates what it claims, and what it reports arrives.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use loadmaster_proto::wire::{v1, worker_v1};
use tempfile::TempDir;
use v1::run_failure::Kind;
use worker_v1::planner_message::Message as FromPlanner;

use crate::harness::{Daemon, Setup, gone};
use crate::planner::{Connection, Planner, spec};

/// A configuration file in a folder of its own.
fn configuration(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker.toml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

fn shipped(script: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/command").join(script);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// A configuration that offers the shipped stand-in script.
fn stand_in() -> (TempDir, String) {
    let python = std::process::Command::new("python3").arg("--version").output();
    assert!(python.is_ok_and(|python| python.status.success()), "these tests need python3: install it");
    configuration(&format!(
        "[custom_profilers.stand-in]\nargv = ['python3', '-B', '{}']\naccounting = 'allocated'\n",
        shipped("stand_in.py")
    ))
}

async fn lease(connection: &Connection, command: &str, devices: &[&str], micro_batch_size: u32) {
    let mut spec = spec(devices.len());
    spec.command = Some(command.to_owned().try_into().unwrap());
    spec.strategy.training.micro_batch_size = micro_batch_size;
    spec.strategy.training.micro_batches = 2;
    connection
        .say(FromPlanner::Lease(worker_v1::Lease {
            run: "runs/one".into(),
            lease_token: 1,
            device_ids: devices.iter().map(|&id| id.to_owned()).collect(),
            spec: Some((&spec).into()),
            deadline_seconds: 600.0,
        }))
        .await;
}

#[tokio::test]
async fn the_stand_in_allocates_what_it_claims_and_every_rank_is_measured() {
    let mut planner = Planner::start().await;
    let (_folder, path) = stand_in();
    let daemon = Daemon::start_with(&planner, Setup { args: &["--config", &path], ..Setup::default() });
    let mut connection = planner.welcome().await;
    assert_eq!(connection.hello.custom_profilers, ["stand-in"]);
    lease(&connection, "stand-in", &["cpu0", "cpu1"], 16).await;
    let result = connection.next_result().await;
    let [first, second] = result.measurements.as_slice() else { panic!("{result:?}") };
    assert_eq!((first.stage_index, second.stage_index), (0, 1));
    for (measurement, layer) in [(first, 0), (second, 1)] {
        // What the script claims: parameters, gradients and state of one layer, and the activations of
        // two micro-batches of 16. Python's own objects come on top.
        let claimed = 3 * (64 + 16 * layer) * 1024 + 2 * (8 + 4 * layer) * 1024 * 16;
        let surplus = measurement.peak_allocated_bytes - claimed;
        assert!((0..32 << 10).contains(&surplus), "{} against {claimed}", measurement.peak_allocated_bytes);
        assert_eq!(measurement.peak_accounting(), v1::MemoryAccounting::Allocated);
        assert!(measurement.iteration_seconds > 0.0);
        let environment = measurement.environment.as_ref().unwrap();
        assert_eq!(
            (environment.custom_profiler.as_str(), environment.framework.as_str()),
            ("stand-in", "stand-in")
        );
        assert!(
            environment.start_sample.is_none() && environment.core_count > 0,
            "there is no GPU, but there are cores"
        );
    }
    connection.acknowledge("one", 1).await;
    assert_eq!(daemon.folders().len(), 1, "the run's folder is gone: {:?}", daemon.folders());
}

#[tokio::test]
async fn a_device_that_is_too_small_for_the_command_is_a_result() {
    let mut planner = Planner::start().await;
    let (_folder, path) = stand_in();
    let _daemon = Daemon::start_with(&planner, Setup { args: &["--config", &path], ..Setup::default() });
    let mut connection = planner.welcome().await;
    // 64 MiB hold 8 KiB a sample of at most 8,192 samples.
    lease(&connection, "stand-in", &["cpu0"], 100_000).await;
    let failure = connection.next_failure().await;
    assert_eq!(failure.kind(), Kind::OutOfMemory, "{failure:?}");
    let lack = failure.out_of_memory.unwrap();
    assert_eq!((lack.allowed_bytes, lack.phase.as_str(), lack.layer), (64 << 20, "forward", Some(0)));
    assert!(lack.requested_bytes + lack.held_bytes > lack.allowed_bytes);
}

#[tokio::test]
async fn a_command_that_this_worker_does_not_offer_is_handed_back() {
    let mut planner = Planner::start().await;
    let (_folder, path) =
        configuration("[custom_profilers.other]\nargv = ['true']\naccounting = 'reserved'\n");
    let _daemon = Daemon::start_with(&planner, Setup { args: &["--config", &path], ..Setup::default() });
    let mut connection = planner.welcome().await;
    lease(&connection, "stand-in", &["cpu0"], 1).await;
    let failure = connection.next_failure().await;
    assert_eq!(failure.kind(), Kind::HandedBack);
    assert!(failure.message.contains("no longer offers the custom profiler stand-in"), "{}", failure.message);
}

#[tokio::test]
async fn a_kill_ends_a_command_with_its_children() {
    let mut planner = Planner::start().await;
    let (folder, _) = configuration("");
    let pids = folder.path().join("pids");
    let script = format!("sleep 1000 & echo $! $$ >'{0}.new'; mv '{0}.new' '{0}'; wait", pids.display());
    let (_folder, path) = configuration(&format!(
        "[custom_profilers.sleeper]\nargv = ['sh', '-c', \"\"\"{script}\"\"\"]\naccounting = 'reserved'\n"
    ));
    let _daemon = Daemon::start_with(&planner, Setup { args: &["--config", &path], ..Setup::default() });
    let mut connection = planner.welcome().await;
    lease(&connection, "sleeper", &["cpu0"], 1).await;
    crate::harness::eventually("the command runs", || pids.exists()).await;
    connection.kill("one", 1).await;
    connection.heartbeat_where(|heartbeat| heartbeat.held_runs.is_empty()).await;
    for pid in fs::read_to_string(&pids).unwrap().split_whitespace() {
        gone(pid.parse().unwrap()).await;
    }
}

/// Pins what the shipped helper reads and writes where torch is there, and that the example is Python.
#[test]
fn the_shipped_helper_passes_its_own_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/command");
    let python = |arguments: &[&str]| {
        let output =
            std::process::Command::new("python3").arg("-B").args(arguments).current_dir(&folder).output();
        let output = output.expect("these tests need python3: install it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    python(&["-m", "unittest", "test_loadmaster_run"]);
    python(&["-c", "import ast; ast.parse(open('example_torchrun.py').read(), feature_version=(3, 8))"]);
}

#[tokio::test]
async fn a_mistake_in_the_configuration_ends_the_worker_with_its_name() {
    let planner = Planner::start().await;
    let (_folder, path) = configuration("[custom_profilers.x]\nargv = ['true']\naccounting = 'all'\n");
    let mut daemon = Daemon::start_with(&planner, Setup { args: &["--config", &path], ..Setup::default() });
    assert_eq!(daemon.exit_code().await, 2);
    let log = daemon.log();
    assert!(log.contains("worker.toml") && log.contains("unknown variant `all`"), "{log}");
}
