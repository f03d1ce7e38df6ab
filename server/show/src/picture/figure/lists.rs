//! Facts about one plan that are lists: its stages, what well-known rules would make, what came next.

use loadmaster_proto::wire::v1::{MemoryBreakdown, MemoryFigure, PipelineLayout, Plan, PlanStage};

use super::Table;
use super::placement::{layers, recompute};
use crate::devices::{self, notation};
use crate::table::{accounting, parts};
use crate::text::label::{id, safe, sentence};
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, plural, seconds};

/// Stages that a table lists.
const MOST_STAGES: usize = 200;
/// Other plans that a table lists.
const MOST_PLANS: usize = 40;

/// The stages of a plan with their bytes and seconds.
pub(crate) fn stages(plan: &Plan, look: Look) -> Table {
    let names = parts::parts(&MemoryBreakdown::default()).map(|(_, name, _)| name);
    let broken = |part: usize| {
        plan.stages
            .iter()
            .filter_map(|stage| stage.breakdown.as_ref())
            .any(|of| parts::parts(of)[part].2 != 0)
    };
    let shown: Vec<usize> = (0..names.len()).filter(|&part| broken(part)).collect();
    let mut head: Vec<String> = [
        "stage",
        "layers",
        "shared by",
        "recomputed",
        "allowed",
        "predicted peak",
        "with margin",
        "measured peak",
    ]
    .map(str::to_owned)
    .into();
    head.extend(shown.iter().map(|&part| names[part].to_owned()));
    head.extend(["forward", "backward", "step", "in flight"].map(str::to_owned));
    let none = || look.none().to_owned();
    let figure = |figure: Option<&MemoryFigure>| {
        figure
            .map_or_else(none, |figure| format!("{} {}", bytes(figure.bytes), accounting(figure.accounting)))
    };
    let row = |(index, stage): (usize, &PlanStage)| {
        let again = recompute(stage);
        let mut cells = vec![
            index.to_string(),
            layers(stage, look),
            devices::sharing(stage.config.as_ref(), look),
            if again.is_empty() { "nothing".to_owned() } else { again },
            if stage.capacity_bytes > 0 { bytes(stage.capacity_bytes) } else { none() },
            figure(stage.predicted_peak.as_ref()),
            stage.interval.as_ref().map_or_else(none, |interval| bytes(interval.high_bytes)),
            figure(stage.measured_peak.as_ref()),
        ];
        let part =
            |&part: &usize| stage.breakdown.as_ref().map_or_else(none, |of| bytes(parts::parts(of)[part].2));
        cells.extend(shown.iter().map(part));
        let times = stage.seconds.as_ref();
        let time = |value: Option<f64>| value.map_or_else(none, seconds);
        cells.push(time(times.map(|of| of.forward_seconds)));
        cells.push(time(times.map(|of| of.backward_seconds)));
        cells.push(time(times.map(|of| of.optimizer_step_seconds)));
        cells.push(stage.in_flight_micro_batch_count.to_string());
        cells
    };
    let mut notes = vec![
        "bytes: on the device of the stage with the highest peak, at the time of this peak; seconds: of one pass on \
         one device, predicted from the profile's layer times"
            .to_owned(),
    ];
    if plan.stages.len() > MOST_STAGES {
        notes.push(format!("the first {MOST_STAGES} of {}", plural(plan.stages.len(), "stage")));
    }
    Table { head, rows: plan.stages.iter().enumerate().take(MOST_STAGES).map(row).collect(), notes }
}

/// What well-known rules would make of the same devices, what came next, and what was rejected and why; nothing
/// where the plan tells of none.
pub(crate) fn others(plan: &Plan, look: Look) -> Option<Table> {
    let none = || look.none().to_owned();
    let peak = |peak: Option<&MemoryFigure>| {
        peak.map_or_else(none, |peak| bytes(peak.bytes) + " " + &accounting(peak.accounting))
    };
    let stages = |of: Option<&PipelineLayout>| of.map_or_else(none, |of| notation(&of.stages));
    let time = |value: Option<f64>| value.map_or_else(none, seconds);
    let ratio = |value: Option<f64>| value.map_or_else(none, |value| format!("{}{value:.2}", look.times()));
    let baselines = plan.baselines.iter().map(|of| {
        let fits = if of.fits { "fits" } else { "does not fit" };
        let note = [fits, &sentence(&of.note)]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("; ");
        vec![
            safe(&of.name),
            stages(of.pipeline_layout.as_ref()),
            peak(of.predicted_peak.as_ref()),
            ratio(of.peak_ratio),
            time(of.iteration_seconds),
            ratio(of.time_ratio),
            note,
        ]
    });
    let alternatives = plan.alternatives.iter().map(|of| {
        let name = if of.plan.is_empty() { "alternative".to_owned() } else { id(&of.plan) };
        let (stages, peak) = (stages(of.pipeline_layout.as_ref()), peak(of.predicted_peak.as_ref()));
        vec![name, stages, peak, none(), time(of.iteration_seconds), none(), "came next".to_owned()]
    });
    let rejected = plan.certificate.iter().flat_map(|of| &of.rejected_plans).map(|of| {
        vec![
            "rejected".to_owned(),
            sentence(&of.description),
            none(),
            none(),
            none(),
            none(),
            sentence(&of.reason),
        ]
    });
    let rows: Vec<Vec<String>> = baselines.chain(alternatives).chain(rejected).take(MOST_PLANS).collect();
    let head =
        ["plan", "stages", "predicted peak", "of this plan's", "iteration", "of this plan's", "why not"];
    let notes =
        vec!["the peaks and iteration times of all these plans are predicted from the same data".to_owned()];
    (!rows.is_empty()).then(|| Table { head: head.map(str::to_owned).into(), rows, notes })
}
