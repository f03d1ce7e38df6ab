//! Searches that are operations: they report, end once, and do not outlive their process.

use loadmaster::store::records::{OperationState, OperationTarget, RequestKey, SearchPhase, SearchRecord};
use loadmaster::store::{Store, StoreError};
use loadmaster_proto::name::OperationName;
use loadmaster_proto::reason::Reason;
use uuid::Uuid;

use crate::support::{execute, store};

fn search(seconds: f64) -> SearchRecord {
    SearchRecord {
        phase: SearchPhase::Searching,
        states: 7,
        value: Some(0.1 + 0.2),
        bound: Some(0.25),
        seconds,
        limit_seconds: 100.0,
        plan: None,
        infeasible: None,
    }
}

async fn begin(store: &Store) -> OperationName {
    store.create_search(&SearchRecord::default(), None).await.unwrap().0
}

#[tokio::test]
async fn a_search_reports_and_ends_once() {
    let store = store().await;
    let key = |fingerprint: &str| RequestKey { id: Uuid::from_u128(7), fingerprint: fingerprint.to_owned() };
    let (name, is_new) = store.create_search(&search(0.0), Some(&key("a"))).await.unwrap();
    assert!(is_new);
    assert_eq!(store.create_search(&search(0.0), Some(&key("a"))).await.unwrap(), (name.clone(), false));
    let other = store.create_search(&search(0.0), Some(&key("b"))).await.unwrap_err();
    assert!(matches!(other, StoreError::RequestIdReused), "{other}");

    assert!(store.report_search(&name, &search(25.0)).await.unwrap());
    let record = store.get_operation(&name).await.unwrap();
    assert_eq!((record.target, record.progress), (OperationTarget::Search(search(25.0)), 0.25));
    assert!(store.unsettled_operations().await.unwrap().is_empty(), "it has no runs, and goes on");

    let found = SearchRecord { plan: Some("p".to_owned()), ..search(30.0) };
    assert!(store.finish_search(&name, &found).await.unwrap());
    assert!(!store.finish_search(&name, &found).await.unwrap());
    assert!(!store.report_search(&name, &search(31.0)).await.unwrap());
    let record = store.get_operation(&name).await.unwrap();
    assert_eq!((record.state, record.progress), (OperationState::Succeeded, 1.0));
    assert_eq!(found.plan_name(&name).unwrap().to_string(), "plans/p");
}

#[tokio::test]
async fn a_cancelled_search_ends_at_once_and_a_silent_one_after_a_while() {
    let store = store().await;
    let cancelled = begin(&store).await;
    assert!(store.cancel_operation(&cancelled).await.unwrap());
    assert_eq!(store.get_operation(&cancelled).await.unwrap().state, OperationState::Cancelled);
    assert!(!store.report_search(&cancelled, &search(1.0)).await.unwrap(), "so its process stops");

    let silent = begin(&store).await;
    let past = "UPDATE operations SET search_time = now() - interval '1 minute' WHERE state = 'running'";
    assert_eq!(execute(&store, past).await, 1);
    let alive = begin(&store).await;
    store.end_silent_searches().await.unwrap();
    let OperationState::Failed { code, reason, message } = store.get_operation(&silent).await.unwrap().state
    else {
        panic!("it goes on")
    };
    let restarted = Reason::PlannerRestarted;
    assert_eq!((code, reason.as_str()), (i32::from(restarted.code()), restarted.as_str()));
    assert!(message.contains("Repeat the request"), "{message}");
    assert_eq!(store.get_operation(&alive).await.unwrap().state, OperationState::Running);
}
