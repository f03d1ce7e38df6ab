//! Memory actions chosen for every objective: what is answered holds what it says, says how far it may be from the best, and
//! trains as predicted.

use loadmaster_tests::{Planner, cli, json, number, peak, seconds, stages};
use serde_json::Value;

use crate::memory_actions::{CHOSEN, scene, trained};

/// An answer for an objective on some devices; each is certified in its unit, and never better than its bound.
fn best_at(planner: &Planner, objective: &str, devices: &str, more: &[&str]) -> Value {
    let ask = ["plan", "recommend", "--profile", "gpt", "--devices", devices, "--objective", objective];
    let plan = json(planner, &[&ask[..], &CHOSEN, more].concat());
    let certificate = &plan["certificate"];
    let (value, bound) =
        (certificate["objectiveValue"].as_f64().unwrap(), certificate["bestBound"].as_f64().unwrap());
    let is_most = objective.starts_with("max");
    assert!(if is_most { value <= bound } else { bound <= value }, "{objective}: {certificate}");
    let is_proven = certificate["optimal"].as_bool().unwrap_or(false);
    assert!(!is_proven || (value - bound).abs() <= 1e-9 * bound, "{certificate}");
    plan
}

fn value(plan: &Value) -> f64 {
    plan["certificate"]["objectiveValue"].as_f64().unwrap()
}

fn told(plan: &Value) -> String {
    plan["warnings"].to_string()
}

/// Devices, money, samples and parameters are counted as such; what was not looked at is told.
#[test]
fn whatever_is_counted_is_answered_with_actions() {
    let (planner, _worker) = scene("1GiB");
    let free =
        ["plan", "recommend", "--profile", "gpt", "--devices", "2x512MiB", "--objective", "min-peak-memory"];
    let capacity = peak(&json(&planner, &[&free[..], &["--dry-run"]].concat())) * 8 / 10;
    let [one, three] = [1, 3].map(|count| format!("{count}x{capacity}B"));

    let fewest = best_at(&planner, "min-devices", &three, &[]);
    let devices = stages(&fewest).len();
    assert_eq!((value(&fewest), fewest["certificate"]["unit"].as_str()), (devices as f64, Some("devices")));
    assert!(told(&fewest).contains("one device per stage") && peak(&fewest) <= capacity, "{fewest}");
    let same = best_at(&planner, "min-iteration-time", &format!("{devices}x{capacity}B"), &[]);
    assert!((seconds(&same) - seconds(&fewest)).abs() < 1e-9, "{} {}", seconds(&same), seconds(&fewest));
    let shown = cli(&planner, &["plan", "show", fewest["name"].as_str().unwrap()]);
    assert!(shown.stdout.contains("objective  min-devices"), "{}", shown.stdout);

    let cheapest = best_at(&planner, "min-cost", &three, &["--hourly-price", "cpu=1.5", "--dry-run"]);
    assert_eq!(value(&cheapest), 1.5 * devices as f64);

    let sizes = ["--micro-batch-size", "1,2,4,8,16", "--global-batch-size", "16", "--dry-run"];
    let largest = best_at(&planner, "max-batch", &three, &sizes);
    assert_eq!(f64::from(number(&largest["training"]["microBatchSize"]) as i32), value(&largest));

    let models = [
        "--objective",
        "max-model",
        "objective.candidate_profiles=[profiles/gpt]",
        "--devices",
        &three,
        "--dry-run",
    ];
    let model = json(&planner, &[&["plan", "recommend"][..], &models, &CHOSEN].concat());
    assert_eq!(model["certificate"]["unit"], "parameters");
    assert!(value(&model) > 0.0 && peak(&model) <= capacity, "{model}");

    // Where nothing was found, what would help is told.
    let only = ["plan", "recommend", "--profile", "gpt", "--devices", &one, "--optimizations", "cpu-offload"];
    let none = cli(&planner, &[&only[..], &["--objective", "min-devices"]].concat());
    assert_eq!(none.code, 5, "{}", none.stderr);
    assert!(none.stderr.contains(" more with cpu-offload"), "{}", none.stderr);
}

/// The lowest peak that actions reach is trained to the byte; a limit on time raises it and is kept, for both choosers, with
/// stages that are named, too; a front between both is sampled, and says so.
#[test]
#[ignore = "slow: make test-slow"]
fn the_lowest_peak_and_the_front_are_answered_and_trained() {
    let (planner, _worker) = scene("1GiB");
    let ample = "2x512MiB";
    let fastest = best_at(&planner, "min-iteration-time", ample, &["--micro-batch-size", "4", "--dry-run"]);
    let lowest = best_at(&planner, "min-peak-memory", ample, &[]);
    assert_eq!(lowest["certificate"]["unit"], "bytes");
    assert!(value(&lowest) == peak(&lowest) as f64 && peak(&lowest) < peak(&fastest), "{lowest}");

    let limit = (seconds(&fastest) + seconds(&lowest)) / 2.0;
    let limit = format!("{:.0}ms", (limit * 1_000.0).ceil());
    let most: f64 = limit.trim_end_matches("ms").parse().unwrap();
    let within = ["--max-iteration-time", limit.as_str(), "--dry-run"];
    for more in [&[][..], &["--search-mode", "mpress"], &["--pipeline-layout", "4-3"]] {
        let limited = best_at(&planner, "min-peak-memory", ample, &[&within[..], more].concat());
        assert!(seconds(&limited) * 1_000.0 <= most, "{} is beyond {limit}", seconds(&limited));
        assert_eq!(value(&limited), peak(&limited) as f64, "{limited}");
    }
    let fast = format!("{:.0}us", seconds(&fastest) * 0.2e6);
    let ask = ["plan", "recommend", "--profile", "gpt", "--devices", ample, "--max-iteration-time", &fast];
    let refused = cli(&planner, &[&ask[..], &CHOSEN].concat());
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("--max-iteration-time"), "{}", refused.stderr);

    let front = best_at(&planner, "pareto", ample, &["--micro-batch-size", "4", "--search-time", "20s"]);
    let points = front["front"].as_array().unwrap();
    assert!(points.len() > 1 && points.len() <= 33, "{} points", points.len());
    assert!(told(&front).contains("the Pareto front is a sample"), "{front}");
    for pair in points.windows(2) {
        let of =
            |point: &Value| (number(&point["predictedPeak"]["bytes"]), point["iterationSeconds"].as_f64());
        assert!(of(&pair[0]).0 < of(&pair[1]).0 && of(&pair[0]).1 > of(&pair[1]).1, "{pair:?}");
    }
    json(&planner, &["plan", "show", points[0]["plan"].as_str().unwrap()]);

    trained(&planner, &lowest);
}
