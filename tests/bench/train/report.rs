//! What is meant to be reached, and the tables.

use loadmaster_tests::Trial;

use crate::table::{Goal, Table, error, mib, or_dash, or_unmeasured};
use crate::train::largest::{Largest, Row};
use crate::train::rule::Rule;
use crate::train::scene::{SLOTS, Setting};
use crate::train::seconds::{Comparison, Hidden};

/// Of largest models: ours over recomputing alone.
const LARGER: f64 = 3.7;
/// Measured seconds of ours over those of MPress's plan.
const NOT_SLOWER: f64 = 1.02;
/// |predicted / measured − 1|, with as many slots as cores, and with twice as many on average.
const ERROR: f64 = 0.10;
const MEAN_ERROR: f64 = 0.20;
/// Share of copies that is not hidden, of what could be.
const NOT_HIDDEN: f64 = 0.05;

pub(crate) fn of_largest(all: &[Largest]) -> Vec<Goal> {
    let of = |rule| all.iter().find(|of| of.rule == Some(rule)).filter(|of| of.blocks > 0);
    let parameters = |rule| of(rule).filter(|of| of.is_trained()).map(|of| of.parameters as f64);
    let ratio = parameters(Rule::Ours).zip(parameters(Rule::RecomputeOnly)).map(|(ours, of)| ours / of);
    let ours = of(Rule::Ours).map_or(0, |ours| ours.blocks);
    let larger: Vec<&str> = all.iter().filter(|of| of.blocks > ours).map(Largest::name).collect();
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    vec![
        Goal::new(
            ["largest model trained, of recompute-only's", "-"],
            format!("≥ {LARGER}× (6.2B / 1.67B)"),
            ratio.map_or_else(|| "one of the two did not train".to_owned(), |of| format!("{of:.2}×")),
            Some(ratio.is_some_and(|ratio| ratio >= LARGER)),
        ),
        Goal::new(
            ["rules, and plans by hand, that train more", "-"],
            "none",
            or_none(larger.join(", ")),
            Some(larger.is_empty()),
        ),
        Goal::exact(
            ["three ledgers of the largest models", "-"],
            all.iter().filter_map(|of| of.trial.as_ref()),
        ),
    ]
}

pub(crate) fn of_seconds(all: &[Comparison]) -> Vec<Goal> {
    let ratio = |of: &Comparison| {
        let seconds = |rule| of.plans.iter().find(|of| of.rule == rule)?.measured_seconds();
        Some(seconds(Rule::Ours)? / seconds(Rule::Mpress)?)
    };
    let worst = all.iter().filter_map(ratio).reduce(f64::max);
    let errors = |slots: usize| -> Vec<f64> {
        let plans = all.iter().filter(|of| of.slots == slots).flat_map(|of| &of.plans);
        let once = plans.filter(|of| of.same_as.is_none());
        once.filter_map(|of| Some(of.trial.as_ref()?.predicted_seconds / of.measured_seconds()? - 1.0))
            .collect()
    };
    let (two, four) = (errors(2), errors(4));
    let largest = two.iter().map(|error| error.abs()).reduce(f64::max);
    let mean =
        (!four.is_empty()).then(|| four.iter().map(|error| error.abs()).sum::<f64>() / four.len() as f64);
    let percent = |of: Option<f64>| or_unmeasured(of, |of| format!("{:.1} %", 100.0 * of));
    vec![
        Goal::new(
            ["measured seconds, ours over MPress's plan", "-"],
            format!("≤ {NOT_SLOWER}"),
            or_unmeasured(worst, |of| format!("{of:.3} at most")),
            worst.map(|of| of <= NOT_SLOWER),
        ),
        Goal::new(
            ["seconds, two slots on two cores", "-"],
            format!("≤ {:.0} %", 100.0 * ERROR),
            format!("{} at most of {} plans", percent(largest), two.len()),
            largest.map(|of| of <= ERROR),
        ),
        Goal::new(
            ["seconds, four slots on two cores", "-"],
            format!("mean ≤ {:.0} %", 100.0 * MEAN_ERROR),
            format!("{} on average of {} plans", percent(mean), four.len()),
            mean.map(|of| of <= MEAN_ERROR),
        ),
        Goal::exact(
            ["three ledgers of compared plans", "-"],
            all.iter().flat_map(|of| &of.plans).filter_map(|of| of.trial.as_ref()),
        ),
    ]
}

pub(crate) fn of_pipedream(rows: &[Row]) -> Vec<Goal> {
    vec![Goal::exact(
        ["three ledgers under PipeDream", "-"],
        rows.iter().filter_map(|row| row.trial.as_ref()),
    )]
}

pub(crate) fn of_hidden(found: &Hidden) -> Goal {
    Goal::new(
        ["copies that windows hide, a core idle", "-"],
        format!("≤ {:.0} % not hidden", 100.0 * NOT_HIDDEN),
        format!(
            "{:.1} %{}",
            100.0 * found.share(),
            if found.trial.contended { ", but others used the cores" } else { "" }
        ),
        (!found.trial.contended).then_some(found.share() <= NOT_HIDDEN),
    )
}

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
    let mut table = Table::new(&head);
    for of in all {
        let mut cells =
            vec![of.name().to_owned(), of.blocks.to_string(), format!("{:.2} M", of.parameters as f64 / 1e6)];
        cells.push(ratio(of.parameters as f64, of_recompute.map(|of| of as f64)));
        cells.extend(trial(of.trial.as_ref(), of.trial.as_ref().and_then(|of| of.measured_seconds)));
        table.row(cells);
    }
    let mut text =
        format!("The largest GPT-2 that trains on slots of {}\n{}", mib(setting.capacity_bytes), table);
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
        let mut table = Table::new(&head);
        for plan in &of.plans {
            let mut cells = vec![plan.rule.name().to_owned()];
            if plan.trial.is_some() {
                let seconds = plan.measured_seconds();
                cells.extend(trial(plan.trial.as_ref(), seconds));
                cells.push(or_dash(seconds, |seconds| ratio(seconds, fastest)));
                cells.extend(plan.same_as.map(|of| format!("the plan of {}", of.name())));
            } else {
                cells.push(format!("no plan: {}", plan.note));
            }
            table.row(cells);
        }
        text.push_str(&format!(
            "{} blocks ({:.2} M parameters) on {} slots, medians of trials by turns\n{}\n",
            of.blocks,
            of.parameters as f64 / 1e6,
            of.slots,
            table
        ));
    }
    text
}

/// `PipeDream`.
pub(crate) fn pipedream(rows: &[Row]) -> Table {
    let head = [&["under PipeDream", "blocks", "parameters"][..], &LEDGERS, &SECONDS].concat();
    let mut table = Table::new(&head);
    for of in rows {
        let mut cells = vec![of.way.to_owned()];
        if let Some(why) = &of.refused {
            cells.push(format!("refused: {why}"));
        } else {
            cells.extend([of.blocks.to_string(), format!("{:.2} M", of.parameters as f64 / 1e6)]);
            cells.extend(trial(of.trial.as_ref(), of.trial.as_ref().and_then(|of| of.measured_seconds)));
        }
        table.row(cells);
    }
    table
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
    cells.push(or_dash(measured, |seconds| format!("{seconds:.3} s")));
    cells.push(or_dash(measured, |seconds| error(of.predicted_seconds / seconds - 1.0)));
    cells.push(if of.contended { "contended" } else { "" }.to_owned());
    cells
}

fn ratio(value: f64, of: Option<f64>) -> String {
    or_dash(of.filter(|&of| of > 0.0), |of| format!("{:.3}×", value / of))
}
