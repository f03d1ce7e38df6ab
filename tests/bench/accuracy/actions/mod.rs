//! Plans with memory actions, drawn by lot and trained: bytes in three ledgers, and seconds.
//!
//! A planner and a worker with four CPU slots, as users have them. Models of every family of the zoo that trains in
//! milliseconds; layers kept, computed again, or with blocks on the host and on peers, for all micro-batches or one slot, with
//! few steps for each copy. Besides in bf16, without flushes (PipeDream), and with replicas of all or some of the stages.

mod draw;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use draw::Drawn;
use loadmaster_tests::{Caller, Planner, Refused, Sampler, Trial, Worker, WorkerOptions};
use serde_json::Value;

use crate::accuracy::goals::{Goal, percent};
use crate::accuracy::report;
use crate::accuracy::stats::Distribution;
use crate::accuracy::suite::Scope;

/// The study's name.
pub(crate) const STUDY: &str = "actions";

/// Of each device.
const CAPACITY: &str = "1GiB";
/// Draws that no plan can be made of, such as one block that leaves twice, for each that can.
const MOST_REFUSED: usize = 20;
/// Replicas of each stage: as many stages as there are cores on a small machine, and more.
const SHAPES: [Shape; 2] = [&[1, 1], &[1, 1, 1, 1]];
/// Numbers of slots by which seconds are judged.
const SLOTS: [usize; 2] = [2, 4];
/// Mean errors of seconds on so many slots, on two cores.
const GOALS: [f64; 2] = [0.10, 0.20];
/// Measured iterations of each trial.
const ITERATIONS: u32 = 3;

/// How many replicas each stage has.
type Shape = &'static [usize];

/// A model and how it is trained.
struct Subject {
    name: &'static str,
    model: &'static str,
    training: &'static str,
}

/// What plans of a subject are asked for.
struct Row {
    name: &'static str,
    subject: &'static str,
    /// Options of the request.
    options: &'static [&'static str],
    /// Drawn in turn.
    shapes: [Shape; 2],
}

/// Beside plans of every subject, as it was profiled: fewer plans of each.
const ROWS: [Row; 3] = [
    Row { name: "gpt2, bf16", subject: "gpt2-bf16", options: &[], shapes: SHAPES },
    Row { name: "llama, pipedream", subject: "llama", options: &["--schedule", "pipedream"], shapes: SHAPES },
    Row { name: "gpt2, replicas", subject: "gpt2", options: &[], shapes: [&[2, 2], &[2, 1, 1]] },
];

const SUBJECTS: [Subject; 5] = [
    Subject {
        name: "gpt2",
        model: "gpt2 --blocks 6 --hidden-size 128 --heads 4 --sequence-length 128 --vocabulary-size 512",
        training: "--schedule 1f1b --optimizer adam",
    },
    Subject {
        name: "llama",
        model: "llama --blocks 6 --hidden-size 128 --heads 4 --key-value-heads 2 --feed-forward-size 352 \
                --sequence-length 128 --vocabulary-size 512",
        training: "--schedule gpipe --optimizer adamw",
    },
    Subject {
        name: "bert",
        model: "bert --blocks 6 --hidden-size 128 --heads 4 --sequence-length 128 --vocabulary-size 512",
        training: "--schedule 1f1b --optimizer sgd",
    },
    Subject {
        name: "vgg11",
        model: "vgg11 --image-size 32 --classes 10 --classifier-width 256",
        training: "--schedule gpipe --optimizer sgd",
    },
    Subject {
        name: "amoebanet",
        model: "amoebanet_d --cells 6 --filters 64 --image-size 32",
        training: "--schedule 1f1b --optimizer adam",
    },
];

/// Of rows alone.
const IN_BF16: Subject = Subject {
    name: "gpt2-bf16",
    model: "gpt2 --blocks 6 --hidden-size 64 --heads 4 --sequence-length 64 --vocabulary-size 512",
    training: "--schedule 1f1b --optimizer adam --precision bf16",
};

/// A plan that was trained, or asked to be.
struct Tried {
    row: &'static str,
    slots: usize,
    actions: usize,
    trial: Trial,
}

impl Tried {
    /// Of the seconds of an iteration, below zero where too little was predicted.
    fn error(&self) -> Option<f64> {
        Some(self.trial.predicted_seconds / self.trial.measured_seconds? - 1.0)
    }
}

/// How many plans there are.
pub(crate) fn count(scope: Scope) -> usize {
    SUBJECTS.len() * SHAPES.len() * each(scope) + ROWS.len() * each(scope)
}

/// Plans of a model with so many stages, and of a row.
fn each(scope: Scope) -> usize {
    if scope == Scope::Full { 32 } else { 3 }
}

/// Draws, trains, prints and judges.
///
/// # Errors
/// A command fails that should not, or it was interrupted.
pub(crate) fn goals(scope: Scope) -> Result<Vec<Goal>> {
    let planner = Planner::start_with(&[]);
    let arguments =
        ["--host-memory", "1GiB", "--cpu-links", "host=1GB/s,peer=4GB/s"].map(str::to_owned).to_vec();
    let slots = format!("4x{CAPACITY}");
    let worker = WorkerOptions { name: STUDY.to_owned(), slots, arguments, ..WorkerOptions::default() };
    let _worker = Worker::start(&planner, &worker);
    let caller = Caller::new(&planner);
    let mut sampler = Sampler::new(12);
    let mut tried = Vec::new();
    let mut layers = BTreeMap::new();
    for subject in &SUBJECTS {
        layers.insert(subject.name, profile(&caller, subject)?);
        let row = Row { name: subject.name, subject: subject.name, options: &[], shapes: SHAPES };
        tried.extend(of_row(&caller, &row, &layers, SHAPES.len() * each(scope), &mut sampler)?);
    }
    layers.insert(IN_BF16.name, profile(&caller, &IN_BF16)?);
    for row in &ROWS {
        tried.extend(of_row(&caller, row, &layers, each(scope), &mut sampler)?);
    }
    print(&tried);
    let mut goals = vec![ledgers(&tried)];
    goals.extend(SLOTS.iter().zip(GOALS).map(|(&slots, most)| seconds(&tried, slots, most)));
    Ok(goals)
}

/// Tries so many plans.
fn of_row(
    caller: &Caller<'_>,
    row: &Row,
    layers: &BTreeMap<&str, usize>,
    count: usize,
    sampler: &mut Sampler,
) -> Result<Vec<Tried>> {
    let layers = *layers.get(row.subject).context("its subject was profiled")?;
    let shapes = row.shapes.iter().cycle().take(count).enumerate();
    let tried = shapes.map(|(number, shape)| {
        eprintln!("actions: {} on {} devices, plan {number}", row.name, shape.iter().sum::<usize>());
        one(caller, row, layers, shape, sampler)
    });
    tried.collect()
}

/// Profiles a model; how many layers it has.
fn profile(caller: &Caller<'_>, subject: &Subject) -> Result<usize> {
    let command = format!(
        "profile run --id {} --model {} {} --micro-batch-size 4 --micro-batches 4",
        subject.name, subject.model, subject.training
    );
    let profile = caller.get(&command.split_whitespace().collect::<Vec<_>>())?;
    let name = profile["model"].as_str().context("a profile has a model")?;
    let model = caller.get(&["model", "show", name])?;
    Ok(model["layers"].as_array().context("a model has layers")?.len())
}

/// Draws until a plan can be made, leaving out what is refused by name, and trains that one.
fn one(caller: &Caller<'_>, row: &Row, layers: usize, shape: Shape, sampler: &mut Sampler) -> Result<Tried> {
    let mut refused = String::new();
    for _ in 0..MOST_REFUSED {
        let mut drawn = draw::plan(layers, shape, sampler);
        loop {
            match recommended(caller, row, shape, &drawn)? {
                Ok(plan) => {
                    let actions = performed(&plan);
                    let trial = Trial::of(caller, &plan, ITERATIONS)?;
                    return Ok(Tried { row: row.name, slots: shape.iter().sum(), actions, trial });
                }
                Err(error) => error.reason().clone_into(&mut refused),
            }
            if !drawn.leave_out(&refused) {
                break;
            }
        }
    }
    bail!("no plan of {} could be made of {MOST_REFUSED} draws: {refused}", row.name)
}

/// The plan that was drawn.
fn recommended(
    caller: &Caller<'_>,
    row: &Row,
    shape: Shape,
    drawn: &Drawn,
) -> Result<Result<Value, Refused>> {
    let devices = format!("{}x{CAPACITY}", shape.iter().sum::<usize>());
    let mut ask = vec!["plan", "recommend", "--profile", row.subject, "--devices", &devices];
    ask.extend(row.options);
    ask.extend(["--partition", &drawn.partition, "--copy-rates", "host=1GB/s,peer=4GB/s"]);
    ask.extend(drawn.actions.iter().flat_map(|action| ["--action", action]));
    caller.ask(&ask)
}

/// How many actions a plan has.
fn performed(plan: &Value) -> usize {
    let stages = plan["stages"].as_array().into_iter().flatten();
    stages.filter_map(|stage| stage["actions"]["actions"].as_array()).map(Vec::len).sum()
}

fn print(tried: &[Tried]) {
    println!("{} plans with memory actions drawn by lot, trained; bytes of all stages together", tried.len());
    let head = [
        "model",
        "stages",
        "actions",
        "device",
        "host",
        "for others",
        "as predicted",
        "predicted",
        "measured",
        "error",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for of in tried {
        let mib = |bytes: &[u64]| format!("{:.2} MiB", bytes.iter().sum::<u64>() as f64 / f64::from(1 << 20));
        let predicted = &of.trial.predicted;
        let mut line = vec![of.row.to_owned(), of.trial.stages.clone(), of.actions.to_string()];
        line.extend([&predicted.device, &predicted.host, &predicted.hosted].map(|of| mib(of)));
        if of.trial.failure.is_empty() {
            line.push(if of.trial.is_exact() { "to the byte" } else { "NO" }.to_owned());
            line.push(format!("{:.4} s", of.trial.predicted_seconds));
            line.push(of.trial.measured_seconds.map_or_else(|| "-".to_owned(), |of| format!("{of:.4} s")));
            line.push(of.error().map_or_else(|| "-".to_owned(), |error| format!("{:+.1} %", 100.0 * error)));
        } else {
            line.push(format!("DID NOT TRAIN: {}", of.trial.failure));
        }
        lines.push(line);
    }
    report::print(&lines);
    for of in tried.iter().filter(|of| of.trial.failure.is_empty() && !of.trial.is_exact()) {
        println!("{}: predicted {:?}\n  measured {:?}", of.trial.plan, of.trial.predicted, of.trial.measured);
    }
}

fn ledgers(tried: &[Tried]) -> Goal {
    let exact = tried.iter().filter(|of| of.trial.is_exact()).count();
    Goal {
        what: "device, host and hosted peaks, plans with actions",
        mark: "99.84 % of a decrease",
        wanted: "to the byte",
        reached: format!("{exact} of {}", tried.len()),
        met: (!tried.is_empty()).then_some(exact == tried.len()),
    }
}

fn seconds(tried: &[Tried], slots: usize, most: f64) -> Goal {
    let errors: Vec<f64> = tried.iter().filter(|of| of.slots == slots).filter_map(Tried::error).collect();
    let found = Distribution::of(&errors);
    let (what, wanted) = match slots {
        2 => ("seconds with actions, two slots", "mean ≤ 10 %"),
        _ => ("seconds with actions, four slots", "mean ≤ 20 %"),
    };
    let reached = found.map_or_else(|| "not measured".to_owned(), |of| told(&of));
    Goal { what, mark: "-", wanted, reached, met: found.map(|of| of.mean <= most) }
}

/// A distribution in a goal's words.
fn told(found: &Distribution) -> String {
    let [mean, p50, max] = [found.mean, found.p50, found.max].map(percent);
    format!("mean {mean}, p50 {p50}, max {max}, bias {:+.2} % of {}", 100.0 * found.bias, found.count)
}
