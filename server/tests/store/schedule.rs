//! A random schedule of everything that may happen to runs, with invariants checked after each step.
//!
//! `LOADMASTER_TEST_SEED=… cargo test --test store schedule::` replays a failing seed.

use std::collections::{HashMap, HashSet};

use loadmaster::store::records::{Claim, Fenced, HeldLease, OperationState, Renewal, RunState};
use loadmaster::store::{RunFilter, Store};
use loadmaster_filter::Query;
use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::name::{OperationName, RunName, WorkerName};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::samples::{LEASE, failure, measurement, out_of_memory, profile, try_claim, worker};
use crate::support::{applied, end_back_off, end_leases, execute, store};

const SEEDS: u64 = 6;
const STEPS: usize = 220;
const RUNS: usize = 12;

/// What a worker believes; it may be wrong.
struct Worker {
    name: WorkerName,
    claims: Vec<Claim>,
    /// Ended in its eyes; late repetitions come from here.
    ended: Vec<Claim>,
}

/// What must be true whatever happens.
#[derive(Default)]
struct Accounting {
    /// Highest token seen per run.
    tokens: HashMap<RunName, i64>,
    /// Runs with an accepted result, and with which token.
    results: HashMap<RunName, i64>,
}

#[tokio::test]
async fn random_schedules_keep_the_invariants() {
    let seeds: Vec<u64> = match std::env::var("LOADMASTER_TEST_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        // A few that never change and one that always does.
        Err(_) => (0..SEEDS).chain([rand::random()]).collect(),
    };
    for seed in seeds {
        let schedule = tokio::spawn(schedule(seed));
        if let Err(error) = schedule.await {
            panic!("the schedule of LOADMASTER_TEST_SEED={seed} failed: {error}");
        }
    }
}

async fn schedule(seed: u64) {
    let store = store().await;
    let mut random = StdRng::seed_from_u64(seed);
    let mut operations = Vec::new();
    for id in ["a", "b", "c"] {
        operations.push(profile(&store, id, RUNS / 3).await.1);
    }
    let mut workers: Vec<Worker> = (0..3)
        .map(|index| Worker { name: worker(&format!("w{index}")), claims: Vec::new(), ended: Vec::new() })
        .collect();
    let mut ledger = Accounting::default();
    for _ in 0..STEPS {
        let by = random.random_range(0..workers.len());
        step(&store, &mut random, &mut workers[by], &operations, &mut ledger).await;
        check(&store, &ledger).await;
    }
    drain(&store, &mut workers[0], &operations, &mut ledger).await;
}

async fn step(
    store: &Store,
    random: &mut StdRng,
    worker: &mut Worker,
    operations: &[OperationName],
    ledger: &mut Accounting,
) {
    match random.random_range(0..100) {
        0..30 => {
            if let Some(claim) = try_claim(store, &worker.name).await {
                let last = ledger.tokens.insert(claim.run.clone(), claim.lease_token).unwrap_or(0);
                assert_eq!(claim.lease_token, last + 1, "each claim has a new token");
                assert!(!ledger.results.contains_key(&claim.run), "a finished run is not claimed");
                worker.claims.push(claim);
            }
        }
        30..45 => {
            let held: Vec<HeldLease> = worker
                .claims
                .iter()
                .map(|claim| HeldLease {
                    run: claim.run.clone(),
                    lease_token: claim.lease_token,
                    progress: random.random(),
                    phase: String::new(),
                })
                .collect();
            let renewals = store.renew_leases(&worker.name, &held, LEASE).await.unwrap();
            for ((_, renewal), lease) in renewals.iter().zip(&held) {
                let current = ledger.tokens[&lease.run] == lease.lease_token;
                assert!(current || *renewal == Renewal::Lost, "an old token was renewed");
            }
        }
        45..65 => {
            if let Some(claim) = take(random, &mut worker.claims) {
                complete(store, &worker.name, &claim, ledger).await;
                worker.ended.push(claim);
            }
        }
        65..78 => {
            if let Some(claim) = take(random, &mut worker.claims) {
                let failure = match random.random_range(0..4) {
                    0 => out_of_memory(),
                    1 => failure(FailureKind::HandedBack),
                    2 => failure(FailureKind::Hung),
                    _ => failure(FailureKind::Exited { code: 1 }),
                };
                let token = claim.lease_token;
                let fenced = store.fail_run(&worker.name, &claim.run, token, &failure, 1.0).await.unwrap();
                let current = ledger.tokens[&claim.run] == token;
                assert!(current || fenced == Fenced::Stale, "an old token failed a run");
                worker.ended.push(claim);
            }
        }
        78..84 => {
            // A report that was sent before, or by a worker that does not know better.
            if let Some(claim) = take(random, &mut worker.ended) {
                complete(store, &worker.name, &claim, ledger).await;
                worker.ended.push(claim);
            }
        }
        84..90 => {
            execute(
                store,
                "UPDATE runs SET lease_expires_at = now() - interval '1 second'
                 WHERE state = 'running' AND random() < 0.5",
            )
            .await;
            store.expire_leases().await.unwrap();
        }
        90..97 => {
            end_back_off(store).await;
        }
        _ => {
            let operation = &operations[random.random_range(0..operations.len())];
            store.cancel_operation(operation).await.unwrap();
        }
    }
}

fn take(random: &mut StdRng, claims: &mut Vec<Claim>) -> Option<Claim> {
    (!claims.is_empty()).then(|| claims.swap_remove(random.random_range(0..claims.len())))
}

async fn complete(store: &Store, by: &WorkerName, claim: &Claim, ledger: &mut Accounting) {
    let result = [measurement(claim.lease_token as u32)];
    let fenced = store.complete_run(by, &claim.run, claim.lease_token, &result, 1.0).await.unwrap();
    if fenced == Fenced::Applied {
        assert_eq!(ledger.tokens[&claim.run], claim.lease_token, "an old token finished a run");
        let first = *ledger.results.entry(claim.run.clone()).or_insert(claim.lease_token);
        assert_eq!(first, claim.lease_token, "a run has two results");
    }
}

async fn check(store: &Store, ledger: &Accounting) {
    let filter = RunFilter::default();
    let page = loadmaster::store::records::PageRequest { size: 1000, after: None };
    let runs = store.list_runs(&filter, &page).await.unwrap().rows;
    assert_eq!(runs.len(), RUNS, "no run is lost");
    for run in &runs {
        assert_eq!(run.end_time.is_some(), !matches!(run.state, RunState::Queued | RunState::Running));
        assert_eq!(run.state == RunState::Succeeded, ledger.results.contains_key(&run.name));
        assert!(run.attempts <= 3, "{} attempts", run.attempts);
    }
    // Exactly the accepted results are stored, each once, with the token that was accepted.
    let stored: Vec<(String, i32)> =
        sqlx::query_as("SELECT run_id, stage_index FROM measurements").fetch_all(store.pool()).await.unwrap();
    let stored: HashMap<RunName, i64> =
        stored.into_iter().map(|(run, token)| (RunName::from_id(run).unwrap(), i64::from(token))).collect();
    assert_eq!(stored, ledger.results);
    let operations = store.list_operations(&Query::default(), &page).await.unwrap().rows;
    let counted: u32 = operations.iter().map(|operation| operation.runs.total()).sum();
    assert_eq!(counted as usize, RUNS, "the counts add up");
    for operation in operations {
        if operation.state == OperationState::Cancelled {
            assert_eq!(operation.runs.unfinished(), 0, "a cancelled operation holds nothing");
        }
    }
}

/// With one diligent worker everything ends.
async fn drain(store: &Store, worker: &mut Worker, operations: &[OperationName], ledger: &mut Accounting) {
    end_leases(store).await;
    store.expire_leases().await.unwrap();
    let mut seen = HashSet::new();
    loop {
        end_back_off(store).await;
        let Some(claim) = try_claim(store, &worker.name).await else { break };
        assert!(seen.insert(claim.run.clone()), "a finished run came again");
        ledger.tokens.insert(claim.run.clone(), claim.lease_token);
        complete(store, &worker.name, &claim, ledger).await;
    }
    check(store, ledger).await;
    for operation in store.unsettled_operations().await.unwrap() {
        applied(store.finish_profile_operation(&operation, &[]).await);
    }
    for operation in operations {
        let operation = store.get_operation(operation).await.unwrap();
        assert_ne!(operation.state, OperationState::Running);
        assert_eq!(operation.runs.unfinished(), 0);
    }
}
