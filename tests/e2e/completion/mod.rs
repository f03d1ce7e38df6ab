//! Shells complete verbs, options and the names of what a planner has; without a planner they complete the rest, and say nothing.

mod shells;
mod terminal;

use std::net::TcpListener;
use std::process::Command;

use loadmaster_tests::{Planner, TINY_GPT2, Worker, WorkerOptions, binary, json, wait_until};
use serde_json::Value;

/// Two nodes of two devices.
const CLUSTER: &str = "
format: loadmaster.cluster/1
kinds: [{name: NVIDIA H200, memory: 80GiB}]
nodes: [{name: 'gpu[1-2]', kind: NVIDIA H200, devices: 2, network: {bandwidth: 400Gb/s}}]
";

/// A planner that has something of everything, and the names of it.
struct Scene {
    planner: Planner,
    _worker: Worker,
    plan: String,
    placement: String,
    operation: String,
    run: String,
}

impl Scene {
    fn new() -> Self {
        let planner = Planner::start();
        let options = WorkerOptions { name: "desk".to_owned(), ..WorkerOptions::slots("1x512MiB") };
        let worker = Worker::start(&planner, &options);
        let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/profile/table.json");
        json(&planner, &["profile", "import", table, "--id", "small"]);
        let folder = tempfile::TempDir::new().expect("a folder can be made");
        let file = folder.path().join("cluster.yaml");
        std::fs::write(&file, CLUSTER).expect("files can be written");
        json(&planner, &["cluster", "import", file.to_str().expect("a path is text"), "--id", "pod"]);
        let plan = json(&planner, &["plan", "recommend", "--profile", "small", "--cluster", "pod"]);
        let plan = name(&plan);
        let placement = json(&planner, &["plan", "place", &plan, "--nodes", "gpu[1-2]", "--cluster", "pod"]);
        // A kind of device that nobody has: it waits.
        let waits = "--micro-batch-size 2 --micro-batches 2 --device-kind none --no-wait";
        let begun = json(&planner, &format!("profile run --id waiting {TINY_GPT2} {waits}"));
        let runs = json(&planner, &["run", "list"]);
        Self {
            plan,
            placement: name(&placement),
            operation: name(&begun),
            run: name(&runs["runs"][0]),
            planner,
            _worker: worker,
        }
    }
}

fn name(of: &Value) -> String {
    of["name"].as_str().unwrap_or_else(|| panic!("it has no name: {of}")).to_owned()
}

/// What the program offers for the last of these words, as it does when bash asks.
fn offered(address: &str, words: &[&str]) -> Vec<String> {
    let mut command = Command::new(binary("loadmaster"));
    command.env("LOADMASTER_COMPLETE", "bash").env("LOADMASTER_ADDRESS", address);
    let output = command.args(["--", "loadmaster"]).args(words).output().expect("the program starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("words are text").lines().map(str::to_owned).collect()
}

fn id(name: &str) -> &str {
    name.split_once('/').map_or(name, |(_, id)| id)
}

#[test]
fn names_are_offered_for_every_noun() {
    let scene = Scene::new();
    let address = scene.planner.address();
    // A planner that is busy answers a bit too late, once.
    let offers = |words: &[&str], wanted: &str| {
        wait_until(&format!("{wanted} is offered for {words:?}"), || {
            offered(address, words).iter().any(|word| word == wanted).then_some(())
        });
    };
    let (plan, placement) = (scene.plan.as_str(), scene.placement.as_str());
    offers(&["plan", "show", ""], id(plan));
    offers(&["plan", "show", "plans/"], plan);
    offers(&["plan", "show", &plan[..10]], plan);
    offers(&["plan", "compare", id(plan), ""], id(plan));
    offers(&["plan", "export", id(plan), "--placement", ""], id(placement));
    offers(
        &["plan", "export", id(plan), &format!("--placement={}", &placement[..12])],
        &format!("--placement={placement}"),
    );
    offers(&["plan", "export", id(plan), "--framework", "deeps"], "deepspeed@0.19");
    offers(&["plan", "placements", ""], id(placement));
    offers(&["plan", "placements", "placements/"], placement);
    offers(&["plan", "recommend", "--profile", "s"], "small");
    offers(&["plan", "recommend", "--other-profiles", "waiting,s"], "waiting,small");
    offers(&["plan", "recommend", "--cluster", ""], "pod");
    offers(&["slurm", "request", ""], id(plan));
    offers(&["profile", "show", "wai"], "waiting");
    offers(&["profile", "run", "--model", "vg"], "vgg11");
    offers(
        &["profile", "run", "--model", "models/"],
        &name(&json(&scene.planner, &["model", "list"])["models"][0]),
    );
    offers(&["cluster", "show", ""], "pod");
    offers(&["worker", "cordon", ""], "desk");
    offers(&["run", "show", ""], id(&scene.run));
    offers(&["run", "list", "--operation", ""], id(&scene.operation));
    offers(&["operation", "wait", ""], id(&scene.operation));
    // The planner is the one that the command line names.
    let elsewhere = ["--address", address, "plan", "show", ""];
    wait_until("the plan is offered", || {
        offered("http://127.0.0.1:1", &elsewhere).iter().any(|word| word == id(plan)).then_some(())
    });
    // What does not begin so is not offered, and what is no beginning of a name is no filter.
    for typed in ["plans/zz", "zz", "\" OR name:*", "*", "profiles/", "plans/../"] {
        assert_eq!(offered(address, &["plan", "show", typed]), Vec::<String>::new(), "{typed}");
    }
    assert_eq!(offered(address, &["plan", "show", "pla"]), ["plans/"]);
}

/// Nothing hangs and nothing is said where no planner answers, or answers nonsense; what needs none is offered all the same.
#[test]
fn without_a_planner_there_are_only_no_names() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = format!("http://{}", silent.local_addr().expect("it has an address"));
    for address in ["http://127.0.0.1:1", &silent, "http://no-such-host.invalid:7433", "https://x", "%", ""] {
        let words = offered(address, &["plan", "show", ""]);
        assert!(words.iter().all(|word| word.starts_with('-')), "{address}: {words:?}");
        assert!(words.iter().any(|word| word == "--schedule"), "{address}: {words:?}");
        assert_eq!(offered(address, &["plan", "rec"]), ["recommend"]);
        assert_eq!(offered(address, &["plan", "list", "--output=js"]), ["--output=json"]);
        assert_eq!(offered(address, &["profile", "run", "--model", "trans"]), ["transgan"]);
    }
}
