//! Pictures of plans, through the command line: in the terminal, as SVG and as a page.

use std::path::Path;

use loadmaster_tests::{Planner, TINY_GPT2, Worker, WorkerOptions, cli, json, profile};

/// A profile of single layers.
fn recorded(planner: &Planner) {
    let sizes = "--micro-batch-size 4 --micro-batches 6 --profile-micro-batch-sizes 2,4";
    profile(planner, TINY_GPT2, &format!("--id gpt {sizes}"));
}

fn recommend(planner: &Planner, options: &[&str]) -> String {
    let asked = [&["plan", "recommend", "--profile", "gpt", "--devices", "3x1GiB"], options].concat();
    json(planner, &asked)["name"].as_str().expect("a name").to_owned()
}

/// Runs a verb that draws and returns what it wrote.
fn draw(planner: &Planner, arguments: &[&str], path: &Path) -> String {
    let file = path.to_str().expect("a path of characters");
    let output = cli(planner, &[arguments, &["--output", file]].concat());
    assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
    assert_eq!(output.stdout, "", "a file takes the place of standard output");
    assert!(output.stderr.contains("written to"), "{}", output.stderr);
    std::fs::read_to_string(path).expect("the file is there")
}

/// All text of a well-formed document.
fn texts(file: &str) -> String {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    let document = roxmltree::Document::parse_with_options(file, options).expect("well-formed");
    document.descendants().filter_map(|node| node.text()).collect::<Vec<_>>().join("\n")
}

/// A plan is drawn from what the planner knows: every picture in the terminal and in files, with units, ledger
/// and origin, and a trial's measured peaks beside the predicted ones.
#[test]
fn a_plan_is_drawn_in_the_terminal_and_into_files() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::slots("3x1GiB"));
    recorded(&planner);
    let plan = recommend(&planner, &[]);
    let folder = tempfile::tempdir().expect("a folder");

    let table = cli(&planner, &["plan", "show", &plan]);
    assert!(!table.stdout.contains("Stages on the devices"), "no picture into a pipe unasked");
    let drawn = cli(&planner, &["plan", "show", &plan, "--picture"]);
    assert_eq!(drawn.code, 0, "{}", drawn.stderr);
    assert!(drawn.stdout.starts_with(&table.stdout), "{}", drawn.stdout);
    for part in
        ["Stages on the devices", "Memory of the devices", "Schedule", "allocated memory; predicted by"]
    {
        assert!(drawn.stdout.contains(part), "{part}: {}", drawn.stdout);
    }
    let none = cli(&planner, &["plan", "show", &plan, "--picture=devices,chunks,front"]);
    assert_eq!(none.code, 2, "{}", none.stdout);
    assert!(none.stderr.contains("--picture: the plan has no chunks, front to draw"), "{}", none.stderr);
    let interleaved = cli(&planner, &["plan", "show", &plan, "--schedule", "interleaved"]);
    assert!(
        interleaved.stdout.contains("Schedule · interleaved: "),
        "{}{}",
        interleaved.stdout,
        interleaved.stderr
    );

    let validated = json(&planner, &["plan", "trial", &plan]);
    let run = validated["trials"][0]["run"].as_str().expect("a run");
    let svg = draw(&planner, &["plan", "show", &plan], &folder.path().join("plan.svg"));
    let told = texts(&svg);
    for part in
        ["Stages on the devices", "predicted peak bytes, allocated memory", &format!("measured in {run}")]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(told.contains("forward pass of micro-batch 3: "), "{told}");
    let page = draw(&planner, &["plan", "show", &plan], &folder.path().join("plan.html"));
    assert!(texts(&page).contains("predicted peak"), "{page}");
}

/// Plans of one request are compared on common scales; what differs is marked.
#[test]
fn plans_are_compared_side_by_side() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::slots("3x1GiB"));
    recorded(&planner);
    let best = recommend(&planner, &[]);
    let given = recommend(&planner, &["--pipeline-layout", "1-1-4"]);
    let folder = tempfile::tempdir().expect("a folder");

    let compared = cli(&planner, &["plan", "compare", &best, &given, "--picture"]);
    assert_eq!(compared.code, 0, "{}", compared.stderr);
    for part in ["≠  pipeline layout ", "   profile ", "Memory of the devices · plan "] {
        assert!(compared.stdout.contains(part), "{part}: {}", compared.stdout);
    }
    let page = draw(&planner, &["plan", "compare", &best, &given], &folder.path().join("plans.html"));
    let told = texts(&page);
    for name in [&best, &given] {
        let id = name.trim_start_matches("plans/");
        assert!(told.contains(&format!("plan {id}")), "{told}");
    }
    let missing = cli(&planner, &["plan", "compare", &best, "plans/none"]);
    assert_eq!(missing.code, 3, "{}", missing.stderr);
}

/// The front of a plan between memory and time is a picture of its own.
#[test]
fn a_front_is_a_plot_with_the_plan_marked() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::slots("3x1GiB"));
    recorded(&planner);
    let plan = recommend(&planner, &["--objective", "pareto"]);
    let folder = tempfile::tempdir().expect("a folder");
    let front = draw(&planner, &["plan", "show", &plan, "--picture=front"], &folder.path().join("front.svg"));
    let told = texts(&front);
    assert!(told.contains("this plan: "), "{told}");
    assert!(told.contains("highest predicted peak of a device, bytes, allocated memory"), "{told}");
}

/// A file that is there stays as it is unless the user says otherwise, and verbs that draw nothing say so.
#[test]
fn files_are_not_overwritten_and_only_pictures_are_files() {
    let planner = Planner::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.svg");
    std::fs::write(&path, "mine").expect("written");
    let file = path.to_str().expect("a path of characters");

    let kept = cli(&planner, &["plan", "show", "none", "--output", file]);
    assert_eq!(kept.code, 2, "{}", kept.stderr);
    assert!(kept.stderr.contains("--overwrite"), "{}", kept.stderr);
    let replaced = cli(&planner, &["plan", "show", "none", "--output", file, "--overwrite"]);
    assert_eq!(replaced.code, 3, "there is no such plan: {}", replaced.stderr);
    assert_eq!(std::fs::read_to_string(&path).expect("the file is there"), "mine");
    let list = cli(&planner, &["plan", "list", "--output", "plans.svg"]);
    assert_eq!(list.code, 2, "{}", list.stderr);
    assert!(list.stderr.contains("plan show"), "{}", list.stderr);
    let json = cli(&planner, &["plan", "show", "none", "--picture", "-o", "json"]);
    assert_eq!(json.code, 2, "{}", json.stderr);
}
