//! Plans as frameworks run them, through the command line: files in a folder, what is asked of schedulers, and refusals by stage.
//! What frameworks make of them is `tests/launchers`' to ask.

use std::fs;
use std::path::Path;

use loadmaster_tests::{Planner, Worker, WorkerOptions, cli, json, profiled, stages, whole};
use serde_json::Value;

/// A planner with the profile of a GPT-2.
pub(crate) fn scene() -> (Planner, Worker) {
    profiled(&WorkerOptions::slots("1x512MiB"), "--id gpt --micro-batch-size 2 --micro-batches 4")
}

fn recommend(planner: &Planner, options: &[&str]) -> Value {
    let ask = ["plan", "recommend", "--profile", "gpt", "--devices", "4x512MiB"];
    json(planner, &[&ask[..], options].concat())
}

/// The layers of each stage of a plan.
fn layers(plan: &Value) -> Vec<u64> {
    let stages = stages(plan);
    let last = |stage: &Value| whole(&stage["config"]["lastLayer"]);
    let first = |stage: &Value| stage["config"]["firstLayer"].as_u64().unwrap_or(0);
    stages.iter().map(|stage| last(stage) + 1 - first(stage)).collect()
}

/// Exit code of answers that are not certain that something fits.
const UNCERTAIN: i32 = 8;

/// The exit code that goes with a verdict.
fn code_of(verdict: &Value) -> i32 {
    match verdict.as_str() {
        Some("VERDICT_FITS") | None => 0,
        Some("VERDICT_DOES_NOT_FIT") => 5,
        Some(_) => UNCERTAIN,
    }
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A plan leaves as the files of the framework that it was recommended for; asked again nothing changes, and what somebody else
/// wrote stays unless it may be replaced.
#[test]
fn plans_leave_as_the_files_of_their_framework() {
    let (planner, _worker) = scene();
    let plan = recommend(&planner, &["--framework", "megatron", "--pipeline-parallel-sizes", "2"]);
    let name = plan["name"].as_str().expect("a plan has a name");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let to = folder.path().join("made").join("here");
    let export = |more: &[&str]| {
        let to = to.to_str().expect("a path is text");
        cli(&planner, &[&["plan", "export", name, "--to", to], more].concat())
    };
    let first = export(&[]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let script = read(&to, "train.sh");
    assert!(script.contains("--pipeline-model-parallel-size 2"), "{script}");
    assert!(script.contains(&format!("--global-batch-size {}", 2 * 4)), "{script}");
    assert!(first.stdout.contains("ask for"), "{}", first.stdout);
    assert_eq!(export(&[]).code, 0);
    fs::write(to.join("train.sh"), "mine").expect("it can be written");
    let refused = export(&[]);
    assert_ne!(refused.code, 0);
    assert!(
        refused.stderr.contains("--overwrite") && refused.stderr.contains("train.sh"),
        "{}",
        refused.stderr
    );
    assert_eq!(read(&to, "train.sh"), "mine");
    assert_eq!(export(&["--overwrite"]).code, 0);
    assert_eq!(read(&to, "train.sh"), script);
    let hybrid = export(&["--overwrite", "--variant", "hybrid"]);
    assert_eq!(hybrid.code, 0, "{}", hybrid.stderr);
    assert!(read(&to, "train.sh").contains("--hybrid-layer-pattern"));
}

/// Every framework that is listed exports a plan that it was restricted to, for its ranks, with what was proved of that; or
/// says what of the plan it cannot, stage by stage.
#[test]
fn every_framework_takes_what_it_was_recommended() {
    let (planner, _worker) = scene();
    let listed = json(&planner, &["plan", "export", "--list"]);
    let listed = listed["frameworks"].as_array().expect("there are exporters");
    assert!(listed.len() >= 8, "{listed:?}");
    let mut exported = Vec::new();
    for exporter in listed {
        let framework = exporter["id"].as_str().expect("it has a framework");
        let word = framework.to_owned();
        let target = format!("{word}@{}", exporter["firstVersion"].as_str().expect("it has a version"));
        assert!(!exporter["description"].as_str().unwrap_or_default().is_empty(), "{exporter}");
        let options =
            ["plan", "recommend", "--profile", "gpt", "--devices", "2x512MiB", "--framework", &word];
        let found = cli(&planner, &[&options[..], &["-o", "json", "output.skip_comparisons=true"]].concat());
        // An answer that is not certain to fit is an answer.
        if found.code != 0 && found.code != UNCERTAIN {
            // One refuses weights that stages share, and a GPT-2's head is its table.
            assert!(found.stderr.contains("--framework: "), "{word}: {}", found.stderr);
            continue;
        }
        let plan = found.json();
        let name = plan["name"].as_str().expect("a plan has a name");
        let made = cli(&planner, &["plan", "export", name, "--framework", &target, "-o", "json"]);
        if made.code != 0 && made.code != UNCERTAIN {
            assert!(made.stderr.contains("PLAN_UNSUPPORTED_BY_FRAMEWORK"), "{target}: {}", made.stderr);
            continue;
        }
        let code = made.code;
        let made = made.json();
        assert!(!made["files"].as_array().expect("it has files").is_empty(), "{target}");
        let stages = stages(&plan).iter();
        let degree = |stage: &Value, of: &str| stage["config"][of].as_u64().unwrap_or(1).max(1);
        let devices: u64 =
            stages.map(|stage| degree(stage, "dataParallelSize") * degree(stage, "tensorParallelSize")).sum();
        assert_eq!(made["ranks"].as_array().expect("it has ranks").len() as u64, devices, "{target}");
        let asked = &made["allocation"]["nodes"][0];
        assert_eq!((whole(&asked["count"]), whole(&asked["devices"][0]["count"])), (1, devices), "{target}");
        assert_eq!(made["verified"], exporter["verified"], "{target}");
        let proof = &made["proof"];
        assert_eq!(proof, &exporter["proof"], "{target}");
        // Whoever names another version than the one whose code was asked is told so.
        let version = target.split_once('@').expect("it has a version").1;
        let is_asked = proof["frameworkPackage"] == true
            && proof["packageVersion"]
                .as_str()
                .is_some_and(|asked| asked.starts_with(&format!("{version}.")));
        let told = made["warnings"].to_string().contains("tested with ");
        assert_eq!(told, !proof.is_null() && !is_asked, "{target}: {made}");
        assert_eq!((&plan["verdict"], found.code), (&made["verdict"], code), "{target}");
        exported.push(word);
    }
    exported.dedup();
    assert!(exported.len() >= 6, "{exported:?}");
}

/// A framework that holds outputs up to their backward pass is said to hold as many bytes more, of the shapes of the model; where that is
/// more than the devices have the stage is named, and the plan is exported all the same.
#[test]
fn what_a_framework_holds_besides_is_counted_and_judged() {
    let (planner, _worker) = scene();
    let ask = ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "3-4", "--schedule", "1f1b"];
    let plan_on = |devices: &str| json(&planner, &[&ask[..], &["--devices", devices]].concat());
    let plan = plan_on("2x512MiB");
    let name = plan["name"].as_str().expect("a plan has a name");
    let memory = |name: &str, framework: &str| {
        let answer = cli(&planner, &["plan", "export", name, "--framework", framework, "-o", "json"]);
        let made = answer.json();
        // A script reads the verdict in the exit code.
        assert_eq!(answer.code, code_of(&made["verdict"]), "{}", answer.stderr);
        let stages = made["stageMemory"].as_array().expect("the memory of the stages is told").clone();
        (made, stages)
    };
    let added = |stage: &Value, cause: &str| -> u64 {
        let of = stage["addedMemory"].as_array().into_iter().flatten();
        let of = of.filter(|added| added["cause"] == format!("ADDED_MEMORY_CAUSE_{cause}"));
        of.map(|added| whole(&added["bytes"])).sum()
    };
    // Two samples of 32 tokens of 64 values of 4 bytes, of two micro-batches in flight on the first stage.
    let edge = 2 * 32 * 64 * 4;
    let (made, stages) = memory(name, "deepspeed");
    assert_eq!(made["verdict"], "VERDICT_FITS", "{made}");
    assert_eq!((added(&stages[0], "HELD_OUTPUTS"), added(&stages[0], "HELD_GRADIENTS")), (2 * edge, edge));
    assert_eq!((added(&stages[0], "HELD_INPUTS"), added(&stages[1], "HELD_INPUTS")), (0, 2 * edge));
    for (stage, planned) in stages.iter().zip(plan["stages"].as_array().unwrap()) {
        let sum: u64 =
            stage["addedMemory"].as_array().into_iter().flatten().map(|of| whole(&of["bytes"])).sum();
        assert_eq!(whole(&stage["predictedBytes"]), whole(&planned["predictedPeak"]["bytes"]));
        assert_eq!(whole(&stage["totalBytes"]), whole(&stage["predictedBytes"]) + sum);
        assert_eq!(stage["accounting"], "MEMORY_ACCOUNTING_ALLOCATED");
    }
    let (_, own) = memory(name, "other");
    assert!(own.iter().all(|stage| stage["addedMemory"].as_array().is_none_or(Vec::is_empty)), "{own:?}");
    let table = cli(&planner, &["plan", "export", name, "--framework", "deepspeed"]).stdout;
    assert!(table.contains("predicted (allocated)") && table.contains("+ held outputs"), "{table}");
    // Devices that have what the plan needs, and nothing more.
    let exactly: Vec<String> = stages
        .iter()
        .map(|stage| format!("1x{}B", whole(&stage["predictedBytes"]) * 1005 / 1000 + 1))
        .collect();
    let tight = plan_on(&exactly.join(","));
    let name = tight["name"].as_str().expect("a plan has a name");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let to = folder.path().to_str().expect("a path is text");
    let (made, stages) = memory(name, "deepspeed");
    let lacking: Vec<usize> =
        (0..stages.len()).filter(|&index| stages[index]["verdict"] == "VERDICT_DOES_NOT_FIT").collect();
    assert!(!lacking.is_empty() && made["verdict"] == "VERDICT_DOES_NOT_FIT", "{made}");
    let exported = cli(&planner, &["plan", "export", name, "--framework", "deepspeed", "--to", to]);
    assert_eq!(exported.code, 5, "{}", exported.stderr);
    assert!(folder.path().join("ds_config.json").exists(), "files are written all the same");
    for stage in lacking {
        let told = format!("stage {stage} does not fit with deepspeed");
        assert!(exported.stdout.contains(&told), "{}", exported.stdout);
    }
    // Recommended for that framework the plan says the same of itself, with the same exit code, whoever shows it.
    let devices = exactly.join(",");
    let asked = [&ask[..], &["--devices", &devices, "--framework", "deepspeed", "-o", "json"]].concat();
    let answer = cli(&planner, &asked);
    assert_eq!(answer.code, 5, "{}", answer.stderr);
    let plan = answer.json();
    let name = plan["name"].as_str().expect("a plan has a name");
    let (made, _) = memory(name, "deepspeed");
    let shown = json(&planner, &["plan", "show", name]);
    for verdict in [&plan["verdict"], &shown["verdict"], &made["verdict"]] {
        assert_eq!(*verdict, "VERDICT_DOES_NOT_FIT", "{plan}");
    }
    assert!(plan["warnings"].to_string().contains("does not fit with deepspeed"), "{plan}");
    let text = cli(&planner, &["plan", "show", name]).stdout;
    assert!(text.starts_with("Does not fit, "), "{text}");
}

/// What a framework cannot say is refused by stage, and what is not known by the option that named it.
#[test]
fn what_a_framework_cannot_run_is_refused_by_stage() {
    let (planner, _worker) = scene();
    let plan = recommend(&planner, &["--pipeline-parallel-sizes", "4.."]);
    let name = plan["name"].as_str().expect("a plan has a name");
    assert_eq!(layers(&plan).len(), 4);
    let refused = |options: &[&str]| {
        let answer = cli(&planner, &[&["plan", "export"], options].concat());
        assert_ne!(answer.code, 0, "{options:?}: {}", answer.stdout);
        answer.stderr
    };
    let none = refused(&[name]);
    assert!(none.contains("--framework"), "{none}");
    let unknown = refused(&[name, "--framework", "megatron@0.1"]);
    assert!(unknown.contains("--framework") && unknown.contains("0.17"), "{unknown}");
    let other = refused(&[name, "--framework", "slurm"]);
    assert!(other.contains("megatron"), "{other}");
    // GPT-2 is no Llama.
    let shape = refused(&[name, "--framework", "torchtitan"]);
    assert!(shape.contains("PLAN_UNSUPPORTED_BY_FRAMEWORK"), "{shape}");
    assert!(shape.contains("Request a plan for this framework"), "{shape}");
    // Nor is it one in a plan for torchtitan, which says so, asked again too; then there is no such remedy.
    for _ in 0..2 {
        let plan = recommend(&planner, &["--framework", "torchtitan"]);
        let warnings = plan["warnings"].to_string();
        assert!(warnings.contains("torchtitan@0.3 cannot run this plan"), "{warnings}");
        let own = refused(&[plan["name"].as_str().expect("a plan has a name")]);
        assert!(own.contains("Export to another framework") && !own.contains("Request a plan for"), "{own}");
    }
    let variant = refused(&[name, "--framework", "deepspeed", "--variant", "hybrid"]);
    assert!(variant.contains("variant"), "{variant}");
    let jobset = ["--framework", "deepspeed", "--manifest", "jobset"];
    let image = refused(&[&[name][..], &jobset].concat());
    assert!(image.contains("--image"), "{image}");
    let level =
        refused(&[&[name, "--image", "train:1", "--required-topology", "two words"][..], &jobset].concat());
    assert!(level.contains("--required-topology"), "{level}");
    let absent = refused(&["0123456789abcdef", "--framework", "megatron"]);
    assert!(absent.contains("0123456789abcdef"), "{absent}");
}

/// A manifest has the framework's files, no GPU for ranks on CPUs, and what the command line said of the cluster.
#[test]
fn a_manifest_holds_what_the_framework_needs() {
    let (planner, _worker) = scene();
    let plan = recommend(&planner, &["--framework", "deepspeed"]);
    let name = plan["name"].as_str().expect("a plan has a name");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let to = folder.path().to_str().expect("a path is text");
    let plain = json(&planner, &["plan", "export", name, "--framework", "deepspeed"]);
    let options = "--manifest job --image train:1 --queue gpus --job-name mine --required-topology rack";
    let made = json(&planner, &format!("plan export {name} --framework deepspeed --to {to} {options}"));
    assert_eq!(made["command"], serde_json::json!(["kubectl", "apply", "--server-side", "-f", "job.yaml"]));
    assert_eq!(made["ranks"], plain["ranks"]);
    let manifest = fs::read_to_string(folder.path().join("job.yaml")).expect("the manifest is there");
    let said = [
        "kind: Job".to_owned(),
        "name: mine".to_owned(),
        "image: train:1".to_owned(),
        "kueue.x-k8s.io/queue-name: gpus".to_owned(),
        "kueue.x-k8s.io/podset-required-topology: rack".to_owned(),
        format!("exec {}", plain["command"][0].as_str().expect("it has a command")),
    ];
    for said in said {
        assert!(manifest.contains(&said), "{said} is not in {manifest}");
    }
    // Its ranks are on CPUs.
    assert!(!manifest.contains("nvidia.com/gpu"), "{manifest}");
    for file in plain["files"].as_array().expect("it has files") {
        assert!(
            manifest.contains(&format!("  {}: |", file["name"].as_str().expect("it has a name"))),
            "{manifest}"
        );
    }
}

/// A log of Megatron-LM is a report of the plan: its intervals but for the first, and the peaks of the stages that its
/// ranks are on. Logs of another training, and of some stages alone, are told as such.
#[test]
fn a_log_of_megatron_is_told_by_stage() {
    let (planner, _worker) = scene();
    let plan = recommend(&planner, &["--framework", "megatron", "--pipeline-parallel-sizes", "2"]);
    let name = plan["name"].as_str().expect("a plan has a name");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("train.log");
    let report = |log: &str, more: &[&str]| {
        fs::write(&path, log).expect("it can be written");
        let path = path.to_str().expect("a path is text");
        cli(&planner, &[&["plan", "report", name, "--megatron-log", path, "-o", "json"], more].concat())
    };
    let exported = json(&planner, &["plan", "export", name]);
    let ranks = exported["ranks"].as_array().expect("an export has ranks");
    let timed = " iteration 1/ 9 | elapsed time per iteration (ms): 900.0 |\n \
                 iteration 5/ 9 | elapsed time per iteration (ms): 250.0 |\n";
    let memory = |rank: u64| {
        format!(
            "[Rank {rank}] (after 1 iterations) memory (MB) | allocated: 1.00 | max allocated: {}.00 | reserved: 9.00 | \
             max reserved: {}.00\n",
            100 + rank,
            200 + rank
        )
    };
    // The first replica of every stage and shard tells its memory.
    let telling: Vec<&Value> = ranks.iter().filter(|place| whole(&place["replica"]) == 0).collect();
    let log: String = telling.iter().map(|place| memory(whole(&place["rank"]))).collect();
    for (more, least) in [(&[][..], 100), (&["--accounting", "reserved"], 200)] {
        let seen = report(&format!("{timed}{log}"), more);
        assert_eq!(seen.code, 0, "{}", seen.stderr);
        let seen = seen.json();
        assert_eq!((seen["iterationSeconds"].as_f64(), whole(&seen["iterationCount"])), (Some(0.25), 4));
        let peaks = seen["stagePeaks"].as_array().expect("peaks were told");
        assert_eq!(peaks.len(), 2);
        for (stage, peak) in (0..).zip(peaks) {
            let on = telling.iter().filter(|place| whole(&place["stage"]) == stage);
            let highest = on.map(|place| least + whole(&place["rank"])).max().expect("a stage has ranks");
            assert_eq!(whole(&peak["bytes"]), highest << 20);
        }
    }
    let some = report(&format!("{timed}{}", memory(0)), &[]);
    assert_eq!(some.code, 0, "{}", some.stderr);
    assert!(some.stderr.contains("the log has no peak of stage 1"), "{}", some.stderr);
    let other = report(&format!("{timed}{}", memory(ranks.len() as u64)), &[]);
    assert_eq!(other.code, 2, "{}", other.stderr);
    assert!(other.stderr.contains("a log from training this plan"), "{}", other.stderr);
    let nothing = report("training ...\n", &[]);
    assert!(nothing.code == 2 && nothing.stderr.contains("elapsed time per iteration"), "{}", nothing.stderr);
}
