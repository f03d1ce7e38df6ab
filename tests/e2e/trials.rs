//! Trials of a plan and its rivals, what users report of their own runs, and what both teach: through the
//! command line, with real pipelines.

use std::path::Path;

use loadmaster_tests::{
    Planner, SMALL_GPT2, Worker, WorkerOptions, binary, cli, json, profile, profiled, script, stages,
};
use serde_json::Value;

const REQUEST_ID: &str = "4f3c2b1a-0000-4000-8000-000000000001";

/// A small GPT-2, recorded on one and on two devices per layer.
fn recorded(planner: &Planner) {
    let training = "--micro-batch-size 4 --micro-batches 2";
    profile(planner, SMALL_GPT2, &format!("--id gpt {training} --parallelism tensor --parallel-sizes 2"));
}

/// Four devices for stages of any degrees: the best plans share a stage by tensor parallelism.
const RECOMMEND: &str = "plan recommend --profile gpt --devices 4x1GiB --layout per-stage-mesh output.alternative_count=4 output.skip_comparisons=true";

/// A rank that ends with an error when it is given what the file `broken` in its folder says.
fn breakable_rank(folder: &Path) -> std::path::PathBuf {
    let (rank, broken) = (binary("loadmaster-rank"), folder.join("broken"));
    let body = format!(
        "[ \"$1\" = train ] || exec '{rank}' \"$@\"\n\
         spec=$(cat); broken=$(cat '{broken}' 2>/dev/null)\n\
         if [ -n \"$broken\" ]; then case \"$spec\" in *\"$broken\"*) exit 7;; esac; fi\n\
         printf '%s' \"$spec\" | '{rank}' \"$@\"",
        rank = rank.display(),
        broken = broken.display(),
    );
    script(folder, "rank", &body)
}

fn stage_count(plan: &Value) -> usize {
    stages(plan).len()
}

fn trials(operation: &Value) -> &Vec<Value> {
    operation["metadata"]["trials"]["trials"].as_array().expect("a validation has trials")
}

/// How a rank is told its stage, of a stage that no other one of the plans has.
fn own_stage(plans: &[Value], of: usize) -> String {
    let spelt = |plan: &Value| -> Vec<String> {
        let stages = stages(plan);
        let spell = |stage: &Value| {
            let config = &stage["config"];
            format!(
                "\"first_layer\":{},\"last_layer\":{},\"data_degree\":{},\"tensor_degree\":{}",
                config["firstLayer"],
                config["lastLayer"],
                config["dataParallelSize"],
                config["tensorParallelSize"]
            )
        };
        stages.iter().map(spell).collect()
    };
    let others: Vec<String> = plans
        .iter()
        .enumerate()
        .filter(|&(index, _)| index != of)
        .flat_map(|(_, plan)| spelt(plan))
        .collect();
    spelt(&plans[of]).into_iter().find(|stage| !others.contains(stage)).expect("plans differ in a stage")
}

/// The whole path: three plans are trained and ranked by what was measured; one that fails loses no other;
/// trials and reports are judged together; and a correction is off unless asked.
#[test]
fn plans_are_tried_reported_and_corrected() {
    let folder = tempfile::tempdir().unwrap();
    let planner = Planner::start();
    let rank = breakable_rank(folder.path());
    let _worker = Worker::start(&planner, &WorkerOptions { rank, ..WorkerOptions::default() });
    recorded(&planner);
    let plan = json(&planner, RECOMMEND);
    let name = plan["name"].as_str().unwrap();
    assert_eq!(plan["calibrations"], serde_json::json!([]), "nothing is corrected unless asked");

    let (plans, best) = three_plans_are_ranked_by_measurement(&planner, &plan);
    assert!(
        plans.iter().any(|plan| {
            let stages = stages(plan);
            stages.iter().any(|stage| stage["config"]["tensorParallelSize"].as_i64().unwrap() > 1)
                || stages.iter().any(|stage| stage["config"]["dataParallelSize"].as_i64().unwrap() > 1)
        }),
        "a stage is shared by several devices"
    );
    let tried = one_failure_loses_no_other_trial(&planner, folder.path(), &plans, best);
    a_report_is_stored_once(&planner, name, stage_count(&plan));
    let stages = |name: &str| plans.iter().find(|plan| plan["name"] == name).map_or(0, stage_count);
    let pairs =
        plans.iter().map(stage_count).sum::<usize>() + tried.iter().map(|name| stages(name)).sum::<usize>();
    errors_are_listed(&planner, pairs, undisturbed(&planner, &plans));
    corrections_are_asked_for(&planner, &plan);
}

/// Returns the plans in the order of their predictions, and which of them measured best.
fn three_plans_are_ranked_by_measurement(planner: &Planner, plan: &Value) -> (Vec<Value>, usize) {
    let name = plan["name"].as_str().unwrap();
    let operation = json(planner, &["plan", "trial", name, "--candidates", "3"]);
    let trials = trials(&operation);
    assert_eq!(trials.len(), 3, "{operation}");
    assert_eq!(trials[0]["plan"], name, "the best prediction is tried first");
    for (trial, alternative) in trials[1..].iter().zip(plan["alternatives"].as_array().unwrap()) {
        assert_eq!(trial["plan"], alternative["plan"]);
    }
    // A list tells which of the plans that one request stored is its answer.
    let listed = json(planner, &["plan", "list"])["plans"].as_array().unwrap().clone();
    for listed in listed.iter().filter(|listed| trials.iter().any(|trial| trial["plan"] == listed["name"])) {
        let of = if listed["name"] == name { "" } else { name };
        assert_eq!(listed["recommendedPlan"], of, "{listed}");
    }
    for trial in trials {
        assert_eq!(trial["state"], "SUCCEEDED", "{trial}");
        let error = trial["peakErrorRatio"].as_f64().expect("the two peaks are of one ledger");
        assert!(error.abs() < 0.05, "a peak is predicted within 5 %: {trial}");
        assert!(trial["measuredIterationSeconds"].as_f64().unwrap() > 0.0);
        assert!(trial["predictedIterationSeconds"].as_f64().unwrap() > 0.0);
    }
    let peak = |trial: &Value| -> u64 { trial["measuredPeak"]["bytes"].as_str().unwrap().parse().unwrap() };
    for trial in trials {
        let better = trials.iter().filter(|other| peak(other) < peak(trial)).count();
        assert_eq!(trial["measuredRank"], better + 1, "ranked by the measured peak: {operation}");
    }
    let best = trials.iter().position(|trial| trial["measuredRank"] == 1).unwrap();
    assert_eq!(operation["response"]["name"], trials[best]["plan"], "the response is what measured best");
    assert!(operation["response"]["trials"][0]["failureMessage"].as_str().unwrap().is_empty());

    let plans: Vec<Value> = trials
        .iter()
        .map(|trial| json(planner, &["plan", "show", trial["plan"].as_str().unwrap()]))
        .collect();
    for plan in &plans {
        assert!(plan["stages"][0]["measuredPeak"].is_object(), "each plan shows its trial: {plan}");
    }
    let table = cli(planner, &["operation", "show", operation["name"].as_str().unwrap()]);
    assert!(table.stdout.contains("ranked by measured peak bytes"), "{}", table.stdout);
    (plans, best)
}

/// Returns the plans that were trained once more.
fn one_failure_loses_no_other_trial(
    planner: &Planner,
    folder: &Path,
    plans: &[Value],
    best: usize,
) -> Vec<String> {
    std::fs::write(folder.join("broken"), own_stage(plans, best)).unwrap();
    let operation =
        json(planner, &["plan", "trial", plans[0]["name"].as_str().unwrap(), "--candidates", "3"]);
    std::fs::remove_file(folder.join("broken")).unwrap();
    let trials = trials(&operation);
    assert_eq!(trials[best]["state"], "FAILED", "{operation}");
    assert_eq!(trials[best]["measuredRank"], 0);
    assert!(!trials[best]["failureMessage"].as_str().unwrap().is_empty());
    assert_ne!(operation["response"]["name"], trials[best]["plan"]);
    let succeeded = trials.iter().filter(|trial| trial["state"] == "SUCCEEDED");
    let succeeded: Vec<String> = succeeded.map(|trial| trial["plan"].as_str().unwrap().to_owned()).collect();
    assert_eq!(succeeded.len(), 2, "{operation}");
    succeeded
}

fn a_report_is_stored_once(planner: &Planner, name: &str, stages: usize) {
    let peaks = vec!["1GiB"; stages].join(",");
    let mut report = vec![
        "plan",
        "report",
        name,
        "--iteration-time",
        "420ms",
        "--stage-peaks",
        &peaks,
        "--accounting",
        "device",
    ];
    report.extend(["--iterations", "20", "--source", "megatron 0.15, job 123", "--request-id", REQUEST_ID]);
    let first = json(planner, &report);
    assert_eq!(json(planner, &report), first, "the same request is the same report");
    assert_eq!(first["deviceKind"], "cpu", "the plan's, as none was named");
    assert_eq!(first["stagePeaks"][0]["accounting"], "MEMORY_ACCOUNTING_DEVICE");
    assert_eq!(first["stagePeaks"][0]["producer"], first["name"]);
    let listed = json(planner, &["plan", "reports", name]);
    assert_eq!(listed["reports"], serde_json::json!([first]));
    assert_eq!(json(planner, &["plan", "show", name])["reports"], serde_json::json!([first]));

    let other = ["plan", "report", name, "--iteration-time", "1s", "--request-id", REQUEST_ID];
    let refused = cli(planner, &other);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    let long = cli(planner, &["plan", "report", name, "--iteration-time", "1000h"]);
    assert!(
        long.code == 2 && long.stderr.contains("3600000 s is out of range. Use 0 to 86400 s"),
        "{}",
        long.stderr
    );
    let wrong = cli(planner, &["plan", "report", name, "--stage-peaks", "1GiB", "--accounting", "device"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("--stage-peaks"), "{}", wrong.stderr);
}

/// Trials of these plans that nobody disturbed, on a busy machine none, and those that somebody did.
fn undisturbed(planner: &Planner, plans: &[Value]) -> (usize, usize) {
    let shown = plans.iter().map(|plan| json(planner, &["plan", "show", plan["name"].as_str().unwrap()]));
    let trials: Vec<Value> = shown
        .flat_map(|plan| plan["trials"].as_array().unwrap().clone())
        .filter(|of| of["failureMessage"] == "")
        .collect();
    let disturbed = trials.iter().filter(|of| of["contended"] == true).count();
    (trials.len() - disturbed, disturbed)
}

fn errors_are_listed(planner: &Planner, pairs: usize, (timed, disturbed): (usize, usize)) {
    let listed = json(planner, &["plan", "errors"]);
    assert_eq!(listed["contendedTrialCount"].as_u64(), Some(disturbed as u64), "{listed}");
    let errors = listed["predictionErrors"].as_array().unwrap();
    let of = |quantity: &str| {
        let mut rows = errors.iter().filter(|row| row["quantity"] == quantity);
        let row = rows.next().unwrap_or_else(|| panic!("no {quantity} in {listed}"));
        assert!(rows.next().is_none(), "one row for each quantity and ledger: {listed}");
        row
    };
    let (peaks, seconds) = (of("QUANTITY_PEAK_BYTES"), of("QUANTITY_ITERATION_SECONDS"));
    assert_eq!(
        peaks["accounting"], "MEMORY_ACCOUNTING_ALLOCATED",
        "the report's device ledger is not compared"
    );
    assert_eq!(
        (&peaks["planCount"], &peaks["pairCount"]),
        (&3.into(), &pairs.into()),
        "a pair for each stage"
    );
    assert_eq!(seconds["pairCount"], timed + 1, "trials that nobody disturbed, and one report");
    for row in [peaks, seconds].into_iter().filter(|row| row["planCount"].as_u64().unwrap() >= 3) {
        let correction = &row["calibration"];
        assert!(correction["version"].as_str().unwrap().starts_with("correction/1+"), "{row}");
        assert!(correction["explanation"].as_str().unwrap().contains("3 plans"), "{row}");
    }
    let elsewhere = json(planner, &["plan", "errors", "--device-kind", "none"]);
    assert_eq!(elsewhere["predictionErrors"], serde_json::json!([]));
}

fn corrections_are_asked_for(planner: &Planner, plain: &Value) {
    assert_eq!(json(planner, RECOMMEND)["name"], plain["name"], "trials change no plan by themselves");
    let asked = format!("{RECOMMEND} --calibrate");
    let corrected = json(planner, &asked);
    assert_ne!(corrected["name"], plain["name"], "a corrected plan is another plan");
    let corrections = corrected["calibrations"].as_array().unwrap();
    assert!(!corrections.is_empty(), "{corrected}");
    for correction in corrections {
        assert!(correction["version"].as_str().unwrap().starts_with("correction/1+"), "{correction}");
        assert!(correction["factor"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(json(planner, &asked)["name"], corrected["name"], "the same pairs give the same plan");
}

/// A plan of two devices, where the only worker has one: it is refused at once, and the command that the refusal names
/// trains its stages one by one, each of which needs what was predicted of it.
#[test]
fn stages_are_trained_alone_where_no_worker_holds_the_plan() {
    let options = "--id gpt --micro-batch-size 4 --micro-batches 2";
    let (planner, _worker) = profiled(&WorkerOptions::slots("1x1GiB"), options);
    let asked = "plan recommend --profile gpt --devices 2x1GiB --schedule 1f1b output.skip_comparisons=true";
    let plan = json(&planner, asked);
    let name = plan["name"].as_str().unwrap();
    assert_eq!(stage_count(&plan), 2, "{plan}");
    let refused = cli(&planner, &["plan", "trial", name]);
    assert!(refused.code != 0 && refused.stderr.contains("NO_WORKER_FITS"), "{}", refused.stderr);
    let told = "(`--stage-indices`): 2 of 2 stages fit alone, for example 0, 1";
    assert!(refused.stderr.contains(told), "{}", refused.stderr);
    let command = ["plan", "trial", name, "--stage-indices", "0,1"];

    let operation = json(&planner, &command);
    let trials = trials(&operation);
    assert_eq!(trials.len(), 2, "{operation}");
    for (index, trial) in trials.iter().enumerate() {
        assert_eq!((&trial["state"], &trial["stage"]), (&"SUCCEEDED".into(), &index.into()), "{trial}");
        assert_eq!(trial["predictedPeak"]["bytes"], plan["stages"][index]["predictedPeak"]["bytes"]);
        let error = trial["peakErrorRatio"].as_f64().expect("the two peaks are of one ledger");
        assert!(error.abs() < 0.05, "a stage alone needs what it needs among others: {trial}");
        assert!(trial["iterationErrorRatio"].is_null(), "its seconds are not the plan's: {trial}");
    }
    let shown = json(&planner, &["plan", "show", name]);
    for (stage, trial) in stages(&shown).iter().zip(trials) {
        assert_eq!(stage["measuredPeak"], trial["measuredPeak"]);
    }
    assert_eq!(shown["trials"], serde_json::json!([]), "the plan itself was never trained");
    assert_eq!(json(&planner, &["plan", "errors"])["predictionErrors"], serde_json::json!([]));
    let table = cli(&planner, &["operation", "show", operation["name"].as_str().unwrap()]).stdout;
    assert!(table.contains("stage 1"), "{table}");

    for (stages, word) in [("0,2", "Use 0 to 1"), ("1,1", "present twice")] {
        let wrong = cli(&planner, &["plan", "trial", name, "--stage-indices", stages]);
        assert!(wrong.code == 2 && wrong.stderr.contains(word), "{}", wrong.stderr);
        assert!(wrong.stderr.contains("--stage-indices"), "{}", wrong.stderr);
    }
}
