//! `make quality`: how good plans are when they are really trained.
//!
//! On four CPU slots, each model is profiled once; then every search and every well-known rule makes its
//! plan, and each plan is trained for real. The table has what was predicted and what was measured. At last,
//! the largest AmoebaNet that still trains under a fixed capacity (mCAP's promise) is looked for, cut by Loadmaster and
//! cut by time: its filters are tried by bisection, and that the next size does not fit is said by its prediction alone.

use anyhow::{Context, Result, ensure};
use loadmaster_tests::{NO_PLAN, Refused, whole};
use serde_json::Value;

use crate::output::Common;
use crate::report::Report;
use crate::table::mib;
use crate::trial::Rule;
use crate::trial::comparison::{Comparison, Rounds};
use crate::trial::largest::{Found, Largest, Sizes, largest, table};
use crate::trial::scene::{Answer, Scene, partitioning};

/// Trains the plans of every search and every well-known rule, and compares them.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
}

const DEVICES: usize = 4;
/// Of the worker.
const SLOTS: &str = "4x4GiB";
/// Measured iterations of each trial, after one warm-up iteration.
const ITERATIONS: u32 = 3;
/// The part that looks for the largest model.
const LARGEST: &str = "largest";

/// A model and how it is trained.
struct Subject {
    id: &'static str,
    title: &'static str,
    /// Options of `profile run` that name the model.
    model: &'static str,
    /// Samples of one pass of a whole stage.
    micro_batch_size: i64,
    /// Passes per iteration.
    micro_batches: i64,
}

const SUBJECTS: [Subject; 3] = [
    Subject {
        id: "vgg11",
        title: "VGG11, 64 pixels, 30 layers",
        model: "--model vgg11 --image-size 64 --classes 10 --classifier-width 512",
        micro_batch_size: 8,
        micro_batches: 4,
    },
    Subject {
        id: "amoebanet",
        title: "AmoebaNet-D (18, 208), 64 pixels, 24 layers",
        model: "--model amoebanet_d --cells 18 --filters 208 --image-size 64",
        micro_batch_size: 4,
        micro_batches: 4,
    },
    Subject {
        id: "gpt2",
        title: "GPT-2, 12 blocks of 256, sequence 128, vocabulary 8,192",
        model: "--model gpt2 --blocks 12 --hidden-size 256 --heads 8 --sequence-length 128 --vocabulary-size 8192",
        micro_batch_size: 8,
        micro_batches: 4,
    },
];

/// To try it out.
const TINY: [Subject; 1] = [Subject {
    id: "gpt2",
    title: "GPT-2, 3 blocks of 32, to try it out",
    model: "--model gpt2 --blocks 3 --hidden-size 32 --heads 4 --sequence-length 16 --vocabulary-size 96",
    micro_batch_size: 4,
    micro_batches: 2,
}];

/// All searches.
const SEARCHES: [Rule; 11] = [
    search("memory, one device per stage", "--objective min-peak-memory --layout single-pipeline"),
    search("memory, any stage", "--objective min-peak-memory --layout per-stage-mesh"),
    search("time, uniform grid", "--objective min-iteration-time --layout uniform-grid"),
    search("time, any stage", "--objective min-iteration-time --layout per-stage-mesh"),
    search("front, its fastest point", "--objective pareto --layout uniform-grid"),
    search(
        "CAPTURE's enumeration",
        "--objective min-peak-memory --layout per-stage-mesh --search-mode capture",
    ),
    search(
        "mCAP's brute force",
        "--objective min-peak-memory --layout single-pipeline --search-mode mcap-brute-force",
    ),
    search(
        "mCAP's Bayesian optimisation",
        "--objective min-peak-memory --layout single-pipeline --search-mode mcap-bayesian",
    ),
    search("AMP's program", "--objective min-iteration-time --layout uniform-grid --search-mode amp"),
    search(
        "AMP's annealing",
        "--objective min-iteration-time --layout uniform-grid --search-mode amp-annealing",
    ),
    search("time, one device per stage", "--objective min-iteration-time --layout single-pipeline"),
];

const fn search(name: &'static str, options: &'static str) -> Rule {
    Rule { name, options }
}

/// Trains and compares them; none is a goal.
pub(crate) fn run(Options { common }: &Options) -> Result<bool> {
    let mut report = Report::new("quality", &common.output, common.quick)?;
    let subjects: &[Subject] = if common.quick { &TINY } else { &SUBJECTS };
    let names: Vec<&str> = subjects.iter().map(|subject| subject.id).chain([LARGEST]).collect();
    let selected = common.select(&names)?;
    let scene = Scene::start(SLOTS, &[]);
    for subject in subjects.iter().filter(|subject| selected.contains(&subject.id)) {
        let compared = subject.compare(&scene)?;
        report.keep(subject.id, &compared, compared.table())?;
    }
    if selected.contains(&LARGEST) {
        let (cells, most, capacity) = if common.quick { (3, 64, 6 << 20) } else { (18, 512, 1 << 29) };
        let all = [OURS, BY_TIME].map(|rule| largest_of(&scene, rule, cells, most, capacity));
        let all = all.into_iter().collect::<Result<Vec<_>>>()?;
        let text = format!(
            "largest AmoebaNet-D ({cells}, F) that trains on {DEVICES} devices of {}; each was trained for real, the next F does \
             not fit by prediction\n{}",
            mib(capacity),
            table(&all, "F", BY_TIME)
        );
        report.keep(LARGEST, &all, text)?;
    }
    report.finish()
}

impl Subject {
    /// Profiles the model, and trains the plan of each search and rule.
    fn compare(&self, scene: &Scene) -> Result<Comparison> {
        let Self { id, title, model, micro_batch_size, micro_batches } = self;
        eprintln!("{id}: profile");
        scene.profile(
            id,
            &format!(
                "{model} --micro-batch-size {micro_batch_size} --micro-batches {micro_batches} --devices {DEVICES} \
                 --profiling-mode per-layer --parallelism data,tensor --parallel-sizes 2,4"
            ),
        )?;
        let mut answers: Vec<(String, Answer)> = Vec::new();
        for search in &SEARCHES {
            eprintln!("{id}: {}", search.name);
            let options: Vec<&str> = search.options.split_whitespace().collect();
            answers.push((search.name.to_owned(), scene.recommend(id, SLOTS, &options)?));
        }
        // Each answer has the plans of all well-known rules beside it.
        let rules = answers.iter().find_map(|(_, answer)| answer.as_ref().ok()?["baselines"].as_array());
        for rule in rules.cloned().unwrap_or_default() {
            let name = rule["name"].as_str().unwrap_or_default();
            let Ok(stages) = partitioning(&rule["pipelineLayout"]["stages"]) else {
                let message = rule["note"].as_str().unwrap_or("no plan").to_owned();
                answers.push((name.to_owned(), Err(Refused { code: NO_PLAN, message })));
                continue;
            };
            let size = rule["microBatchSize"].as_i64().filter(|&size| size > 0).unwrap_or(*micro_batch_size);
            let count = (micro_batch_size * micro_batches / size).to_string();
            let size = size.to_string();
            let options =
                ["--pipeline-layout", &stages, "--micro-batch-size", &size, "--micro-batches", &count];
            answers.push((name.to_owned(), scene.recommend(id, SLOTS, &options)?));
        }
        let title = format!(
            "{title}: {DEVICES} devices, global batch {}; bytes of the allocated ledger, ranks of one thread each",
            micro_batch_size * micro_batches,
        );
        Comparison::train(scene, title, DEVICES, answers, Rounds { rounds: 1, iterations: ITERATIONS })
    }
}

/// Filters are a multiple of this.
const STEP: u32 = 8;
/// How the layers are cut: for the lowest peak, or as torchgpipe balances them.
const OURS: &str = "lowest peak (this planner)";
const BY_TIME: &str = "balanced by time (torchgpipe)";

/// The largest model of a rule.
fn largest_of(scene: &Scene, rule: &'static str, cells: u32, most: u32, capacity: u64) -> Result<Largest> {
    let id = |steps: u32| format!("amoebanet-{cells}-{}", steps * STEP);
    let profile = |steps: u32| {
        let filters = steps * STEP;
        let options = format!(
            "--model amoebanet_d --cells {cells} --filters {filters} --image-size 32 --micro-batch-size 4 --micro-batches 4 \
             --devices {DEVICES} --profiling-mode per-layer"
        );
        scene.profile(&id(steps), &options)
    };
    let sizes = Sizes { fewest: 1, most: most / STEP, first: 1, step: most / STEP / 2 };
    let found = largest(sizes, |steps| {
        profile(steps)?;
        let plan = plan(scene, &id(steps), rule, capacity)?;
        let filters = steps * STEP;
        eprintln!("{LARGEST}: {filters} filters: {}", if plan.is_ok() { "fits" } else { "does not fit" });
        Ok(plan.map_err(|why| format!("F {filters}: {why}")))
    })?;
    ensure!(found.size > 0, "not even {STEP} filters fit into {capacity} bytes: {}", found.beyond);
    let parameters = profile(found.size)?.parameters;
    let found = Found { size: found.size * STEP, ..found };
    let largest = Largest::train(scene, rule, found, parameters, ITERATIONS)?;
    let failure = largest.trial.as_ref().map_or("no trial", |trial| &trial.failure);
    ensure!(largest.is_trained(), "the largest model did not train: {failure}");
    Ok(largest)
}

/// The plan of a profile on devices of this capacity, or what it needs.
fn plan(scene: &Scene, id: &str, rule: &str, capacity: u64) -> Result<Result<Value, String>> {
    // On devices that hold anything, to learn what it needs and how rules cut it.
    let free = scene.caller().get(&[
        "plan",
        "recommend",
        "--profile",
        id,
        "--devices",
        SLOTS,
        "--safety-margin",
        "0",
    ])?;
    let devices = format!("{DEVICES}x{capacity}");
    let (needs, plan) = if rule == OURS {
        (&free["predictedPeak"], scene.recommend(id, &devices, &["--safety-margin", "0"])?)
    } else {
        let rules = free["baselines"].as_array().context("an answer has baselines")?;
        let by_time = rules.iter().find(|rule| rule["name"] == "torchgpipe-time");
        let by_time = by_time.context("torchgpipe's balance is among the baselines")?;
        let stages = partitioning(&by_time["pipelineLayout"]["stages"])?;
        let options = ["--safety-margin", "0", "--pipeline-layout", &stages];
        (&by_time["predictedPeak"], scene.recommend(id, &devices, &options)?)
    };
    Ok(plan.map_err(|_| format!("needs {}", mib(whole(&needs["bytes"])))))
}
