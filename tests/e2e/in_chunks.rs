//! Trainings in chunks as users ask for them: a profile's run, and the trial of a plan.

use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage};
use loadmaster_proto::model::zoo::{Vgg, Zoo};
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_tests::{Planner, Worker, WorkerOptions, binary, cli, json, number, script};
use serde_json::Value;

use crate::campaigns::run;
use crate::lists::scene::{Scene, content};

fn offering(planner: &Planner, memory: &str) -> Worker {
    Worker::start(planner, &WorkerOptions::default().with(&format!("--host-memory {memory}")))
}

/// Of a list that may be left out.
fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

fn missing(profile: &Value) -> Vec<(&str, usize)> {
    let needs = profile["predictorNeeds"].as_array().unwrap().iter();
    let count = |of: &Value| of["missing"].as_array().map_or(0, Vec::len);
    needs.map(|of| (of["predictor"].as_str().unwrap(), count(of))).collect()
}

/// A profile that names memory of the host has one run more, which says how fast the host updates and what it moved, is reused
/// like all others, and changes nothing of what is predicted without chunks.
#[test]
fn a_profile_with_host_memory_trains_its_model_in_chunks() {
    let planner = Planner::start();
    let _worker = offering(&planner, "1GiB");
    let plain = json(&planner, &run("plain", &[]));
    let both = json(&planner, &run("both", &["--host-memory", "1GiB", "--reuse-contended"]));
    assert_eq!(
        (both["state"].as_str(), both["runCounts"]["succeededCount"].as_i64()),
        (Some("COMPLETE"), Some(1)),
        "{both}"
    );
    assert_eq!(
        (plain["runCounts"]["succeededCount"].as_i64(), both["reusedRunCount"].as_i64()),
        (Some(11), Some(11)),
        "{both}"
    );
    assert_eq!(missing(&plain), [("component", 0), ("capture", 1)]);
    assert_eq!(missing(&both), [("component", 0), ("capture", 1), ("chunks", 0)]);
    assert_eq!(number(&both["hostMemoryBytes"]), 1 << 30);
    assert!(
        both["cpuOptimizerRate"].as_f64().unwrap() > 0.0 && plain["cpuOptimizerRate"].is_null(),
        "{both}"
    );

    let measured = json(&planner, &["profile", "measurements", "both", "--limit", "0"]);
    let in_chunks: Vec<&Value> = measured["measurements"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|of| !of["chunkTraffic"].is_null())
        .collect();
    let [listed] = in_chunks[..] else { panic!("one run is in chunks: {measured}") };
    assert!(
        is_empty(&listed["chunkTraffic"]["nonChunkStepBytes"])
            && is_empty(&listed["chunkTraffic"]["chunkStepBytes"]),
        "{listed}"
    );
    let made = json(&planner, &["run", "show", listed["run"].as_str().unwrap()]);
    assert_eq!(made["spec"]["chunkedTraining"]["hostMemoryBytes"], both["hostMemoryBytes"], "{made}");
    let told = &made["measurements"][0]["chunkTraffic"];
    let steps = |field: &str| told[field].as_array().unwrap().len();
    // Forward and backward passes of 6 layers for 3 micro-batches, and forward ones again of those that are computed again.
    assert!(
        steps("nonChunkStepBytes") == steps("chunkStepBytes") && steps("nonChunkStepBytes") >= 2 * 3 * 6,
        "{told}"
    );
    assert!(number(&told["hostBytes"]) > 0 && number(&told["fetchedBytes"]) > 0, "{told}");
    let table = cli(&planner, &["profile", "show", "both"]).stdout;
    for shown in ["at most 1.00 GiB of CPU memory", "parameters/s", "has all that it needs"] {
        assert!(table.contains(shown), "{shown} in\n{table}");
    }

    // What it takes does not depend on what it may take.
    let more = json(&planner, &run("more", &["--host-memory", "512MiB", "--reuse-contended"]));
    assert_eq!(
        (more["reusedRunCount"].as_i64(), &more["cpuOptimizerRate"]),
        (Some(12), &both["cpuOptimizerRate"])
    );
    let predicted = |id| {
        let ask = ["plan", "predict", "--profile", id, "--pipeline-layout", "3-3", "--capacity", "512MiB"];
        json(&planner, &ask)["stages"].clone()
    };
    assert_eq!(predicted("plain"), predicted("both"), "its peak is no plain stage's");
}

/// All that plain plans need is there without it: the profile is complete, and says what plans in chunks lack.
#[test]
fn a_run_in_chunks_that_fails_leaves_the_profile_to_plain_plans() {
    let folder = tempfile::tempdir().unwrap();
    let rank = binary("loadmaster-rank");
    let body = format!(
        "[ \"$1\" = train ] || exec '{rank}' \"$@\"\n\
         spec=$(cat); case \"$spec\" in *'\"chunks\":'*) exit 7;; esac\n\
         printf '%s' \"$spec\" | '{rank}' \"$@\"",
        rank = rank.display()
    );
    let planner = Planner::start();
    let rank = script(folder.path(), "rank", &body);
    let options = WorkerOptions { rank, ..WorkerOptions::default() }.with("--host-memory 1GiB");
    let _worker = Worker::start(&planner, &options);
    let profile = json(&planner, &run("broken", &["--host-memory", "1GiB"]));
    assert_eq!(profile["state"], "COMPLETE", "{profile}");
    assert_eq!(
        (profile["runCounts"]["succeededCount"].as_i64(), profile["runCounts"]["failedCount"].as_i64()),
        (Some(11), Some(1))
    );
    assert_eq!(missing(&profile), [("component", 0), ("capture", 1), ("chunks", 1)]);
    assert!(profile["cpuOptimizerRate"].is_null(), "{profile}");
    let table = cli(&planner, &["profile", "show", "broken"]).stdout;
    assert!(table.contains("missing measurement of the whole model in chunked training"), "{table}");
    let ask = ["plan", "predict", "--profile", "broken", "--pipeline-layout", "3-3", "--capacity", "512MiB"];
    assert_eq!(json(&planner, &ask)["stages"].as_array().map(Vec::len), Some(2));
}

/// What cannot be is refused before anything is queued, by the option and with what would help.
#[test]
fn a_profile_that_cannot_be_in_chunks_is_refused_at_once() {
    let planner = Planner::start();
    let _worker = offering(&planner, "1GiB");
    let refused = |options: &[&str], told: &[&str]| {
        let output = cli(&planner, &run("never", options));
        assert!(
            output.code != 0 && told.iter().all(|of| output.stderr.contains(of)),
            "{told:?}: {}",
            output.stderr
        );
    };
    refused(&["--host-memory", "1KiB"], &["--host-memory", "is too little", "of CPU memory. Use at least"]);
    let stages = ["--profiling-mode", "per-stage", "--device-count", "2", "--host-memory", "1GiB"];
    refused(&stages, &["--host-memory", "`per-layer`"]);
    let endless = ["--untied-head", "--schedule", "pipedream", "--host-memory", "1GiB"];
    refused(&endless, &["--schedule", "Use gpipe or 1f1b"]);
    let gradients = ["--precision", "bf16", "--gradient-precision", "fp32", "--host-memory", "1GiB"];
    refused(&gradients, &["--precision", "Use bf16 or fp32"]);
    assert!(is_empty(&json(&planner, &["run", "list"])["runs"]));
}

/// A plan in chunks is trained as it says: the run has its visits, lists have none of them, and the plan shows what they moved.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_chunks_is_trained() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("first", Vec::new()).await, scene.model(10).await);
    let mut plan = content(&profile, &model, "cpu", &[30]);
    plan.training.recompute = RecomputePolicy::Layer;
    plan.stages[0].recompute = RecomputePolicy::Layer;
    let paged = loadmaster_samples::chunked(256 << 20);
    let vgg = Zoo::Vgg11(Vgg { image_size: 32, classes: 10, classifier_width: 64 }).build().unwrap();
    let laid = paged.lay_out(&vgg, &plan.training).unwrap();
    let intervals = paged.bare_intervals(&laid).unwrap();
    let moved = laid.moved(&paged.told(&laid, &intervals).unwrap());
    let stage = ChunkedStage { residency: ChunkResidency::Planned(intervals.clone()), ..paged };
    plan.stages[0].chunks = Some(Box::new(stage));
    let name = scene.plan("in-chunks", &plan).await;

    let refused = cli(&scene.planner, &["plan", "trial", name.id(), "--stage-indices", "0"]);
    assert!(
        refused.stderr.contains("has a single stage, which trains the model in chunks"),
        "{}",
        refused.stderr
    );
    let little = offering(&scene.planner, "1MiB");
    let no_room = cli(&scene.planner, &["plan", "trial", name.id()]);
    assert!(
        no_room.stderr.contains("start workers/test with 256.00 MiB of CPU (host) memory"),
        "{}",
        no_room.stderr
    );
    drop(little);
    let _worker = offering(&scene.planner, "256MiB");
    let deadline = ["plan", "trial", name.id(), "--iterations", "1"];
    json(&scene.planner, &deadline);

    let tried = json(&scene.planner, &["plan", "show", name.id()]);
    let told = &tried["stages"][0]["measuredChunkTraffic"];
    let up_and_down = (number(&told["fetchedBytes"]) as u64, number(&told["evictedBytes"]) as u64);
    assert_eq!(up_and_down, (moved.up, moved.down), "{told}");
    assert_eq!(number(&told["backwardFetchedBytes"]) as u64, moved.backward_up, "{told}");
    assert_eq!(number(&told["hostBytes"]) as u64, laid.host.bytes);
    assert_eq!(told["replanned"], false, "{told}");
    let runs = json(&scene.planner, &["run", "list", "--limit", "0"]);
    let listed = runs["runs"].as_array().unwrap().iter().find(|run| run["plan"] == name.to_string()).unwrap();
    let of_list = &listed["spec"]["chunkedTraining"];
    assert!(
        of_list["plannedResidency"].is_object() && is_empty(&of_list["plannedResidency"]["intervals"]),
        "{listed}"
    );
    assert_eq!((&listed["state"], number(&listed["hostMemoryBytes"])), (&"SUCCEEDED".into(), 256 << 20));
    let shown = json(&scene.planner, &["run", "show", listed["name"].as_str().unwrap()]);
    let errors = json(&scene.planner, &["plan", "errors"]);
    assert!(is_empty(&errors["predictionErrors"]), "what misses here says nothing of plain plans: {errors}");
    let all = shown["spec"]["chunkedTraining"]["plannedResidency"]["intervals"].as_array().unwrap().len();
    assert_eq!(all, intervals.len());
}
