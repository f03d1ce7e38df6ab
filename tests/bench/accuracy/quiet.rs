//! Seconds of plans without memory actions on quiet CPU slots, a core for each: predicted, and as they are trained.
//!
//! A planner and a worker with two slots, as users have them. Each model is profiled once, with the parts of a micro-batch that
//! two replicas take; plans are on one slot, pipelines of two stages, and two replicas, with the micro-batch that was profiled, with
//! half of it, and with two and four times as much. Nothing else may compute meanwhile.

use anyhow::{Context, Result};
use loadmaster_tests::{Caller, Planner, Trial, Worker, WorkerOptions};
use serde_json::Value;

use crate::accuracy::actions::profile;
use crate::stats::{Distribution, quantile};
use crate::table::{Goal, Table, error, or_unmeasured, percent};

/// The study's name.
pub(crate) const STUDY: &str = "quiet";

/// Measured iterations of each trial.
const ITERATIONS: u32 = 6;
/// Micro-batches of an iteration with the size that was profiled.
const MICRO_BATCHES: u32 = 4;

/// A model, and the samples of a micro-batch.
struct Subject {
    name: &'static str,
    model: &'static str,
    micro_batch_size: u32,
}

const SUBJECTS: [Subject; 4] = [
    Subject {
        name: "gpt2",
        model: "gpt2 --blocks 6 --hidden-size 256 --heads 8 --sequence-length 128 --vocabulary-size 4096",
        micro_batch_size: 4,
    },
    Subject {
        name: "llama",
        model: "llama --blocks 4 --hidden-size 256 --heads 4 --sequence-length 128 --vocabulary-size 4096",
        micro_batch_size: 4,
    },
    Subject {
        name: "vgg11",
        model: "vgg11 --image-size 64 --classes 10 --classifier-width 512",
        micro_batch_size: 8,
    },
    Subject {
        name: "bert",
        model: "bert --blocks 4 --hidden-size 256 --heads 4 --sequence-length 128 --vocabulary-size 4096",
        micro_batch_size: 4,
    },
];

/// How the layers are placed on slots.
#[derive(Debug, Clone, Copy)]
enum Shape {
    OneSlot,
    TwoStages,
    TwoReplicas,
}

/// Shapes, and micro-batches in halves of the one that was profiled.
const PLANS: [(Shape, u32); 9] = [
    (Shape::OneSlot, 1),
    (Shape::OneSlot, 2),
    (Shape::OneSlot, 4),
    (Shape::OneSlot, 8),
    (Shape::TwoStages, 2),
    (Shape::TwoStages, 4),
    (Shape::TwoReplicas, 2),
    (Shape::TwoReplicas, 4),
    (Shape::TwoReplicas, 8),
];

/// A plan that was trained.
struct Tried {
    subject: &'static str,
    batch: String,
    partition: String,
    trial: Trial,
    measured: f64,
    /// Half the width of the interval, as a share; none where none is known.
    margin: Option<f64>,
}

impl Tried {
    fn error(&self) -> f64 {
        self.trial.predicted_seconds / self.measured - 1.0
    }

    fn is_inside(&self) -> bool {
        let predicted = self.trial.predicted_seconds;
        self.margin.is_some_and(|margin| (self.measured - predicted).abs() <= margin * predicted)
    }
}

/// How many plans there are.
pub(crate) fn count() -> usize {
    SUBJECTS.len() * PLANS.len()
}

/// Trains, prints and judges.
pub(crate) fn goals() -> Result<Vec<Goal>> {
    let planner = Planner::start_with(&[]);
    let worker =
        WorkerOptions { name: STUDY.to_owned(), slots: "2x4GiB".to_owned(), ..WorkerOptions::default() };
    let _worker = Worker::start(&planner, &worker);
    let caller = Caller::new(&planner);
    let mut tried = Vec::new();
    for subject in &SUBJECTS {
        let layers = profile(
            &caller,
            &format!(
                "--id {} --model {} --micro-batch-size {} --micro-batches {MICRO_BATCHES} --devices 2 --parallelism data \
                 --degrees 2",
                subject.name, subject.model, subject.micro_batch_size
            ),
        )?;
        for (shape, halves) in PLANS {
            eprintln!("{STUDY}: {}, {shape:?}, {halves} halves of a micro-batch", subject.name);
            tried.push(one(&caller, subject, layers, (shape, halves))?);
        }
    }
    print(&tried);
    Ok(judge(&tried))
}

/// Recommends the plan of this shape, and trains it.
fn one(
    caller: &Caller<'_>,
    subject: &Subject,
    layers: usize,
    (shape, halves): (Shape, u32),
) -> Result<Tried> {
    let (partition, devices) = match shape {
        Shape::OneSlot => (layers.to_string(), "1x4GiB"),
        Shape::TwoStages => (format!("{}-{}", layers / 2, layers - layers / 2), "2x4GiB"),
        Shape::TwoReplicas => (format!("{layers}d2"), "2x4GiB"),
    };
    let size = subject.micro_batch_size * halves / 2;
    let count = (subject.micro_batch_size * MICRO_BATCHES / size).max(2);
    let [size, count] = [size, count].map(|number| number.to_string());
    let mut ask = vec!["plan", "recommend", "--profile", subject.name, "--devices", devices];
    ask.extend(["--partition", &partition, "--micro-batch-size", &size, "--micro-batches", &count]);
    let plan: Value = caller.get(&ask)?;
    let margin = plan["iteration"]["interval"]["margin"].as_f64();
    let trial = Trial::of(caller, &plan, ITERATIONS)?;
    let failed = || format!("{} does not train: {}", trial.plan, trial.failure);
    let measured = trial.measured_seconds.with_context(failed)?;
    Ok(Tried {
        subject: subject.name,
        batch: format!("{size} × {count}"),
        partition,
        trial,
        measured,
        margin,
    })
}

fn print(tried: &[Tried]) {
    println!("{} plans without memory actions on quiet CPU slots, trained", tried.len());
    let head = ["model", "stages", "micro-batches", "predicted", "interval", "measured", "error", "cores"];
    let mut table = Table::new(&head);
    for of in tried {
        table.row([
            of.subject.to_owned(),
            of.partition.clone(),
            of.batch.clone(),
            format!("{:.4} s", of.trial.predicted_seconds),
            of.margin.map_or_else(|| "unknown".to_owned(), |margin| format!("±{}", percent(margin))),
            format!("{:.4} s", of.measured),
            error(of.error()),
            if of.trial.contended { "shared with other programs" } else { "quiet" }.to_owned(),
        ]);
    }
    println!("{table}");
}

fn judge(tried: &[Tried]) -> Vec<Goal> {
    let errors: Vec<f64> = tried.iter().map(Tried::error).collect();
    let found = Distribution::of(&errors);
    let inside = tried.iter().filter(|of| of.is_inside()).count();
    let mut widths: Vec<f64> = tried.iter().filter_map(|of| of.margin).collect();
    widths.sort_by(f64::total_cmp);
    let width = quantile(&widths, 0.5);
    let told = |found: Distribution| {
        let [mean, max] = [found.mean, found.max].map(percent);
        format!("mean {mean}, max {max}, bias {:+.2} % of {}", 100.0 * found.bias, found.count)
    };
    vec![
        Goal::new(
            ["seconds of quiet CPU trials", "-"],
            "mean ≤ 5 %, bias ≤ 3 %",
            or_unmeasured(found, told),
            found.map(|found| found.mean <= 0.05 && found.bias.abs() <= 0.03),
        ),
        Goal::new(
            ["their intervals", "-"],
            "≥ 90 % inside, median ≤ ±20 %",
            format!("{inside} of {} inside, median ±{}", tried.len(), percent(width)),
            found.map(|of| inside * 10 >= of.count * 9 && width <= 0.2),
        ),
    ]
}
