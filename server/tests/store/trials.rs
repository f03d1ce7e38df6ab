//! Trials of several plans by one operation, and what users report of their own runs.

use loadmaster::store::records::{
    NewTrial, OperationState, OperationTarget, PageRequest, RequestKey, RunState,
};
use loadmaster::store::{MAX_REPORTS, Store, StoreError};
use loadmaster_filter::Query;
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::chunked::ChunkRun;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::{CopyCount, Offload};
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::report::{CopiedStage, Measured, Peak, Report};
use uuid::Uuid;

use crate::support::samples::{self, claim, measurement, out_of_memory, run, trial_run, worker};
use crate::support::{applied, execute, store};

const FIRST_PAGE: PageRequest = PageRequest { size: 100, after: None };

fn request(id: u128, fingerprint: &str) -> RequestKey {
    RequestKey { id: Uuid::from_u128(id), fingerprint: fingerprint.to_owned() }
}

/// Three plans that differ, as a recommendation stores them.
async fn plans(store: &Store) -> [PlanName; 3] {
    samples::plans(store, ["a", "b", "c"]).await
}

/// A trial of each plan.
fn trials(plans: &[PlanName]) -> Vec<NewTrial> {
    plans.iter().map(|plan| NewTrial { plan: plan.clone(), run: trial_run() }).collect()
}

fn measured(peak: u64, iteration_seconds: f64, shard: u32) -> Measurement {
    Measurement { peak_allocated: Bytes(peak), iteration_seconds, shard, ..measurement(0) }
}

fn report() -> Report {
    let peak = Peak { bytes: Bytes(1 << 30), ledger: Accounting::Device };
    Report {
        measured: Measured { iteration_seconds: Some(0.1 + 0.2), stage_peaks: vec![peak] },
        iterations: 7,
        device_kind: None,
        source: "megatron 0.15".to_owned(),
    }
}

/// Each plan has a run of its own under one operation. One that does not fit is a result and loses nothing;
/// the operation ends when all have.
#[tokio::test]
async fn one_operation_tries_several_plans() {
    let store = store().await;
    let names = plans(&store).await;
    let operation = store.create_validation(&names[0], &trials(&names), Some(request(7, "v"))).await.unwrap();
    let again = store.create_validation(&names[0], &trials(&names), Some(request(7, "v"))).await.unwrap();
    assert_eq!(again, operation, "the same request is the same operation");
    let record = store.get_operation(&operation).await.unwrap();
    assert_eq!(record.target, OperationTarget::Plan(names[0].clone()));
    assert_eq!(record.runs.queued, 3, "and no run is queued twice");

    let w = worker("w");
    let first = claim(&store, &w).await;
    // Of two devices of a stage the fuller one counts, and the slower one.
    let devices = [measured(100, 0.5, 0), measured(300, 0.25, 1)];
    applied(store.complete_run(&w, &first.run, 1, &devices, 1.0).await);
    let second = claim(&store, &w).await;
    applied(store.fail_run(&w, &second.run, 1, &out_of_memory(), 1.0).await);
    let due = store.unsettled_operations().await.unwrap();
    assert!(!due.contains(&operation), "the third plan is still to be tried");
    let third = claim(&store, &w).await;
    applied(store.complete_run(&w, &third.run, 1, &[measured(200, 0.125, 0)], 1.0).await);

    let shown = store.trials(&operation, 20).await.unwrap();
    let tried: Vec<&PlanName> = shown.iter().map(|trial| &trial.plan).collect();
    assert_eq!(tried, [&names[0], &names[1], &names[2]], "in the order in which they were asked for");
    let states: Vec<RunState> = shown.iter().map(|trial| trial.state).collect();
    assert_eq!(states, [RunState::Succeeded, RunState::OutOfMemory, RunState::Succeeded]);
    let peak = Peak { bytes: Bytes(300), ledger: Accounting::Allocated };
    let expected = Measured { iteration_seconds: Some(0.5), stage_peaks: vec![peak] };
    assert_eq!(shown[0].measured.as_ref(), Some(&expected));
    assert_eq!((shown[1].measured.as_ref(), shown[1].failure.as_deref()), (None, Some("it broke")));
    assert_eq!(shown[2].content.solver, "solver/c");
    assert_eq!(store.trials(&operation, 2).await.unwrap().len(), 2);

    assert!(store.unsettled_operations().await.unwrap().contains(&operation));
    applied(store.finish_operation(&operation, OperationState::Succeeded).await);
    let pairs = store.measured_plans(10).await.unwrap();
    let tried: Vec<&PlanName> = pairs.iter().map(|of| &of.plan).collect();
    assert_eq!(tried, [&names[2], &names[0]], "newest first, without the one that failed");
}

/// One device of a stage that others used makes the iteration longer for all: that is said, and nothing is learnt
/// from its seconds. Its bytes are as good as any.
#[tokio::test]
async fn seconds_of_a_disturbed_trial_are_flagged_and_teach_nothing() {
    let store = store().await;
    let names = plans(&store).await;
    let operation = store.create_validation(&names[0], &trials(&names), None).await.unwrap();
    let w = worker("w");
    for (contended, oversubscribed) in [(false, false), (true, false), (false, true)] {
        let mut devices = [measured(300, 0.5, 0), measured(100, 0.5, 1)];
        devices[1].environment.contended = contended;
        devices[1].environment.oversubscribed = oversubscribed;
        let claim = claim(&store, &w).await;
        applied(store.complete_run(&w, &claim.run, 1, &devices, 1.0).await);
    }
    let shown = store.trials(&operation, 20).await.unwrap();
    let told: Vec<(bool, bool)> = shown.iter().map(|trial| (trial.contended, trial.oversubscribed)).collect();
    assert_eq!(told, [(false, false), (true, false), (false, true)]);
    let seconds = |measured: &Measured| measured.iteration_seconds;
    assert!(shown.iter().all(|trial| trial.measured.as_ref().and_then(seconds) == Some(0.5)));
    let learnt: Vec<(Option<f64>, u64)> = store
        .measured_plans(10)
        .await
        .unwrap()
        .iter()
        .map(|of| (seconds(&of.measured), of.measured.stage_peaks[0].bytes.0))
        .collect();
    assert_eq!(learnt, [(Some(0.5), 300), (None, 300), (Some(0.5), 300)]);
}

/// What a stage copied is told of its fullest device, of equal ones of the last, without what chunks held in each step; where
/// nothing was counted there is nothing.
#[tokio::test]
async fn what_the_fullest_device_copied_is_told() {
    let store = store().await;
    let names = plans(&store).await;
    store.create_validation(&names[0], &trials(&names), None).await.unwrap();
    let offload = |out_bytes| Offload {
        copies: vec![CopyCount { peer: Some(1), out_bytes, in_bytes: 5, waited_seconds: 0.25 }],
        ..Offload::default()
    };
    let copying = |peak, shard, out_bytes| Measurement {
        offload: Some(Box::new(offload(out_bytes))),
        ..measured(peak, 0.5, shard)
    };
    let run = ChunkRun { other_bytes: vec![7; 3], up_bytes: 9, ..ChunkRun::default() };
    let in_chunks = Measurement { chunks: Some(Box::new(run.clone())), ..measured(1, 0.5, 0) };
    let w = worker("w");
    for devices in [
        vec![copying(300, 0, 2), copying(300, 1, 3), copying(200, 2, 4)],
        vec![in_chunks],
        vec![measured(1, 0.5, 0)],
    ] {
        let claim = claim(&store, &w).await;
        applied(store.complete_run(&w, &claim.run, 1, &devices, 1.0).await);
    }
    let copied: Vec<Vec<CopiedStage>> =
        store.measured_plans(10).await.unwrap().into_iter().rev().map(|of| of.copied).collect();
    let by_actions = CopiedStage { stage: 0, offload: Some(offload(3)), chunks: None };
    let by_chunks =
        CopiedStage { stage: 0, offload: None, chunks: Some(ChunkRun { other_bytes: Vec::new(), ..run }) };
    assert_eq!(copied, [vec![by_actions], vec![by_chunks], Vec::new()]);
}

/// What a stage needed alone is shown with its trial. It is no figure of the plan, so nothing compares it with one.
#[tokio::test]
async fn a_stage_that_was_trained_alone_is_no_trial_of_its_plan() {
    let store = store().await;
    let names = plans(&store).await;
    let trials = [NewTrial { plan: names[0].clone(), run: run() }];
    let operation = store.create_validation(&names[0], &trials, None).await.unwrap();
    let w = worker("w");
    let claim = claim(&store, &w).await;
    applied(store.complete_run(&w, &claim.run, 1, &[measured(300, 0.5, 0)], 1.0).await);
    let shown = store.trials(&operation, 20).await.unwrap();
    let peak = shown[0].measured.as_ref().and_then(Measured::peak).map(|peak| peak.bytes.0);
    assert_eq!((shown[0].stage, peak), (Some(0), Some(300)));
    assert!(store.measured_plans(10).await.unwrap().is_empty(), "a plan has more than one stage");
    let rows = store.list_plans(&Query::default(), &FIRST_PAGE).await.unwrap().rows;
    assert!(rows.iter().all(|row| row.trained.newest.is_none() && row.trained.trials == 0));
    assert!(store.glance_at_plan(&names[0]).await.unwrap().is_trained, "it has something to show");
}

/// Cancelling ends the trials that have not begun; what was measured stays.
#[tokio::test]
async fn cancelled_trials_keep_what_was_measured() {
    let store = store().await;
    let names = plans(&store).await;
    let operation = store.create_validation(&names[0], &trials(&names), None).await.unwrap();
    let w = worker("w");
    let first = claim(&store, &w).await;
    applied(store.complete_run(&w, &first.run, 1, &[measurement(0)], 1.0).await);
    assert!(store.cancel_operation(&operation).await.unwrap());
    let states: Vec<RunState> =
        store.trials(&operation, 20).await.unwrap().iter().map(|trial| trial.state).collect();
    assert_eq!(states, [RunState::Succeeded, RunState::Cancelled, RunState::Cancelled]);
    assert_eq!(store.get_operation(&operation).await.unwrap().state, OperationState::Cancelled);
}

/// A plan that is not stored cannot be tried, and nothing of the validation is left behind.
#[tokio::test]
async fn a_validation_is_stored_whole_or_not_at_all() {
    let store = store().await;
    let names = plans(&store).await;
    let unknown = PlanName::from_id("none").unwrap();
    let trials = [&names[0], &unknown].map(|plan| NewTrial { plan: plan.clone(), run: trial_run() });
    let refused = store.create_validation(&names[0], &trials, None).await;
    assert!(matches!(refused, Err(StoreError::NotFound { .. })), "{refused:?}");
    let (runs, operations) = (
        store.list_runs(&loadmaster::store::RunFilter::default(), &FIRST_PAGE).await.unwrap(),
        store.list_operations(&Query::default(), &FIRST_PAGE).await.unwrap(),
    );
    assert!(runs.rows.is_empty());
    assert_eq!(operations.rows.len(), 1, "the profile's alone");
}

/// A report comes back as it was, with the plan's kind of device where none was named, once per
/// request, newest first.
#[tokio::test]
async fn an_report_is_stored_once() {
    let store = store().await;
    let names = plans(&store).await;
    let key = request(9, "o");
    let first = store.put_report(&names[0], &report(), Some(&key)).await.unwrap();
    assert_eq!(store.put_report(&names[0], &report(), Some(&key)).await.unwrap(), first);
    assert_eq!(first.report.device_kind.as_deref(), Some("cpu"));
    assert_eq!(first.report.measured, report().measured);
    let changed = store.put_report(&names[0], &report(), Some(&request(9, "other"))).await;
    assert!(matches!(changed, Err(StoreError::RequestIdReused)), "{changed:?}");

    let elsewhere = Report { device_kind: Some("NVIDIA H200".to_owned()), ..report() };
    let second = store.put_report(&names[1], &elsewhere, None).await.unwrap();
    assert_eq!(second.report.device_kind, elsewhere.device_kind);
    let all = store.list_reports(None, &Query::default(), &FIRST_PAGE).await.unwrap().rows;
    assert_eq!(all, [second.clone(), first.clone()]);
    assert_eq!(
        store.list_reports(Some(&names[0]), &Query::default(), &FIRST_PAGE).await.unwrap().rows,
        std::slice::from_ref(&first)
    );
    let page = PageRequest { size: 1, after: None };
    let page = store.list_reports(None, &Query::default(), &page).await.unwrap();
    let rest = PageRequest { size: 1, after: page.next };
    assert_eq!(
        store.list_reports(None, &Query::default(), &rest).await.unwrap().rows,
        std::slice::from_ref(&first)
    );

    let unknown = store.put_report(&PlanName::from_id("none").unwrap(), &report(), None).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { what }) if what == "plans/none"));
    let measured = store.measured_plans(10).await.unwrap();
    let kinds: Vec<&str> = measured.iter().map(|of| of.device_kind.as_str()).collect();
    assert_eq!(kinds, ["NVIDIA H200", "cpu"]);
}

/// Calls with one request id at the same moment store one report.
#[tokio::test]
async fn simultaneous_reports_are_one() {
    let store = store().await;
    let names = plans(&store).await;
    let (report, key) = (report(), request(3, "o"));
    let calls = (0..6).map(|_| store.put_report(&names[0], &report, Some(&key)));
    let stored: Vec<_> =
        futures_util::future::join_all(calls).await.into_iter().map(Result::unwrap).collect();
    assert!(stored.iter().all(|record| *record == stored[0]));
    assert_eq!(store.list_reports(None, &Query::default(), &FIRST_PAGE).await.unwrap().rows.len(), 1);
}

/// A plan's reports have an end.
#[tokio::test]
async fn a_plan_keeps_a_limited_number_of_reports() {
    let store = store().await;
    let names = plans(&store).await;
    store.put_report(&names[0], &report(), None).await.unwrap();
    let filled = execute(
        &store,
        "INSERT INTO reports (id, plan_id, report)
         SELECT 'o' || number, plan_id, report FROM reports, generate_series(2, 10000) AS number",
    );
    assert_eq!(filled.await + 1, MAX_REPORTS.unsigned_abs());
    let refused = store.put_report(&names[0], &report(), None).await;
    assert!(matches!(refused, Err(StoreError::TooManyReports { .. })), "{refused:?}");
    store.put_report(&names[1], &report(), None).await.expect("another plan has room");
}
