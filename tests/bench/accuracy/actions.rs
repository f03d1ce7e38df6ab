//! Plans with memory actions, drawn by lot and trained: bytes in three ledgers, and seconds.
//!
//! A planner and a worker with four CPU slots, as users have them. Models of every family of the zoo that trains in
//! milliseconds; layers kept, computed again, or with blocks on the host and on peers, for all micro-batches or one slot, with
//! few steps for each copy. Besides in bf16, without flushes (PipeDream), and with replicas of all or some of the stages.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use loadmaster_tests::{Caller, Planner, Refused, Sampler, Trial, Worker, WorkerOptions};
use serde_json::Value;

use crate::accuracy::suite::Scope;
use crate::stats::Distribution;
use crate::table::{Goal, Table, error, mib, or_dash, or_unmeasured, percent};

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

impl Subject {
    /// Options of `profile run`.
    fn options(&self) -> String {
        let Self { name, model, training } = self;
        format!("--id {name} --model {model} {training} --micro-batch-size 4 --micro-batches 4")
    }
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
        layers.insert(subject.name, profile(&caller, &subject.options())?);
        let row = Row { name: subject.name, subject: subject.name, options: &[], shapes: SHAPES };
        tried.extend(of_row(&caller, &row, &layers, SHAPES.len() * each(scope), &mut sampler)?);
    }
    layers.insert(IN_BF16.name, profile(&caller, &IN_BF16.options())?);
    for row in &ROWS {
        tried.extend(of_row(&caller, row, &layers, each(scope), &mut sampler)?);
    }
    print(&tried);
    let ledgers = ["device, host and hosted peaks, plans with actions", "99.84 % of a decrease"];
    let mut goals = vec![Goal::exact(ledgers, tried.iter().map(|of| &of.trial))];
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

/// Profiles a model by these options of `profile run`; how many layers it has.
pub(crate) fn profile(caller: &Caller<'_>, options: &str) -> Result<usize> {
    let command = ["profile", "run"].into_iter().chain(options.split_whitespace());
    let profile = caller.get(&command.collect::<Vec<_>>())?;
    let name = profile["model"].as_str().context("a profile has a model")?;
    let model = caller.get(&["model", "show", name])?;
    Ok(model["layers"].as_array().context("a model has layers")?.len())
}

/// Draws until a plan can be made, leaving out what is refused by name, and trains that one.
fn one(caller: &Caller<'_>, row: &Row, layers: usize, shape: Shape, sampler: &mut Sampler) -> Result<Tried> {
    let mut refused = String::new();
    for _ in 0..MOST_REFUSED {
        let mut drawn = plan(layers, shape, sampler);
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
    let mut table = Table::new(&head);
    for of in tried {
        let predicted = &of.trial.predicted;
        let mut line = vec![of.row.to_owned(), of.trial.stages.clone(), of.actions.to_string()];
        line.extend([&predicted.device, &predicted.host, &predicted.hosted].map(|of| mib(of.iter().sum())));
        if of.trial.failure.is_empty() {
            line.push(if of.trial.is_exact() { "to the byte" } else { "NO" }.to_owned());
            line.push(format!("{:.4} s", of.trial.predicted_seconds));
            line.push(or_dash(of.trial.measured_seconds, |of| format!("{of:.4} s")));
            line.push(or_dash(of.error(), error));
        } else {
            line.push(format!("DID NOT TRAIN: {}", of.trial.failure));
        }
        table.row(line);
    }
    println!("{table}");
    for of in tried.iter().filter(|of| of.trial.failure.is_empty() && !of.trial.is_exact()) {
        println!("{}: predicted {:?}\n  measured {:?}", of.trial.plan, of.trial.predicted, of.trial.measured);
    }
}

fn seconds(tried: &[Tried], slots: usize, most: f64) -> Goal {
    let errors: Vec<f64> = tried.iter().filter(|of| of.slots == slots).filter_map(Tried::error).collect();
    let found = Distribution::of(&errors);
    let (what, wanted) = match slots {
        2 => ("seconds with actions, two slots", "mean ≤ 10 %"),
        _ => ("seconds with actions, four slots", "mean ≤ 20 %"),
    };
    let reached = or_unmeasured(found, |of| told(&of));
    Goal::new([what, "-"], wanted, reached, found.map(|of| of.mean <= most))
}

/// A distribution in a goal's words.
fn told(found: &Distribution) -> String {
    let [mean, p50, max] = [found.mean, found.p50, found.max].map(percent);
    format!("mean {mean}, p50 {p50}, max {max}, bias {:+.2} % of {}", 100.0 * found.bias, found.count)
}

/// Most micro-batches in flight that slots are drawn from: those of the first of two stages.
const IN_FLIGHT: usize = 2;
/// Most steps that a copy has, each way.
const STEPS: usize = 4;

/// A plan to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drawn {
    /// Layers of each stage, such as `4-3`.
    pub(super) partition: String,
    /// What `--action` takes.
    pub(super) actions: Vec<String>,
}

impl Drawn {
    /// Leaves out the action that a refusal names: `--action: stage 1: actions[0].swap…`. Whether it names one.
    pub(super) fn leave_out(&mut self, refusal: &str) -> bool {
        let named = || {
            let (stage, rest) = refusal.strip_prefix("--action: stage ")?.split_once(": actions[")?;
            let entry: usize = rest.split_once(']')?.0.parse().ok()?;
            let is_own = |action: &String| action.split_once('/').is_some_and(|of| of.0 == stage);
            let mut own = self.actions.iter().enumerate().filter(|(_, action)| is_own(action));
            own.nth(entry).map(|(at, _)| at)
        };
        let named = named();
        named.map(|at| self.actions.remove(at)).is_some()
    }
}

/// A plan of a chain of so many layers, whose stages have so many replicas.
pub(super) fn plan(layers: usize, replicas: &[usize], sampler: &mut Sampler) -> Drawn {
    let stages = replicas.len();
    let sizes = sampler.sizes(layers, stages);
    let mut actions = Vec::new();
    let mut first = 0;
    for (stage, size) in sizes.iter().enumerate() {
        for layer in first..first + size {
            of_micro_batches(stage, layer, stages, sampler, &mut actions);
            for block in ["optimizer", "gradients", "weights"] {
                if sampler.below(4) == 0 {
                    actions.push(format!("{stage}/{layer}={block}:{}", place(stage, stages, sampler)));
                }
            }
        }
        first += size;
    }
    let stage = |(size, replicas): (&usize, &usize)| match replicas {
        1 => size.to_string(),
        several => format!("{size}d{several}"),
    };
    let partition = sizes.iter().zip(replicas).map(stage).collect::<Vec<_>>().join("-");
    Drawn { partition, actions }
}

/// What becomes of what a layer saved: it is kept, computed again, or leaves.
fn of_micro_batches(
    stage: usize,
    layer: usize,
    stages: usize,
    sampler: &mut Sampler,
    actions: &mut Vec<String>,
) {
    // Every stage but the last has that many in flight.
    let has_slots = stage + 1 < stages && sampler.below(3) == 0;
    let slots = if has_slots { format!("@{}", sampler.below(IN_FLIGHT)) } else { String::new() };
    match sampler.below(4) {
        0 => {
            actions.push(format!("{stage}/{layer}{slots}=recompute"));
            if sampler.below(2) == 0 {
                actions.push(format!("{stage}/{layer}{slots}=inputs:{}", place(stage, stages, sampler)));
            }
        }
        1 | 2 => {
            actions.push(format!("{stage}/{layer}{slots}=activations:{}", place(stage, stages, sampler)))
        }
        _ => {}
    }
}

/// Where to, with the steps to leave and to come back: the host, a peer, or stripes over two of them.
fn place(stage: usize, stages: usize, sampler: &mut Sampler) -> String {
    let peers: Vec<usize> = (0..stages).filter(|&other| other != stage).collect();
    let to = match (sampler.below(4), peers.as_slice()) {
        (0, [.., _, _]) => {
            let (one, share) = (sampler.below(peers.len() - 1), 10 + sampler.below(80));
            format!("{}@{share}%,{}@{}%", peers[one], peers[one + 1], 100 - share)
        }
        (0 | 1, _) => peers[sampler.below(peers.len())].to_string(),
        _ => "host".to_owned(),
    };
    format!("{to}:{},{}", sampler.below(STEPS), sampler.below(STEPS))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::actions::StagedAction;

    use super::*;

    /// What a refusal names is left out, and nothing else.
    #[test]
    fn what_is_refused_by_name_is_left_out() {
        let actions = ["0/1=recompute", "1/3=recompute", "1/4=weights:host"].map(str::to_owned).to_vec();
        let mut drawn = Drawn { partition: "3-3".to_owned(), actions };
        assert!(!drawn.leave_out("3-3 does not fit: device 0 needs more"));
        assert!(!drawn.leave_out("--action: stage 1: actions[2].swap.block: is not there"));
        assert!(drawn.leave_out("--action: stage 1: actions[1].swap.block: is weights of layer 4"));
        assert_eq!(drawn.actions, ["0/1=recompute", "1/3=recompute"]);
    }

    /// What is drawn is written as users write it, and every kind is drawn.
    #[test]
    fn what_is_drawn_is_read_as_an_action() {
        let mut sampler = Sampler::new(1);
        let mut all = Vec::new();
        for count in 0..50 {
            let replicas: &[usize] = [&[1, 1][..], &[1, 1, 1, 1], &[2, 1, 1]][count % 3];
            let drawn = plan(9, replicas, &mut sampler);
            let sizes = drawn.partition.split('-').map(|stage| stage.strip_suffix("d2").unwrap_or(stage));
            assert_eq!(sizes.map(|size| size.parse::<usize>().unwrap()).sum::<usize>(), 9);
            assert_eq!(drawn.partition.contains("d2-"), count % 3 == 2);
            all.extend(drawn.actions);
        }
        for action in &all {
            let read: Result<StagedAction, _> = action.parse();
            assert!(read.is_ok(), "{action}");
        }
        for kind in [
            "recompute",
            "inputs:host",
            "=activations:host",
            "optimizer",
            "gradients",
            "weights",
            "%,",
            "@1=",
        ] {
            assert!(all.iter().any(|action| action.contains(kind)), "{kind}");
        }
    }
}
