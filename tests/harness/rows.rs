//! Rows of a planner's database, for tests that write into it.

use loadmaster::store::records::{NewRun, NewWorker};
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::measurement::{LayerTimes, Measurement};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::run::{SoloStage, Work};
use loadmaster_proto::name::WorkerName;
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::strategy::Strategy;

/// How these stages are trained, in no special way.
pub fn plain_strategy(work: Work) -> Strategy {
    Strategy::plain(loadmaster_samples::training(Schedule::Gpipe, 4, 2), work)
}

/// The first of four stages alone, on a CPU slot.
pub fn new_run() -> NewRun {
    NewRun {
        strategy: plain_strategy(Work::Solo(SoloStage {
            stage: StageConfig::single(0, 3),
            stage_count: 4,
            stage_index: 0,
        })),
        iterations: 2,
        command: None,
        device_kind: "cpu".to_owned(),
        device_count: 1,
        min_capacity: 1 << 20,
        deadline_seconds: 600,
        work_key: None,
        smallest_micro_batch_size: None,
        held_out: false,
    }
}

/// What [`new_run`] measures.
pub fn measured_run() -> Measurement {
    let times =
        |layer| LayerTimes { layer, forward_seconds: 0.5, backward_seconds: 1.0, recompute_seconds: 0.0 };
    let stage = StageConfig::single(0, 3);
    Measurement {
        stage_count: 4,
        micro_batch_size: 4,
        in_flight: 2,
        layers: stage.layers().map(times).collect(),
        ..loadmaster_samples::measurement(stage)
    }
}

/// A worker of these devices that offers nothing besides.
pub fn new_worker(id: &str, session: &str, devices: Vec<Device>) -> NewWorker {
    NewWorker {
        name: WorkerName::from_id(id).unwrap(),
        devices,
        links: Vec::new(),
        version: "0.1.0".to_owned(),
        libtorch_version: "2.11.0".to_owned(),
        cuda_version: String::new(),
        threads: 1,
        cores: 8,
        host: id.to_owned(),
        session_id: session.to_owned(),
        connection: session.to_owned(),
        commands: Vec::new(),
        host_memory: 0,
        copy_pace: CopyPace::default(),
    }
}
