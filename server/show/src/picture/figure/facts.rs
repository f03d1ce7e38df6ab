//! What plans are, fact by fact: of one plan, or of several side by side.

use loadmaster_proto::wire::v1::{Objective, ParallelismLayout, Plan, Schedule, Timeline, TrainingSpec};

use super::Table;
use crate::devices::{self, notation};
use crate::table::plan::recommendation::STAGES_GIVEN;
use crate::table::{accounting, chunked, common_accounting, training};
use crate::text::label::{id, safe};
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, count, headline, percent, plural, predicted_seconds, ratio, seconds, title, word};

/// Name of a fact and how to tell it; nothing where a plan has none.
type Fact = (&'static str, fn(&Plan, Option<&Timeline>, Look) -> Option<String>);

const FACTS: [Fact; 24] = [
    ("title", |plan, _, look| some(title(plan.summary.as_ref(), look))),
    ("speed", |plan, _, look| headline(plan.summary.as_ref(), look).into_iter().nth(1)),
    ("optimality", |plan, _, look| headline(plan.summary.as_ref(), look).pop()),
    ("profile", |plan, _, _| some(id(&plan.profile))),
    ("model", |plan, _, _| some(id(&plan.model))),
    ("cluster", |plan, _, _| some(id(&plan.cluster))),
    ("devices", |plan, _, look| some(groups(plan, look))),
    ("objective", |plan, _, _| {
        some(match plan.objective() {
            Objective::Unspecified => STAGES_GIVEN.to_owned(),
            objective => word(objective.as_str_name(), "OBJECTIVE_"),
        })
    }),
    ("parallelism layout", |plan, _, _| {
        known(
            plan.parallelism_layout(),
            ParallelismLayout::Unspecified,
            plan.parallelism_layout().as_str_name(),
            "PARALLELISM_LAYOUT_",
        )
    }),
    ("framework", |plan, _, _| some(safe(&plan.framework))),
    ("pipeline layout", |plan, _, _| {
        some(notation(plan.stages.iter().filter_map(|stage| stage.config.as_ref())))
    }),
    ("schedule", |plan, _, _| {
        plan.training.as_ref().map(|training| match training.schedule() {
            Schedule::Unspecified | Schedule::Gpipe => "gpipe".to_owned(),
            Schedule::OneFOneB if plan.virtual_stage_count > 1 => {
                format!("1f1b, {} virtual stages per device", plan.virtual_stage_count)
            }
            Schedule::OneFOneB => "1f1b".to_owned(),
            Schedule::Pipedream => "pipedream".to_owned(),
        })
    }),
    ("precision", |plan, _, _| plan.training.as_ref().map(|of| training::precision(of).to_owned())),
    ("optimizer", |plan, _, _| {
        training::update_rule(plan.training.as_ref()?.optimizer.as_ref()).map(str::to_owned)
    }),
    ("micro-batch", |plan, _, look| {
        let batch = |of: &TrainingSpec| {
            format!("{} samples {} {}", of.micro_batch_size, look.times(), of.micro_batch_count)
        };
        plan.training.as_ref().map(batch)
    }),
    ("global batch", |plan, _, _| {
        let samples = plan.training.as_ref().map(|of| of.global_batch_size).filter(|&samples| samples > 0);
        samples.map(|samples| plural(samples, "sample"))
    }),
    ("memory optimizations", |plan, _, _| some(plan.summary.as_ref()?.memory_optimizations.join(", "))),
    ("in chunks", |plan, _, _| {
        let in_chunks = plan
            .stages
            .iter()
            .find_map(|stage| Some((stage.chunked_training.as_ref()?, stage.memory_optimizations.as_ref())));
        in_chunks.map(|(chunks, actions)| chunked::in_short(chunks, actions))
    }),
    ("predicted peak", |plan, _, _| {
        plan.predicted_peak.as_ref().map(|peak| {
            format!(
                "{} {}, predicted by {}",
                bytes(peak.bytes),
                accounting(peak.accounting),
                safe(&peak.producer)
            )
        })
    }),
    ("measured peak", |plan, _, _| measured_peak(plan)),
    ("iteration", |plan, timeline, look| {
        let estimated = plan.iteration.as_ref().map(|of| of.iteration_seconds);
        let simulated = timeline.map(|timeline| timeline.iteration_seconds);
        let share = plan.iteration.as_ref().and_then(|of| of.interval.as_ref()).map(|of| of.margin_ratio);
        let of = |value: f64| format!("{} predicted (simulated)", predicted_seconds(value, share, look));
        estimated.or(simulated).map(of)
    }),
    ("measured iteration", |plan, _, _| {
        let trial = plan.trials.iter().find(|trial| trial.failure_message.is_empty())?;
        Some(format!("{} measured in {}", seconds(trial.iteration_seconds), safe(&trial.run)))
    }),
    ("bubble", |plan, timeline, _| {
        let estimated = plan.iteration.as_ref().map(|of| of.bubble_ratio);
        let simulated = timeline.map(|timeline| timeline.bubble_ratio);
        estimated.or(simulated).map(|value| format!("{} of the time (predicted)", percent(value)))
    }),
    ("solver", |plan, _, _| some(safe(&plan.solver))),
];

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn known<T: PartialEq>(value: T, unknown: T, name: &str, prefix: &str) -> Option<String> {
    (value != unknown).then(|| word(name, prefix))
}

/// Nodes of a plan that all have as many of its devices; 1 where that differs, or no nodes are named.
fn nodes(plan: &Plan) -> i32 {
    let mut counts = std::collections::HashMap::<String, i32>::new();
    devices::of(plan).0.into_iter().for_each(|device| *counts.entry(device.node).or_default() += 1);
    let is_even = counts.values().max() == counts.values().min();
    i32::try_from(counts.len()).ok().filter(|&nodes| is_even && nodes > 0).unwrap_or(1)
}

/// Equal devices together, in the order of the stages: `4 × 2.00 GiB cpu`, or `4 × "8 × 79.00 GiB H100"` for four equal nodes.
fn groups(plan: &Plan, look: Look) -> String {
    const SHOWN: usize = 4;
    let nodes = nodes(plan);
    let text = |group: &loadmaster_proto::wire::v1::DeviceGroup| {
        let one = |devices: i32| {
            format!(
                "{} {} {} {}",
                count(devices.into()),
                look.times(),
                bytes(group.capacity_bytes),
                safe(&group.kind)
            )
        };
        if nodes > 1 && plan.devices.len() == 1 && group.count % nodes == 0 {
            return format!("{nodes} {} \"{}\"", look.times(), one(group.count / nodes).trim_end());
        }
        one(group.count).trim_end().to_owned()
    };
    let mut texts: Vec<String> = plan.devices.iter().take(SHOWN).map(text).collect();
    if plan.devices.len() > SHOWN {
        texts.push(format!("and {} more groups", plan.devices.len() - SHOWN));
    }
    texts.join(", ")
}

fn measured_peak(plan: &Plan) -> Option<String> {
    let measured = || plan.stages.iter().filter_map(|stage| stage.measured_peak.as_ref());
    let common = common_accounting(measured())?;
    let highest = measured().max_by_key(|figure| figure.bytes)?;
    let mut text =
        format!("{} {}, measured in {}", bytes(highest.bytes), accounting(common), safe(&highest.producer));
    let trial = plan.trials.iter().find(|trial| trial.failure_message.is_empty());
    if let Some(error) = trial.and_then(|trial| trial.peak_error_ratio) {
        text.push_str(&format!(", prediction {}", ratio(error)));
    }
    Some(text)
}

/// All facts of one plan.
pub(crate) fn of(plan: &Plan, timeline: Option<&Timeline>, look: Look) -> Table {
    let row = |(name, tell): Fact| tell(plan, timeline, look).map(|value| vec![name.to_owned(), value]);
    let rows = FACTS.into_iter().filter_map(row).collect();
    Table { head: vec!["fact".to_owned(), id(&plan.name)], rows, notes: Vec::new() }
}

/// The facts of several plans side by side. The first column marks those that are not the same.
pub(crate) fn differences(plans: &[Plan], timelines: &[Option<&Timeline>], look: Look) -> Table {
    let unequal = if look.unicode { "≠" } else { "!" };
    let row = |(name, tell): Fact| {
        let timeline = |at: usize| timelines.get(at).copied().flatten();
        let values: Vec<Option<String>> =
            plans.iter().enumerate().map(|(at, plan)| tell(plan, timeline(at), look)).collect();
        values.iter().any(Option::is_some).then(|| {
            let differ = values.windows(2).any(|pair| pair[0] != pair[1]);
            let mark = if differ { unequal } else { "" };
            let shown = values.into_iter().map(|value| value.unwrap_or_else(|| look.none().to_owned()));
            [mark.to_owned(), name.to_owned()].into_iter().chain(shown).collect()
        })
    };
    let mut head = vec![String::new(), "fact".to_owned()];
    head.extend(plans.iter().map(|plan| id(&plan.name)));
    let notes =
        vec![format!("{unequal} marks the facts that differ between the plans; these facts come first")];
    let mut rows: Vec<Vec<String>> = FACTS.into_iter().filter_map(row).collect();
    rows.sort_by_key(|cells| cells.first().is_some_and(String::is_empty));
    Table { head, rows, notes }
}
