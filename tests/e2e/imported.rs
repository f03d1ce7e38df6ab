//! What answers from imported tables say of themselves: margins, what is not known of a device, what no row is about,
//! and what frameworks hold besides.

use std::collections::BTreeSet;
use std::path::PathBuf;

use loadmaster_tests::{
    CommandLine, Output, Planner, cli, json, number, stages, warnings, whole as whole_of,
};
use serde_json::{Value, json as value};
use tempfile::TempDir;

/// Exit code of answers that are not certain that something fits.
const UNCERTAIN: i32 = 8;

/// Four equal layers with rows at tensor degrees 1 and 2, in a ledger and a precision.
fn table(ledger: &str, precision: &str) -> Value {
    let degrees = [1_u64, 2];
    let bytes = degrees.map(|degree| {
        value!({"micro_batch_size": 1, "tensor_degree": degree, "parameter_bytes": (4 << 20) / degree,
                "activation_bytes": 65_536, "transient_bytes": 65_536, "input_bytes": 4_096,
                "output_bytes": 4_096})
    });
    let times = degrees.map(|degree| {
        value!({"micro_batch_size": 1, "tensor_degree": degree, "forward_seconds": 0.1 / degree as f64,
                "backward_seconds": 0.2 / degree as f64, "update_seconds": 0.01})
    });
    let layers: Vec<Value> = (0..4).map(|layer| value!({"name": format!("layer {layer}")})).collect();
    value!({
        "format": "loadmaster.profile/1",
        "provenance": {"source": "made up for a test", "tool": "by hand", "device_kind": "gpu", "ledger": ledger},
        "model": {"opaque": {"name": "chain", "layers": layers}},
        "training": {
            "precision": precision, "optimizer": {"kind": "adamw", "learning_rate": 0.001, "beta1": 0.9,
            "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}, "schedule": "one_f_one_b",
            "micro_batch_size": 4, "micro_batches": 4, "recompute": "none", "seed": 0
        },
        "layer_table": {"times_without_collectives": false, "layers": [
            {"first_layer": 0, "last_layer": 3, "bytes": bytes, "times": times}
        ]}
    })
}

/// CAPTURE's metrics, which have no margin, nor have they been held out of anything.
fn metrics() -> Value {
    let rows = [value!({"micro_batch_size": 4, "in_flight": 2, "degree": 1, "isolated_bytes": 9 << 20,
                        "added_bytes": 8 << 20})];
    let mut metrics = table("device", "fp32");
    metrics["training"]["schedule"] = value!("gpipe");
    metrics["training"]["micro_batches"] = value!(2);
    metrics["layer_table"] = value!({"layers": [{"first_layer": 0, "last_layer": 3, "memory": rows}]});
    metrics
}

/// A planner with a folder for documents.
struct Setting {
    planner: Planner,
    folder: TempDir,
}

impl Setting {
    fn start() -> Self {
        Self { planner: Planner::start(), folder: tempfile::tempdir().expect("a folder can be made") }
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.to_str().expect("a path is text").to_owned()
    }

    fn predict(&self, document: &Value, options: &[&str]) -> Value {
        self.answer("predict", document, options, 0)
    }

    fn recommend(&self, document: &Value, options: &[&str]) -> Value {
        self.answer("recommend", document, options, 0)
    }

    /// The answer of a verb that must end with this exit code.
    fn answer(&self, verb: &str, document: &Value, options: &[&str], code: i32) -> Value {
        let file = self.write("table.json", &document.to_string());
        let all = [&["plan", verb, "--profile", &file], options, &["-o", "json"]].concat();
        let output = cli(&self.planner, &all);
        assert_eq!(output.code, code, "{all:?}: {}", output.stderr);
        output.json()
    }
}

fn tensor_degrees(plan: &Value) -> Vec<i64> {
    let stages = stages(plan);
    stages.iter().map(|stage| stage["config"]["tensorParallelSize"].as_i64().unwrap_or(1).max(1)).collect()
}

/// Real peaks are expected within a tenth, unless the document says otherwise.
#[test]
fn a_table_without_a_margin_of_its_own_has_ten_percent() {
    let setting = Setting::start();
    let margin = |document: &Value| {
        let answer = setting.predict(document, &["--pipeline-layout", "2-2", "--capacity", "1GiB"]);
        assert_eq!(answer["predictor"], "table/2");
        assert_eq!(answer["verdict"], "VERDICT_FITS", "{answer}");
        answer["stages"][0]["interval"]["marginRatio"].as_f64()
    };
    let mut document = table("reserved", "fp32");
    assert_eq!(margin(&document), Some(0.1));
    document["layer_table"]["margin"] = value!(0.02);
    assert_eq!(margin(&document), Some(0.02));
}

/// In the driver's ledger nothing fits before the device's own bytes are known, and every answer begins with that.
#[test]
fn the_device_constant_is_asked_for_by_name() {
    let setting = Setting::start();
    let mut document = table("device", "fp32");
    let room = ["--pipeline-layout", "2-2", "--capacity", "64GiB"];
    for options in [&room[..], &[&room[..], &["--safety-margin", "0"]].concat()] {
        let answer = setting.answer("predict", &document, options, UNCERTAIN);
        assert_eq!(answer["verdict"], "VERDICT_UNCERTAIN", "{answer}");
        assert!(answer["stages"][0]["interval"].is_null(), "{answer}");
        assert!(warnings(&answer)[0].contains("layer_table.overhead_bytes"), "{answer}");
    }
    for options in [&["--devices", "2x64GiB"][..], &["--devices", "2x64GiB", "--pipeline-layout", "2-2"]] {
        let plan = setting.answer("recommend", &document, options, UNCERTAIN);
        assert_eq!(plan["verdict"], "VERDICT_UNCERTAIN", "{plan}");
        assert!(warnings(&plan)[0].contains("layer_table.overhead_bytes"), "{plan}");
        assert!(plan["stages"][0]["interval"].is_null(), "{plan}");
        let name = plan["name"].as_str().expect("a plan has a name");
        let shown = json(&setting.planner, &["plan", "show", name]);
        assert_eq!(shown["verdict"], plan["verdict"], "{shown}");
        let text = cli(&setting.planner, &["plan", "show", name]).stdout;
        assert!(text.contains("Uncertain, see warnings: peak "), "{text}");
        let exported = cli(&setting.planner, &["plan", "export", name, "--framework", "other", "-o", "json"]);
        assert_eq!(exported.code, UNCERTAIN, "{}", exported.stderr);
        assert!(exported.stdout.contains("VERDICT_UNCERTAIN"), "{}", exported.stdout);
    }
    document["layer_table"]["overhead_bytes"] = value!(1 << 30);
    let answer = setting.predict(&document, &room);
    assert_eq!(answer["verdict"], "VERDICT_FITS");
    assert!(!warnings(&answer).iter().any(|warning| warning.contains("overhead_bytes")), "{answer}");
}

/// The constants of an update rule are optional, and the figures of a table are not called profiled.
#[test]
fn an_update_rule_may_be_a_word_and_figures_of_a_table_are_imported() {
    let setting = Setting::start();
    let mut document = table("reserved", "fp32");
    document["training"]["optimizer"] = value!("adamw");
    let answer = setting.predict(
        &document,
        &[
            "--pipeline-layout",
            "2-2",
            "--capacity",
            "1GiB",
            "--micro-batch-size",
            "1",
            "--micro-batches",
            "8",
        ],
    );
    assert_eq!(answer["stages"][0]["coverage"], "PROFILE_COVERAGE_IMPORTED", "{answer}");
}

/// Bytes of stages that take turns on their devices, and of recomputed layers, follow from a table by hand: 16 bytes of state for each
/// parameter byte of 4, activations and inputs of what is in flight, one layer's transient bytes.
#[test]
fn virtual_stages_and_recomputation_by_layer_of_a_table_are_planned() {
    let setting = Setting::start();
    let file = setting.write("table.json", &table("allocated", "fp32").to_string());
    let ask = |verb: &str, options: &[&str]| {
        let base = ["plan", verb, "--profile", &file, "--micro-batch-size", "4", "--micro-batches", "4"];
        json(&setting.planner, &[&base[..], options].concat())
    };
    // Each layer: 4 MiB of parameters, and for 4 samples 256 KiB of activations and of transient bytes, 16 KiB at its edges.
    let (state, kept, edge) = (16 << 20, 256 << 10, 16 << 10);
    let taken = ask("recommend", &["--devices", "2x64GiB", "--virtual-stages", "2"]);
    assert_eq!(taken["layoutNotation"], "1-1-1-1", "{taken}");
    // Device 0 is first, with 5 of its 8 forward passes in flight: 4 of the first layer or fewer, the others of the third one, whose
    // inputs it holds, and an output on its way.
    let peak = number(&taken["predictedPeak"]["bytes"]);
    let in_flight = |of_third: i64| 2 * state + 5 * kept + of_third * edge + edge + kept;
    assert!((1..=4).any(|of_third| peak == in_flight(of_third)), "{peak}: {taken}");

    let whole = |options: &[&str]| {
        let answer = ask("predict", &[&["--pipeline-layout", "4"], options].concat());
        number(&answer["stages"][0]["peak"]["bytes"])
    };
    assert_eq!(whole(&[]), 4 * state + 4 * kept + kept);
    // Of the middle layers the input is kept, and the running backward pass has the activations of both.
    let run = ["--stage-optimization", "0/1..2=recompute"];
    assert_eq!(whole(&run), 4 * state + 2 * kept + edge + 2 * kept + kept);
    let tight = format!("1x{}B", whole(&[]) - kept);
    let chosen =
        ask("recommend", &["--devices", &tight, "--safety-margin", "0", "--optimizations", "recompute"]);
    assert!(chosen["stages"][0]["memoryOptimizations"].to_string().contains("recompute"), "{chosen}");
}

/// What no search can find is refused without one, by what is missing: the answer does not depend on the time that a search has.
#[test]
fn virtual_stages_of_metrics_are_refused_without_a_search() {
    let setting = Setting::start();
    let file = setting.write("metrics.json", &metrics().to_string());
    let given: [&[&str]; 2] = [&["--virtual-stages", "2"], &["--optimizations", "recompute"]];
    for options in given {
        let base = ["plan", "recommend", "--profile", &file, "--devices", "2x64GiB"];
        let Output { code, stderr, .. } = cli(&setting.planner, &[&base[..], options].concat());
        assert_ne!(code, 0, "{stderr}");
        assert!(stderr.contains("`capture/1` does not predict memory step by step"), "{stderr}");
        assert!(stderr.contains("virtual pipeline stages"), "{stderr}");
    }
}

/// Whatever predicts, in whatever ledger and with whatever margin: verdict, exit code and warnings of predictions, recommendations,
/// shown plans and exports say the same, on roomy devices, on devices within the interval, and on too small ones.
#[test]
fn verdict_exit_code_and_warnings_agree() {
    let setting = Setting::start();
    let agree = |answer: &Value, code: i32, what: &str| {
        let warned = warnings(answer).iter().any(|of| of.contains("no plan is reported to fit"));
        let expected = match answer["verdict"].as_str() {
            Some("VERDICT_FITS") => (0, false),
            Some("VERDICT_FITS_WITHOUT_MARGIN") => (UNCERTAIN, false),
            Some("VERDICT_UNCERTAIN") => (UNCERTAIN, true),
            Some("VERDICT_DOES_NOT_FIT") => (5, warned),
            other => panic!("{what}: {other:?}"),
        };
        assert_eq!((code, warned), expected, "{what}: {answer}");
    };
    let asked = |arguments: &[&str]| {
        let output = cli(&setting.planner, &[arguments, &["-o", "json"]].concat());
        (output.code, serde_json::from_str::<Value>(&output.stdout).ok(), output.stderr)
    };
    let mut documents = vec![("metrics", metrics())];
    for ledger in ["allocated", "reserved", "device"] {
        documents.push((ledger, table(ledger, "fp32")));
    }
    let mut whole = table("device", "fp32");
    (whole["layer_table"]["overhead_bytes"], whole["layer_table"]["margin"]) = (value!(1 << 20), value!(0.3));
    documents.push(("device with its constant", whole));
    let mut seen = BTreeSet::new();
    for (name, document) in &documents {
        let file = setting.write("any.json", &document.to_string());
        let bare = ["plan", "predict", "--profile", &file, "--pipeline-layout", "2-2"];
        let (code, unasked, stderr) = asked(&bare);
        assert_eq!(code, 0, "{name}: {stderr}");
        let unasked = unasked.expect("an answer is JSON");
        let stages = stages(&unasked);
        let peak = stages.iter().map(|stage| whole_of(&stage["peak"]["bytes"])).max().expect("it has stages");
        for (room, margin) in [(4.0, None), (4.0, Some("0")), (1.05, None), (1.05, Some("20%")), (0.9, None)]
        {
            let capacity = format!("{}B", (peak as f64 * room) as u64);
            let margin: Vec<&str> = margin.map_or_else(Vec::new, |margin| vec!["--safety-margin", margin]);
            let what = format!("{name}, {room} {margin:?}");
            let predicted = [&bare[..], &["--capacity", &capacity], &margin].concat();
            let (code, answer, stderr) = asked(&predicted);
            let answer = answer.unwrap_or_else(|| panic!("{what}: {stderr}"));
            agree(&answer, code, &what);
            seen.insert(answer["verdict"].to_string());
            let text = cli(&setting.planner, &predicted).stdout;
            let first = text.lines().next().unwrap_or_default().to_owned();
            assert_eq!(first.starts_with("Fits, "), code == 0, "{what}: {first}");
            assert_eq!(first.starts_with("Uncertain, "), code == UNCERTAIN, "{what}: {first}");

            let devices = format!("2x{capacity}");
            let on =
                ["plan", "recommend", "--profile", &file, "--pipeline-layout", "2-2", "--devices", &devices];
            let (code, plan, stderr) = asked(&[&on[..], &margin].concat());
            let Some(plan) = plan.filter(|plan| plan["name"].is_string()) else {
                assert_eq!(code, 5, "{what}: {stderr}");
                continue;
            };
            agree(&plan, code, &what);
            let id = plan["name"].as_str().expect("a plan has a name");
            let (shown_code, shown, _) = asked(&["plan", "show", id]);
            assert_eq!(
                (shown_code, &shown.expect("it is shown")["verdict"]),
                (0, &plan["verdict"]),
                "{what}"
            );
            let (export_code, export, _) = asked(&["plan", "export", id, "--framework", "other"]);
            let export = export.expect("it is exported");
            assert_eq!((export_code, &export["verdict"]), (code, &plan["verdict"]), "{what}");
        }
    }
    assert_eq!(seen.len(), 4, "every verdict is met: {seen:?}");
}

/// Seconds of shards without a word on their collectives are refused, by the key that lacks.
#[test]
fn seconds_of_shards_must_say_whether_collectives_are_in_them() {
    let setting = Setting::start();
    let mut document = table("reserved", "fp32");
    document["layer_table"].as_object_mut().expect("a table").remove("times_without_collectives");
    let file = setting.write("silent.json", &document.to_string());
    let Output { code, stderr, .. } = cli(&setting.planner, &["profile", "import", &file]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("layer_table.times_without_collectives"), "{stderr}");
}

/// What no row is about is used when it is asked for by name alone, and then named.
#[test]
fn degrees_beyond_the_rows_are_used_when_they_are_named() {
    let setting = Setting::start();
    let document = table("reserved", "fp32");
    let on = ["--devices", "4x1GiB", "--layout", "uniform-grid"];
    let extrapolated = |answer: &Value| {
        warnings(answer).iter().any(|warning| warning.contains("tensor-parallel size 4 is outside the range"))
    };
    for objective in ["min-peak-memory", "min-iteration-time"] {
        let plan = setting.recommend(&document, &[&on[..], &["--objective", objective]].concat());
        assert!(tensor_degrees(&plan).iter().all(|&degree| degree <= 2), "{plan}");
        let told = warnings(&plan);
        assert!(told.iter().any(|warning| warning.contains("constraints.tensor_parallel_sizes")), "{told:?}");
        assert!(!extrapolated(&plan), "{told:?}");
    }
    let named = setting.recommend(&document, &[&on[..], &["--tensor-parallel-sizes", "4"]].concat());
    assert_eq!(tensor_degrees(&named), [4]);
    assert!(extrapolated(&named), "{named}");
    let given = setting.recommend(&document, &["--devices", "4x1GiB", "--pipeline-layout", "4t4"]);
    assert!(tensor_degrees(&given) == [4] && extrapolated(&given), "{given}");
    assert!(extrapolated(&setting.predict(&document, &["--pipeline-layout", "4t4"])));
}

/// Seconds of shards were measured over some links: a plan whose shards are on several nodes says so.
#[test]
fn shards_on_several_nodes_are_warned_of() {
    let setting = Setting::start();
    let kind = ["--device-kind", "gpu", "--device-memory", "1GiB"];
    let cluster = |id: &str, devices: &str| {
        let nodes = [
            "--nodes",
            "n[1-2]",
            "--devices-per-node",
            devices,
            "--network-bandwidth",
            "100Gb/s",
            "--id",
            id,
        ];
        json(&setting.planner, &[&["cluster", "create"], &kind[..], &nodes].concat());
    };
    cluster("apart", "1");
    cluster("together", "2");
    let spans = |document: &Value, cluster: &str| {
        let on = ["--cluster", cluster, "--layout", "uniform-grid", "--tensor-parallel-sizes", "2"];
        let plan = setting.recommend(document, &on);
        let mut told = warnings(&plan).into_iter();
        told.find(|warning| warning.contains("shards of a stage are on several nodes")).map(str::to_owned)
    };
    let mut document = table("reserved", "fp32");
    assert!(spans(&document, "apart").is_some_and(|told| told.contains("longer than predicted")));
    assert_eq!(spans(&document, "together"), None);
    document["layer_table"]["times_without_collectives"] = value!(true);
    assert!(spans(&document, "apart").is_some_and(|told| told.contains("bandwidth")));
}

/// Every plan and prediction for a framework names its bytes per parameter and those that are counted.
#[test]
fn what_frameworks_hold_is_told_beside_what_is_counted() {
    let setting = Setting::start();
    let told = |answer: &Value| {
        let mut told = warnings(answer).into_iter();
        told.find(|warning| warning.starts_with("bytes per parameter: ")).map(str::to_owned)
    };
    let bf16 = table("reserved", "bf16");
    for (framework, holds) in [
        ("megatron", "megatron holds 16 bytes with `--grad-reduce-in-bf16`"),
        ("deepspeed", "deepspeed holds 18 bytes (6 + 12/d at data-parallel size d)"),
        ("torchtitan", "version 0.2 keeps no fp32 weights"),
    ] {
        // DeepSpeed is exported chains that are known by name alone, of which nobody knows what it adds.
        let code = if framework == "deepspeed" { UNCERTAIN } else { 0 };
        let plan =
            setting.answer("recommend", &bf16, &["--devices", "2x1GiB", "--framework", framework], code);
        let answers = [
            told(&plan),
            told(&setting.predict(&bf16, &["--pipeline-layout", "2-2", "--framework", framework])),
            told(&json(&setting.planner, &["plan", "predict", "--plan", plan["name"].as_str().unwrap()])),
        ];
        for answer in answers {
            let answer = answer.unwrap_or_else(|| panic!("{framework}"));
            assert!(answer.contains(holds) && answer.contains("these figures count 16"), "{answer}");
        }
    }
    assert_eq!(told(&setting.predict(&bf16, &["--pipeline-layout", "2-2"])), None, "no framework is named");
    let main = table("reserved", "bf16_fp32_gradients");
    assert_eq!(told(&setting.predict(&main, &["--pipeline-layout", "2-2", "--framework", "megatron"])), None);
    let mut copies = table("reserved", "fp32");
    copies["layer_table"]["copies_bytes_per_parameter"] = value!(8);
    let deepspeed = ["--pipeline-layout", "2-2", "--framework", "deepspeed"];
    assert!(told(&setting.predict(&copies, &deepspeed)).is_some_and(|told| told.contains("count 24")));
    let state = |answer: &Value| {
        let held = answer["stages"][0]["breakdown"]["optimizerBytes"].as_str();
        held.and_then(|bytes| bytes.parse::<u64>().ok()).expect("a breakdown")
    };
    let plain = table("reserved", "fp32");
    // Two layers of 2²⁰ parameters.
    assert_eq!(
        state(&setting.predict(&copies, &deepspeed)) - state(&setting.predict(&plain, &deepspeed)),
        8 * (2 << 20)
    );
}

/// A model that the planner can build and a table of its layers are enough for a training in chunks: planned where plain training has
/// no room, said not to be to the byte, and refused by layer and ledgers where there is none either.
#[test]
fn a_table_of_a_known_model_is_planned_in_chunks() {
    let setting = Setting::start();
    let mut document = table("allocated", "bf16");
    let layers: Vec<Value> = (0..4)
        .map(|layer| value!({"name": format!("map {layer}"), "kind": "linear", "in_features": 1024, "out_features": 1024}))
        .collect();
    document["model"] = value!({"known": {
        "family": "chain", "input": {"kind": "vector", "size": 1024}, "layers": layers,
    }});
    for row in document["layer_table"]["layers"][0]["bytes"].as_array_mut().expect("there are rows") {
        // Two bytes of 1024 x 1024 weights and 1024 biases.
        row["parameter_bytes"] =
            value!(2 * (1024 * 1024 + 1024) / row["tensor_degree"].as_u64().expect("a degree"));
    }
    let ask = |devices: &str, more: &[&str]| {
        let file = setting.write("table.json", &document.to_string());
        let line = ["plan", "recommend", "--profile", &file, "--devices", devices, "-o", "json"];
        cli(&setting.planner, &[&line[..], more].concat())
    };
    let chunks = "--memory-mode chunks --host-memory 1GiB --copy-rates host=10GB/s memory.cpu_optimizer_rate=100000000".words();
    assert_eq!(ask("1x16MiB", &[]).code, 5, "state of 4 Mi parameters has no room");
    let found = ask("1x16MiB", &chunks);
    assert_eq!(found.code, 0, "{}", found.stderr);
    let plan = found.json();
    assert!(
        plan["stages"][0]["chunkedTraining"].is_object()
            && plan["stages"][0]["predictedPeak"]["producer"]
                .as_str()
                .is_some_and(|of| of.starts_with("table/")),
        "{plan}"
    );
    assert!(
        plan["warnings"].to_string().contains("These sums are less exact than bytes from allocation traces"),
        "{plan}"
    );

    let refused = ask("1x1MiB", &chunks);
    assert_eq!(refused.code, 5, "{}", refused.stdout);
    let names = ["through layer ", "(map ", "allocated memory"];
    assert!(names.iter().all(|name| refused.stderr.contains(name)), "{}", refused.stderr);
    let grown = ask(
        "1x16MiB",
        &[
            &chunks[..],
            &[
                "--objective",
                "max-model",
                "objective.model_scaling.parameter=blocks",
                "objective.model_scaling.min_value=1",
                "objective.model_scaling.max_value=9",
            ],
        ]
        .concat(),
    );
    assert!(grown.code != 0 && grown.stderr.contains("objective.model_scaling"), "{}", grown.stderr);
}

/// Bytes of a part of a stage's breakdown.
fn part(answer: &Value, stage: usize, name: &str) -> u64 {
    let held = answer["stages"][stage]["breakdown"][name].as_str();
    held.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Replicas that divide optimizer states hold a part of them: in figures, in what fits, and in what is exported.
#[test]
fn replicas_divide_optimizer_states() {
    let setting = Setting::start();
    let document = table("reserved", "bf16_fp32_gradients");
    // Two layers of 2²¹ parameters: Adam's moments, and fp32 weights beside bf16 ones.
    let of = |layout: &str| {
        let answer = setting.predict(&document, &["--pipeline-layout", layout]);
        ["weightsBytes", "gradientsBytes", "optimizerBytes"].map(|name| part(&answer, 0, name))
    };
    let scalars = 2 * (2 << 20);
    assert_eq!(of("2d4-2d4"), [6 * scalars, 4 * scalars, 8 * scalars]);
    assert_eq!(of("2d4z1-2d4z1"), [2 * scalars + scalars, 4 * scalars, 2 * scalars]);

    // Each replica needs 122 MiB where they share, and the optimizer states alone take 64 MiB otherwise.
    let on = ["--devices", "2x130MiB", "--layout", "uniform-grid", "--dp", "2", "--safety-margin", "0"];
    let both = ["--state-sharding", "none,optimizer", "--framework", "megatron"];
    let plan = setting.recommend(&document, &[&on[..], &both].concat());
    let config = &stages(&plan)[0]["config"];
    assert_eq!(config["stateSharding"], "STATE_SHARDING_OPTIMIZER", "{plan}");
    assert_eq!(plan["summary"]["memoryOptimizations"], value!(["ZeRO-1"]));
    let told = warnings(&plan);
    assert!(!told.iter().any(|of| of.starts_with("bytes per parameter")), "as Megatron has it: {told:?}");

    let refused = |options: &[&str]| {
        let file = setting.write("table.json", &document.to_string());
        let all = [&["plan", "recommend", "--profile", &file, "--devices", "2x1GiB"], options].concat();
        let output = cli(&setting.planner, &all);
        (output.code, output.stderr)
    };
    for (options, told) in [
        (&["--state-sharding", "optimizer"][..], "uniform-grid"),
        (&["--state-sharding", "optimizer", "--layout", "uniform-grid", "--dp", "1"], "replica"),
        (&["--state-sharding", "optimizer", "--framework", "galvatron"], "galvatron"),
        (
            &["--state-sharding", "none,optimizer", "--memory-mode", "chunks", "--host-memory", "1GiB"],
            "chunks",
        ),
        (&["--pipeline-layout", "4d2z1", "--framework", "torchtitan"], "--pipeline-layout"),
        (
            &["--pipeline-layout", "4d2z1", "--memory-mode", "best", "--host-memory", "1GiB"],
            "--pipeline-layout: asks for state sharding",
        ),
        (&["--pipeline-layout", "2z1-2"], "one replica"),
    ] {
        let (code, stderr) = refused(options);
        assert!(code == 2 && stderr.contains(told), "{options:?}: {stderr}");
    }
}

/// A table of a training with sequence parallelism, recomputation or a distributed optimizer is not read as one without.
#[test]
fn a_table_says_what_its_figures_are_of() {
    let setting = Setting::start();
    let with = |key: &str, said: Value| {
        let mut document = table("reserved", "bf16_fp32_gradients");
        document["layer_table"][key] = said;
        document
    };
    let refused = |document: &Value, options: &[&str]| {
        let file = setting.write("table.json", &document.to_string());
        let output = cli(&setting.planner, &[&["plan", "predict", "--profile", &file], options].concat());
        assert_ne!(output.code, 0, "{options:?}");
        output.stderr
    };

    let sequence = with("sequence_parallel", value!(true));
    let told = refused(&sequence, &["--pipeline-layout", "2t2-2t2"]);
    assert!(told.contains("layer_table.sequence_parallel") && told.contains("t2s"), "{told}");
    let told = refused(&table("reserved", "fp32"), &["--pipeline-layout", "2t2s-2t2s"]);
    assert!(told.contains("measured without sequence parallelism"), "{told}");
    let given = setting.predict(&sequence, &["--pipeline-layout", "2t2s-2t2s"]);
    assert_eq!(part(&given, 0, "weightsBytes"), 6 * (2 << 20));
    let on = ["--devices", "4x1GiB", "--layout", "uniform-grid", "--tp", "1,2", "--framework", "megatron"];
    for (tp, has) in [("2", Some(true)), ("1", Some(false))] {
        let plan =
            setting.recommend(&sequence, &[&on[..4], &["--tp", tp, "--framework", "megatron"]].concat());
        assert_eq!(stages(&plan)[0]["config"]["sequenceParallel"].as_bool(), has, "{plan}");
    }
    let file = setting.write("table.json", &sequence.to_string());
    let galvatron = ["--devices", "4x1GiB", "--framework", "galvatron", "--tp", "2"];
    let output =
        cli(&setting.planner, &[&["plan", "recommend", "--profile", &file], &galvatron[..]].concat());
    assert!(output.code == 2 && output.stderr.contains("sequence parallelism"), "{}", output.stderr);

    let mut recomputed = with("recompute", value!("layer"));
    let told = refused(&recomputed, &["--pipeline-layout", "2-2"]);
    assert!(told.contains("training.recompute"), "{told}");
    recomputed["training"]["recompute"] = value!("layer");
    let answer = setting.predict(&recomputed, &["--pipeline-layout", "2-2"]);
    // Both layers keep 64 KiB for each sample of the two micro-batches of four that the first stage has in flight.
    assert_eq!(part(&answer, 0, "activationsBytes"), 2 * 2 * 4 * 65_536);
    let seconds = |answer: &Value| {
        answer["stages"][0]["seconds"]["backwardSeconds"].as_f64().expect("a table has times")
    };
    let plain = setting.predict(&table("reserved", "bf16_fp32_gradients"), &["--pipeline-layout", "2-2"]);
    assert!(
        (seconds(&answer) - seconds(&plain)).abs() < 1e-9,
        "backward passes contain the second forward pass"
    );
    let told = refused(&recomputed, &["--pipeline-layout", "2-2", "--recompute", "none"]);
    assert!(told.contains("layer_table.recompute"), "{told}");

    let step = |document: &Value| {
        let answer = setting.predict(document, &["--pipeline-layout", "2-2"]);
        answer["stages"][0]["seconds"]["optimizerStepSeconds"].as_f64().expect("a table has times")
    };
    let shards = with("optimizer_shards", value!(4));
    assert!((step(&shards) - 4.0 * step(&table("reserved", "bf16_fp32_gradients"))).abs() < 1e-9);
    assert!(
        refused(&with("optimizer_shards", value!(0)), &["--pipeline-layout", "4"])
            .contains("optimizer_shards")
    );
}
