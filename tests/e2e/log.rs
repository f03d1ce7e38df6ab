//! What operators find in the planner's log.

use loadmaster_tests::{Planner, TINY_GPT2, Worker, WorkerOptions, cli, json, profile, wait_until};
use serde_json::Value;

fn start() -> Planner {
    Planner::start_with(&["--log-format", "json", "--lease-duration", "3s", "--heartbeat-interval", "0.5s"])
}

/// The fields of all lines with this message.
fn lines(planner: &mut Planner, message: &str) -> Vec<Value> {
    let output = planner.program().output();
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut fields = lines.map(|line| line["fields"].clone());
    fields.by_ref().filter(|fields| fields["message"] == message).collect()
}

/// The calls of one method, once the last one is logged.
fn calls(planner: &mut Planner, method: &str, number: usize) -> Vec<Value> {
    let method = format!("loadmaster.v1.{method}");
    wait_until("calls are logged", || {
        let calls = lines(planner, "call ended").into_iter().filter(|call| call["method"] == *method);
        Some(calls.collect::<Vec<_>>()).filter(|calls| calls.len() >= number)
    })
}

#[test]
fn calls_that_change_something_or_fail_are_logged_once_and_reads_are_not() {
    let mut planner = start();
    let model = json(&planner, &["model", "create", "--model", "vgg11"])["name"].clone();
    assert_eq!(cli(&planner, &["model", "show", model.as_str().unwrap()]).code, 0);
    assert_eq!(cli(&planner, &["plan", "show", "7f3c"]).code, 3);
    assert_eq!(cli(&planner, &["run", "list"]).code, 0);
    assert_eq!(cli(&planner, &["operation", "show", "0197"]).code, 3);
    assert_eq!(cli(&planner, &["profile", "list"]).code, 0);
    assert_eq!(cli(&planner, &["plan", "show", "7f3d"]).code, 3);

    let created = calls(&mut planner, "ModelService/CreateModel", 1);
    assert_eq!(created.len(), 1, "{created:?}");
    assert_eq!((&created[0]["code"], &created[0]["names"]), (&"OK".into(), &model));
    assert!(created[0]["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(created[0]["peer"], "127.0.0.1", "{created:?}");
    // Calls are logged in order, and the second of these was the last one.
    let refused = calls(&mut planner, "PlanService/GetPlan", 2);
    assert_eq!(refused.len(), 2, "{refused:?}");
    let told = ["code", "reason", "names"].map(|field| refused[0][field].as_str().unwrap_or_default());
    assert_eq!(told, ["NOT_FOUND", "NOT_FOUND", "plans/7f3c"]);
    let methods: Vec<Value> =
        lines(&mut planner, "call ended").iter().map(|call| call["method"].clone()).collect();
    for read in ["ListRuns", "GetOperation", "GetModel", "ListProfiles"] {
        assert!(!methods.iter().any(|method| method.as_str().unwrap().ends_with(read)), "{methods:?}");
    }
    assert!(!planner.program().output().contains("postgres://"), "no database URL is in the log");
}

#[test]
fn the_end_of_an_operation_says_what_ended_and_how() {
    let mut planner = start();
    let worker = Worker::start(&planner, &WorkerOptions::default());
    let options = "--micro-batch-size 2 --micro-batches 2";
    profile(&planner, TINY_GPT2, &format!("--id p {options}"));
    drop(worker);
    let run =
        format!("profile run --id q {TINY_GPT2} {options} --ignore-stored-runs --device-kind cpu --no-wait");
    let cancelled = json(&planner, &run)["name"].as_str().unwrap().to_owned();
    assert_eq!(cli(&planner, &["operation", "cancel", &cancelled]).code, 0);

    let ended = wait_until("both ends are logged", || {
        Some(lines(&mut planner, "operation ended")).filter(|ended| ended.len() >= 2)
    });
    let told = |index: usize| ["kind", "target", "outcome"].map(|field: &str| ended[index][field].clone());
    assert_eq!(told(0), ["profile", "profiles/p", "succeeded"].map(Value::from));
    assert_eq!(told(1), ["profile", "profiles/q", "cancelled"].map(Value::from));
    assert!(ended[0]["seconds"].as_f64().unwrap() > 0.0, "{ended:?}");
    assert!(ended[0]["runs"].as_u64().unwrap() > 0 && ended[0]["runs"] == ended[0]["succeeded"], "{ended:?}");
}
