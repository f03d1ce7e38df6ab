//! "Will it fit?", through the command line, and whether the answer was right.

use loadmaster_tests::{Planner, SMALL_GPT2, Worker, WorkerOptions, bytes, cli, json, profile, stages};
use serde_json::Value;

/// A profile of single layers.
fn recorded(planner: &Planner) {
    let sizes = "--micro-batch-size 4 --micro-batches 4 --profile-micro-batch-sizes 2,4";
    let options =
        format!("--id gpt {sizes} --profiling-mode per-layer --parallelism tensor --parallel-sizes 2,4");
    profile(planner, SMALL_GPT2, &options);
}

/// The parts add up, the interval is around the peak, and times and measurements are told.
fn assert_explained(answer: &Value) {
    for stage in stages(answer) {
        let peak = bytes(&stage["peak"]["bytes"]);
        assert_eq!(stage["peak"]["producer"], "component/4");
        let parts = stage["breakdown"].as_object().expect("a breakdown");
        let sum: u64 =
            parts.iter().filter(|(name, _)| *name != "accounting").map(|(_, part)| bytes(part)).sum();
        assert_eq!(sum, peak, "{stage}");
        assert!(
            (bytes(&stage["interval"]["lowBytes"])..=bytes(&stage["interval"]["highBytes"])).contains(&peak)
        );
        assert!(stage["seconds"]["forwardSeconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{stage}");
        // The profile's checks were timed; how far off they were depends on the machine.
        assert!(stage["secondsMarginRatio"].as_f64().is_some_and(|margin| margin > 0.0), "{stage}");
    }
    let named = answer["measurements"].as_array().expect("measurements");
    assert!(!named.is_empty());
    assert!(named.iter().all(|name| name.as_str().is_some_and(|name| name.starts_with("runs/"))));
    assert!(!answer["excludedMemory"].as_array().expect("what is excluded").is_empty());
}

/// The least certain stage decides how certain an iteration is.
fn assert_iteration_is_as_sure_as_its_stages(plan: &Value) {
    let number = |value: &Value| value.as_f64().expect("a number");
    let stages = stages(plan);
    let least_sure = stages.iter().map(|stage| number(&stage["secondsMarginRatio"])).fold(0.0, f64::max);
    let (iteration, interval) = (&plan["iteration"]["iterationSeconds"], &plan["iteration"]["interval"]);
    assert_eq!(number(&interval["marginRatio"]), least_sure, "{plan}");
    let (low, high) = (number(&interval["lowSeconds"]), number(&interval["highSeconds"]));
    assert!((low..=high).contains(&number(iteration)) && low < high, "{plan}");
}

/// One profile of single layers answers for schedules, recompute policies and ways to share a stage that
/// were never run; and what it says is what a trial then measures, within the margin.
#[test]
fn predictions_of_pipelines_never_run_hold_when_they_are_run() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::slots("4x1GiB"));
    recorded(&planner);

    for (options, stages) in [
        (["--pipeline-layout", "2-2-3", "--schedule", "1f1b", "--recompute", "layer"], "3x1GiB"),
        (["--pipeline-layout", "3-4", "--schedule", "gpipe", "--recompute", "none"], "2x1GiB"),
        (["--pipeline-layout", "2-3d2-2", "--schedule", "gpipe", "--recompute", "stage"], "4x1GiB"),
        (["--pipeline-layout", "2-3t2-2", "--schedule", "1f1b", "--recompute", "none"], "4x1GiB"),
    ] {
        let asked = [&["plan", "predict", "--profile", "gpt", "--capacity", "1GiB"], &options[..]].concat();
        let answer = json(&planner, &asked);
        assert_eq!(answer["verdict"], "VERDICT_FITS", "{options:?}");
        assert_explained(&answer);

        let make = [&["plan", "recommend", "--profile", "gpt", "--devices", stages], &options[..]].concat();
        let plan = json(&planner, &make);
        assert_eq!(plan["solver"], "given");
        let name = plan["name"].as_str().expect("a name");
        assert_iteration_is_as_sure_as_its_stages(&plan);
        let validated = json(&planner, &["plan", "trial", name]);
        for (stage, predicted) in validated["stages"]
            .as_array()
            .expect("stages")
            .iter()
            .zip(answer["stages"].as_array().expect("stages"))
        {
            assert_eq!(
                stage["predictedPeak"]["bytes"], predicted["peak"]["bytes"],
                "one question, one answer"
            );
            let measured = bytes(&stage["measuredPeak"]["bytes"]);
            let (low, high) = (&stage["interval"]["lowBytes"], &stage["interval"]["highBytes"]);
            assert!((bytes(low)..=bytes(high)).contains(&measured), "{options:?} {stage}");
        }

        let again = json(&planner, &["plan", "predict", "--plan", name]);
        assert_eq!(again["stages"], answer["stages"], "a stored plan is predicted as it was");
    }
}

/// What does not fit names the device and the bytes and ends with exit code 5; what the profile cannot
/// answer ends with 6 and says what to measure.
#[test]
fn what_does_not_fit_and_what_is_unknown_have_exit_codes() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::slots("4x1GiB"));
    recorded(&planner);

    let predict = |options: &[&str]| {
        cli(&planner, &[&["plan", "predict", "--profile", "gpt", "-o", "json"], options].concat())
    };
    let tight = predict(&["--pipeline-layout", "3-4", "--devices", "1x1GiB,1x64KiB"]);
    assert_eq!(tight.code, 5, "{}", tight.stderr);
    assert!(
        tight.stderr.contains("Does not fit, ") && tight.stderr.contains("(stage 1)"),
        "{}",
        tight.stderr
    );
    let answer: Value = serde_json::from_str(&tight.stdout).expect("the whole answer is printed");
    assert_eq!(
        (&answer["verdict"], &answer["firstTooSmallDevice"]),
        (&"VERDICT_DOES_NOT_FIT".into(), &1.into())
    );
    assert_eq!(answer["stages"][0]["verdict"], "VERDICT_FITS");

    let unasked = predict(&["--stage", "2..4t4"]);
    assert_eq!(unasked.code, 0, "{}", unasked.stderr);
    assert!(unasked.stdout.contains("VERDICT_UNSPECIFIED"), "{}", unasked.stdout);

    let lacking = predict(&["--pipeline-layout", "3-4", "--predictor", "capture"]);
    assert_eq!(lacking.code, 6, "{}", lacking.stderr);
    assert!(
        lacking.stderr.contains("PROFILE_INCOMPLETE")
            && lacking.stderr.contains("`--profiling-mode` per-stage")
    );

    // A micro-batch is one number per GPU where all stages have as many replicas.
    let layout = ["--pipeline-layout", "3d2-4d2"];
    let per_gpu = predict(&[&layout[..], &["--micro-batch-size", "2"]].concat());
    let of_stage = predict(&[&layout[..], &["problem.micro_batch_size=4"]].concat());
    assert_eq!((per_gpu.code, &per_gpu.stdout), (of_stage.code, &of_stage.stdout), "{}", per_gpu.stderr);
    assert!(per_gpu.stderr.contains("2 samples per GPU, 4 per stage"), "{}", per_gpu.stderr);
    let mixed = predict(&["--pipeline-layout", "3-4d2", "--micro-batch-size", "3"]);
    assert!(mixed.code == 2 && mixed.stderr.contains("problem: {micro_batch_size: 3}"), "{}", mixed.stderr);
    let uneven = predict(&["--pipeline-layout", "3-4d2", "problem.micro_batch_size=3"]);
    assert_eq!(uneven.code, 2, "{}", uneven.stderr);
    assert!(uneven.stderr.contains("--pipeline-layout (value 2)"), "{}", uneven.stderr);
    let short = predict(&["--pipeline-layout", "3-3"]);
    assert_eq!(short.code, 2, "{}", short.stderr);
    assert!(short.stderr.contains("6 layers are covered, but the model has 7"), "{}", short.stderr);
    let positionless = predict(&["--stage", "2..4", "--schedule", "1f1b"]);
    assert_eq!(positionless.code, 2, "{}", positionless.stderr);
    assert!(positionless.stderr.contains("--stage-count"), "{}", positionless.stderr);
}
