//! Memory actions for a framework, as users ask for them: what it can say is chosen, trained, exported, and told at its cost.

use loadmaster_tests::{Planner, cli, json, number, peak, stages};
use serde_json::Value;

use crate::memory_actions::{scene, trained};

const ASK: [&str; 8] =
    ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "4-3", "--framework", "megatron"];

fn ask(planner: &Planner, more: &[&str]) -> Value {
    json(planner, &[&ASK[..], more].concat())
}

/// The layers that each stage computes again, one by one.
fn again(plan: &Value) -> Vec<Vec<i64>> {
    let of = |stage: &Value| {
        let actions = stage["memoryOptimizations"]["optimizations"].as_array().cloned().unwrap_or_default();
        let one = |action: &Value| {
            assert!(
                action["recompute"].is_object()
                    && action["microBatchSlots"].as_array().is_none_or(Vec::is_empty),
                "{action}"
            );
            assert_eq!(number(&action["firstLayer"]), number(&action["lastLayer"]), "{action}");
            number(&action["firstLayer"])
        };
        actions.iter().map(one).collect()
    };
    stages(plan).iter().map(of).collect()
}

/// Of the first blocks of every stage as many are computed again as must be; the plan trains as predicted, leaves as Megatron's own
/// flags, and says what the framework costs.
#[test]
fn what_is_chosen_for_a_framework_is_what_it_runs() {
    let (planner, _worker) = scene("1GiB");
    let recompute = ["--optimizations", "recompute"];
    let untouched = json(&planner, &[&ASK[..6], &["--devices", "2x512MiB"]].concat());
    let lowest = ask(
        &planner,
        &[&["--devices", "2x512MiB", "--objective", "min-peak-memory"], &recompute[..]].concat(),
    );
    assert!(peak(&lowest) < peak(&untouched), "{lowest}");
    // Nothing of it is needed with more, and more than all of it with less.
    let between = format!("2x{}KiB", (peak(&lowest) + peak(&untouched)) / 2 / 1_024);
    let plan = ask(&planner, &[&["--devices", &between][..], &recompute].concat());
    let layers = again(&plan);
    let count = layers[0].len() as i64;
    assert!((1..=3).contains(&count), "{plan}");
    assert_eq!(layers, [(1..=count).collect::<Vec<_>>(), vec![4]], "{plan}");
    let cost = &plan["restrictionCost"];
    assert!(cost["ratio"].as_f64().unwrap() >= 1.0 && cost["freeValue"].as_f64().unwrap() > 0.0, "{cost}");
    trained(&planner, &plan);

    let name = plan["name"].as_str().unwrap();
    let shown = cli(&planner, &["plan", "show", name]);
    assert!(shown.stdout.contains("rules of parallelism layout and framework"), "{}", shown.stdout);
    println!("{}", shown.stdout);
    let folder = tempfile::tempdir().unwrap();
    let made = cli(&planner, &["plan", "export", name, "--to", folder.path().to_str().unwrap()]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let script = std::fs::read_to_string(folder.path().join("train.sh")).unwrap();
    // All blocks one by one are said in another way than some of them.
    let method = if count < 3 { "block" } else { "uniform" };
    let number = if count < 3 { count } else { 1 };
    assert!(script.contains(&format!("--recompute-method {method}\n")), "{script}");
    assert!(script.contains(&format!("--recompute-num-layers {number}\n")), "{script}");
    // Another framework that counts otherwise refuses it, stage by stage.
    let refused = cli(&planner, &["plan", "export", name, "--framework", "deepspeed", "--to", "x"]);
    assert!(
        refused.code != 0
            && refused.stderr.contains("in groups of equal size from the first layer of every stage"),
        "{}",
        refused.stderr
    );
}

/// What no export says is refused by the option that names it.
#[test]
fn what_a_framework_cannot_do_is_named() {
    let (planner, _worker) = scene("1MiB");
    for (arguments, what) in [
        (&["--optimizations", "cpu-offload"][..], "--optimizations"),
        (&["--host-memory", "1GiB"], "--host-memory"),
        (&["--optimizations", "recompute", "memory.blocks=[MEMORY_BLOCK_ACTIVATIONS]"], "memory.blocks"),
        (&["--optimizations", "recompute", "--search-mode", "mpress"], "--search-mode"),
        (&["--stage-optimization", "0/1@0=recompute"], "slots"),
        (&["--stage-optimization", "0/0=recompute"], "first blocks of every stage"),
        (&["--stage-optimization", "0/1=recompute"], "does 1=recompute"),
    ] {
        let output = cli(&planner, &[&ASK[..], &["--devices", "2x512MiB"], arguments].concat());
        assert!(output.code != 0 && output.stderr.contains(what), "{arguments:?}: {}", output.stderr);
    }
}
