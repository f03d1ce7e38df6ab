//! Small models, profiles, runs and results.

use std::time::Duration;

use loadmaster::store::Store;
use loadmaster::store::records::{Claim, FreeDevice, NewRun, NewWorker, ProfileSettings, ProfilingMode};
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::failure::{FailureKind, OutOfMemory, Phase, RunFailure};
use loadmaster_proto::measure::measurement::{LayerTimes, Measurement};
use loadmaster_proto::measure::run::{SoloStage, Work};
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::model::zoo::{Vgg, Zoo};
use loadmaster_proto::name::{ModelName, OperationName, PlanName, ProfileName, WorkerName};
use loadmaster_proto::plan::prediction::{Breakdown, Interval, Origin, StageSeconds};
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Schedule, TrainingSpec};
use loadmaster_proto::warning::WarningCode;
use loadmaster_samples::cpu_slot;
use loadmaster_tests::{measured_run, plain_strategy};

pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) fn zoo() -> ModelSource {
    Zoo::Vgg11(Vgg { image_size: 32, classes: 10, classifier_width: 64 }).into()
}

pub(crate) async fn model(store: &Store) -> ModelName {
    store.put_model(&zoo().build().unwrap(), &zoo()).await.unwrap().name
}

pub(crate) fn training() -> TrainingSpec {
    loadmaster_samples::training(Schedule::Gpipe, 4, 2)
}

pub(crate) fn run() -> NewRun {
    NewRun { work_key: Some("work".to_owned()), ..loadmaster_tests::new_run() }
}

/// A run that trains all stages of a plan.
pub(crate) fn trial_run() -> NewRun {
    NewRun { strategy: plain_strategy(Work::Partitioning(Partitioning::from_sizes(&[30]).unwrap())), ..run() }
}

/// A worker of two CPU slots that offers nothing besides.
pub(crate) fn new_worker(id: &str, session: &str) -> NewWorker {
    loadmaster_tests::new_worker(id, session, vec![cpu_slot(0), cpu_slot(1)])
}

pub(crate) fn new_profile(id: &str, model: &ModelName) -> ProfileSettings {
    ProfileSettings {
        name: ProfileName::from_id(id).unwrap(),
        model: model.clone(),
        min_capacity: 1 << 20,
        ..loadmaster_samples::settings(ProfilingMode::PerStage, training(), Some(4))
    }
}

/// The operation of a profile of these runs.
pub(crate) async fn queue(store: &Store, id: &str, runs: Vec<NewRun>) -> OperationName {
    let model = model(store).await;
    store.create_profile(new_profile(id, &model), runs, &[], None).await.unwrap()
}

/// A profile of `count` runs.
pub(crate) async fn profile(store: &Store, id: &str, count: usize) -> (ProfileName, OperationName) {
    (ProfileName::from_id(id).unwrap(), queue(store, id, vec![run(); count]).await)
}

/// Stored plans that differ.
pub(crate) async fn plans<const N: usize>(store: &Store, ids: [&str; N]) -> [PlanName; N] {
    let (_, content) = plan(store).await;
    let names = ids.map(|id| PlanName::from_id(id).unwrap());
    for name in &names {
        let content = Plan { solver: format!("solver/{}", name.id()), ..content.clone() };
        store.put_plan(name, &content).await.unwrap();
    }
    names
}

pub(crate) fn worker(id: &str) -> WorkerName {
    WorkerName::from_id(id).unwrap()
}

pub(crate) fn cpu(capacity: u64) -> FreeDevice {
    FreeDevice { kind: "cpu".to_owned(), capacity }
}

pub(crate) async fn try_claim(store: &Store, by: &WorkerName) -> Option<Claim> {
    store.claim_run(by, &[cpu(1 << 30)], &[cpu(1 << 30)], LEASE).await.unwrap()
}

pub(crate) async fn claim(store: &Store, by: &WorkerName) -> Claim {
    try_claim(store, by).await.expect("a run is queued")
}

/// What [`run`] measures, where `stage_index` is 0.
pub(crate) fn measurement(stage_index: u32) -> Measurement {
    let measured = measured_run();
    Measurement {
        stage_index,
        peak_allocated: Bytes(123_456_789),
        static_bytes: zoo().build().unwrap().rank_static_bytes(&measured.stage, 0, &training()),
        iteration_seconds: 0.25,
        losses: vec![2.5, 1.0 / 3.0],
        environment: Environment {
            device_kind: "cpu".to_owned(),
            libtorch_version: "2.11.0".to_owned(),
            loadmaster_version: "0.1.0".to_owned(),
            threads: 2,
            ..Environment::default()
        },
        ..measured
    }
}

/// What a claimed run of one device measures, where its stage is alone.
pub(crate) fn measured(claim: &Claim) -> Measurement {
    let Some(spec) = claim.task.trained() else { panic!("it trains nothing") };
    let Work::Solo(SoloStage { stage, stage_count, stage_index }) = spec.strategy.work else {
        panic!("not alone")
    };
    let times = |layer| LayerTimes { layer, ..LayerTimes::default() };
    Measurement {
        stage,
        stage_count,
        micro_batch_size: spec.strategy.training.micro_batch_size,
        layers: stage.layers().map(times).collect(),
        ..measurement(stage_index)
    }
}

pub(crate) fn failure(kind: FailureKind) -> RunFailure {
    RunFailure { kind, message: "it broke".to_owned(), stage_index: Some(0) }
}

pub(crate) fn out_of_memory() -> RunFailure {
    failure(FailureKind::OutOfMemory {
        out_of_memory: OutOfMemory {
            asked: Bytes(64),
            held: Bytes(1000),
            allowed: Bytes(1024),
            ledger: Accounting::Allocated,
            phase: Phase::Backward,
            layer: Some(3),
        },
    })
}

/// A plan to be stored, with the profile and model that it is of.
pub(crate) async fn plan(store: &Store) -> (PlanName, Plan) {
    let (profile, _) = profile(store, "measured", 0).await;
    let content = Plan {
        profile,
        model: model(store).await,
        predictor: "capture-1".to_owned(),
        solver: "exact-1".to_owned(),
        warnings: vec![WarningCode::LinksAssumed.says("guessed")],
        ..loadmaster_samples::plan(vec![PlanStage {
            capacity: u64::MAX,
            predicted_peak: 1 << 40,
            breakdown: Some(Breakdown { weights: 1 << 40, ..Breakdown::default() }),
            // Fractions that no binary number has must come back bit by bit: a plan's name follows from them.
            interval: Some(Interval::around(Bytes(1 << 40), 0.1 + 0.2)),
            seconds: Some(StageSeconds { forward: 1e-7 / 3.0, ..StageSeconds::default() }),
            seconds_margin: Some(0.1 + 0.2),
            origin: Origin::Extrapolated,
            in_flight: 4,
            ..loadmaster_samples::plan_stage(StageConfig::single(0, 29))
        }])
    };
    (PlanName::from_id("p1").unwrap(), content)
}
