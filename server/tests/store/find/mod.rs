//! Filters and orders: the rows that the database finds are those that a look at every row finds, in its order, once each,
//! however they are divided into pages.

mod ask;

use jiff::Timestamp;
use loadmaster::store::records::{NewTrial, NewWorker, PageRequest};
use loadmaster::store::{Store, StoreError, fields};
use loadmaster_filter::{Kind, Query};
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::label::{LabelChange, MAX_LABELS};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::name::{ClusterName, CommandName, PlanName};
use loadmaster_proto::plan::findings::{Findings, IterationEstimate};
use loadmaster_proto::plan::objective::{Framework, Objective};
use loadmaster_proto::plan::placement::Placement;
use loadmaster_proto::plan::prediction::Origin;
use loadmaster_proto::plan::report::{Measured, Peak, Report};
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_samples::cpu_slot;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::samples::{LEASE, claim, measurement, new_worker, plan, trial_run, worker};
use crate::support::{applied, execute, store};
use ask::{Ask, Has, Row, order};

const PLANS: usize = 90;
const FILTERS: usize = 250;

const FRAMEWORKS: [(&str, Framework); 3] = [
    ("megatron", Framework::Megatron),
    ("torch-pipelining", Framework::TorchPipelining),
    ("colossal-ai", Framework::ColossalAi),
];
const OBJECTIVES: [(&str, Objective); 2] =
    [("min-peak-memory", Objective::MinPeakMemory), ("pareto", Objective::Pareto)];
const SOLVERS: [&str; 5] = ["leximax/2", "simulated/1", "given", "100% \\_ exact*", "Ärger"];
const KINDS: [&str; 3] = ["cpu", "NVIDIA H200", "NVIDIA A100"];
const CLUSTERS: [&str; 2] = ["pod1", "pod10"];
/// Few values, so that many rows are equal in them.
const SECONDS: [f64; 4] = [0.1 + 0.2, 0.25, 1.5, 1e-9];
const PEAKS: [u64; 3] = [1 << 30, 3 << 29, 1 << 52];

fn iteration(seconds: f64) -> IterationEstimate {
    IterationEstimate {
        seconds,
        closed_form: seconds,
        bubble: 0.5,
        step: 0.125,
        origin: Origin::Profiled,
        links: "assumed".to_owned(),
        overlap: Overlap::Computing,
        overlap_reason: "for the test".to_owned(),
        margin: None,
    }
}

/// One of them, or none.
fn some<T: Clone>(random: &mut StdRng, of: &[T]) -> Option<T> {
    of.get(random.random_range(0..=of.len())).cloned()
}

fn one<T: Clone>(random: &mut StdRng, of: &[T]) -> T {
    of[random.random_range(0..of.len())].clone()
}

/// Reports up to three trainings of a plan, one of them taken back, and says what is known then: the seconds of the newest that
/// tells them, and its kind of device.
async fn report(store: &Store, plan: &str, kind: &str, random: &mut StdRng) -> Option<(f64, String)> {
    let plan = PlanName::from_id(plan).unwrap();
    let mut kept = Vec::new();
    for _ in 0..random.random_range(0..4) {
        let seconds = some(random, &SECONDS);
        let peak = Peak { bytes: Bytes(1), ledger: Accounting::Device };
        let report = Report {
            measured: Measured { iteration_seconds: seconds, stage_peaks: vec![peak] },
            iterations: 1,
            device_kind: some(random, &KINDS).map(str::to_owned),
            source: String::new(),
        };
        let stored = store.put_report(&plan, &report, None).await.unwrap();
        kept.push((stored.id, seconds, report.device_kind.unwrap_or_else(|| kind.to_owned())));
    }
    if !kept.is_empty() && random.random() {
        let (gone, ..) = kept.remove(random.random_range(0..kept.len()));
        store.delete_report(&plan, &gone).await.unwrap();
    }
    kept.into_iter().rev().find_map(|(_, seconds, of)| Some((seconds?, of)))
}

/// Stores a plan of random properties, and says what they are.
async fn put(store: &Store, content: &Plan, index: usize, random: &mut StdRng) -> Row {
    let (framework, objective) = (some(random, &FRAMEWORKS), some(random, &OBJECTIVES));
    let (seconds, peak, price) = (some(random, &SECONDS), one(random, &PEAKS), some(random, &[2.0, 12.5]));
    let (cluster, kind) = (some(random, &CLUSTERS), one(random, &KINDS));
    let solver = one(random, &SOLVERS);
    let size = random.random_range(1..4_u32);
    let plan = Plan {
        training: loadmaster_proto::training::TrainingSpec { micro_batch_size: size, ..content.training },
        solver: solver.to_owned(),
        device_kind: kind.to_owned(),
        stages: vec![PlanStage { predicted_peak: peak, ..content.stages[0].clone() }],
        asked: Goal {
            objective: objective.map(|(_, objective)| objective),
            framework: framework.map(|(_, framework)| framework),
            cluster: cluster.map(|id| ClusterName::from_id(id).unwrap()),
            ..Goal::default()
        },
        found: Findings { iteration: seconds.map(iteration), hourly_price: price, ..Findings::default() },
        ..content.clone()
    };
    let id = format!("p{}-{index}", random.random_range(0..10));
    store.put_plan(&PlanName::from_id(&id).unwrap(), &plan).await.unwrap();
    let time: Timestamp = "2026-11-01T08:00:00.000001Z".parse().unwrap();
    let time = time.as_microsecond() + random.random_range(0..8) * 3_600_000_000;
    let measured = some(random, &SECONDS).zip(Some(one(random, &PEAKS)));
    sqlx::query("UPDATE plans SET create_time = $2::timestamptz WHERE id = $1")
        .bind(&id)
        .bind(Timestamp::from_microsecond(time).unwrap().to_string())
        .execute(store.pool())
        .await
        .unwrap();
    sqlx::query("UPDATE plan_facts SET measured_ledger = 'allocated', measured_seconds = $2, measured_peak_bytes = $3 WHERE id = $1")
        .bind(&id)
        .bind(measured.map(|(seconds, _)| seconds))
        .bind(measured.map(|(_, peak)| peak.cast_signed()))
        .execute(store.pool())
        .await
        .unwrap();
    let reported = report(store, &id, kind, random).await;
    let team = some(random, &["vision", "language", "100% of*"]);
    let set = team.map(|team| ("team".to_owned(), team.to_owned()));
    let change = LabelChange { set: set.into_iter().collect(), ..LabelChange::default() };
    store.label_plan(&PlanName::from_id(&id).unwrap(), &change, "").await.unwrap();
    let text = |text: &str| Some(Has::Text(text.to_owned()));
    let number = |number: f64| Some(Has::Number(number));
    let error = |predicted: f64, measured: f64| Some(Has::Number(predicted / measured - 1.0));
    let fields = [
        ("name", text(&id)),
        ("cluster", cluster.and_then(text)),
        ("device_kind", text(kind)),
        ("solver", text(solver)),
        ("framework", framework.and_then(|(word, _)| text(word))),
        ("objective", objective.and_then(|(word, _)| text(word))),
        ("micro_batch_size", number(f64::from(size))),
        ("predicted_peak", number(peak as f64)),
        ("predicted_seconds", seconds.and_then(number)),
        ("hourly_price", price.and_then(number)),
        ("measured_seconds", measured.and_then(|(seconds, _)| number(seconds))),
        ("measured_peak", measured.and_then(|(_, peak)| number(peak as f64))),
        ("peak_error", measured.and_then(|(_, measured)| error(peak as f64, measured as f64))),
        (
            "seconds_error",
            measured.zip(seconds).and_then(|((measured, _), seconds)| error(seconds, measured)),
        ),
        ("reported_seconds", reported.as_ref().and_then(|(seconds, _)| number(*seconds))),
        (
            "report_error",
            reported
                .filter(|(_, of)| of == kind)
                .zip(seconds)
                .and_then(|((reported, _), seconds)| error(seconds, reported)),
        ),
        ("labels.team", team.and_then(text)),
        ("create_time", Some(Has::Time(time))),
    ];
    fields.into_iter().filter_map(|(field, has)| has.map(|has| (field, has))).collect()
}

const ORDERED: [&str; 17] = [
    "name",
    "cluster",
    "device_kind",
    "solver",
    "framework",
    "objective",
    "micro_batch_size",
    "predicted_peak",
    "predicted_seconds",
    "hourly_price",
    "measured_seconds",
    "measured_peak",
    "peak_error",
    "seconds_error",
    "reported_seconds",
    "report_error",
    "create_time",
];

/// A random question about what some rows have.
fn random_ask(random: &mut StdRng, rows: &[Row], depth: u32) -> Ask {
    if depth > 0 && random.random_range(0..5) < 3 {
        let mut parts = |count| (0..count).map(|_| random_ask(random, rows, depth - 1)).collect::<Vec<_>>();
        return match depth % 3 {
            0 => Ask::And(parts(3)),
            1 => Ask::Or(parts(2)),
            _ => Ask::Not(Box::new(parts(1).remove(0))),
        };
    }
    let field = if random.random_range(0..8) == 0 { "labels.team" } else { one(random, &ORDERED) };
    // Values that are there.
    let values: Vec<&Has> = rows.iter().filter_map(|row| row.get(field)).collect();
    let value = values[random.random_range(0..values.len())].clone();
    match (random.random_range(0..6), &value) {
        (0, _) => Ask::Set(field),
        (1, Has::Text(text)) if !matches!(field, "framework" | "objective") => {
            let end = text.char_indices().nth(random.random_range(0..text.chars().count())).unwrap().0;
            Ask::Starts(field, text[..end].to_owned())
        }
        (2, Has::Text(text)) if !matches!(field, "framework" | "objective") => {
            let parts: Vec<&str> =
                text.split(['/', ' ', '-', '\\']).filter(|part| !part.is_empty()).collect();
            Ask::Has(field, one(random, &parts).to_owned())
        }
        (_, Has::Text(_)) => Ask::Is(one(random, &["=", "!="]), field, value),
        (_, Has::Number(_) | Has::Time(_)) => {
            Ask::Is(one(random, &["=", "!=", "<", "<=", ">", ">="]), field, value)
        }
    }
}

fn random_order(random: &mut StdRng) -> Vec<(&'static str, bool)> {
    let mut keys: Vec<(&str, bool)> = Vec::new();
    for _ in 0..random.random_range(0..4) {
        let field = one(random, &ORDERED);
        if keys.iter().all(|(known, _)| *known != field) {
            keys.push((field, random.random()));
        }
    }
    keys
}

fn order_by(keys: &[(&str, bool)]) -> String {
    let key = |(field, is_descending): &(&str, bool)| {
        if *is_descending { format!("{field} desc") } else { (*field).to_owned() }
    };
    keys.iter().map(key).collect::<Vec<_>>().join(", ")
}

/// Names in the order of the list, in pages of random sizes.
async fn found(store: &Store, query: &Query, random: &mut StdRng) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let size = random.random_range(1..12);
        let page = store.list_plans(query, &PageRequest { size, after }).await.unwrap();
        assert!(page.rows.len() <= size as usize && page.keys.len() == page.rows.len());
        // A page may end at any of its rows, as one does that is too long for a message.
        let cut = if random.random_range(0..4) == 0 { page.rows.len() / 2 } else { page.rows.len() };
        names.extend(page.rows.iter().take(cut.max(1)).map(|row| row.name.id().to_owned()));
        after = if cut >= 1 && cut < page.rows.len() { page.cursor(cut - 1) } else { page.next };
        match &after {
            None => return names,
            Some(cursor) => {
                assert!(cursor.is_of_a_row(&query.order), "{cursor:?}");
                let written = serde_json::to_string(cursor).unwrap();
                assert_eq!(
                    serde_json::from_str::<loadmaster::store::records::Cursor>(&written).unwrap(),
                    *cursor
                );
            }
        }
    }
}

#[tokio::test]
async fn the_database_finds_what_a_look_at_every_row_finds_in_pages_of_any_size() {
    let store = store().await;
    let (_, content) = plan(&store).await;
    let mut random = StdRng::seed_from_u64(17);
    let mut rows = Vec::new();
    for index in 0..PLANS {
        rows.push(put(&store, &content, index, &mut random).await);
    }
    let (mut some, mut all) = (0, 0);
    for _ in 0..FILTERS {
        let ask = random_ask(&mut random, &rows, 3);
        let keys = random_order(&mut random);
        let (filter, order_by) = (ask.filter(&mut random), order_by(&keys));
        let query = Query::parse(fields::PLANS, &filter, &order_by)
            .unwrap_or_else(|error| panic!("{filter}: {error}"));
        let mut expected: Vec<&Row> = rows.iter().filter(|row| ask.fits(row)).collect();
        expected.sort_by(|one, other| order(one, other, &keys));
        let expected: Vec<&Has> = expected.iter().map(|row| &row["name"]).collect();
        let names = found(&store, &query, &mut random).await;
        let names: Vec<Has> = names.into_iter().map(Has::Text).collect();
        assert!(
            names.iter().eq(expected.iter().copied()),
            "{filter}\nby {order_by}\n{names:?}\n{expected:?}"
        );
        some += usize::from(!expected.is_empty() && expected.len() < PLANS);
        all += usize::from(expected.len() == PLANS);
    }
    assert!(some > FILTERS / 2 && all < FILTERS / 4, "the questions tell rows apart: {some} some, {all} all");
}

/// Every field of every list is a column of the type that its kind has, and can be ordered by.
#[tokio::test]
async fn every_field_of_every_list_can_be_asked_for() {
    let store = store().await;
    plan(&store).await;
    let page = PageRequest { size: 2, after: None };
    for (list, fields) in [
        ("plans", fields::PLANS),
        ("profiles", fields::PROFILES),
        ("runs", fields::RUNS),
        ("placements", fields::PLACEMENTS),
        ("clusters", fields::CLUSTERS),
        ("links", fields::LINK_MEASUREMENTS),
        ("models", fields::MODELS),
        ("reports", fields::REPORTS),
        ("operations", fields::OPERATIONS),
        ("workers", fields::WORKERS),
    ] {
        for field in fields {
            let name = field.name;
            let value = match field.kind {
                Kind::Text | Kind::Texts | Kind::Id(_) | Kind::Labels => "a".to_owned(),
                Kind::Word(words) => words()[0].0.to_owned(),
                Kind::Count | Kind::Bytes | Kind::Number | Kind::Seconds => "1".to_owned(),
                Kind::Time => "2026-11-01".to_owned(),
                Kind::Truth => "true".to_owned(),
            };
            let (filter, order_by) = match field.kind {
                Kind::Labels => (format!("{name}.a = a OR {name}:a OR NOT {name}.a != b"), String::new()),
                _ => {
                    (format!("{name} = {value} OR NOT {name}:* OR {name} != {value}"), format!("{name} desc"))
                }
            };
            let query = Query::parse(fields, &filter, &order_by).unwrap();
            let found = match list {
                "plans" => store.list_plans(&query, &page).await.map(drop),
                "profiles" => store.list_profiles(&query, &page).await.map(drop),
                "runs" => {
                    let filter = loadmaster::store::RunFilter { query, ..Default::default() };
                    store.list_runs(&filter, &page).await.map(drop)
                }
                "placements" => store.list_placements(None, &query, &page).await.map(drop),
                "clusters" => store.list_clusters(&query, &page).await.map(drop),
                "links" => store.list_link_measurements(None, &query, &page).await.map(drop),
                "models" => store.list_models(&query, &page).await.map(drop),
                "reports" => store.list_reports(None, &query, &page).await.map(drop),
                "operations" => store.list_operations(&query, &page).await.map(drop),
                _ => store.list_workers(&query, &page).await.map(drop),
            };
            found.unwrap_or_else(|error| panic!("{list}: {filter} by {order_by}: {error}"));
        }
    }
}

/// Kinds of devices are each named once, whichever order a worker tells them in.
#[tokio::test]
async fn workers_are_found_by_their_kinds_of_devices() {
    let store = store().await;
    let gpu = |kind: &str| Device { kind: kind.to_owned(), ..cpu_slot(0) };
    for (id, devices, commands) in [
        ("slots", vec![cpu_slot(0), cpu_slot(1)], &[][..]),
        ("mixed", vec![gpu("NVIDIA H200"), cpu_slot(0), gpu("NVIDIA A100"), gpu("NVIDIA H200")], &["train"]),
        ("alike", vec![gpu("NVIDIA H200"), gpu("NVIDIA H200")], &["other", "train"]),
        ("bare", Vec::new(), &[]),
    ] {
        let commands = commands.iter().map(|&name| CommandName::parse("commands", name).unwrap()).collect();
        let new = NewWorker { devices, commands, ..new_worker(id, "one") };
        store.upsert_worker(&new, LEASE).await.unwrap();
    }
    for (filter, order_by, expected) in [
        ("device_kind = \"NVIDIA H200\"", "", &["alike"][..]),
        ("device_kind:H200", "", &["alike", "mixed"]),
        ("device_kind = \"NVIDIA A100,NVIDIA H200,cpu\"", "", &["mixed"]),
        ("device_kind = cpu AND device_count = 2", "", &["slots"]),
        ("NOT device_kind:*", "", &["bare"]),
        ("custom_profilers:train", "device_kind", &["mixed", "alike"]),
        ("", "device_kind desc", &["slots", "alike", "mixed", "bare"]),
    ] {
        let query = Query::parse(fields::WORKERS, filter, order_by).unwrap();
        let page = store.list_workers(&query, &PageRequest { size: 10, after: None }).await.unwrap();
        let found: Vec<&str> = page.rows.iter().map(|row| row.name.id()).collect();
        assert_eq!(found, expected, "{filter} by {order_by}");
    }
}

/// Operations and placements are of what their profile or plan is of, and are found by it.
#[tokio::test]
async fn rows_are_found_by_what_they_are_of() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    store.put_plan(&name, &Plan { device_kind: "NVIDIA H200".to_owned(), ..content }).await.unwrap();
    let trial = NewTrial { plan: name.clone(), run: trial_run() };
    let trial = store.create_validation(&name, &[trial], None).await.unwrap();
    let all = PageRequest { size: 10, after: None };
    for (filter, expected) in [
        ("model:vgg11", 2),
        ("model = other", 0),
        ("device_kind = cpu AND profile = measured", 1),
        ("device_kind = \"NVIDIA H200\" AND plan = p1", 1),
    ] {
        let query = Query::parse(fields::OPERATIONS, filter, "").unwrap();
        let page = store.list_operations(&query, &all).await.unwrap();
        assert_eq!(page.rows.len(), expected, "{filter}");
        let is_last = page.rows.iter().any(|row| row.name == trial);
        assert_eq!(is_last, filter.contains("p1") || expected == 2, "{filter}");
    }
    let placement = Placement {
        plan: name.clone(),
        cluster: None,
        stages: Vec::new(),
        idle: Vec::new(),
        seconds: None,
        planned: None,
        least: None,
        is_proven: false,
        gap: None,
        links: String::new(),
        warnings: Vec::new(),
    };
    store.put_placement(&placement.name().unwrap(), &placement).await.unwrap();
    let report = Report {
        measured: Measured { iteration_seconds: Some(1.0), stage_peaks: Vec::new() },
        iterations: 1,
        device_kind: None,
        source: String::new(),
    };
    store.put_report(&name, &report, None).await.unwrap();
    for (filter, expected) in [("profile = measured AND model:vgg11", 1), ("profile = other", 0)] {
        let query = Query::parse(fields::PLACEMENTS, filter, "").unwrap();
        assert_eq!(store.list_placements(None, &query, &all).await.unwrap().rows.len(), expected, "{filter}");
        let query = Query::parse(fields::REPORTS, filter, "").unwrap();
        assert_eq!(store.list_reports(None, &query, &all).await.unwrap().rows.len(), expected, "{filter}");
    }
}

/// A word that a filter takes is one that the database writes: a profile is found by all that it was asked to be.
#[tokio::test]
async fn words_are_those_that_are_stored() {
    let store = store().await;
    plan(&store).await;
    for filter in [
        "state = RUNNING profiling_mode = per-stage precision = FP32 schedule = gpipe recompute = none",
        "device_kind = cpu micro_batch_size = 4 micro_batch_count = 2 NOT custom_profiler:* NOT end_time:*",
        "model:vgg11 name:* create_time > 2026-01-01 optimizer:*",
    ] {
        let query = Query::parse(fields::PROFILES, filter, "").unwrap();
        let page = store.list_profiles(&query, &PageRequest { size: 10, after: None }).await.unwrap();
        assert_eq!(page.rows.len(), 1, "{filter}");
    }
}

/// What plans are found by follows what is measured of them: of the newest trial that measured something, whichever ends last.
#[tokio::test]
async fn measured_figures_are_those_of_the_newest_trial() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    store.put_plan(&name, &content).await.unwrap();
    let trial = || NewTrial { plan: name.clone(), run: trial_run() };
    store.create_validation(&name, &[trial(), trial()], None).await.unwrap();
    let figures = async || -> (Option<i64>, Option<f64>, Option<String>) {
        sqlx::query_as("SELECT measured_peak_bytes, measured_seconds, measured_ledger FROM plan_facts")
            .fetch_one(store.pool())
            .await
            .unwrap()
    };
    assert_eq!(figures().await, (None, None, None));
    let by = worker("w");
    let (older, newer) = (claim(&store, &by).await, claim(&store, &by).await);
    execute(&store, "UPDATE runs SET create_time = create_time + position * interval '1 second'").await;
    let measured = |peak, seconds| {
        let with = |shard, bytes| Measurement {
            peak_allocated: Bytes(bytes),
            iteration_seconds: seconds,
            shard,
            ..measurement(0)
        };
        [with(0, peak), with(1, peak / 2)]
    };
    for (run, peak, seconds, shown) in [(&newer, 700, 0.5, (700, 0.5)), (&older, 900, 0.25, (700, 0.5))] {
        applied(store.complete_run(&by, &run.run, 1, &measured(peak, seconds), 1.0).await);
        assert_eq!(figures().await, (Some(shown.0), Some(shown.1), Some("allocated".to_owned())));
        let listed =
            store.list_plans(&Query::default(), &PageRequest { size: 1, after: None }).await.unwrap();
        let newest = listed.rows[0].trained.newest.clone().unwrap().measured;
        assert_eq!((newest.peak().unwrap().bytes.0.cast_signed(), newest.iteration_seconds.unwrap()), shown);
    }
}

/// Deleting a plan leaves nothing of it to be found.
#[tokio::test]
async fn a_deleted_plan_is_not_found() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    store.put_plan(&name, &content).await.unwrap();
    store.delete_plan(&name, "").await.unwrap();
    let left: i64 =
        sqlx::query_scalar("SELECT count(*) FROM plan_facts").fetch_one(store.pool()).await.unwrap();
    assert_eq!(left, 0);
}

/// A change names what changes; of many at the same moment all count, and what would be too much changes nothing.
#[tokio::test]
async fn labels_are_changed_one_by_one() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    store.put_plan(&name, &content).await.unwrap();
    let profile = content.profile.clone();
    let labels = async || -> Vec<String> {
        let page = PageRequest { size: 1, after: None };
        let of_plan = store.list_plans(&Query::default(), &page).await.unwrap().rows[0].labels.clone();
        let glance = store.glance_at_plan(&name).await.unwrap().labels;
        assert_eq!(of_plan, glance.into_iter().collect());
        assert_eq!(store.get_profile(&profile).await.unwrap().labels, of_plan);
        of_plan.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
    };
    let change = |replaces_all, removed: &[&str], set: &[(&str, &str)]| LabelChange {
        replaces_all,
        removed: removed.iter().map(|&key| key.to_owned()).collect(),
        set: set.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
    };
    let both = async |change: &LabelChange| {
        let plan = store.label_plan(&name, change, "").await;
        let profile = store.label_profile(&profile, change, "").await;
        assert_eq!(plan.is_ok(), profile.is_ok());
        plan
    };
    for (change, left) in [
        (change(false, &[], &[("a", "1"), ("b", "2")]), vec!["a=1", "b=2"]),
        (change(false, &["a", "z"], &[("b", "3"), ("c", "")]), vec!["b=3", "c="]),
        (change(true, &[], &[("d", "4")]), vec!["d=4"]),
        (change(true, &[], &[]), vec![]),
    ] {
        both(&change).await.unwrap();
        assert_eq!(labels().await, left);
    }
    let keys: Vec<String> = (0..MAX_LABELS).map(|index| format!("k{index}")).collect();
    let changes: Vec<LabelChange> = keys.iter().map(|key| change(false, &[], &[(key, "v")])).collect();
    futures_util::future::join_all(changes.iter().map(&both)).await.into_iter().for_each(Result::unwrap);
    assert_eq!(labels().await.len(), MAX_LABELS);
    let refused = both(&change(false, &[], &[("one_more", "v")])).await;
    assert!(matches!(refused, Err(StoreError::TooManyLabels { .. })), "{refused:?}");
    both(&change(false, &["k0"], &[("one_more", "v")])).await.unwrap();
    assert_eq!(labels().await.len(), MAX_LABELS);
    let nobody = store.label_plan(&PlanName::from_id("nobody").unwrap(), &change(true, &[], &[]), "").await;
    assert!(matches!(nobody, Err(StoreError::NotFound { .. })), "{nobody:?}");
    assert_eq!(store.put_plan(&name, &content).await.unwrap().content, content, "the plan is as it was");
}
