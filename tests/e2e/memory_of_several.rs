//! Memory actions of stages of several devices, and of plans on several nodes: chosen for the shape that is asked for, and
//! trained with every ledger as predicted.

use loadmaster_tests::{Planner, Worker, WorkerOptions, cli, json, number, peak, profiled, seconds, stages};
use serde_json::Value;

use crate::memory_actions::{CHOSEN, trained};

/// A planner and a worker with eight slots, with a profile that knows tensor shards, too.
fn scene() -> (Planner, Worker) {
    let options = "--id gpt --micro-batch-size 4 --micro-batches 4 --schedule 1f1b --optimizer adam";
    let worker = WorkerOptions::slots("8x512MiB").with("--host-memory 1GiB");
    profiled(&worker, &format!("{options} --parallelism tensor --parallel-sizes 2"))
}

fn recommended(planner: &Planner, options: &str, more: &[&str]) -> Value {
    let ask = ["plan", "recommend", "--profile", "gpt"];
    json(planner, &[&ask[..], &options.split(' ').collect::<Vec<_>>(), more].concat())
}

/// Replicas, shards, and replicas of shards get actions with which they fit, and train so: every ledger of every stage is as
/// predicted. What fits untouched is never beaten by being asked for actions.
#[test]
fn replicas_and_shards_with_chosen_actions_are_trained() {
    let (planner, _worker) = scene();
    for (count, degrees) in [
        (4, "--data-parallel-sizes 2 --tensor-parallel-sizes 1"),
        (4, "--data-parallel-sizes 1 --tensor-parallel-sizes 2"),
        (8, "--data-parallel-sizes 2 --tensor-parallel-sizes 2 --state-sharding optimizer"),
    ] {
        let grid =
            format!("--layout uniform-grid --micro-batch-size 4 --pipeline-parallel-sizes 2.. {degrees}");
        let ample = format!("{grid} --objective min-iteration-time --devices {count}x512MiB");
        let untouched = recommended(&planner, &ample, &["--dry-run"]);
        // Less than any untouched pipeline of the shape needs.
        let lowest = format!("{grid} --objective min-peak-memory --devices {count}x512MiB");
        let capacity = peak(&recommended(&planner, &lowest, &["--dry-run"])) * 9 / 10;
        let tight = format!("{grid} --devices {count}x{capacity}B");
        let plan = recommended(&planner, &tight, &CHOSEN);
        assert_eq!(stages(&plan).len(), 2, "{plan}");
        assert!(stages(&plan).iter().any(|stage| !stage["offloadTraffic"].is_null()), "{plan}");
        let bound = plan["certificate"]["bestBound"].as_f64().unwrap();
        assert!(bound <= seconds(&plan) && bound <= seconds(&untouched) * (1.0 + 1e-9), "{plan}");
        for stage in stages(&trained(&planner, &plan)) {
            assert!(number(&stage["measuredPeak"]["bytes"]) <= capacity, "{stage}");
        }
    }
    let mesh = "--layout per-stage-mesh --devices 4x512MiB --objective min-iteration-time --dry-run";
    let (untouched, chosen) = (recommended(&planner, mesh, &[]), recommended(&planner, mesh, &CHOSEN));
    // Seconds with actions contain waiting for cores, those of the same stages without any, too.
    let kept = chosen["baselines"].as_array().unwrap().iter().find(|of| of["name"] == "keep-only").unwrap();
    assert!(seconds(&chosen) <= kept["iterationSeconds"].as_f64().unwrap() * (1.0 + 1e-9), "{chosen}");
    assert!(
        chosen["certificate"]["bestBound"].as_f64().unwrap() <= seconds(&untouched) * (1.0 + 1e-9),
        "{chosen}"
    );
    assert!(chosen["warnings"].to_string().contains("per-stage-mesh"), "{chosen}");
}

/// Where optimizer states have no room on each replica, the planner divides them, and the plan is trained to the byte.
#[test]
fn sharded_optimizer_states_are_chosen_where_they_are_needed_and_trained() {
    let (planner, _worker) = scene();
    let grid = "--layout uniform-grid --data-parallel-sizes 4 --micro-batch-size 4";
    let of = |capacity: i64, sharding: &str, more: &[&str]| {
        let ask = format!("{grid} --devices 4x{capacity}B --state-sharding {sharding}");
        recommended(&planner, &ask, more)
    };
    let whole = of(512 << 20, "none", &["--dry-run"]);
    let divided = of(512 << 20, "optimizer", &["--dry-run"]);
    let room = (peak(&whole) + peak(&divided)) / 2;
    assert!(peak(&divided) < room, "{divided}");
    let plan = of(room, "none,optimizer", &[]);
    assert_eq!(stages(&plan)[0]["config"]["stateSharding"], "STATE_SHARDING_OPTIMIZER", "{plan}");
    assert_eq!(peak(&plan), peak(&divided));
    let tried = trained(&planner, &plan);
    let measured = stages(&tried).iter().map(|stage| number(&stage["measuredPeak"]["bytes"]));
    assert_eq!(measured.max(), Some(peak(&plan)), "{tried}");
}

/// A stage with fewer devices than its peer has blocks on the first of them alone.
#[test]
fn one_device_has_blocks_on_one_of_two_replicas() {
    let (planner, _worker) = scene();
    let of = |capacity: i64| format!("--pipeline-layout 3-4d2 --devices 3x{capacity}B");
    let untouched = recommended(&planner, &of(512 << 20), &["--dry-run"]);
    let plan = recommended(&planner, &of(peak(&untouched) * 95 / 100), &["--optimizations", "peer-swap"]);
    assert_eq!(stages(&plan)[1]["memoryOptimizations"]["peerPools"][0]["stage"], 0, "{plan}");
    trained(&planner, &plan);
}

/// Stages on two nodes: each node's host gives memory, blocks go to peers on the same node, and to others only in vain.
#[test]
fn plans_on_two_nodes_get_actions() {
    let (planner, _worker) = scene();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    let untouched = recommended(&planner, "--pipeline-layout 2-2-1-2 --devices 4x512MiB", &["--dry-run"]);
    let capacity = peak(&untouched) * 6 / 10;
    let node = "kind: cpu, devices: 2, link: {bandwidth: 5GB/s}, network: {bandwidth: 1GB/s}, host: {memory: 256MiB}";
    let text = format!(
        "format: loadmaster.cluster/1\nkinds: [{{name: cpu, memory: {capacity}B, usable_memory: {capacity}B}}]\nnodes:\n  - \
         {{name: a, {node}}}\n  - {{name: b, {node}}}\n"
    );
    std::fs::write(&file, text).unwrap();
    json(&planner, &["cluster", "import", file.to_str().unwrap(), "--id", "two"]);
    let ask = ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "2-2-1-2", "--cluster", "two"];
    assert_eq!(cli(&planner, &ask).code, 5, "they do not fit untouched");
    let plan = json(&planner, &[&ask[..], &CHOSEN].concat());
    assert!(peak(&plan) <= capacity, "{plan}");
    for (index, stage) in stages(&plan).iter().enumerate() {
        let peer_pools = stage["memoryOptimizations"]["peerPools"].as_array().cloned().unwrap_or_default();
        let is_near = |peer_pools: &Value| number(&peer_pools["stage"]) as usize / 2 == index / 2;
        assert!(peer_pools.iter().all(is_near), "{plan}");
    }
    let far = cli(&planner, &[&ask[..], &["--stage-optimization", "0/1=activations:2"]].concat());
    assert!(far.code == 2 && far.stderr.contains("a device of the same node"), "{}", far.stderr);
    // Without stages to begin with they are chosen, on both nodes.
    let free =
        ["plan", "recommend", "--profile", "gpt", "--cluster", "two", "--layout", "per-stage-replicas"];
    let free = json(&planner, &[&free[..], &CHOSEN].concat());
    assert!(peak(&free) <= capacity && seconds(&free) <= seconds(&plan) * (1.0 + 1e-9), "{free}");
}
