//! PipeDream as users ask for it: predicted, planned, trained without a flush, and what cannot be is named.

use loadmaster_tests::{
    Planner, SMALL_GPT2, Worker, WorkerOptions, cli, json, number, peak, profiled, seconds, stages,
};
use serde_json::Value;

use crate::memory_actions::trained;

/// A planner and a worker, with a profile of `SMALL_GPT2`, of seven layers, whose ends do not share a weight.
fn scene() -> (Planner, Worker) {
    let options = "--id gpt --untied-head --micro-batch-size 4 --micro-batches 4";
    profiled(&WorkerOptions::default().with("--host-memory 1GiB"), options)
}

/// One profile answers for it: bytes with as many versions of the weights as micro-batches in flight, seconds of the long
/// run, the plan with the lowest peaks and the fastest; a trial never flushes, and its peaks are those predicted.
#[test]
fn plans_under_pipedream_are_predicted_found_and_trained() {
    let (planner, _worker) = scene();

    let predict = |schedule: &str| {
        let ask =
            ["plan", "predict", "--profile", "gpt", "--pipeline-layout", "3-2-2", "--schedule", schedule];
        json(&planner, &ask)
    };
    let (endless, flushed) = (predict("pipedream"), predict("1f1b"));
    let weights =
        |answer: &Value, stage: usize| number(&answer["stages"][stage]["breakdown"]["weightsBytes"]);
    for stage in 0..3 {
        assert_eq!(number(&endless["stages"][stage]["inFlightMicroBatchCount"]), 3 - stage as i64);
        assert_eq!(weights(&endless, stage), (3 - stage as i64) * weights(&flushed, stage), "{endless}");
    }
    assert!(endless["warnings"].to_string().contains("outdated weights"), "{endless}");

    let ask = ["plan", "recommend", "--profile", "gpt", "--devices", "3x1GiB", "--schedule", "pipedream"];
    let plan = json(&planner, &[&ask[..], &["--pipeline-layout", "3-2-2"]].concat());
    let name = plan["name"].as_str().unwrap();
    for stage in 0..3 {
        assert_eq!(
            number(&plan["stages"][stage]["predictedPeak"]["bytes"]),
            number(&endless["stages"][stage]["peak"]["bytes"])
        );
    }
    // In the long run nothing is filled or drained: there is a closed form, and the simulation has it.
    let closed_form = plan["iteration"]["closedFormSeconds"].as_f64().unwrap();
    assert!((closed_form - seconds(&plan)).abs() < 1e-9 * closed_form, "{plan}");

    let best = |objective: &str| {
        let batch = ["--micro-batch-size", "4", "--micro-batches", "4", "--objective", objective];
        json(&planner, &[&ask[..], &batch].concat())
    };
    let (lowest, fastest) = (best("min-peak-memory"), best("min-iteration-time"));
    for found in [&lowest, &fastest] {
        assert_eq!(found["training"]["schedule"], "SCHEDULE_PIPEDREAM");
        assert_eq!(found["certificate"]["optimal"], true, "{found}");
        assert!(peak(&lowest) <= peak(found) && seconds(&fastest) <= seconds(found) * (1.0 + 1e-9));
    }
    assert!(peak(&lowest) <= peak(&plan) && seconds(&fastest) <= seconds(&plan) * (1.0 + 1e-9));

    // Layers of a stage that are computed again take less, and longer.
    let again =
        [&ask[..], &["--pipeline-layout", "3-2-2", "--stage-optimization", "0/1..2=recompute"]].concat();
    let again = json(&planner, &again);
    assert!(peak(&again) < peak(&plan) && seconds(&again) >= seconds(&plan), "{again}");

    // Versions of the weights, activations and the optimizer's state leave to the host and to another stage, and every ledger
    // is as predicted.
    let away =
        ["0/0..2=versions:host:1,2", "0/1=activations:1", "0/0..2=optimizer:host:0,4", "1/3..4=versions:2"];
    let actions: Vec<&str> = away.iter().flat_map(|action| ["--stage-optimization", *action]).collect();
    let moved = json(&planner, &[&ask[..], &["--pipeline-layout", "3-2-2"], &actions[..]].concat());
    let offload = &moved["stages"][0]["offloadTraffic"];
    assert!(number(&offload["hostPeakBytes"]) > 0 && offload["copyTraffic"][1]["peer"] == 1, "{moved}");
    assert!(peak(&moved) < peak(&plan) && seconds(&moved) >= seconds(&plan) * (1.0 - 1e-6), "{moved}");
    trained(&planner, &moved);

    for name in [name, again["name"].as_str().unwrap()] {
        json(&planner, &["plan", "trial", name]);
        let tried = json(&planner, &["plan", "show", name]);
        for stage in stages(&tried) {
            assert_eq!(stage["predictedPeak"]["bytes"], stage["measuredPeak"]["bytes"], "{stage}");
        }
    }
    let tried = json(&planner, &["plan", "show", name]);
    assert!(tried["trials"][0]["iterationSeconds"].as_f64().unwrap() > 0.0, "{tried}");
    let shown = cli(&planner, &["plan", "show", name]);
    assert!(
        shown.stdout.contains("pipedream") && shown.stdout.contains("outdated weights"),
        "{}",
        shown.stdout
    );
}

/// Where stages do not fit untouched, actions are chosen with which they do: by MPress's planner, and no slower by ours. They
/// are trained within the capacity as predicted, and nothing is faster than the untouched stages.
#[test]
#[ignore = "slow: make test-slow"]
fn actions_are_chosen_under_pipedream() {
    let (planner, _worker) = scene();
    let stages = ["--pipeline-layout", "3-2-2", "--schedule", "pipedream"];
    let on = |devices: &str, more: &[&str]| -> Vec<String> {
        let ask = ["plan", "recommend", "--profile", "gpt", "--devices", devices];
        [&ask[..], &stages, more].concat().into_iter().map(str::to_owned).collect()
    };
    let asked = |arguments: Vec<String>| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        json(&planner, &arguments)
    };
    let untouched = asked(on("3x1GiB", &[]));
    let capacity = peak(&untouched) * 7 / 10;
    let tight = format!("3x{capacity}B");
    let host = [
        "--host-memory",
        "512MiB",
        "memory.blocks=[MEMORY_BLOCK_ACTIVATIONS,MEMORY_BLOCK_INPUTS,MEMORY_BLOCK_VERSIONS,MEMORY_BLOCK_OPTIMIZER]",
    ];
    let all =
        asked(on(&tight, &[&["--optimizations", "recompute,cpu-offload,peer-swap"][..], &host].concat()));
    let mpress = asked(on(&tight, &[&["--search-mode", "mpress"][..], &host].concat()));
    assert!(seconds(&all) <= seconds(&mpress) * (1.0 + 1e-9), "{all} {mpress}");
    let versions = [
        "--optimizations",
        "cpu-offload",
        "--host-memory",
        "512MiB",
        "memory.blocks=[MEMORY_BLOCK_VERSIONS]",
    ];
    let weights = number(&untouched["stages"][0]["breakdown"]["weightsBytes"]) / 3;
    let little_less = format!("3x{}B", peak(&untouched) - weights / 2);
    let versions = asked(on(&little_less, &versions));
    assert!(versions["stages"][0]["memoryOptimizations"].to_string().contains("VERSIONS"), "{versions}");
    for plan in [&all, &mpress, &versions] {
        let certificate = &plan["certificate"];
        let [value, bound] = ["objectiveValue", "bestBound"].map(|of| certificate[of].as_f64().unwrap());
        assert!(value >= bound && bound >= seconds(&untouched) * (1.0 - 1e-9), "{certificate}");
        assert!(plan["warnings"].to_string().contains("in the steady state of pipedream"), "{plan}");
        let allowed = if plan == &versions { peak(&untouched) } else { capacity };
        assert!(peak(plan) <= allowed, "{plan}");
        trained(&planner, plan);
    }
}

/// What nobody does under PipeDream is refused by the option or the path that asks for it.
#[test]
fn what_cannot_be_under_pipedream_is_named() {
    let options = "--id gpt --untied-head --micro-batch-size 2 --micro-batches 2";
    let (planner, _worker) = profiled(&WorkerOptions::default(), options);
    let ask = ["plan", "recommend", "--profile", "gpt", "--devices", "2x1GiB", "--schedule", "pipedream"];
    let named = [&ask[..], &["--pipeline-layout", "4-3"]].concat();
    for (arguments, what) in [
        ([&named[..], &["--stage-optimization", "0/1@0=recompute"]].concat(), "slots"),
        ([&named[..], &["--stage-optimization", "0/1=weights:host:1,1"]].concat(), "weights cannot be swapped"),
        ([&ask[..], &["--framework", "megatron"]].concat(), "not supported by megatron, which supports 1f1b"),
        (
            "plan predict --profile gpt --pipeline-layout 4-3 --schedule pipedream --stage-optimization 0/1=gradients:host:1,1"
                .split(' ')
                .collect(),
            "creates new gradients in every backward pass",
        ),
        (
            "plan predict --profile gpt --pipeline-layout 4-3 --schedule pipedream --stage-optimization 1/4=versions:host:1,1"
                .split(' ')
                .collect(),
            "such as the last stage. Remove this swap",
        ),
    ] {
        let output = cli(&planner, &arguments);
        assert!(output.code == 2 && output.stderr.contains(what), "{arguments:?}: {}", output.stderr);
    }
    // A program of one's own may train it.
    let launched = json(&planner, &[&ask[..], &["--framework", "other"]].concat());
    assert_eq!(launched["training"]["schedule"], "SCHEDULE_PIPEDREAM");

    let training = "--micro-batch-size 2 --micro-batches 2 --schedule pipedream";
    let output = cli(&planner, &format!("profile run --id tied {SMALL_GPT2} {training}"));
    assert!(output.code == 2 && output.stderr.contains("tied"), "{}", output.stderr);
}
