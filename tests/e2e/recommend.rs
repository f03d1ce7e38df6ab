//! Recommendations through the command line: every objective and shape on an imported table, what fits no device,
//! and what cannot be asked. Nothing is trained here.

use std::io::Write as _;

use loadmaster_tests::{Output, Planner, cli, json, stages, uncertain, uneven_chain, warnings};
use serde_json::Value;
use tempfile::NamedTempFile;

/// A table of a chain of so many equal blocks between a light and a heavy layer.
fn document(blocks: usize) -> NamedTempFile {
    document_of(blocks, "gpu", [1, 8])
}

/// The same on another kind of device, and at other micro-batch sizes.
fn document_of(blocks: usize, kind: &str, sizes: [u64; 2]) -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().expect("a file can be made");
    let document = uneven_chain(blocks, kind, sizes).to_string();
    file.write_all(document.as_bytes()).expect("it can be written");
    file
}

fn import(planner: &Planner, id: &str, blocks: usize) {
    import_file(planner, id, &document(blocks));
}

fn import_file(planner: &Planner, id: &str, file: &NamedTempFile) {
    let path = file.path().to_str().expect("a path is text");
    assert_eq!(json(planner, &["profile", "import", path, "--id", id])["state"], "COMPLETE");
}

fn recommend(planner: &Planner, options: &[&str]) -> Value {
    json(planner, &[&["plan", "recommend", "--profile", "table"], options].concat())
}

/// The same for a framework whose memory beyond the table is not certain to fit.
fn unsure(planner: &Planner, options: &[&str]) -> Value {
    uncertain(planner, &[&["plan", "recommend", "--profile", "table"], options].concat())
}

fn refused(planner: &Planner, options: &[&str]) -> Output {
    cli(planner, &[&["plan", "recommend", "--profile", "table"], options].concat())
}

fn degrees(plan: &Value) -> Vec<(i64, i64)> {
    let stages = stages(plan);
    let of = |stage: &Value, field: &str| stage["config"][field].as_i64().unwrap_or(1).max(1);
    stages.iter().map(|stage| (of(stage, "dataParallelSize"), of(stage, "tensorParallelSize"))).collect()
}

fn peak(plan: &Value) -> u64 {
    plan["predictedPeak"]["bytes"].as_str().and_then(|bytes| bytes.parse().ok()).expect("a plan has a peak")
}

fn closed_form(plan: &Value) -> f64 {
    plan["iteration"]["closedFormSeconds"].as_f64().expect("a table has times")
}

/// Each shape's plans have that shape, a freer shape is never worse, and what the restriction costs is told.
#[test]
fn every_shape_is_kept_and_its_cost_told() {
    let planner = Planner::start();
    import(&planner, "table", 10);
    let on = |shape: &str, objective: &str| {
        recommend(&planner, &["--devices", "4x1GiB", "--layout", shape, "--objective", objective])
    };
    for objective in ["min-peak-memory", "min-iteration-time"] {
        let free = on("per-stage-mesh", objective);
        assert_eq!(free["certificate"]["optimal"], true, "{free}");
        assert!(free.get("restrictionCost").is_none_or(Value::is_null), "{free}");
        for shape in ["single-pipeline", "uniform-grid", "equal-devices", "per-stage-replicas"] {
            let plan = on(shape, objective);
            let degrees = degrees(&plan);
            match shape {
                "single-pipeline" => assert!(degrees.iter().all(|&degree| degree == (1, 1))),
                "uniform-grid" => assert!(degrees.windows(2).all(|pair| pair[0] == pair[1])),
                "equal-devices" => {
                    assert!(degrees.windows(2).all(|pair| pair[0].0 * pair[0].1 == pair[1].0 * pair[1].1));
                }
                _ => assert!(degrees.iter().all(|&(_, tensor)| tensor == 1)),
            }
            assert_eq!(degrees.iter().map(|(data, tensor)| data * tensor).sum::<i64>(), 4);
            let cost = &plan["restrictionCost"];
            assert!(cost["ratio"].as_f64().is_some_and(|ratio| ratio >= 1.0), "{plan}");
            if objective == "min-peak-memory" {
                assert!(peak(&free) <= peak(&plan), "{shape}");
                assert_eq!(cost["freeValue"].as_f64(), Some(peak(&free) as f64), "{shape}");
            } else {
                assert!(closed_form(&free) <= closed_form(&plan) * 1.1, "{shape}");
            }
            let baselines = plan["baselines"].as_array().expect("rules stand beside the plan");
            assert_eq!(baselines.len(), 5, "{plan}");
        }
    }
}

/// Fewest, cheapest, largest, fastest within limits; the front and the next-best plans are plans of their own.
#[test]
fn every_objective_answers_its_own_question() {
    let planner = Planner::start();
    import(&planner, "table", 10);
    import(&planner, "larger", 20);
    let grid = ["--layout", "uniform-grid", "output.skip_comparisons=true"];
    let ask = |options: &[&str]| recommend(&planner, &[&grid, options].concat());

    let given = ["--micro-batch-size", "4", "--micro-batches", "8"];
    let fewest = ask(&[&["--devices", "8x1GiB", "--objective", "min-devices"][..], &given].concat());
    let count = fewest["certificate"]["objectiveValue"].as_f64().expect("a value");
    assert_eq!(degrees(&fewest).iter().map(|(data, tensor)| data * tensor).sum::<i64>(), count as i64);
    let less = format!("{}x1GiB", count as i64 - 1);
    assert!(count > 1.0, "the training must not fit one device: {fewest}");
    let fewer =
        refused(&planner, &[&grid[..], &["--devices", &less, "--allow-idle-devices"], &given].concat());
    assert_eq!(fewer.code, 5, "{}", fewer.stderr);

    let cheapest = ["--devices", "8x1GiB", "--objective", "min-cost", "--hourly-price", "gpu=2.5"];
    let priced = ask(&[&cheapest[..], &given].concat());
    assert_eq!(priced["certificate"]["objectiveValue"].as_f64(), Some(2.5 * count));
    assert_eq!(priced["hourlyPrice"].as_f64(), Some(2.5 * count));

    let batch = ask(&["--devices", "2x1GiB", "--objective", "max-batch", "--micro-batches", "2"]);
    let largest = batch["certificate"]["objectiveValue"].as_f64().expect("a value") as i64;
    assert_eq!(batch["training"]["microBatchSize"].as_i64(), Some(largest));
    let next = (largest + 1).to_string();
    let above = ["--devices", "2x1GiB", "--micro-batches", "2", "--micro-batch-size", &next];
    assert_eq!(refused(&planner, &[&grid[..], &above].concat()).code, 5);

    let front = ask(&["--devices", "4x4GiB", "--objective", "pareto"]);
    let points = front["front"].as_array().expect("a front");
    let numbers: Vec<(u64, f64)> = points
        .iter()
        .map(|point| (peak(point), point["iterationSeconds"].as_f64().expect("seconds")))
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1), "{numbers:?}");
    let stored = json(&planner, &["plan", "show", points[0]["plan"].as_str().expect("a stored plan")]);
    assert_eq!(peak(&stored), numbers[0].0);

    let fastest = ask(&["--devices", "4x4GiB", "--objective", "min-iteration-time"]);
    let others = fastest["alternatives"].as_array().expect("alternatives");
    assert_eq!(others.len(), 3, "{fastest}");
    for other in others {
        json(&planner, &["plan", "show", other["plan"].as_str().expect("a stored plan")]);
    }
    let cap = format!("{}B", peak(&fastest) - 1);
    let capped = ask(&["--devices", "4x4GiB", "--objective", "min-iteration-time", "--max-peak", &cap]);
    assert!(peak(&capped) < peak(&fastest) && closed_form(&capped) >= closed_form(&fastest));
    let limit = format!("{:.0}us", closed_form(&fastest) * 1.5e6);
    let within = ask(&["--devices", "4x4GiB", "--max-iteration-time", &limit]);
    assert!(
        within["iteration"]["iterationSeconds"]
            .as_f64()
            .is_some_and(|seconds| { seconds <= closed_form(&fastest) * 1.5 })
    );

    let timeline = &fastest["iteration"];
    assert!(timeline["bubbleRatio"].as_f64().is_none_or(|bubble| (0.0..1.0).contains(&bubble)), "{timeline}");
    let line =
        "plan recommend --profile larger --devices 4x4GiB --layout uniform-grid output.skip_comparisons=true";
    let largest = json(&planner, &format!("{line} --objective min-peak-memory"));
    assert_eq!(largest["model"].as_str().map(|model| model.contains("22")), Some(true), "{largest}");
}

/// The same request gives the same plan, whatever was asked between, and a dry run stores nothing.
#[test]
fn answers_are_reproducible_and_dry_runs_store_nothing() {
    let planner = Planner::start();
    import(&planner, "table", 6);
    let options = ["--devices", "4x2GiB", "--objective", "min-iteration-time", "--framework", "megatron"];
    let dry = recommend(&planner, &[&options[..], &["--dry-run"]].concat());
    assert_eq!(cli(&planner, &["plan", "show", dry["name"].as_str().expect("a name")]).code, 3);
    let plan = recommend(&planner, &options);
    recommend(&planner, &["--devices", "4x2GiB"]);
    let again = recommend(&planner, &options);
    assert_eq!((&plan["name"], &plan["stages"]), (&again["name"], &again["stages"]));
    assert_eq!(plan["name"], dry["name"], "what would be stored has the name that it would have");
    assert_eq!(
        (&plan["parallelismLayout"], &plan["framework"]),
        (&"PARALLELISM_LAYOUT_UNIFORM_GRID".into(), &"megatron".into())
    );

    let own = recommend(&planner, &["--devices", "4x2GiB", "--pipeline-layout", "2-3t2-3"]);
    assert_eq!((&own["solver"], degrees(&own)), (&"given".into(), vec![(1, 1), (1, 2), (1, 1)]));
    let pinned = recommend(
        &planner,
        &[
            "--devices",
            "4x2GiB",
            "constraints.layer_pins=[{layer: 3, device: '0'}]",
            "constraints.stage_end_layers=[4]",
        ],
    );
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let has_it = |stage: &&Value| {
        let config = &stage["config"];
        (number(&config["firstLayer"])..=number(&config["lastLayer"])).contains(&3)
    };
    let stage = pinned["stages"].as_array().and_then(|stages| stages.iter().find(has_it)).expect("a stage");
    assert_eq!(
        number(&stage["deviceRanges"][0]["firstIndex"]),
        0,
        "like devices are interchangeable, this one is named"
    );
    for mode in ["capture", "mcap-brute-force"] {
        let exact = recommend(&planner, &["--devices", "4x2GiB"]);
        let paper = recommend(&planner, &["--devices", "4x2GiB", "--search-mode", mode]);
        assert_eq!(peak(&paper), peak(&exact), "{mode}");
    }
}

/// The fewest samples of a pass that a device of a plan takes.
fn least_share(plan: &Value) -> i64 {
    let whole = plan["training"]["microBatchSize"].as_i64().expect("a plan has a micro-batch");
    degrees(plan).into_iter().map(|(data, _)| whole / data).min().expect("a plan has stages")
}

fn warns(answer: &Value, of: &str) -> bool {
    warnings(answer).iter().any(|warning| warning.contains(of))
}

/// Where seconds decide, no device takes fewer samples than were profiled, whether the micro-batch or replicas would
/// make it so, unless the request names them; then a pass lasts as long as the smallest that was profiled.
#[test]
fn shares_that_were_not_profiled_are_chosen_only_by_name() {
    let planner = Planner::start();
    import_file(&planner, "table", &document_of(10, "gpu", [4, 8]));
    for shape in ["single-pipeline", "uniform-grid", "per-stage-replicas", "per-stage-mesh"] {
        let options = ["--devices", "4x4GiB", "--layout", shape, "--objective"];
        for objective in ["min-iteration-time", "pareto"] {
            let plan = recommend(&planner, &[&options[..], &[objective]].concat());
            assert!(least_share(&plan) >= 4, "{plan}");
            assert!(warns(&plan, "fewer than 4 samples, the smallest profiled number"), "{plan}");
            for other in ["alternatives", "front"].iter().flat_map(|list| plan[list].as_array()).flatten() {
                let stored =
                    json(&planner, &["plan", "show", other["plan"].as_str().expect("a stored plan")]);
                assert!(least_share(&stored) >= 4, "{stored}");
            }
        }
    }
    let named = |sizes: &str| {
        let options =
            ["--devices", "4x4GiB", "--objective", "min-iteration-time", "--global-batch-size", "32"];
        recommend(&planner, &[&options[..], &["--micro-batch-size", sizes]].concat())
    };
    let (one, four) = (named("1"), named("4"));
    assert_eq!((least_share(&one), least_share(&four)), (1, 4));
    assert!(warns(&one, "fewer than 4, the smallest profiled number"), "{one}");
    assert!(!warns(&four, "smallest profiled number"), "{four}");
    let given = |size: &str| {
        let options = ["--devices", "2x4GiB", "--pipeline-layout", "6-6", "--micro-batch-size", size];
        recommend(&planner, &options)["stages"][0]["seconds"].clone()
    };
    assert_eq!((given("1"), given("3")), (given("4"), given("4")));
    let none = refused(
        &planner,
        &["--devices", "4x4GiB", "--objective", "min-iteration-time", "--global-batch-size", "2"],
    );
    assert_eq!(none.code, 2, "{}", none.stderr);
    assert!(
        none.stderr.contains("--micro-batch-size") && none.stderr.contains("fewer than 4"),
        "{}",
        none.stderr
    );
}

/// Seconds of CPU slots say that slots share cores, in every answer; those of other devices do not. Nobody knows how far
/// the seconds of a table are off, and every answer says that too.
#[test]
fn seconds_say_what_they_do_not_contain() {
    let planner = Planner::start();
    import_file(&planner, "slots", &document_of(6, "cpu", [1, 8]));
    import_file(&planner, "cards", &document_of(6, "gpu", [1, 8]));
    for (profile, shares_cores) in [("slots", true), ("cards", false)] {
        let of = |options: &[&str]| json(&planner, &[options, &["--profile", profile]].concat());
        let shares = |answer: &Value| warns(answer, "CPU slots, which share the cores of their host");
        let plans: Vec<Value> = ["4-4", "5-3"]
            .map(|cut| of(&["plan", "recommend", "--devices", "2x4GiB", "--pipeline-layout", cut]))
            .into();
        let names: Vec<&str> = plans.iter().map(|plan| plan["name"].as_str().expect("a name")).collect();
        let predicted = of(&["plan", "predict", "--pipeline-layout", "4-4"]);
        for answer in plans.iter().chain([&predicted]) {
            assert_eq!(shares(answer), shares_cores, "{answer}");
            assert!(warns(answer, "the prediction interval of the seconds is not known"), "{answer}");
        }
        assert!(plans[0]["iteration"].get("interval").is_none_or(Value::is_null), "{}", plans[0]);
        let compared = json(&planner, &["plan", "compare", names[0], names[1]]);
        assert_eq!(shares(&compared), shares_cores, "{compared}");
        let timelines = compared["timelines"].as_array().expect("timelines");
        assert_eq!(
            timelines.iter().filter(|timeline| shares(timeline)).count(),
            if shares_cores { 2 } else { 0 }
        );
    }
}

/// A plan that a training contradicts says so before anything else.
#[test]
fn a_contradicted_plan_opens_with_what_was_measured() {
    let planner = Planner::start();
    import(&planner, "table", 6);
    let plan = recommend(&planner, &["--devices", "2x4GiB", "--pipeline-layout", "4-4"]);
    let name = plan["name"].as_str().expect("a name");
    let seconds = plan["iteration"]["iterationSeconds"].as_f64().expect("seconds");
    let report = |seconds: f64| {
        let measured = format!("{:.0}us", seconds * 1e6);
        assert_eq!(
            cli(&planner, &["plan", "report", name, "--iteration-time", &measured, "--iterations", "9"]).code,
            0
        );
        cli(&planner, &["plan", "show", name]).stdout
    };
    assert!(!report(seconds * 1.05).contains("× the predicted"));
    let contradicted = report(seconds * 9.3);
    let first: Vec<&str> = contradicted.lines().take_while(|line| !line.starts_with("plan plans/")).collect();
    let last = first.last().copied().unwrap_or_default();
    assert!(
        first.len() <= 6 && last.starts_with("measured ") && last.contains("9.30 × the predicted"),
        "{contradicted}"
    );
}

/// What fits nowhere says which device lacks how many bytes and which options were tried and work; each of them
/// does.
#[test]
fn what_fits_no_device_is_explained_with_remedies_that_work() {
    let planner = Planner::start();
    import(&planner, "table", 10);
    let options = ["--devices", "4x256MiB", "--layout", "uniform-grid"];
    let output = refused(&planner, &options);
    assert_eq!(output.code, 5, "{}", output.stderr);
    for told in ["too much", "device 0", "--recompute", "--micro-batch-size"] {
        assert!(output.stderr.contains(told), "{told}: {}", output.stderr);
    }
    recommend(&planner, &[&options[..], &["--recompute", "layer"]].concat());

    let slow = refused(&planner, &["--devices", "4x4GiB", "--max-iteration-time", "1ms"]);
    assert_eq!(slow.code, 5, "{}", slow.stderr);
    assert!(slow.stderr.contains("the fastest plan takes"), "{}", slow.stderr);
}

/// Whether transfers block is what the request says, or what its framework does; the answer says which, why, and
/// plans that differ in it are different plans. A stored plan is drawn as it was predicted, or as asked.
#[test]
fn transfers_block_where_the_framework_or_the_request_says_so() {
    let planner = Planner::start();
    import(&planner, "table", 4);
    let named = ["--devices", "2x1GiB", "--pipeline-layout", "3-3", "--schedule", "1f1b"];
    let plan = |options: &[&str]| recommend(&planner, &[&named[..], options].concat());
    let told = |plan: &Value| {
        let iteration = &plan["iteration"];
        let text = |key: &str| iteration[key].as_str().unwrap_or_default().to_owned();
        (
            iteration["iterationSeconds"].as_f64().expect("a table has times"),
            text("communicationOverlap"),
            text("communicationOverlapReason"),
        )
    };
    let [overlapping, blocking, unnamed] =
        [&["--communication-overlap", "on"][..], &["--communication-overlap", "off"], &[]].map(plan);
    let deepspeed = unsure(&planner, &[&named[..], &["--framework", "deepspeed"]].concat());
    let (fast, is, why) = told(&overlapping);
    assert_eq!((is.as_str(), why.as_str()), ("COMMUNICATION_OVERLAP_ON", "overlapping: as requested"));
    let (slow, is, why) = told(&blocking);
    assert_eq!((is.as_str(), why.as_str()), ("COMMUNICATION_OVERLAP_OFF", "blocking: as requested"));
    assert!(slow > fast, "{slow} {fast}");
    let (like, is, why) = told(&deepspeed);
    assert_eq!((like, is.as_str()), (slow, "COMMUNICATION_OVERLAP_OFF"));
    assert!(why.starts_with("blocking: DeepSpeed"), "{why}");
    let (like, is, why) = told(&unnamed);
    assert_eq!((like, is.as_str()), (fast, "COMMUNICATION_OVERLAP_ON"));
    assert!(why.contains("trial or report on gpu"), "{why}");

    let name = |plan: &Value| plan["name"].as_str().expect("a plan has a name").to_owned();
    assert_ne!(name(&overlapping), name(&blocking));
    let compared = json(&planner, &["plan", "compare", &name(&overlapping), &name(&blocking)]);
    let warned = compared["warnings"].to_string();
    assert!(
        warned.contains("different communication overlap between stages: blocking, overlapping"),
        "{warned}"
    );
    let shown = cli(&planner, &["plan", "show", &name(&deepspeed)]);
    assert!(shown.stdout.contains("overlap    blocking: DeepSpeed"), "{}", shown.stdout);
    let stored = json(&planner, &["plan", "show", &name(&blocking)]);
    assert_eq!(told(&stored), told(&blocking));
    let drawn = |options: &[&str]| {
        let blocking = name(&blocking);
        let output = cli(&planner, &[&["plan", "show", &blocking, "--picture=schedule"], options].concat());
        assert_eq!(output.code, 0, "{}", output.stderr);
        output.stdout
    };
    assert_eq!(drawn(&[]), drawn(&["--communication-overlap", "off"]));
    assert_ne!(drawn(&[]), drawn(&["--communication-overlap", "on"]));
}

/// Each mistake names its field and what would be right.
#[test]
fn mistakes_name_their_field() {
    let planner = Planner::start();
    import(&planner, "table", 4);
    let cases: [(&[&str], i32, &str); 9] = [
        (&["--objective", "min-cost"], 2, "--hourly-price"),
        (&["--framework", "torchgpipe", "--layout", "uniform-grid"], 1, "PLAN_UNSUPPORTED_BY_FRAMEWORK"),
        (
            &["--framework", "megatron", "--schedule", "gpipe"],
            2,
            "not supported by megatron, which supports 1f1b",
        ),
        (
            &["--framework", "megatron", "--recompute", "none,layer", "constraints.recompute_per_stage=true"],
            2,
            "colossal-ai",
        ),
        (&["--global-batch-size", "33"], 2, "--global-batch-size"),
        (&["constraints.layer_pins=[{layer: 0, device: '7'}]"], 2, "constraints.layer_pins"),
        (&["constraints.stage_end_layers=[5]"], 2, "constraints.stage_end_layers"),
        (&["--search-mode", "mcap-bayesian", "--layout", "uniform-grid"], 2, "--search-mode"),
        (&["--pipeline-layout", "3-3", "--objective", "pareto"], 2, "--objective"),
    ];
    for (options, code, told) in cases {
        let output = refused(&planner, &[&["--devices", "2x1GiB"], options].concat());
        assert_eq!(output.code, code, "{options:?}: {}", output.stderr);
        assert!(output.stderr.contains(told), "{options:?}: {}", output.stderr);
    }
    let kind = refused(&planner, &["--devices", "2x1GiB:other"]);
    assert_eq!(kind.code, 2, "{}", kind.stderr);
    assert!(kind.stderr.contains("--other-profiles"), "{}", kind.stderr);
}

/// Predictions and recommendations take equally many devices, in one group or in several.
#[test]
fn one_limit_on_devices() {
    let planner = Planner::start();
    import(&planner, "table", 10);
    let predict = |devices: &str| {
        cli(
            &planner,
            &["plan", "predict", "--profile", "table", "--pipeline-layout", "6-6", "--devices", devices],
        )
    };
    let recommend = |devices: &str| refused(&planner, &["--devices", devices, "--pipeline-layout", "6-6"]);
    for ask in [&predict as &dyn Fn(&str) -> Output, &recommend] {
        for most in ["65536x1GiB", "40000x1GiB,25536x1GiB"] {
            let other = ask(most);
            assert_eq!(other.code, 2, "{other:?}");
            assert!(
                !other.stderr.contains("1 to 65536"),
                "there may be so many; two stages take two: {other:?}"
            );
        }
        for more in ["65537x1GiB", "40000x1GiB,25537x1GiB"] {
            let refused = ask(more);
            assert!(refused.code == 2 && refused.stderr.contains("1 to 65536"), "{more}: {refused:?}");
        }
    }
}
