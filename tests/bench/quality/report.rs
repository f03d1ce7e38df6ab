//! The tables.

use std::fmt::Write as _;

use crate::quality::largest::Found;
use crate::quality::measured::{Outcome, Trained};
use crate::quality::options::Options;
use crate::quality::subject::Subject;

/// The plans of one model.
pub(crate) fn table(subject: &Subject, outcomes: &[Outcome], options: &Options) -> String {
    let mut text = format!(
        "\n{}: {} devices, global batch {}; bytes of the allocated ledger, ranks of one thread each\n",
        subject.title,
        options.devices,
        subject.micro_batch_size * subject.micro_batches
    );
    let least = least(outcomes, |plan| plan.measured_bytes.map(|bytes| bytes as f64));
    let fastest = least_seconds(outcomes);
    let _ = writeln!(
        text,
        "{:<30} {:<26} {:>6} {:>12} {:>12} {:>8} {:>7} {:>11} {:>11} {:>8} {:>7}",
        "plan",
        "stages",
        "B",
        "predicted",
        "measured",
        "error",
        "×best",
        "predicted",
        "measured",
        "error",
        "×best"
    );
    for Outcome { contender, plan, note, .. } in outcomes {
        let Some(plan) = plan else {
            let _ = writeln!(text, "{contender:<30} no plan: {}", first_line(note));
            continue;
        };
        let _ = write!(text, "{contender:<30} {:<26} {:>6} ", plan.stages, plan.micro_batch_size);
        if !plan.failure.is_empty() {
            let _ = writeln!(
                text,
                "{:>12} trial failed: {}",
                mib(Some(plan.predicted_bytes)),
                first_line(&plan.failure)
            );
            continue;
        }
        let _ = writeln!(
            text,
            "{:>12} {:>12} {:>8} {:>7} {:>11} {:>11} {:>8} {:>7}",
            mib(Some(plan.predicted_bytes)),
            mib(plan.measured_bytes),
            error(Some(plan.predicted_bytes as f64), plan.measured_bytes.map(|bytes| bytes as f64)),
            ratio(plan.measured_bytes.map(|bytes| bytes as f64), least),
            seconds(plan.predicted_seconds),
            seconds(plan.measured_seconds),
            error(plan.predicted_seconds, plan.measured_seconds),
            ratio(plan.measured_seconds, fastest),
        );
    }
    text.push_str(&rank(outcomes));
    text
}

/// Which place the truly fastest plan has among the predictions, and the truly smallest.
fn rank(outcomes: &[Outcome]) -> String {
    let mut plans: Vec<&Trained> = outcomes
        .iter()
        .filter_map(|outcome| outcome.plan.as_ref())
        .filter(|plan| plan.measured_seconds.is_some() && plan.predicted_seconds.is_some())
        .collect();
    plans.sort_by(|a, b| (&a.stages, a.micro_batch_size).cmp(&(&b.stages, b.micro_batch_size)));
    plans.dedup_by(|a, b| (&a.stages, a.micro_batch_size) == (&b.stages, b.micro_batch_size));
    let order = |plan: &&&Trained| plan.measured_seconds.unwrap_or(f64::INFINITY);
    let Some(fastest) = plans.iter().min_by(|a, b| order(a).total_cmp(&order(b))) else {
        return String::new();
    };
    let faster = plans.iter().filter(|plan| plan.predicted_seconds < fastest.predicted_seconds).count();
    let (place, of) = (faster + 1, plans.len());
    format!("the truly fastest plan, {}, is predicted to be number {place} of {of}\n", fastest.stages)
}

/// The largest models.
pub(crate) fn largest(found: &[Found]) -> String {
    let mut text = String::from(
        "\nlargest AmoebaNet-D (18, F) that trains on the devices; each was trained for real, the next F does not fit by prediction\n",
    );
    for of in found {
        let _ = writeln!(
            text,
            "{:<34} F {:>4}  {:>12} parameters  measured peak {:>12} of {}  next: {}",
            of.rule,
            of.filters,
            of.parameters,
            mib(of.measured_bytes),
            mib(Some(of.capacity_bytes)),
            of.beyond
        );
    }
    if let [ours, theirs] = found {
        let _ = writeln!(text, "parameters: {:.2}×", ours.parameters as f64 / theirs.parameters as f64);
    }
    text
}

fn least(outcomes: &[Outcome], value: impl Fn(&Trained) -> Option<f64>) -> Option<f64> {
    outcomes.iter().filter_map(|of| of.plan.as_ref()).filter_map(value).min_by(f64::total_cmp)
}

fn least_seconds(outcomes: &[Outcome]) -> Option<f64> {
    least(outcomes, |plan| plan.measured_seconds)
}

fn mib(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)))
}

fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.3} s"))
}

fn error(predicted: Option<f64>, measured: Option<f64>) -> String {
    match (predicted, measured) {
        (Some(predicted), Some(measured)) => format!("{:+.1} %", 100.0 * (predicted / measured - 1.0)),
        _ => "-".to_owned(),
    }
}

fn ratio(value: Option<f64>, best: Option<f64>) -> String {
    match (value, best) {
        (Some(value), Some(best)) => format!("{:.2}", value / best),
        _ => "-".to_owned(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
