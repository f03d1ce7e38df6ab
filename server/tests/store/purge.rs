//! A purge deletes the largest set of old rows that nothing outside of it references, whatever the history; an enumeration of all sets
//! of rows finds the same one. Its progress is exact, whichever planners work on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use loadmaster::retention::{LEAST_AGE, Purges, Rule};
use loadmaster::store::records::{OperationState, OperationTarget, RequestKey};
use loadmaster::store::{Collection, MAX_PURGES, PurgeSettings, Purged, Store, StoreError};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::name::OperationName;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlx::AssertSqlSafe;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::samples::{measurement, plan};
use crate::support::{applied, store};

const HISTORIES: u64 = 120;
/// Rows that may go at most: all sets of them are looked at.
const MOST_OLD: usize = 15;

async fn sql(store: &Store, statement: String) {
    let done = sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(store.pool()).await;
    done.unwrap_or_else(|error| panic!("{error}: {statement}"));
}

/// A history as the test knows it: names, which of them may go, and what refers to what.
#[derive(Debug, Default)]
struct History {
    old: BTreeSet<String>,
    labelled: BTreeSet<String>,
    references: Vec<(String, String)>,
    statements: Vec<String>,
}

impl History {
    fn refer(&mut self, from: &str, to: &str) {
        self.references.push((from.to_owned(), to.to_owned()));
    }

    /// Adds a row that is old or not, and says when it ended or was asked for.
    fn age(&mut self, name: &str, may_go: bool, random: &mut StdRng) -> String {
        let is_old = may_go && self.old.len() < MOST_OLD && random.random_bool(0.75);
        if is_old {
            self.old.insert(name.to_owned());
        }
        format!(
            "now() - interval '{} hours'",
            if is_old { random.random_range(49..99) } else { random.random_range(0..47) }
        )
    }

    /// The largest set of rows that may go, of those in `free`, that nothing outside of it refers to.
    fn largest(&self, free: &BTreeSet<&str>) -> BTreeSet<String> {
        let names: Vec<&str> = free.iter().copied().collect();
        let place: BTreeMap<&str, usize> =
            names.iter().enumerate().map(|(place, name)| (*name, place)).collect();
        let into: Vec<(Option<usize>, usize)> = self
            .references
            .iter()
            .filter_map(|(from, to)| Some((place.get(from.as_str()).copied(), *place.get(to.as_str())?)))
            .collect();
        let is_closed = |set: u32| {
            into.iter().all(|&(from, to)| set >> to & 1 == 0 || from.is_some_and(|from| set >> from & 1 == 1))
        };
        let largest =
            (0..1_u32 << names.len()).filter(|&set| is_closed(set)).max_by_key(|set| set.count_ones());
        let largest = largest.unwrap_or(0);
        let taken = names.iter().enumerate().filter(|(place, _)| largest >> place & 1 == 1);
        taken.map(|(_, name)| (*name).to_owned()).collect()
    }
}

fn pick<'a>(random: &mut StdRng, of: &'a [String]) -> &'a str {
    &of[random.random_range(0..of.len())]
}

/// Rows of all kinds that refer to each other as the store lets them.
fn history(random: &mut StdRng, content: &str, measured: &Measurement) -> History {
    let mut all = History::default();
    // Measured links are this worker's, and go with it.
    let state = ["gone", "lost", "alive"][random.random_range(0..3)];
    let time = all.age("workers/w", state != "alive", random);
    all.statements.push(format!(
        "INSERT INTO workers (id, state, devices, version, libtorch_version, host, session_id, create_time, heartbeat_time)
         VALUES ('w', '{state}', '[]', '', '', '', '', now() - interval '100 hours', {time})"
    ));
    let ids = |kind: &str, random: &mut StdRng, most: usize| -> Vec<String> {
        (0..random.random_range(1..=most)).map(|index| format!("{kind}{index}")).collect()
    };
    let (models, profiles, plans) = (ids("m", random, 2), ids("p", random, 3), ids("q", random, 6));
    for model in &models {
        let time = all.age(&format!("models/{model}"), true, random);
        all.statements.push(format!(
            "INSERT INTO models (id, model, source, create_time) VALUES ('{model}', '{{}}', '{{}}', {time})"
        ));
    }
    for profile in &profiles {
        let name = format!("profiles/{profile}");
        let model = pick(random, &models).to_owned();
        let is_running = random.random_bool(0.1);
        let time = all.age(&name, !is_running, random);
        let end = if is_running { "NULL".to_owned() } else { time };
        let state = if is_running { "running" } else { "complete" };
        let labels = if random.random_bool(0.3) {
            all.labelled.insert(name.clone());
            r#"{"keep": "1"}"#
        } else {
            "{}"
        };
        all.refer(&name, &format!("models/{model}"));
        all.statements.push(format!(
            r#"INSERT INTO profiles (id, model_id, settings, state, labels, create_time, end_time)
               VALUES ('{profile}', '{model}', '{{"profiling_mode": "per_stage", "device_kind": "cpu"}}', '{state}', '{labels}',
                       now() - interval '100 hours', {end})"#
        ));
    }
    for (index, plan) in plans.iter().enumerate() {
        let name = format!("plans/{plan}");
        let (profile, model) = (pick(random, &profiles).to_owned(), pick(random, &models).to_owned());
        all.refer(&name, &format!("profiles/{profile}"));
        all.refer(&name, &format!("models/{model}"));
        // Those that it names were there before.
        let named: Vec<&String> = plans[..index].iter().filter(|_| random.random_bool(0.3)).collect();
        for other in &named {
            all.refer(&name, &format!("plans/{other}"));
        }
        let others: Vec<String> = profiles.iter().filter(|_| random.random_bool(0.2)).cloned().collect();
        for other in &others {
            all.refer(&name, &format!("profiles/{other}"));
        }
        let others: Vec<String> = others.iter().map(|other| format!(r#""profiles/{other}""#)).collect();
        let alternatives: Vec<String> =
            named.iter().map(|other| format!(r#"{{"plan": "plans/{other}"}}"#)).collect();
        let time = all.age(&name, true, random);
        all.statements.push(format!(
            "INSERT INTO plans (id, profile_id, model_id, content, create_time) VALUES ('{plan}', '{profile}', '{model}',
             jsonb_set('{content}', '{{found}}', '{{\"alternatives\": [{}]}}') || '{{\"other_profiles\": [{}]}}',
             now() - interval '{} minutes')",
            alternatives.join(", "),
            others.join(", "),
            6_100 - index,
        ));
        let labels = if random.random_bool(0.3) {
            all.labelled.insert(name.clone());
            r#"{"keep": "1"}"#
        } else {
            "{}"
        };
        all.statements.push(format!(
            "UPDATE plan_facts SET asked_time = {time}, labels = '{labels}' WHERE id = '{plan}'"
        ));
        if random.random_bool(0.15) {
            all.refer("a report", &name);
            all.statements.push(format!(
                r#"INSERT INTO reports (id, plan_id, report) VALUES ('o{plan}', '{plan}', '{{"device_kind": "cpu"}}')"#
            ));
        }
        if random.random_bool(0.3) {
            let is_young = random.random_bool(0.5);
            let hours = if is_young { 1 } else { 80 };
            if is_young {
                all.refer("a placement", &name);
            }
            all.statements.push(format!(
                "INSERT INTO placements (id, plan_id, content, nodes, create_time)
                 VALUES ('b{plan}', '{plan}', '{{}}', '{{}}', now() - interval '{hours} hours')"
            ));
        }
    }
    operations(&mut all, random, [&models, &profiles, &plans], measured);
    all
}

/// Operations with their runs: of profiles, of plans, of what is deleted, and of links.
fn operations(
    all: &mut History,
    random: &mut StdRng,
    [models, profiles, plans]: [&[String]; 3],
    measured: &Measurement,
) {
    let measured = serde_json::to_string(measured).unwrap();
    let mut runs: Vec<String> = Vec::new();
    let mut measuring = BTreeSet::new();
    for index in 0..random.random_range(1..=4) {
        let operation = format!("operations/op{index}");
        let kind = random.random_range(0..4);
        let target = match kind {
            0 => Some(format!("profiles/{}", pick(random, profiles))),
            1 => Some(format!("plans/{}", pick(random, plans))),
            _ => None,
        };
        let is_running = match &target {
            Some(target) => random.random_bool(0.2) && (kind == 1 || measuring.insert(target.clone())),
            None => false,
        };
        let end = all.age(&operation, !is_running, random);
        let end = if is_running { "NULL".to_owned() } else { end };
        let id = |collection: &str| {
            let of = target.as_deref().and_then(|name| name.strip_prefix(collection));
            of.map_or_else(|| "NULL".to_owned(), |id| format!("'{id}'"))
        };
        let (profile, plan) = (id("profiles/"), id("plans/"));
        all.statements.push(format!(
            "INSERT INTO operations (id, profile_id, plan_id, state, deleted, measures_links, create_time, end_time)
             VALUES ('op{index}', {profile}, {plan}, '{}', {}, {}, now() - interval '100 hours', {end})",
            if is_running { "running" } else { "succeeded" },
            kind == 2,
            kind == 3,
        ));
        if let Some(target) = &target {
            // An ended operation tells of what it made, and goes with it; one that runs holds it.
            if is_running { all.refer(&operation, target) } else { all.refer(target, &operation) }
        }
        for number in 0..random.random_range(0..3) {
            let (id, name) = (format!("r{index}x{number}"), format!("runs/r{index}x{number}"));
            // An operation ends with its last run.
            let states = ["succeeded", "cancelled", "failed", "queued"];
            let state = states[random.random_range(0..if is_running { 4 } else { 3 })];
            let is_trial = kind == 1 && matches!(state, "succeeded" | "queued");
            let end = all.age(&name, state != "queued" && !is_trial, random);
            let end = if state == "queued" { "NULL".to_owned() } else { end };
            let model = pick(random, models).to_owned();
            all.refer(&name, &operation);
            if kind != 3 {
                all.refer(&name, &format!("models/{model}"));
            }
            let parent = runs.iter().find(|_| random.random_bool(0.2)).cloned();
            if let Some(parent) = &parent {
                all.refer(&name, &format!("runs/{parent}"));
            }
            if is_trial {
                all.refer(&name, target.as_deref().unwrap());
            } else if let Some(target) = &target {
                all.refer(target, &name);
            }
            let quoted =
                |text: Option<&str>| text.map_or_else(|| "NULL".to_owned(), |text| format!("'{text}'"));
            let (model, training, work, only) = match kind {
                3 => ("NULL".to_owned(), "NULL", r#"{"links": {}}"#, "'w'"),
                _ => (format!("'{model}'"), r#"'{"micro_batch_size": 4}'"#, "{}", "NULL"),
            };
            all.statements.push(format!(
                "INSERT INTO runs (id, operation_id, profile_id, plan_id, model_id, training, work, only_worker_id, iterations,
                                   device_kind, device_count, min_capacity_bytes, deadline_seconds, state, shrunk_from,
                                   create_time, end_time)
                 VALUES ('{id}', 'op{index}', {profile}, {plan}, {model}, {training}, '{work}', {only}, 1, 'cpu', 1, 0, 1,
                         '{state}', {}, now() - interval '{} minutes', {end})",
                quoted(parent.as_deref()),
                6_050 - 10 * index - number,
            ));
            if state == "succeeded" && kind == 3 {
                all.refer("workers/w", &name);
                all.statements.push(format!(
                    "INSERT INTO link_measurements (run_id, worker_id, measurement) VALUES ('{id}', 'w', '{{}}')"
                ));
            } else if state == "succeeded" {
                all.statements.push(format!(
                    "INSERT INTO measurements (run_id, measurement, losses) VALUES ('{id}', '{measured}', '{{}}')"
                ));
                for profile in profiles.iter().filter(|_| random.random_bool(0.25)) {
                    all.refer(&format!("profiles/{profile}"), &name);
                    all.statements.push(format!(
                        "INSERT INTO profile_runs (profile_id, run_id) VALUES ('{profile}', '{id}')"
                    ));
                }
            }
            runs.push(id);
        }
    }
}

/// All names that are stored.
async fn names(store: &Store) -> BTreeSet<String> {
    let rows: Vec<String> = sqlx::query_scalar(
        "SELECT 'plans/' || id FROM plans UNION ALL SELECT 'profiles/' || id FROM profiles
         UNION ALL SELECT 'runs/' || id FROM runs UNION ALL SELECT 'operations/' || id FROM operations WHERE purge IS NULL
         UNION ALL SELECT 'models/' || id FROM models UNION ALL SELECT 'workers/' || id FROM workers",
    )
    .fetch_all(store.pool())
    .await
    .unwrap();
    rows.into_iter().collect()
}

fn purged<'a>(of: impl IntoIterator<Item = &'a Purged>) -> BTreeSet<String> {
    of.into_iter().flat_map(|of| of.purge_sample.iter().cloned()).collect()
}

/// Works off a purge in pages of `size` rows; its result.
async fn purge(store: &Store, settings: &PurgeSettings, size: u32) -> BTreeMap<String, Purged> {
    let operation = store.create_purge(settings.clone(), None).await.unwrap();
    let rule = Rule::of(settings).unwrap();
    loop {
        let due = store.due_purge().await.unwrap().expect("it runs");
        assert_eq!(due.operation, operation);
        let position = match due.purge.at.as_ref().map(|at| at.collection.as_str()) {
            None => 0,
            Some("") => break,
            Some(word) => rule.of.iter().position(|of| of.collection.word() == word).unwrap(),
        };
        let next = rule.of.get(position + 1).map(|of| of.collection);
        store
            .purge_page(&due, &rule.of[position], next, size)
            .await
            .unwrap()
            .expect("nobody else works on it");
    }
    applied(store.finish_operation(&operation, OperationState::Succeeded).await);
    store.purge_result(&operation).await.unwrap()
}

#[tokio::test]
async fn the_largest_set_that_nothing_references_is_deleted() {
    let store = store().await;
    let (_, content) = plan(&store).await;
    let content = serde_json::to_string(&content).unwrap().replace('\'', "''");
    let measured = measurement(0);
    let older_than = Duration::from_secs(48 * 3_600);
    let mut went = 0;
    for seed in 0..HISTORIES {
        let random = &mut StdRng::seed_from_u64(seed);
        sql(&store, "TRUNCATE models, profiles, plans, operations, runs, workers CASCADE".to_owned()).await;
        let history = history(random, &content, &measured);
        sql(&store, history.statements.join(";\n")).await;
        let before = names(&store).await;

        let (filter, collections): (&str, Vec<Collection>) = match seed % 4 {
            0 => ("NOT labels:keep", Vec::new()),
            1 => ("", Collection::ALL.into_iter().filter(|_| random.random_bool(0.6)).collect()),
            _ => ("", Vec::new()),
        };
        let collections = collections.into_iter().map(|of| of.word().to_owned()).collect();
        let settings = PurgeSettings { older_than, filter: filter.to_owned(), collections, force: true };
        let rule = Rule::of(&settings).unwrap();
        let may_go = |name: &str| {
            rule.of.iter().any(|of| name.starts_with(of.collection.word()))
                && (filter.is_empty() || !history.labelled.contains(name))
        };
        let free: BTreeSet<&str> =
            history.old.iter().map(String::as_str).filter(|name| may_go(name)).collect();
        let expected = history.largest(&free);

        let dry_run = store.purgeable(rule.age, &rule.of).await.unwrap();
        assert_eq!(purged(dry_run.values()), expected, "seed {seed}: {history:#?}");
        assert_eq!(names(&store).await, before, "seed {seed}: a dry run changed something");
        for of in dry_run.values().flat_map(|of| &of.referenced_sample) {
            let named = of.referenced_by.len();
            assert!((1..=3).contains(&named) && of.reference_count >= named as u64, "seed {seed}: {of:?}");
        }

        let done = purge(&store, &settings, random.random_range(1..4)).await;
        assert_eq!(purged(done.values()), expected, "seed {seed}: the dry run had another result");
        let sum =
            |count: fn(&Purged) -> u64, of: &BTreeMap<String, Purged>| of.values().map(count).sum::<u64>();
        assert_eq!(sum(|of| of.purge_count, &done), expected.len() as u64, "seed {seed}");
        let kept = dry_run.values().map(|of| of.referenced_count).sum::<u64>();
        assert_eq!(sum(|of| of.referenced_count, &done), kept, "seed {seed}");
        let left: BTreeSet<String> = before.difference(&expected).cloned().collect();
        assert_eq!(names(&store).await, left, "seed {seed}");
        let again = purge(&store, &settings, 100).await;
        assert_eq!(purged(again.values()), BTreeSet::new(), "seed {seed}: something was left");
        went += expected.len();
    }
    assert!(went > 200, "only {went} rows went");
}

fn all_plans(force: bool) -> PurgeSettings {
    let collections = vec!["plans".to_owned()];
    PurgeSettings { older_than: LEAST_AGE, filter: String::new(), collections, force }
}

/// Copies of a plan that are old enough.
async fn old_plans(store: &Store, count: usize) {
    let (name, content) = plan(store).await;
    store.put_plan(&name, &content).await.unwrap();
    sql(
        store,
        format!(
            "INSERT INTO plans (id, profile_id, model_id, content)
             SELECT 'old' || number, profile_id, model_id, content FROM plans, generate_series(1, {count}) AS number
             WHERE id = '{}';
             DELETE FROM plans WHERE id = '{}';
             UPDATE plan_facts SET asked_time = now() - interval '30 days', create_time = now() - interval '30 days'",
            name.id(),
            name.id()
        ),
    )
    .await;
}

async fn ended(store: &Store, operation: &OperationName) -> OperationState {
    for _ in 0..600 {
        let state = store.get_operation(operation).await.unwrap().state;
        if state != OperationState::Running {
            return state;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{operation} does not end");
}

/// A purge continues where it was, in any planner, and each deleted row counts once.
#[tokio::test(flavor = "multi_thread")]
async fn planners_share_a_purge_and_continue_it() {
    let store = store().await;
    old_plans(&store, 250).await;
    let key = RequestKey { id: Uuid::from_u128(7), fingerprint: "f".to_owned() };
    let operation = store.create_purge(all_plans(true), Some(&key)).await.unwrap();
    assert_eq!(store.create_purge(all_plans(true), Some(&key)).await.unwrap(), operation);
    // One planner deletes a page, and stops.
    let due = store.due_purge().await.unwrap().unwrap();
    let rule = Rule::of(&due.purge.settings).unwrap();
    let page = store.purge_page(&due, &rule.of[0], None, 10).await.unwrap().unwrap();
    assert_eq!((page.purge_count, page.purge_sample.len()), (10, 10));
    assert_eq!(store.purge_page(&due, &rule.of[0], None, 10).await.unwrap(), None, "a page counts once");
    // Two others go on.
    let stop = CancellationToken::new();
    let planners: Vec<_> =
        (0..2).map(|_| tokio::spawn(Purges::new(store.clone()).run(stop.clone()))).collect();
    assert_eq!(ended(&store, &operation).await, OperationState::Succeeded);
    stop.cancel();
    for planner in planners {
        planner.await.unwrap();
    }
    let result = store.purge_result(&operation).await.unwrap();
    assert_eq!((result["plans"].purge_count, result["plans"].purge_sample.len()), (250, 100));
    let record = store.get_operation(&operation).await.unwrap();
    let OperationTarget::Purge(purge) = record.target else { panic!("{:?}", record.target) };
    assert_eq!((purge.purge_count, purge.referenced_count, purge.candidate_count), (250, 0, Some(240)));
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM plans").fetch_one(store.pool()).await.unwrap();
    assert_eq!(left, 0);
}

/// A cancelled purge deletes nothing more; a dry run deletes nothing at all, and neither does one with settings that are wrong now.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_ends_early_by_a_cancellation_or_an_error() {
    let store = store().await;
    old_plans(&store, 30).await;
    let cancelled = store.create_purge(all_plans(true), None).await.unwrap();
    let due = store.due_purge().await.unwrap().unwrap();
    let rule = Rule::of(&due.purge.settings).unwrap();
    store.purge_page(&due, &rule.of[0], None, 10).await.unwrap().unwrap();
    let due = store.due_purge().await.unwrap().unwrap();
    assert!(store.cancel_operation(&cancelled).await.unwrap());
    assert_eq!(store.get_operation(&cancelled).await.unwrap().state, OperationState::Cancelled);
    assert_eq!(store.purge_page(&due, &rule.of[0], None, 10).await.unwrap(), None);
    assert_eq!(store.due_purge().await.unwrap(), None);
    assert_eq!(store.purge_result(&cancelled).await.unwrap()["plans"].purge_count, 10);

    let stop = CancellationToken::new();
    let planner = tokio::spawn(Purges::new(store.clone()).run(stop.clone()));
    let dry_run = store.create_purge(all_plans(false), None).await.unwrap();
    assert_eq!(ended(&store, &dry_run).await, OperationState::Succeeded);
    assert_eq!(store.purge_result(&dry_run).await.unwrap()["plans"].purge_count, 20);
    let wrong = PurgeSettings { filter: "no_such_field = 1".to_owned(), ..all_plans(true) };
    let wrong = store.create_purge(wrong, None).await.unwrap();
    let state = ended(&store, &wrong).await;
    assert!(
        matches!(&state, OperationState::Failed { reason, .. } if reason == "INVALID_FIELD"),
        "{state:?}"
    );
    stop.cancel();
    planner.await.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM plans").fetch_one(store.pool()).await.unwrap();
    assert_eq!(left, 20);

    for _ in 0..MAX_PURGES {
        store.create_purge(all_plans(true), None).await.unwrap();
    }
    assert!(matches!(store.create_purge(all_plans(true), None).await, Err(StoreError::TooManyPurges)));
}

/// Who asks again gets the plan of old, as young as a new one, and nothing takes it meanwhile.
#[tokio::test]
async fn a_plan_that_is_asked_for_again_is_young() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    let first = store.put_plan(&name, &content).await.unwrap();
    sql(&store, "UPDATE plan_facts SET asked_time = now() - interval '30 days'".to_owned()).await;
    let rule = Rule::new(LEAST_AGE, "", &[Collection::Plans]).unwrap();
    let old = async || store.purgeable(rule.age, &rule.of).await.unwrap().remove(&Collection::Plans).unwrap();
    // Its creation is young: neither time alone makes it old.
    assert_eq!(old().await, Purged::default());
    sql(&store, "UPDATE plan_facts SET create_time = now() - interval '30 days'".to_owned()).await;
    assert_eq!(old().await.purge_sample, [name.to_string()]);

    assert_eq!(store.put_plan(&name, &content).await.unwrap(), first);
    assert_eq!(old().await.purge_count, 0);
    // Also where the answer is known.
    sql(&store, "UPDATE plan_facts SET asked_time = now() - interval '30 days'".to_owned()).await;
    // To look at it is no question.
    store.glance_at_plan(&name).await.unwrap();
    assert_eq!(old().await.purge_count, 1);
    store.ask_plan_again(&name).await.unwrap();
    assert_eq!(old().await.purge_count, 0);
    // While one planner purges, another one answers with plans: each that was answered with is there.
    for _ in 0..20 {
        sql(&store, "UPDATE plan_facts SET asked_time = now() - interval '30 days', create_time = now() - interval '30 days'".to_owned()).await;
        let asked = [(name.clone(), content.clone())];
        let settings = all_plans(true);
        let (_, put) = tokio::join!(purge(&store, &settings, 10), store.put_plans(&asked));
        put.unwrap();
        store.get_plan(&name).await.expect("it was answered with");
    }
}

/// Of planners that share a database one does what is done once in a while.
#[tokio::test]
async fn planners_take_turns() {
    let store = store().await;
    let period = Duration::from_secs(3_600);
    let turns = futures_util::future::join_all((0..6).map(|_| store.take_turn("retention", period))).await;
    assert_eq!(turns.into_iter().filter(|turn| *turn.as_ref().unwrap()).count(), 1);
    sql(&store, "UPDATE schedules SET begin_time = begin_time - interval '2 hours'".to_owned()).await;
    assert!(store.take_turn("retention", period).await.unwrap());
    assert!(!store.take_turn("retention", period).await.unwrap());
}
