//! What nothing rests on can be deleted; what was measured outlives what it was measured for.

use loadmaster::document::Import;
use loadmaster::store::records::{
    NewTrial, OperationState, PageRequest, RequestKey, ReusedRun, RunFilter, RunState, Software,
};
use loadmaster::store::{Store, StoreError, labels_etag};
use loadmaster_filter::Query;
use loadmaster_proto::label::LabelChange;
use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::name::{OperationName, PlacementName, PlanName, ProfileName, RunName};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::{Alternative, FrontPoint, Outline};
use loadmaster_proto::plan::findings::Findings;
use loadmaster_proto::plan::report::{Measured, Report};
use loadmaster_proto::training::stage::Partitioning;
use uuid::Uuid;

use crate::support::samples::{
    claim, failure, measurement, model, new_profile, out_of_memory, plan, plans, profile, queue, run,
    trial_run, worker,
};
use crate::support::{applied, execute, store};

const FIRST_PAGE: PageRequest = PageRequest { size: 100, after: None };

fn plan_name(id: &str) -> PlanName {
    PlanName::from_id(id).unwrap()
}

fn report() -> Report {
    Report {
        measured: Measured { iteration_seconds: Some(0.5), stage_peaks: Vec::new() },
        iterations: 1,
        device_kind: None,
        source: String::new(),
    }
}

/// What an answer says rests on the row, as kinds and names, and how many there are.
fn dependents(refused: Result<(), StoreError>) -> (Vec<(String, String)>, u64) {
    match refused {
        Err(StoreError::InUse { by, count, .. }) => {
            (by.into_iter().map(|of| (of.kind, of.name)).collect(), count)
        }
        other => panic!("{other:?}"),
    }
}

/// The one thing that rests on the row.
fn only(refused: Result<(), StoreError>) -> (String, String) {
    let (mut by, count) = dependents(refused);
    assert_eq!((by.len(), count), (1, 1), "{by:?}");
    by.remove(0)
}

fn named(kind: &str, name: impl ToString) -> (String, String) {
    (kind.to_owned(), name.to_string())
}

#[tokio::test]
async fn a_plan_that_nothing_rests_on_is_deleted_once_and_may_be_stored_again() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    store.put_plan(&name, &content).await.unwrap();
    store.delete_plan(&name, "").await.unwrap();
    assert!(matches!(store.get_plan(&name).await, Err(StoreError::NotFound { .. })));
    assert!(store.list_plans(&Query::default(), &FIRST_PAGE).await.unwrap().rows.is_empty());
    let again = store.delete_plan(&name, "").await;
    assert!(matches!(again, Err(StoreError::NotFound { what }) if what == "plans/p1"));
    store.put_plan(&name, &content).await.expect("its name is free");
}

/// A plan's alternatives and the points of its front must be there when it is read.
#[tokio::test]
async fn a_plan_that_another_one_names_stays() {
    let store = store().await;
    let [alternative, point] = plans(&store, ["alternative", "point"]).await;
    let summary = Outline {
        partitioning: Partitioning::from_sizes(&[30]).unwrap(),
        micro_batch_size: 4,
        peak: 1,
        seconds: None,
    };
    let found = Findings {
        alternatives: vec![
            Alternative { plan: Some(alternative.clone()), summary: summary.clone(), value: 1.0 },
            Alternative { plan: None, summary: summary.clone(), value: 2.0 },
        ],
        front: vec![FrontPoint { plan: Some(point.clone()), summary, recompute: Vec::new() }],
        ..Findings::default()
    };
    let content = Plan { found, ..store.get_plan(&point).await.unwrap().content };
    let best = plan_name("best");
    store.put_plan(&best, &content).await.unwrap();
    let listed = store.list_plans(&Query::default(), &FIRST_PAGE).await.unwrap().rows;
    let named_by =
        |name: &PlanName| listed.iter().find(|row| row.name == *name).unwrap().alternative_of.clone();
    assert_eq!([&alternative, &point, &best].map(named_by), [Some(best.clone()), Some(best.clone()), None]);
    for name in [&alternative, &point] {
        assert_eq!(only(store.delete_plan(name, "").await), named("PLAN", &best));
    }
    store.delete_plan(&best, "").await.unwrap();
    for name in [&alternative, &point] {
        store.delete_plan(name, "").await.unwrap();
    }
}

/// Reports are deleted one by one, and teach nothing any more.
#[tokio::test]
async fn a_plan_keeps_its_reports_until_they_are_deleted() {
    let store = store().await;
    let [name, other] = plans(&store, ["a", "b"]).await;
    let mut observed = Vec::new();
    for _ in 0..12 {
        observed.push(store.put_report(&name, &report(), None).await.unwrap());
    }
    let (by, count) = dependents(store.delete_plan(&name, "").await);
    assert_eq!((by.len(), count), (10, 12), "the first ones are named, all are counted");
    assert!(by.iter().all(|(kind, _)| kind == "REPORT"));
    let text = store.delete_plan(&name, "").await.unwrap_err().to_string();
    assert!(text.contains("and 9 more reference it"), "{text}");

    let foreign = store.delete_report(&other, &observed[0].id).await;
    assert!(matches!(foreign, Err(StoreError::NotFound { .. })), "it is of another plan: {foreign:?}");
    for report in &observed {
        store.delete_report(&name, &report.id).await.unwrap();
    }
    assert!(store.measured_plans(100).await.unwrap().is_empty());
    let again = store.delete_report(&name, &observed[0].id).await;
    assert!(matches!(again, Err(StoreError::NotFound { what }) if what == observed[0].name()));
    store.delete_plan(&name, "").await.unwrap();
}

async fn validate(store: &Store, plan: &PlanName) -> (OperationName, RunName) {
    let trial = NewTrial { plan: plan.clone(), run: trial_run() };
    let operation = store.create_validation(plan, &[trial], None).await.unwrap();
    let filter = RunFilter { operation: Some(operation.clone()), ..RunFilter::default() };
    let run = store.list_runs(&filter, &FIRST_PAGE).await.unwrap().rows.remove(0).name;
    (operation, run)
}

/// A trial that waits, that measured something or that did not fit rests on its plan; one that yielded nothing is no
/// reason to keep it, and stays as a run of nobody.
#[tokio::test]
async fn a_plan_keeps_its_trials_results() {
    let store = store().await;
    let [waits, succeeded, too_large, failed] = plans(&store, ["a", "b", "c", "d"]).await;
    let w = worker("w");

    let (operation, trial) = validate(&store, &waits).await;
    let (by, _) = dependents(store.delete_plan(&waits, "").await);
    assert_eq!(by, [named("OPERATION", &operation), named("TRIAL", &trial)]);
    assert!(store.cancel_operation(&operation).await.unwrap());
    store.delete_plan(&waits, "").await.expect("a cancelled trial is nothing");
    let gone = store.get_operation(&operation).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })), "its operation went with it: {gone:?}");
    let left = store.get_run(&trial).await.unwrap();
    assert_eq!((left.plan, left.profile), (None, None));

    let end =
        async |operation: &OperationName, state| applied(store.finish_operation(operation, state).await);
    let (operation, trial) = validate(&store, &succeeded).await;
    let claimed = claim(&store, &w).await;
    applied(store.complete_run(&w, &claimed.run, 1, &[measurement(0)], 1.0).await);
    end(&operation, OperationState::Succeeded).await;
    assert_eq!(only(store.delete_plan(&succeeded, "").await), named("TRIAL", &trial));

    let (operation, trial) = validate(&store, &too_large).await;
    let claimed = claim(&store, &w).await;
    applied(store.fail_run(&w, &claimed.run, 1, &out_of_memory(), 1.0).await);
    end(&operation, OperationState::Succeeded).await;
    assert_eq!(only(store.delete_plan(&too_large, "").await), named("TRIAL", &trial));

    let (operation, trial) = validate(&store, &failed).await;
    for _ in 0..loadmaster::store::MAX_ATTEMPTS {
        execute(&store, "UPDATE runs SET not_before = now()").await;
        let claimed = claim(&store, &w).await;
        let lost = failure(FailureKind::Hung);
        applied(store.fail_run(&w, &claimed.run, claimed.lease_token, &lost, 1.0).await);
    }
    end(&operation, OperationState::Cancelled).await;
    store.delete_plan(&failed, "").await.expect("it measured nothing");
    assert_eq!(store.get_run(&trial).await.unwrap().plan, None);
    assert_eq!(store.list_plans(&Query::default(), &FIRST_PAGE).await.unwrap().rows.len(), 2);
}

/// Whoever says so deletes what was measured of a plan with it. Its runs stay, and nothing is learnt from them; what is
/// still trained, or named by another plan, stays all the same.
#[tokio::test]
async fn a_plan_is_deleted_with_its_trials_and_reports_where_that_is_said() {
    let store = store().await;
    let [plan] = plans(&store, ["tried"]).await;
    let w = worker("w");
    let (operation, trial) = validate(&store, &plan).await;
    assert_eq!(only(store.delete_plan_with_trials(&plan, "").await), named("OPERATION", &operation));
    let text = store.delete_plan_with_trials(&plan, "").await.unwrap_err().to_string();
    assert!(text.contains(&format!("{operation} references it. Cancel the operation first")), "{text}");
    let claimed = claim(&store, &w).await;
    applied(store.complete_run(&w, &claimed.run, 1, &[measurement(0)], 1.0).await);
    applied(store.finish_operation(&operation, OperationState::Succeeded).await);
    let report = store.put_report(&plan, &report(), None).await.unwrap();

    let (by, _) = dependents(store.delete_plan(&plan, "").await);
    assert_eq!(by, [named("REPORT", report.name()), named("TRIAL", &trial)]);
    let text = store.delete_plan(&plan, "").await.unwrap_err().to_string();
    assert!(text.contains("Set `force`"), "{text}");
    store.delete_plan_with_trials(&plan, "").await.unwrap();
    assert!(matches!(store.get_plan(&plan).await, Err(StoreError::NotFound { .. })));
    assert!(store.measured_plans(100).await.unwrap().is_empty());
    let left = store.get_run(&trial).await.unwrap();
    assert_eq!((left.state, left.plan), (RunState::Succeeded, None));
    assert_eq!(store.measurements_of(&[&trial]).await.unwrap().len(), 1, "what it measured stays");
    let again = store.delete_plan_with_trials(&plan, "").await;
    assert!(matches!(again, Err(StoreError::NotFound { .. })), "{again:?}");
}

fn software() -> Software {
    let (cuda_version, driver_version) = (String::new(), String::new());
    Software {
        libtorch_version: "2.11.0".to_owned(),
        cuda_version,
        driver_version,
        threads: None,
        cores: None,
    }
}

/// A complete profile of one run.
async fn measured(store: &Store, id: &str) -> (ProfileName, OperationName) {
    let operation = queue(store, id, vec![run()]).await;
    let claim = claim(store, &worker("w")).await;
    let results = [Measurement { losses: Vec::new(), ..measurement(0) }];
    applied(store.complete_run(&worker("w"), &claim.run, claim.lease_token, &results, 1.0).await);
    applied(store.finish_profile_operation(&operation, &[]).await);
    (ProfileName::from_id(id).unwrap(), operation)
}

/// The profile that reuses a deleted one's measurements keeps them, and so does whoever needs the same later.
#[tokio::test]
async fn measurements_outlive_their_profile() {
    let store = store().await;
    let (first, operation) = measured(&store, "first").await;
    let wanted = [("work".to_owned(), 4)];
    let find = async || store.find_measured(&wanted, "cpu", &software(), false).await.unwrap();
    let found = find().await;
    let reused = ReusedRun { run: found[0].run.clone(), layer_offset: 0, held_out: false };
    let model = model(&store).await;
    let key = RequestKey { id: Uuid::from_u128(5), fingerprint: "f".to_owned() };
    store.create_profile(new_profile("second", &model), vec![], &[reused], Some(key)).await.unwrap();
    let second = ProfileName::from_id("second").unwrap();
    let before = store.profile_measurements(&second).await.unwrap();
    assert_eq!(before.len(), 1);

    store.delete_profile(&first, "").await.unwrap();
    assert!(matches!(store.get_profile(&first).await, Err(StoreError::NotFound { .. })));
    assert!(matches!(store.get_operation(&operation).await, Err(StoreError::NotFound { .. })));
    let again = store.delete_profile(&first, "").await;
    assert!(matches!(again, Err(StoreError::NotFound { what }) if what == "profiles/first"));
    assert_eq!(store.profile_measurements(&second).await.unwrap(), before);
    assert_eq!(find().await, found, "and are found by whoever needs the same");
    let left = store.get_run(&found[0].run).await.unwrap();
    assert_eq!((left.profile, left.plan), (None, None));
    assert_eq!(store.run_measurements(&found[0].run).await.unwrap().len(), 1);
    assert!(store.unsettled_operations().await.unwrap().iter().all(|of| *of != operation));

    let name = new_profile("first", &model);
    store.create_profile(name, vec![run()], &[], None).await.expect("the name is free");
    assert!(store.profile_measurements(&first).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_profile_that_plans_were_made_from_or_that_is_measured_stays() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    store.put_plan(&name, &content).await.unwrap();
    let profile = content.profile;
    let operations = store.list_operations(&Query::default(), &FIRST_PAGE).await.unwrap().rows;
    let (by, _) = dependents(store.delete_profile(&profile, "").await);
    assert_eq!(by, [named("OPERATION", &operations[0].name), named("PLAN", &name)]);
    applied(store.finish_profile_operation(&operations[0].name, &[]).await);
    assert_eq!(only(store.delete_profile(&profile, "").await), named("PLAN", &name));
    store.delete_plan(&name, "").await.unwrap();
    store.delete_profile(&profile, "").await.unwrap();
}

/// A plan for several kinds of devices rests on the profile of each.
#[tokio::test]
async fn profiles_of_other_kinds_stay_with_their_plan() {
    let store = store().await;
    let (_, content) = plan(&store).await;
    let (other, operation) = profile(&store, "other", 0).await;
    applied(store.finish_profile_operation(&operation, &[]).await);
    let content = Plan { other_profiles: vec![other.clone()], ..content };
    let name = plan_name("several-kinds");
    store.put_plan(&name, &content).await.unwrap();
    assert_eq!(only(store.delete_profile(&other, "").await), named("PLAN", &name));
    store.delete_plan(&name, "").await.unwrap();
    store.delete_profile(&other, "").await.unwrap();
}

#[tokio::test]
async fn an_imported_profile_goes_with_its_document() {
    let store = store().await;
    measured(&store, "a").await;
    let exported = loadmaster::document::export(&store, &ProfileName::from_id("a").unwrap()).await.unwrap();
    let text = exported.to_text().unwrap();
    let copy = ProfileName::from_id("copy").unwrap();
    let import = || Import::check(&text, Some(copy.clone())).unwrap();
    import().store(&store).await.unwrap();
    store.delete_profile(&copy, "").await.unwrap();
    assert!(store.find_document(&copy).await.unwrap().is_none());
    import().store(&store).await.expect("it may be imported again");
}

/// Whoever reports at the moment of the deletion is told that the plan is gone, or the deletion is told of the
/// report: no report is lost, and no error is the database's.
#[tokio::test]
async fn simultaneous_reports_and_deletions_agree() {
    let store = store().await;
    for round in 0..20 {
        let (name, content) =
            match store.list_plans(&Query::default(), &FIRST_PAGE).await.unwrap().rows.first() {
                Some(row) => {
                    let content = store.get_plan(&row.name).await.unwrap().content;
                    (plan_name(&format!("r{round}")), Plan { solver: format!("{round}"), ..content })
                }
                None => {
                    let (_, content) = plan(&store).await;
                    store.put_plan(&plan_name("kept"), &content).await.unwrap();
                    (plan_name("r0"), content)
                }
            };
        store.put_plan(&name, &content).await.unwrap();
        let report = report();
        let (deleted, reported) =
            tokio::join!(store.delete_plan(&name, ""), store.put_report(&name, &report, None));
        match (&deleted, &reported) {
            (Ok(()), Err(StoreError::NotFound { .. })) | (Err(StoreError::InUse { .. }), Ok(_)) => {}
            other => panic!("round {round}: {other:?}"),
        }
    }
}

/// A model is deleted once no profile, plan or run references it.
#[tokio::test]
async fn a_model_that_nothing_references_is_deleted() {
    let store = store().await;
    let record = model(&store).await;
    let (name, content) = plan(&store).await;
    store.put_plan(&name, &content).await.unwrap();
    let (by, count) = dependents(store.delete_model(&content.model).await);
    assert!(count >= 2 && by.iter().any(|(kind, of)| kind == "PLAN" && *of == name.to_string()), "{by:?}");
    assert!(by.iter().any(|(kind, _)| kind == "PROFILE"), "{by:?}");
    store.delete_plan(&name, "").await.unwrap();
    execute(&store, "TRUNCATE profiles, operations, runs CASCADE").await;
    store.delete_model(&content.model).await.unwrap();
    assert!(matches!(store.get_model(&content.model).await, Err(StoreError::NotFound { .. })));
    assert!(matches!(store.delete_model(&content.model).await, Err(StoreError::NotFound { .. })));
    drop(record);
}

/// Labels are the only part of a plan or profile that changes: their etag follows from them, and guards changes and deletions.
#[tokio::test]
async fn an_etag_guards_labels_and_deletions() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    store.put_plan(&name, &content).await.unwrap();
    let labels = |value: &str| LabelChange {
        set: [("team".to_owned(), value.to_owned())].into(),
        ..LabelChange::default()
    };
    let etag = async || labels_etag(&store.plan_labels(&name).await.unwrap());
    let first = etag().await;
    store.label_plan(&name, &labels("a"), &first).await.unwrap();
    let second = etag().await;
    assert_ne!(first, second);
    let late = store.label_plan(&name, &labels("b"), &first).await.unwrap_err();
    assert!(matches!(&late, StoreError::EtagMismatch { stored, .. } if *stored == second), "{late}");
    let late = store.delete_plan(&name, &first).await.unwrap_err();
    assert!(matches!(late, StoreError::EtagMismatch { .. }), "{late}");
    let late = store.delete_plan_with_trials(&name, &first).await.unwrap_err();
    assert!(matches!(late, StoreError::EtagMismatch { .. }), "{late}");
    let profile = &content.profile;
    let unlabelled = labels_etag(&store.get_profile(profile).await.unwrap().labels);
    assert_eq!(unlabelled, first, "no labels have one etag");
    store.label_profile(profile, &labels("a"), &unlabelled).await.unwrap();
    for refused in [
        store.label_profile(profile, &labels("b"), &unlabelled).await,
        store.delete_profile(profile, &unlabelled).await,
    ] {
        assert!(matches!(refused, Err(StoreError::EtagMismatch { .. })), "{refused:?}");
    }
    // What references it keeps it, whatever its etag is.
    let (by, _) = dependents(store.delete_profile(profile, &second).await);
    assert!(by.contains(&named("PLAN", &name)), "{by:?}");
    store.delete_plan(&name, &second).await.unwrap();
}

/// Reports, measurements and placements are found by their names; placements are deleted by them.
#[tokio::test]
async fn parts_of_plans_and_runs_are_found_by_name() {
    let store = store().await;
    let [name, other] = plans(&store, ["a", "b"]).await;
    let report = store.put_report(&name, &report(), None).await.unwrap();
    assert_eq!(store.get_report(&name, &report.id).await.unwrap(), report);
    assert!(matches!(store.get_report(&other, &report.id).await, Err(StoreError::NotFound { .. })));
    let (operation, trial) = validate(&store, &name).await;
    let w = worker("w");
    let claimed = claim(&store, &w).await;
    applied(store.complete_run(&w, &claimed.run, 1, &[measurement(0)], 1.0).await);
    applied(store.finish_operation(&operation, OperationState::Succeeded).await);
    let all = store.run_measurements(&trial).await.unwrap();
    assert_eq!(store.get_measurement(&trial, 0, 0).await.unwrap(), all[0]);
    let none = store.get_measurement(&trial, 0, 7).await.unwrap_err().to_string();
    assert!(none.contains(&format!("{trial}/measurements/0-7 does not exist")), "{none}");
    execute(&store, "INSERT INTO placements (id, plan_id, content, nodes) VALUES ('b', 'a', '{}', '{}')")
        .await;
    let placement = PlacementName::from_id("b").unwrap();
    store.delete_placement(&placement).await.unwrap();
    assert!(matches!(store.delete_placement(&placement).await, Err(StoreError::NotFound { .. })));
}
