//! The summary as text: at most five lines of at most 80 characters.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::SummarizedPlan;
use crate::accounting::Accounting;
use crate::amounts::{Seconds, count, plural};
use crate::bytes::Bytes;
use crate::choice::WireChoice;
use crate::plan::objective::Objective;
use crate::wire::v1;

/// Longest line.
const WIDTH: usize = 80;
/// Between two facts of a line.
const DOT: &str = " · ";

/// Model, parallel sizes and framework: `llama-8.0B · TP2·PP4·DP8 · torchtitan`.
pub(super) fn title(of: &SummarizedPlan<'_>, message: &v1::PlanSummary) -> String {
    let model = fit(&of.model.title, 40);
    let facts = [model.as_str(), &sizes(of, message), &of.plan.framework];
    let facts: Vec<&str> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
    fit(&facts.join(DOT), WIDTH)
}

/// The lines: fit, speed, layout on at most two, optimality and price.
pub(super) fn lines(of: &SummarizedPlan<'_>, message: &v1::PlanSummary) -> Vec<String> {
    let mut lines = vec![fit(&memory(of, message), WIDTH), fit(&speed(of, message), WIDTH)];
    lines.extend(layout(of, message));
    lines.push(optimality(of, message));
    lines
}

fn memory(of: &SummarizedPlan<'_>, message: &v1::PlanSummary) -> String {
    let bytes = |count: i64| Bytes(count.unsigned_abs()).to_string();
    let peak = message.peak.as_ref().map_or(0, |of| of.bytes);
    let accounting = word::<Accounting>(message.peak.as_ref().map_or(0, |of| of.accounting));
    let stage = message.peak_stage.map_or_else(String::new, |stage| format!(" (stage {stage})"));
    let Some(capacity) = message.capacity_bytes else {
        return format!("Peak {} {accounting}{stage}, no capacity given", bytes(peak));
    };
    let slack = bytes(message.slack_bytes.unwrap_or(0));
    let fits = match of.plan.verdict() {
        v1::Verdict::Unspecified => "Not compared".to_owned(),
        v1::Verdict::Fits => format!("Fits, {slack} free"),
        v1::Verdict::FitsWithoutMargin => "Uncertain, fits without margin".to_owned(),
        v1::Verdict::Uncertain => "Uncertain, see warnings".to_owned(),
        v1::Verdict::DoesNotFit => format!("Does not fit, {slack} short"),
    };
    let line =
        |accounting: &str| format!("{fits}: peak {}{accounting} of {}{stage}", bytes(peak), bytes(capacity));
    let named = line(&format!(" {accounting}"));
    if named.width() <= WIDTH { named } else { line("") }
}

fn speed(of: &SummarizedPlan<'_>, message: &v1::PlanSummary) -> String {
    let Some(seconds) = message.iteration_seconds else {
        return "Seconds of an iteration: not predicted".to_owned();
    };
    let margin = message.iteration_interval.as_ref().map(|of| of.margin_ratio * 100.0);
    if !message.iteration_usable {
        let decided = match of.plan.objective() {
            v1::Objective::MinPeakMemory => "chosen by memory",
            _ => "rely on memory",
        };
        let margin = margin.unwrap_or_default();
        return format!("Iteration time unusable (±{margin:.0} %), {decided}: profile on an idle machine");
    }
    let unit = unit(of);
    let margin = margin
        .map_or_else(|| "±?".to_owned(), |margin| format!("±{margin:.*} %", usize::from(margin < 9.95)));
    let mut facts = vec![format!("{} {margin}", Seconds(seconds))];
    match (message.tokens_per_second, message.device_tokens_per_second) {
        (Some(all), Some(one)) => facts.push(format!("{} tokens/s, {}/{unit}", compact(all), compact(one))),
        (Some(all), None) => facts.push(format!("{} tokens/s", compact(all))),
        (None, _) => {
            facts.extend(message.samples_per_second.map(|rate| format!("{} samples/s", compact(rate))));
        }
    }
    let flops = message.device_teraflops_per_second.map(|rate| format!("{} TFLOP/s/{unit}", compact(rate)));
    match message.model_flops_utilization {
        Some(share) => facts.extend(flops.into_iter().chain([format!("MFU {:.1} %", share * 100.0)])),
        None => {
            facts.push(message.throughput_note.clone());
            // The reason in short, where the line has no more room: `no MFU`.
            if let Some((short, _)) = message.throughput_note.split_once(':')
                && facts.join(DOT).width() > WIDTH
            {
                facts.pop();
                facts.push(short.to_owned());
            }
            facts.extend(flops);
        }
    }
    facts.retain(|fact| !fact.is_empty());
    if facts.join(DOT).width() + "Iteration ".len() <= WIDTH {
        facts[0].insert_str(0, "Iteration ");
    }
    flow(facts, 1).concat()
}

fn layout(of: &SummarizedPlan<'_>, message: &v1::PlanSummary) -> Vec<String> {
    let unit = unit(of);
    let samples = match message.device_micro_batch_size {
        0 => {
            let (least, most) = of.range(|stage| stage.data_parallel_size);
            let part = |size: i32| of.plan.training.unwrap_or_default().micro_batch_size / size;
            format!("{}–{}", part(most), part(least))
        }
        same => count(same.into()),
    };
    let micro_batches = match message.micro_batch_count {
        1 => "1 micro-batch".to_owned(),
        several => format!("{} micro-batches", count(several.into())),
    };
    let mut facts = vec![
        format!("{} on {}", sizes(of, message), plural(of.devices(), unit)),
        format!("{micro_batches} of {samples} per {unit}"),
        format!("global batch {}", count(message.global_batch_size)),
    ];
    if message.virtual_stage_count > 1 {
        facts.push(format!("{} virtual stages", message.virtual_stage_count));
    }
    if !message.memory_optimizations.iter().any(|of| of.starts_with("recompute")) {
        facts.push("no recomputation".to_owned());
    }
    facts.extend(message.memory_optimizations.iter().cloned());
    facts.extend(Some(of.plan.framework.clone()).filter(|framework| !framework.is_empty()));
    flow(facts, 2)
}

fn optimality(of: &SummarizedPlan<'_>, message: &v1::PlanSummary) -> String {
    let objective = word::<Objective>(of.plan.objective);
    let is_stopped = of.plan.certificate.as_ref().is_some_and(|of| of.deadline_reached);
    let stopped = if is_stopped { " (search stopped)" } else { "" };
    let proof = match (message.optimal, message.optimality_gap) {
        (None, _) => "Layout as requested, not compared with others".to_owned(),
        (Some(true), _)
            if !message.iteration_usable && of.plan.objective() == v1::Objective::MinIterationTime =>
        {
            format!("Optimal only by unusable time predictions: {objective}")
        }
        (Some(true), _) => format!("Optimal by these predictions: {objective}"),
        (Some(false), Some(gap)) => format!("Optimality gap {:.1} %{stopped}: {objective}", gap * 100.0),
        (Some(false), None) => format!("Not proven optimal, because no best bound is known: {objective}"),
    };
    let mut facts = vec![proof];
    facts.extend(message.hourly_price.map(|hourly| match message.iteration_price {
        Some(each) => format!("{}/hour, {}/iteration", money(hourly), money(each)),
        None => format!("{}/hour", money(hourly)),
    }));
    flow(facts, 1).concat()
}

/// `TP2·PP4·DP8`, with both ends of sizes that differ between stages.
fn sizes(of: &SummarizedPlan<'_>, message: &v1::PlanSummary) -> String {
    let size = |size: fn(&v1::StageConfig) -> i32| match of.range(size) {
        (least, most) if least == most => count(least.into()),
        (least, most) => format!("{}–{}", count(least.into()), count(most.into())),
    };
    let tensor = size(|stage| stage.tensor_parallel_size);
    let data = size(|stage| stage.data_parallel_size);
    format!("TP{tensor}·PP{}·DP{data}", message.pipeline_parallel_size)
}

/// The word of a number on the wire; empty of none and of unknown ones.
fn word<T: WireChoice>(number: i32) -> &'static str {
    T::of_number(number).ok().flatten().map_or("", T::word)
}

/// The word for a device.
fn unit(of: &SummarizedPlan<'_>) -> &'static str {
    let is_gpu = |group: &v1::DeviceGroup| !["", "cpu"].contains(&group.kind.as_str());
    if of.plan.devices.iter().all(is_gpu) { "GPU" } else { "device" }
}

/// A number with three significant digits and a suffix: `853`, `27.3k`, `1.20M`, `8.03B`.
pub(super) fn compact(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        of if of >= 999.5e9 => (value / 1e12, "T"),
        of if of >= 999.5e6 => (value / 1e9, "B"),
        of if of >= 999.5e3 => (value / 1e6, "M"),
        of if of >= 999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    match value.abs() {
        of if of >= 99.95 => format!("{value:.0}{suffix}"),
        of if of >= 9.995 => format!("{value:.1}{suffix}"),
        of if of >= 0.01 || of == 0.0 => format!("{value:.2}{suffix}"),
        _ => format!("{value:.1e}"),
    }
}

/// A price: whole cents, or three significant digits below ten of them.
fn money(price: f64) -> String {
    if price >= 0.1 || price <= 0.0 { format!("{price:.2}") } else { compact(price) }
}

/// Joins facts into at most so many lines. Facts without room in the last one are left out.
fn flow(facts: Vec<String>, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for fact in facts {
        let fact = fit(&fact, WIDTH);
        let last = lines.last_mut().filter(|line| line.width() + DOT.width() + fact.width() <= WIDTH);
        if let Some(line) = last {
            line.push_str(DOT);
            line.push_str(&fact);
        } else if lines.len() < most {
            lines.push(fact);
        }
    }
    lines
}

/// A text in at most so many characters; where it is cut, its last one shows that. Control characters are spaces.
fn fit(text: &str, most: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.width() <= most {
        return text;
    }
    let mut used = 1;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= most
    });
    kept.collect::<String>() + "…"
}
