//! Where a browser finds what the command line shows.

use loadmaster_tests::{cli, json};

use super::http::get;
use super::{LEASE, recommended, scene, worker};

/// Every verb that shows or makes something that has a page says where that is, and there is one.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_leads_to_pages_that_answer() {
    let (scene, pages) = scene().await;
    scene.store.upsert_worker(&worker("w", 4), LEASE).await.expect("a worker is stored");
    let first = |list: &str, rows: &str| {
        let listed = json(&scene.planner, &[list, "list"]);
        listed[rows][0]["name"].as_str().expect("there is one").to_owned()
    };
    let (run, operation) = (first("run", "runs"), first("operation", "operations"));
    let model = first("model", "models");
    let two_kinds = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/clusters/two-kinds.yaml");
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/profile/table.json");
    let pair = ["cluster", "create", "--id", "pair", "--nodes", "n[1-2]", "--devices-per-node", "2"];
    let pair = [&pair[..], &["--device-kind", "cpu", "--device-memory", "24GiB"]].concat();
    let recommend = ["plan", "recommend", "--profile", table, "--devices", "4x24GiB"];
    let recommended = recommended(&scene);
    let id = recommended.trim_start_matches("/plans/");
    let bind = ["plan", "place", "a1", "--nodes", "n[1-2]", "--device-kind", "cpu", "--device-indices", "0"];
    for (ask, page) in [
        (&["plan", "show", "a1"][..], "/plans/a1"),
        (&["plan", "compare", "a1", "plans/b2"], "/compare?plan=a1&plan=b2"),
        (&recommend, "/plans/"),
        (&["plan", "predict", "--plan", id], &recommended),
        (&["profile", "import", table, "--id", "table"], "/profiles/table"),
        (&["profile", "export", "table"], "/profiles/table"),
        (
            &["plan", "predict", "--profile", "table", "--pipeline-layout", "4", "--devices", "1x24GiB"],
            "/profiles/table",
        ),
        (&["slurm", "request", "a1"], "/plans/a1"),
        (&["slurm", "script", "a1", "--framework", "other", "--", "train"], "/plans/a1"),
        (&["model", "create", "--model", "vgg11"], "/models/"),
        (&pair, "/clusters/pair"),
        (&["profile", "show", "first"], "/profiles/first"),
        (&["profile", "label", "first", "team=vision"], "/profiles/first"),
        (&["profile", "measurements", "first"], "/profiles/first"),
        (&["profile", "list", "--filter", "state = running"], "/profiles?filter=state+%3D+running"),
        (&["plan", "trial", "a1", "--no-wait"], "/operations/"),
        (&["plan", "label", "a1", "team=vision"], "/plans/a1"),
        (&["plan", "list", "--order-by", "name desc"], "/plans?order_by=name+desc"),
        (&["plan", "report", "a1", "--iteration-time", "1s"], "/plans/a1/history"),
        (&["plan", "errors", "--device-kind", "no*"], "/errors?filter=device_kind+%3D+%22no%5C*%22"),
        (
            &[
                "plan",
                "export",
                "a1",
                "--framework",
                "torch-pipelining",
                "--manifest",
                "job",
                "--image",
                "train:1",
            ],
            "/plans/a1/export/torch-pipelining?manifest=job&image=train%3A1",
        ),
        (&["run", "list", "--state", "queued"], "/runs?filter=state+%3D+%22queued%22"),
        (&["run", "show", &run], &format!("/{run}")),
        (&["operation", "list", "--filter", "done = false"], "/operations?filter=done+%3D+false"),
        (&["operation", "show", &operation], &format!("/{operation}")),
        (&["operation", "cancel", &operation], &format!("/{operation}")),
        (&["worker", "list", "--filter", "state = alive"], "/workers?filter=state+%3D+alive"),
        (&["worker", "show", "w"], "/workers/w"),
        (&["worker", "cordon", "w"], "/workers/w"),
        (&["model", "show", &model], &format!("/{model}")),
        (&["cluster", "import", two_kinds, "--id", "two"], "/clusters/two"),
        (&["cluster", "show", "two"], "/clusters/two"),
        (&bind, "/placements/"),
        (&["plan", "reports", "a1"], "/plans/a1/history"),
        (&["plan", "placements"], "/placements"),
        (
            &[
                "plan",
                "placements",
                "a1",
                "--filter",
                "nodes:n1 OR nodes:n3",
                "--order-by",
                "node_count desc",
            ],
            "/placements?filter=plan+%3D+%22a1%22+AND+nodes%3An1+OR+nodes%3An3&order_by=node_count+desc",
        ),
    ] {
        let shown = cli(&scene.planner, ask);
        let link = shown.stderr.lines().find_map(|line| line.strip_prefix(&format!("page:  http://{pages}")));
        let path = link.unwrap_or_else(|| panic!("{ask:?}: {shown:?}"));
        assert!(path.starts_with(page), "{ask:?}: {path}");
        assert_eq!(get(&pages, path).await.status, 200, "{path}");
    }
    for silent in [
        &["plan", "show", "a1", "-o", "name"][..],
        &["--quiet", "plan", "show", "a1"],
        &["cluster", "import", two_kinds, "--dry-run"],
    ] {
        let told = cli(&scene.planner, silent);
        assert!(told.code == 0 && !told.stderr.contains("page:"), "{silent:?}: {told:?}");
    }
}
