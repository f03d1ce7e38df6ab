//! Machines with two kinds of GPUs: a plan that is recommended for a framework is one that the framework can start.

use std::fs;

use loadmaster_tests::{CommandLine, Planner, cli, json, stages};
use serde_json::{Value, json as value};
use tempfile::TempDir;

/// Llama-7B as its users' configuration says.
const LLAMA_7B: &str = r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32000,"max_position_embeddings":4096,
"tie_word_embeddings":false}"#;

/// Two machines of two GPUs of each kind.
const MACHINES: &str = "format: loadmaster.cluster/1
kinds:
  - {name: RTX 3080, memory: 10GiB}
  - {name: RTX 4090, memory: 24GiB}
nodes:
  - name: machine-[1-2]
    devices:
      - {index: 0, kind: RTX 3080}
      - {index: 1, kind: RTX 3080}
      - {index: 2, kind: RTX 4090}
      - {index: 3, kind: RTX 4090}
    network: {bandwidth: 10Gb/s, latency: 20us}
";

/// Rules of thumb for a Llama-7B of 2,048 tokens in bf16 with Adam, on a kind of device that computes so many FLOP/s.
fn table(model: &Value, kind: &str, peak: f64) -> Value {
    let (hidden, width, vocabulary, tokens) = (4096.0, 11_008.0, 32_000.0, 2048.0);
    let block = 4.0 * hidden * hidden + 3.0 * hidden * width + 2.0 * hidden;
    let of_block = 2.0 * block * tokens + 2.0 * tokens * tokens * hidden;
    let edge = 2.0 * tokens * hidden;
    // Layers, FLOP of a pass, parameters, bytes that are kept and that come and go.
    let rows = [
        (0, 0, 2e-4 * peak / 2.0, vocabulary * hidden, 8.0 * tokens, edge),
        (
            1,
            32,
            of_block,
            block,
            edge * 4.0 + 2.0 * tokens * (4.0 * hidden + 3.0 * width),
            edge + 4.0 * tokens * width,
        ),
        (33, 33, 2e-5 * peak / 2.0, hidden, edge, edge),
        (
            34,
            34,
            2.0 * vocabulary * hidden * tokens,
            vocabulary * hidden,
            edge + 6.0 * tokens * vocabulary,
            4.0 * tokens * vocabulary,
        ),
    ];
    let rows = rows.map(|(first, last, work, parameters, kept, transient)| {
        let forward = work / (peak / 2.0);
        value!({
            "first_layer": first, "last_layer": last,
            "times": [{"micro_batch_size": 1, "tensor_degree": 1, "forward_seconds": forward,
                       "backward_seconds": 2.0 * forward, "update_seconds": parameters * 16.0 / 2.5e12}],
            "bytes": [{"micro_batch_size": 1, "tensor_degree": 1, "parameter_bytes": (2.0 * parameters) as u64,
                       "activation_bytes": kept as u64, "transient_bytes": transient as u64, "input_bytes": edge as u64,
                       "output_bytes": edge as u64}],
        })
    });
    value!({
        "format": "loadmaster.profile/1",
        "provenance": {"source": "rules of thumb", "tool": "by hand", "device_kind": kind, "ledger": "device"},
        "model": {"known": model},
        "training": {
            "precision": "bf16", "optimizer": {"kind": "adam", "learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.95,
            "epsilon": 1e-8, "weight_decay": 0.1}, "schedule": "one_f_one_b", "micro_batch_size": 1, "micro_batches": 16,
            "recompute": "none", "seed": 0
        },
        "layer_table": {"ledger": "device", "overhead_bytes": 644_245_094_u64, "times_without_collectives": true, "layers": rows}
    })
}

/// The nodes of a plan's ranks, in their order.
fn nodes(plan: &Value) -> Vec<String> {
    let stages = stages(plan);
    let ranges =
        stages.iter().flat_map(|stage| stage["deviceRanges"].as_array().cloned().unwrap_or_default());
    let of_range = |range: Value| {
        let count = range["count"].as_u64().unwrap_or(1) as usize;
        vec![range["node"].as_str().unwrap_or_default().to_owned(); count]
    };
    ranges.flat_map(of_range).collect()
}

/// A planner that knows tables of these names, kinds of devices and FLOP/s, and this cluster as `mixed`.
fn planner(tables: [(&str, &str, f64); 2], cluster: &str) -> Planner {
    let planner = Planner::start();
    let folder = TempDir::new().expect("a folder can be made");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path.to_str().expect("a path is text").to_owned()
    };
    let imported = json(&planner, &["model", "import", &write("config.json", LLAMA_7B)]);
    let model = imported["name"].as_str().expect("it has a name");
    let layers = cli(&planner, &["model", "show", model, "-o", "layers"]);
    let layers: Value = serde_json::from_str(&layers.stdout).expect("a list of layers");
    for (id, kind, peak) in tables {
        let file = write("table.json", &table(&layers, kind, peak).to_string());
        json(&planner, &["profile", "import", &file, "--id", id]);
    }
    json(&planner, &["cluster", "import", &write("cluster.yaml", cluster), "--id", "mixed"]);
    planner
}

/// Devices that cost the same are no tie: the faster one is taken, in whatever order kinds are listed.
#[test]
fn of_devices_that_cost_the_same_the_faster_one_is_taken() {
    let planner = planner(
        [("slow", "slow", 59e12), ("fast", "fast", 165e12)],
        "format: loadmaster.cluster/1
kinds: [{name: slow, memory: 512GiB}, {name: fast, memory: 512GiB}]
nodes:
  - {name: one, kind: slow, devices: 1, network: {bandwidth: 10Gb/s}}
  - {name: two, kind: fast, devices: 1, network: {bandwidth: 10Gb/s}}
",
    );
    for (profile, other) in [("slow", "fast"), ("fast", "slow")] {
        for (objective, prices) in [
            ("min-cost", &["--hourly-price", "slow=2", "--hourly-price", "fast=2"][..]),
            ("min-devices", &[]),
        ] {
            let line =
                ["plan", "recommend", "--profile", profile, "--other-profiles", other, "--cluster", "mixed"];
            let plan = json(
                &planner,
                &[&line[..], &["--objective", objective, "output.skip_comparisons=true"], prices].concat(),
            );
            assert_eq!(nodes(&plan), ["two"], "{objective} of {profile}: {plan}");
        }
    }
}

/// The fastest plan for each framework that starts equally many ranks on each node is exported for it; stages that are named in
/// another order are refused at once, with the framework's name.
#[test]
fn a_recommended_plan_can_be_started() {
    let planner = planner([("l3080", "RTX 3080", 59e12), ("l4090", "RTX 4090", 165e12)], MACHINES);
    let asked = |options: &[&str]| {
        let usual = "plan recommend --profile l4090 --other-profiles l3080 --cluster mixed";
        let training = "--recompute layer --safety-margin 0 --global-batch-size 32 --micro-batch-size 1";
        let usual = format!("{usual} {training} output.skip_comparisons=true -o json");
        cli(&planner, &[usual.words(), options.to_vec()].concat())
    };
    for framework in ["megatron", "deepspeed", "torch-pipelining", "accelerate"] {
        let output = asked(&["--framework", framework, "--objective", "min-iteration-time"]);
        // Order is what is tested here: what the framework needs besides may exceed these small devices (exit code 5).
        assert!([0, 5].contains(&output.code), "{framework}: {}", output.stderr);
        let plan = output.json();
        let mut nodes = nodes(&plan);
        assert_eq!(nodes.len(), 8, "{plan}");
        nodes.dedup();
        assert_eq!(nodes.len(), 2, "{framework} numbers ranks machine by machine: {plan}");
        let others = plan["alternatives"].as_array().cloned().unwrap_or_default();
        let all = others.iter().map(|other| &other["plan"]).chain([&plan["name"]]);
        for name in all.filter_map(Value::as_str) {
            let exported = cli(&planner, &["plan", "export", name, "--framework", framework]);
            assert!(
                !exported.stderr.contains("cannot run this plan"),
                "{framework} {name}: {}",
                exported.stderr
            );
            assert!(exported.stdout.contains("machine-1"), "{framework} {name}: {}", exported.stdout);
        }
    }
    // In the order of the cluster's kinds it is fast, too, and no framework starts it.
    let named = asked(&["--framework", "megatron", "--pipeline-layout", "3-2-2-2-6-6-6-8"]);
    assert!(
        named.code != 0 && named.stderr.contains("megatron starts equally many ranks"),
        "{}",
        named.stderr
    );
}
