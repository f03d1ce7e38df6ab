//! The tables.

use crate::quality::Options;
use crate::quality::largest::Found;
use crate::quality::measured::{Outcome, Trained};
use crate::quality::subject::Subject;
use crate::table::{Table, error, mib, or_dash};

/// The plans of one model.
pub(crate) fn table(subject: &Subject, outcomes: &[Outcome], options: &Options) -> String {
    let plans = || outcomes.iter().filter_map(|of| of.plan.as_ref());
    let least = plans().filter_map(Trained::measured_bytes).min();
    let fastest = plans().filter_map(|plan| plan.trial.measured_seconds).reduce(f64::min);
    let figures = ["predicted", "measured", "error", "×best"];
    let mut table = Table::new(&[&["plan", "stages", "B"][..], &figures, &figures].concat());
    for Outcome { contender, plan, note, .. } in outcomes {
        let Some(plan) = plan else {
            table.row([contender, &format!("no plan: {}", first_line(note))]);
            continue;
        };
        let Trained { stages, micro_batch_size, trial } = plan;
        let mut cells = vec![contender.clone(), stages.clone(), micro_batch_size.to_string()];
        cells.push(mib(plan.predicted_bytes()));
        if !trial.failure.is_empty() {
            cells.push(format!("trial failed: {}", first_line(&trial.failure)));
            table.row(cells);
            continue;
        }
        let bytes = plan.measured_bytes();
        cells.push(or_dash(bytes, mib));
        cells.extend(compared(
            plan.predicted_bytes() as f64,
            bytes.map(|of| of as f64),
            least.map(|of| of as f64),
        ));
        let seconds = |seconds| format!("{seconds:.3} s");
        cells.extend([seconds(trial.predicted_seconds), or_dash(trial.measured_seconds, seconds)]);
        cells.extend(compared(trial.predicted_seconds, trial.measured_seconds, fastest));
        table.row(cells);
    }
    format!(
        "\n{}: {} devices, global batch {}; bytes of the allocated ledger, ranks of one thread each\n{table}{}",
        subject.title,
        options.devices,
        subject.micro_batch_size * subject.micro_batches,
        rank(outcomes)
    )
}

/// The error of a prediction, and how many times as much as the best plan's was measured.
fn compared(predicted: f64, measured: Option<f64>, best: Option<f64>) -> [String; 2] {
    [
        or_dash(measured, |measured| error(predicted / measured - 1.0)),
        or_dash(measured.zip(best), |(measured, best)| format!("{:.2}", measured / best)),
    ]
}

/// Which place the truly fastest plan has among the predictions, and the truly smallest.
fn rank(outcomes: &[Outcome]) -> String {
    let mut plans: Vec<&Trained> = outcomes
        .iter()
        .filter_map(|outcome| outcome.plan.as_ref())
        .filter(|plan| plan.trial.measured_seconds.is_some())
        .collect();
    plans.sort_by(|a, b| (&a.stages, a.micro_batch_size).cmp(&(&b.stages, b.micro_batch_size)));
    plans.dedup_by(|a, b| (&a.stages, a.micro_batch_size) == (&b.stages, b.micro_batch_size));
    let order = |plan: &&&Trained| plan.trial.measured_seconds.unwrap_or(f64::INFINITY);
    let Some(fastest) = plans.iter().min_by(|a, b| order(a).total_cmp(&order(b))) else {
        return String::new();
    };
    let faster =
        plans.iter().filter(|plan| plan.trial.predicted_seconds < fastest.trial.predicted_seconds).count();
    let (place, of) = (faster + 1, plans.len());
    format!("the truly fastest plan, {}, is predicted to be number {place} of {of}\n", fastest.stages)
}

/// The largest models.
pub(crate) fn largest(found: &[Found]) -> String {
    let mut table = Table::new(&["rule", "F", "parameters", "measured peak", "capacity", "next"]);
    for of in found {
        let (filters, parameters) = (of.filters.to_string(), of.parameters.to_string());
        let [measured, capacity] = [of.measured_bytes, Some(of.capacity_bytes)].map(|of| or_dash(of, mib));
        table.row([&of.rule, &filters, &parameters, &measured, &capacity, &of.beyond]);
    }
    let ratio = match found {
        [ours, theirs] => format!("parameters: {:.2}×\n", ours.parameters as f64 / theirs.parameters as f64),
        _ => String::new(),
    };
    format!(
        "\nlargest AmoebaNet-D (18, F) that trains on the devices; each was trained for real, the next F does not fit by \
         prediction\n{table}{ratio}"
    )
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
