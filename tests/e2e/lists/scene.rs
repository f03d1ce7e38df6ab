//! A planner on a database that the test writes into as well, and rows for it.

use std::time::Duration;

use loadmaster::embedded::EmbeddedPostgres;
use loadmaster::store::records::{FreeDevice, NewRun, NewWorker, ProfileSettings, ProfilingMode};
use loadmaster::store::{ConnectOptions, Store};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, Device};
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::model::zoo::{Vgg, Zoo};
use loadmaster_proto::name::{ModelName, PlanName, ProfileName};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Schedule, TrainingSpec};
use loadmaster_tests::{Planner, measured_run, new_worker};
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
        let planner =
            Planner::start_with(&[&["--database-url", &url, "--lease-duration", "60s"], arguments].concat());
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
        ..loadmaster_samples::settings(ProfilingMode::PerStage, training(), Some(4))
    }
}

/// A run on a kind of device that no worker has but the test.
pub(crate) fn run() -> NewRun {
    NewRun { iterations: 1_000, device_kind: "nobody has it".to_owned(), ..loadmaster_tests::new_run() }
}

pub(crate) fn free(count: usize) -> Vec<FreeDevice> {
    vec![FreeDevice { kind: "nobody has it".to_owned(), capacity: 1 << 30 }; count]
}

pub(crate) fn measurement() -> Measurement {
    Measurement {
        losses: vec![1.0 / 3.0; 1_000],
        environment: Environment { device_kind: "nobody has it".to_owned(), ..Environment::default() },
        ..measured_run()
    }
}

/// A plan of VGG11, 30 layers, on as many single devices as there are sizes.
pub(crate) fn content(profile: &ProfileName, model: &ModelName, kind: &str, sizes: &[usize]) -> Plan {
    let mut first_layer = 0;
    let stages = sizes.iter().map(|&layers| {
        let config = StageConfig::single(first_layer, first_layer + layers - 1);
        first_layer += layers;
        loadmaster_samples::plan_stage(config)
    });
    Plan {
        profile: profile.clone(),
        model: model.clone(),
        device_kind: kind.to_owned(),
        ..loadmaster_samples::plan(stages.collect())
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
    NewWorker { connection: id.to_owned(), ..new_worker(id, "one", (0..devices).map(device).collect()) }
}
