//! Pages for browsers: whole without a script, safe whatever is shown in them, and told of changes.

mod browser;
mod http;
mod links;

use std::time::Duration;

use loadmaster::store::records::Fenced;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::PlacedDevice;
use loadmaster_proto::plan::placement::Placement;
use loadmaster_tests::{cli, json};

use crate::lists::scene::{LEASE, Scene, content, free, measurement, run, worker};
use http::{Answer, Stream, get, request};

/// A planner with pages, a profile with a run that waits, and three plans; one is observed by somebody of bad intentions.
async fn scene() -> (Scene, String) {
    let scene = Scene::with(&["--web", "127.0.0.1:0"]).await;
    let (profile, model) = (scene.profile("first", vec![run()]).await, scene.model(10).await);
    for (id, sizes) in [("a1", &[10, 20]), ("b2", &[15, 15]), ("c3", &[20, 10])] {
        scene.plan(id, &content(&profile, &model, "cpu", sizes)).await;
    }
    let planner = &scene.planner;
    json(planner, &["plan", "label", "b2", "note=<script>alert(1)</script>"]);
    json(
        planner,
        &["plan", "report", "a1", "--iteration-time", "1s", "--source", "\"><img src=x onerror=alert(1)>"],
    );
    let pages = planner.pages().await;
    (scene, pages)
}

/// A plan with all that a page shows of one: a schedule of two thousand passes, a certificate, alternatives, baselines.
fn recommended(scene: &Scene) -> String {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/profile/table.json");
    let devices = ["--devices", "4x24GiB", "--pipeline-parallel-sizes", "4..", "--micro-batches", "256"];
    let line = ["plan", "recommend", "--profile", table, "--objective", "min-iteration-time"];
    let plan = json(&scene.planner, &[&line[..], &devices].concat());
    assert!(
        plan["certificate"].is_object() && plan["stages"].as_array().is_some_and(|all| all.len() == 4),
        "{plan}"
    );
    format!("/{}", plan["name"].as_str().expect("a plan has a name"))
}

/// Every page that there is a link to, from the first one on.
async fn walk(pages: &str) -> Vec<(String, Answer)> {
    let mut found: Vec<(String, Answer)> = Vec::new();
    let mut open = vec!["/".to_owned(), "/compare?plan=a1&plan=b2".to_owned()];
    while let Some(path) = open.pop() {
        if found.iter().any(|(seen, _)| *seen == path) {
            continue;
        }
        let answer = get(pages, &path).await;
        let parts = ["href=\"", "src=\""].map(|before| answer.body.split(before).skip(1));
        for part in parts.into_iter().flatten() {
            let link = part.split('"').next().unwrap_or_default().replace("&amp;", "&");
            if link.starts_with('/') && !link.starts_with("//") {
                open.push(link);
            }
        }
        found.push((path, answer));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_answers_is_small_and_runs_nothing_that_it_shows() {
    let (scene, pages) = scene().await;
    let whole = recommended(&scene);
    let all = walk(&pages).await;
    let drawn = all.iter().find(|(path, _)| *path == whole).expect("there is a link to it");
    assert!(drawn.1.body.contains("passes: each segment of the axis shows"), "its schedule is drawn");
    for wanted in [
        "/",
        "/plans",
        "/plans/a1",
        "/plans/a1/export",
        "/plans/a1/history",
        "/plans/a1/json",
        "/placements",
        "/profiles/first",
        "/runs",
        "/operations",
        "/workers",
        "/errors",
        "/style.css?0.1.0",
        "/live.js?0.1.0",
    ] {
        assert!(all.iter().any(|(path, _)| path == wanted), "no link leads to {wanted}");
    }
    assert!(all.len() > 30, "only {} pages", all.len());
    for (path, answer) in &all {
        assert!(matches!(answer.status, 200 | 409), "{path}: {} {}", answer.status, answer.body);
        assert!(answer.body.len() <= 150_000, "{path} has {} bytes", answer.body.len());
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        if !answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            continue;
        }
        for bad in [
            "<script>alert",
            "<img",
            "onerror=alert(1)>\"",
            " style=\"",
            "javascript:",
            "http://",
            "https://",
        ] {
            let shown = answer.body.replace("http://www.w3.org/2000/svg", "");
            assert!(!shown.contains(bad), "{path} has {bad}");
        }
        assert_eq!(answer.body.matches("<script").count(), 1, "{path}");
    }
    let history = all.iter().find(|(path, _)| path == "/plans/a1/history").expect("it is there");
    assert!(
        history.1.body.contains("&#60;img src=x onerror"),
        "the source is shown as it is: {}",
        history.1.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_filtered_ordered_and_divided_by_their_addresses() {
    let (scene, pages) = scene().await;
    let found = get(&pages, "/plans?filter=labels%3Anote").await;
    assert!(found.body.contains("/plans/b2\"") && !found.body.contains("/plans/a1\""), "{}", found.body);
    let wrong = get(&pages, "/plans?filter=solverr+%3D+%22%3Cb%3E%22").await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("at character 1") && wrong.body.contains("&#60;b&#62;"), "{}", wrong.body);
    assert!(get(&pages, "/errors?filter=no_such_field+%3D+1").await.body.contains("no_such_field"));
    assert_eq!(get(&pages, "/errors?filter=no_such_field+%3D+1").await.status, 400);
    assert_eq!(get(&pages, "/plans/none").await.status, 404);
    assert_eq!(get(&pages, "/plans/a1/export/no-such-framework").await.status, 400);
    assert_eq!(get(&pages, "/nothing").await.status, 404);

    let (profile, model) = (scene.profile("second", Vec::new()).await, scene.model(10).await);
    for layers in 1..30 {
        let sizes = [layers, 30 - layers];
        scene.plan(&format!("d{layers}"), &content(&profile, &model, "cpu", &sizes)).await;
        let sizes = [30 - layers, layers];
        scene.plan(&format!("e{layers}"), &content(&profile, &model, "cuda", &sizes)).await;
    }
    let first = get(&pages, "/plans?filter=profile+%3D+second").await;
    let next = first.body.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next());
    let next = next.expect("there is a next page").replace("&amp;", "&");
    let second = get(&pages, &format!("/plans{next}")).await;
    let names = |body: &str| body.matches("<td><a href=\"/plans/").count();
    assert_eq!((names(&first.body), names(&second.body)), (50, 8), "{next}");
    assert!(!second.body.contains("rel=\"next\""));
}

/// A placement of a plan to one node, which has this name.
async fn bind(scene: &Scene, plan: &str, node: &str) -> String {
    let device = PlacedDevice {
        node: node.to_owned(),
        index: 0,
        uuid: String::new(),
        kind: "cpu".to_owned(),
        capacity: 1 << 30,
    };
    let placement = Placement {
        plan: PlanName::from_id(plan).expect("it is an id"),
        cluster: None,
        stages: vec![vec![device]],
        idle: Vec::new(),
        seconds: None,
        planned: None,
        least: None,
        is_proven: false,
        gap: None,
        links: "assumed".to_owned(),
        warnings: Vec::new(),
    };
    let name = placement.name().expect("it has a name");
    scene.store.put_placement(&name, &placement).await.expect("it is stored").name.to_string()
}

/// Placements of all plans are a list like the others: each leads to itself and to its plan, whatever its nodes are called.
#[tokio::test(flavor = "multi_thread")]
async fn placements_are_listed_with_the_ways_to_them_and_to_their_plans() {
    let (scene, pages) = scene().await;
    let none = get(&pages, "/placements").await;
    assert!(none.status == 200 && none.body.contains("No rows."), "{}", none.body);
    let first = bind(&scene, "a1", "<img src=x onerror=alert(1)>").await;
    let mut all = vec![first.clone()];
    for node in 0..51 {
        all.push(bind(&scene, "b2", &format!("n{node:02}")).await);
    }

    let newest = get(&pages, "/placements").await.body;
    let rows = |body: &str| body.matches("<td><a href=\"/placements/").count();
    let next = newest.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next());
    let next = next.expect("there is a next page").replace("&amp;", "&");
    let rest = get(&pages, &format!("/placements{next}")).await.body;
    assert_eq!((rows(&newest), rows(&rest)), (50, 2), "{next}");
    assert!(!rest.contains("rel=\"next\""));
    let both = format!("{newest}{rest}");
    for name in &all {
        let id = name.trim_start_matches("placements/");
        assert!(both.contains(&format!("<td><a href=\"/{name}\">{id}</a></td>")), "{name}: {both}");
    }
    assert!(rest.contains("<td><a href=\"/plans/a1\">a1</a></td>"), "{rest}");
    assert_eq!(both.matches("<td><a href=\"/plans/b2\">b2</a></td>").count(), 51);
    assert!(
        rest.contains("1 node: &#60;img src=x onerror=alert(1)&#62;") && !rest.contains("<img"),
        "{rest}"
    );

    let found = get(&pages, "/placements?filter=plan+%3D+b2+AND+nodes%3An0*&order_by=nodes").await.body;
    let places: Vec<Option<usize>> = (0..10).map(|node| found.find(&format!("1 node: n{node:02}"))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{found}");
    assert_eq!(rows(&found), 10);
    let recent = get(&pages, "/placements?filter=create_time+%3C+2001-01-01").await;
    assert!(recent.status == 200 && recent.body.contains("No rows match the filter"), "{}", recent.body);
    for (wrong, why) in
        [("filter=nodess%3A%22%3Cb%3E%22", "at character 1"), ("order_by=nodes%2C+no_such", "at character 8")]
    {
        let answer = get(&pages, &format!("/placements?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(answer.body.contains(why) && !answer.body.contains("<b>"), "{wrong}: {}", answer.body);
    }
    assert_eq!(get(&pages, &format!("/{first}")).await.status, 200);
    for (path, answer) in walk(&pages).await {
        let is_page = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
        assert!(!is_page || !answer.body.contains("<img"), "{path} has it");
    }
    assert_eq!(request(&pages, "POST", "/placements", &[]).await.status, 405);
}

/// A placement is news to those who watch.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_placement_is_news() {
    let (scene, pages) = scene().await;
    let mut stream = Stream::open(&pages, None).await.expect("there is room");
    stream.next().await;
    bind(&scene, "c3", "n1").await;
    assert_eq!(stream.next().await.data, "placements");
}

/// What starts the processes, and on which devices, is chosen in a form, whose address says it all.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_for_the_devices_and_in_the_manifest_that_were_chosen() {
    let (scene, pages) = scene().await;
    let given = [
        "--nodes",
        "left,right",
        "--device-kind",
        "cpu",
        "--usable-memory",
        "64GiB",
        "--device-indices",
        "0",
    ];
    let placement = json(&scene.planner, &[&["plan", "place", "a1"], &given[..]].concat());
    let placement = placement["name"].as_str().expect("a placement has a name").to_owned();
    let path = "/plans/a1/export/torch-pipelining";
    let plain = get(&pages, path).await;
    assert_eq!(plain.status, 200);
    for part in [
        "<form class=\"ask\" method=\"get\">",
        "<select name=\"manifest\">",
        "<option value=\"jobset\">jobset</option>",
        &format!("<option value=\"{placement}\">{placement} on "),
        "<input name=\"image\" value=\"\"",
    ] {
        assert!(plain.body.contains(part), "{part}: {}", plain.body);
    }
    assert!(!plain.body.contains("right slots"), "{}", plain.body);

    // As a browser writes what a form says: also what was left as it is.
    let chosen = format!(
        "?version=&placement={}&manifest=jobset&image=train%3A1&queue=",
        placement.replace('/', "%2F")
    );
    let jobset = get(&pages, &format!("{path}{chosen}")).await;
    assert_eq!(jobset.status, 200, "{}", jobset.body);
    for part in [
        "<option value=\"jobset\" selected>",
        &format!("<option value=\"{placement}\" selected>"),
        "<input name=\"image\" value=\"train:1\"",
        "<h2>jobset.yaml</h2>",
        "kind: JobSet",
        "kubernetes.io/hostname: left",
        "kubernetes.io/hostname: right",
        &placement,
    ] {
        assert!(jobset.body.contains(part), "{part}: {}", jobset.body);
    }
    // Pods of one template are on no nodes of their own.
    let job = get(&pages, &format!("{path}{}", chosen.replace("jobset", "job"))).await;
    assert!(job.body.contains("Use the manifest jobset") && !job.body.contains("job.yaml"), "{}", job.body);

    // What is wrong is said above a form that still has it.
    for (wrong, why) in [
        ("?manifest=job", "Image"),
        ("?manifest=%3Cb%3E", "Started by: &#34;&#60;b&#62;&#34; is not a valid value"),
        ("?placement=placements%2F0123456789abcdef", "placements/0123456789abcdef"),
        ("?version=no%22such", "no&#34;such"),
    ] {
        let answer = get(&pages, &format!("{path}{wrong}")).await;
        assert!(matches!(answer.status, 400 | 404), "{wrong}: {}", answer.status);
        assert!(
            answer.body.contains("role=\"alert\"") && answer.body.contains(why),
            "{wrong}: {}",
            answer.body
        );
        assert!(
            !answer.body.contains("no\"such") && !answer.body.contains("<b>"),
            "{wrong}: {}",
            answer.body
        );
    }
}

/// Whoever shows a browser another name for this machine reads nothing, and nobody changes anything.
#[tokio::test(flavor = "multi_thread")]
async fn pages_only_show_and_only_to_those_who_mean_this_machine() {
    let (scene, pages) = scene().await;
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        assert_eq!(request(&pages, method, "/plans/a1", &[]).await.status, 405, "{method}");
    }
    assert_eq!(cli(&scene.planner, &["plan", "show", "a1"]).code, 0);
    for (host, status) in
        [("evil.example", 421), ("localhost:1", 200), ("127.0.0.1.evil.example", 421), (pages.as_str(), 200)]
    {
        assert_eq!(request(&pages, "GET", "/workers", &[("host", host)]).await.status, status, "{host}");
    }
}

/// A browser is told which things changed, also of what it missed while it was away; and not more of them listen than may.
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_told_once_and_what_was_missed_is_told_again() {
    let (scene, pages) = scene().await;
    let mut stream = Stream::open(&pages, None).await.expect("there is room");
    // What happened before somebody looked is news to him.
    let first = stream.next().await;
    json(&scene.planner, &["plan", "label", "c3", "team=vision"]);
    let second = stream.next().await;
    assert_eq!(second.data, "plans", "after {first:?}");
    drop(stream);
    let mut other = Stream::open(&pages, Some(&second.id)).await.expect("there is room");
    assert!(other.quiet(Duration::from_secs(2)).await, "nothing happened since");
    scene.store.upsert_worker(&worker("w", 4), LEASE).await.expect("a worker is stored");
    assert!(other.next().await.data.contains("workers"));
    let mut late = Stream::open(&pages, Some(&first.id)).await.expect("there is room");
    let missed = late.next().await;
    assert!(missed.data.contains("plans") && missed.data.contains("workers"), "{missed:?}");
    let mut strange = Stream::open(&pages, Some("1-99999")).await.expect("there is room");
    assert!(strange.next().await.data.contains("reports"), "numbers of another planner mean nothing");

    let mut all = Vec::new();
    while let Some(stream) = Stream::open(&pages, None).await {
        all.push(stream);
        assert!(all.len() < 100, "anybody may listen");
    }
    assert_eq!(all.len() + 3, 32, "of one address");
    assert_eq!(get(&pages, "/plans").await.status, 200, "pages are still made");
}

/// A run that ends is told to those who watch runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_is_news() {
    let (scene, pages) = scene().await;
    let mut stream = Stream::open(&pages, None).await.expect("there is room");
    stream.next().await;
    let name = worker("w", 4).name;
    scene.store.upsert_worker(&worker("w", 4), LEASE).await.expect("a worker is stored");
    let claim = scene.store.claim_run(&name, &free(4), &free(4), LEASE).await.expect("runs are claimed");
    let claim = claim.expect("a run waits");
    let mut told = String::new();
    while !told.contains("runs") {
        told = stream.next().await.data;
    }
    let done = scene.store.complete_run(&name, &claim.run, claim.lease_token, &[measurement()], 1.0).await;
    assert_eq!(done.expect("the result is stored"), Fenced::Applied);
    told.clear();
    while !told.contains("runs") {
        told = stream.next().await.data;
    }
    let page = get(&pages, &format!("/{}", claim.run)).await;
    assert!(page.body.contains("succeeded"), "{}", page.body);
}
