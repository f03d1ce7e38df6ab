//! What is stored comes back as it was, once, and in pages.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use loadmaster::store::records::{
    Cursor, Fenced, Heartbeat, MeasurementRecord, NewRun, NewTrial, NewWorker, OperationState,
    OperationTarget, Page, PageRequest, ProfileState, ProfilingMode, RequestKey, RunFilter, RunNeed,
    RunState, WorkerState,
};
use loadmaster::store::{ConnectOptions, MAX_QUEUED_RUNS, Store, StoreError, fields};
use loadmaster_filter::Query;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::name::{
    ClusterName, CommandName, ModelName, OperationName, PlacementName, PlanName, ProfileName, RunName,
    WorkerName,
};
use loadmaster_proto::plan::placement::Placement;
use loadmaster_proto::plan::{PlacedDevice, Plan};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_samples::cpu_slot;
use uuid::Uuid;

use crate::support::samples::{
    LEASE, claim, measurement, model, new_profile, new_worker, plan, profile, queue, run, training, worker,
    zoo,
};
use crate::support::{applied, database, execute, store};

fn page(size: u32, after: Option<Cursor>) -> PageRequest {
    PageRequest { size, after }
}

fn request(fingerprint: &str) -> RequestKey {
    RequestKey { id: Uuid::from_u128(7), fingerprint: fingerprint.to_owned() }
}

/// All rows of a list, page by page.
macro_rules! all_pages {
    ($size:expr, |$request:ident| $list:expr) => {{
        let mut rows = Vec::new();
        let mut after = None;
        loop {
            let $request = page($size, after);
            let Page { rows: more, next, .. } = $list.await.unwrap();
            assert!(more.len() <= $size);
            rows.extend(more);
            match next {
                Some(cursor) => after = Some(cursor),
                None => break rows,
            }
        }
    }};
}

/// Placements have no table of facts: what they are found and ordered by is read out of their content, in pages of any size.
#[tokio::test]
async fn placements_are_found_by_what_they_say_in_the_order_that_is_asked_for() {
    let store = store().await;
    let (of, content) = plan(&store).await;
    store.put_plan(&of, &content).await.unwrap();
    let device = |node: &str| PlacedDevice {
        node: node.to_owned(),
        index: 0,
        uuid: String::new(),
        kind: "cpu".to_owned(),
        capacity: 1 << 30,
    };
    let rows: [(&[&str], Option<f64>, Option<&str>); 5] = [
        (&["gpu1", "gpu2"], Some(0.1 + 0.2), Some("pod1")),
        (&["gpu2"], None, None),
        (&["gpu3", "gpu1", "gpu4"], Some(1e-9), Some("pod10")),
        (&["gpu4", "gpu3"], Some(0.1 + 0.2), None),
        (&["big"], Some(2.0), Some("pod1")),
    ];
    let mut names = Vec::new();
    for (nodes, seconds, cluster) in rows {
        let placement = Placement {
            plan: of.clone(),
            cluster: cluster.map(|id| ClusterName::from_id(id).unwrap()),
            stages: vec![nodes.iter().map(|node| device(node)).collect()],
            idle: Vec::new(),
            seconds,
            planned: seconds,
            least: seconds,
            is_proven: seconds.is_some(),
            gap: seconds.map(|_| 0.0),
            links: "assumed".to_owned(),
            warnings: Vec::new(),
        };
        let name = placement.name().unwrap();
        names.push(store.put_placement(&name, &placement).await.unwrap().name);
    }
    let asked: [(&str, &str, &[usize]); 9] = [
        ("", "", &[4, 3, 2, 1, 0]),
        ("", "create_time", &[0, 1, 2, 3, 4]),
        ("", "iteration_seconds", &[2, 0, 3, 4, 1]),
        ("", "iteration_seconds desc", &[4, 3, 0, 2, 1]),
        ("nodes:gpu1", "node_count desc", &[2, 0]),
        ("nodes = gpu4* OR cluster = pod1", "nodes", &[4, 0, 3]),
        ("cluster = clusters/pod1 iteration_seconds > 1s", "", &[4]),
        ("optimal = false AND NOT optimality_gap:*", "", &[1]),
        ("plan = nobody", "", &[]),
    ];
    for (filter, order_by, expected) in asked {
        let query = Query::parse(fields::PLACEMENTS, filter, order_by).unwrap();
        for of in [None, Some(&of)] {
            let found = all_pages!(2, |request| store.list_placements(of, &query, &request));
            let found: Vec<&PlacementName> = found.iter().map(|row| &row.record.name).collect();
            let expected: Vec<&PlacementName> = expected.iter().map(|&index| &names[index]).collect();
            assert_eq!(found, expected, "{filter} by {order_by}");
        }
    }
    let nobody = PlanName::from_id("nobody").unwrap();
    let found = store.list_placements(Some(&nobody), &Query::default(), &page(2, None)).await.unwrap();
    assert!(found.rows.is_empty() && found.next.is_none());
}

#[tokio::test]
async fn a_model_is_stored_once_and_comes_back_whole() {
    let store = store().await;
    let model = zoo().build().unwrap();
    let first = store.put_model(&model, &zoo()).await.unwrap();
    let second = store.put_model(&model, &zoo()).await.unwrap();
    assert_eq!(first, second);
    assert_eq!((&first.model, &first.source), (&model, &zoo()));
    assert_eq!(store.get_model(&first.name).await.unwrap(), first);
    assert_eq!(
        store.list_models(&Query::default(), &page(10, None)).await.unwrap().rows,
        std::slice::from_ref(&first)
    );

    // Two contents with the same short name must not be taken for each other.
    execute(&store, r#"UPDATE models SET model = jsonb_set(model, '{family}', '"other"')"#).await;
    let collision = store.put_model(&model, &zoo()).await;
    assert!(matches!(collision, Err(StoreError::Corrupt { .. })), "{collision:?}");
    let missing = store.get_model(&ModelName::from_id("none").unwrap()).await;
    assert!(matches!(missing, Err(StoreError::NotFound { what }) if what == "models/none"));
}

#[tokio::test]
async fn a_profile_comes_back_with_its_runs_counted() {
    let store = store().await;
    let (name, operation) = profile(&store, "a", 3).await;
    let w = worker("w");
    let done = claim(&store, &w).await;
    claim(&store, &w).await;
    let result = [measurement(0)];
    applied(store.complete_run(&w, &done.run, 1, &result, 4.0).await);

    let record = store.get_profile(&name).await.unwrap();
    assert_eq!(record.operation, operation);
    assert_eq!(record.settings.training, training());
    assert_eq!((record.settings.profiling_mode, record.settings.devices), (ProfilingMode::PerStage, Some(4)));
    assert_eq!(record.settings.micro_batch_sizes, [2, 4]);
    assert_eq!((record.runs.queued, record.runs.running, record.runs.succeeded), (1, 1, 1));
    assert_eq!((record.state, record.device_seconds), (ProfileState::Running, 4.0));
    assert_eq!(store.list_profiles(&Query::default(), &page(10, None)).await.unwrap().rows, [record]);

    let operation = store.get_operation(&operation).await.unwrap();
    assert_eq!(operation.target, OperationTarget::Profile(name.clone()));
    assert!((operation.progress - 1.0 / 3.0).abs() < 1e-9, "{}", operation.progress);

    let run = store.get_run(&done.run).await.unwrap();
    assert_eq!((run.state, run.profile, run.plan), (RunState::Succeeded, Some(name), None));
    assert_eq!(run.worker, Some(w));
    assert!(run.start_time.unwrap() >= run.create_time && run.end_time.unwrap() >= run.start_time.unwrap());
}

#[tokio::test]
async fn a_repeated_request_finds_the_first_ones_operation() {
    let store = store().await;
    let model = model(&store).await;
    let create = |id: &'static str, fingerprint: &'static str| {
        store.create_profile(new_profile(id, &model), vec![run()], &[], Some(request(fingerprint)))
    };
    // At the same moment, with the same name and with names made up by each call.
    let (a, b) = tokio::join!(create("a", "x"), create("a", "x"));
    let first = a.unwrap();
    assert_eq!(b.unwrap(), first);
    assert_eq!(create("b", "x").await.unwrap(), first);
    assert!(matches!(create("a", "y").await, Err(StoreError::RequestIdReused)));
    assert_eq!(store.list_runs(&RunFilter::default(), &page(10, None)).await.unwrap().rows.len(), 1);

    // Forgetting the operation does not free the request: its work was done.
    store.cancel_operation(&first).await.unwrap();
    store.delete_operation(&first).await.unwrap();
    assert_eq!(create("c", "x").await.unwrap(), first);
}

#[tokio::test]
async fn simultaneous_requests_with_different_names_make_one_profile() {
    let store = store().await;
    let model = model(&store).await;
    let ids = ["p1", "p2", "p3", "p4", "p5", "p6"];
    let calls =
        ids.map(|id| store.create_profile(new_profile(id, &model), vec![run()], &[], Some(request("x"))));
    let operations: Vec<OperationName> =
        futures_util::future::join_all(calls).await.into_iter().map(Result::unwrap).collect();
    assert!(operations.iter().all(|operation| *operation == operations[0]), "{operations:?}");
    assert_eq!(store.list_profiles(&Query::default(), &page(10, None)).await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_created_leaves_nothing_behind() {
    let store = store().await;
    let (name, _) = profile(&store, "a", 1).await;
    let taken = store.create_profile(new_profile("a", &model(&store).await), vec![run(); 5], &[], None).await;
    assert!(matches!(taken, Err(StoreError::AlreadyExists { what }) if what == name.to_string()));
    let unknown = ModelName::from_id("none").unwrap();
    let missing = store.create_profile(new_profile("b", &unknown), vec![run(); 5], &[], None).await;
    assert!(matches!(missing, Err(StoreError::NotFound { what }) if what == "models/none"));
    let missing = store.create_validation(&PlanName::from_id("none").unwrap(), &[], None).await;
    assert!(matches!(missing, Err(StoreError::NotFound { what }) if what == "plans/none"));
    assert_eq!(store.list_runs(&RunFilter::default(), &page(10, None)).await.unwrap().rows.len(), 1);
    assert_eq!(store.list_operations(&Query::default(), &page(10, None)).await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn the_queue_has_an_end() {
    let store = store().await;
    let model = model(&store).await;
    let too_many = vec![run(); MAX_QUEUED_RUNS as usize + 1];
    let full = store.create_profile(new_profile("a", &model), too_many, &[], None).await;
    assert!(matches!(full, Err(StoreError::QueueFull)));
}

#[tokio::test]
async fn lists_are_paged_without_gaps_or_repetitions() {
    let store = store().await;
    let (name, operation) = profile(&store, "a", 7).await;
    for id in ["b", "c", "d", "e"] {
        profile(&store, id, 1).await;
    }
    let filter = RunFilter::default();
    let runs = all_pages!(3, |request| store.list_runs(&filter, &request));
    let mut ids: Vec<&RunName> = runs.iter().map(|run| &run.name).collect();
    assert_eq!(ids.len(), 11);
    assert!(runs.windows(2).all(|w| w[0].create_time >= w[1].create_time), "newest first");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 11);

    let filter = RunFilter { operation: Some(operation), ..RunFilter::default() };
    assert_eq!(all_pages!(2, |request| store.list_runs(&filter, &request)).len(), 7);
    let filter = RunFilter { state: Some(RunState::Running), ..filter };
    assert_eq!(all_pages!(2, |request| store.list_runs(&filter, &request)).len(), 0);
    let profiles = all_pages!(2, |request| store.list_profiles(&Query::default(), &request));
    let ids: Vec<&str> = profiles.iter().map(|profile| profile.settings.name.id()).collect();
    assert_eq!(ids, ["e", "d", "c", "b", "a"]);
    assert_eq!(all_pages!(2, |request| store.list_operations(&Query::default(), &request)).len(), 5);

    // Measurements are in order of stage and size instead.
    let w = worker("w");
    for (index, size) in [(2, 4), (0, 4), (0, 2), (1, 2), (2, 2)] {
        let claim = claim(&store, &w).await;
        let result = Measurement {
            stage: StageConfig::single(index, 3),
            micro_batch_size: size,
            losses: vec![f64::NAN, f64::NEG_INFINITY, 0.1 + 0.2],
            ..measurement(0)
        };
        applied(store.complete_run(&w, &claim.run, 1, &[result], 1.0).await);
    }
    let measurements = all_pages!(2, |request| store.list_measurements(&name, &Query::default(), &request));
    let order: Vec<(usize, u32)> = measurements
        .iter()
        .map(|row| (row.measurement.stage.first_layer, row.measurement.micro_batch_size))
        .collect();
    assert_eq!(order, [(0, 2), (0, 4), (1, 2), (2, 2), (2, 4)]);
    type Fits = fn(&Measurement) -> bool;
    let filters: [(&str, Fits); 4] = [
        ("micro_batch_size = 2", |of| of.micro_batch_size == 2),
        ("first_layer >= 1 AND micro_batch_size < 4", |of| {
            of.stage.first_layer >= 1 && of.micro_batch_size < 4
        }),
        ("NOT last_layer = 3 OR peak > 1KiB", |of| of.stage.last_layer != 3 || of.peak_allocated.0 > 1 << 10),
        ("held_out = true", |_| false),
    ];
    for (filter, fits) in filters {
        let query = Query::parse(fields::MEASUREMENTS, filter, "").unwrap();
        let found = all_pages!(2, |request| store.list_measurements(&name, &query, &request));
        // Losses that are no numbers equal nothing.
        let names =
            |rows: Vec<&MeasurementRecord>| rows.into_iter().map(MeasurementRecord::name).collect::<Vec<_>>();
        let expected = measurements.iter().filter(|row| fits(&row.measurement)).collect();
        assert_eq!(names(found.iter().collect()), names(expected), "{filter}");
    }
    // In an order that is asked for they are each listed once, too, those that are equal by their creation.
    type Place = fn(&MeasurementRecord) -> (i64, i64);
    let orders: [(&str, Place); 3] = [
        ("micro_batch_size", |of| (of.measurement.micro_batch_size.into(), of.time.as_microsecond())),
        ("micro_batch_size desc", |of| {
            (-i64::from(of.measurement.micro_batch_size), -of.time.as_microsecond())
        }),
        ("micro_batch_size, first_layer desc", |of| {
            (of.measurement.micro_batch_size.into(), -(of.measurement.stage.first_layer as i64))
        }),
    ];
    for (order_by, place) in orders {
        let query = Query::parse(fields::MEASUREMENTS, "", order_by).unwrap();
        let found = all_pages!(2, |request| store.list_measurements(&name, &query, &request));
        let places: Vec<(i64, i64)> = found.iter().map(place).collect();
        assert!(places.len() == 5 && places.is_sorted(), "{order_by}: {places:?}");
        let names: BTreeSet<String> = found.iter().map(MeasurementRecord::name).collect();
        assert_eq!(names.len(), 5, "{order_by}");
    }
    let losses = &measurements[0].measurement.losses;
    assert!(losses[0].is_nan() && losses[1] == f64::NEG_INFINITY && losses[2] == 0.1 + 0.2, "{losses:?}");
    let stray =
        page(2, Some(Cursor { keys: Vec::new(), time: measurements[0].time, id: "nonsense".to_owned() }));
    assert!(matches!(
        store.list_measurements(&name, &Query::default(), &stray).await,
        Err(StoreError::NotFound { .. })
    ));
    let unknown = ProfileName::from_id("none").unwrap();
    assert!(matches!(
        store.list_measurements(&unknown, &Query::default(), &page(2, None)).await,
        Err(StoreError::NotFound { .. })
    ));
}

#[tokio::test]
async fn measurements_can_be_queried_by_their_columns() {
    let store = store().await;
    profile(&store, "a", 1).await;
    let w = worker("w");
    let claim = claim(&store, &w).await;
    let mut result = measurement(2);
    result.peak_reserved = Some(Bytes(200_000_000));
    // A crashed driver's version may be anything.
    result.environment.driver_version = "5\0".to_owned();
    applied(store.complete_run(&w, &claim.run, 1, &[result], 1.0).await);
    let row: (String, i32, i32, bool, i64, i64, String) = sqlx::query_as(
        "SELECT profile_runs.profile_id, last_layer, stage_index, solo, peak_allocated_bytes, peak_reserved_bytes,
                device_kind
         FROM measurements JOIN profile_runs USING (run_id)",
    )
    .fetch_one(store.pool())
    .await
    .unwrap();
    assert_eq!(row, ("a".to_owned(), 3, 2, true, 123_456_789, 200_000_000, "cpu".to_owned()));
}

#[tokio::test]
async fn what_cannot_be_stored_is_no_result() {
    let store = store().await;
    profile(&store, "a", 1).await;
    let w = worker("w");
    let claim = claim(&store, &w).await;
    let twice = [measurement(1), measurement(1)];
    let refused = store.complete_run(&w, &claim.run, 1, &twice, 1.0).await;
    assert!(matches!(refused, Err(StoreError::Corrupt { .. })));
    // What no column takes is the report's fault as well, not the database's.
    let no_time = Measurement { iteration_seconds: f64::NAN, ..measurement(0) };
    let refused = store.complete_run(&w, &claim.run, 1, &[no_time], 1.0).await;
    assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{refused:?}");
    assert_eq!(store.get_run(&claim.run).await.unwrap().state, RunState::Running);
    let absurd = store.complete_run(&w, &claim.run, 1, &[measurement(0)], f64::MAX).await;
    assert_eq!(absurd.unwrap(), Fenced::Applied);
    let nobody = RunName::from_id("none").unwrap();
    let missing = store.complete_run(&w, &nobody, 1, &[measurement(1)], 1.0).await;
    assert!(matches!(missing, Err(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn a_plan_is_stored_once_and_keeps_its_first_time() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    let first = store.put_plan(&name, &content).await.unwrap();
    assert_eq!(first.content, content);
    assert_eq!(store.put_plan(&name, &content).await.unwrap(), first);
    let listed = store.list_plans(&Query::default(), &page(10, None)).await.unwrap().rows;
    assert_eq!(listed.iter().map(|row| &row.name).collect::<Vec<_>>(), [&first.name]);
    let other = Plan { solver: "exact-2".to_owned(), ..content.clone() };
    assert!(matches!(store.put_plan(&name, &other).await, Err(StoreError::Corrupt { .. })));
    let stray = Plan { profile: ProfileName::from_id("none").unwrap(), ..content };
    let stray = store.put_plan(&PlanName::from_id("p2").unwrap(), &stray).await;
    assert!(matches!(stray, Err(StoreError::NotFound { what }) if what == "profiles/none"));
}

#[tokio::test]
async fn a_validation_is_a_run_of_its_plan() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    store.put_plan(&name, &content).await.unwrap();
    let trials = [NewTrial { plan: name.clone(), run: run() }];
    let first = store.create_validation(&name, &trials, Some(request("v"))).await.unwrap();
    assert_eq!(store.create_validation(&name, &trials, Some(request("v"))).await.unwrap(), first);
    let filter = RunFilter { plan: Some(name.clone()), ..RunFilter::default() };
    let runs = store.list_runs(&filter, &page(10, None)).await.unwrap().rows;
    assert_eq!(runs.len(), 1);
    assert_eq!((&runs[0].plan, &runs[0].profile, &runs[0].operation), (&Some(name.clone()), &None, &first));
    let operation = store.get_operation(&first).await.unwrap();
    assert_eq!(operation.target, OperationTarget::Plan(name));

    let w = worker("w");
    let claim = claim(&store, &w).await;
    assert_eq!(store.finish_operation(&first, OperationState::Succeeded).await.unwrap(), Fenced::Stale);
    applied(store.complete_run(&w, &claim.run, 1, &[measurement(0)], 1.0).await);
    assert_eq!(store.run_measurements(&claim.run).await.unwrap()[0].profile, None);
    applied(store.finish_operation(&first, OperationState::Succeeded).await);
    assert_eq!(store.get_operation(&first).await.unwrap().state, OperationState::Succeeded);
}

#[tokio::test]
async fn an_operation_ends_once() {
    let store = store().await;
    let (complete, first) = profile(&store, "a", 0).await;
    let (incomplete, second) = profile(&store, "b", 0).await;
    let (failed, third) = profile(&store, "c", 0).await;
    let mut due = store.unsettled_operations().await.unwrap();
    due.sort();
    let mut all = [first.clone(), second.clone(), third.clone()];
    all.sort();
    assert_eq!(due, all);
    assert!(matches!(store.delete_operation(&first).await, Err(StoreError::NotDone { .. })));

    let missing = ["added memory of layer 3".to_owned()];
    applied(store.finish_profile_operation(&first, &[]).await);
    assert_eq!(store.finish_profile_operation(&first, &missing).await.unwrap(), Fenced::Stale);
    applied(store.finish_profile_operation(&second, &missing).await);
    let error =
        OperationState::Failed { code: 9, reason: "NO".to_owned(), message: "nothing fits".to_owned() };
    applied(store.finish_operation(&third, error.clone()).await);
    assert!(store.finish_operation(&third, OperationState::Running).await.is_err());
    assert_eq!(store.unsettled_operations().await.unwrap(), []);

    assert_eq!(store.get_operation(&third).await.unwrap().state, error);
    assert!(store.get_operation(&first).await.unwrap().end_time.is_some());
    let states = [
        (complete, ProfileState::Complete, vec![]),
        (incomplete, ProfileState::Incomplete, missing.to_vec()),
        (failed, ProfileState::Incomplete, vec!["nothing fits".to_owned()]),
    ];
    for (name, state, missing) in states {
        let profile = store.get_profile(&name).await.unwrap();
        assert_eq!((profile.state, profile.missing), (state, missing), "{name}");
        assert!(profile.end_time.is_some());
    }

    store.delete_operation(&first).await.unwrap();
    assert!(matches!(store.get_operation(&first).await, Err(StoreError::NotFound { .. })));
    assert!(matches!(store.delete_operation(&first).await, Err(StoreError::NotFound { .. })));
    assert!(matches!(store.cancel_operation(&first).await, Err(StoreError::NotFound { .. })));
    assert_eq!(store.list_operations(&Query::default(), &page(10, None)).await.unwrap().rows.len(), 2);
}

/// A worker whose host's name and threads are its own.
fn odd_worker(id: &str, session: &str) -> NewWorker {
    NewWorker { threads: 2, host: "node\0".to_owned(), ..new_worker(id, session) }
}

/// Hears of a worker by a stream; says whose stream is nobody's.
async fn beat(store: &Store, worker: &WorkerName, connection: &str) -> Vec<WorkerName> {
    let heard = [Heartbeat { worker, connection, age: Duration::from_millis(10) }];
    store.note_heartbeats(&heard).await.unwrap()
}

/// While a process is connected and heard of, its name is its own; both its host and the time are told.
#[tokio::test]
async fn a_name_belongs_to_the_process_that_is_connected_with_it() {
    let store = store().await;
    let name = worker("w");
    let first = store.upsert_worker(&odd_worker("w", "one"), LEASE).await.unwrap();
    let second = || async { store.upsert_worker(&odd_worker("w", "two"), LEASE).await };
    match second().await.unwrap_err() {
        StoreError::NameTaken { what, host, heartbeat_time } => {
            assert_eq!((what, host), ("workers/w".to_owned(), first.host.clone()));
            assert_eq!(heartbeat_time, first.heartbeat_time);
        }
        other => panic!("{other}"),
    }
    assert_eq!(store.get_worker(&name).await.unwrap(), first, "nothing of the second is stored");
    store.upsert_worker(&odd_worker("w", "one"), LEASE).await.expect("a reconnect of the same process");

    // A stream of the first that ended long ago does not give the name away.
    store.disconnect_worker(&name, "earlier").await.unwrap();
    assert!(matches!(second().await, Err(StoreError::NameTaken { .. })));
    store.disconnect_worker(&name, "one").await.unwrap();
    assert_eq!(second().await.unwrap().session_id, "two");
    // Nobody said that the second has gone, but its leases have ended.
    execute(&store, "UPDATE workers SET heartbeat_time = now() - interval '31 seconds'").await;
    assert_eq!(store.upsert_worker(&odd_worker("w", "one"), LEASE).await.unwrap().session_id, "one");
}

#[tokio::test]
async fn a_worker_that_is_gone_can_be_deleted_and_its_runs_stay_readable() {
    let store = store().await;
    let name = worker("w");
    store.upsert_worker(&odd_worker("w", "one"), LEASE).await.unwrap();
    profile(&store, "a", 1).await;
    let claim = claim(&store, &name).await;
    let refused = async || match store.delete_worker(&name).await.unwrap_err() {
        StoreError::WorkerInUse { why, .. } => why,
        other => panic!("{other}"),
    };
    assert!(refused().await.contains("is connected"));
    store.set_worker_state(&name, "one", WorkerState::Gone).await.unwrap();
    assert!(refused().await.contains("has 1 leases"));
    let result = [measurement(0)];
    applied(store.complete_run(&name, &claim.run, claim.lease_token, &result, 1.0).await);
    store.delete_worker(&name).await.unwrap();
    assert!(matches!(store.delete_worker(&name).await, Err(StoreError::NotFound { .. })));
    let run = store.get_run(&claim.run).await.unwrap();
    assert_eq!((run.state, run.worker), (RunState::Succeeded, Some(name.clone())));
    assert_eq!(beat(&store, &name, "one").await, [name], "a stream that it left behind speaks for nobody");
}

#[tokio::test]
async fn a_worker_is_alive_lost_and_back_and_stays_cordoned() {
    let store = store().await;
    let name = worker("w");
    let first = store.upsert_worker(&odd_worker("w", "one"), LEASE).await.unwrap();
    assert_eq!((first.state, first.devices.len()), (WorkerState::Alive, 2));
    assert_eq!(store.get_worker(&name).await.unwrap(), first);
    profile(&store, "a", 1).await;
    let claim = claim(&store, &name).await;
    assert_eq!(store.get_worker(&name).await.unwrap().runs, [claim.run]);

    let state = async || store.get_worker(&name).await.unwrap().state;
    store.set_worker_state(&name, "one", WorkerState::Cordoned).await.unwrap();
    store.mark_lost_workers(LEASE).await.unwrap();
    assert_eq!(state().await, WorkerState::Cordoned);
    execute(&store, "UPDATE workers SET heartbeat_time = now() - interval '31 seconds'").await;
    store.mark_lost_workers(LEASE).await.unwrap();
    assert_eq!(state().await, WorkerState::Lost);
    assert_eq!(beat(&store, &name, "one").await, []);
    assert_eq!(state().await, WorkerState::Cordoned, "a heartbeat takes it back to what it was");

    // The same process reconnects, then another one of the same name.
    assert_eq!(
        store.upsert_worker(&odd_worker("w", "one"), LEASE).await.unwrap().state,
        WorkerState::Cordoned
    );
    store.disconnect_worker(&name, "one").await.unwrap();
    let second = store.upsert_worker(&odd_worker("w", "two"), LEASE).await.unwrap();
    assert_eq!(beat(&store, &name, "one").await, std::slice::from_ref(&name), "the first stream is nobody's");
    assert_eq!((second.state, second.create_time), (WorkerState::Alive, first.create_time));
    store.set_worker_state(&name, "one", WorkerState::Gone).await.unwrap();
    assert_eq!(state().await, WorkerState::Alive, "the first process does not speak for the second");
    store.set_worker_state(&name, "two", WorkerState::Gone).await.unwrap();
    assert_eq!(state().await, WorkerState::Gone);
    let back = store.upsert_worker(&odd_worker("w", "two"), LEASE).await.unwrap();
    assert_eq!(back.state, WorkerState::Gone, "who said goodbye is given nothing after a reconnect");
    store.set_worker_state(&name, "two", WorkerState::Cordoned).await.unwrap();
    assert_eq!(state().await, WorkerState::Gone, "there is no process to cordon");
    let looked = store.look(&BTreeSet::from(["cpu".to_owned()])).await.unwrap();
    assert_eq!(looked.1, HashSet::from([name.clone()]), "should it come back");
    store.set_worker_state(&name, "two", WorkerState::Alive).await.unwrap();
    assert_eq!(state().await, WorkerState::Gone, "nobody is there to work again");
    assert!(store.look(&BTreeSet::from(["cpu".to_owned()])).await.unwrap().1.is_empty());
    let nobody = WorkerName::from_id("nobody").unwrap();
    assert!(matches!(store.get_worker(&nobody).await, Err(StoreError::NotFound { .. })));
}

/// Heartbeats between two pages move nobody.
#[tokio::test]
async fn workers_are_listed_newest_first_whatever_they_do_meanwhile() {
    let store = store().await;
    for id in ["a", "b", "c"] {
        store.upsert_worker(&odd_worker(id, "s"), LEASE).await.unwrap();
    }
    beat(&store, &worker("a"), "s").await;
    let workers = all_pages!(2, |request| store.list_workers(&Query::default(), &request));
    let ids: Vec<&str> = workers.iter().map(|worker| worker.name.id()).collect();
    assert_eq!(ids, ["c", "b", "a"]);
}

/// However many came and went since, who is connected is found, and by name whoever else is.
#[tokio::test]
async fn connected_workers_are_not_hidden_by_those_that_left() {
    let store = store().await;
    for id in ["a", "b", "c", "d"] {
        store.upsert_worker(&odd_worker(id, "s"), LEASE).await.unwrap();
    }
    store.set_worker_state(&worker("b"), "s", WorkerState::Cordoned).await.unwrap();
    for id in ["c", "d"] {
        store.set_worker_state(&worker(id), "s", WorkerState::Gone).await.unwrap();
    }
    let found = async |names: &[&str], most| {
        let names: Vec<WorkerName> = names.iter().map(|id| worker(id)).collect();
        let found = store.connected_workers(&names, most).await.unwrap();
        found.iter().map(|worker| worker.name.id().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(&[], 1_000).await, ["b", "a"]);
    assert_eq!(found(&[], 1).await, ["b"]);
    assert_eq!(found(&["a", "d", "nobody"], 1).await, ["a"]);
}

#[tokio::test]
async fn a_run_that_no_worker_could_ever_take_is_found() {
    let store = store().await;
    let wide = NewRun { device_count: 3, ..run() };
    let operation = queue(&store, "a", vec![run(), wide]).await;
    let unplaceable = async || store.unplaceable_run(&operation).await.unwrap();
    let need = |device_count| RunNeed {
        device_kind: "cpu".to_owned(),
        device_count,
        min_capacity: 1 << 20,
        host_memory: 0,
        command: None,
    };
    assert_eq!(unplaceable().await, Some(need(1)));
    store.upsert_worker(&odd_worker("w", "s"), LEASE).await.unwrap();
    assert_eq!(unplaceable().await, Some(need(3)));
    let large = NewWorker { devices: (0..3).map(cpu_slot).collect(), ..odd_worker("v", "s") };
    store.upsert_worker(&large, LEASE).await.unwrap();
    assert_eq!(unplaceable().await, None);
    store.set_worker_state(&worker("v"), "s", WorkerState::Cordoned).await.unwrap();
    assert_eq!(unplaceable().await, Some(need(3)));
}

/// The worker that could hold a run is found, even if it is busy or cordoned; else the one that lacks least.
#[tokio::test]
async fn the_worker_that_comes_nearest_to_a_run_is_found() {
    let store = store().await;
    let train = CommandName::parse("command", "train").unwrap();
    let nearest = async |device_count, min_capacity, command: Option<&CommandName>| {
        let device_kind = "cpu".to_owned();
        let need =
            RunNeed { device_kind, device_count, min_capacity, host_memory: 0, command: command.cloned() };
        let found = store.nearest_worker(&need).await.unwrap();
        found.map(|of| (of.worker.id().to_owned(), of.devices_of(min_capacity), of.offers_command))
    };
    assert_eq!(nearest(1, 1, None).await, None, "nobody is there");
    let with = async |id: &str, capacities: &[u64], commands: &[&CommandName]| {
        let slots = (0..).zip(capacities);
        let devices =
            slots.map(|(index, &bytes)| Device { capacity: Bytes(bytes), ..cpu_slot(index) }).collect();
        let commands = commands.iter().map(|&command| command.clone()).collect();
        store.upsert_worker(&NewWorker { devices, commands, ..odd_worker(id, "s") }, LEASE).await.unwrap();
    };
    with("many-small", &[10, 10, 10, 10], &[]).await;
    with("few-large", &[40, 30], &[&train]).await;
    let gpu = Device { kind: "NVIDIA H200".to_owned(), capacity: Bytes(1 << 40), ..cpu_slot(0) };
    let other_kind = NewWorker { devices: vec![gpu; 8], ..odd_worker("gpu", "s") };
    store.upsert_worker(&other_kind, LEASE).await.unwrap();

    assert_eq!(nearest(4, 10, None).await, Some(("many-small".to_owned(), 4, true)));
    assert_eq!(nearest(4, 11, None).await, Some(("few-large".to_owned(), 2, true)), "it lacks two");
    assert_eq!(
        nearest(4, 10, Some(&train)).await,
        Some(("few-large".to_owned(), 2, true)),
        "the command decides"
    );
    store.set_worker_state(&worker("few-large"), "s", WorkerState::Cordoned).await.unwrap();
    assert_eq!(nearest(2, 30, None).await, Some(("few-large".to_owned(), 2, true)), "a cordon may be undone");
    store.set_worker_state(&worker("few-large"), "s", WorkerState::Gone).await.unwrap();
    assert_eq!(nearest(2, 30, None).await, Some(("many-small".to_owned(), 0, true)));
    assert_eq!(nearest(2, 10, Some(&train)).await, Some(("many-small".to_owned(), 4, false)));
}

#[tokio::test]
async fn other_tables_than_this_programs_are_refused() {
    let store = store().await;
    store.check_schema().await.unwrap();
    let report = store.migrate().await.unwrap();
    assert_eq!(report.applied, [""; 0]);

    execute(&store, "UPDATE _sqlx_migrations SET version = 9999 WHERE version = 1").await;
    let message = store.check_schema().await.unwrap_err().to_string();
    assert!(message.contains("Install the newer Loadmaster"), "{message}");
    let message = store.migrate().await.unwrap_err().to_string();
    assert!(message.contains("Install the newer Loadmaster"), "{message}");
    execute(&store, "DELETE FROM _sqlx_migrations WHERE version = 9999").await;
    let message = store.check_schema().await.unwrap_err().to_string();
    assert!(message.contains("Run `loadmaster migrate`"), "{message}");
    execute(&store, "DROP TABLE _sqlx_migrations").await;
    let message = store.check_schema().await.unwrap_err().to_string();
    assert!(message.contains("Run `loadmaster migrate`"), "{message}");
}

#[tokio::test]
async fn migrating_an_empty_database_says_what_it_did_and_may_be_done_by_several_at_once() {
    let url = database().await;
    let store = Store::connect(&ConnectOptions::new(&url)).await.unwrap();
    execute(&store, "DROP SCHEMA public CASCADE").await;
    execute(&store, "CREATE SCHEMA public").await;
    let (a, b) = tokio::join!(store.migrate(), store.migrate());
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.version, b.version);
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations")).unwrap().count();
    assert!(a.applied.len() == files || b.applied.len() == files, "{a:?} {b:?}");
    store.check_schema().await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_know_us_says_so() {
    let url = database().await.replacen("loadmaster@", "somebody:geheim@", 1);
    let message = Store::connect(&ConnectOptions::new(url)).await.unwrap_err().to_string();
    assert!(message.contains("somebody") && !message.contains("geheim"), "{message}");
}
