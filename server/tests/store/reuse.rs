//! What was measured once is not measured again: reuse across profiles, resumption, and repetition at
//! smaller sizes.

use loadmaster::store::records::{
    Claim, Fenced, NewRun, OperationState, PageRequest, ProfileState, RequestKey, ReusedRun, RunFilter,
    RunRecord, RunState, Software,
};
use loadmaster::store::{Store, StoreError, fields};
use loadmaster_filter::Query;
use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::{SoloStage, Work};
use loadmaster_proto::name::{ProfileName, RunName};
use loadmaster_proto::training::stage::StageConfig;
use uuid::Uuid;

use crate::support::samples::{
    claim, failure, measured, measurement, model, new_profile, out_of_memory, profile, queue, run, try_claim,
    worker,
};
use crate::support::{applied, execute, store};

fn sized(key: &str, micro_batch_size: u32) -> NewRun {
    let mut strategy = run().strategy;
    strategy.training = strategy.training.with_micro_batch_size(micro_batch_size);
    NewRun { strategy, work_key: Some(key.to_owned()), smallest_micro_batch_size: Some(1), ..run() }
}

fn software() -> Software {
    Software {
        libtorch_version: "2.11.0".to_owned(),
        cuda_version: String::new(),
        driver_version: String::new(),
        threads: Some(vec![1, 2]),
        cores: Some(vec![4]),
    }
}

fn name(id: &str) -> ProfileName {
    ProfileName::from_id(id).unwrap()
}

/// A profile of these runs that a run of another one serves as well.
async fn queue_reusing(store: &Store, id: &str, runs: Vec<NewRun>, run: &RunName, layer_offset: i32) {
    let reused = [ReusedRun { run: run.clone(), layer_offset, held_out: false }];
    let settings = new_profile(id, &model(store).await);
    store.create_profile(settings, runs, &reused, None).await.unwrap();
}

async fn complete(store: &Store, claim: &Claim, result: Measurement) {
    applied(store.complete_run(&worker("w"), &claim.run, claim.lease_token, &[result], 2.0).await);
}

/// Claims the next run and measures it.
async fn measure(store: &Store) -> Claim {
    let claim = claim(store, &worker("w")).await;
    complete(store, &claim, measured(&claim)).await;
    claim
}

/// Claims the next run and says that it does not fit.
async fn overflow(store: &Store) -> Claim {
    let w = worker("w");
    let claim = claim(store, &w).await;
    applied(store.fail_run(&w, &claim.run, claim.lease_token, &out_of_memory(), 1.0).await);
    claim
}

async fn runs(store: &Store) -> Vec<RunRecord> {
    let mut runs =
        store.list_runs(&RunFilter::default(), &PageRequest { size: 1000, after: None }).await.unwrap().rows;
    runs.reverse();
    runs
}

/// Micro-batch size and state of each run, smallest first.
async fn sizes(store: &Store) -> Vec<(u32, RunState)> {
    let mut sizes: Vec<(u32, RunState)> = runs(store)
        .await
        .iter()
        .map(|run| (run.work.trained().unwrap().strategy.training.micro_batch_size, run.state))
        .collect();
    sizes.sort_by_key(|&(size, _)| size);
    sizes
}

/// Only results count, only of the same environment, and the newest of several.
#[tokio::test]
async fn a_measured_run_is_found_by_what_it_measured_and_where() {
    let store = store().await;
    queue(
        &store,
        "a",
        vec![sized("k", 4), sized("k", 2), sized("k", 4), sized("other", 4), sized("busy", 4)],
    )
    .await;
    for _ in 0..4 {
        measure(&store).await;
    }
    let all = runs(&store).await;
    execute(&store, "UPDATE runs SET end_time = now() + interval '1 second' WHERE position = 3").await;
    let wanted: Vec<(String, u32)> = [("k", 4), ("k", 2), ("k", 8), ("busy", 4), ("none", 4)]
        .map(|(key, size)| (key.to_owned(), size))
        .into();
    let find = async |kind: &str, software: &Software| {
        store.find_measured(&wanted, kind, software, false).await.unwrap()
    };
    let found = find("cpu", &software()).await;
    let found: Vec<_> = found
        .iter()
        .map(|of| (of.run.clone(), of.work_key.as_str(), of.micro_batch_size, of.first_layer))
        .collect();
    assert_eq!(found, [(all[1].name.clone(), "k", 2, 0), (all[2].name.clone(), "k", 4, 0)]);

    assert_eq!(find("NVIDIA H200", &software()).await, []);
    let others = [
        Software { libtorch_version: "2.12.0".to_owned(), ..software() },
        Software { cuda_version: "12.8".to_owned(), ..software() },
        Software { driver_version: "550".to_owned(), ..software() },
        Software { threads: Some(vec![1, 4]), ..software() },
    ];
    for other in others {
        assert_eq!(find("cpu", &other).await, [], "{other:?}");
    }
    assert_eq!(find("cpu", &Software { threads: None, ..software() }).await.len(), 2);
}

/// Somebody else used the device: its bytes are right, its seconds are not. So it is measured again, unless bytes
/// are enough, and even then one that nobody disturbed is taken where there is one.
#[tokio::test]
async fn what_others_disturbed_is_reused_only_where_bytes_are_enough() {
    let store = store().await;
    queue(&store, "a", vec![sized("k", 4), sized("k", 4), sized("l", 4)]).await;
    for _ in 0..3 {
        measure(&store).await;
    }
    let all = runs(&store).await;
    let wanted = [("k", 4), ("l", 4)].map(|(key, size)| (key.to_owned(), size));
    let find = async |contended| -> Vec<_> {
        let found = store.find_measured(&wanted, "cpu", &software(), contended).await.unwrap();
        found.into_iter().map(|of| of.run).collect()
    };
    execute(&store, "UPDATE runs SET end_time = now() + interval '1 second' WHERE position = 2").await;
    assert_eq!(find(false).await, [all[1].name.clone(), all[2].name.clone()], "the newest");
    execute(
        &store,
        "UPDATE measurements SET measurement = jsonb_set(measurement, '{environment,contended}', 'true')
         WHERE run_id IN (SELECT id FROM runs WHERE position > 1)",
    )
    .await;
    assert_eq!(find(false).await, [all[0].name.clone()]);
    assert_eq!(find(true).await, [all[0].name.clone(), all[2].name.clone()]);
    // What a driver counts on a device is everybody's.
    execute(
        &store,
        "UPDATE measurements SET measurement = jsonb_set(measurement, '{peak_ledger}', '\"device\"')",
    )
    .await;
    assert_eq!(find(true).await, [all[0].name.clone()]);
}

/// Ranks that took each other's cores measured other seconds than they would where there are more of them.
#[tokio::test]
async fn oversubscribed_seconds_serve_hosts_with_as_many_cores() {
    let store = store().await;
    queue(&store, "a", vec![sized("k", 4)]).await;
    measure(&store).await;
    let wanted = [("k".to_owned(), 4)];
    let find = async |cores: Option<Vec<u32>>| {
        store.find_measured(&wanted, "cpu", &Software { cores, ..software() }, false).await.unwrap().len()
    };
    let two_cores =
        "UPDATE measurements SET measurement = jsonb_set(measurement, '{environment,cores}', '2')";
    execute(&store, two_cores).await;
    assert_eq!((find(Some(vec![8])).await, find(Some(vec![2])).await), (1, 1), "each rank had its own");
    execute(
        &store,
        "UPDATE measurements SET measurement = jsonb_set(measurement, '{environment,oversubscribed}', 'true')",
    )
    .await;
    assert_eq!((find(Some(vec![8])).await, find(Some(vec![2, 8])).await, find(None).await), (0, 1, 1));
}

/// The measurements of a reused run are listed as if they had been made for the profile, in the layers of its
/// model, and are accounted for apart.
#[tokio::test]
async fn a_reused_run_serves_a_profile_in_its_own_layers() {
    let store = store().await;
    queue(&store, "first", vec![sized("k", 4)]).await;
    let made = measure(&store).await;
    queue_reusing(&store, "second", vec![sized("l", 4)], &made.run, 3).await;
    let mut own = measurement(0);
    own.stage = StageConfig::single(2, 2);
    let claimed = claim(&store, &worker("w")).await;
    complete(&store, &claimed, own).await;

    let measured = store.profile_measurements(&name("second")).await.unwrap();
    let stages: Vec<StageConfig> = measured.iter().map(|record| record.measurement.stage).collect();
    assert_eq!(stages, [StageConfig::single(2, 2), StageConfig::single(3, 6)]);
    assert_eq!(measured[1].measurement.layers[0].layer, 3);
    assert_eq!(measured[1].name(), format!("{}/measurements/0-0", made.run));
    assert!(measured.iter().all(|record| record.profile == Some(name("second"))));
    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = store
            .list_measurements(&name("second"), &Query::default(), &PageRequest { size: 1, after })
            .await
            .unwrap();
        paged.extend(page.rows);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, measured);
    // A filter means the layers of the profile, too.
    for (filter, index) in [("first_layer = 3", 1), ("first_layer = 2", 0), ("last_layer > 2", 1)] {
        let query = Query::parse(fields::MEASUREMENTS, filter, "").unwrap();
        let all = PageRequest { size: 10, after: None };
        let found = store.list_measurements(&name("second"), &query, &all).await.unwrap();
        assert_eq!(found.rows, measured[index..=index], "{filter}");
    }

    let record = store.get_profile(&name("second")).await.unwrap();
    assert_eq!((record.runs.total(), record.runs.succeeded, record.reused_runs), (1, 1, 1));
    assert_eq!((record.device_seconds, record.saved_device_seconds), (2.0, 2.0));
    // Elsewhere it is as it was made.
    assert_eq!(
        store.run_measurements(&made.run).await.unwrap()[0].measurement.stage,
        StageConfig::single(0, 3)
    );
    let first = store.profile_measurements(&name("first")).await.unwrap();
    assert_eq!((first.len(), first[0].measurement.stage), (1, StageConfig::single(0, 3)));
    assert_eq!(store.get_profile(&name("first")).await.unwrap().reused_runs, 0);
}

/// A run that retention took behind whoever found it is looked for again, and nothing is stored.
#[tokio::test]
async fn a_run_to_reuse_that_is_gone_is_a_conflict() {
    let store = store().await;
    queue(&store, "first", vec![sized("k", 4)]).await;
    let model = model(&store).await;
    let run = RunName::from_id("01a202df-6c3c-7261-a1a7-6b674f7f2b82").unwrap();
    let reused = [ReusedRun { run, layer_offset: 0, held_out: false }];
    let key = Some(RequestKey { id: Uuid::from_u128(7), fingerprint: "f".to_owned() });
    let second = new_profile("second", &model);
    let refused = store.create_profile(second.clone(), vec![sized("l", 4)], &reused, key.clone()).await;
    assert!(matches!(refused, Err(StoreError::Conflict)), "{refused:?}");
    store.create_profile(second, vec![sized("l", 4)], &[], key).await.expect("the name and the id are free");
}

/// A damaged offset must not be taken for a layer.
#[tokio::test]
async fn a_reused_stage_that_would_be_before_the_first_layer_is_refused() {
    let store = store().await;
    queue(&store, "first", vec![sized("k", 4)]).await;
    let made = measure(&store).await;
    queue_reusing(&store, "second", Vec::new(), &made.run, -1).await;
    let refused = store.profile_measurements(&name("second")).await;
    assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{refused:?}");
}

/// Each of the devices of a stage is measured, and the same one not twice.
#[tokio::test]
async fn every_device_of_a_stage_has_its_measurement() {
    let store = store().await;
    queue(&store, "a", vec![sized("k", 4)]).await;
    let claim = claim(&store, &worker("w")).await;
    let shard = |shard| Measurement { shard, ..measurement(0) };
    let twice = [shard(0), shard(0)];
    let refused = store.complete_run(&worker("w"), &claim.run, 1, &twice, 1.0).await;
    assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{refused:?}");
    let both = [shard(0), shard(1)];
    applied(store.complete_run(&worker("w"), &claim.run, 1, &both, 1.0).await);
    let names: Vec<String> =
        store.run_measurements(&claim.run).await.unwrap().iter().map(|record| record.name()).collect();
    assert_eq!(names, [0, 1].map(|shard| format!("{}/measurements/0-{shard}", claim.run)));
}

/// Halves until it fits, and remembers where it came from.
#[tokio::test]
async fn a_run_that_does_not_fit_is_repeated_at_half_its_size() {
    let store = store().await;
    let operation = queue(&store, "a", vec![sized("k", 12)]).await;
    let first = overflow(&store).await;
    assert_eq!(store.unsettled_operations().await.unwrap(), [], "it goes on");
    let second = claim(&store, &worker("w")).await;
    assert_eq!(
        second.task.trained().unwrap().strategy.training,
        first.task.trained().unwrap().strategy.training.with_micro_batch_size(6)
    );
    assert_eq!(
        (&second.task.trained().unwrap().strategy.work, second.deadline_seconds),
        (&first.task.trained().unwrap().strategy.work, first.deadline_seconds)
    );
    let record = store.get_run(&second.run).await.unwrap();
    assert_eq!((record.shrunk_from, record.operation), (Some(first.run), operation.clone()));
    let result = Measurement { micro_batch_size: 6, ..measurement(0) };
    complete(&store, &second, result.clone()).await;

    assert_eq!(store.unsettled_operations().await.unwrap(), [operation]);
    let record = store.get_profile(&name("a")).await.unwrap();
    assert_eq!((record.runs.out_of_memory, record.runs.succeeded, record.shrunk_runs), (1, 1, 1));
    assert_eq!(store.profile_measurements(&name("a")).await.unwrap()[0].measurement, result);
    // The shrunk run is known by its size like any other.
    let wanted = [("k".to_owned(), 6), ("k".to_owned(), 12)];
    assert_eq!(store.find_measured(&wanted, "cpu", &software(), false).await.unwrap().len(), 1);
}

/// Two sizes stay two sizes as long as there are smaller ones, in whatever order they fail.
#[tokio::test]
async fn a_pair_of_sizes_that_does_not_fit_becomes_a_smaller_pair() {
    use RunState::{OutOfMemory, Queued};
    for order in [["k", "k"], ["other", "k"]] {
        let store = store().await;
        queue(&store, "a", vec![sized("k", 4), sized(order[0], 8)]).await;
        overflow(&store).await;
        overflow(&store).await;
        let expected = match order[0] {
            // 4 gives 2; 8 finds 4 and 2 taken and gives 1.
            "k" => vec![(1, Queued), (2, Queued), (4, OutOfMemory), (8, OutOfMemory)],
            // Another work has sizes of its own.
            _ => vec![(2, Queued), (4, OutOfMemory), (4, Queued), (8, OutOfMemory)],
        };
        let mut sizes = sizes(&store).await;
        sizes.sort_by_key(|&(size, state)| (size, state == Queued));
        assert_eq!(sizes, expected);
    }
    let store = store().await;
    queue(&store, "a", vec![sized("k", 1), sized("k", 2)]).await;
    overflow(&store).await;
    overflow(&store).await;
    assert_eq!(sizes(&store).await, [(1, OutOfMemory), (2, OutOfMemory)], "there is nothing smaller");
}

/// Reports that come at the same moment do not see what the other one adds.
#[tokio::test]
async fn sizes_that_fail_at_the_same_moment_are_repeated_at_different_ones() {
    use RunState::{OutOfMemory, Queued};
    let store = store().await;
    queue(&store, "a", vec![sized("k", 8), sized("k", 16)]).await;
    let (w, failure) = (worker("w"), out_of_memory());
    let (one, other) = (claim(&store, &w).await, claim(&store, &w).await);
    let (first, second) = tokio::join!(
        store.fail_run(&w, &one.run, one.lease_token, &failure, 1.0),
        store.fail_run(&w, &other.run, other.lease_token, &failure, 1.0),
    );
    assert_eq!((first.unwrap(), second.unwrap()), (Fenced::Applied, Fenced::Applied));
    let expected = [(2, Queued), (4, Queued), (8, OutOfMemory), (16, OutOfMemory)];
    assert_eq!(sizes(&store).await, expected);
}

/// Replicas take equal parts; what nobody wants repeated ends; a cancelled profile wants nothing.
#[tokio::test]
async fn repetitions_keep_to_the_step_and_end_where_they_must() {
    use RunState::{OutOfMemory, Queued};
    let store = store().await;
    let in_fours = |size| NewRun { smallest_micro_batch_size: Some(4), ..sized("data", size) };
    queue(&store, "a", vec![in_fours(12)]).await;
    overflow(&store).await;
    assert_eq!(sizes(&store).await, [(4, Queued), (12, OutOfMemory)], "6 is no multiple of 4");
    overflow(&store).await;
    assert_eq!(sizes(&store).await, [(4, OutOfMemory), (12, OutOfMemory)]);

    let check = NewRun { smallest_micro_batch_size: None, ..sized("check", 8) };
    queue(&store, "b", vec![check]).await;
    overflow(&store).await;
    assert_eq!(runs(&store).await.len(), 3);

    let operation = queue(&store, "c", vec![sized("k", 8)]).await;
    let held = claim(&store, &worker("w")).await;
    store.cancel_operation(&operation).await.unwrap();
    applied(store.fail_run(&worker("w"), &held.run, held.lease_token, &out_of_memory(), 1.0).await);
    assert_eq!(runs(&store).await.len(), 4);
    assert_eq!(store.get_operation(&operation).await.unwrap().state, OperationState::Cancelled);
}

/// The same report twice repeats once, and a size that was reused is not made again.
#[tokio::test]
async fn a_size_that_the_profile_has_is_not_made_twice() {
    let store = store().await;
    queue(&store, "first", vec![sized("k", 4)]).await;
    let made = measure(&store).await;
    queue_reusing(&store, "second", vec![sized("k", 8)], &made.run, 0).await;
    let failed = overflow(&store).await;
    let again = store.fail_run(&worker("w"), &failed.run, failed.lease_token, &out_of_memory(), 1.0).await;
    assert_eq!(again.unwrap(), Fenced::Applied);
    let next = claim(&store, &worker("w")).await;
    assert_eq!(
        next.task.trained().unwrap().strategy.training.micro_batch_size,
        2,
        "4 is there, from another profile"
    );
    assert_eq!(try_claim(&store, &worker("w")).await, None);
}

fn request(id: u128) -> Option<RequestKey> {
    Some(RequestKey { id: Uuid::from_u128(id), fingerprint: "x".to_owned() })
}

/// A resumed profile is the same profile with another operation; what it had stays.
#[tokio::test]
async fn a_cancelled_profile_is_resumed_under_a_new_operation() {
    let store = store().await;
    let first = queue(&store, "a", vec![sized("k", 4), sized("l", 4)]).await;
    measure(&store).await;
    let refused = store.resume_profile(&name("a"), Vec::new(), &[], None).await;
    assert!(matches!(refused, Err(StoreError::NotResumable { state: "running", .. })), "{refused:?}");
    store.cancel_operation(&first).await.unwrap();
    assert_eq!(store.get_profile(&name("a")).await.unwrap().state, ProfileState::Cancelled);
    let attempts = store.profile_attempts(&name("a")).await.unwrap();
    let states: Vec<(&str, RunState)> = attempts.iter().map(|of| (of.work_key.as_str(), of.state)).collect();
    assert_eq!(states, [("k", RunState::Succeeded), ("l", RunState::Cancelled)]);

    // The same call, twice at once.
    let profile = name("a");
    let resume = || store.resume_profile(&profile, vec![sized("l", 4)], &[], request(1));
    let (second, twin) = tokio::join!(resume(), resume());
    let second = second.unwrap();
    assert_eq!(twin.unwrap(), second);
    assert_ne!(second, first);
    let record = store.get_profile(&name("a")).await.unwrap();
    assert_eq!((record.state, &record.operation, record.end_time), (ProfileState::Running, &second, None));
    assert_eq!((record.runs.succeeded, record.runs.cancelled, record.runs.queued), (1, 1, 1));
    assert_eq!(
        store.get_operation(&second).await.unwrap().runs.total(),
        1,
        "an operation waits for its own runs"
    );

    measure(&store).await;
    applied(store.finish_profile_operation(&second, &[]).await);
    let record = store.get_profile(&name("a")).await.unwrap();
    assert_eq!((record.state, record.runs.succeeded), (ProfileState::Complete, 2));
    assert_eq!(store.profile_measurements(&name("a")).await.unwrap().len(), 2);
    let refused = store.resume_profile(&name("a"), Vec::new(), &[], None).await;
    assert!(matches!(refused, Err(StoreError::NotResumable { state: "complete", .. })), "{refused:?}");
    let unknown = store.resume_profile(&name("none"), Vec::new(), &[], None).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })), "{unknown:?}");
    assert_eq!(resume().await.unwrap(), second, "the retried call still finds its operation");
    assert_eq!(store.get_operation(&first).await.unwrap().state, OperationState::Cancelled);
}

/// Two callers resume at the same moment: one does, the other is told.
#[tokio::test]
async fn a_profile_is_measured_by_one_operation_at_a_time() {
    let store = store().await;
    let (_, operation) = profile(&store, "a", 1).await;
    store.cancel_operation(&operation).await.unwrap();
    let profile = name("a");
    let calls = (1..=4).map(|id| {
        let (store, profile) = (store.clone(), profile.clone());
        async move { store.resume_profile(&profile, vec![run()], &[], request(id)).await }
    });
    let answers = futures_util::future::join_all(calls).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    for answer in answers {
        assert!(matches!(answer, Ok(_) | Err(StoreError::NotResumable { .. })), "{answer:?}");
    }
    assert_eq!(store.get_profile(&profile).await.unwrap().runs.queued, 1);
}

/// Two planners see the same results and add the same runs: one of them does.
#[tokio::test]
async fn runs_are_added_once_per_round() {
    let store = store().await;
    let operation = queue(&store, "a", vec![sized("k", 4)]).await;
    let more = [sized("l", 4)];
    let early = store.continue_profile(&operation, 0, &more).await.unwrap();
    assert_eq!(early, Fenced::Stale, "its first runs have not ended");
    measure(&store).await;
    let round = store.get_operation(&operation).await.unwrap().rounds;
    let (a, b) = tokio::join!(
        store.continue_profile(&operation, round, &more),
        store.continue_profile(&operation, round, &more)
    );
    assert_eq!([a.unwrap(), b.unwrap()].iter().filter(|of| **of == Fenced::Applied).count(), 1);
    assert_eq!(runs(&store).await.len(), 2);
    assert_eq!(store.finish_profile_operation(&operation, &[]).await.unwrap(), Fenced::Stale, "it goes on");
    let added = measure(&store).await;
    assert_eq!(added.task.trained().unwrap().strategy.training.micro_batch_size, 4);
    assert_eq!(store.get_operation(&operation).await.unwrap().rounds, 1);
    assert_eq!(store.profile_attempts(&name("a")).await.unwrap().len(), 2);
}

/// The estimate is the pace of the ended runs, at as many at once as are running.
#[tokio::test]
async fn the_remaining_time_follows_from_the_runs_that_ended() {
    let store = store().await;
    let (_, operation) = profile(&store, "a", 5).await;
    let remaining = async || store.get_operation(&operation).await.unwrap().remaining_seconds;
    assert_eq!(remaining().await, None);
    let first = measure(&store).await;
    assert_eq!(remaining().await, None, "nothing is running");
    let w = worker("w");
    let crashing = claim(&store, &w).await;
    let crash = failure(FailureKind::Crashed { signal: 6 });
    applied(store.fail_run(&w, &crashing.run, 1, &crash, 1.0).await);
    execute(
        &store,
        "UPDATE runs SET start_time = end_time - interval '10 seconds' WHERE state = 'succeeded'",
    )
    .await;
    claim(&store, &w).await;
    claim(&store, &w).await;
    execute(&store, "UPDATE runs SET progress = 0.5 WHERE state = 'running'").await;
    // Two wait, two are half done, two at once.
    assert_eq!(remaining().await, Some(15.0), "{}", first.run);
}

/// Work of one stage of an imagined pipeline is found at its first layer.
#[tokio::test]
async fn the_first_layer_of_a_measured_run_is_known() {
    let store = store().await;
    let position = SoloStage { stage: StageConfig::single(5, 7), stage_count: 3, stage_index: 1 };
    let mut run = sized("k", 4);
    run.strategy.work = Work::Solo(position);
    queue(&store, "a", vec![run]).await;
    measure(&store).await;
    let found = store.find_measured(&[("k".to_owned(), 4)], "cpu", &software(), false).await.unwrap();
    assert_eq!(found[0].first_layer, 5);
}
