//! What plans are, fact by fact: of one plan, or of several side by side.

use loadmaster_proto::wire::v1::{Objective, ParallelismLayout, Plan, Schedule, Timeline, TrainingSpec};

use super::Table;
use super::placement::recompute;
use crate::devices::{self, notation};
use crate::table::plan::recommendation::{BY_PREDICTIONS, FETCHES_FEWEST, STAGES_GIVEN, rests_on_seconds};
use crate::table::{chunked, common_ledger, ledger, training};
use crate::text::label::{id, safe};
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, count, percent, plural, predicted_seconds, ratio, seconds, word};

/// Name of a fact and how to tell it; nothing where a plan has none.
type Fact = (&'static str, fn(&Plan, Option<&Timeline>, Look) -> Option<String>);

const FACTS: [Fact; 25] = [
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
    ("shape", |plan, _, _| {
        known(
            plan.parallelism_layout(),
            ParallelismLayout::Unspecified,
            plan.parallelism_layout().as_str_name(),
            "PARALLELISM_LAYOUT_",
        )
    }),
    ("framework", |plan, _, _| some(safe(&plan.framework))),
    ("stages", |plan, _, _| some(notation(plan.stages.iter().filter_map(|stage| stage.config.as_ref())))),
    ("schedule", |plan, _, _| {
        plan.training.as_ref().map(|training| match training.schedule() {
            Schedule::Unspecified | Schedule::Gpipe => "gpipe".to_owned(),
            Schedule::OneFOneB if plan.virtual_stage_count > 1 => {
                format!("1f1b, {} stages on each device in turn", plan.virtual_stage_count)
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
    ("computed again", |plan, _, _| some(computed_again(plan))),
    ("away", |plan, _, _| away(plan)),
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
                ledger(peak.accounting),
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
    ("throughput", |plan, _, _| {
        let rate = plan.iteration.as_ref()?.samples_per_second;
        Some(format!("{rate:.1} samples/s (predicted)"))
    }),
    ("bubble", |plan, timeline, _| {
        let estimated = plan.iteration.as_ref().map(|of| of.bubble_ratio);
        let simulated = timeline.map(|timeline| timeline.bubble_ratio);
        estimated.or(simulated).map(|value| format!("{} of the time (predicted)", percent(value)))
    }),
    ("price", |plan, _, _| plan.hourly_price.map(|price| format!("{price:.2} per hour (given)"))),
    ("certificate", |plan, _, look| certificate(plan, look)),
    ("solver", |plan, _, _| some(safe(&plan.solver))),
];

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn known<T: PartialEq>(value: T, unknown: T, name: &str, prefix: &str) -> Option<String> {
    (value != unknown).then(|| word(name, prefix))
}

/// Equal devices together, in the order of the stages: `4 × 2.00 GiB cpu`.
fn groups(plan: &Plan, look: Look) -> String {
    const SHOWN: usize = 4;
    let text = |group: &loadmaster_proto::wire::v1::DeviceGroup| {
        let text = format!(
            "{} {} {} {}",
            count(group.count.into()),
            look.times(),
            bytes(group.capacity_bytes),
            safe(&group.kind)
        );
        text.trim_end().to_owned()
    };
    let mut texts: Vec<String> = plan.devices.iter().take(SHOWN).map(text).collect();
    if plan.devices.len() > SHOWN {
        texts.push(format!("and {} more groups", plan.devices.len() - SHOWN));
    }
    texts.join(", ")
}

/// What stages have elsewhere meanwhile: copied in an iteration, and waited for, by all of their devices.
fn away(plan: &Plan) -> Option<String> {
    let (mut host, mut to_hosts, mut to_peers, mut waited) = (0_i64, 0_i64, 0_i64, 0.0);
    for stage in &plan.stages {
        let Some(offload) = &stage.offload_traffic else { continue };
        let (data, tensor) = devices::degrees(stage.config.as_ref());
        let devices = data.saturating_mul(tensor);
        let of_all = |bytes: i64| bytes.saturating_mul(i64::try_from(devices).unwrap_or(i64::MAX));
        host = host.saturating_add(of_all(offload.host_peak_bytes));
        for copies in &offload.copy_traffic {
            let to = if copies.peer.is_none() { &mut to_hosts } else { &mut to_peers };
            *to = to.saturating_add(of_all(copies.out_bytes));
            waited += copies.waited_seconds * devices as f64;
        }
    }
    (to_hosts > 0 || to_peers > 0).then(|| {
        format!(
            "{} out to hosts and {} to peers an iteration, {} on hosts at most; devices wait {} together (predicted)",
            bytes(to_hosts),
            bytes(to_peers),
            bytes(host),
            seconds(waited)
        )
    })
}

fn computed_again(plan: &Plan) -> String {
    let mut policies: Vec<String> = plan.stages.iter().map(recompute).collect();
    policies.dedup();
    match policies.as_slice() {
        [one] if one.is_empty() => "nothing".to_owned(),
        [one] => one.clone(),
        _ => {
            let each = |(stage, text): (usize, &loadmaster_proto::wire::v1::PlanStage)| match recompute(text)
            {
                none if none.is_empty() => None,
                policy => Some(format!("{stage}: {policy}")),
            };
            let all: Vec<String> = plan.stages.iter().enumerate().filter_map(each).take(32).collect();
            all.join(", ")
        }
    }
}

fn measured_peak(plan: &Plan) -> Option<String> {
    let measured = || plan.stages.iter().filter_map(|stage| stage.measured_peak.as_ref());
    let common = common_ledger(measured())?;
    let highest = measured().max_by_key(|figure| figure.bytes)?;
    let mut text =
        format!("{} {}, measured in {}", bytes(highest.bytes), ledger(common), safe(&highest.producer));
    let trial = plan.trials.iter().find(|trial| trial.failure_message.is_empty());
    if let Some(error) = trial.and_then(|trial| trial.peak_error_ratio) {
        text.push_str(&format!(", prediction {}", ratio(error)));
    }
    Some(text)
}

fn certificate(plan: &Plan, look: Look) -> Option<String> {
    let of = plan.certificate.as_ref()?;
    let value = match of.unit.as_str() {
        "bytes" => bytes(of.objective_value as i64),
        "seconds" => format!("{} (simulated)", seconds(of.objective_value)),
        "share" => percent(of.objective_value),
        unit => format!("{} {}", of.objective_value, safe(unit)),
    };
    let proof = match of.optimality_gap {
        _ if of.optimal && rests_on_seconds(plan) => BY_PREDICTIONS.to_owned(),
        _ if of.optimal => "proven best".to_owned(),
        Some(gap) => format!("within {} of the bound", percent(gap)),
        None => "no bound is known".to_owned(),
    };
    let stopped = if of.deadline_reached { ", stopped by the deadline" } else { "" };
    let fetches = if of.fewest_fetched_bytes { format!("; {FETCHES_FEWEST}") } else { String::new() };
    Some(format!("{value} {} {proof}{stopped}, {}{fetches}", look.dot(), plural(of.state_count, "state")))
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
    let notes = vec![format!("{unequal} marks what is not the same")];
    Table { head, rows: FACTS.into_iter().filter_map(row).collect(), notes }
}
