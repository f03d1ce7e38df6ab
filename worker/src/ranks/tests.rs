//! Pins what happens around the processes of a run; what happens *in* them is tested with the whole
//! daemon.

use std::fs;

use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::measure::run::Task;
use loadmaster_samples::cpu_slot;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::run::Lease;
use crate::testing::{lease, named, spec};

fn supervisor(base: &TempDir) -> Supervisor {
    Supervisor {
        program: "/does/not/exist".into(),
        folder: WorkFolder::create(Some(base.path()), &|_| {}).unwrap(),
        threads: 1,
        slots_at_once: 1,
        hang_timeout: Duration::from_secs(60),
        copy_pace: CopyPace { host: Some(1e9), peer: None },
    }
}

fn job(stages: u32) -> Job {
    Job { lease: lease(stages), task: Task::Train(Box::new(spec(stages as usize))) }
}

#[test]
fn a_rank_on_a_cpu_slot_is_told_its_pace_and_one_on_a_gpu_none() {
    let base = tempfile::tempdir().unwrap();
    let supervisor = supervisor(&base);
    let pace = |backend| {
        let device = Device { backend, ..cpu_slot(0) };
        let job = Job { lease: Lease { devices: vec![device], ..lease(1) }, ..job(1) };
        let told = supervisor.assignments(&job, base.path()).remove(0).spec;
        let Spec::Train(spec) = told else { panic!("it measures links") };
        spec.pace
    };
    assert_eq!(pace(Backend::Cpu), supervisor.copy_pace);
    assert!(pace(Backend::Cuda).is_free());
}

/// Pins that a rank program that goes away while the daemon runs is told, and leaves no folder.
#[tokio::test]
async fn a_program_that_went_away_is_not_started() {
    let base = tempfile::tempdir().unwrap();
    let supervisor = supervisor(&base);
    let (progress, _progress) = mpsc::channel(1);
    let contact = Contact { claim: named("one", 1), stop: CancellationToken::new(), progress };
    let Outcome::Failed(failure) = supervisor.run(&job(2), &contact).await else { panic!("it did not fail") };
    assert_eq!((failure.kind, failure.stage_index), (FailureKind::NotStarted, Some(0)));
    assert!(failure.message.contains("/does/not/exist: No such file"), "{}", failure.message);
    let run = supervisor.folder.run_folder().unwrap();
    let around = fs::read_dir(run.path().parent().unwrap()).unwrap().flatten();
    assert_eq!(around.filter(|entry| entry.path().is_dir()).count(), 1, "but the one of this test");
}
