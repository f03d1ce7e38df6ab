//! What plans needed when they were trained, in lists: what a filter asks for is seen in the rows that it leaves.

use loadmaster::store::records::{Fenced, NewRun, NewTrial};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::Work;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::findings::{Findings, IterationEstimate};
use loadmaster_proto::plan::prediction::Origin;
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_tests::{cli, json, plain_strategy};

use super::scene::{LEASE, Scene, content, free, measurement, run, worker};

/// The same plan with so many seconds predicted.
fn timed(plan: &Plan, seconds: f64) -> Plan {
    let iteration = IterationEstimate {
        seconds,
        closed_form: seconds,
        bubble: 0.0,
        step: 0.0,
        origin: Origin::Profiled,
        links: "assumed".to_owned(),
        overlap: Overlap::Computing,
        overlap_reason: "for the test".to_owned(),
        margin: None,
    };
    Plan { found: Findings { iteration: Some(iteration), ..Findings::default() }, ..plan.clone() }
}

/// Three plans of 300 ms: `tried` took 250 ms in a trial, `reported` 600 ms by its user, on its own kind of device and then on
/// another; of `idle` nobody knows.
async fn scene() -> Scene {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    for (id, sizes) in [("tried", &[30][..]), ("reported", &[15, 15]), ("idle", &[10, 20])] {
        scene.plan(id, &timed(&content(&profile, &model, "cpu", sizes), 0.3)).await;
    }
    let tried = loadmaster_proto::name::PlanName::from_id("tried").expect("it is an id");
    let work = Work::Partitioning(Partitioning::from_sizes(&[30]).expect("they are sizes"));
    let trial = NewTrial { plan: tried.clone(), run: NewRun { strategy: plain_strategy(work), ..run() } };
    scene.store.create_validation(&tried, &[trial], None).await.expect("a trial is stored");
    scene.store.upsert_worker(&worker("w", 1), LEASE).await.expect("a worker is stored");
    let by = worker("w", 1).name;
    let claim = scene.store.claim_run(&by, &free(1), &free(1), LEASE).await.expect("runs are claimed");
    let claim = claim.expect("the trial waits");
    let measured = Measurement {
        stage: StageConfig::single(0, 29),
        stage_count: 1,
        solo: false,
        peak_allocated: Bytes(400 << 20),
        iteration_seconds: 0.25,
        layers: Vec::new(),
        ..measurement()
    };
    let done = scene.store.complete_run(&by, &claim.run, claim.lease_token, &[measured], 1.0).await;
    assert_eq!(done.expect("the result is stored"), Fenced::Applied);
    json(&scene.planner, &["plan", "report", "reported", "--iteration-time", "600ms"]);
    scene
}

/// The cells of a plan's row by their titles; what is not there is a hyphen, whatever this machine's terminals can show.
fn row(table: &str, plan: &str) -> Vec<(String, String)> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(|cell| cell.replace('–', "-")).collect()
    };
    let mut lines = table.lines();
    let titles = cells(lines.next().unwrap_or_default());
    let row = lines.find(|line| line.split(' ').next() == Some(plan));
    let row = cells(row.unwrap_or_else(|| panic!("{plan} is not listed:\n{table}")));
    assert_eq!(titles.len(), row.len(), "{table}");
    titles.into_iter().zip(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_listed_with_what_their_trainings_needed() {
    let scene = scene().await;
    let list = |filter: &str, order_by: &str| {
        let shown = cli(&scene.planner, &["plan", "list", "--filter", filter, "--order-by", order_by]);
        assert_eq!(shown.code, 0, "{filter}: {shown:?}");
        shown.stdout
    };
    let has = |table: &str, plan: &str, wanted: &[(&str, &str)]| {
        let row = row(table, plan);
        for &(title, cell) in wanted {
            let found = row.iter().find(|(of, _)| of == title).map(|(_, cell)| cell.as_str());
            assert_eq!(found, Some(cell), "{title} of {plan}:\n{table}");
        }
    };
    let tried = [
        ("peak (allocated)", "512.00 MiB"),
        ("measured (allocated)", "400.00 MiB"),
        ("peak error", "+28.0 %"),
        ("iteration", "300.0 ms"),
        ("trials", "1"),
        ("measured seconds", "250.0 ms"),
        ("seconds error", "+20.0 %"),
    ];
    let reported = [
        ("iteration", "300.0 ms"),
        ("reports", "1"),
        ("reported seconds", "600.0 ms"),
        ("report error", "-50.0 %"),
    ];
    let all = list("", "");
    has(&all, "tried", &tried);
    has(&all, "reported", &reported);
    has(&all, "idle", &[("trials", "-"), ("measured seconds", "-"), ("reports", "-"), ("report error", "-")]);
    // What is filtered on is a figure that is shown.
    for filter in [
        "measured_seconds > 249ms AND measured_seconds < 251ms",
        "measured_peak = 400MiB",
        "seconds_error > 0.19 AND seconds_error < 0.21",
        "peak_error > 0.27",
    ] {
        let found = list(filter, "measured_seconds desc");
        has(&found, "tried", &tried);
        assert_eq!(found.lines().count(), 2, "{filter}:\n{found}");
    }
    for filter in ["reported_seconds = 600ms", "report_error > -0.51 AND report_error < -0.49"] {
        let found = list(filter, "reported_seconds desc");
        has(&found, "reported", &reported);
        assert_eq!(found.lines().count(), 2, "{filter}:\n{found}");
    }
    assert!(list("measured_seconds > 251ms", "").starts_with("no plans"));
    assert!(list("reported_seconds < 600ms", "").starts_with("no plans"));
    let ordered = list("", "measured_seconds, name");
    let names: Vec<&str> = ordered.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["tried", "idle", "reported"], "{ordered}");

    // Of another kind of device the newest report says nothing about the prediction.
    json(
        &scene.planner,
        &["plan", "report", "reported", "--iteration-time", "100ms", "--device-kind", "other"],
    );
    let all = list("", "");
    has(&all, "reported", &[("reports", "2"), ("reported seconds", "100.0 ms")]);
    assert!(!all.contains("report error"), "nobody knows:\n{all}");
    assert!(list("report_error:*", "").starts_with("no plans"));
    has(&list("reported_seconds = 100ms", ""), "reported", &[("reports", "2")]);
}

/// The pairs behind errors come in the order that is asked for, the newest first otherwise; a mistake is told with its place.
#[tokio::test(flavor = "multi_thread")]
async fn pairs_come_in_the_order_that_is_asked_for() {
    let scene = scene().await;
    let asked = |more: &[&str]| -> Vec<f64> {
        let answer = json(&scene.planner, &[&["plan", "errors", "--pairs"], more].concat());
        let pairs = answer["predictionPairs"].as_array().expect("there are pairs");
        pairs.iter().map(|pair| pair["measuredValue"].as_f64().expect("a number")).collect()
    };
    // Of 300 ms that were predicted.
    let (short, middling, long) = (0.25, 0.4, 0.6);
    json(&scene.planner, &["plan", "report", "tried", "--iteration-time", "250ms"]);
    json(&scene.planner, &["plan", "report", "idle", "--iteration-time", "400ms"]);
    assert_eq!(asked(&[]), [middling, short, long], "the newest first");
    assert_eq!(asked(&["--order-by", "error"]), [long, middling, short]);
    assert_eq!(asked(&["--order-by", "error desc"]), [short, middling, long]);
    let above = [
        "--filter",
        "quantity = iteration-seconds AND measured > 0.3",
        "--order-by",
        "device_kind desc, measured",
    ];
    assert_eq!(asked(&above), [middling, long]);
    let wrong = cli(&scene.planner, &["plan", "errors", "--pairs", "--order-by", "error, size"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("at character 8"), "{wrong:?}");
    let alone = cli(&scene.planner, &["plan", "errors", "--order-by", "error"]);
    assert!(alone.code == 2 && alone.stderr.contains("--pairs"), "{alone:?}");
}
