//! Plans: a row per stage with a bar of predicted, measured and capacity.

mod bar;
pub mod contradiction;
pub mod list;
pub mod recommendation;
pub mod trial;

use bar::{Glyphs, draw};
use loadmaster_proto::wire::v1::{MemoryFigure, Plan, PlanStage, TrainingSpec, TrialResult};

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use super::training::layers;
use super::{
    accounting, actions, chunked, common_accounting, figure, hosts, id, interference, labels, or_none, parts,
    report, savings, shared, training,
};
use crate::devices::{self, devices_of_stages};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{self, bytes, percent, plain, ratio, seconds};

show!(Plan as one);

fn one(plan: &Plan, look: Look) -> String {
    let summary = plan.summary.as_ref();
    let mut lines = text::headline(summary, look);
    lines.extend(contradiction::of(plan, look));
    let named = format!("plan {}  {}", plain(&plan.name), text::title(summary, look));
    lines.push(named.trim_end().to_owned());
    let mut text: String = lines.into_iter().map(|line| line + "\n").collect();
    text.push_str(&stages(plan, look));
    for warning in text::folded(&plan.warnings, usize::MAX) {
        text.push_str(&format!("{warning}\n"));
    }
    // A failed trial has no place in the table, but hiding it would make the plan look better.
    if let Some(newest) = plan.trials.first().filter(|newest| !newest.failure_message.is_empty()) {
        text.push_str(&format!(
            "the newest trial, {}, failed: {}\n",
            plain(&newest.run),
            plain(&newest.failure_message)
        ));
    }
    let mut settings = id(&plan.model);
    if let Some(spec) = &plan.training {
        settings.push_str(&format!(" {} {}", look.dot(), training::line(spec, look)));
    }
    text.push_str(&format!("training  {settings}\n"));
    if let Some(labels) = labels(&plan.labels) {
        text.push_str(&format!("labels    {labels}\n"));
    }
    let breakdowns: Vec<_> = plan.stages.iter().map(|stage| stage.breakdown.as_ref()).collect();
    text.push_str(&parts::bytes_of(&breakdowns, look));
    let times: Vec<_> = plan
        .stages
        .iter()
        .map(|stage| (stage.seconds.as_ref(), stage.seconds_margin_ratio, stage.in_flight_micro_batch_count))
        .collect();
    text.push_str(&parts::times_of(&times, look));
    let acted: Vec<_> = plan
        .stages
        .iter()
        .map(|stage| actions::StageActionFigures {
            actions: stage.memory_optimizations.as_ref(),
            predicted: stage.offload_traffic.as_ref(),
            measured: stage.measured_offload_traffic.as_ref(),
            is_timed: plan.iteration.is_some(),
        })
        .collect();
    text.push_str(&actions::of_stages(&acted, look));
    text.push_str(&savings::of_stages(plan.stages.iter().map(|stage| stage.saved_bytes.as_ref()), look));
    let in_chunks = plan.stages.iter().map(|stage| chunked::StageChunkFigures {
        chunks: stage.chunked_training.as_ref(),
        predicted: stage.chunk_traffic.as_ref(),
        measured: stage.measured_chunk_traffic.as_ref(),
        precision: plan.training.as_ref().map(TrainingSpec::precision),
    });
    text.push_str(&chunked::of_stages(in_chunks, look));
    let (devices, _) = devices::of(plan);
    let taken = devices.iter().flat_map(|device| {
        let own = devices::stages_in_turn(plan, device.stage).filter_map(|stage| plan.stages.get(stage));
        own.map(|stage| {
            (
                device.node.as_str(),
                hosts::of_device(stage.memory_optimizations.as_ref(), stage.chunk_traffic.as_ref()),
            )
        })
    });
    text.push_str(&hosts::most(taken));
    text.push_str(&peak(plan, look));
    text.push_str(&recommendation::found(plan, look));
    text.push_str(&report::of_plan(&plan.reports, look));
    text
}

fn stages(plan: &Plan, look: Look) -> String {
    let common = common_accounting(figures(plan));
    let capacity = shared(plan.stages.iter().map(|stage| stage.capacity_bytes));
    let note = common.map_or_else(String::new, |common| format!(" ({})", accounting(common)));
    let of_capacity = match capacity {
        Some(capacity) => format!("of {}{note}", bytes(capacity)),
        None => format!("of capacity{note}"),
    };
    let is_measured = plan.stages.iter().any(|stage| stage.measured_peak.is_some());
    // Pictures name the nodes on a terminal; a file has the table alone.
    let devices = devices_of_stages(plan, look);
    let mut columns = vec![("stage", Left), ("layers", Left)];
    columns.extend(devices.as_ref().map(|_| ("devices", Left)));
    columns.push(("predicted", Right));
    if is_measured {
        columns.extend([("measured", Right), ("error", Right)]);
    }
    columns.push((&of_capacity, Left));
    let mut grid = Grid::new(&columns, look);
    for (index, stage) in plan.stages.iter().enumerate() {
        let maybe = |value: &Option<MemoryFigure>| {
            value.as_ref().map_or_else(|| look.none().to_owned(), |value| figure(value, common))
        };
        let mut cells = vec![
            index.to_string(),
            layers(stage.config.as_ref(), &stage.first_layer_name, &stage.last_layer_name, look),
        ];
        cells.extend(devices.as_ref().and_then(|devices| devices.get(index).cloned()));
        cells.push(maybe(&stage.predicted_peak) + &margin(stage, look));
        if is_measured {
            let error = stage.error_ratio.map_or_else(|| look.none().to_owned(), ratio);
            cells.extend([maybe(&stage.measured_peak), error]);
        }
        cells.push(use_of_capacity(stage, capacity.is_none(), look));
        grid.rows(cells);
    }
    grid.render() + &legend(plan, is_measured, look)
}

/// Half the interval of the prediction, where one is known: ` ±2.0 %`.
fn margin(stage: &PlanStage, look: Look) -> String {
    let predicted = stage.predicted_peak.as_ref().map_or(0, |peak| peak.bytes);
    let known = |interval| format!(" {}", text::bytes_margin(Some(interval), predicted, look));
    stage.interval.as_ref().map_or_else(String::new, known)
}

fn use_of_capacity(stage: &PlanStage, name_capacity: bool, look: Look) -> String {
    let predicted = stage.predicted_peak.as_ref();
    // Bytes of two accountings share no scale: then the bar shows the prediction alone.
    let measured = stage
        .measured_peak
        .as_ref()
        .filter(|measured| predicted.is_none_or(|predicted| predicted.accounting == measured.accounting));
    let amount = |figure: Option<&MemoryFigure>| figure.map(|figure| figure.bytes);
    let bar = draw(amount(predicted), amount(measured), stage.capacity_bytes, Glyphs::new(look));
    let share = match amount(measured.or(predicted)) {
        Some(used) if stage.capacity_bytes > 0 => percent(used as f64 / stage.capacity_bytes as f64),
        Some(_) | None => look.none().to_owned(),
    };
    let of = if name_capacity { format!(" of {}", bytes(stage.capacity_bytes)) } else { String::new() };
    format!("{bar} {share:>7}{of}")
}

/// Which character is what, and where the numbers come from.
fn legend(plan: &Plan, measured: bool, look: Look) -> String {
    let mut text = Glyphs::new(look).legend(measured);
    text.push_str(if measured { "   % measured\n" } else { "   % predicted\n" });
    let predictors = origins(plan.stages.iter().filter_map(|stage| stage.predicted_peak.as_ref()));
    let mut from = format!("predicted by {} from {}", or_none(&predictors, look), plain(&plan.profile));
    if measured {
        let runs = origins(plan.stages.iter().filter_map(|stage| stage.measured_peak.as_ref()));
        from.push_str(&format!("; measured in {}", or_none(&runs, look)));
    }
    text + &from + &format!("; layout by {}\n", or_none(&plan.solver, look))
}

fn origins<'a>(figures: impl Iterator<Item = &'a MemoryFigure>) -> String {
    let mut origins: Vec<&str> = Vec::new();
    for figure in figures {
        if !origins.contains(&figure.producer.as_str()) {
            origins.push(&figure.producer);
        }
    }
    origins.join(", ")
}

/// The plan's peak, predicted and measured.
fn peak(plan: &Plan, look: Look) -> String {
    let Some(predicted) = &plan.predicted_peak else { return String::new() };
    let mut text = format!("peak  predicted {}", figure(predicted, None));
    if let Some(measured) = measured_peak(plan) {
        text.push_str(&format!("  measured {}", figure(measured, None)));
        if let Some(newest) = succeeded(plan) {
            let error = |of: Option<f64>| of.map_or_else(|| look.none().to_owned(), ratio);
            text.push_str(&format!(
                "  error {} {} {} per iteration{}",
                error(newest.peak_error_ratio),
                look.dot(),
                seconds(newest.iteration_seconds),
                interference::mark(newest.contended, newest.oversubscribed)
            ));
            if newest.iteration_error_ratio.is_some() {
                text.push_str(&format!("  error {}", error(newest.iteration_error_ratio)));
            }
        }
    }
    text.push('\n');
    text
}

/// The newest trial that has measurements.
fn succeeded(plan: &Plan) -> Option<&TrialResult> {
    plan.trials.iter().find(|validation| validation.failure_message.is_empty())
}

fn measured_peak(plan: &Plan) -> Option<&MemoryFigure> {
    // Of stages that were trained alone, none says what the others need.
    let measured: Option<Vec<_>> = plan.stages.iter().map(|stage| stage.measured_peak.as_ref()).collect();
    let measured = measured?;
    common_accounting(measured.iter().copied())?;
    measured.into_iter().max_by_key(|figure| figure.bytes)
}

fn figures(plan: &Plan) -> impl Iterator<Item = &MemoryFigure> {
    plan.stages.iter().flat_map(|stage| [&stage.predicted_peak, &stage.measured_peak]).flatten()
}

#[cfg(test)]
mod tests;
