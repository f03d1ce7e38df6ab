//! Seconds of plans without memory actions on quiet CPU slots, a core for each: predicted, and as they are trained.
//!
//! A planner and a worker with two slots, as users have them. Each model is profiled once, with the parts of a micro-batch that
//! two replicas take; plans are on one slot, pipelines of two stages, and two replicas, with the micro-batch that was profiled, with
//! half of it, and with two and four times as much. Nothing else may compute meanwhile.

use anyhow::{Context, Result};
use loadmaster_tests::Trial;

use crate::accuracy::row::Row;
use crate::accuracy::suite::Scope;
use crate::report::{Goal, Progress, Report, or_unmeasured};
use crate::stats::{Distribution, quantile};
use crate::table::{Table, percent};
use crate::trial::scene::Scene;
use crate::trial::{cells, titles};

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

/// How many plans there are.
pub(crate) fn count() -> usize {
    SUBJECTS.len() * PLANS.len()
}

/// Trains, prints and judges.
pub(crate) fn study(report: &mut Report, _: Scope) -> Result<Vec<Row>> {
    let scene = Scene::start("2x4GiB", &[]);
    let mut progress = Progress::new(count());
    let mut table = Table::new(&titles(&["model", "with degrees", "micro-batches", "interval"]));
    let (mut errors, mut widths, mut inside) = (Vec::new(), Vec::new(), 0);
    for Subject { name, model, micro_batch_size } in &SUBJECTS {
        let options = format!(
            "--model {model} --micro-batch-size {micro_batch_size} --micro-batches {MICRO_BATCHES} --device-count 2 \
             --parallelism data --parallel-sizes 2"
        );
        let layers = scene.profile(name, &options)?.layers;
        for (shape, halves) in PLANS {
            progress.step(format!("{STUDY}: {name}, {shape:?}, {halves} halves of a micro-batch"));
            let (partition, devices) = match shape {
                Shape::OneSlot => (layers.to_string(), "1x4GiB"),
                Shape::TwoStages => (format!("{}-{}", layers / 2, layers - layers / 2), "2x4GiB"),
                Shape::TwoReplicas => (format!("{layers}d2"), "2x4GiB"),
            };
            let size = micro_batch_size * halves / 2;
            let count = (micro_batch_size * MICRO_BATCHES / size).max(2);
            let batch = format!("{size} × {count}");
            let [size, count] = [size, count].map(|number| number.to_string());
            let options =
                ["--pipeline-layout", &partition, "--micro-batch-size", &size, "--micro-batches", &count];
            let plan = scene.recommend(name, devices, &options)?;
            let plan = plan.map_err(|refused| anyhow::anyhow!("{name}: {}", refused.message))?;
            let trial = Trial::of(&scene.caller(), &plan, ITERATIONS)?;
            let error = trial.error();
            let error = error.with_context(|| format!("{} does not train: {}", trial.plan, trial.failure))?;
            // Half the width of the interval, as a share; none where none is known.
            let margin = plan["iteration"]["interval"]["marginRatio"].as_f64();
            // |measured − predicted| as a share of the prediction.
            let off = (1.0 / (1.0 + error) - 1.0).abs();
            inside += usize::from(margin.is_some_and(|margin| off <= margin));
            errors.push(error);
            widths.extend(margin);
            let interval =
                margin.map_or_else(|| "unknown".to_owned(), |margin| format!("±{}", percent(margin)));
            let own = [(*name).to_owned(), partition, batch, interval].into_iter();
            table.row(own.chain(cells(Some(&trial), trial.measured_seconds)));
        }
    }
    report.print(format!("{} plans without memory actions on quiet CPU slots, trained", errors.len()));
    report.print(table);
    widths.sort_by(f64::total_cmp);
    let width = quantile(&widths, 0.5);
    let found = Distribution::of(&errors);
    report.judge([
        Goal::new(
            "seconds of quiet CPU trials",
            "mean ≤ 5 %, bias ≤ 3 %",
            or_unmeasured(found, |found| found.to_string()),
            found.map(|found| found.mean <= 0.05 && found.bias.abs() <= 0.03),
        ),
        Goal::new(
            "their intervals",
            "≥ 90 % inside, median ≤ ±20 %",
            format!("{inside} of {} inside, median ±{}", errors.len(), percent(width)),
            found.map(|found| inside * 10 >= found.count * 9 && width <= 0.2),
        ),
    ]);
    Ok(Vec::new())
}
