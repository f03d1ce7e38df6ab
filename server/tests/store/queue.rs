//! The queue's promises: a run is claimed by one worker at a time, a late finisher is refused, a result
//! is stored once, and every attempt comes to an end.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use loadmaster::store::records::{
    Claim, Fenced, FreeDevice, HeldLease, NewRun, OperationState, PageRequest, ProfileState, Renewal,
    RunState,
};
use loadmaster::store::{MAX_HAND_BACKS, RunFilter, Store};
use loadmaster_proto::measure::failure::FailureKind;

use crate::support::samples::{
    LEASE, claim, cpu, failure, measurement, model, out_of_memory, profile, queue, run, try_claim, worker,
};
use crate::support::{applied, end_back_off, end_leases, execute, store};

/// What a worker says about a claim that it works on.
fn held(claim: &Claim, progress: f64) -> HeldLease {
    HeldLease {
        run: claim.run.clone(),
        lease_token: claim.lease_token,
        progress,
        phase: "training".to_owned(),
    }
}

async fn state(store: &Store, claim: &Claim) -> RunState {
    store.get_run(&claim.run).await.unwrap().state
}

#[tokio::test]
async fn runs_are_claimed_in_the_order_in_which_they_were_queued() {
    let store = store().await;
    let model = model(&store).await;
    queue(&store, "a", (1..=20).map(|iterations| NewRun { iterations, ..run() }).collect()).await;
    for iterations in 1..=20 {
        let claim = claim(&store, &worker("w")).await;
        assert_eq!(claim.task.trained().unwrap().iterations, iterations);
        assert_eq!(claim.task.trained().unwrap().model.id(), model.id());
        assert_eq!(claim.lease_token, 1);
    }
    assert_eq!(try_claim(&store, &worker("w")).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_is_claimed_twice() {
    let store = store().await;
    profile(&store, "a", 200).await;
    let workers = (0..8).map(|index| {
        let store = store.clone();
        tokio::spawn(async move {
            let worker = worker(&format!("w{index}"));
            let mut claims = Vec::new();
            while let Some(claim) = try_claim(&store, &worker).await {
                claims.push(claim.run);
            }
            claims
        })
    });
    let mut claimed = Vec::new();
    for worker in workers {
        claimed.extend(worker.await.unwrap());
    }
    assert_eq!(claimed.len(), 200);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), 200);
}

#[tokio::test]
async fn a_run_goes_only_to_devices_that_carry_it() {
    let store = store().await;
    queue(&store, "a", vec![NewRun { device_count: 2, min_capacity: 1000, ..run() }]).await;
    let gpu = || FreeDevice { kind: "NVIDIA H200".to_owned(), capacity: 1 << 40 };
    let w = worker("w");
    for unfit in [
        vec![],
        vec![cpu(5000)],
        vec![cpu(5000), cpu(999)],
        vec![gpu(), gpu(), gpu()],
        vec![gpu(), cpu(1000)],
    ] {
        assert_eq!(store.claim_run(&w, &unfit, &unfit, LEASE).await.unwrap(), None, "{unfit:?}");
    }
    let fit = [cpu(1), gpu(), cpu(1000), cpu(2000)];
    let claim = store.claim_run(&w, &fit, &fit, LEASE).await.unwrap().unwrap();
    assert_eq!((claim.device_count, claim.min_capacity), (2, 1000));
}

/// A worker with one busy device is given small runs until a large one has waited for long; then it is
/// given nothing that came later until the large one fits. Older small runs and other workers go on.
#[tokio::test]
async fn a_large_run_is_not_starved_by_small_ones_that_came_later() {
    let store = store().await;
    let large = NewRun { device_count: 2, ..run() };
    queue(&store, "a", vec![run(), large, run(), run()]).await;
    let w = worker("w");
    let all = [cpu(1 << 30), cpu(1 << 30)];
    let claim = async |free: &[FreeDevice], all: &[FreeDevice]| {
        store.claim_run(&w, free, all, LEASE).await.unwrap().map(|claim| claim.device_count)
    };
    let (one, two) = (&all[..1], &all[..]);
    execute(&store, "UPDATE runs SET not_before = now() - interval '11 seconds' WHERE position = 2").await;
    assert_eq!(claim(one, two).await, Some(1), "it came before the large one");
    assert_eq!(claim(one, two).await, None, "the second device is kept for the large one");
    assert_eq!(claim(one, one).await, Some(1), "a worker that could never carry it need not wait");
    execute(&store, "UPDATE runs SET not_before = now() WHERE position = 2").await;
    assert_eq!(claim(one, two).await, Some(1), "it has not waited for long");
    assert_eq!(claim(two, two).await, Some(2));
}

#[tokio::test]
async fn a_late_finisher_is_refused() {
    let store = store().await;
    profile(&store, "a", 1).await;
    let (slow, quick) = (worker("slow"), worker("quick"));
    let first = claim(&store, &slow).await;
    end_leases(&store).await;
    assert_eq!(store.expire_leases().await.unwrap(), std::slice::from_ref(&first.run));
    end_back_off(&store).await;
    let second = claim(&store, &quick).await;
    assert_eq!((&second.run, second.lease_token), (&first.run, 2));

    let late = [measurement(7)];
    let stale = store.complete_run(&slow, &first.run, first.lease_token, &late, 1.0).await.unwrap();
    assert_eq!(stale, Fenced::Stale);
    let stale = store.fail_run(&slow, &first.run, 1, &out_of_memory(), 1.0).await.unwrap();
    assert_eq!(stale, Fenced::Stale);
    let renewals = store.renew_leases(&slow, &[held(&first, 0.5)], LEASE).await.unwrap();
    assert_eq!(renewals, [(first.run.clone(), Renewal::Lost)]);
    // Nor may another worker finish with the right token.
    let stolen = store.complete_run(&slow, &first.run, 2, &late, 1.0).await.unwrap();
    assert_eq!(stolen, Fenced::Stale);
    assert_eq!(state(&store, &first).await, RunState::Running);

    let own = [measurement(0)];
    applied(store.complete_run(&quick, &second.run, 2, &own, 1.0).await);
    let stale = store.complete_run(&slow, &first.run, 1, &late, 1.0).await.unwrap();
    assert_eq!(stale, Fenced::Stale);
    let stored = store.run_measurements(&first.run).await.unwrap();
    assert_eq!(stored.iter().map(|stored| &stored.measurement).collect::<Vec<_>>(), [&own[0]]);
}

/// A worker that lost its connection may get the run that it still works on a second time.
#[tokio::test]
async fn an_old_token_is_refused_also_from_the_worker_that_has_the_new_one() {
    let store = store().await;
    profile(&store, "a", 1).await;
    let w = worker("w");
    let first = claim(&store, &w).await;
    end_leases(&store).await;
    store.expire_leases().await.unwrap();
    end_back_off(&store).await;
    let second = claim(&store, &w).await;
    assert_eq!((&second.run, second.lease_token), (&first.run, 2));
    let result = [measurement(0)];
    assert_eq!(store.complete_run(&w, &first.run, 1, &result, 1.0).await.unwrap(), Fenced::Stale);
    let crash = failure(FailureKind::Crashed { signal: 6 });
    assert_eq!(store.fail_run(&w, &first.run, 1, &crash, 1.0).await.unwrap(), Fenced::Stale);
    let renewals = store.renew_leases(&w, &[held(&first, 0.5), held(&second, 0.5)], LEASE).await.unwrap();
    assert_eq!(
        renewals.iter().map(|renewal| renewal.1).collect::<Vec<_>>(),
        [Renewal::Lost, Renewal::Renewed]
    );
    assert_eq!(state(&store, &second).await, RunState::Running);
    applied(store.complete_run(&w, &second.run, 2, &result, 1.0).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_result_again_changes_nothing() {
    let store = store().await;
    let (name, _) = profile(&store, "a", 1).await;
    let w = worker("w");
    let claim = claim(&store, &w).await;
    let result = [measurement(0), measurement(1)];
    // At the same moment and afterwards.
    let twice = (0..4).map(|_| store.complete_run(&w, &claim.run, claim.lease_token, &result, 2.0));
    for fenced in futures_util::future::join_all(twice).await {
        assert_eq!(fenced.unwrap(), Fenced::Applied);
    }
    let other = [measurement(2)];
    let again = store.complete_run(&w, &claim.run, claim.lease_token, &other, 9.0).await.unwrap();
    assert_eq!(again, Fenced::Applied);
    let record = store.get_run(&claim.run).await.unwrap();
    assert_eq!((record.state, record.progress, record.attempts), (RunState::Succeeded, 1.0, 1));
    let stored = store.profile_measurements(&name).await.unwrap();
    assert_eq!(stored.into_iter().map(|record| record.measurement).collect::<Vec<_>>(), result);
    assert_eq!(store.get_profile(&name).await.unwrap().device_seconds, 2.0);
}

#[tokio::test]
async fn a_result_after_a_disconnect_is_taken_while_nobody_began_the_run_again() {
    let store = store().await;
    profile(&store, "a", 2).await;
    let w = worker("w");
    let (silent, expired) = (claim(&store, &w).await, claim(&store, &w).await);
    // The lease is over, but the reaper has not come by.
    end_leases(&store).await;
    let result = [measurement(0)];
    applied(store.complete_run(&w, &silent.run, silent.lease_token, &result, 1.0).await);
    // The reaper has.
    assert_eq!(store.expire_leases().await.unwrap(), std::slice::from_ref(&expired.run));
    assert_eq!(state(&store, &expired).await, RunState::Queued);
    applied(store.complete_run(&w, &expired.run, expired.lease_token, &result, 1.0).await);
    assert_eq!(state(&store, &expired).await, RunState::Succeeded);
    end_back_off(&store).await;
    assert_eq!(try_claim(&store, &w).await, None);
}

#[tokio::test]
async fn three_expired_leases_park_a_run_with_its_reasons() {
    let store = store().await;
    let (name, operation) = profile(&store, "a", 1).await;
    let w = worker("w");
    for attempt in 1..=3 {
        let claim = claim(&store, &w).await;
        assert_eq!(claim.lease_token, attempt);
        end_leases(&store).await;
        assert_eq!(store.expire_leases().await.unwrap(), std::slice::from_ref(&claim.run));
        assert_eq!(store.expire_leases().await.unwrap(), []);
        if attempt < 3 {
            assert_eq!(state(&store, &claim).await, RunState::Queued);
            assert_eq!(try_claim(&store, &w).await, None, "there is a back-off");
            end_back_off(&store).await;
        }
    }
    let runs =
        store.list_runs(&RunFilter::default(), &PageRequest { size: 10, after: None }).await.unwrap().rows;
    let record = &runs[0];
    assert_eq!((record.state, record.attempts), (RunState::Failed, 3));
    assert!(record.end_time.is_some());
    let kinds: Vec<_> = record.failures.iter().map(|f| (f.failure.kind.clone(), f.lease_token)).collect();
    let expired = FailureKind::LeaseExpired;
    assert_eq!(kinds, [(expired.clone(), 1), (expired.clone(), 2), (expired, 3)]);
    assert_eq!(record.failures[0].worker.as_ref(), Some(&w));
    assert_eq!(store.unsettled_operations().await.unwrap(), [operation]);
    assert_eq!(store.get_profile(&name).await.unwrap().runs.failed, 1);
}

#[tokio::test]
async fn failures_are_retried_with_growing_pauses_and_then_parked() {
    let store = store().await;
    profile(&store, "a", 1).await;
    let w = worker("w");
    let crash = failure(FailureKind::Crashed { signal: 11 });
    for (token, least, most) in [(1, 1.0, 2.0), (2, 2.0, 4.0)] {
        let claim = claim(&store, &w).await;
        applied(store.fail_run(&w, &claim.run, token, &crash, 1.5).await);
        // Sent again, it counts once.
        applied(store.fail_run(&w, &claim.run, token, &crash, 1.5).await);
        let pause: f64 =
            sqlx::query_scalar("SELECT extract(epoch FROM not_before - now())::float8 FROM runs")
                .fetch_one(store.pool())
                .await
                .unwrap();
        assert!(pause > least - 1.0 && pause <= most, "{pause}");
        let record = store.get_run(&claim.run).await.unwrap();
        assert_eq!((record.attempts, record.failures.len()), (token as u32, token as usize));
        end_back_off(&store).await;
    }
    let last = claim(&store, &w).await;
    applied(store.fail_run(&w, &last.run, 3, &crash, 1.0).await);
    assert_eq!(state(&store, &last).await, RunState::Failed);
    let result = store.complete_run(&w, &last.run, 3, &[measurement(0)], 1.0).await.unwrap();
    assert_eq!(result, Fenced::Stale, "it was given up by its own worker");
}

#[tokio::test]
async fn handing_back_is_no_attempt_but_not_without_end() {
    let store = store().await;
    profile(&store, "a", 1).await;
    let w = worker("w");
    let hand_back = failure(FailureKind::HandedBack);
    for token in 1..=i64::from(MAX_HAND_BACKS) {
        let claim = claim(&store, &w).await;
        assert_eq!(claim.lease_token, token);
        applied(store.fail_run(&w, &claim.run, token, &hand_back, 0.0).await);
        assert_eq!(store.get_run(&claim.run).await.unwrap().attempts, 0);
        if token == 1 {
            // Another worker may have it at once.
            continue;
        }
        end_back_off(&store).await;
    }
    let claim = claim(&store, &w).await;
    applied(store.fail_run(&w, &claim.run, claim.lease_token, &hand_back, 0.0).await);
    assert_eq!(store.get_run(&claim.run).await.unwrap().attempts, 1);
}

#[tokio::test]
async fn out_of_memory_is_a_result_and_never_retried() {
    let store = store().await;
    let (_, operation) = profile(&store, "a", 2).await;
    let w = worker("w");
    let (first, second) = (claim(&store, &w).await, claim(&store, &w).await);
    applied(store.fail_run(&w, &first.run, first.lease_token, &out_of_memory(), 3.0).await);
    let record = store.get_run(&first.run).await.unwrap();
    assert_eq!(record.state, RunState::OutOfMemory);
    assert_eq!(record.failures[0].failure, out_of_memory());
    // Also when it comes after the lease was over.
    end_leases(&store).await;
    assert_eq!(store.expire_leases().await.unwrap(), std::slice::from_ref(&second.run));
    applied(store.fail_run(&w, &second.run, second.lease_token, &out_of_memory(), 3.0).await);
    assert_eq!(state(&store, &second).await, RunState::OutOfMemory);
    end_back_off(&store).await;
    assert_eq!(try_claim(&store, &w).await, None);
    assert_eq!(store.unsettled_operations().await.unwrap(), [operation]);
}

#[tokio::test]
async fn the_deadline_holds_although_heartbeats_continue() {
    let store = store().await;
    profile(&store, "a", 1).await;
    let w = worker("w");
    let claim = claim(&store, &w).await;
    let renewals = store.renew_leases(&w, &[held(&claim, 0.5)], LEASE).await.unwrap();
    assert_eq!(renewals[0].1, Renewal::Renewed);
    let record = store.get_run(&claim.run).await.unwrap();
    assert_eq!((record.progress, record.phase.as_str()), (0.5, "training"));

    execute(&store, "UPDATE runs SET deadline_at = now() - interval '5 seconds'").await;
    let renewals = store.renew_leases(&w, &[held(&claim, 0.6)], LEASE).await.unwrap();
    assert_eq!(renewals[0].1, Renewal::Renewed, "the worker ends it by its own clock");
    assert_eq!(store.expire_leases().await.unwrap(), [], "the worker has a moment to report");
    execute(&store, "UPDATE runs SET deadline_at = now() - interval '15 seconds'").await;
    assert_eq!(store.expire_leases().await.unwrap(), std::slice::from_ref(&claim.run));
    let renewals = store.renew_leases(&w, &[held(&claim, 0.7)], LEASE).await.unwrap();
    assert_eq!(renewals[0].1, Renewal::Lost);
    let record = store.get_run(&claim.run).await.unwrap();
    assert_eq!(record.failures[0].failure.kind, FailureKind::Hung);
    assert!(record.failures[0].failure.message.contains("600 seconds"));
}

#[tokio::test]
async fn renewing_answers_for_each_lease_in_order() {
    let store = store().await;
    let (_, cancelled_operation) = profile(&store, "a", 1).await;
    let w = worker("w");
    let cancelled = claim(&store, &w).await;
    profile(&store, "b", 1).await;
    let good = claim(&store, &w).await;
    assert!(store.cancel_operation(&cancelled_operation).await.unwrap());
    let mut stale = held(&good, 0.1);
    stale.lease_token = 0;
    let mut nonsense = held(&good, f64::NAN);
    nonsense.phase = "a\0b".repeat(1000);
    let asked = [stale, held(&cancelled, 0.2), nonsense];
    let renewals = store.renew_leases(&w, &asked, LEASE).await.unwrap();
    let answers: Vec<Renewal> = renewals.iter().map(|renewal| renewal.1).collect();
    assert_eq!(answers, [Renewal::Lost, Renewal::Cancelled, Renewal::Renewed]);
    assert!(store.renew_leases(&w, &[], LEASE).await.unwrap().is_empty());
}

#[tokio::test]
async fn cancelling_ends_queued_runs_at_once_and_running_ones_when_they_are_let_go() {
    let store = store().await;
    let (name, operation) = profile(&store, "a", 5).await;
    let w = worker("w");
    let [done, reported, expired, measured] =
        [claim(&store, &w).await, claim(&store, &w).await, claim(&store, &w).await, claim(&store, &w).await];
    let result = [measurement(0)];
    applied(store.complete_run(&w, &done.run, 1, &result, 1.0).await);

    assert!(store.cancel_operation(&operation).await.unwrap());
    let record = store.get_operation(&operation).await.unwrap();
    assert_eq!(record.state, OperationState::Running);
    assert_eq!((record.runs.cancelled, record.runs.running, record.runs.succeeded), (1, 3, 1));
    assert_eq!(try_claim(&store, &w).await, None);

    let killed = failure(FailureKind::Crashed { signal: 9 });
    applied(store.fail_run(&w, &reported.run, 1, &killed, 1.0).await);
    assert_eq!(state(&store, &reported).await, RunState::Cancelled);
    // It was measured before the worker heard of it: that is not thrown away.
    applied(store.complete_run(&w, &measured.run, 1, &result, 1.0).await);
    assert_eq!(state(&store, &measured).await, RunState::Succeeded);
    assert_eq!(store.get_operation(&operation).await.unwrap().state, OperationState::Running);
    end_leases(&store).await;
    assert_eq!(store.expire_leases().await.unwrap(), std::slice::from_ref(&expired.run));
    assert_eq!(state(&store, &expired).await, RunState::Cancelled);

    let record = store.get_operation(&operation).await.unwrap();
    assert_eq!((record.state, record.progress), (OperationState::Cancelled, 1.0));
    assert_eq!(store.get_profile(&name).await.unwrap().state, ProfileState::Cancelled);
    assert!(!store.cancel_operation(&operation).await.unwrap(), "it has ended");
    assert_eq!(store.unsettled_operations().await.unwrap(), []);
}

#[tokio::test]
async fn cancelling_what_nobody_holds_ends_it_at_once() {
    let store = store().await;
    let (_, operation) = profile(&store, "a", 3).await;
    assert!(store.cancel_operation(&operation).await.unwrap());
    assert_eq!(store.get_operation(&operation).await.unwrap().state, OperationState::Cancelled);
}

/// A planner may die between the last report of a cancelled operation's runs and its end.
#[tokio::test]
async fn a_half_cancelled_operation_is_ended_by_the_next_sweep() {
    let store = store().await;
    let (_, operation) = profile(&store, "a", 1).await;
    execute(&store, "UPDATE operations SET cancel_requested = true").await;
    execute(&store, "UPDATE runs SET state = 'cancelled', end_time = now()").await;
    assert_eq!(store.unsettled_operations().await.unwrap(), [], "nothing is left to decide");
    assert_eq!(store.get_operation(&operation).await.unwrap().state, OperationState::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_heartbeats_cancellations_and_the_reaper_do_not_deadlock() {
    let store = store().await;
    let mut operations = Vec::new();
    for id in ["a", "b", "c", "d"] {
        operations.push(profile(&store, id, 25).await.1);
    }
    let w = worker("w");
    let mut claims = HashMap::new();
    while let Some(claim) = try_claim(&store, &w).await {
        claims.insert(claim.run.clone(), claim);
    }
    let mut forward: Vec<HeldLease> = claims.values().map(|claim| held(claim, 0.5)).collect();
    let mut tasks = Vec::new();
    for round in 0..8 {
        forward.reverse();
        let (store, w, held) = (store.clone(), w.clone(), forward.clone());
        let operation = operations.get(round).cloned();
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                store.renew_leases(&w, &held, Duration::from_millis(1)).await.unwrap();
                store.expire_leases().await.unwrap();
            }
            if let Some(operation) = operation {
                store.cancel_operation(&operation).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for operation in operations {
        assert_eq!(store.get_operation(&operation).await.unwrap().state, OperationState::Cancelled);
    }
}
