//! Plans with memory actions, drawn by lot and trained: bytes in three ledgers, and seconds.
//!
//! A planner and a worker with four CPU slots, as users have them. Models of every family of the zoo that trains in
//! milliseconds; layers kept, computed again, or with blocks on the host and on peers, for all micro-batches or one slot, with
//! few steps for each copy. Besides in bf16, without flushes (PipeDream), and with replicas of all or some of the stages.

use anyhow::{Context, Result, bail};
use loadmaster_tests::{Sampler, Trial};

use crate::accuracy::row;
use crate::accuracy::suite::Scope;
use crate::report::{Goal, Progress, Report};
use crate::stats::Distribution;
use crate::table::{Table, percent};
use crate::trial::scene::Scene;
use crate::trial::{cells, titles};

/// The study's name.
pub(crate) const STUDY: &str = "actions";

/// Of each device.
const CAPACITY: &str = "1GiB";
/// Draws that no plan can be made of, such as one block that leaves twice, for each that can.
const MOST_REFUSED: usize = 20;
/// Replicas of each stage: as many stages as there are cores on a small machine, and more.
const SHAPES: [Shape; 2] = [&[1, 1], &[1, 1, 1, 1]];
/// Mean errors of seconds on so many slots, on two cores.
const GOALS: [(&str, usize, f64); 2] = [
    ("mean error of seconds with actions, two slots", 2, 0.10),
    ("mean error of seconds with actions, four slots", 4, 0.20),
];
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
        let Self { model, training, .. } = self;
        format!("--model {model} {training} --micro-batch-size 4 --micro-batches 4")
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

/// How many plans there are.
pub(crate) fn count(scope: Scope) -> usize {
    SUBJECTS.len() * SHAPES.len() * each(scope) + ROWS.len() * each(scope)
}

/// Plans of a model with so many stages, and of a row.
fn each(scope: Scope) -> usize {
    if scope == Scope::Full { 32 } else { 3 }
}

/// Draws, trains, prints and judges.
pub(crate) fn study(report: &mut Report, scope: Scope) -> Result<Vec<row::Row>> {
    let rates = ["--host-memory", "1GiB", "--cpu-links", "host=1GB/s,peer=4GB/s"];
    let scene = Scene::start(&format!("4x{CAPACITY}"), &rates);
    let mut progress = Progress::new(count(scope));
    let mut sampler = Sampler::new(12);
    let mut tried = Vec::new();
    let own_row =
        |subject: &Subject| Row { name: subject.name, subject: subject.name, options: &[], shapes: SHAPES };
    let own = SUBJECTS.iter().map(|subject| (own_row(subject), SHAPES.len() * each(scope)));
    for (row, count) in own.chain(ROWS.map(|row| (row, each(scope)))) {
        let mut subjects = SUBJECTS.iter().chain([&IN_BF16]);
        let subject = subjects.find(|subject| subject.name == row.subject).context("a row has a subject")?;
        let layers = scene.profile(subject.name, &subject.options())?.layers;
        for shape in row.shapes.iter().cycle().take(count) {
            progress.step(format!("actions: {} on {} devices", row.name, shape.iter().sum::<usize>()));
            tried.push(one(&scene, &row, layers, shape, &mut sampler)?);
        }
    }
    report.print(format!("{} plans with memory actions drawn by lot, trained", tried.len()));
    let mut table = Table::new(&titles(&["model", "actions"]));
    for Tried { row, actions, trial, .. } in &tried {
        let own = [(*row).to_owned(), actions.to_string()].into_iter();
        table.row(own.chain(cells(Some(trial), trial.measured_seconds)));
    }
    report.print(table);
    for trial in
        tried.iter().map(|plan| &plan.trial).filter(|plan| plan.failure.is_empty() && !plan.is_exact())
    {
        report.print(format!(
            "{}: predicted {:?}\n  measured {:?}",
            trial.plan, trial.predicted, trial.measured
        ));
    }
    let trials = tried.iter().map(|plan| &plan.trial);
    let exact = Goal::exact("device, host and hosted peaks, plans with actions", trials);
    report.judge([exact.beside("99.84 % of a decrease")]);
    for (what, slots, most) in GOALS {
        let own = tried.iter().filter(|plan| plan.slots == slots);
        let errors: Vec<f64> = own.filter_map(|plan| plan.trial.error()).collect();
        let found = Distribution::of(&errors);
        report.judge([Goal::at_most(what, most, found.map(|found| found.mean), percent).among(found)]);
    }
    Ok(Vec::new())
}

/// Draws until a plan can be made, leaving out what is refused by name, and trains that one.
fn one(scene: &Scene, row: &Row, layers: usize, shape: Shape, sampler: &mut Sampler) -> Result<Tried> {
    let slots = shape.iter().sum();
    let devices = format!("{slots}x{CAPACITY}");
    let mut refused = String::new();
    for _ in 0..MOST_REFUSED {
        let mut drawn = plan(layers, shape, sampler);
        loop {
            let mut options = row.options.to_vec();
            options.extend(["--pipeline-layout", &drawn.partition, "--copy-rates", "host=1GB/s,peer=4GB/s"]);
            options.extend(drawn.actions.iter().flat_map(|action| ["--stage-optimization", action]));
            match scene.recommend(row.subject, &devices, &options)? {
                Ok(plan) => {
                    let stages = plan["stages"].as_array().into_iter().flatten();
                    let actions =
                        stages.filter_map(|stage| stage["memoryOptimizations"]["optimizations"].as_array());
                    let actions = actions.map(Vec::len).sum();
                    let trial = Trial::of(&scene.caller(), &plan, ITERATIONS)?;
                    return Ok(Tried { row: row.name, slots, actions, trial });
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

/// Most micro-batches in flight that slots are drawn from: those of the first of two stages.
const IN_FLIGHT: usize = 2;
/// Most steps that a copy has, each way.
const STEPS: usize = 4;

/// A plan to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Drawn {
    /// Layers of each stage, such as `4-3`.
    partition: String,
    /// What `--stage-optimization` takes.
    actions: Vec<String>,
}

impl Drawn {
    /// Leaves out the action that a refusal names: `--stage-optimization: stage 1: optimizations[0].swap…`. Whether it names one.
    fn leave_out(&mut self, refusal: &str) -> bool {
        let named = || {
            let (stage, rest) =
                refusal.strip_prefix("--stage-optimization: stage ")?.split_once(": optimizations[")?;
            let entry: usize = rest.split_once(']')?.0.parse().ok()?;
            let is_own = |action: &String| action.split_once('/').is_some_and(|(own, _)| own == stage);
            let mut own = self.actions.iter().enumerate().filter(|(_, action)| is_own(action));
            own.nth(entry).map(|(at, _)| at)
        };
        let named = named();
        named.map(|at| self.actions.remove(at)).is_some()
    }
}

/// A plan of a chain of so many layers, whose stages have so many replicas.
fn plan(layers: usize, replicas: &[usize], sampler: &mut Sampler) -> Drawn {
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

    /// What is drawn is written as users write it, and every kind is drawn.
    #[test]
    fn actions_that_are_drawn_are_read_and_refused_ones_left_out() {
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
        // What a refusal names is left out, and nothing else.
        let actions = ["0/1=recompute", "1/3=recompute", "1/4=weights:host"].map(str::to_owned).to_vec();
        let mut drawn = Drawn { partition: "3-3".to_owned(), actions };
        assert!(!drawn.leave_out("3-3 does not fit: device 0 needs more"));
        assert!(!drawn.leave_out("--stage-optimization: stage 1: optimizations[2].swap.block: is not there"));
        assert!(
            drawn.leave_out(
                "--stage-optimization: stage 1: optimizations[1].swap.block: is weights of layer 4"
            )
        );
        assert_eq!(drawn.actions, ["0/1=recompute", "1/3=recompute"]);
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
