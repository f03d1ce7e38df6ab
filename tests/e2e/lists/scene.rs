//! A planner on a database that the test writes into as well, and rows for it.

use std::time::Duration;

use loadmaster::embedded::EmbeddedPostgres;
use loadmaster::store::records::{Campaign, FreeDevice, NewRun, NewWorker, ProfileSettings};
use loadmaster::store::{ConnectOptions, Store};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, Device};
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::{LayerTimes, Measurement};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::run::{SoloStage, Work};
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::model::zoo::{Vgg, Zoo};
use loadmaster_proto::name::{ModelName, PlanName, ProfileName, WorkerName};
use loadmaster_proto::plan::findings::Findings;
use loadmaster_proto::plan::prediction::Origin;
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::strategy::Strategy;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_tests::Planner;
use tempfile::TempDir;

pub(crate) const LEASE: Duration = Duration::from_secs(3_600);

/// A planner and its database.
pub(crate) struct Scene {
    pub(crate) planner: Planner,
    pub(crate) store: Store,
    postgres: EmbeddedPostgres,
    _folder: TempDir,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// The same with more arguments of `loadmaster serve`.
    pub(crate) async fn with(arguments: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let postgres = EmbeddedPostgres::start(&folder.path().join("postgres")).await.unwrap();
        let store = Store::connect(&ConnectOptions::new(postgres.url())).await.unwrap();
        store.migrate().await.unwrap();
        let url = postgres.url();
        // Nothing that the test holds is taken away from it.
        let planner = Planner::start_with(&[&["--database-url", &url, "--lease", "60"], arguments].concat());
        Self { planner, store, postgres, _folder: folder }
    }

    /// Where its database is, for other planners.
    pub(crate) fn database_url(&self) -> String {
        self.postgres.url()
    }

    /// A model; others have other `classes`.
    pub(crate) async fn model(&self, classes: u32) -> ModelName {
        let source: ModelSource =
            Zoo::Vgg11(Vgg { image_size: 32, classes: classes.into(), classifier_width: 64 }).into();
        self.store.put_model(&source.build().unwrap(), &source).await.unwrap().name
    }

    /// A profile of these runs.
    pub(crate) async fn profile(&self, id: &str, runs: Vec<NewRun>) -> ProfileName {
        let model = self.model(10).await;
        let settings = settings(id, &model);
        self.store.create_profile(settings, runs, &[], None).await.unwrap();
        ProfileName::from_id(id).unwrap()
    }

    /// Stores a plan on so many single devices.
    pub(crate) async fn plan(&self, id: &str, content: &Plan) -> PlanName {
        let name = PlanName::from_id(id).unwrap();
        self.store.put_plan(&name, content).await.unwrap();
        name
    }
}

fn training() -> TrainingSpec {
    loadmaster_samples::training(Schedule::Gpipe, 4, 2)
}

fn settings(id: &str, model: &ModelName) -> ProfileSettings {
    ProfileSettings {
        name: ProfileName::from_id(id).unwrap(),
        model: model.clone(),
        device_kind: "nobody has it".to_owned(),
        iterations: 1_000,
        min_capacity: 1 << 20,
        ..loadmaster_samples::settings(Campaign::Stages, training(), Some(4))
    }
}

/// How these stages are trained, in no special way.
pub(crate) fn strategy(work: Work) -> Strategy {
    Strategy::plain(training(), work)
}

/// A run on a kind of device that no worker has but the test.
pub(crate) fn run() -> NewRun {
    NewRun {
        strategy: strategy(Work::Solo(SoloStage {
            stage: StageConfig::single(0, 3),
            stage_count: 4,
            stage_index: 0,
        })),
        iterations: 1_000,
        command: None,
        device_kind: "nobody has it".to_owned(),
        device_count: 1,
        min_capacity: 1 << 20,
        deadline_seconds: 600,
        work_key: None,
        smallest_micro_batch_size: None,
        held_out: false,
    }
}

pub(crate) fn free(count: usize) -> Vec<FreeDevice> {
    vec![FreeDevice { kind: "nobody has it".to_owned(), capacity: 1 << 30 }; count]
}

pub(crate) fn measurement() -> Measurement {
    let times =
        |layer| LayerTimes { layer, forward_seconds: 0.5, backward_seconds: 1.0, recompute_seconds: 0.0 };
    let stage = StageConfig::single(0, 3);
    Measurement {
        stage_count: 4,
        micro_batch_size: 4,
        in_flight: 2,
        layers: stage.layers().map(times).collect(),
        losses: vec![1.0 / 3.0; 1_000],
        environment: Environment { device_kind: "nobody has it".to_owned(), ..Environment::default() },
        ..loadmaster_samples::measurement(stage)
    }
}

/// A plan of VGG11, 30 layers, on as many single devices as there are sizes.
pub(crate) fn content(profile: &ProfileName, model: &ModelName, kind: &str, sizes: &[usize]) -> Plan {
    let mut first_layer = 0;
    let stages = sizes.iter().map(|&layers| {
        let config = StageConfig::single(first_layer, first_layer + layers - 1);
        first_layer += layers;
        PlanStage {
            config,
            capacity: 1 << 30,
            predicted_peak: 1 << 29,
            breakdown: None,
            interval: None,
            seconds: None,
            seconds_margin: None,
            origin: Origin::Profiled,
            in_flight: 2,
            recompute: RecomputePolicy::None,
            devices: Vec::new(),
            actions: StageActions::default(),
            offload: None,
            saved: None,
            chunks: None,
            chunk_run: None,
        }
    });
    Plan {
        profile: profile.clone(),
        virtual_stages: 1,
        other_profiles: Vec::new(),
        model: model.clone(),
        training: training(),
        device_kind: kind.to_owned(),
        stages: stages.collect(),
        predictor: "component/2".to_owned(),
        ledger: Ledger::Allocated,
        solver: "leximax/2".to_owned(),
        warnings: Vec::new(),
        asked: Goal::default(),
        found: Findings::default(),
    }
}

pub(crate) fn worker(id: &str, devices: u32) -> NewWorker {
    let device = |ordinal: u32| Device {
        id: format!("gpu{ordinal}"),
        backend: Backend::Cpu,
        kind: "nobody has it".to_owned(),
        capacity: Bytes(1 << 30),
        physical: Bytes(1 << 30),
        uuid: format!("GPU-00000000-0000-0000-0000-{ordinal:012}"),
        ordinal,
        driver_version: "570.00".to_owned(),
        pci_bus_id: format!("00000000:{ordinal:02x}:00.0"),
    };
    NewWorker {
        name: WorkerName::from_id(id).unwrap(),
        devices: (0..devices).map(device).collect(),
        links: Vec::new(),
        version: "0.1.0".to_owned(),
        libtorch_version: "2.11.0".to_owned(),
        cuda_version: String::new(),
        threads: 1,
        cores: 8,
        host: id.to_owned(),
        session_id: "one".to_owned(),
        connection: id.to_owned(),
        commands: Vec::new(),
        host_memory: 0,
        copy_pace: CopyPace::default(),
    }
}
