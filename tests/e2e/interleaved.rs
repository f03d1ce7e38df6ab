//! Plans whose devices take turns with several stages (Megatron-LM's virtual pipeline stages), as a user asks for them.

use loadmaster_proto::wire::v1::SimulatedSchedule;
use loadmaster_tests::{Planner, Worker, WorkerOptions, cli, json, profiled};
use serde_json::Value;

use crate::over_time::{is_same, plan, simulated};

/// A planner with a profile of GPT-2: embedding, four blocks, norm and head.
fn scene() -> (Planner, Worker) {
    let options = "--id gpt --micro-batch-size 4 --micro-batches 4 --schedule 1f1b";
    profiled(&WorkerOptions::default(), options)
}

/// Asks for two stages on each of two devices.
fn asked(planner: &Planner, devices: &str, more: &[&str]) -> Value {
    let ask = ["plan", "recommend", "--profile", "gpt", "--virtual-stages", "2", "--devices", devices];
    json(planner, &[&ask[..], more].concat())
}

/// The plan is proven, has two stages on each device, and is shown so: its own timeline takes the seconds that it says, its devices are
/// counted once, and whatever else would take it for one with a stage on each device refuses it by name.
#[tokio::test(flavor = "multi_thread")]
async fn stages_take_turns_on_their_devices() {
    let (planner, _worker) = scene();
    let channel = planner.channel().await;
    let found =
        asked(&planner, "2x512MiB", &["--objective", "min-iteration-time", "--micro-batch-size", "4"]);
    assert_eq!(found["certificate"]["optimal"], true, "{found}");
    let name = found["name"].as_str().unwrap();
    let stored = plan(&channel, name).await;
    assert_eq!((stored.virtual_stage_count, stored.stages.len(), stored.device_count), (2, 4, 2));
    assert_eq!(stored.devices.iter().map(|group| group.count).sum::<i32>(), 2);
    for (one, other) in [(0, 2), (1, 3)] {
        let (one, other) = (&stored.stages[one], &stored.stages[other]);
        assert_eq!((&one.device_ranges, &one.predicted_peak), (&other.device_ranges, &other.predicted_peak));
    }
    let seconds = stored.iteration.as_ref().unwrap().iteration_seconds;
    let own = simulated(&channel, name, 0, SimulatedSchedule::Unspecified).await;
    assert!(
        own.schedule() == SimulatedSchedule::Interleaved && is_same(own.iteration_seconds, seconds),
        "{own:?}"
    );
    // What it shows is the plan, its exchange of the tied weight included.
    assert!(own.warnings.iter().all(|warning| !warning.message.contains("not shown")), "{:?}", own.warnings);
    // Four micro-batches of either stage, there and back, and the updates.
    assert!(
        own.stage_timelines.len() == 2
            && own.stage_timelines.iter().all(|lane| lane.passes.len() == 2 * 2 * 4 + 1)
    );
    let line = "plan recommend --profile gpt --devices 2x512MiB --micro-batch-size 4";
    let flat = json(&planner, &format!("{line} --objective min-iteration-time"));
    let flat = flat["iteration"]["iterationSeconds"].as_f64().unwrap();
    let baseline = stored.baselines.iter().find(|of| of.name == "one-stage-each").unwrap();
    assert!(is_same(baseline.iteration_seconds.unwrap(), flat), "{baseline:?}");

    let shown = cli(&planner, &["plan", "show", name, "--picture"]).stdout;
    for part in ["2 virtual stages", "4 stages on 2 devices", "device 1 ", "0, 2: "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let listed = json(&planner, &["plan", "list", "--filter", "device_count = 2"]);
    assert!(listed.to_string().contains(name), "{listed}");
    for (verb, word) in [
        (&["plan", "trial", name][..], "trained"),
        (&["plan", "export", name, "--framework", "deepspeed"], "2 virtual pipeline stages per device"),
        (&["plan", "predict", "--plan", name], "predicted anew"),
        (&["plan", "show", name, "--schedule", "gpipe"], "interleaved schedule"),
    ] {
        let refused = cli(&planner, verb);
        assert!(refused.code != 0 && refused.stderr.contains(word), "{verb:?}: {}", refused.stderr);
    }
    for (more, option) in [
        (&["--memory-mode", "chunks", "--host-memory", "1GiB"][..], "--virtual-stages"),
        (&["--pipeline-parallel-sizes", "2.."], "--pipeline-parallel-sizes"),
        (&["--framework", "deepspeed"], "--framework"),
        (
            &["--micro-batches", "3", "--micro-batch-size", "4", "--objective", "min-iteration-time"],
            "--micro-batches",
        ),
    ] {
        let ask = ["plan", "recommend", "--profile", "gpt", "--virtual-stages", "2", "--devices", "2x512MiB"];
        let refused = cli(&planner, &[&ask[..], more].concat());
        assert!(refused.code != 0 && refused.stderr.contains(option), "{more:?}: {}", refused.stderr);
    }
}

/// A plan is bound to the devices of a node, as fast as it was planned: each has its stages, and an export its ranks on them.
#[tokio::test(flavor = "multi_thread")]
async fn stages_in_turn_are_bound_to_nodes() {
    let (planner, _worker) = scene();
    let megatron =
        ["--framework", "megatron", "--objective", "min-iteration-time", "--micro-batch-size", "4"];
    let found = asked(&planner, "2x512MiB", &megatron);
    let name = found["name"].as_str().unwrap();
    let bound = json(&planner, &["plan", "place", name, "--nodes", "n7", "--device-indices", "4,5"]);
    let seconds = |of: &Value| of.as_f64().unwrap();
    let (now, then) = (seconds(&bound["iterationSeconds"]), seconds(&bound["plannedIterationSeconds"]));
    assert!(is_same(now, then), "{bound}");
    let stages = bound["stages"].as_array().unwrap();
    assert!(stages.len() == 4 && stages[..2] == stages[2..] && stages[0] != stages[1], "{bound}");
    let placement = bound["name"].as_str().unwrap();
    let exported = json(&planner, &["plan", "export", name, "--placement", placement]);
    let device = |rank: &Value| (rank["device"]["node"].clone(), rank["device"]["index"].clone());
    let devices: Vec<_> = exported["ranks"].as_array().unwrap().iter().map(device).collect();
    assert_eq!(devices, [("n7".into(), 4.into()), ("n7".into(), 5.into())], "{exported}");
    let script = cli(&planner, &["slurm", "script", name, "--", "pretrain_gpt.py"]);
    assert!(script.code == 0 && script.stdout.contains("slurm place"), "{}{}", script.stdout, script.stderr);
}

/// Other objectives are answered for stages that take turns: no fewer than two devices take turns, and the points of the front, and the
/// plans that came next, are stored.
#[tokio::test(flavor = "multi_thread")]
async fn stages_in_turn_are_asked_for_by_other_objectives() {
    let (planner, _worker) = scene();
    let fewest = asked(&planner, "4x512MiB", &["--objective", "min-devices", "--micro-batch-size", "4"]);
    assert_eq!(
        (&fewest["certificate"]["optimal"], &fewest["certificate"]["objectiveValue"]),
        (&true.into(), &2.0.into())
    );
    let front = asked(&planner, "2x512MiB", &["--objective", "pareto", "--micro-batch-size", "4"]);
    let points = front["front"].as_array().unwrap();
    assert!(!points.is_empty() && front["certificate"]["optimal"] == true, "{front}");
    let next = fewest["alternatives"].as_array().unwrap();
    assert!(!next.is_empty(), "{fewest}");
    for stored in points.iter().chain(next) {
        let shown = json(&planner, &["plan", "show", stored["plan"].as_str().unwrap()]);
        assert_eq!(shown["virtualStageCount"], 2, "{shown}");
    }
}

/// A plan for Megatron keeps to what that can say, and its layout has all four stages, which two ranks take in turn.
#[tokio::test(flavor = "multi_thread")]
async fn stages_in_turn_are_exported_to_megatron() {
    let (planner, _worker) = scene();
    let megatron =
        ["--framework", "megatron", "--objective", "min-iteration-time", "--micro-batch-size", "4"];
    let found = asked(&planner, "2x512MiB", &megatron);
    let name = found["name"].as_str().unwrap();
    let exported = json(&planner, &["plan", "export", name]);
    let words: Vec<&str> = exported["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let value = |flag: &str| words[words.iter().position(|word| *word == flag).unwrap() + 1];
    assert_eq!(value("--pipeline-model-parallel-layout").split('|').count(), 4, "{words:?}");
    assert_eq!(value("--pipeline-model-parallel-size"), "2");
    let stages = |list: &str| -> Vec<u64> {
        let stage = |of: &Value| of["stage"].as_u64().unwrap_or(0);
        exported[list].as_array().unwrap().iter().map(stage).collect()
    };
    assert_eq!((stages("ranks"), stages("stageMemory")), (vec![0, 1], vec![0, 1]), "{exported}");
    let written = json(&planner, &["plan", "export", name, "--framework", "other"]);
    assert!(written["files"].to_string().contains("virtual_stages"), "{written}");
}

/// Where memory is short, actions are chosen that make the stages of each device fit together: the timeline has their copies, and
/// no device holds more than it has. The same stages and actions, given, are the same plan but for who chose them.
#[tokio::test(flavor = "multi_thread")]
async fn actions_are_chosen_for_stages_that_take_turns() {
    let (planner, _worker) = scene();
    let channel = planner.channel().await;
    // Less than any cut needs untouched.
    let lowest = asked(&planner, "2x512MiB", &["--objective", "min-peak-memory", "--micro-batch-size", "4"]);
    let peak: i64 = lowest["predictedPeak"]["bytes"].as_str().unwrap().parse().unwrap();
    let capacity = peak * 9 / 10;
    let devices = format!("2x{capacity}B");
    let rates = ["--copy-rates", "host=200MB/s,peer=300MB/s"];
    let actions =
        ["--optimizations", "recompute,cpu-offload", "--host-memory", "64MiB", "--micro-batch-size", "4"];
    let found = asked(&planner, &devices, &[&actions[..], &rates].concat());
    let name = found["name"].as_str().unwrap();
    let stored = plan(&channel, name).await;
    assert!(stored.predicted_peak.as_ref().is_some_and(|of| of.bytes <= capacity), "{stored:?}");
    assert!(stored.stages.iter().any(|stage| stage.memory_optimizations.is_some()), "{stored:?}");
    let certificate = stored.certificate.as_ref().unwrap();
    assert!(
        certificate.best_bound.is_some_and(|bound| bound <= certificate.objective_value),
        "{certificate:?}"
    );
    let seconds = stored.iteration.as_ref().unwrap().iteration_seconds;
    let own = simulated(&channel, name, 0, SimulatedSchedule::Unspecified).await;
    assert!(is_same(own.iteration_seconds, seconds), "{} {seconds}", own.iteration_seconds);
    let moves = stored
        .stages
        .iter()
        .any(|stage| stage.offload_traffic.as_ref().is_some_and(|of| !of.copy_traffic.is_empty()));
    assert_eq!(moves, !own.copy_timelines.is_empty(), "{own:?}");

    let line = "plan recommend --profile gpt --virtual-stages 2 --devices 2x1MiB --micro-batch-size 4";
    let none = cli(&planner, &format!("{line} --optimizations recompute"));
    assert!(none.code != 0 && none.stderr.contains("MiB more"), "{}", none.stderr);
}
