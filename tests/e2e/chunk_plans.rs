//! Plans in chunks as users ask for them: chosen, predicted, trained, and the largest model that has one.

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::wire::v1::pass_span::Kind;
use loadmaster_proto::wire::v1::{CopyTimeline, EmbeddingPlace, Plan, SimulatedSchedule, Timeline};
use loadmaster_tests::{
    CommandLine, Planner, SMALL_GPT2, Worker, WorkerOptions, cli, json, number, peak, profile, seconds,
};
use serde_json::Value;

use crate::over_time::{follow, is_same, plan as stored, simulated, total};

const ASK: [&str; 8] =
    ["plan", "recommend", "--profile", "gpt", "--host-memory", "256MiB", "--copy-rates", "host=1GB/s"];

/// A planner and a worker with these slots, so much memory of the host and a paced link to it.
fn linked(slots: &str, host_memory: &str) -> (Planner, Worker) {
    let planner = Planner::start();
    let paced = format!("--host-memory {host_memory} --cpu-links host=1GB/s");
    let worker = Worker::start(&planner, &WorkerOptions::slots(slots).with(&paced));
    (planner, worker)
}

/// The same with a profile that has trained in chunks, too.
pub(crate) fn scene() -> (Planner, Worker) {
    let (planner, worker) = linked("2x512MiB", "512MiB");
    let training = "--micro-batch-size 2 --micro-batches 3 --precision bf16 --optimizer adam";
    profile(&planner, SMALL_GPT2, &format!("--id gpt {training} --host-memory 256MiB"));
    (planner, worker)
}

/// Fields for models of so many blocks.
fn grown(range: &str) -> String {
    let (first, last) = range.split_once("..").unwrap();
    let scaling = "objective.model_scaling";
    format!("{scaling}.parameter=blocks {scaling}.min_value={first} {scaling}.max_value={last}")
}

fn ask(planner: &Planner, devices: &str, options: &[&str]) -> Value {
    json(planner, &[&ASK[..], &["--devices", devices], options].concat())
}

/// A capacity that is this share of what the model takes without chunks.
pub(crate) fn share(planner: &Planner, percent: i64) -> String {
    devices(planner, 1, percent)
}

/// So many devices with this share of that.
pub(crate) fn devices(planner: &Planner, count: u32, percent: i64) -> String {
    let plain = json(
        planner,
        &["plan", "recommend", "--profile", "gpt", "--devices", "1x512MiB", "output.skip_comparisons=true"],
    );
    format!("{count}x{}B", number(&plain["predictedPeak"]["bytes"]) * percent / 100)
}

/// Trains a plan: its device, its host, what moves, and `N(t)` and `R(t)` of every step are as predicted, to the byte.
fn train_as_predicted(planner: &Planner, plan: &Value) {
    let name = plan["name"].as_str().unwrap();
    json(planner, &["plan", "trial", name]);
    let tried = json(planner, &["plan", "show", name]);
    let stage = &tried["stages"][0];
    assert_eq!(stage["predictedPeak"]["bytes"], stage["measuredPeak"]["bytes"], "{stage}");
    let (predicted, measured) = (&stage["chunkTraffic"], &stage["measuredChunkTraffic"]);
    let is_shared = number(&stage["config"]["dataParallelSize"]) > 1;
    let shared: &[&str] = if is_shared { &["allGatherBytes", "reduceScatterBytes"] } else { &[] };
    let rows: &[&str] = if stage["chunkedTraining"]["embeddingPlace"] == "EMBEDDING_PLACE_HOST" {
        &["embeddingRowBytes", "embeddingGradientBytes"]
    } else {
        &[]
    };
    let all =
        ["nonChunkStepBytes", "chunkStepBytes", "hostBytes", "fetchedBytes", "evictedBytes", "fetchCount"];
    for field in all.iter().chain(shared).chain(rows) {
        // Where nothing is on the host what is copied is 0, and left out.
        let is_copied = number(&predicted["hostBytes"]) > 0;
        assert!(!predicted[field].is_null() || !is_copied, "{field}: {stage}");
        assert_eq!(predicted[field], measured[field], "{field}: {stage}");
    }
    assert_eq!(measured["replanned"], false, "{stage}");
    // What layers keep goes to the host and comes back, or stays.
    let kept = |offload: &Value| {
        let copies = &offload["copyTraffic"][0];
        [&offload["hostPeakBytes"], &copies["sentBytes"], &copies["receivedBytes"]].map(number)
    };
    assert_eq!(kept(&stage["offloadTraffic"]), kept(&stage["measuredOffloadTraffic"]), "{stage}");
    assert_eq!(stage["memoryOptimizations"].is_object(), kept(&stage["offloadTraffic"])[1] > 0, "{stage}");
    assert_eq!(
        number(&stage["memoryOptimizations"]["hostPoolBytes"]),
        kept(&stage["offloadTraffic"])[0],
        "{stage}"
    );
    let again = json(planner, &["plan", "predict", "--plan", name]);
    assert_eq!(again["stages"][0]["peak"]["bytes"], stage["predictedPeak"]["bytes"], "{again}");
    assert_eq!(again["stages"][0]["chunkTraffic"]["hostBytes"], predicted["hostBytes"], "{again}");
    assert_eq!(kept(&again["stages"][0]["offloadTraffic"]), kept(&stage["offloadTraffic"]), "{again}");
}

/// Where the state has no room, chunks have: chosen freely, or with every choice fixed in either way, they are trained as
/// predicted, and no choice that is fixed is faster than the free one.
#[test]
#[ignore = "slow: make test-slow"]
fn chosen_chunks_are_trained_as_predicted() {
    let (planner, _worker) = scene();
    let devices = share(&planner, 45);
    let plain = ["plan", "recommend", "--profile", "gpt", "--devices", &devices, "--recompute", "none,layer"];
    assert_eq!(cli(&planner, &plain).code, 5, "it does not fit without chunks");

    // Memory of a host alone has actions chosen, and whoever asks so learns that chunks might take it, too.
    let told = |options: &[&str]| {
        let answer = cli(&planner, &[&ASK[..], &["--devices", &devices], options].concat());
        assert!([0, 5].contains(&answer.code), "{}", answer.stderr);
        let words = "chunked training was not searched";
        answer.stdout.contains(words) || answer.stderr.contains(words)
    };
    assert!(told(&[]));
    assert!(
        !told(&["--memory-mode", "plain"])
            && !told(&["--optimizations", "cpu-offload"])
            && !told(&["--memory-mode", "best"])
    );

    let free = ask(&planner, &devices, &["--memory-mode", "chunks"]);
    assert_eq!(free["solver"], "chunks/1");
    let certificate = &free["certificate"];
    assert!(certificate["objectiveValue"].as_f64() >= certificate["bestBound"].as_f64(), "{certificate}");
    let baselines = free["baselines"].as_array().unwrap();
    let names: Vec<&str> = baselines.iter().filter_map(|of| of["name"].as_str()).collect();
    assert_eq!(names, ["plain", "zero-offload", "patrickstar"]);
    for baseline in baselines.iter().skip(1) {
        let ratio = baseline["timeRatio"].as_f64().unwrap_or(f64::INFINITY);
        assert!(ratio > 0.99, "none of them is faster: {baseline}");
    }
    train_as_predicted(&planner, &free);
    // What was copied is judged as that of memory actions is; its peak and its seconds are no plain plan's.
    let errors = json(&planner, &["plan", "errors"]);
    let quantities = ["QUANTITY_PEAK_BYTES", "QUANTITY_WAITED_SECONDS", "QUANTITY_COPIED_BYTES"];
    for row in errors["predictionErrors"].as_array().unwrap() {
        let quantity = row["quantity"].as_str().unwrap();
        assert!(quantities.contains(&quantity) && row["calibration"].is_null(), "{errors}");
        assert!(quantity != quantities[0] || row["accounting"] == "MEMORY_ACCOUNTING_HOST", "{errors}");
        assert!(quantity != quantities[2] || row["maxAbsoluteDifference"] == 0.0, "to the byte: {errors}");
    }
    assert!(errors.to_string().contains(quantities[2]), "{errors}");
    // On a node of which nobody says how it copies it is simulated again as it was planned.
    let name = free["name"].as_str().unwrap();
    let node = ["--nodes", "x1", "--device-kind", "cpu", "--device-indices", "0"];
    let bound = json(&planner, &[&["plan", "place", name][..], &node].concat());
    assert!(is_same(bound["iterationSeconds"].as_f64().unwrap(), seconds(&free)), "{bound}");
    assert_eq!(bound["optimal"], true, "{bound}");
    assert!(bound["warnings"].to_string().contains("1.00 GB/s (as planned)"), "{bound}");
    for fixed in [
        &[
            "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_MICRO_BATCH]",
            "memory.chunk_options.host_parameters=[HOST_PARAMETERS_STORED]",
        ][..],
        &[
            "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_LAYER]",
            "memory.chunk_options.host_parameters=[HOST_PARAMETERS_CAST]",
        ],
        &["memory.chunk_options.resident_chunk_count=0", "--recompute", "layer"],
        &[
            "memory.chunk_options.embedding_places=[EMBEDDING_PLACE_HOST]",
            "memory.chunk_options.host_parameters=[HOST_PARAMETERS_CAST]",
        ],
        &[
            "memory.chunk_options.embedding_places=[EMBEDDING_PLACE_CHUNK]",
            "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_LAYER]",
        ],
        &["memory.chunk_options.activation_places=[ACTIVATION_PLACE_HOST]", "--recompute", "none"],
        &["memory.chunk_options.activation_places=[ACTIVATION_PLACE_HOST]", "--recompute", "layer"],
        &[
            "memory.chunk_options.activation_places=[ACTIVATION_PLACE_DEVICE]",
            "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_LAYER]",
        ],
        &["memory.chunk_options.policy=CHUNK_POLICY_PATRICKSTAR", "--recompute", "none,layer"],
        &["memory.chunk_options.policy=CHUNK_POLICY_STATIC", "--recompute", "layer"],
        &["--framework", "deepspeed", "--recompute", "layer"],
    ] {
        let plan = ask(
            &planner,
            &devices,
            &[&["--memory-mode", "chunks", "output.skip_comparisons=true"], fixed].concat(),
        );
        assert!(seconds(&plan) >= seconds(&free) * 0.998, "{fixed:?}: {plan}");
        let place = &plan["stages"][0]["chunkedTraining"]["embeddingPlace"];
        assert!(
            !fixed[0].contains("embedding_places")
                || fixed[0].contains(&format!("[{}]", place.as_str().unwrap())),
            "{plan}"
        );
        let are_away = plan["stages"][0]["memoryOptimizations"].is_object();
        assert!(!fixed[0].contains("ACTIVATION_PLACE") || are_away == fixed[0].contains("HOST"), "{plan}");
        let chunks = &plan["stages"][0]["chunkedTraining"];
        let ours = [
            "MICRO_BATCH_ORDER_MICRO_BATCH",
            "HOST_PARAMETERS_STORED",
            "CPU_OPTIMIZER_TIMING_AFTER_BACKWARD",
        ];
        let published = ["microBatchOrder", "hostParameters", "cpuOptimizerTiming"]
            .map(|field| chunks[field].as_str().unwrap_or_default());
        assert!(fixed[0] != "--framework" || published == ours, "as DeepSpeed trains: {plan}");
        train_as_predicted(&planner, &plan);
    }

    // Of both kinds the better one, and the other one with its value or its reason.
    let tight = ask(&planner, &devices, &["--memory-mode", "best", "output.skip_comparisons=true"]);
    assert!(tight["stages"][0]["chunkedTraining"].is_object(), "{tight}");
    let has = |plan: &Value, words: &str| {
        loadmaster_tests::warnings(plan).iter().any(|warning| warning.contains(words))
    };
    assert!(has(&tight, "there is no plan without chunks"), "{tight}");
    let roomy = ask(&planner, "1x512MiB", &["--memory-mode", "best", "output.skip_comparisons=true"]);
    assert!(has(&roomy, "without chunks it would be") || has(&roomy, "in chunks it would be"), "{roomy}");

    // The lowest peak is below that of the fastest plan, and nothing is below what steps hold besides.
    let lowest = ask(
        &planner,
        &devices,
        &["--memory-mode", "chunks", "--objective", "min-peak-memory", "output.skip_comparisons=true"],
    );
    assert!(peak(&lowest) < peak(&free), "{lowest}");
    assert!(lowest["certificate"]["bestBound"].as_f64().unwrap() <= peak(&lowest) as f64, "{lowest}");
    train_as_predicted(&planner, &lowest);
}

/// Where there is no room with activations on the device there is with them on the host: they are chosen, and say so where they may
/// not be.
#[test]
fn activations_go_to_the_host_where_nothing_else_has_room() {
    let (planner, _worker) = scene();
    // Nothing is computed again, so that layers keep much.
    let fixed = ["--memory-mode", "chunks", "--recompute", "none", "output.skip_comparisons=true"];
    let lowest = |place: &str| {
        let place = format!("memory.chunk_options.activation_places=[ACTIVATION_PLACE_{place}]");
        let options = ["--objective", "min-peak-memory", &place];
        let plan = ask(&planner, "1x512MiB", &[&fixed[..], &options].concat());
        number(&plan["predictedPeak"]["bytes"])
    };
    let (here, there) = (lowest("DEVICE"), lowest("HOST"));
    assert!(there < here, "{there} of {here}");
    let between = format!("1x{}B", (here + there) / 2);
    let plan = ask(&planner, &between, &fixed);
    let action = &plan["stages"][0]["memoryOptimizations"]["optimizations"][0]["swap"];
    assert_eq!(action["block"], "MEMORY_BLOCK_ACTIVATIONS", "{plan}");
    train_as_predicted(&planner, &plan);
    let line = [
        &ASK[..],
        &["--devices", &between, "memory.chunk_options.activation_places=[ACTIVATION_PLACE_DEVICE]"],
        &fixed,
    ]
    .concat();
    let refused = cli(&planner, &line);
    assert_eq!(refused.code, 5, "{}", refused.stdout);
    assert!(refused.stderr.contains("put activations on the host"), "{}", refused.stderr);
}

/// Two devices share chunks: each has half of the state on its host and half of every micro-batch, and both are trained as
/// predicted. Where devices may stay idle one alone is looked at, too.
#[test]
#[ignore = "slow: make test-slow"]
fn devices_that_share_chunks_are_trained_as_predicted() {
    let (planner, _worker) = scene();
    let two = devices(&planner, 2, 40);
    let chunks = ["--memory-mode", "chunks", "output.skip_comparisons=true"];
    let of = |devices: &str, options: &[&str]| ask(&planner, devices, &[&chunks[..], options].concat());
    let free = of(&two, &[]);
    let stage = |plan: &Value| plan["stages"][0].clone();
    assert_eq!(stage(&free)["config"]["dataParallelSize"], 2, "{free}");
    assert_eq!((number(&free["deviceCount"]), &stage(&free)["deviceRanges"][0]["count"]), (2, &2.into()));
    assert!(free["iteration"]["linkSpeedOrigin"].as_str().unwrap().contains("between ranks"), "{free}");
    train_as_predicted(&planner, &free);
    for fixed in [
        [
            "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_MICRO_BATCH]",
            "memory.chunk_options.host_parameters=[HOST_PARAMETERS_STORED]",
        ],
        [
            "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_LAYER]",
            "memory.chunk_options.host_parameters=[HOST_PARAMETERS_CAST]",
        ],
        [
            "memory.chunk_options.embedding_places=[EMBEDDING_PLACE_HOST]",
            "memory.chunk_options.host_parameters=[HOST_PARAMETERS_CAST]",
        ],
        [
            "memory.chunk_options.embedding_places=[EMBEDDING_PLACE_HOST]",
            "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_MICRO_BATCH]",
        ],
    ] {
        let plan = of(&two, &fixed);
        let is_on_host = stage(&plan)["chunkedTraining"]["embeddingPlace"] == "EMBEDDING_PLACE_HOST";
        assert!(is_on_host || !fixed[0].contains("EMBEDDING_PLACE"), "{plan}");
        train_as_predicted(&planner, &plan);
    }

    // Each has its part of some chunks, or of all, on its device: then there is nothing on its host, and nothing to fetch.
    let roomy = devices(&planner, 2, 80);
    for count in [2, 10_000] {
        let resident = format!("memory.chunk_options.resident_chunk_count={count}");
        let options = [&*resident, "memory.chunk_options.embedding_places=[EMBEDDING_PLACE_CHUNK]"];
        let plan = of(&roomy, &options);
        let on_device = stage(&plan)["chunkedTraining"]["residentChunks"].as_array().unwrap().len();
        // How many there are follows from the size that is fastest by what was measured.
        let intervals =
            stage(&plan)["chunkedTraining"]["plannedResidency"]["intervals"].as_array().unwrap().clone();
        let all = intervals.iter().map(|interval| number(&interval["chunk"])).collect::<BTreeSet<_>>().len();
        assert_eq!(on_device, all.min(count), "{plan}");
        let is_all = on_device == all;
        let run = stage(&plan)["chunkTraffic"].clone();
        let linked = ["hostBytes", "fetchedBytes", "evictedBytes"].map(|field| number(&run[field]));
        assert_eq!(linked.iter().all(|&bytes| bytes == 0), is_all, "{run}");
        assert!(number(&run["allGatherBytes"]) > 0 && number(&run["reduceScatterBytes"]) > 0, "{run}");
        train_as_predicted(&planner, &plan);
    }

    // Each host's memory is shared by its ranks.
    let alone = of(
        &devices(&planner, 1, 40),
        &[
            "memory.chunk_options.host_parameters=[HOST_PARAMETERS_CAST]",
            "memory.chunk_options.resident_chunk_count=0",
        ],
    );
    let host = |plan: &Value| number(&stage(plan)["chunkTraffic"]["hostBytes"]);
    let all = host(&alone);
    let tight = format!("{}B", all + all / 20);
    let line = ["plan", "recommend", "--profile", "gpt", "--devices", &two, "--host-memory", &tight];
    let shared = json(
        &planner,
        &[&line[..], &["memory.chunk_options.host_parameters=[HOST_PARAMETERS_CAST]"], &chunks].concat(),
    );
    assert!(2 * host(&shared) <= all + all / 20, "{shared}");

    let idle = of(&two, &["--allow-idle-devices"]);
    let one = of(&two, &["--allow-idle-devices", "--data-parallel-sizes", "1"]);
    assert_eq!((number(&one["deviceCount"]), &stage(&one)["deviceRanges"][0]["count"]), (1, &1.into()));
    let least = seconds(&one).min(seconds(&free));
    assert!((seconds(&idle) - least).abs() <= 1e-6 * least, "{idle}");
    assert!(
        idle["certificate"]["bestBound"].as_f64() <= idle["certificate"]["objectiveValue"].as_f64(),
        "{idle}"
    );
}

/// All that a timeline says of a plan in chunks is what the plan says: seconds, waits, bytes each way, updates, and the peak.
fn check_timeline(plan: &Plan, timeline: &Timeline) {
    assert!(!timeline.warnings.iter().any(|of| of.message.contains("not shown")), "{:?}", timeline.warnings);
    let (stage, end) = (&plan.stages[0], timeline.iteration_seconds);
    let (run, ranks) = (stage.chunk_traffic.as_ref().unwrap(), stage.config.unwrap().data_parallel_size);
    assert!(is_same(end, plan.iteration.as_ref().unwrap().iteration_seconds), "{end}");
    let [lane] = timeline.stage_timelines.as_slice() else { panic!("{timeline:?}") };
    let count = |kinds: &[Kind]| lane.passes.iter().filter(|pass| kinds.contains(&pass.kind())).count();
    // Three micro-batches through four blocks and three layers more.
    assert_eq!((count(&[Kind::Forward]), count(&[Kind::Backward])), (21, 21));
    assert_eq!(count(&[Kind::AllGather, Kind::ReduceScatter]) > 0, ranks > 1, "{lane:?}");
    let passes = lane.passes.iter().map(|of| (of.start_seconds, of.end_seconds));
    let waits = lane.waits.iter().map(|of| (of.start_seconds, of.end_seconds));
    let mut all: Vec<(f64, f64)> = passes.chain(waits).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    follow(all.iter().copied(), end);
    assert!(is_same(all.iter().map(|(start, end)| end - start).sum(), end), "without gaps: {lane:?}");
    // What layers keep on the host is copied besides chunks.
    let kept = stage
        .offload_traffic
        .iter()
        .flat_map(|offload| &offload.copy_traffic)
        .next()
        .cloned()
        .unwrap_or_default();
    let waited = run.fetch_wait_seconds + run.evict_wait_seconds + kept.waited_seconds;
    assert!(is_same(lane.waited_seconds, waited), "{lane:?}");
    let updates = || lane.updates.iter().map(|of| (of.start_seconds, of.end_seconds));
    follow(updates(), end);
    assert!(is_same(lane.update_seconds, run.cpu_optimizer_seconds), "{lane:?}");
    let way = |is_back: bool| {
        let ends = |way: &&CopyTimeline| {
            (way.sender_stage.is_none(), way.receiver_stage.is_none()) == (is_back, !is_back)
        };
        timeline.copy_timelines.iter().find(ends).unwrap()
    };
    // A copy that goes over the end of an iteration is listed in two parts.
    let of_layers = |way: &CopyTimeline| -> BTreeMap<(i32, Option<i32>), i64> {
        let copies = way.copies.iter().filter(|copy| copy.chunk.is_none());
        copies.map(|copy| ((copy.layer, copy.micro_batch), copy.bytes)).collect()
    };
    // Rows of a table on the host come for each pass through the embedding: they are copies of the link, and no chunks.
    let has_table = stage.chunked_training.as_ref().unwrap().embedding_place() == EmbeddingPlace::Host;
    let row = way(true).copies.iter().find(|copy| has_table && copy.chunk == Some(0));
    let rows = row.map_or(0, |row| run.embedding_row_bytes / row.bytes);
    assert_eq!(rows > 0, has_table, "{run:?}");
    let fetches = way(true).copy_count - rows - i64::try_from(of_layers(way(true)).len()).unwrap();
    assert_eq!((way(true).bytes, fetches), (run.fetched_bytes + kept.received_bytes, run.fetch_count));
    assert_eq!(way(false).bytes, run.evicted_bytes + kept.sent_bytes);
    for way in &timeline.copy_timelines {
        follow(way.copies.iter().map(|copy| (copy.start_seconds, copy.end_seconds)), end);
        assert_eq!(of_layers(way).values().sum::<i64>(), kept.sent_bytes, "{way:?}");
    }
    let [curve] = timeline.memory_curves.as_slice() else { panic!("{timeline:?}") };
    let held: Vec<i64> = curve.points.iter().filter_map(|of| of.breakdown.as_ref()).map(total).collect();
    assert_eq!(held.iter().copied().max(), stage.predicted_peak.as_ref().map(|peak| peak.bytes));
    let sums =
        run.non_chunk_step_bytes.iter().zip(&run.chunk_step_bytes).map(|(other, chunks)| other + chunks);
    assert_eq!(held, sums.collect::<Vec<i64>>());
    follow(curve.points.iter().map(|point| (point.start_seconds, point.start_seconds)), end);
}

/// The iteration of a plan in chunks is told and drawn as lanes, of one rank and of one of two.
#[tokio::test(flavor = "multi_thread")]
async fn timelines_in_chunks_add_up_to_what_plans_say() {
    let (planner, _worker) = scene();
    let channel = planner.channel().await;
    let chunks = ["--memory-mode", "chunks", "output.skip_comparisons=true"];
    let own = SimulatedSchedule::Unspecified;
    let mut drawn = String::new();
    for (devices, fixed) in [
        // Of both places of the embedding each, so that it does not depend on speeds which of them is seen.
        (
            share(&planner, 45),
            &[
                "memory.chunk_options.embedding_places=[EMBEDDING_PLACE_CHUNK]",
                "memory.chunk_options.resident_chunk_count=1",
            ][..],
        ),
        (
            share(&planner, 45),
            &[
                "memory.chunk_options.embedding_places=[EMBEDDING_PLACE_HOST]",
                "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_LAYER]",
            ],
        ),
        (
            share(&planner, 45),
            &[
                "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_MICRO_BATCH]",
                "--recompute",
                "layer",
            ],
        ),
        (
            devices(&planner, 2, 40),
            &[
                "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_LAYER]",
                "memory.chunk_options.host_parameters=[HOST_PARAMETERS_CAST]",
            ],
        ),
        (
            share(&planner, 45),
            &["memory.chunk_options.activation_places=[ACTIVATION_PLACE_HOST]", "--recompute", "none"],
        ),
        (
            devices(&planner, 2, 40),
            &[
                "memory.chunk_options.activation_places=[ACTIVATION_PLACE_HOST]",
                "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_MICRO_BATCH]",
            ],
        ),
    ] {
        let plan = ask(&planner, &devices, &[&chunks[..], fixed].concat());
        let name = plan["name"].as_str().unwrap();
        let (plan, timeline) = (stored(&channel, name).await, simulated(&channel, name, 0, own).await);
        check_timeline(&plan, &timeline);
        assert!(!timeline.truncated);
        let few = simulated(&channel, name, 12, own).await;
        assert!(few.truncated && few.stage_timelines[0].passes.len() == 12, "{few:?}");
        assert!(few.copy_timelines.iter().all(|way| way.copies.len() <= 2), "{few:?}");
        assert_eq!(few.stage_timelines[0].update_seconds, timeline.stage_timelines[0].update_seconds);
        // Whoever names the plan's own schedule has the same.
        assert_eq!(simulated(&channel, name, 0, SimulatedSchedule::Gpipe).await, timeline);
        let other = simulated(&channel, name, 0, SimulatedSchedule::OneFOneB).await;
        assert!(other.copy_timelines.is_empty() && other.stage_timelines[0].updates.is_empty(), "{other:?}");
        assert!(
            other.warnings.iter().any(|of| of.message.contains("uses chunked training")),
            "{:?}",
            other.warnings
        );
        let shown = cli(&planner, &["plan", "show", name, "--picture=schedule"]);
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        drawn.push_str(&shown.stdout);
    }
    for part in
        ["to host", "from host", "host step", "recompute", "exchange between ranks", "in micro-batch order"]
    {
        assert!(drawn.contains(part), "{part}: {drawn}");
    }
}

/// One profile of a small model says how large a model of its family fits: it is stored, trained as predicted, and one block
/// more has no room.
#[test]
#[ignore = "slow: make test-slow"]
fn the_largest_model_of_a_family_is_found_and_trained() {
    let (planner, _worker) = scene();
    let devices = share(&planner, 40);
    let ask = |range: &str, more: &[&str]| {
        let host = "plan recommend --profile gpt --host-memory 24MiB --copy-rates host=1GB/s -o json";
        let model = format!("--memory-mode chunks --objective max-model {}", grown(range));
        let line = format!("{host} --devices {devices} {model} output.skip_comparisons=true");
        cli(&planner, &[line.words(), more.to_vec()].concat())
    };
    let found = ask("1..100", &[]);
    assert_eq!(found.code, 0, "{}", found.stderr);
    let plan = found.json();
    let blocks = loadmaster_tests::warnings(&plan).into_iter().find_map(|warning| {
        let (_, rest) = warning.split_once("with blocks ")?;
        rest.split_once(',')?.0.parse::<u32>().ok()
    });
    let blocks = blocks.unwrap_or_else(|| panic!("no model is named: {plan}"));
    assert!(blocks > 4, "more than without chunks: {plan}");
    let rejected = &plan["certificate"]["rejectedPlans"][0];
    assert!(
        rejected["reason"].as_str().unwrap().contains("does not fit in memory with chunked training"),
        "{rejected}"
    );
    let model = json(&planner, &["model", "show", plan["model"].as_str().unwrap()]);
    assert_eq!(
        number(&model["parameterCount"]),
        plan["certificate"]["objectiveValue"].as_f64().unwrap() as i64
    );
    train_as_predicted(&planner, &plan);
    // Its picture is of the model that it names, not of the one that was profiled.
    let shown = cli(&planner, &["plan", "show", plan["name"].as_str().unwrap(), "--picture=schedule"]);
    assert!(shown.code == 0 && shown.stdout.contains("from host"), "{}{}", shown.stdout, shown.stderr);
    assert!(!shown.stdout.contains("no parameters"), "{}", shown.stdout);

    let one_more = ask(&format!("{0}..{0}", blocks + 1), &[]);
    assert_eq!(one_more.code, 5, "{}", one_more.stdout);
    let wrong = ask(
        "1..100",
        &[
            "objective.model_scaling.parameter=heads",
            "objective.model_scaling.min_value=1",
            "objective.model_scaling.max_value=4",
        ],
    );
    assert_ne!(wrong.code, 0);
}

/// So it is without chunks: the largest model is trained as predicted on as many devices as it is cut
/// over, one block more does not fit, and the plans that its plan names are there.
#[test]
fn the_largest_model_without_chunks_is_found_and_trained() {
    let (planner, _worker) = scene();
    let devices = devices(&planner, 2, 100);
    let ask = |range: &str, more: &[&str]| {
        let largest = format!("--objective max-model {} -o json", grown(range));
        let line = format!("plan recommend --profile gpt --devices {devices} {largest}");
        cli(&planner, &[line.words(), more.to_vec()].concat())
    };
    let found = ask("1..400", &[]);
    assert_eq!(found.code, 0, "{}", found.stderr);
    let plan = found.json();
    let model = json(&planner, &["model", "show", plan["model"].as_str().unwrap()]);
    assert_eq!(
        number(&model["parameterCount"]),
        plan["certificate"]["objectiveValue"].as_f64().unwrap() as i64
    );
    let blocks = number(&model["source"]["zoo"]["gpt2"]["blocks"]);
    let rejected = &plan["certificate"]["rejectedPlans"][0];
    assert!(rejected["reason"].as_str().unwrap().contains("does not fit"), "{rejected}");
    assert_eq!(ask(&format!("{0}..{0}", blocks + 1), &[]).code, 5);
    for named in plan["alternatives"].as_array().into_iter().flatten() {
        let name = named["plan"].as_str().unwrap();
        assert_eq!(json(&planner, &["plan", "show", name])["model"], plan["model"], "{named}");
    }
    let name = plan["name"].as_str().unwrap();
    json(&planner, &["plan", "trial", name]);
    for stage in json(&planner, &["plan", "show", name])["stages"].as_array().unwrap() {
        assert_eq!(stage["predictedPeak"]["bytes"], stage["measuredPeak"]["bytes"], "{stage}");
    }
    // What small models cannot be is asked of larger ones.
    let cut = ask("1..400", &["constraints.stage_end_layers=[4]"]);
    assert_eq!(cut.code, 0, "the first models have too few layers: {}", cut.stderr);

    for (more, words) in [
        (
            &["--objective", "min-cost"][..],
            "objective.model_scaling: applies only to the objective max-model",
        ),
        (&["--predictor", "capture"], "the `component` predictor"),
        (&["--pipeline-layout", "4-3"], "--pipeline-layout"),
        (&["--optimizations", "recompute"], "objective.model_scaling: creates many models"),
    ] {
        let line = [
            "plan",
            "recommend",
            "--profile",
            "gpt",
            "--devices",
            &devices,
            "objective.model_scaling.parameter=blocks",
            "objective.model_scaling.min_value=1",
            "objective.model_scaling.max_value=9",
        ];
        let objective: &[&str] = if more[0] == "--objective" { &[] } else { &["--objective", "max-model"] };
        let refused = cli(&planner, &[&line[..], objective, more].concat());
        assert!(refused.code != 0 && refused.stderr.contains(words), "{more:?}: {}", refused.stderr);
    }
}

/// What cannot be in chunks is refused, by the option that says so and with what to do.
#[test]
fn what_cannot_be_in_chunks_is_refused_by_its_option() {
    let (planner, _worker) = scene();
    profile(&planner, SMALL_GPT2, "--id bare --micro-batch-size 2 --micro-batches 3");
    let refused = |profile: &str, options: &[&str]| {
        let line = ["plan", "recommend", "--profile", profile, "--memory-mode", "chunks"];
        let answer = cli(&planner, &[&line[..], options].concat());
        assert_ne!(answer.code, 0, "{options:?}: {}", answer.stdout);
        answer.stderr
    };
    let roomy = ["--devices", "1x512MiB", "--host-memory", "256MiB"];
    for (options, words) in [
        (&["--framework", "megatron"][..], "--framework: megatron does not support chunked training"),
        (
            &["--objective", "min-cost", "--hourly-price", "cpu=1"],
            "--objective: min-cost does not support chunked training",
        ),
        (&["--recompute", "stage"], "Use none or layer"),
        (&["--schedule", "pipedream"], "use the schedule 1f1b"),
        (
            &[
                "memory.chunk_options.policy=CHUNK_POLICY_PATRICKSTAR",
                "memory.chunk_options.chunk_elements=[64]",
            ],
            "memory.chunk_options.chunk_elements: is fixed by the policy patrickstar",
        ),
        (
            &["memory.chunk_options.policy=CHUNK_POLICY_PATRICKSTAR", "--objective", "max-batch"],
            "memory.chunk_options.policy: the chunk policy patrickstar determines the whole plan",
        ),
        (
            &[
                "--framework",
                "deepspeed",
                "memory.chunk_options.micro_batch_orders=[MICRO_BATCH_ORDER_LAYER]",
            ],
            "memory.chunk_options.micro_batch_orders: layer is not supported by deepspeed, which supports only micro-batch",
        ),
        (
            &[
                "--framework",
                "colossal-ai",
                "memory.chunk_options.host_parameters=[HOST_PARAMETERS_STORED,HOST_PARAMETERS_CAST]",
            ],
            "memory.chunk_options.host_parameters: cast is not supported by colossal-ai, which supports only stored",
        ),
        (&["--pipeline-parallel-sizes", "2.."], "--pipeline-parallel-sizes"),
        (&["--search-mode", "amp"], "--search-mode"),
        (&["--predictor", "capture"], "capture"),
        (&["--optimizations", "recompute"], "--optimizations"),
    ] {
        let stderr = refused("gpt", &[&roomy[..], options].concat());
        assert!(stderr.contains(words), "{options:?}: {stderr}");
    }
    let none = refused("gpt", &["--devices", "1x512MiB"]);
    assert!(none.contains("--host-memory: 0 leaves no CPU memory"), "{none}");
    let little = refused("gpt", &["--devices", "1x3MiB", "--host-memory", "1MiB"]);
    assert!(little.contains("more CPU memory"), "{little}");
    // Of a node that has no more nobody is told to give more.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.yaml");
    let node = "{name: n, kind: cpu, devices: 1, host: {memory: 1MiB, link: {bandwidth: 1GB/s}}}";
    let cluster =
        format!("format: loadmaster.cluster/1\nkinds: [{{name: cpu, memory: 3MiB}}]\nnodes: [{node}]\n");
    std::fs::write(&path, cluster).unwrap();
    json(&planner, &["cluster", "import", path.to_str().unwrap(), "--id", "small"]);
    let small = refused("gpt", &["--cluster", "small", "--host-memory", "256MiB"]);
    assert!(
        small.contains("the cluster allows 1.00 MiB of CPU memory on the node of this device"),
        "{small}"
    );
    let is_advice = |line: &str| line.trim_start().starts_with("allow") && line.contains("CPU memory");
    assert!(!small.lines().any(is_advice), "{small}");
    for (devices, options, words) in [
        ("3x512MiB", &[][..], ["--devices", "--allow-idle-devices"]),
        ("1x512MiB,1x256MiB", &[], ["--devices", "--allow-idle-devices"]),
        ("2x512MiB", &["--data-parallel-sizes", "1"], ["--data-parallel-sizes", "divide"]),
        (
            "2x512MiB",
            &["memory.chunk_options.embedding_places=[EMBEDDING_PLACE_HOST]", "--tensor-parallel-sizes", "2"],
            [
                "memory.chunk_options.embedding_places: host is not possible, because tensor parallelism splits the rows",
                "`--tensor-parallel-sizes` 1",
            ],
        ),
        ("2x512MiB", &["--pipeline-layout", "4-3"], ["--pipeline-layout", "one stage"]),
    ] {
        let host = ["--devices", devices, "--host-memory", "256MiB"];
        let stderr = refused("gpt", &[&host[..], options].concat());
        assert!(words.iter().all(|of| stderr.contains(of)), "{devices} {options:?}: {stderr}");
    }
    let small = [
        "plan",
        "recommend",
        "--profile",
        "gpt",
        "--memory-mode",
        "chunks",
        "memory.chunk_options.chunk_elements=[4096]",
        "output.skip_comparisons=true",
    ];
    let small = json(&planner, &[&small[..], &roomy].concat());
    assert!(
        small["warnings"].to_string().contains("larger than the chunk size of 4,096 elements"),
        "{small}"
    );
    let shown = cli(&planner, &["plan", "show", small["name"].as_str().unwrap()]).stdout;
    assert!(shown.contains("CPU memory  ") && shown.contains(" for all devices together"), "{shown}");
    let unknown = refused("bare", &roomy);
    assert!(unknown.contains("memory.cpu_optimizer_rate") && unknown.contains("--host-memory"), "{unknown}");
    let line = "plan recommend --profile bare --memory-mode chunks memory.cpu_optimizer_rate=200000000";
    let given = json(&planner, &[line.words(), roomy.to_vec()].concat());
    let links = given["iteration"]["linkSpeedOrigin"].as_str().unwrap();
    assert!(links.contains("200.0 M parameters/s (given)"), "{given}");
}

/// Where the profile has not trained in chunks, the cluster says how fast hosts update, and of two ranks at once how much slower.
#[test]
fn a_measured_cluster_says_how_fast_its_hosts_update() {
    let (planner, _worker) = linked("2x512MiB", "512MiB");
    profile(&planner, SMALL_GPT2, "--id bare --micro-batch-size 2 --micro-batches 1 --optimizer adam");
    let ask = |cluster: &str, more: &[&str]| {
        let line = "plan recommend --profile bare --memory-mode chunks --host-memory 256MiB output.skip_comparisons=true -o json";
        cli(&planner, &[&line.words()[..], &["--cluster", cluster], more].concat())
    };
    json(&planner, &["cluster", "discover", "--id", "before"]);
    let unknown = ask("before", &[]);
    assert!(
        unknown.code != 0 && unknown.stderr.contains("a cluster whose links were measured"),
        "{unknown:?}"
    );

    let measured = json(&planner, &["cluster", "measure"]);
    let steps = measured["linkMeasurements"][0]["links"]["deviceUpdates"].as_array().unwrap();
    assert_eq!(steps.len(), 2, "{measured}");
    let listed = cli(&planner, &["cluster", "links"]).stdout;
    assert!(listed.contains("for all devices at once") && listed.contains("adam-fp32"), "{listed}");
    let cluster = json(&planner, &["cluster", "discover", "--id", "lab"]);
    let updates = cluster["nodes"][0]["cpuOptimizerSpeeds"].as_array().unwrap();
    let adam = updates.iter().find(|of| of["step"] == "STEP_KIND_ADAM_FP32").unwrap();
    let rate = |field: &str| adam[field].as_f64().unwrap();
    // The slowest of both ranks, as its own measurement has it.
    let alone = steps.iter().map(|of| {
        let timed =
            of["timedUpdates"].as_array().unwrap().iter().find(|of| of["step"] == adam["step"]).unwrap();
        number(&timed["parameterCount"]) as f64 / timed["aloneSeconds"].as_f64().unwrap()
    });
    let alone = alone.fold(f64::INFINITY, f64::min);
    assert!((rate("parametersPerSecond") / alone - 1.0).abs() < 1e-9, "{adam} {alone}");
    assert!(cli(&planner, &["cluster", "show", "lab"]).stdout.contains("speed of CPU optimizer steps on "));

    let answer = |more: &[&str]| {
        let found = ask("lab", more);
        assert_eq!(found.code, 0, "{found:?}");
        let plan = found.json();
        assert_eq!(number(&plan["stages"][0]["config"]["dataParallelSize"]), 2, "{plan}");
        plan["iteration"]["linkSpeedOrigin"].as_str().unwrap().to_owned()
    };
    let millions = |rate: f64| format!("{:.1} M parameters/s", rate / 1e6);
    let each = (rate("togetherPerSecond") / 2.0).min(alone);
    let told = answer(&[]);
    assert!(told.contains(&format!("{} (cluster, measured)", millions(alone))), "{told}");
    let shares = each < alone;
    let of_two =
        format!("{} for each of 2 ranks that update at the same time (cluster, measured)", millions(each));
    assert_eq!(told.contains(&of_two), shares, "{told}");
    // What is given is of one rank alone.
    let given = answer(&["memory.cpu_optimizer_rate=50000000"]);
    let half = format!(
        "{} for each of 2 ranks that update at the same time (cluster, measured)",
        millions(50e6 * each / alone)
    );
    assert!(given.contains("50.0 M parameters/s (given)") && given.contains(&half) == shares, "{given}");
}

/// Replicas of shards: where the profile knows layers at a tensor degree, two slots may be a replica of two shards, each with chunks
/// of its own tensors, and four two replicas of two. They are trained as predicted.
#[test]
#[ignore = "slow: make test-slow"]
fn shards_in_chunks_are_planned_and_trained_as_predicted() {
    let (planner, _worker) = linked("4x256MiB", "1GiB");
    let training = "--micro-batch-size 2 --micro-batches 2 --optimizer adam";
    profile(&planner, SMALL_GPT2, &format!("--id gpt {training} --parallelism tensor --parallel-sizes 2"));
    let ask = |devices: &str, more: &[&str]| {
        let host = "--host-memory 512MiB --copy-rates host=1GB/s --memory-mode chunks memory.cpu_optimizer_rate=100000000";
        let line =
            format!("plan recommend --profile gpt {host} output.skip_comparisons=true --devices {devices}");
        json(&planner, &[line.words(), more.to_vec()].concat())
    };
    let degrees = |plan: &Value| {
        let config = &plan["stages"][0]["config"];
        (number(&config["dataParallelSize"]), number(&config["tensorParallelSize"]))
    };
    let two = ask("2x256MiB", &["--tensor-parallel-sizes", "2"]);
    assert_eq!(degrees(&two), (1, 2), "{two}");
    train_as_predicted(&planner, &two);
    let four = ask(
        "4x256MiB",
        &["--tensor-parallel-sizes", "2", "memory.chunk_options.policy=CHUNK_POLICY_PATRICKSTAR"],
    );
    assert_eq!(degrees(&four), (2, 2), "{four}");
    assert_eq!(four["stages"][0]["chunkedTraining"]["layout"], "CHUNK_LAYOUT_PATRICKSTAR", "{four}");
    train_as_predicted(&planner, &four);
    // Left open, whatever is faster; named, nothing else.
    let open = ask("2x256MiB", &[]);
    let replicas = ask("2x256MiB", &["--tensor-parallel-sizes", "1"]);
    assert_eq!(degrees(&replicas), (2, 1), "{replicas}");
    assert!(seconds(&open) <= seconds(&two).min(seconds(&replicas)) * 1.002, "{open}");
    // What shards cannot do leaves them out, where nobody named them.
    let gathered = ask("2x256MiB", &["memory.chunk_options.embedding_places=[EMBEDDING_PLACE_HOST]"]);
    assert_eq!(degrees(&gathered), (2, 1), "{gathered}");
    // Of chunks of one size each shard holds fewer than the whole model, in its own host's memory.
    let fixed = [
        "memory.chunk_options.resident_chunk_count=0",
        "memory.chunk_options.host_parameters=[HOST_PARAMETERS_CAST]",
        "memory.chunk_options.chunk_elements=[16384]",
        "--tensor-parallel-sizes",
    ];
    let whole = ask("1x256MiB", &[&fixed[..], &["1"]].concat());
    let half = ask("2x256MiB", &[&fixed[..], &["2"]].concat());
    let host = |plan: &Value| number(&plan["stages"][0]["chunkTraffic"]["hostBytes"]);
    assert!(host(&half) < host(&whole), "{} of {}", host(&half), host(&whole));
}
