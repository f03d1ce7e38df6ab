//! The examples of the help texts, typed at a real planner as they stand there.
//!
//! Names in them stand for what a user has made: here it is made first. Left out is what trains for long, needs files
//! or programs that are not there, or would end what other examples look at.

use std::process::Command;

use loadmaster_tests::{Planner, Worker, WorkerOptions, binary, cli, json};
use tempfile::TempDir;

const VERBS: [&str; 31] = [
    "history purge",
    "profile list",
    "profile label",
    "profile show",
    "profile measurements",
    "profile run",
    "profile export",
    "plan predict",
    "plan recommend",
    "plan show",
    "plan compare",
    "plan list",
    "plan label",
    "plan place",
    "plan placements",
    "plan report",
    "plan reports",
    "plan errors",
    "model list",
    "model show",
    "model create",
    "model chunks",
    "cluster create",
    "cluster list",
    "cluster show",
    "cluster links",
    "slurm request",
    "run list",
    "run show",
    "worker show",
    "operation show",
];
/// What cannot be typed here.
const LEFT_OUT: [&str; 13] = [
    " -w",
    "$SLURM",
    "12ab",
    "jq ",
    "less ",
    "gpt2-s",
    "$(",
    "operation wait \"",
    ".json",
    "front.svg",
    "--stage-peaks",
    "train.log",
    "request.yaml",
];

/// The commands of a help text: indented lines below `Examples:`, with the lines that continue them.
fn examples(help: &str) -> Vec<String> {
    let mut examples: Vec<String> = Vec::new();
    // Whether this line continues the one before, and whether that one is ours.
    let (mut continues, mut ours) = (false, false);
    for line in help.lines().skip_while(|line| *line != "Examples:").skip(1) {
        let (text, more) = match line.trim().strip_suffix('\\') {
            Some(text) => (text, true),
            None => (line.trim(), false),
        };
        ours = if continues { ours } else { text.starts_with("loadmaster ") };
        match examples.last_mut() {
            Some(last) if continues && ours => last.push_str(text),
            _ if ours => examples.push(text.to_owned()),
            _ => {}
        }
        continues = more;
    }
    examples
}

fn make(planner: &Planner, line: &str) -> String {
    let output = cli(planner, line);
    assert_eq!(output.code, 0, "{line}: {}", output.stderr);
    output.stdout.trim().to_owned()
}

#[test]
fn examples_of_the_help_texts_work_as_they_stand_there() {
    let planner = Planner::start();
    let options = WorkerOptions { name: "node1".to_owned(), ..Default::default() }.with("--host-memory 1GiB");
    let _worker = Worker::start(&planner, &options);
    let training = "--micro-batch-size 4 --micro-batches 4 -o name";
    make(
        &planner,
        &format!(
            "profile run --id vgg11-1a2b --model vgg11 --image-size 32 --classifier-width 64 {training}"
        ),
    );
    let gpt2 = "--blocks 24 --hidden-size 32 --heads 4 --sequence-length 16 --vocabulary-size 100";
    let degrees = "--parallelism tensor --parallel-sizes 2,4 --host-memory 256MiB";
    make(&planner, &format!("profile run --id gpt2-3c4d --model gpt2 {gpt2} {degrees} {training}"));
    let devices = "--devices-per-node 4 --device-kind cpu --device-memory 24GiB";
    make(&planner, &format!("cluster create --id pod1 --nodes n[1-2] {devices} -o name"));
    let plan = make(&planner, "plan recommend --profile vgg11-1a2b --devices 4x2GiB -o name");
    let alternatives = json(&planner, &["plan", "list"])["plans"].clone();
    let other = |index: usize| alternatives[index]["name"].as_str().unwrap().replace("plans/", "");
    let in_chunks = "--devices 1x24GiB --memory-mode chunks --host-memory 200GiB output.skip_comparisons=true --timeout 150s -o name";
    let in_chunks = make(&planner, &format!("plan recommend --profile gpt2-3c4d {in_chunks}"));
    let model = json(&planner, &["profile", "show", "vgg11-1a2b"])["model"].as_str().unwrap().to_owned();
    let operation = make(&planner, "operation list --limit 1 -o name");
    let run = make(&planner, "run list --limit 1 -o name");

    let folder = TempDir::new().unwrap();
    let path = binary("loadmaster").parent().unwrap().to_owned();
    let (mut typed, mut failed) = (0, Vec::new());
    for verb in VERBS {
        let help = cli(&planner, &verb.split(' ').chain(["--help"]).collect::<Vec<_>>()).stdout;
        for example in examples(&help) {
            if LEFT_OUT.iter().any(|word| example.contains(word)) {
                continue;
            }
            let id = if verb == "run show" { &run } else { &operation };
            let mut line = example
                .replace("0197", id.rsplit('/').next().unwrap())
                .replace("7f3c", &plan.replace("plans/", ""))
                .replace("5c2d", &in_chunks.replace("plans/", ""))
                .replace("8a4d", &other(0))
                .replace("9b5e", &other(1))
                .replace("vgg11-1f3a", &model.replace("models/", ""))
                .replace("NVIDIA H200", "cpu")
                .replace("H200=", "cpu=");
            // The profile is of CPU slots.
            for kind in ["H100", "A100", "L4"] {
                line = line.replace(&format!("x{kind}"), "x24GiB").replace("--gpus", "--devices");
            }
            if verb == "profile run" && !line.contains("--dry-run") {
                line.push_str(" --dry-run");
            }
            if verb == "cluster show" {
                line = line.replace("prod", "pod1");
            }
            let output = Command::new("sh")
                .args(["-c", &line])
                .current_dir(folder.path())
                .env("PATH", std::env::join_paths([path.clone(), "/usr/bin".into(), "/bin".into()]).unwrap())
                .env("LOADMASTER_ADDRESS", planner.address())
                // As long as a search takes without optimisation, beside other tests.
                .env("LOADMASTER_TIMEOUT", "150s")
                .output()
                .unwrap();
            // That something does not fit is an answer, too.
            let answered = matches!(output.status.code(), Some(0 | 5));
            if !answered {
                failed.push(format!("{line}\n{}", String::from_utf8_lossy(&output.stderr)));
            }
            typed += 1;
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(typed > 50, "only {typed} examples were typed");
}
