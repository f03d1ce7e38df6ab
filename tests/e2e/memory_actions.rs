//! Memory actions as users ask for them: given or chosen, predicted, trained, and measured in three ledgers.

use loadmaster_tests::{
    CommandLine, Planner, Worker, WorkerOptions, cli, json, number, profile, profiled, seconds, stages,
};
use serde_json::Value;

const GIVEN: [&str; 8] =
    ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "4-3", "--devices", "2x512MiB"];

/// Every way to hold less, with the memory and the links that it takes.
pub(crate) const CHOSEN: [&str; 6] = [
    "--optimizations",
    "recompute,cpu-offload,peer-swap",
    "--host-memory",
    "512MiB",
    "--copy-rates",
    "host=1GB/s,peer=2GB/s",
];

/// A planner and a worker whose host has memory to offer, with a profile of GPT-2: embedding, four blocks, norm and head.
pub(crate) fn scene(host_memory: &str) -> (Planner, Worker) {
    let options = "--id gpt --micro-batch-size 4 --micro-batches 4 --schedule 1f1b";
    profiled(&WorkerOptions::default().with(&format!("--host-memory {host_memory}")), options)
}

/// A plan's stage, predicted and measured: peak, host and bytes out to each place.
fn ledgers(stage: &Value) -> [(i64, i64, Vec<i64>); 2] {
    let of = |peak: &str, offload: &str| {
        let copies = stage[offload]["copyTraffic"].as_array().cloned().unwrap_or_default();
        let out = copies.iter().map(|copies| number(&copies["sentBytes"])).collect();
        (number(&stage[peak]["bytes"]), number(&stage[offload]["hostPeakBytes"]), out)
    };
    [of("predictedPeak", "offloadTraffic"), of("measuredPeak", "measuredOffloadTraffic")]
}

/// A plan once it was trained, with every ledger as it was predicted.
pub(crate) fn trained(planner: &Planner, plan: &Value) -> Value {
    let name = plan["name"].as_str().unwrap();
    json(planner, &["plan", "trial", name]);
    let tried = json(planner, &["plan", "show", name]);
    for stage in stages(&tried) {
        let [predicted, measured] = ledgers(stage);
        assert_eq!(predicted, measured, "{stage}");
    }
    tried
}

/// On a node of which nobody says how it copies, a plan is simulated again as it was planned.
pub(crate) fn bound_again_it_takes_as_long(planner: &Planner, plan: &Value) {
    let name = plan["name"].as_str().unwrap();
    let node = ["--nodes", "x1", "--device-kind", "cpu", "--device-indices", "0,1"];
    let bound = json(planner, &[&["plan", "place", name][..], &node].concat());
    let [now, then] = ["iterationSeconds", "plannedIterationSeconds"].map(|of| bound[of].as_f64().unwrap());
    assert!((now - then).abs() <= 1e-3 * then, "{bound}");
    assert!(bound["warnings"].to_string().contains("as planned"), "{bound}");
    assert_eq!(bound["optimal"], true, "{bound}");
}

/// What is asked for is done: the plan says what goes where, a trial trains it, and every ledger is as predicted.
#[test]
fn given_actions_are_predicted_and_trained() {
    let (planner, _worker) = scene("1GiB");
    let actions = ["0/0..1=activations:host:1,1", "0/1..2=optimizer:1", "1/4=recompute"];
    let actions = actions.map(|action| ["--stage-optimization", action]).concat();
    let untouched = json(&planner, &GIVEN);
    let plan = json(&planner, &[&GIVEN[..], &actions].concat());
    bound_again_it_takes_as_long(&planner, &plan);
    let limited = json(&planner, &[&GIVEN[..], &actions, &["--host-memory", "1GiB"]].concat());
    assert_eq!(limited["name"], plan["name"], "a host that has what given actions take changes nothing");
    let peak = |plan: &Value, stage: usize| number(&plan["stages"][stage]["predictedPeak"]["bytes"]);
    assert!(peak(&plan, 0) < peak(&untouched, 0) && peak(&plan, 1) < peak(&untouched, 1), "{plan}");
    assert_eq!(plan["stages"][1]["memoryOptimizations"]["peerPools"][0]["stage"], 0);
    assert!(number(&plan["stages"][1]["memoryOptimizations"]["peerPools"][0]["bytes"]) > 0, "{plan}");

    let four =
        ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "2-2-2-1", "--devices", "4x512MiB"];
    slots_wait_for_cores(&json(&planner, &four), &json(&planner, &[&four[..], &actions[..2]].concat()));

    // The same stages fit as far as the plan says, by either way of asking.
    let ask = ["plan", "predict", "--profile", "gpt", "--pipeline-layout", "4-3", "--capacity", "512MiB"];
    let predicted = json(&planner, &[&ask[..], &actions].concat());
    let name = plan["name"].as_str().unwrap();
    let of_plan = json(&planner, &["plan", "predict", "--plan", name]);
    for stage in 0..2 {
        for answer in [&predicted, &of_plan] {
            let of = &answer["stages"][stage];
            assert_eq!(number(&of["peak"]["bytes"]), peak(&plan, stage), "{answer}");
            assert_eq!(
                of["offloadTraffic"]["hostPeakBytes"],
                plan["stages"][stage]["offloadTraffic"]["hostPeakBytes"]
            );
        }
    }

    let tried = trained(&planner, &plan);
    let [(_, host, out), _] = ledgers(&tried["stages"][0]);
    assert!(host > 0 && out.len() == 2 && out[1] > 0, "blocks go to the host and to a peer: {tried}");
    what_was_copied_is_judged(&planner, &tried);
    let table = cli(&planner, &["plan", "show", name]);
    for shown in ["0..1=activations:host:1,1", "1..2=optimizer:1", "4=recompute", "measured there"] {
        assert!(table.stdout.contains(shown), "{shown} in\n{}", table.stdout);
    }
}

/// What a trial copied and waited for is beside its predictions, link by link: bytes without a difference, and nothing of it is
/// corrected.
fn what_was_copied_is_judged(planner: &Planner, tried: &Value) {
    let stages = stages(tried);
    let copies = |offload: &str, is_host: bool| -> Vec<Value> {
        let all = stages.iter().filter_map(|stage| stage[offload]["copyTraffic"].as_array()).flatten();
        all.filter(|copies| copies["peer"].is_null() == is_host).cloned().collect()
    };
    let listed = json(planner, &["plan", "errors"]);
    let rows = |quantity: &str, link: &str| -> Vec<&Value> {
        let rows = listed["predictionErrors"].as_array().unwrap().iter();
        rows.filter(|row| row["quantity"] == quantity && row["link"] == link).collect()
    };
    let is_contended = tried["trials"][0]["contended"] == true;
    let ratio = |row: &Value| row["maxAbsoluteErrorRatio"].as_f64().unwrap_or(0.0);
    for (link, word, is_host) in [("MEMORY_PLACE_HOST", "host", true), ("MEMORY_PLACE_PEERS", "peers", false)]
    {
        let [expected, counted] =
            ["offloadTraffic", "measuredOffloadTraffic"].map(|offload| copies(offload, is_host));
        assert!(!expected.is_empty() && expected.len() == counted.len(), "{tried}");
        let [bytes] = rows("QUANTITY_COPIED_BYTES", link)[..] else { panic!("one row: {listed}") };
        assert_eq!(
            number(&bytes["pairCount"]),
            2 * expected.len() as i64,
            "what leaves and what comes: {listed}"
        );
        assert_eq!((&bytes["meanDifference"], &bytes["maxAbsoluteDifference"]), (&0.0.into(), &0.0.into()));
        assert!(bytes["calibration"].is_null() && ratio(bytes) == 0.0, "{bytes}");

        let filter = format!("quantity = waited-seconds AND link = {word}");
        let asked = json(planner, &["plan", "errors", "--pairs", "--filter", &filter]);
        let pairs = asked["predictionPairs"].as_array().cloned().unwrap_or_default();
        let seconds =
            |of: &[Value], field: &str| of.iter().map(|of| of[field].as_f64().unwrap_or(0.0)).sum::<f64>();
        if is_contended {
            assert!(pairs.is_empty(), "others made it wait: {asked}");
            continue;
        }
        assert_eq!(pairs.len(), expected.len(), "{asked}");
        for (field, of) in [("predictedValue", &expected), ("measuredValue", &counted)] {
            let (told, shown) = (seconds(&pairs, field), seconds(of, "waitedSeconds"));
            assert!((told - shown).abs() <= 1e-9 * shown.max(1.0), "{field}: {asked} {tried}");
        }
        let [row] = rows("QUANTITY_WAITED_SECONDS", link)[..] else { panic!("one row: {listed}") };
        let mean = (seconds(&expected, "waitedSeconds") - seconds(&counted, "waitedSeconds"))
            / expected.len() as f64;
        assert!((row["meanDifference"].as_f64().unwrap() - mean).abs() <= 1e-9, "{row} {mean}");
        assert!(row["calibration"].is_null(), "{row}");
    }
    let at_host = listed["predictionErrors"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["accounting"] == "MEMORY_ACCOUNTING_HOST")
        .unwrap();
    assert!(ratio(at_host) == 0.0 && at_host["calibration"].is_null(), "to the byte: {at_host}");
    let wrong =
        ["plan", "errors", "-o", "name", "--filter", "quantity = copied-bytes AND NOT difference = 0"];
    let wrong = cli(planner, &wrong);
    assert!(wrong.code == 0 && wrong.stdout.is_empty(), "{wrong:?}");
    let table = cli(planner, &["plan", "errors"]).stdout;
    for shown in ["copied bytes (host)", "copied bytes (peers)", "peak bytes (host)"] {
        assert!(table.contains(shown), "{shown} in\n{table}");
    }
    assert!(!table.contains("defect"), "{table}");
}

/// With actions, four slots take no less than the cores of this machine need for all that they do, and no warning says that this is
/// not told; without any, it is the warning that tells it, where there are fewer cores than slots.
fn slots_wait_for_cores(untouched: &Value, plan: &Value) {
    let outnumber = |plan: &Value| {
        loadmaster_tests::warnings(plan).iter().any(|warning| warning.contains("CPU slots share"))
    };
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!((outnumber(untouched), outnumber(plan)), (cores < 4, false), "{cores} {untouched} {plan}");
    let seconds = |stage: &Value, way: &str| stage["seconds"][way].as_f64().unwrap();
    let of_stage = |stage: &Value| {
        let passes = seconds(stage, "forwardSeconds") + seconds(stage, "backwardSeconds");
        number(&plan["training"]["microBatchCount"]) as f64 * passes + seconds(stage, "optimizerStepSeconds")
    };
    let work: f64 = stages(plan).iter().map(of_stage).sum();
    let iteration = plan["iteration"]["iterationSeconds"].as_f64().unwrap();
    assert!(iteration >= work / cores as f64 * (1.0 - 1e-6), "{work} s of work on {cores} cores: {plan}");
}

/// Where the stages do not fit untouched, MPress's planner finds actions with which they do; they are trained within the
/// capacity, no plan is faster than the bound, and one way alone is never better.
#[test]
fn mpress_makes_stages_fit_that_do_not() {
    let (planner, _worker) = scene("1GiB");
    let untouched = json(&planner, &GIVEN);
    let peaks: Vec<i64> =
        (0..2).map(|stage| number(&untouched["stages"][stage]["predictedPeak"]["bytes"])).collect();
    let capacity = peaks.iter().max().unwrap() * 7 / 10;
    let devices = format!("2x{capacity}B");
    let tight = ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "4-3", "--devices", &devices];
    assert_eq!(cli(&planner, &tight).code, 5, "they do not fit untouched");

    let mpress = ["--search-mode", "mpress", "--host-memory", "512MiB"];
    let plan = json(&planner, &[&tight[..], &mpress].concat());
    assert_eq!(plan["solver"], "mpress/1");
    let certificate = &plan["certificate"];
    assert!(certificate["objectiveValue"].as_f64() >= certificate["bestBound"].as_f64(), "{certificate}");
    // Which ways are faster depends on the machine; what stages hold untouched does not.
    let baselines = plan["baselines"].as_array().unwrap();
    assert!(baselines.len() > 1, "{plan}");
    for baseline in baselines.iter().filter(|of| of["name"] == "keep-only") {
        assert_eq!(baseline["fits"], false, "{baseline}");
    }
    for stage in trained(&planner, &plan)["stages"].as_array().unwrap() {
        let [_, measured] = ledgers(stage);
        assert!(measured.0 <= capacity, "{stage}");
    }

    // Without stages to begin with: those of the fastest pipeline, which bounds every other one.
    let free = ["plan", "recommend", "--profile", "gpt", "--devices", &devices];
    let plan = json(&planner, &[&free[..], &mpress].concat());
    let (value, bound) =
        (plan["certificate"]["objectiveValue"].as_f64(), plan["certificate"]["bestBound"].as_f64());
    let named = untouched["iteration"]["iterationSeconds"].as_f64();
    assert!(bound <= value && bound <= named, "{plan}");
    for stage in stages(&plan) {
        assert!(number(&stage["predictedPeak"]["bytes"]) <= capacity, "{plan}");
    }

    let nothing =
        cli(&planner, &[&tight[..], &["--search-mode", "mpress", "--optimizations", "cpu-offload"]].concat());
    assert_eq!(nothing.code, 5, "{}", nothing.stderr);
    assert!(nothing.stderr.contains("--host-memory"), "{}", nothing.stderr);
}

/// Left to the planner, stages that do not fit are made to: no slower than by MPress's planner, never below the bound, and
/// trained within the capacity with every ledger as predicted.
#[test]
fn chosen_actions_are_no_slower_than_mpress_and_are_trained() {
    let (planner, _worker) = scene("1GiB");
    let untouched = json(&planner, &GIVEN);
    let peak = |stage: usize| number(&untouched["stages"][stage]["predictedPeak"]["bytes"]);
    let devices = format!("2x{}B", peak(0).max(peak(1)) * 65 / 100);
    let tight = ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "4-3", "--devices", &devices];
    let plan = json(&planner, &[&tight[..], &CHOSEN].concat());
    assert_eq!(plan["solver"], "actions/1");
    let certificate = &plan["certificate"];
    assert!(certificate["objectiveValue"].as_f64() >= certificate["bestBound"].as_f64(), "{certificate}");
    let own = untouched["iteration"]["iterationSeconds"].as_f64();
    assert!(certificate["bestBound"].as_f64() >= own, "nothing is faster than doing nothing: {certificate}");
    let baselines = plan["baselines"].as_array().unwrap();
    let names: Vec<&str> = baselines.iter().filter_map(|of| of["name"].as_str()).collect();
    assert_eq!(names, ["keep-only", "recompute-only", "cpu-offload-only", "peer-swap-only", "mpress"]);
    for baseline in baselines.iter().skip(1) {
        let ratio = baseline["timeRatio"].as_f64().unwrap_or(f64::INFINITY);
        assert!(ratio > 1.0 - 1e-6, "none of them is faster: {baseline}");
    }
    trained(&planner, &plan);
    // Without stages to begin with they are chosen, too.
    let free = ["plan", "recommend", "--profile", "gpt", "--devices", &devices];
    let free = json(&planner, &[&free[..], &CHOSEN].concat());
    assert!(
        free["certificate"]["objectiveValue"].as_f64() <= certificate["objectiveValue"].as_f64(),
        "{free}"
    );
}

/// Devices with less and less memory: whatever fits fits larger ones, too, and no plan is slower than MPress's of the same
/// request; where not even a model's state has room, it leaves between its uses, and trains so.
#[test]
#[ignore = "slow: make test-slow"]
fn more_memory_is_never_refused_down_to_less_than_the_state() {
    let (planner, _worker) = scene("1GiB");
    let untouched = json(&planner, &GIVEN);
    let stage = &untouched["stages"][0];
    let peak = number(&stage["predictedPeak"]["bytes"])
        .max(number(&untouched["stages"][1]["predictedPeak"]["bytes"]));
    let state: i64 = ["weightsBytes", "gradientsBytes", "optimizerBytes"]
        .map(|kind| number(&stage["breakdown"][kind]))
        .iter()
        .sum();
    let (mut refused, mut least) = (None, i64::MAX);
    for percent in [95, 85, 75, 65, 55, 45, 40, 35, 30, 25, 20] {
        let devices = format!("2x{}B", peak * percent / 100);
        let ask =
            ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "4-3", "--devices", &devices];
        let chosen = ["--optimizations", "recompute,cpu-offload,peer-swap", "--host-memory", "1GiB"];
        let all = [
            "memory.blocks=[MEMORY_BLOCK_ACTIVATIONS,MEMORY_BLOCK_INPUTS,MEMORY_BLOCK_WEIGHTS,MEMORY_BLOCK_GRADIENTS,MEMORY_BLOCK_OPTIMIZER]",
            "--copy-rates",
            "host=1GB/s,peer=2GB/s",
        ];
        let ask = [&ask[..], &chosen, &all].concat();
        let answer = cli(&planner, &[&ask[..], &["-o", "json"]].concat());
        let greedy = cli(&planner, &[&ask[..], &["--search-mode", "mpress", "-o", "json"]].concat());
        if answer.code != 0 {
            assert!(answer.code == 5 && greedy.code == 5, "{percent} %: {} {}", answer.stderr, greedy.stderr);
            refused = refused.or(Some(percent));
            continue;
        }
        assert_eq!(refused, None, "{percent} % fits, and more was refused");
        let plan: Value = serde_json::from_str(&answer.stdout).unwrap();
        if let Ok(greedy) = serde_json::from_str::<Value>(&greedy.stdout) {
            assert!(seconds(&plan) <= seconds(&greedy) * (1.0 + 1e-9), "{percent} %: {plan}");
        }
        let capacity = peak * percent / 100;
        if capacity < state && capacity < least {
            least = capacity;
            trained(&planner, &plan);
        }
    }
    assert!(least < state, "the state takes {state} of {peak}, and {refused:?} % of the peak was refused");
}

/// Actions that are given, drawn by lot among all kinds, slots and points: none that fit the same devices are faster than the
/// bound of those that the planner chooses, and where that one is proven none are faster than them.
#[test]
fn no_given_actions_get_below_the_bound_of_chosen_ones() {
    let (planner, _worker) = scene("1GiB");
    let untouched = json(&planner, &GIVEN);
    let peak = |stage: usize| number(&untouched["stages"][stage]["predictedPeak"]["bytes"]);
    let rates = ["--copy-rates", "host=1GB/s,peer=2GB/s"];
    let mut random = 7_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (mut fitted, mut void) = (0, 0);
    for tenths in [6, 8, 9] {
        let devices = format!("2x{}B", peak(0).max(peak(1)) * tenths / 10);
        let tight =
            format!("plan recommend --profile gpt --pipeline-layout 4-3 --devices {devices} --dry-run");
        let tight = tight.words();
        let chosen = ["--optimizations", "recompute,cpu-offload,peer-swap", "--host-memory", "1GiB"];
        let all = [
            "memory.blocks=[MEMORY_BLOCK_ACTIVATIONS,MEMORY_BLOCK_INPUTS,MEMORY_BLOCK_WEIGHTS,MEMORY_BLOCK_GRADIENTS,MEMORY_BLOCK_OPTIMIZER]",
        ];
        let plan = json(&planner, &[&tight[..], &chosen, &all, &rates].concat());
        let certificate = &plan["certificate"];
        let bound = certificate["bestBound"].as_f64().unwrap();
        assert!(bound <= certificate["objectiveValue"].as_f64().unwrap(), "{certificate}");
        for _ in 0..25 {
            let mut given: Vec<String> = Vec::new();
            for (stage, layers) in [(0, 0..4), (1, 4..7)] {
                let mut points = || format!("{},{}", draw(4), draw(4));
                let points = [points(), points()];
                for layer in layers {
                    let slots =
                        if stage == 0 && draw(3) == 0 { format!("@{}", draw(2)) } else { String::new() };
                    match draw(4) {
                        0 => given.push(format!("{stage}/{layer}{slots}=recompute")),
                        1 => given.push(format!("{stage}/{layer}{slots}=activations:host:{}", points[0])),
                        2 => given.push(format!(
                            "{stage}/{layer}{slots}=activations:{}:{}",
                            1 - stage,
                            points[0]
                        )),
                        _ => {}
                    }
                    if draw(2) == 0 {
                        given.push(format!("{stage}/{layer}=optimizer:host:{}", points[1]));
                    }
                }
            }
            let given: Vec<&str> =
                given.iter().flat_map(|action| ["--stage-optimization", action.as_str()]).collect();
            let answer = cli(&planner, &[&tight[..], &rates, &given, &["-o", "json"]].concat());
            // What would be fetched before it is gone is refused by name.
            if answer.code == 2 {
                assert!(
                    answer.stderr.contains("swap.prefetch_distance_steps: "),
                    "{given:?}: {}",
                    answer.stderr
                );
                void += 1;
                continue;
            }
            assert!(answer.code == 0 || answer.code == 5, "{given:?}: {}", answer.stderr);
            let Ok(plan) = serde_json::from_str::<Value>(&answer.stdout) else { continue };
            if plan["name"].is_null() {
                continue;
            }
            fitted += 1;
            let seconds = seconds(&plan);
            assert!(seconds >= bound * (1.0 - 1e-9), "{given:?} takes {seconds}, the bound is {bound}");
        }
    }
    assert!(fitted > 5 && void < 60, "{fitted} of 75 fitted, {void} did nothing");
}

/// Blocks that add up to less than a replay finds are asked for until enough is free: what fits by given actions is found,
/// and whatever MPress's planner makes fit ours does, too.
#[test]
#[ignore = "slow: make test-slow"]
fn what_fits_by_given_actions_or_mpress_is_found() {
    let (planner, _worker) = scene("1GiB");
    let ask = |devices: &str, more: &[&str]| {
        let ask = ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "4-3", "--devices", devices];
        let output = cli(&planner, &[&ask[..], &["--safety-margin", "0", "--dry-run"], more].concat());
        assert!(output.code == 0 || output.code == 5, "{more:?}: {}", output.stderr);
        output.code
    };
    let again: Vec<String> = (0..7)
        .flat_map(|layer| ["--stage-optimization".to_owned(), format!("{}/{layer}=recompute", layer / 4)])
        .collect();
    let again: Vec<&str> = again.iter().map(String::as_str).collect();
    // The embedding's weight is the head's, and never leaves: nobody chooses that it does.
    let all = [
        "--host-memory",
        "1GiB",
        "memory.blocks=[MEMORY_BLOCK_ACTIVATIONS,MEMORY_BLOCK_INPUTS,MEMORY_BLOCK_WEIGHTS,MEMORY_BLOCK_GRADIENTS,MEMORY_BLOCK_OPTIMIZER]",
    ];
    let (mut by_hand, mut by_mpress) = (0, 0);
    let untouched = json(&planner, &GIVEN);
    let peak = |stage: usize| number(&untouched["stages"][stage]["predictedPeak"]["bytes"]);
    for percent in (16..100).step_by(7) {
        let devices = format!("2x{}B", peak(0).max(peak(1)) * percent / 100);
        if ask(&devices, &again) == 0 {
            by_hand += 1;
            assert_eq!(
                ask(&devices, &["--optimizations", "recompute"]),
                0,
                "each layer again fits {devices}"
            );
        }
        if ask(&devices, &[&all[..], &["--search-mode", "mpress"]].concat()) == 0 {
            by_mpress += 1;
            assert_eq!(
                ask(&devices, &[&all[..], &["--optimizations", "recompute,cpu-offload,peer-swap"]].concat()),
                0,
                "{devices}"
            );
        }
    }
    assert!(by_hand > 3 && by_mpress > by_hand, "{by_hand} by hand, {by_mpress} by MPress's planner");
}

/// Parameters, gradients and optimizer's state of a stage may be more than its device holds: what leaves was never there all at
/// once, and what its training measured is believed.
#[test]
fn stages_larger_than_their_devices_are_trained() {
    let planner = Planner::start();
    let options = WorkerOptions::slots("2x2200KiB").with("--host-memory 256MiB");
    let _worker = Worker::start(&planner, &options);
    let model = "--model gpt2 --blocks 12 --hidden-size 64 --heads 4 --sequence-length 16 --vocabulary-size 100 --untied-head";
    let options = "--id large --micro-batch-size 2 --micro-batches 4 --schedule 1f1b --optimizer adam";
    profile(&planner, model, options);
    let mut ask =
        "plan recommend --profile large --pipeline-layout 7-8 --devices 2x2200KiB --safety-margin 0"
            .to_owned();
    for layer in 0..15 {
        let stage = usize::from(layer >= 7);
        for what in
            ["recompute", "inputs:host:0,0", "weights:host:0,0", "gradients:host:0,0", "optimizer:host:0,0"]
        {
            ask += &format!(" --stage-optimization {stage}/{layer}={what}");
        }
    }
    let plan = json(&planner, &ask);
    for stage in trained(&planner, &plan)["stages"].as_array().unwrap() {
        let [_, measured] = ledgers(stage);
        assert!(measured.0 <= 2200 << 10 && measured.1 > 2200 << 10, "{stage}");
    }
}

/// What cannot be is named by the option that a user typed, or by the path of the action.
#[test]
fn impossible_actions_are_named() {
    let (planner, _worker) = scene("1MiB");
    let refused = |arguments: &[&str]| {
        let output = cli(&planner, &[&GIVEN[..], arguments].concat());
        assert_ne!(output.code, 0, "{arguments:?}");
        output.stderr
    };
    for (arguments, what) in [
        (&["--stage-optimization", "0/5=recompute"][..], "first_layer"),
        (&["--stage-optimization", "0/1=activations:0"], "peer_stripes[0].stage"),
        (
            &["--stage-optimization", "0/1=activations:host", "--stage-optimization", "0/1=recompute"],
            "so none are stored",
        ),
        (
            &["--stage-optimization", "0/1=weights:recompute"],
            "\"0/1=weights:recompute\" is not a memory optimization: recompute has no block and no destination",
        ),
        (
            &["--optimizations", "recompute", "memory.blocks=[MEMORY_BLOCK_WEIGHTS]"],
            "memory.blocks: selects blocks to offload or swap",
        ),
        (
            &["--stage-optimization", "2/1=recompute"],
            "--stage-optimization: stage 2 does not exist. Use 0 to 1",
        ),
        (
            &["--stage-optimization", "0/1=activations:1@60%"],
            "have shares with a sum of 60%. Use shares with a sum of 100%",
        ),
        (&["--stage-optimization", "0/1=activations:host", "--framework", "deepspeed"], "deepspeed"),
        (&["--stage-optimization", "0/1=versions:host"], "PipeDream"),
        (&["--search-mode", "mpress", "--framework", "megatron"], "megatron"),
        (&["--optimizations", "cpu-offload", "--search-mode", "amp"], "--search-mode"),
        (
            &["--optimizations", "cpu-offload", "--stage-optimization", "0/1=recompute"],
            "--stage-optimization: are set, but `--optimizations` lets the planner choose memory optimizations. Remove \
             one of the two",
        ),
        (
            &["--host-memory", "1KiB", "--stage-optimization", "0/1=activations:host"],
            "--host-memory: 1.00 KiB is less than the CPU memory that the given memory optimizations need",
        ),
        (&["--host-memory", "1GiB", "--objective", "min-devices"], "--objective"),
        (&["--search-mode", "mpress", "--objective", "min-cost"], "objective"),
        (&["--optimizations", "cpu-offload", "--recompute", "layer"], "recompute"),
        (&["--optimizations", "cpu-offload", "--data-parallel-sizes", "2"], "constraints"),
    ] {
        let text = refused(arguments);
        assert!(text.contains(what), "{arguments:?}: {text}");
    }
    let without = cli(
        &planner,
        &[
            "plan",
            "recommend",
            "--profile",
            "gpt",
            "--devices",
            "2x1GiB",
            "--stage-optimization",
            "0/1=recompute",
        ],
    );
    assert!(without.code != 0 && without.stderr.contains("--pipeline-layout"), "{}", without.stderr);
    let small = [&GIVEN[..6], &["--devices", "2x64KiB"]].concat();
    for more in [&[][..], &["--stage-optimization", "0/1=recompute"]] {
        let stderr = cli(&planner, &[&small[..], more].concat()).stderr;
        assert!(
            stderr.contains("does not fit: device 0 needs") && stderr.contains("larger devices"),
            "{stderr}"
        );
    }
    let of_models = ["--devices", "2x512MiB", "--objective", "max-model"];
    let of_models = [&GIVEN[..4], &of_models].concat();
    for (more, grows) in [(&[][..], true), (&["--optimizations", "recompute"], false)] {
        let stderr = cli(&planner, &[&of_models[..], more].concat()).stderr;
        assert!(stderr.contains("max-model chooses a model from `objective.candidate_profiles`"), "{stderr}");
        assert_eq!(
            stderr.contains("set `objective.model_scaling` to search for the largest model"),
            grows,
            "{stderr}"
        );
    }

    // More of the host than any worker offers is refused before anything is queued.
    let plan = json(&planner, &[&GIVEN[..], &["--stage-optimization", "0/0..3=activations:host"]].concat());
    let refused = cli(&planner, &["plan", "trial", plan["name"].as_str().unwrap()]);
    assert!(
        refused.code != 0 && refused.stderr.contains("4.58 MiB of CPU (host) memory"),
        "{}",
        refused.stderr
    );
}

/// Where a plan's devices lie on a described node its copies go at the node's rates: each device's own, what they share,
/// and the pair's; the request's rates win. The plan says who said so.
#[test]
fn copies_go_at_the_rates_of_the_cluster() {
    let (planner, _worker) = scene("1GiB");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    let cluster = |id: &str, keys: &str| {
        let text = format!(
            "format: loadmaster.cluster/1\nkinds: [{{name: cpu, memory: 512MiB}}]\nnodes:\n  - {{name: n, kind: cpu, devices: \
             2, link: {{bandwidth: 5GB/s}}{keys}}}\n"
        );
        std::fs::write(&file, text).unwrap();
        json(&planner, &["cluster", "import", file.to_str().unwrap(), "--id", id]);
    };
    cluster("silent", "");
    cluster("fast", ", host: {link: {bandwidth: 2GB/s, back: 1GB/s}}");
    cluster(
        "shared",
        ", host: {link: {bandwidth: 2GB/s, back: 1GB/s}, uplinks: [{devices: [0, 1], bandwidth: 100MB/s}]}",
    );
    let plan = |cluster: &str, more: &[&str]| {
        let ask = ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "4-3", "--cluster", cluster];
        let actions = [
            "--stage-optimization",
            "0/0..3=activations:host:1,1",
            "--stage-optimization",
            "1/4..5=optimizer:host:1,1",
        ];
        json(&planner, &[&ask[..], &actions, more].concat())
    };
    let told = |plan: &Value| {
        let warnings = loadmaster_tests::warnings(plan).into_iter();
        warnings.filter(|warning| warning.starts_with("copies to CPU memory")).collect::<String>()
    };
    let [silent, fast, shared] = ["silent", "fast", "shared"].map(|cluster| plan(cluster, &[]));
    assert!(
        told(&silent)
            .contains("to CPU memory at 5.00 GB/s (guessed), to peers at 5.00 GB/s (of the cluster, given)"),
        "{silent}"
    );
    assert!(told(&fast).contains("to CPU memory at 1.00 to 2.00 GB/s (of the cluster, given)"), "{fast}");
    assert!(told(&shared).contains("stage 0 to the host, stage 1 to the host share 100 MB/s"), "{shared}");
    // Slots share cores, where what waits a little longer may find them free: nearly as long is not shorter.
    let all = [&silent, &fast, &shared].map(seconds);
    assert!(all[0] <= 1.05 * all[1] && all[1] < all[2], "{all:?}: {shared}");
    // Nor do blocks take more of a host's memory than the cluster says they may, whoever chooses them.
    cluster("small", ", host: {memory: 1MiB}");
    let ask = ["plan", "recommend", "--profile", "gpt", "--pipeline-layout", "4-3", "--cluster", "small"];
    let refused =
        cli(&planner, &[&ask[..], &["--stage-optimization", "0/0..3=activations:host:1,1"]].concat());
    assert!(refused.code == 2 && refused.stderr.contains("the cluster allows 1.00 MiB"), "{refused:?}");
    let chosen = json(&planner, &[&ask[..], &["--search-mode", "mpress", "--host-memory", "1GiB"]].concat());
    assert!(
        chosen["warnings"]
            .to_string()
            .contains("offloaded blocks may use 1.00 MiB of CPU memory per host, which is the limit"),
        "{chosen}"
    );
    let asked = plan("shared", &["--copy-rates", "host=5GB/s"]);
    assert!(
        told(&asked).contains("to CPU memory at 5.00 GB/s (given)") && seconds(&asked) == seconds(&silent),
        "{asked}"
    );
}
