//! The tables.

use loadmaster_tests::Trial;

use crate::train::goal::Goal;
use crate::train::hidden::Hidden;
use crate::train::largest::Largest;
use crate::train::pipedream::Row;
use crate::train::rule::Rule;
use crate::train::scene::{SLOTS, Setting};
use crate::train::side_by_side::Comparison;

/// On what everything runs.
pub(crate) fn setting(of: &Setting) -> String {
    format!(
        "{SLOTS} CPU slots of {}, {} of the host's memory, copies at {}; GPT-2, Adam, fp32, 1F1B, {} micro-batches of {} \
         samples; bytes of the allocated ledger, by stage the device's, of all stages together the host's and those set aside \
         for others\n",
        mib(of.capacity_bytes),
        mib(of.host_bytes),
        of.rates,
        of.micro_batches,
        of.micro_batch_size
    )
}

const LEDGERS: [&str; 5] = ["stages", "device", "host", "for others", "as predicted"];
const SECONDS: [&str; 4] = ["predicted", "measured", "error", ""];

/// The largest models.
pub(crate) fn largest(all: &[Largest], setting: &Setting) -> String {
    let of_recompute = all.iter().find(|of| of.rule == Some(Rule::RecomputeOnly)).map(|of| of.parameters);
    let head = [&["rule", "blocks", "parameters", "of recompute-only's"][..], &LEDGERS, &SECONDS].concat();
    let mut lines = vec![line(&head)];
    for of in all {
        let mut cells =
            vec![of.name().to_owned(), of.blocks.to_string(), format!("{:.2} M", of.parameters as f64 / 1e6)];
        cells.push(ratio(of.parameters as f64, of_recompute.map(|of| of as f64)));
        cells.extend(trial(of.trial.as_ref(), of.trial.as_ref().and_then(|of| of.measured_seconds)));
        lines.push(cells);
    }
    let mut text = format!(
        "The largest GPT-2 that trains on slots of {}\n{}",
        mib(setting.capacity_bytes),
        table(&lines)
    );
    for of in all {
        text.push_str(&format!("one block more, {}: {}\n", of.name(), of.beyond));
        if let Some(really) = &of.really {
            let first = really.split(". ").next().unwrap_or_default();
            text.push_str(&format!("  planned for larger slots and sent to these: {first}\n"));
        }
    }
    text
}

/// Rules at the same sizes.
pub(crate) fn side_by_side(all: &[Comparison]) -> String {
    let mut text = String::new();
    for of in all {
        let fastest = of.plans.iter().filter_map(|of| of.measured_seconds()).reduce(f64::min);
        let head = [&["rule"][..], &LEDGERS, &SECONDS, &["of the fastest"]].concat();
        let mut lines = vec![line(&head)];
        for plan in &of.plans {
            let mut cells = vec![plan.rule.name().to_owned()];
            if plan.trial.is_some() {
                let seconds = plan.measured_seconds();
                cells.extend(trial(plan.trial.as_ref(), seconds));
                cells.push(seconds.map_or_else(|| "-".to_owned(), |seconds| ratio(seconds, fastest)));
                cells.extend(plan.same_as.map(|of| format!("the plan of {}", of.name())));
            } else {
                cells.push(format!("no plan: {}", plan.note));
            }
            lines.push(cells);
        }
        text.push_str(&format!(
            "{} blocks ({:.2} M parameters) on {} slots, medians of trials by turns\n{}\n",
            of.blocks,
            of.parameters as f64 / 1e6,
            of.slots,
            table(&lines)
        ));
    }
    text
}

/// `PipeDream`.
pub(crate) fn pipedream(rows: &[Row]) -> String {
    let head = [&["under PipeDream", "blocks", "parameters"][..], &LEDGERS, &SECONDS].concat();
    let mut lines = vec![line(&head)];
    for of in rows {
        let mut cells = vec![of.way.to_owned()];
        if let Some(why) = &of.refused {
            cells.push(format!("refused: {why}"));
        } else {
            cells.extend([of.blocks.to_string(), format!("{:.2} M", of.parameters as f64 / 1e6)]);
            cells.extend(trial(of.trial.as_ref(), of.trial.as_ref().and_then(|of| of.measured_seconds)));
        }
        lines.push(cells);
    }
    table(&lines)
}

/// Copies beside passes.
pub(crate) fn hidden(of: &Hidden) -> String {
    format!(
        "Copies to the host and back, one slot and an idle core: {:.3} s per iteration; the iteration takes {:.3} s without \
         them, and {:+.4} s with them ({:+.4} s predicted, {:.4} s waited): {:.1} % of what passes could hide is not hidden\n",
        of.copy_seconds,
        of.without_seconds,
        of.measured_seconds,
        of.predicted_seconds,
        of.trial.measured_waits,
        100.0 * of.share()
    )
}

/// The goals, each met, missed or not measured.
pub(crate) fn goals(goals: &[Goal]) -> String {
    let mut lines = vec![line(&["goal", "wanted", "", "reached"])];
    for goal in goals {
        let met = match goal.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "-",
        };
        lines.push(line(&[goal.what, &goal.wanted, met, &goal.reached]));
    }
    table(&lines)
}

/// The cells of [`LEDGERS`] and [`SECONDS`].
fn trial(of: Option<&Trial>, measured: Option<f64>) -> Vec<String> {
    let Some(of) = of else { return vec!["no plan".to_owned()] };
    let [device, host, hosted] = of.predicted.most().map(mib);
    let mut cells = vec![of.stages.clone(), device, host, hosted];
    if !of.failure.is_empty() {
        cells.push(format!("DID NOT TRAIN: {}", of.failure));
        return cells;
    }
    cells.push(match (&of.measured, of.is_exact()) {
        (None, _) => "not trained".to_owned(),
        (Some(_), true) => "to the byte".to_owned(),
        (Some(measured), false) => {
            let [device, host, hosted] = measured.most().map(mib);
            format!("NO: {device}, {host}, {hosted}")
        }
    });
    cells.push(format!("{:.3} s", of.predicted_seconds));
    cells.push(measured.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.3} s")));
    let error = measured.map(|seconds| 100.0 * (of.predicted_seconds / seconds - 1.0));
    cells.push(error.map_or_else(|| "-".to_owned(), |error| format!("{error:+.1} %")));
    cells.push(if of.contended { "contended" } else { "" }.to_owned());
    cells
}

fn line(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|&cell| cell.to_owned()).collect()
}

fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}

fn ratio(value: f64, of: Option<f64>) -> String {
    of.filter(|&of| of > 0.0).map_or_else(|| "-".to_owned(), |of| format!("{:.3}×", value / of))
}

/// Left-aligned columns, two spaces apart; the last cell of a line may be as long as it likes.
fn table(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter(|line| column + 1 < line.len()).filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
