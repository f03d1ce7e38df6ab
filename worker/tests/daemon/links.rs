//! Runs that train nothing: a rank per device, all of them exchanging tensors.

use std::path::PathBuf;

use loadmaster_proto::measure::links::{Collectives, LinkMeasurement, LinkWork};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::LinkSpec;
use loadmaster_proto::measure::run::Task;
use loadmaster_proto::wire::v1;

use crate::harness::{Daemon, Setup, welcomed};
use crate::planner::Planner;

const DEVICES: [&str; 3] = ["cpu0", "cpu1", "cpu2"];

fn work() -> LinkWork {
    LinkWork { devices: 3, payload_bytes: vec![4 << 10, 1 << 20], repeats: 3 }
}

fn task() -> Task {
    Task::Links(work())
}

/// Pins what each rank is told: its place, its device, the run's folder, and how fast its copies may be.
#[tokio::test]
async fn each_device_gets_a_rank_that_knows_the_others() {
    let mut planner = Planner::start().await;
    let args = ["--cpu-links", "host=1GB/s,peer=8GB/s"];
    let setup = Setup { slots: "3x64MiB", rank: "wait", args: &args, ..Setup::default() };
    let daemon = Daemon::start_with(&planner, setup);
    let connection = planner.welcome().await;
    connection.lease_run("one", 1, &DEVICES, &task(), 600.0).await;
    for (name, index) in [("0", 0), ("0.1", 1), ("0.2", 2)] {
        let text = daemon.written(&format!("spec-{name}.json")).await;
        let spec: LinkSpec = serde_json::from_str(&text).unwrap();
        assert_eq!((spec.index, spec.device_id.as_str()), (index, DEVICES[index as usize]));
        assert_eq!((spec.work, spec.collectives), (work(), Collectives::Host));
        assert_eq!(
            spec.pace,
            CopyPace { host: Some(1e9), peer: Some(8e9) },
            "what is measured is what training has"
        );
        assert_eq!(spec.folder, PathBuf::from(daemon.written(&format!("folder-{name}")).await.trim()));
    }
    connection.kill("one", 1).await;
}

/// Pins that a rank's crash is blamed on its device, as in training.
#[tokio::test]
async fn a_rank_that_crashes_is_named() {
    let mut planner = Planner::start().await;
    let rank = "0:lost-neighbour 0.1:segfault 0.2:lost-neighbour";
    let _daemon = Daemon::start_with(&planner, Setup { rank, slots: "3x64MiB", ..Setup::default() });
    let mut connection = planner.welcome().await;
    connection.lease_run("one", 1, &DEVICES, &task(), 600.0).await;
    let failure = connection.next_failure().await;
    assert_eq!(failure.kind(), v1::run_failure::Kind::Crashed);
    assert!(failure.message.contains("shard 1"), "{}", failure.message);
}

/// Pins that a lease that makes no sense counts as a failed attempt, by the field's name.
#[tokio::test]
async fn senseless_leases_are_refused() {
    let (_planner, _daemon, mut connection) = welcomed(Setup { slots: "3x64MiB", ..Setup::default() }).await;
    connection.lease_run("one", 1, &DEVICES[..2], &task(), 600.0).await;
    let failure = connection.next_failure().await;
    assert!(failure.message.contains("2 devices to a run of 3 ranks"), "{}", failure.message);
    connection.lease_run("two", 1, &DEVICES, &Task::Links(LinkWork { repeats: 0, ..work() }), 600.0).await;
    let failure = connection.next_failure().await;
    assert!(failure.message.contains("link_work.repeats"), "{}", failure.message);
}

/// The real rank program, where it is built: every pair and group is measured and reported once, under the
/// lease's fence.
#[tokio::test]
async fn a_worker_measures_its_links() {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_loadmaster-worker")).with_file_name("loadmaster-rank");
    if !program.exists() {
        println!("skipped: {} is not built", program.display());
        return;
    }
    let mut planner = Planner::start().await;
    let setup = Setup { slots: "3x256MiB", program: Some(program), ..Setup::default() };
    let _daemon = Daemon::start_with(&planner, setup);
    let mut connection = planner.welcome().await;
    connection.lease_run("one", 7, &DEVICES, &task(), 600.0).await;
    let result = connection.next_result().await;
    assert_eq!((result.run.as_str(), result.lease_token), ("runs/one", 7));
    assert!(result.measurements.is_empty());
    let links = LinkMeasurement::try_from(*result.link_measurement.unwrap()).unwrap();
    assert_eq!(links.device_ids, DEVICES);
    assert_eq!(links.pairs.len(), 3);
    assert_eq!(links.groups.iter().map(|group| group.devices.len()).collect::<Vec<_>>(), [2, 3]);
    for link in links.pairs.iter().map(|pair| pair.link).chain(links.groups.iter().map(|group| group.link)) {
        assert!(link.bytes_per_second > 1e6, "{link:?}");
    }
    let copies = links.copies.unwrap();
    assert_eq!((copies.devices.len(), copies.pairs.len()), (3, 3));
    assert_eq!(links.updates.len(), 3);
    let parameters = work().updated_parameters();
    assert!(links.updates.iter().flat_map(|of| &of.steps).all(|timed| timed.parameters == parameters));
    connection.acknowledge("one", 7).await;
}
