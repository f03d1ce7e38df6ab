//! Pins that seconds of ranks that had to share their cores are distinguished from others: with processes of someone
//! else, and with each other.

use std::process::{Child, Command};
use std::time::Duration;

use loadmaster_proto::wire::{v1, worker_v1};
use tokio::time::sleep;

use crate::harness::{Setup, welcomed};
use crate::parallel::{DEVICES, mixed};

/// A process that computes until it is dropped.
struct Burner(Child);

impl Burner {
    fn start() -> Self {
        Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn environment(result: &worker_v1::RunResult) -> &v1::Environment {
    result.measurements.first().and_then(|measurement| measurement.environment.as_ref()).unwrap()
}

/// Something else on the host computes as much as it can: it gets half of the cores, or more.
#[tokio::test]
async fn a_run_is_contended_while_others_use_the_cores() {
    let (_planner, daemon, mut connection) = welcomed("wait").await;
    assert!(connection.hello.core_count > 0);
    let burners: Vec<Burner> = (0..connection.hello.core_count).map(|_| Burner::start()).collect();
    connection.lease("one", 1, &["cpu0"]).await;
    daemon.pid("pid-0").await;
    let threads = daemon.written("env-0").await;
    assert_eq!(
        threads.split(' ').next(),
        Some(connection.hello.thread_count.to_string().as_str()),
        "{threads}"
    );
    // Long for the kernel's clock, which ticks a hundred times per second.
    sleep(Duration::from_secs(1)).await;
    daemon.go();
    let result = connection.next_result().await;
    drop(burners);
    let environment = environment(&result);
    assert_eq!(environment.core_count, connection.hello.core_count);
    assert!(environment.contended && environment.external_cpu_share() > 0.2, "{environment:?}");
    assert_eq!(result.measurements[0].peak_allocated_bytes, 1000, "the bytes are what they are");
}

/// Four ranks of a pipeline want a core each, whatever else the host does.
#[tokio::test]
async fn ranks_without_a_core_for_each_are_oversubscribed() {
    let (_planner, _daemon, mut connection) = welcomed(Setup { slots: "4x64MiB", ..Setup::default() }).await;
    let cores = connection.hello.core_count;
    connection.lease_run("one", 1, &DEVICES, &mixed(), 600.0).await;
    let result = connection.next_result().await;
    let told: Vec<bool> =
        result.measurements.iter().map(|one| one.environment.as_ref().unwrap().oversubscribed).collect();
    assert_eq!(told, [cores < 4; 4], "four ranks of one thread on {cores} cores");
    connection.acknowledge("one", 1).await;
    connection.lease("two", 2, &["cpu0"]).await;
    assert!(!environment(&connection.next_result().await).oversubscribed, "a single rank has its core");
}
