//! Pins what happens around the processes of a run; what happens *in* them is tested with the whole
//! daemon.

use std::fs;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, CPU_KIND};
use loadmaster_proto::measure::run::Task;
use tempfile::TempDir;

use super::*;
use crate::state::tests::{named, spec};

fn supervisor(base: &TempDir) -> Supervisor {
    Supervisor {
        program: "/does/not/exist".into(),
        folder: WorkFolder::create(Some(base.path())).unwrap(),
        threads: 1,
        hang_timeout: Duration::from_secs(60),
    }
}

fn job(stages: u32) -> Job {
    let device = |ordinal: u32| Device {
        id: format!("cpu{ordinal}"),
        backend: Backend::Cpu,
        kind: CPU_KIND.into(),
        capacity: Bytes(1 << 30),
        physical: Bytes(1 << 30),
        uuid: String::new(),
        ordinal,
        driver_version: String::new(),
        pci_bus_id: String::new(),
    };
    Job {
        claim: named("one", 1),
        spec: Task::Train(Box::new(spec(stages as usize))),
        devices: (0..stages).map(device).collect(),
        deadline: Duration::from_secs(60),
    }
}

/// Pins that a rank program that goes away while the daemon runs is told, and leaves no folder.
#[tokio::test]
async fn a_program_that_went_away_is_not_started() {
    let base = tempfile::tempdir().unwrap();
    let supervisor = supervisor(&base);
    let (progress, _progress) = mpsc::channel(1);
    let Outcome::Failed(failure) = supervisor.run(job(2), CancellationToken::new(), progress).await else {
        panic!("it did not fail")
    };
    assert_eq!((failure.kind, failure.stage_index), (FailureKind::NotStarted, Some(0)));
    assert!(failure.message.contains("/does/not/exist: No such file"), "{}", failure.message);
    let run = supervisor.folder.run_folder().unwrap();
    let around = fs::read_dir(run.path().parent().unwrap()).unwrap().flatten();
    assert_eq!(around.filter(|entry| entry.path().is_dir()).count(), 1, "but the one of this test");
}
