//! Lists over the wire: every page fits into any client's messages, and every row comes once; what nothing rests on
//! is deleted; and a plan that nobody here could train is told so.

mod measured;
pub(crate) mod scene;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use loadmaster::store::records::{Fenced, NewLinkRun, NewRun, NewTrial};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::{
    Cluster, ClusterDevice, ClusterParts, ClusterSource, DeviceKind, Link, LinkOrigin, Node,
};
use loadmaster_proto::measure::links::{
    Collectives, GroupLink, LinkMeasurement, LinkPoint, LinkWork, PairLink,
};
use loadmaster_proto::measure::run::Work;
use loadmaster_proto::name::{ClusterName, PlanName, WorkerName};
use loadmaster_proto::plan::comparison::FrontPoint;
use loadmaster_proto::plan::report::{Measured, Report};
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::plan::{PlacedDevice, Plan, PlanStage};
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::wire::longrunning::ListOperationsRequest;
use loadmaster_proto::wire::v1;
use loadmaster_tests::{Planner, Worker, WorkerOptions, call, cli, json, plain_strategy, wait_until};
use prost::Message;
use scene::{LEASE, Scene, content, free, measurement, run, worker};
use tonic::Code;
use tonic_types::StatusExt;

/// What every page ends before.
const MOST_BYTES: usize = 1 << 20;

/// All pages of a list, the largest that may be asked for, by a client with the usual limits: the names of the rows,
/// and how many pages ended before they had 1,000 rows though more followed.
macro_rules! walk {
    ($channel:expr, $rows:ident, $request:expr) => {{
        let (mut names, mut cut, mut page_token) = (Vec::<String>::new(), 0, String::new());
        loop {
            let mut request = $request;
            (request.page_size, request.page_token) = (1_000, page_token);
            let page = call($channel, request).await.expect(stringify!($rows));
            let bytes = page.encoded_len();
            assert!(bytes <= MOST_BYTES, "{} have a page of {bytes} bytes", stringify!($rows));
            assert!(!page.$rows.is_empty() || page.next_page_token.is_empty(), "a page without rows goes on");
            names.extend(page.$rows.iter().map(|row| row.name.clone()));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break (names, cut);
            }
            cut += usize::from(page.$rows.len() < 1_000);
        }
    }};
}

/// The rows that were there before come once each, the newest first, whatever was stored in the meantime.
fn once_each(list: &str, (names, _): &(Vec<String>, usize), mut expected: Vec<String>) {
    let known: BTreeSet<&String> = expected.iter().collect();
    let listed: Vec<String> = names.iter().filter(|name| known.contains(name)).cloned().collect();
    expected.reverse();
    assert_eq!(listed.len(), expected.len(), "{list}: rows that were listed of those that were there");
    assert!(listed == expected, "{list} is in order and lists each row once");
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{list} lists a row twice");
}

/// A plan whose row is long: its framework's version is.
fn wordy(plan: &Plan, solver: usize) -> Plan {
    let asked = Goal { framework_version: "v".repeat(2_000), ..Goal::default() };
    Plan { solver: format!("solver/{solver}"), asked, ..plan.clone() }
}

/// A run whose row is long: a stage for each layer.
fn long_run() -> NewRun {
    let stages = (0..30).map(|layer| StageConfig::single(layer, layer)).collect();
    let work = Work::Partitioning(Partitioning::new(stages).unwrap());
    NewRun { strategy: plain_strategy(work), device_count: 30, ..run() }
}

fn reported() -> Report {
    Report {
        measured: Measured { iteration_seconds: Some(1.0), stage_peaks: Vec::new() },
        iterations: 1,
        device_kind: None,
        source: "s".repeat(Report::MAX_SOURCE),
    }
}

/// Keeps storing newer rows of every kind until it is told to stop.
async fn meanwhile(scene: &Scene, plan: &Plan, observed: &PlanName, stop: &AtomicBool) {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        scene.model(100_000 + number).await;
        scene.plan(&format!("late{number}"), &wordy(plan, 1_000_000 + number as usize)).await;
        scene.profile(&format!("late{number}"), vec![run()]).await;
        scene.store.upsert_worker(&worker(&format!("late{number}"), 1), LEASE).await.unwrap();
        scene.store.put_report(observed, &reported(), None).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Thousands of rows, of which many are long, while others come: no page is longer than 1 MiB, which is a quarter of
/// what a client takes that nobody configured, and none of the rows that were there is left out or comes twice.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_short_and_every_row_comes_once() {
    let scene = Scene::new().await;
    let channel = scene.planner.channel().await;
    let model = scene.model(10).await;
    let profile = scene.profile("first", vec![long_run(); 2_500]).await;
    let plan = content(&profile, &model, "cpu", &[10, 20]);
    let mut models = vec![model.to_string()];
    for classes in 11..1_200 {
        models.push(scene.model(classes).await.to_string());
    }
    let mut plans = Vec::new();
    for number in 0..1_200 {
        plans.push(scene.plan(&format!("p{number}"), &wordy(&plan, number)).await.to_string());
    }
    let observed = PlanName::from_id("p7").unwrap();
    let mut reports = Vec::new();
    for _ in 0..1_500 {
        reports.push(scene.store.put_report(&observed, &reported(), None).await.unwrap().name());
    }
    let mut profiles = vec![profile.to_string()];
    for number in 0..40 {
        profiles.push(scene.profile(&format!("of{number}"), Vec::new()).await.to_string());
    }
    for name in scene.store.unsettled_operations().await.unwrap() {
        // What a profile of thousands of layers lacks.
        scene.store.finish_profile_operation(&name, &vec!["m".repeat(500); 2_000]).await.ok();
    }
    let mut workers = Vec::new();
    for number in 0..30 {
        let new = worker(&format!("w{number}"), 1_024);
        workers.push(scene.store.upsert_worker(&new, LEASE).await.unwrap().name.to_string());
    }

    let stop = AtomicBool::new(false);
    let walked = async {
        once_each("models", &walk!(&channel, models, v1::ListModelsRequest::default()), models);

        let walked = walk!(&channel, plans, v1::ListPlansRequest::default());
        assert!(walked.1 > 0, "plans filled a page");
        once_each("plans", &walked, plans);
        let all = v1::ListReportsRequest { parent: "plans/-".to_owned(), ..Default::default() };
        let walked = walk!(&channel, reports, all.clone());
        assert!(walked.1 > 0, "reports filled a page");
        once_each("reports", &walked, reports);

        let walked = walk!(&channel, profiles, v1::ListProfilesRequest::default());
        once_each("profiles", &walked, profiles);
        let walked = walk!(&channel, runs, v1::ListRunsRequest::default());
        assert!(walked.0.len() >= 2_500, "{} runs", walked.0.len());
        once_each("runs", &walked, Vec::new());

        let walked = walk!(&channel, workers, v1::ListWorkersRequest::default());
        assert!(walked.1 > 0, "workers filled a page");
        once_each("workers", &walked, workers);

        let request = ListOperationsRequest { name: "operations".to_owned(), ..Default::default() };
        let walked = walk!(&channel, operations, request.clone());
        assert!(walked.0.len() >= 41, "{} operations", walked.0.len());
        once_each("operations", &walked, Vec::new());
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(walked, meanwhile(&scene, &plan, &observed, &stop));
}

fn cluster(nodes: usize) -> Cluster {
    let link = Link { bytes_per_second: 1e9, latency_seconds: 2e-6, origin: LinkOrigin::Given };
    let device = ClusterDevice {
        index: 0,
        kind: "gpu".to_owned(),
        uuid: String::new(),
        pci_bus_id: String::new(),
        slot: String::new(),
        usable: None,
    };
    let node = |index: usize| Node {
        name: format!("n{index}"),
        labels: Default::default(),
        driver_version: String::new(),
        devices: vec![device.clone()],
        link: Some(link),
        link_class: None,
        links: Vec::new(),
        network: Some(link),
        network_links: None,
        copies: None,
        updates: Vec::new(),
    };
    Cluster::new(ClusterParts {
        kinds: vec![DeviceKind {
            name: "gpu".to_owned(),
            memory: Bytes(100),
            usable: Bytes(90),
            hourly_price: None,
        }],
        nodes: (0..nodes).map(node).collect(),
        tiers: Vec::new(),
        domains: Vec::new(),
        source: ClusterSource::Written,
        warnings: Vec::new(),
    })
    .unwrap()
}

/// The largest measurement of links that there is: every pair of 64 devices, at 16 sizes.
fn links(work: &LinkWork) -> LinkMeasurement {
    let point = |payload_bytes: u64| LinkPoint { payload_bytes, seconds: payload_bytes as f64 / 1e9 };
    let points: Vec<LinkPoint> = work.payload_bytes.iter().copied().map(point).collect();
    let pairs = (0..work.devices).flat_map(|a| (a + 1..work.devices).map(move |b| (a, b)));
    LinkMeasurement {
        device_ids: (0..work.devices).map(|index| format!("gpu{index}")).collect(),
        transport: Collectives::Host,
        pairs: pairs.map(|(a, b)| PairLink::new(a, b, points.clone()).unwrap()).collect(),
        groups: vec![GroupLink::new((0..work.devices).collect(), points).unwrap()],
        environment: Default::default(),
        copies: None,
        updates: Vec::new(),
    }
}

/// What workers measure is long by itself; pages of it end early.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_measurements_are_short_too() {
    let scene = Scene::new().await;
    let channel = scene.planner.channel().await;
    let store = &scene.store;
    let by = WorkerName::from_id("w").unwrap();
    store.upsert_worker(&worker("w", 64), LEASE).await.unwrap();
    let mut clusters = Vec::new();
    for nodes in 1..60 {
        let name = ClusterName::from_id(format!("c{nodes}")).unwrap();
        store.put_cluster(&name, cluster(nodes), None).await.unwrap();
        clusters.push(name.to_string());
    }
    once_each("clusters", &walk!(&channel, clusters, v1::ListClustersRequest::default()), clusters);

    let payload_bytes = (0..16).map(|power| 4_096 << power).collect();
    let work = LinkWork { devices: 64, payload_bytes, repeats: 3 };
    let mut measured = Vec::new();
    for _ in 0..6 {
        let new = NewLinkRun {
            worker: by.clone(),
            work: work.clone(),
            device_kind: "nobody has it".to_owned(),
            min_capacity: 1 << 20,
            deadline_seconds: 600,
        };
        store.create_link_runs(&[new], None).await.unwrap();
        let claim = store.claim_run(&by, &free(64), &free(64), LEASE).await.unwrap().expect("a run waits");
        let fenced = store.complete_links(&by, &claim.run, claim.lease_token, &links(&work), 1.0).await;
        assert_eq!(fenced.unwrap(), Fenced::Applied);
        measured.push(format!("{by}/linkMeasurements/{}", claim.run.id()));
    }
    for parent in ["workers/-".to_owned(), by.to_string()] {
        let request = v1::ListLinkMeasurementsRequest { parent, ..Default::default() };
        let walked = walk!(&channel, link_measurements, request.clone());
        assert!(walked.1 > 0, "measurements of links filled a page");
        once_each("link measurements", &walked, measured.clone());
    }
    let none = call(&channel, v1::ListLinkMeasurementsRequest::default()).await.unwrap_err();
    assert_eq!(none.get_details_bad_request().unwrap().field_violations[0].field, "parent");

    let profile = scene.profile("measured", vec![run(); 200]).await;
    for _ in 0..200 {
        let claim = store.claim_run(&by, &free(1), &free(1), LEASE).await.unwrap().expect("a run waits");
        let fenced = store.complete_run(&by, &claim.run, claim.lease_token, &[measurement()], 1.0).await;
        assert_eq!(fenced.unwrap(), Fenced::Applied);
    }
    let request = v1::ListMeasurementsRequest { parent: profile.to_string(), ..Default::default() };
    let walked = walk!(&channel, measurements, request.clone());
    assert!(walked.1 > 0, "measurements filled a page");
    assert_eq!(walked.0.len(), 200);
    let whole = v1::ListMeasurementsRequest { view: v1::ResourceView::Full.into(), ..request.clone() };
    assert_eq!(walk!(&channel, measurements, whole.clone()).0, walked.0, "the same in FULL view");
    let first = call(&channel, v1::ListMeasurementsRequest { page_size: 1, ..whole }).await.unwrap();
    let name = walked.0[0].clone();
    let own = call(&channel, v1::GetMeasurementRequest { name }).await.unwrap();
    assert_eq!(first.measurements, [own]);
    once_each("measurements", &walked, Vec::new());
    let ordered =
        v1::ListMeasurementsRequest { order_by: "micro_batch_size, run desc".to_owned(), ..request.clone() };
    let walked = walk!(&channel, measurements, ordered.clone());
    let mut names = walked.0;
    assert!(names.is_sorted_by(|one, next| one > next), "in the order that was asked for");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 200);
}

/// Sizes that cannot be and tokens of other lists are refused by name; more than is ever sent is no error (AIP-158).
#[tokio::test(flavor = "multi_thread")]
async fn page_sizes_and_tokens_are_checked() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    for number in 0..60 {
        let plan = content(&profile, &model, "cpu", &[30]);
        scene.plan(&format!("p{number}"), &wordy(&plan, number)).await;
    }
    let channel = scene.planner.channel().await;
    let list = async |page_size: i32, page_token: &str| {
        let request =
            v1::ListPlansRequest { page_size, page_token: page_token.to_owned(), ..Default::default() };
        call(&channel, request).await
    };
    let field = |refused: Result<v1::ListPlansResponse, tonic::Status>| {
        let refused = refused.expect_err("it is refused");
        assert_eq!(refused.code(), Code::InvalidArgument);
        let violations = refused.get_details_bad_request().expect("fields are named").field_violations;
        violations[0].field.clone()
    };
    let first = list(0, "").await.unwrap();
    assert_eq!(first.plans.len(), 50, "0 means the default");
    assert_eq!(list(7, "").await.unwrap().plans.len(), 7);
    assert_eq!(list(i32::MAX, "").await.unwrap().plans.len(), 60);
    let rest = list(i32::MAX, &first.next_page_token).await.unwrap();
    assert_eq!((rest.plans.len(), rest.next_page_token.as_str()), (10, ""));
    for size in [-1, i32::MIN] {
        assert_eq!(field(list(size, "").await), "page_size");
    }
    assert_eq!(field(list(0, "nonsense").await), "page_token");
    assert_eq!(field(list(0, &"A".repeat(100_000)).await), "page_token");
    let token = first.next_page_token;
    let foreign = v1::ListModelsRequest { page_token: token, ..Default::default() };
    let foreign = call(&channel, foreign).await;
    assert_eq!(foreign.expect_err("it is of another list").code(), Code::InvalidArgument);
}

/// A stage on a thousand devices names them in a few ranges, and lists count them.
#[tokio::test(flavor = "multi_thread")]
async fn devices_are_ranges() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    let devices = (0..1_024).map(|device: u32| PlacedDevice {
        node: format!("node{:03}", device / 8),
        index: device % 8,
        uuid: String::new(),
        kind: "cpu".to_owned(),
        capacity: 1 << 30,
    });
    let plan = content(&profile, &model, "cpu", &[30]);
    let wide = PlanStage {
        config: StageConfig { data_degree: 512, tensor_degree: 2, ..StageConfig::single(0, 29) },
        devices: devices.collect(),
        ..plan.stages[0].clone()
    };
    scene.plan("wide", &Plan { stages: vec![wide], ..plan }).await;
    let channel = scene.planner.channel().await;
    let whole = call(&channel, v1::GetPlanRequest { name: "plans/wide".to_owned(), ..Default::default() })
        .await
        .unwrap();
    let ranges = &whole.stages[0].device_ranges;
    assert_eq!(ranges.len(), 128);
    let last = &ranges[127];
    assert_eq!((last.node.as_str(), last.first_index, last.count), ("node127", 0, 8));
    assert_eq!((whole.layout_notation.as_str(), whole.device_count), ("30d512t2", 1_024));
    assert!(whole.encoded_len() < 16 << 10, "{} bytes", whole.encoded_len());

    let listed = call(&channel, v1::ListPlansRequest::default()).await.unwrap().plans;
    assert_eq!((listed[0].layout_notation.as_str(), listed[0].device_count), ("30d512t2", 1_024));
    let group = v1::DeviceGroup { count: 1_024, capacity_bytes: 1 << 30, kind: "cpu".to_owned() };
    assert_eq!(listed[0].devices, [group]);
    assert!(listed[0].stages.is_empty());

    // Each view is the same of a list and of one plan.
    let full = v1::ListPlansRequest { view: v1::ResourceView::Full.into(), ..Default::default() };
    assert_eq!(call(&channel, full).await.unwrap().plans, [whole]);
    let basic = v1::GetPlanRequest { name: "plans/wide".to_owned(), view: v1::ResourceView::Basic.into() };
    assert_eq!(call(&channel, basic).await.unwrap(), listed[0]);
    let wrong = v1::GetPlanRequest { name: "plans/wide".to_owned(), view: 77 };
    let refused = call(&channel, wrong).await.unwrap_err();
    assert!(refused.message().starts_with("view: "), "{refused}");

    let shown = cli(&scene.planner, &["plan", "show", "wide", "--picture=devices"]);
    assert!(shown.stdout.contains("1,024 devices of 128 nodes"), "{}{}", shown.stdout, shown.stderr);
    let table = cli(&scene.planner, &["plan", "list"]).stdout;
    for told in ["pipeline layout", "30d512t2", "1024", "512.00 MiB"] {
        assert!(table.contains(told), "{told}:\n{table}");
    }
}

/// Workers are there and none could ever hold the plan: the call says so at once, what lacks and what could be done.
/// One that could, were it not cordoned, or none at all: the trial waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_nobody_here_could_train_is_told_so() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    let four = content(&profile, &model, "cpu", &[8, 8, 7, 7]);
    scene.plan("four", &four).await;
    let elsewhere = content(&profile, &model, "NVIDIA H200", &[8, 8, 7, 7]);
    scene.plan("elsewhere", &elsewhere).await;
    let slots =
        |name: &str, slots: &str| WorkerOptions { name: name.to_owned(), ..WorkerOptions::slots(slots) };
    let _small = Worker::start(&scene.planner, &slots("small", "2x1GiB"));
    let channel = scene.planner.channel().await;
    let validate = async |name: &str| {
        call(&channel, v1::StartTrialRequest { name: name.to_owned(), ..Default::default() }).await
    };
    let refused = validate("plans/four").await.expect_err("two slots do not hold four stages");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let info = refused.get_details_error_info().expect("errors have a reason");
    assert_eq!(info.reason, "NO_WORKER_FITS");
    for (key, value) in [
        ("plan", "plans/four"),
        ("device_kind", "cpu"),
        ("device_count", "4"),
        ("worker", "workers/small"),
        ("worker_devices", "2"),
        ("stages", "0,1,2,3"),
    ] {
        assert_eq!(info.metadata.get(key).map(String::as_str), Some(value), "{key} of {:?}", info.metadata);
    }
    let remedies = &info.metadata["remedies"];
    for told in [
        "`stage_indices`): 4 of 4 stages fit alone",
        "2 × 1.00 GiB each",
        "start a worker with 4",
        "train four with your own framework",
    ] {
        assert!(remedies.contains(told), "{told}: {remedies}");
    }
    let operations = json(&scene.planner, &["operation", "list"]);
    assert_eq!(
        operations["operations"].as_array().map(Vec::len),
        Some(1),
        "the profile's alone: {operations}"
    );
    let told = cli(&scene.planner, &["plan", "trial", "four"]);
    assert!(told.code != 0 && told.stderr.contains("has 2 such devices"), "{told:?}");

    let _large = Worker::start(&scene.planner, &slots("large", "4x1GiB"));
    assert_eq!(cli(&scene.planner, &["worker", "cordon", "large"]).code, 0);
    let waiting = validate("plans/four").await.expect("a cordon may be undone");
    assert!(!waiting.done);
    let waiting = validate("plans/elsewhere").await.expect("no worker of its kind is there yet");
    let shown = json(&scene.planner, &["operation", "show", &waiting.name]);
    let message = shown["metadata"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("no connected worker has 4 devices of kind NVIDIA H200"), "{shown}");
}

/// A trial that takes more of a host's memory than any worker offers says so, and begins when one comes that offers it.
#[tokio::test(flavor = "multi_thread")]
async fn a_trial_waits_for_a_worker_that_offers_the_memory_of_its_host() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    let plan = scene.plan("two", &content(&profile, &model, "cpu", &[15, 15])).await;
    let pool = |bytes| StageActions { host_pool: Bytes(bytes), ..StageActions::default() };
    let stages = Work::Partitioning(Partitioning::from_sizes(&[15, 15]).unwrap());
    let trial = NewRun {
        strategy: plain_strategy(stages).with_actions(vec![pool(3 << 20), pool(1 << 20)]).unwrap(),
        device_kind: "cpu".to_owned(),
        device_count: 2,
        iterations: 1,
        ..run()
    };
    let trials = [NewTrial { plan: plan.clone(), run: trial }];
    let operation = scene.store.create_validation(&plan, &trials, None).await.unwrap();
    let with = |name: &str, arguments: &str| {
        WorkerOptions { name: name.to_owned(), ..WorkerOptions::default() }.with(arguments)
    };
    let _little = Worker::start(&scene.planner, &with("little", "--host-memory 3MiB"));
    let shown = json(&scene.planner, &["operation", "show", operation.id()]);
    let message = shown["metadata"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("4.00 MiB of CPU (host) memory"), "{shown}");

    let offer = "--host-memory 4MiB --cpu-links host=1GB/s";
    let _enough = Worker::start(&scene.planner, &with("enough", offer));
    let table = cli(&scene.planner, &["worker", "show", "enough"]).stdout;
    for told in ["4.00 MiB", "at most 1 GB/s with the host, each way"] {
        assert!(table.contains(told), "{told}:\n{table}");
    }
    let run = wait_until("the trial is leased", || {
        let runs = json(&scene.planner, &["run", "list", "--operation", operation.id()]);
        Some(runs["runs"][0].clone()).filter(|run| run["worker"].as_str().is_some_and(|by| !by.is_empty()))
    });
    assert_eq!(run["worker"], "workers/enough");
    assert_eq!(run["hostMemoryBytes"], "4194304");
}

/// What cannot have been measured of a plan is refused by the field that says it.
#[tokio::test(flavor = "multi_thread")]
async fn figures_that_cannot_be_are_refused() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    scene.plan("cpu", &content(&profile, &model, "cpu", &[10, 20])).await;
    scene.plan("gpu", &content(&profile, &model, "NVIDIA H200", &[10, 20])).await;
    let channel = scene.planner.channel().await;
    let report = async |plan: &str, seconds: f64, peaks: &[i64], ledger: v1::MemoryAccounting, kind: &str| {
        let peak = |&bytes: &i64| v1::MemoryFigure { bytes, accounting: ledger.into(), ..Default::default() };
        let report = v1::Report {
            iteration_seconds: seconds,
            stage_peaks: peaks.iter().map(peak).collect(),
            iteration_count: 1,
            device_kind: kind.to_owned(),
            ..Default::default()
        };
        let request = v1::CreateReportRequest {
            parent: plan.to_owned(),
            report: Some(report),
            request_id: String::new(),
        };
        match call(&channel, request).await {
            Ok(_) => None,
            Err(status) => {
                assert_eq!(status.code(), Code::InvalidArgument, "{status}");
                Some(status.get_details_bad_request().expect("fields").field_violations[0].field.clone())
            }
        }
    };
    const GIB: i64 = 1 << 30;
    use v1::MemoryAccounting::{Allocated, Device};
    for (plan, seconds, peaks, ledger, kind, refused) in [
        ("plans/cpu", 1.0, &[GIB, 57 * GIB][..], Allocated, "", Some("report.stage_peaks[1].bytes")),
        ("plans/cpu", 1.0, &[GIB + 1, GIB], Allocated, "cpu", Some("report.stage_peaks[0].bytes")),
        ("plans/cpu", 1.0, &[GIB, GIB], Allocated, "", None),
        ("plans/cpu", 1.0, &[GIB, GIB + 1], Device, "", None),
        ("plans/gpu", 1.0, &[2 * GIB, GIB], Device, "", None),
        ("plans/gpu", 1.0, &[2 * GIB + 1, GIB], Device, "", Some("report.stage_peaks[0].bytes")),
        ("plans/gpu", 1.0, &[57 * GIB, GIB], Device, "NVIDIA B200", None),
        ("plans/gpu", 1.0, &[GIB, -1], Device, "", Some("report.stage_peaks[1].bytes")),
        ("plans/gpu", 1.0, &[GIB, i64::MIN], Device, "", Some("report.stage_peaks[1].bytes")),
        ("plans/gpu", 1.0, &[GIB, 0], Device, "", Some("report.stage_peaks[1].bytes")),
        ("plans/gpu", 1.0, &[GIB; 3], Device, "", Some("report.stage_peaks")),
        ("plans/gpu", 1.0, &[GIB], Device, "", Some("report.stage_peaks")),
        ("plans/gpu", -1.0, &[], Device, "", Some("report.iteration_seconds")),
        ("plans/gpu", 0.0, &[], Device, "", Some("report.iteration_seconds")),
        ("plans/gpu", f64::NAN, &[], Device, "", Some("report.iteration_seconds")),
        ("plans/gpu", f64::INFINITY, &[], Device, "", Some("report.iteration_seconds")),
        ("plans/gpu", 1e308, &[], Device, "", Some("report.iteration_seconds")),
        ("plans/gpu", 1.0, &[], Device, "", None),
    ] {
        let got = report(plan, seconds, peaks, ledger, kind).await;
        assert_eq!(got.as_deref(), refused, "{plan} {seconds} {peaks:?} {ledger:?} {kind:?}");
    }
}

/// The command line deletes resources that nothing references, and names the references of the others.
#[tokio::test(flavor = "multi_thread")]
async fn resources_that_nothing_references_are_deleted() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    scene.plan("used", &content(&profile, &model, "cpu", &[10, 20])).await;
    let planner = &scene.planner;
    let report = json(planner, &["plan", "report", "used", "--iteration-time", "1s"]);
    let report = report["name"].as_str().expect("a report has a name");

    let request = v1::DeletePlanRequest { name: "plans/used".to_owned(), force: false, etag: String::new() };
    let refused = call(&planner.channel().await, request).await.expect_err("a report references it");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let info = refused.get_details_error_info().expect("errors have a reason");
    assert_eq!((info.reason.as_str(), info.metadata["resource"].as_str()), ("RESOURCE_IN_USE", "plans/used"));
    let violations = refused.get_details_precondition_failure().expect("the report is named").violations;
    assert_eq!(violations.len(), 1);
    assert_eq!((violations[0].r#type.as_str(), violations[0].subject.as_str()), ("REPORT", report));

    for of in ["plan", "profile"] {
        let name = if of == "plan" { "used" } else { "first" };
        let shown = json(planner, &[of, "show", name]);
        let label = |etag| cli(planner, &[of, "label", name, "team=vision", "--etag", etag]);
        assert_eq!(label(shown["etag"].as_str().expect("an etag")).code, 0);
        let late = label(shown["etag"].as_str().expect("an etag"));
        assert!(late.code == 1 && late.stderr.contains("ETAG_MISMATCH"), "{late:?}");
        let late = cli(planner, &[of, "delete", name, "--etag", "\"other\""]);
        assert!(late.code == 1 && late.stderr.contains("ETAG_MISMATCH"), "{late:?}");
    }
    let other = cli(planner, &["plan", "delete", report, "--etag", "x"]);
    assert!(other.code == 2 && other.stderr.contains("has no etag"), "{other:?}");
    assert!(refused.message().contains("Set `force`"), "the remedy is named: {refused}");
    let refused = cli(planner, &["plan", "delete", "used"]);
    assert!(refused.code != 0 && refused.stderr.contains("Set `--with-trials`"), "{refused:?}");
    let refused = cli(planner, &["profile", "delete", "first"]);
    assert!(refused.code != 0 && refused.stderr.contains("--with-plans"), "{refused:?}");
    let shown = json(planner, &["plan", "reports", report]);
    assert_eq!((&shown["name"], &shown["iterationSeconds"]), (&report.into(), &1.0.into()), "{shown}");
    let wrong = cli(planner, &["plan", "delete", "plans/used/reports/Not_An_Id"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    for arguments in [["plan", "delete", report], ["plan", "delete", "used"]] {
        let deleted = cli(planner, &arguments);
        assert!(deleted.code == 0 && deleted.stderr.contains("is deleted"), "{deleted:?}");
    }
    assert!(cli(planner, &["plan", "list"]).stdout.contains("no plans"));
    let missing = cli(planner, &["plan", "delete", "used"]);
    assert_eq!(missing.code, 3, "{missing:?}");
    let shown = json(planner, &["profile", "show", "first"]);
    let operation = shown["operation"].as_str().expect("a profile has an operation");
    let refused = cli(planner, &["profile", "delete", "first"]);
    assert!(refused.code != 0 && refused.stderr.contains(operation), "it is measured: {refused:?}");
    assert!(
        refused.stderr.contains(&format!("{operation} references it. Cancel the operation first")),
        "{refused:?}"
    );
    assert_eq!(cli(planner, &["operation", "cancel", operation]).code, 0);
    scene.plan("tried", &content(&profile, &model, "cpu", &[10, 20])).await;
    json(planner, &["plan", "report", "tried", "--iteration-time", "1s"]);
    let deleted = cli(planner, &["plan", "delete", "tried", "--with-trials"]);
    assert_eq!(deleted.code, 0, "{deleted:?}");
    assert!(cli(planner, &["plan", "list"]).stdout.contains("no plans"));
    // More plans than an error names, each but the first of which names the one before.
    for number in 0..15 {
        let mut plan = content(&profile, &model, "cpu", &[10, 20]);
        let named = (number > 0).then(|| PlanName::from_id(format!("named{:02}", number - 1)).unwrap());
        plan.found.front.extend(named.map(|name| FrontPoint {
            plan: Some(name),
            summary: plan.outline().unwrap(),
            recompute: Vec::new(),
        }));
        scene.plan(&format!("named{number:02}"), &plan).await;
    }
    json(planner, &["plan", "report", "named07", "--iteration-time", "1s"]);
    assert_ne!(cli(planner, &["profile", "delete", "first"]).code, 0);
    let deleted = cli(planner, &["profile", "delete", "first", "--with-plans"]);
    assert!(deleted.code == 0 && deleted.stderr.contains("15 plans"), "{deleted:?}");
    assert!(cli(planner, &["plan", "list"]).stdout.contains("no plans"));
    assert!(cli(planner, &["profile", "list"]).stdout.contains("no profiles"));
}

/// Whatever a list is of, a mistake in what was typed is told by the option, not by the field of a request.
#[test]
fn mistakes_in_filters_are_told_by_the_option() {
    let planner = Planner::start();
    let nouns = ["cluster", "model", "operation", "plan", "profile", "run", "worker"];
    let lists = nouns.map(|noun| vec![noun, "list"]);
    let more = [
        vec!["plan", "placements"],
        vec!["plan", "export", "--list"],
        vec!["plan", "errors", "--pairs"],
        vec!["profile", "measurements", "none"],
    ];
    for list in lists.iter().chain(&more) {
        let told = cli(&planner, &[&list[..], &["--filter", "no_such_field = 1"]].concat());
        assert!(told.code == 2 && told.stderr.contains("--filter: "), "{list:?}: {told:?}");
        assert!(!told.stderr.contains(" filter: "), "{list:?}: {told:?}");
    }
    for list in more {
        let told = cli(&planner, &[&list[..], &["--order-by", "no_such_field"]].concat());
        assert!(told.code == 2 && told.stderr.contains("--order-by: "), "{list:?}: {told:?}");
    }
    let told = cli(&planner, &["operation", "list", "--order-by", "create_time"]);
    assert!(
        told.code == 2 && told.stderr.contains("--order-by: operations are always listed newest first"),
        "{told:?}"
    );
    for verb in ["show", "wait", "cancel", "delete"] {
        let told = cli(&planner, &["operation", verb, "none"]);
        assert!(told.code == 3, "{verb}: {told:?}");
    }
}
