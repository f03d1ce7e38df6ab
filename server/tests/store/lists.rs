//! Plans in lists: what the database keeps of each, and what a page costs.

use loadmaster::store::Store;
use loadmaster::store::records::{DeviceGroupRecord, NewTrial, NewestReport, PageRequest, TrainedSummary};
use loadmaster_filter::Query;
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::name::{ClusterName, PlanName};
use loadmaster_proto::plan::findings::{Findings, IterationEstimate};
use loadmaster_proto::plan::objective::{Framework, Objective, PlanShape};
use loadmaster_proto::plan::prediction::Origin;
use loadmaster_proto::plan::report::{Measured, Peak, Report};
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::plan::{PlacedDevice, Plan, PlanStage};
use loadmaster_proto::training::notation;
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::StageConfig;

use crate::support::samples::{claim, measurement, out_of_memory, plan, trial_run, worker};
use crate::support::{applied, execute, store, store_with};

fn page(size: u32) -> PageRequest {
    PageRequest { size, after: None }
}

/// Three stages of several degrees, on devices of two capacities.
fn varied(content: &Plan) -> Plan {
    let device = |(node, index, capacity): (&str, u32, u64)| PlacedDevice {
        node: node.to_owned(),
        index,
        uuid: String::new(),
        kind: "cpu".to_owned(),
        capacity,
    };
    let stage = |layers: (usize, usize), degrees: (u32, u32), peak: u64, devices: Vec<PlacedDevice>| {
        let (first_layer, last_layer) = layers;
        let (data_degree, tensor_degree) = degrees;
        PlanStage {
            config: StageConfig {
                data_degree,
                tensor_degree,
                sequence_parallel: tensor_degree > 1,
                sharding: if data_degree > 1 { StateSharding::Optimizer } else { StateSharding::None },
                ..StageConfig::single(first_layer, last_layer)
            },
            predicted_peak: peak,
            devices,
            ..content.stages[0].clone()
        }
    };
    Plan {
        stages: vec![
            stage((0, 7), (1, 1), 5, vec![device(("a", 0, 1 << 30))]),
            stage((8, 15), (2, 1), u64::MAX - 1, vec![device(("a", 1, 1 << 30)), device(("b", 0, 1 << 20))]),
            stage((16, 29), (1, 2), 9, vec![device(("b", 1, 1 << 20)), device(("c", 0, 1 << 30))]),
        ],
        asked: Goal {
            objective: Some(Objective::MinIterationTime),
            shape: PlanShape::PerStageMesh,
            framework: Some(Framework::Megatron),
            framework_version: "0.15".to_owned(),
            cluster: Some(ClusterName::from_id("pod1").unwrap()),
            ..Goal::default()
        },
        found: Findings {
            iteration: Some(IterationEstimate {
                seconds: 0.1 + 0.2,
                closed_form: 0.25,
                bubble: 0.5,
                step: 0.125,
                origin: Origin::Profiled,
                links: "assumed".to_owned(),
                overlap: Overlap::Computing,
                overlap_reason: "for the test".to_owned(),
                margin: Some(0.1),
            }),
            hourly_price: Some(12.5),
            ..Findings::default()
        },
        ..content.clone()
    }
}

async fn listed(store: &Store) -> Vec<loadmaster::store::records::PlanRow> {
    store.list_plans(&Query::default(), &page(10)).await.unwrap().rows
}

/// What the database reads out of a plan is what the plan says, to the bit.
#[tokio::test]
async fn a_row_of_the_list_says_what_the_plan_says() {
    let store = store().await;
    let (_, content) = plan(&store).await;
    let content = varied(&content);
    let name = PlanName::from_id("varied").unwrap();
    let stored = store.put_plan(&name, &content).await.unwrap();

    let rows = listed(&store).await;
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&row.name, &row.profile, &row.model), (&name, &content.profile, &content.model));
    assert_eq!(row.create_time, stored.create_time);
    let of = &row.summary;
    assert_eq!(of.partition, "8-8d2z1-14t2s");
    assert_eq!(of.partition, notation::short(content.stages.iter().map(|stage| stage.config)));
    assert_eq!((of.training, of.ledger), (content.training, content.ledger));
    assert_eq!((&of.predictor, &of.solver), (&content.predictor, &content.solver));
    assert_eq!(of.peak, u64::MAX - 1, "the highest peak, whole");
    assert_eq!((of.iteration_seconds, of.iteration_margin), (Some(0.1 + 0.2), Some(0.1)));
    assert_eq!(of.hourly_price, Some(12.5));
    let asked = (of.asked.objective, of.asked.shape, of.asked.framework, of.asked.framework_version.as_str());
    assert_eq!(
        asked,
        (Some(Objective::MinIterationTime), PlanShape::PerStageMesh, Some(Framework::Megatron), "0.15")
    );
    assert_eq!(of.asked.cluster, content.asked.cluster);
    let group = |count, capacity| DeviceGroupRecord { count, kind: "cpu".to_owned(), capacity };
    assert_eq!(of.devices, [group(3, 1 << 30), group(2, 1 << 20)], "like devices together");
    assert_eq!(row.trained, TrainedSummary::default());
}

/// Trials and reports are counted, and the newest trial that measured something is told.
#[tokio::test]
async fn a_row_says_what_trainings_showed() {
    let store = store().await;
    let (_, content) = plan(&store).await;
    let mut names = Vec::new();
    for id in ["a", "b"] {
        let name = PlanName::from_id(id).unwrap();
        let content = Plan { solver: format!("solver/{id}"), ..content.clone() };
        store.put_plan(&name, &content).await.unwrap();
        names.push(name);
    }
    let trial = || NewTrial { plan: names[0].clone(), run: trial_run() };
    store.create_validation(&names[0], &[trial(), trial(), trial(), trial()], None).await.unwrap();
    let w = worker("w");
    let mut newest = None;
    for peaks in [[1, 2], [300, 100]] {
        let claim = claim(&store, &w).await;
        let devices = [0_u32, 1].map(|shard| Measurement {
            peak_allocated: Bytes(peaks[shard as usize]),
            shard,
            ..measurement(0)
        });
        applied(store.complete_run(&w, &claim.run, 1, &devices, 1.0).await);
        newest = Some(claim.run);
    }
    let claim = claim(&store, &w).await;
    applied(store.fail_run(&w, &claim.run, 1, &out_of_memory(), 1.0).await);
    let reported = Report {
        measured: Measured { iteration_seconds: Some(1.0), stage_peaks: Vec::new() },
        iterations: 1,
        device_kind: None,
        source: String::new(),
    };
    store.put_report(&names[1], &reported, None).await.unwrap();
    // The newest that tells seconds counts, on whatever devices.
    let elsewhere = Report {
        measured: Measured { iteration_seconds: Some(0.1 + 0.2), stage_peaks: Vec::new() },
        device_kind: Some("other".to_owned()),
        ..reported.clone()
    };
    store.put_report(&names[1], &elsewhere, None).await.unwrap();
    let peak = Peak { bytes: Bytes(7), ledger: Accounting::Device };
    let of_bytes = Report {
        measured: Measured { iteration_seconds: None, stage_peaks: vec![peak] },
        ..reported.clone()
    };
    store.put_report(&names[1], &of_bytes, None).await.unwrap();

    let rows = listed(&store).await;
    let of = |name: &PlanName| rows.iter().find(|row| row.name == *name).unwrap().trained.clone();
    let (first, second) = (of(&names[0]), of(&names[1]));
    assert_eq!((first.trials, first.succeeded, first.reports), (3, 2, 0), "one is still queued");
    let newest_trial = first.newest.unwrap();
    assert_eq!(Some(newest_trial.run), newest);
    let peak = Peak { bytes: Bytes(300), ledger: Accounting::Allocated };
    assert_eq!(newest_trial.measured, Measured { iteration_seconds: Some(0.25), stage_peaks: vec![peak] });
    assert_eq!((second.trials, second.reports, second.newest), (0, 3, None));
    let newest = NewestReport { seconds: 0.1 + 0.2, device_kind: "other".to_owned() };
    assert_eq!((first.reported, second.reported), (None, Some(newest)));
}

/// Statements that this database has run, this one included.
async fn statements(store: &Store) -> i64 {
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(store.pool()).await.unwrap();
    let counted = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    sqlx::query_scalar(counted).fetch_one(store.pool()).await.unwrap()
}

/// A page costs as many statements with 200 plans, each of them tried, as with one: each statement is a transaction
/// of its own, and the database counts those.
#[tokio::test]
async fn a_page_of_plans_costs_one_query_whatever_its_size() {
    // One connection: what another one has run is counted later.
    let store = store_with(1).await;
    let (_, content) = plan(&store).await;
    for index in 0..200 {
        let name = PlanName::from_id(format!("p{index}")).unwrap();
        let content = Plan { solver: format!("solver/{index}"), ..content.clone() };
        store.put_plan(&name, &content).await.unwrap();
    }
    execute(
        &store,
        "INSERT INTO runs (id, operation_id, plan_id, model_id, training, work, iterations, device_kind, device_count,
                           min_capacity_bytes, deadline_seconds, state, end_time)
         SELECT 'r' || plans.id, (SELECT id FROM operations LIMIT 1), plans.id, model_id, '{}', '{}', 1, 'cpu', 1, 0, 1,
                'failed', now()
         FROM plans",
    )
    .await;
    let mut costs = Vec::new();
    for size in [1, 1, 200, 200] {
        let before = statements(&store).await;
        let rows = store.list_plans(&Query::default(), &page(size)).await.unwrap().rows;
        assert_eq!(rows.len(), size as usize);
        assert!(rows.iter().all(|row| row.trained.trials == 1));
        costs.push(statements(&store).await - before);
    }
    // The first round prepares statements.
    assert!(
        costs[1..].iter().all(|&cost| cost == costs[1]),
        "statements for 1, 1, 200 and 200 plans: {costs:?}"
    );
}
