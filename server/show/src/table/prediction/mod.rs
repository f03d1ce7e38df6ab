//! What stages are predicted to need: a row per stage with a bar of its parts, the parts in bytes, times,
//! and the verdict.

mod bar;

use loadmaster_proto::wire::v1::{
    ExcludedMemory, PredictPlanResponse, ProfileCoverage, StageConfig, StagePrediction, TrainingSpec, Verdict,
};

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use super::training::layers;
use super::{
    accounting, actions, chunked, common_accounting, figure, fits, hosts, id, or_none, parts, shared,
    training,
};
use crate::Show;
use crate::text::terminal_abilities::Look;
use crate::text::{self, bytes, maybe_bytes, plain, plural, word};

impl Show for PredictPlanResponse {
    const TYPE: &'static str = "loadmaster.v1.PredictPlanResponse";

    /// A prediction is no resource; what can be looked up is what it was made from.
    fn names(&self) -> Vec<String> {
        self.measurements.clone()
    }

    fn table(&self, look: Look) -> String {
        one(self, look)
    }
}

fn one(answer: &PredictPlanResponse, look: Look) -> String {
    let mut settings = format!("training  {}", id(&answer.model));
    if let Some(spec) = &answer.training {
        settings.push_str(&format!(" {} {}", look.dot(), training::line(spec, look)));
    }
    if !answer.device_kind.is_empty() {
        settings.push_str(&format!(" {} {}", look.dot(), plain(&answer.device_kind)));
    }
    settings.push('\n');
    if answer.infeasible.is_some() {
        return settings;
    }
    let headline = text::headline(answer.summary.as_ref(), look);
    let mut text: String = headline.into_iter().map(|line| line + "\n").collect();
    text.push_str(&stages(answer, look));
    for warning in text::folded(&answer.warnings, usize::MAX) {
        text.push_str(&format!("{warning}\n"));
    }
    text.push_str(&settings);
    let breakdowns: Vec<_> = answer.stages.iter().map(|stage| stage.breakdown.as_ref()).collect();
    text.push_str(&parts::bytes_of(&breakdowns, look));
    let times: Vec<_> = answer
        .stages
        .iter()
        .map(|stage| (stage.seconds.as_ref(), stage.seconds_margin_ratio, stage.in_flight_micro_batch_count))
        .collect();
    text.push_str(&parts::times_of(&times, look));
    let acted: Vec<_> = answer
        .stages
        .iter()
        .map(|stage| actions::StageActionFigures {
            actions: stage.memory_optimizations.as_ref(),
            predicted: stage.offload_traffic.as_ref(),
            measured: None,
            is_timed: false,
        })
        .collect();
    text.push_str(&actions::of_stages(&acted, look));
    let in_chunks = answer.stages.iter().map(|stage| chunked::StageChunkFigures {
        chunks: stage.chunked_training.as_ref(),
        predicted: stage.chunk_traffic.as_ref(),
        measured: None,
        precision: answer.training.as_ref().map(TrainingSpec::precision),
    });
    text.push_str(&chunked::of_stages(in_chunks, look));
    // Nobody says where they are: on one host they need most of it.
    let taken = answer.stages.iter().map(|stage| {
        let devices = stage.config.as_ref().map_or(1, devices_of);
        let each = hosts::of_device(stage.memory_optimizations.as_ref(), stage.chunk_traffic.as_ref());
        ("", each.saturating_mul(devices.into()))
    });
    text.push_str(&hosts::most(taken));
    text.push_str(&format!(
        "by {} from {} of {}\n",
        or_none(&answer.predictor, look),
        plural(answer.measurement_count, "measurement"),
        plain(&answer.profile)
    ));
    if !answer.excluded_memory.is_empty() {
        text.push_str(&excluded(&answer.excluded_memory, look));
    }
    text
}

fn stages(answer: &PredictPlanResponse, look: Look) -> String {
    let common = common_accounting(answer.stages.iter().filter_map(|stage| stage.peak.as_ref()));
    let note = common.map_or_else(String::new, |common| format!(" ({})", accounting(common)));
    let scale = answer.stages.iter().map(bar::extent).max().unwrap_or(0);
    // One capacity stands in the header, different ones at their stages.
    let capacity = shared(answer.stages.iter().map(|stage| stage.capacity_bytes)).flatten();
    let free = capacity.map_or_else(|| "free".to_owned(), |capacity| format!("free of {}", bytes(capacity)));
    let peak = format!("peak{note}");
    let mut columns = vec![
        ("stage", Left),
        ("layers", Left),
        ("device", Right),
        (&peak, Right),
        ("margin", Right),
        ("at most", Right),
    ];
    let (asked, differ) = (answer.verdict() != Verdict::Unspecified, capacity.is_none());
    if asked && differ {
        columns.push(("capacity", Right));
    }
    if asked {
        columns.push((free.as_str(), Right));
    }
    columns.push(("", Left));
    if asked {
        columns.push(("fits", Left));
    }
    let mut grid = Grid::new(&columns, look);
    for (index, stage) in answer.stages.iter().enumerate() {
        let mut cells = vec![
            index.to_string(),
            layers(stage.config.as_ref(), &stage.first_layer_name, &stage.last_layer_name, look),
            devices(stage, look),
            stage.peak.as_ref().map_or_else(|| look.none().to_owned(), |peak| figure(peak, common)),
            margin(stage, look),
            maybe_bytes(stage.interval.as_ref().map(|interval| interval.high_bytes), look),
        ];
        if asked && differ {
            cells.push(maybe_bytes(stage.capacity_bytes, look));
        }
        if asked {
            cells.push(maybe_bytes(stage.slack_bytes, look));
        }
        cells.push(bar::draw(stage, scale));
        if asked {
            cells.push(fits(stage.verdict(), look));
        }
        grid.rows(cells);
    }
    let broken_down = answer.stages.iter().any(|stage| stage.breakdown.is_some());
    let legend = if broken_down { bar::LEGEND } else { bar::PLAIN_LEGEND };
    format!("{}{legend}\n", grid.render())
}

/// Devices of a stage; a degree of 0 is the default, 1.
fn devices_of(stage: &StageConfig) -> i32 {
    stage.data_parallel_size.max(1).saturating_mul(stage.tensor_parallel_size.max(1))
}

/// One device, or the first and last one of several.
fn devices(stage: &StagePrediction, look: Look) -> String {
    let devices = stage.config.as_ref().map_or(1, devices_of);
    let first = stage.first_device;
    if devices == 1 {
        first.to_string()
    } else {
        format!("{first}{}{}", look.to(), first.saturating_add(devices - 1))
    }
}

/// Half the interval, in bytes where it is wider than the figure, and how far that is from the profile: `±2.0 % profiled`.
fn margin(stage: &StagePrediction, look: Look) -> String {
    let origin = match stage.coverage() {
        ProfileCoverage::Unspecified => "",
        origin => &word(origin.as_str_name(), "PROFILE_COVERAGE_"),
    };
    let predicted = stage.peak.as_ref().map_or(0, |peak| peak.bytes);
    format!("{} {origin}", text::bytes_margin(stage.interval.as_ref(), predicted, look))
}

fn excluded(excluded: &[ExcludedMemory], look: Look) -> String {
    let mut grid = Grid::new(&[("not in these figures", Left), ("typically", Right), ("", Left)], look);
    for memory in excluded {
        let typical = match (memory.typical_low_bytes, memory.typical_high_bytes) {
            (Some(low), Some(high)) => format!("{} {} {}", bytes(low), look.to(), bytes(high)),
            _ => look.none().to_owned(),
        };
        grid.row([plain(&memory.description), typical, plain(&memory.note)]);
    }
    grid.render()
}

#[cfg(test)]
mod tests;
