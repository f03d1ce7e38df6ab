//! Predictions of trainings in chunks of which something is chosen: the answers are those of recommendations.

use loadmaster_tests::{Planner, cli, json, number};
use serde_json::Value;

use crate::chunk_plans::{devices, scene, share};

/// What both commands are asked with.
const CHUNKS: [&str; 4] = ["--host-memory", "256MiB", "--copy-rates", "host=1GB/s"];

fn predict<'a>(partition: &'a str, devices: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let line = ["plan", "predict", "--profile", "gpt", "--pipeline-layout", partition, "--devices", devices];
    [&line[..], &CHUNKS, options].concat()
}

fn has(answer: &Value, words: &str) -> bool {
    loadmaster_tests::warnings(answer).iter().any(|warning| warning.contains(words))
}

/// A prediction says what the plan says that is recommended for the same devices with the same choices.
fn assert_same(planner: &Planner, partition: &str, devices: &str, fixed: &[&str]) {
    let chunks = [&["--memory-mode", "chunks"], fixed].concat();
    let answer = json(planner, &predict(partition, devices, &chunks));
    let line =
        ["plan", "recommend", "--profile", "gpt", "--devices", devices, "output.skip_comparisons=true"];
    let mut asked = [&line[..], &CHUNKS, &chunks].concat();
    if partition != "7" {
        asked.extend(["--pipeline-layout", partition]);
    }
    let plan = json(planner, &asked);
    let (predicted, planned) = (&answer["stages"][0], &plan["stages"][0]);
    assert_eq!(predicted["peak"]["bytes"], planned["predictedPeak"]["bytes"], "{fixed:?}: {answer}");
    for field in [
        "config",
        "breakdown",
        "interval",
        "chunkedTraining",
        "chunkTraffic",
        "memoryOptimizations",
        "offloadTraffic",
        "seconds",
    ] {
        assert_eq!(predicted[field], planned[field], "{field} with {fixed:?}: {answer}");
    }
    assert!(
        predicted["chunkedTraining"].is_object() && number(&predicted["chunkTraffic"]["hostBytes"]) > 0,
        "{answer}"
    );
    assert_eq!(answer["training"], plan["training"], "{fixed:?}");
    assert_eq!(answer["verdict"], "VERDICT_FITS", "{fixed:?}: {answer}");
    assert!(has(&answer, "seconds are based on these rates: "), "{answer}");
}

/// What is free is chosen as a recommendation chooses it, what is fixed stays; on one device and on two that share the chunks, and
/// with a margin of one's own.
#[test]
fn chosen_chunks_are_predicted_as_they_are_recommended() {
    let (planner, _worker) = scene();
    let one = share(&planner, 45);
    assert_same(&planner, "7", &one, &[]);
    let fixed = [
        "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_MICRO_BATCH]",
        "memory.chunk_options.host_parameters=[HOST_PARAMETERS_STORED]",
        "--recompute",
        "layer",
        "--safety-margin",
        "5%",
    ];
    assert_same(&planner, "7", &one, &fixed);
    assert_same(
        &planner,
        "7d2",
        &devices(&planner, 2, 40),
        &["memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_LAYER]"],
    );

    // A stored plan without chunks is asked about in chunks, and one in chunks without them.
    let stored = |options: &[&str]| {
        let line = [
            "plan",
            "recommend",
            "--profile",
            "gpt",
            "--devices",
            "1x512MiB",
            "output.skip_comparisons=true",
        ];
        json(&planner, &[&line[..], options].concat())["name"].as_str().unwrap().to_owned()
    };
    let of_plan = |name: &str, options: &[&str]| {
        json(&planner, &[&["plan", "predict", "--plan", name], options].concat())["stages"][0].clone()
    };
    let plain = stored(&[]);
    let anew = of_plan(&plain, &[&["--memory-mode", "chunks", "--devices", &one], &CHUNKS[..]].concat());
    assert!(anew["chunkedTraining"].is_object() && anew["verdict"] == "VERDICT_FITS", "{anew}");
    let chunked = stored(&[&["--memory-mode", "chunks"], &CHUNKS[..]].concat());
    assert!(of_plan(&chunked, &[])["chunkedTraining"].is_object());
    let without = of_plan(&chunked, &["--memory-mode", "plain"]);
    assert!(without["chunkedTraining"].is_null() && without["verdict"] == "VERDICT_FITS", "{without}");
}

/// Plain where that fits, chunks where it does not, and where neither has room plain again, which says what chunks lack.
#[test]
fn the_best_mode_is_plain_where_that_fits() {
    let (planner, _worker) = scene();
    let best = ["--memory-mode", "best"];
    let roomy = json(&planner, &predict("7", "1x512MiB", &best));
    let plain = json(
        &planner,
        &["plan", "predict", "--profile", "gpt", "--pipeline-layout", "7", "--devices", "1x512MiB"],
    );
    assert_eq!(roomy, plain, "as without a mode");
    assert!(roomy["stages"][0]["chunkedTraining"].is_null() && roomy["verdict"] == "VERDICT_FITS", "{roomy}");

    let devices = share(&planner, 45);
    let tight = json(&planner, &predict("7", &devices, &best));
    assert!(
        tight["stages"][0]["chunkedTraining"].is_object() && tight["verdict"] == "VERDICT_FITS",
        "{tight}"
    );
    assert!(has(&tight, "without chunks, a device needs "), "{tight}");
    let chunks = json(&planner, &predict("7", &devices, &["--memory-mode", "chunks"]));
    assert_eq!(tight["stages"], chunks["stages"]);

    let neither = cli(&planner, &[&predict("7", "1x64KiB", &best)[..], &["-o", "json"]].concat());
    assert_eq!(neither.code, 5, "{}", neither.stderr);
    let told: Value = serde_json::from_str(&neither.stdout).unwrap();
    assert!(
        told["stages"][0]["chunkedTraining"].is_null() && told["verdict"] == "VERDICT_DOES_NOT_FIT",
        "{told}"
    );
    assert!(has(&told, "training in chunks does not fit either: the model does not fit in memory"), "{told}");
    let alone = cli(&planner, &predict("7", "1x64KiB", &["--memory-mode", "chunks"]));
    assert_eq!(alone.code, 5, "{}", alone.stderr);
    assert!(alone.stderr.contains("does not fit in memory with chunked training"), "{}", alone.stderr);

    // What contradicts chunks is refused in either mode, whether they are needed or not.
    let roomy = ["--profile", "gpt", "--devices", "1x512MiB"];
    let host = ["--host-memory", "256MiB"];
    for mode in ["chunks", "best"] {
        for (options, words) in [
            (
                &["--pipeline-layout", "7", "--devices", "1x512MiB"][..],
                "--host-memory: 0 leaves no CPU memory",
            ),
            (&["--pipeline-layout", "7", "--host-memory", "256MiB"], "--capacity: required"),
            (
                &[&roomy[..], &host, &["--pipeline-layout", "4-3"]].concat(),
                "--pipeline-layout: is a pipeline",
            ),
            (&[&roomy[..], &host, &["--stage", "0..6"]].concat(), "--stage: is one stage of a pipeline"),
            (
                &[&roomy[..], &host, &["--pipeline-layout", "7", "--predictor", "capture"]].concat(),
                "--predictor: capture does not support chunked training",
            ),
            (
                &[&roomy[..], &host, &["--pipeline-layout", "7", "--stage-optimization", "0/0..2=recompute"]]
                    .concat(),
                "--stage-optimization: applies only to training without chunks",
            ),
            (
                &[&roomy[..], &host, &["--pipeline-layout", "7", "--framework", "megatron"]].concat(),
                "--framework: megatron does not support chunked training",
            ),
            (
                &["--pipeline-layout", "7d2", "--devices", "1x512MiB,1x256MiB", "--host-memory", "256MiB"],
                "--devices: ",
            ),
            (
                &["--pipeline-layout", "7d2", "--devices", "1x512MiB", "--host-memory", "256MiB"],
                "the stages need 2 devices, but",
            ),
        ] {
            let profile: &[&str] = if options.contains(&"--profile") { &[] } else { &["--profile", "gpt"] };
            let refused =
                cli(&planner, &[&["plan", "predict", "--memory-mode", mode], profile, options].concat());
            assert_ne!(refused.code, 0, "{options:?}: {}", refused.stdout);
            assert!(refused.stderr.contains(words), "{options:?}: {}", refused.stderr);
        }
    }
    let tight = predict(
        "7",
        &devices,
        &[
            "--memory-mode",
            "chunks",
            "memory.chunk_options.policy=CHUNK_POLICY_PATRICKSTAR",
            "memory.chunk_options.chunk_elements=[64]",
        ],
    );
    let refused = cli(&planner, &tight);
    assert!(
        refused.code != 0 && refused.stderr.contains("memory.chunk_options.chunk_elements"),
        "{}",
        refused.stderr
    );
    let idle = cli(&planner, &predict("7", "1x512MiB", &["--memory-mode", "plain"]));
    assert!(
        idle.code != 0 && idle.stderr.contains("--host-memory: applies only to chunked training"),
        "{}",
        idle.stderr
    );
}
