//! Plans on the nodes that a scheduler gave, through the command line.

use std::fs;

use loadmaster_tests::{Planner, Worker, cli, json};
use serde_json::Value;
use tempfile::TempDir;

use crate::exports;

/// Nodes of one device: the odd ones at one switch, the even ones at another, and slow between the two. And one of another kind.
const CLUSTER: &str = "
format: loadmaster.cluster/1
kinds: [{name: cpu, memory: 512MiB}, {name: other, memory: 1GiB}]
nodes:
  - {name: 'n[1-5]', kind: cpu, devices: 1, network: {bandwidth: 10GB/s, latency: 10us}}
  - {name: m1, kind: other, devices: 2, network: {bandwidth: 10GB/s, latency: 10us}}
tiers:
  - {level: leaf, bandwidth: 10GB/s, latency: 10us}
  - {level: spine, bandwidth: 100KB/s, latency: 1ms}
domains:
  - {level: leaf, name: odd, parent: top, nodes: 'n[1,3,5]'}
  - {level: leaf, name: even, parent: top, nodes: 'n[2,4],m1'}
  - {level: spine, name: top}
";

/// Both promises, of one plan: what it takes is profiling.
#[test]
fn plans_are_bound_to_the_nodes_that_are_given() {
    let (planner, _worker, plan) = scene();
    nodes_are_put_in_the_fastest_order(&planner, &plan);
    nodes_that_cannot_run_a_plan_are_refused(&planner, &plan);
}

/// A planner with a profile, a cluster, and a plan of four stages for the first four of its nodes.
fn scene() -> (Planner, Worker, String) {
    let (planner, worker) = exports::scene();
    let folder = TempDir::new().expect("a folder can be made");
    let path = folder.path().join("cluster.yaml");
    fs::write(&path, CLUSTER).expect("it can be written");
    let path = path.to_str().expect("a path is text");
    json(&planner, &["cluster", "import", path, "--id", "pod"]);
    let ask = "plan recommend --profile gpt --cluster pod constraints.excluded_devices=[n5,m1] --pipeline-parallel-sizes 4..";
    let plan = json(&planner, &format!("{ask} --objective min-iteration-time"));
    let name = plan["name"].as_str().expect("a plan has a name").to_owned();
    (planner, worker, name)
}

fn nodes(placement: &Value) -> Vec<&str> {
    let nodes = placement["nodes"].as_array().expect("a placement has nodes");
    nodes.iter().map(|node| node.as_str().expect("a node has a name")).collect()
}

/// Whichever order a scheduler names nodes in, those of a switch are beside each other, one link alone crosses the spine, and an
/// iteration takes what was planned; and the placement is found again, and exported.
fn nodes_are_put_in_the_fastest_order(planner: &Planner, plan: &str) {
    let bind = |nodes: &str| json(planner, &["plan", "place", plan, "--nodes", nodes]);
    let first = bind("n[1-4]");
    let odd = |node: &&str| *node == "n1" || *node == "n3";
    let order: Vec<bool> = nodes(&first).iter().map(odd).collect();
    assert!(order == [true, true, false, false] || order == [false, false, true, true], "{order:?}");
    assert_eq!(first["optimal"], true, "{first}");
    assert_eq!(first["optimalityGap"], 0.0);
    assert_eq!(first["iterationSeconds"], first["plannedIterationSeconds"], "{first}");
    let again = bind("n4,n2,n[3,1]");
    assert_eq!(again["name"], first["name"], "the order in which nodes are named is none");

    let name = first["name"].as_str().expect("a placement has a name");
    let listed = json(planner, &["plan", "placements", plan]);
    assert_eq!(listed["placements"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(nodes(&listed["placements"][0]), nodes(&first));
    let shown = json(planner, &["plan", "placements", name]);
    assert_eq!(shown["stages"], first["stages"]);
    let export = json(planner, &["plan", "export", plan, "--framework", "other", "--placement", name]);
    let ranks = export["ranks"].as_array().expect("an export has ranks");
    let on: Vec<&str> = ranks.iter().filter_map(|rank| rank["device"]["node"].as_str()).collect();
    assert_eq!(on, nodes(&first));

    // A spare node in place of another one: three at one switch are no faster than two and two.
    let spare = bind("n[1-5]");
    assert_eq!(spare["idleDevices"].as_array().map(Vec::len), Some(1), "{spare}");
    assert_eq!(spare["optimal"], true);
    // Devices of another kind are given, and have no rank.
    let others = bind("n[1-4],m1");
    assert_eq!(others["idleDevices"], serde_json::json!(["m1/0", "m1/1"]), "{others}");
    assert!(others["warnings"].to_string().contains("2 of the 6 given devices have no rank"), "{others}");
    assert_eq!(nodes(&others), nodes(&first));
    // Placements are found like everything else: the newest first unless asked otherwise, and with when they were made.
    let found = |more: &[&str]| {
        let listed = json(planner, &[&["plan", "placements", plan][..], more].concat());
        let rows = listed["placements"].as_array().expect("there are placements").clone();
        rows.iter()
            .map(|row| row["name"].as_str().expect("a placement has a name").to_owned())
            .collect::<Vec<_>>()
    };
    let all = found(&["--since", "1h"]);
    assert_eq!((all.len(), all.last().map(String::as_str)), (3, Some(name)), "{all:?}");
    let oldest = found(&["--order-by", "create_time", "--limit", "1"]);
    assert_eq!(oldest, [name]);
    assert_eq!(found(&["--filter", "nodes:n4 AND create_time < 2001-01-01"]), Vec::<String>::new());
    assert_eq!(
        found(&["--filter", "-nodes:n1 nodes:n"]),
        Vec::<String>::new(),
        "a node is one of them, whole"
    );
    let nobody = cli(planner, &["plan", "placements", "0123456789abcdef"]);
    assert!(nobody.code == 3 && nobody.stderr.contains("plans/0123456789abcdef"), "{nobody:?}");
    let table = cli(planner, &["plan", "placements", "--filter", "nodes:n1"]);
    assert!(
        table.stdout.contains("bound") && table.stdout.contains(&name["placements/".len()..]),
        "{table:?}"
    );
    let one = cli(planner, &["plan", "placements", name, "--filter", "nodes:n1"]);
    assert!(one.code == 2 && one.stderr.contains("--filter"), "{one:?}");

    let table = cli(planner, &["plan", "place", plan, "--nodes", "n[1-4]", "--dry-run"]);
    assert!(table.stdout.contains("no other order of these nodes is faster"), "{}", table.stdout);
}

/// Nodes that are too few are refused by stage, those that nobody knows by name; and what the caller says of them is taken.
fn nodes_that_cannot_run_a_plan_are_refused(planner: &Planner, plan: &str) {
    let bind = |more: &[&str]| cli(planner, &[&["plan", "place", plan, "--nodes"], more].concat());
    let few = bind(&["n[1-3]"]);
    assert_eq!(few.code, 5, "{}", few.stderr);
    assert!(few.stderr.contains("needs 1 device of kind \"cpu\""), "{}", few.stderr);
    let unknown = bind(&["n[1-3],x9"]);
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("--nodes") && unknown.stderr.contains("x9"), "{}", unknown.stderr);
    let small = ["x[1-4]", "--device-kind", "cpu", "--usable-memory", "1MiB", "--device-indices", "0"];
    let small = bind(&small);
    assert_eq!(small.code, 5, "{}", small.stderr);
    assert!(small.stderr.contains("allow at most 1.00 MiB"), "{}", small.stderr);
    // What a stored cluster says is not said a second time.
    let again = bind(&["n[1-4]", "--usable-memory", "1MiB"]);
    assert!(again.code == 2 && again.stderr.contains("--usable-memory"), "{}", again.stderr);
    let told = json(
        planner,
        &["plan", "place", plan, "--nodes", "x[1-2]", "--device-kind", "cpu", "--device-indices", "0,1"],
    );
    assert_eq!(nodes(&told), ["x1", "x2"]);
    assert_eq!(told["linkSpeedOrigin"], "assumed", "{told}");
    assert!(told["warnings"].to_string().contains("differ in size from the nodes of the plan"), "{told}");
}
