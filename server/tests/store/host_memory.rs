//! Memory of workers' hosts: runs take it when they are claimed, and give it back when they end.

use std::time::Duration;

use loadmaster::store::records::{
    Claim, FreeDevice, NewRun, NewWorker, PageRequest, RunNeed, RunRecord, RunState,
};
use loadmaster::store::{RunFilter, Store};
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::measure::failure::{FailureKind, OutOfMemory, Phase, RunFailure};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::run::Work;
use loadmaster_proto::name::CommandName;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_samples::{chunked, visiting};
use loadmaster_tests::plain_strategy;

use crate::support::samples::{LEASE, cpu, failure, measured, new_worker, out_of_memory, queue, run, worker};
use crate::support::{applied, end_back_off, end_leases, execute, store};

/// A run of one device that takes so many bytes of the host.
fn taking(bytes: u64) -> NewRun {
    with_actions(run(), vec![pool(bytes)])
}

fn with_actions(run: NewRun, actions: Vec<StageActions>) -> NewRun {
    NewRun { strategy: run.strategy.with_actions(actions).unwrap(), ..run }
}

fn in_chunks(run: NewRun, chunks: ChunkedStage) -> NewRun {
    NewRun { strategy: run.strategy.with_chunks(Some(Box::new(chunks))), ..run }
}

fn pool(bytes: u64) -> StageActions {
    StageActions { host_pool: Bytes(bytes), ..StageActions::default() }
}

/// A worker of two slots that offers so many bytes of its host.
fn offering(id: &str, session: &str, host_memory: u64) -> NewWorker {
    NewWorker { host_memory, ..new_worker(id, session) }
}

async fn join(store: &Store, id: &str, host_memory: u64) {
    store.upsert_worker(&offering(id, "one", host_memory), LEASE).await.unwrap();
}

fn slots(count: usize) -> Vec<FreeDevice> {
    vec![cpu(1 << 30); count]
}

/// What a worker of two slots, or more, with so many free ones is given.
async fn claim(store: &Store, by: &str, free: usize) -> Option<Claim> {
    store.claim_run(&worker(by), &slots(free), &slots(free.max(2)), LEASE).await.unwrap()
}

fn takes(claim: Option<&Claim>) -> Option<u64> {
    claim.map(|claim| claim.task.host_memory().0)
}

async fn complete(store: &Store, by: &str, claim: &Claim) {
    let result = [measured(claim)];
    applied(store.complete_run(&worker(by), &claim.run, claim.lease_token, &result, 1.0).await);
}

#[tokio::test]
async fn two_runs_that_fit_alone_and_not_together_are_claimed_one_after_the_other() {
    let store = store().await;
    queue(&store, "a", vec![taking(60), taking(41), taking(40)]).await;
    join(&store, "w", 100).await;
    let first = claim(&store, "w", 2).await.expect("it fits alone");
    assert_eq!(takes(Some(&first)), Some(60));
    let second = claim(&store, "w", 1).await;
    assert_eq!(takes(second.as_ref()), Some(40), "the one of 41 is passed over, for 40 are free");
    assert_eq!(claim(&store, "w", 1).await, None);
    join(&store, "other", 100).await;
    let elsewhere = claim(&store, "other", 2).await;
    assert_eq!(takes(elsewhere.as_ref()), Some(41), "each worker has memory of its own");
    assert_eq!(store.get_run(&first.run).await.unwrap().host_memory, 60);

    queue(&store, "b", vec![taking(60)]).await;
    assert_eq!(claim(&store, "w", 1).await, None);
    complete(&store, "w", &first).await;
    assert_eq!(
        takes(claim(&store, "w", 1).await.as_ref()),
        Some(60),
        "what a run had is free when it has ended"
    );
}

/// However a run ends, nothing of the host stays with it.
#[tokio::test]
async fn what_a_run_had_is_free_however_it_ended() {
    let store = store().await;
    join(&store, "w", 100).await;
    let lack = || {
        let FailureKind::OutOfMemory { out_of_memory } = out_of_memory().kind else { panic!("no lack") };
        failure(FailureKind::OutOfMemory {
            out_of_memory: OutOfMemory { ledger: Accounting::Host, ..out_of_memory },
        })
    };
    let ends: [fn() -> RunFailure; 2] =
        [|| failure(FailureKind::Crashed { signal: 9 }), || failure(FailureKind::HandedBack)];
    queue(&store, "a", vec![taking(100)]).await;
    for (token, end) in (1..).zip(ends.into_iter().map(|end| end()).chain([lack()])) {
        let held = claim(&store, "w", 2).await.expect("all of it is free");
        assert_eq!(held.lease_token, token);
        let _ = store.fail_run(&worker("w"), &held.run, token, &end, 1.0).await.unwrap();
        end_back_off(&store).await;
    }
    queue(&store, "b", vec![taking(100)]).await;
    let held = claim(&store, "w", 2).await.expect("out of memory has ended the first one");
    end_leases(&store).await;
    assert_eq!(store.expire_leases().await.unwrap(), [held.run]);
    end_back_off(&store).await;
    assert!(claim(&store, "w", 2).await.is_some(), "its lease is over");
}

/// A process that starts again while its predecessor's leases live does not get their memory a second time, and one
/// that offers less than they have is still given what needs none.
#[tokio::test]
async fn a_worker_that_starts_again_has_what_its_leases_leave() {
    let store = store().await;
    queue(&store, "a", vec![taking(60), taking(60), run()]).await;
    join(&store, "w", 100).await;
    let first = claim(&store, "w", 2).await.unwrap();
    store.disconnect_worker(&worker("w"), "one").await.unwrap();
    store.upsert_worker(&offering("w", "two", 50), LEASE).await.unwrap();
    assert_eq!(takes(claim(&store, "w", 1).await.as_ref()), Some(0));
    assert_eq!(claim(&store, "w", 1).await, None);
    complete(&store, "w", &first).await;
    assert_eq!(claim(&store, "w", 2).await, None, "it offers too little now");
    store.disconnect_worker(&worker("w"), "two").await.unwrap();
    store.upsert_worker(&offering("w", "three", 60), LEASE).await.unwrap();
    assert_eq!(takes(claim(&store, "w", 2).await.as_ref()), Some(60));
}

/// It is given what comes after, and nobody waits for the run on its account.
#[tokio::test]
async fn a_worker_without_host_memory_never_gets_a_run_that_takes_some() {
    let store = store().await;
    queue(&store, "a", vec![taking(1), run(), run()]).await;
    execute(&store, "UPDATE runs SET not_before = now() - interval '1 hour'").await;
    join(&store, "w", 0).await;
    assert_eq!(takes(claim(&store, "w", 2).await.as_ref()), Some(0));
    assert_eq!(takes(claim(&store, "unknown", 2).await.as_ref()), Some(0));
    assert_eq!(claim(&store, "w", 2).await, None);
    assert_eq!(claim(&store, "unknown", 2).await, None);
}

/// A run that has waited for long for memory that small ones take by turns gets it.
#[tokio::test]
async fn a_run_that_takes_much_is_not_starved_by_those_that_take_little() {
    let store = store().await;
    queue(&store, "a", vec![taking(10), taking(100), taking(10), run()]).await;
    join(&store, "w", 100).await;
    join(&store, "smaller", 99).await;
    let first = claim(&store, "w", 2).await.expect("it came before");
    execute(&store, "UPDATE runs SET not_before = now() - interval '11 seconds' WHERE position = 2").await;
    assert_eq!(claim(&store, "w", 1).await, None, "what is free is kept for the large one");
    let small = claim(&store, "smaller", 1).await;
    assert_eq!(takes(small.as_ref()), Some(10), "one that could never carry it need not wait");
    execute(&store, "UPDATE runs SET not_before = now() WHERE position = 2").await;
    assert_eq!(takes(claim(&store, "w", 1).await.as_ref()), Some(0), "it has not waited for long");
    complete(&store, "w", &first).await;
    assert_eq!(takes(claim(&store, "w", 1).await.as_ref()), Some(100));
}

/// All devices of a run count, replicas and shards too; and what no number holds fits nowhere.
#[tokio::test]
async fn a_run_takes_the_pools_of_all_its_devices() {
    let store = store().await;
    let pair = StageConfig { data_degree: 2, ..StageConfig::single(0, 3) };
    let stages = vec![pair, StageConfig::single(4, 29)];
    let whole = NewRun {
        strategy: plain_strategy(Work::Partitioning(Partitioning::new(stages).unwrap())),
        device_count: 3,
        ..run()
    };
    let endless = with_actions(whole.clone(), vec![pool(u64::MAX), pool(1)]);
    let whole = with_actions(whole, vec![pool(30), pool(7)]);
    queue(&store, "a", vec![whole, endless]).await;
    let runs = store.list_runs(&RunFilter::default(), &first_page()).await.unwrap().rows;
    let memory: Vec<u64> = runs.iter().rev().map(|run| run.host_memory).collect();
    assert_eq!(memory, [67, i64::MAX as u64]);
    join(&store, "w", 66).await;
    assert_eq!(claim(&store, "w", 3).await, None);
    join(&store, "v", 1 << 50).await;
    assert_eq!(takes(claim(&store, "v", 3).await.as_ref()), Some(67));
    assert_eq!(claim(&store, "v", 3).await, None);
}

/// A stage in chunks takes of the host what they may, on each of its replicas; its visits are whole in the lease and where one
/// run is read, and left out of lists, which have no room for them.
#[tokio::test]
async fn a_run_in_chunks_takes_what_they_may_and_keeps_its_visits() {
    let store = store().await;
    let replicas = StageConfig { data_degree: 2, ..StageConfig::single(0, 29) };
    let chunks = visiting(30, 5);
    let planned = NewRun {
        strategy: plain_strategy(Work::Partitioning(Partitioning::new(vec![replicas]).unwrap())),
        device_count: 2,
        ..run()
    };
    let (planned, paged) = (in_chunks(planned, chunks.clone()), in_chunks(run(), chunked(7)));
    queue(&store, "a", vec![planned, paged.clone(), run()]).await;
    let runs = store.list_runs(&RunFilter::default(), &first_page()).await.unwrap().rows;
    let listed: Vec<_> = runs.iter().rev().map(|run| (run.host_memory, chunks_of(run))).collect();
    assert_eq!(listed, [(60, Some(visiting(30, 0))), (7, Some(chunked(7))), (0, None)]);
    let whole = store.get_run(&runs[2].name).await.unwrap();
    assert_eq!(chunks_of(&whole).as_ref(), Some(&chunks));

    join(&store, "w", 66).await;
    let first = claim(&store, "w", 3).await.expect("it fits");
    let chunks_of_claim = first.task.trained().unwrap().strategy.chunks();
    assert_eq!((takes(Some(&first)), chunks_of_claim), (Some(60), Some(&chunks)));
    assert_eq!(takes(claim(&store, "w", 1).await.as_ref()), Some(0), "6 are left");
    let asked = store.asked_run(&first.run).await.unwrap();
    assert_eq!(asked.task.trained().unwrap().strategy.chunks(), Some(&chunks));
}

fn chunks_of(run: &RunRecord) -> Option<ChunkedStage> {
    run.work.trained().unwrap().strategy.chunks().cloned()
}

/// With fewer samples it is in the same chunks.
#[tokio::test]
async fn a_run_in_chunks_that_does_not_fit_its_device_is_repeated_in_chunks() {
    let store = store().await;
    let large = NewRun { smallest_micro_batch_size: Some(1), ..in_chunks(run(), chunked(7)) };
    queue(&store, "a", vec![large]).await;
    join(&store, "w", 7).await;
    let held = claim(&store, "w", 2).await.unwrap();
    let _ = store.fail_run(&worker("w"), &held.run, 1, &out_of_memory(), 1.0).await.unwrap();
    let runs = store.list_runs(&RunFilter::default(), &first_page()).await.unwrap().rows;
    let again = runs.iter().find(|run| run.shrunk_from.is_some()).expect("it is repeated");
    assert_eq!((again.host_memory, chunks_of(again)), (7, Some(chunked(7))));
}

fn first_page() -> PageRequest {
    PageRequest { size: 100, after: None }
}

/// The pool is as large at every micro-batch size, so a smaller one would not fit either.
#[tokio::test]
async fn a_pool_that_does_not_fit_is_not_tried_again_with_fewer_samples() {
    let store = store().await;
    let sized = |bytes| NewRun { smallest_micro_batch_size: Some(1), ..taking(bytes) };
    queue(&store, "a", vec![sized(10), sized(20)]).await;
    join(&store, "w", 100).await;
    let mut repeated = Vec::<Vec<u64>>::new();
    for ledger in [Accounting::Host, Accounting::Allocated] {
        let held = claim(&store, "w", 2).await.unwrap();
        let lack = OutOfMemory {
            asked: Bytes(64),
            held: Bytes(0),
            allowed: Bytes(32),
            ledger,
            phase: Phase::Setup,
            layer: None,
        };
        let failure = failure(FailureKind::OutOfMemory { out_of_memory: lack });
        let _ = store.fail_run(&worker("w"), &held.run, 1, &failure, 1.0).await.unwrap();
        let ended = store.get_run(&held.run).await.unwrap();
        assert_eq!((ended.state, &ended.failures[0].failure), (RunState::OutOfMemory, &failure));
        let runs = store.list_runs(&RunFilter::default(), &first_page()).await.unwrap().rows;
        repeated
            .push(runs.iter().filter(|run| run.shrunk_from.is_some()).map(|run| run.host_memory).collect());
    }
    assert_eq!(repeated, [vec![], vec![20]], "a device's lack is repeated, with what it takes of the host");
}

/// A run that nobody here could take says what it needs; the worker that could hold it is the nearest one, then the one
/// with devices enough.
#[tokio::test]
async fn a_run_that_takes_more_than_anybody_offers_is_found() {
    let store = store().await;
    let operation = queue(&store, "a", vec![run(), taking(100)]).await;
    let need = |device_count, host_memory| RunNeed {
        device_kind: CPU_KIND.to_owned(),
        device_count,
        min_capacity: 1 << 20,
        host_memory,
        command: None::<CommandName>,
    };
    join(&store, "w", 99).await;
    assert_eq!(store.unplaceable_run(&operation).await.unwrap(), Some(need(1, 100)));
    let lacking = store.nearest_worker(&need(1, 100)).await.unwrap().unwrap();
    assert_eq!((lacking.host_memory, lacking.holds(&need(1, 100))), (99, false));
    assert!(lacking.holds(&need(2, 99)));

    let single = offering("v", "one", 100);
    let single = NewWorker { devices: single.devices[..1].to_vec(), ..single };
    store.upsert_worker(&single, LEASE).await.unwrap();
    assert_eq!(store.unplaceable_run(&operation).await.unwrap(), None);
    let nearest = async |need: RunNeed| {
        let found = store.nearest_worker(&need).await.unwrap().unwrap();
        (found.worker.id().to_owned(), found.holds(&need))
    };
    assert_eq!(nearest(need(1, 100)).await, ("v".to_owned(), true), "it could hold it");
    assert_eq!(nearest(need(2, 100)).await, ("w".to_owned(), false), "it has devices enough");
    assert_eq!(nearest(need(1, 0)).await, ("w".to_owned(), true));
}

#[tokio::test]
async fn what_a_worker_offers_of_its_host_is_what_its_newest_hello_said() {
    let store = store().await;
    let pace = CopyPace { host: Some(0.1 + 0.2), peer: None };
    let paced = NewWorker { copy_pace: pace, ..offering("w", "one", (1 << 50) - 1) };
    let stored = store.upsert_worker(&paced, Duration::from_secs(30)).await.unwrap();
    assert_eq!((stored.host_memory, stored.copy_pace), ((1 << 50) - 1, pace));
    let stored = store.upsert_worker(&offering("w", "one", 0), LEASE).await.unwrap();
    assert_eq!((stored.host_memory, stored.copy_pace), (0, CopyPace::default()));
}
