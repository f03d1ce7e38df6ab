//! What is printed, and how much of the memory that there is for chunks they take.
//!
//! Both caps are less what is no chunk: the device's less N(t) at the moment when it holds most, and the host's less the pool of
//! activations that are there. What chunks take of that is R(t) of the same moment, and all that the host has of them for good.
//!
//! That counts bytes that are there, also twice: parameters that layers compute with on the device, while the host has them, too,
//! and ends of chunks that are empty. So it is told beside what PatrickStar published of its largest model, 86.5 %: each
//! parameter's 14 bytes (Adam, 16-bit) once, of the same caps. Who keeps fewer bytes of a parameter, since the 16-bit value is
//! the rounded fp32 one, may have more than all of them.

use std::fmt;

use anyhow::Result;
use loadmaster_memory::chunks::{ChunkPlan, StepMemory};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::cluster::quantity::show_bytes_per_second;
use loadmaster_proto::measure::chunked::ChunkRun;

use crate::chunks::machine::{Machine, Setting};
use crate::chunks::rule::{Attempt, Largest, Rule, Shared};
use crate::report::Goal;
use crate::table::{Table, error, millions, percent, times};

/// Of both caps less what is no chunk, that ours uses.
const USED: f64 = 0.96;
/// Of largest models: ours over those of others.
const LARGER: [(Rule, f64); 3] = [(Rule::Plain, 15.0), (Rule::Static, 2.3), (Rule::Patrickstar, 1.1)];
/// Of seconds: those of others over ours.
const FASTER: [(Rule, f64); 2] = [(Rule::Patrickstar, 2.0), (Rule::Static, 1.3)];

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, device, host, hidden_size, micro_batches, pace, .. } = self;
        let slot = if *backend == Backend::Cuda { "GPU, of which plans may allocate" } else { "CPU slot of" };
        write!(
            f,
            "GPT-2 of hidden size {hidden_size} in bf16 with Adam on a {slot} {device}, with {host} of the host, copies {} each \
             way; the largest models with one micro-batch of a sample, compared with {micro_batches}",
            megabytes(*pace)
        )
    }
}

/// `250 MB/s`.
fn megabytes(pace: f64) -> String {
    format!("{:.0} MB/s", pace / 1e6)
}

fn as_predicted(attempt: &Attempt) -> String {
    let (predicted, measured) = (attempt.predicted_peak, &attempt.measured);
    let is_so = measured.peak_allocated == predicted;
    let off = 100.0 * (predicted.0 as f64 / measured.peak_allocated.0.max(1) as f64 - 1.0);
    let held = measured.peak_reserved.map_or_else(String::new, |held| format!(", its allocator kept {held}"));
    if is_so { format!("to the byte{held}") } else { format!("NOT as predicted, {off:+.3} %{held}") }
}

pub(crate) fn largest(found: &Largest, machine: &Machine) -> Result<String> {
    let Largest { rule, blocks, parameters, attempt, refused, next } = found;
    let own = match attempt {
        None => "trains none".to_owned(),
        Some(attempt) => {
            let device = attempt.measured.peak_allocated;
            let host = attempt.measured.chunks.as_ref().map_or(Bytes(0), |row| row.host_bytes);
            let more = machine.model(blocks + 1)?.parameter_count().saturating_sub(*parameters);
            format!(
                "{blocks} blocks, {} parameters; device {device} ({}), host {host}, {:.2} bytes of both a parameter\n{}",
                millions(*parameters),
                as_predicted(attempt),
                (device.0 + host.0) as f64 / *parameters as f64,
                used(attempt, (*parameters, more), &machine.setting)
            )
        }
    };
    Ok(format!(
        "{}: {own}\n  one block more has no plan: {refused}\n  by the plan for twice the room: {next}",
        rule.name()
    ))
}

/// How much of both caps the largest model of a rule uses, as planned and as measured; none where nothing is in chunks.
fn both_used(attempt: &Attempt, setting: &Setting) -> Option<[Used; 2]> {
    let caps = (setting.device, setting.host);
    let (plan, run) = attempt.plan.as_ref().zip(attempt.measured.chunks.as_ref())?;
    Some([Used::planned(plan, caps), Used::measured(run, plan, caps)])
}

/// The same for people, and what keeps a block more out.
fn used(attempt: &Attempt, (parameters, more): (u64, u64), setting: &Setting) -> String {
    let Some([planned, measured]) = both_used(attempt, setting) else {
        let share = attempt.measured.peak_allocated.0 as f64 / setting.device.0.max(1) as f64;
        return format!("  used: {} of the device, nothing of the host", percent(share));
    };
    let as_planned = if planned == measured {
        "as planned".to_owned()
    } else {
        format!("NOT as planned, {}", percent(planned.share()))
    };
    let Used { step, device, device_room, host, host_room } = measured;
    // As many bytes a parameter as those that are there take.
    let next = measured.share() * more as f64 / parameters.max(1) as f64;
    format!(
        "  used: {} of both caps less what is no chunk ({as_planned}): {device} of {device_room} of the device in step \
         {step}, where it holds most, and {host} of {host_room} of the host; one block more takes {}, {} are left\
         \n  14 bytes a parameter are {} of the same (PatrickStar published 86.5 %)",
        percent(measured.share()),
        percent(next),
        percent((1.0 - measured.share()).max(0.0)),
        percent(measured.model_share(parameters)),
    )
}

pub(crate) fn goals_of_largest(all: &[Largest], setting: &Setting) -> Vec<Goal> {
    let row = |rule: Rule| all.iter().find(|row| row.rule == rule).filter(|row| row.blocks > 0);
    let parameters = |rule| row(rule).map(|row| row.parameters as f64);
    let larger = |(rule, least): (Rule, f64)| {
        let ratio = parameters(Rule::Ours).zip(parameters(rule)).map(|(ours, other)| ours / other);
        Goal::at_least(format!("largest of ours, of that of {}", rule.name()), least, ratio, times)
    };
    let used = row(Rule::Ours).and_then(|row| both_used(row.attempt.as_ref()?, setting));
    let used = used.map(|[_, measured]| measured.share());
    let used = Goal::at_least("caps less what is no chunk that ours uses", USED, used, percent);
    LARGER.into_iter().map(larger).chain([used]).collect()
}

/// How much faster ours is than others.
pub(crate) fn goals_of_seconds(all: &[Attempt], setting: &Setting) -> Vec<Goal> {
    let seconds =
        |rule: Rule| all.iter().find(|row| row.rule == rule).map(|row| row.measured.iteration_seconds);
    let faster = |(rule, least): (Rule, f64)| {
        let (own, ours) = seconds(rule).zip(seconds(Rule::Ours))?;
        let what = format!("as fast as {}, {}", rule.name(), megabytes(setting.pace));
        Some(Goal::at_least(what, least, Some(own / ours), times))
    };
    FASTER.into_iter().filter_map(faster).collect()
}

/// What is not as it was planned is marked.
fn marked(text: impl ToString, is_as_planned: bool) -> String {
    let mark = if is_as_planned { "" } else { " (NOT as planned)" };
    format!("{}{mark}", text.to_string())
}

/// Two amounts of bytes.
fn both(one: u64, other: u64) -> String {
    format!("{:.0}, {:.0} MB", one as f64 / 1e6, other as f64 / 1e6)
}

pub(crate) fn compared(all: &[Attempt], setting: &Setting) -> String {
    let blocks = all.first().map_or(0, |row| row.blocks);
    let head =
        ["", "device", "host", "predicted", "measured", "error", "up, down", "planned in", "waits for"];
    let mut table = Table::new(&head);
    for row in all {
        let (Some(plan), Some(run)) = (&row.plan, &row.measured.chunks) else { continue };
        let (predicted, measured) = (plan.lanes.iteration_seconds, row.measured.iteration_seconds);
        let are_moved = (run.up_bytes, run.down_bytes) == (plan.moved.up, plan.moved.down);
        table.row([
            row.rule.name().to_owned(),
            marked(row.measured.peak_allocated, row.measured.peak_allocated == row.predicted_peak),
            marked(run.host_bytes, run.host_bytes == plan.host_bytes),
            format!("{predicted:.3} s"),
            format!("{measured:.3} s"),
            error(predicted / measured - 1.0),
            marked(both(run.up_bytes, run.down_bytes), are_moved),
            format!("{:.0} ms", 1e3 * row.planned_in),
            format!(
                "{:.2} + {:.2} s, {} {}",
                run.fetch_seconds, run.leave_seconds, plan.stage.order, plan.recompute
            ),
        ]);
    }
    let Setting { micro_batches, pace, .. } = setting;
    format!("{blocks} blocks, {micro_batches} micro-batches, {}\n{table}", megabytes(*pace))
}

/// The same model by our rule on several ranks.
pub(crate) fn shared(all: &[Shared]) -> String {
    let seconds = ["predicted", "measured", "error"];
    let bytes = ["up, down each", "gathered, scattered each", "link"];
    let mut table = Table::new(&[&["ranks", "device", "host each"][..], &seconds, &bytes].concat());
    for Shared { ranks, link, plan, measured } in all {
        let seconds = measured.iter().map(|row| row.iteration_seconds).fold(0.0, f64::max);
        let peak = measured.iter().map(|row| row.peak_allocated).max().unwrap_or_default();
        let moved = plan.moved;
        let are_as_planned = measured.iter().all(|row| {
            row.peak_allocated == plan.peak()
                && row.chunks.as_ref().is_some_and(|run| {
                    (run.up_bytes, run.down_bytes) == (moved.up, moved.down)
                        && (run.gathered_bytes, run.scattered_bytes) == (moved.gathered, moved.scattered)
                        && run.host_bytes == plan.host_bytes
                })
        });
        let predicted = plan.lanes.iteration_seconds;
        let link = link.map_or_else(String::new, |link| {
            format!(
                "{} and {:.0} us, {:.2} s of it, ",
                show_bytes_per_second(link.bytes_per_second),
                1e6 * link.latency_seconds,
                plan.lanes.exchange_seconds
            )
        });
        let as_planned = if are_as_planned { "bytes as planned" } else { "bytes NOT as planned" };
        table.row([
            ranks.to_string(),
            peak.to_string(),
            plan.host_bytes.to_string(),
            format!("{predicted:.3} s"),
            format!("{seconds:.3} s"),
            error(predicted / seconds - 1.0),
            both(moved.up, moved.down),
            both(moved.gathered, moved.scattered),
            format!("{link}{as_planned}, {} {}", plan.stage.order, plan.recompute),
        ]);
    }
    table.to_string()
}

/// Bytes that PatrickStar counts of a parameter: value or gradient, fp32 copy and two moments.
const MODEL_BYTES: u64 = 14;

/// What chunks take, and what there is for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Used {
    /// The first step in which the device holds most, from 0.
    step: usize,
    /// Bytes of chunks on the device then.
    device: Bytes,
    /// What of the device is there for them then.
    device_room: Bytes,
    host: Bytes,
    host_room: Bytes,
}

impl Used {
    /// What a plan says of caps for device and host.
    fn planned(plan: &ChunkPlan, caps: (Bytes, Bytes)) -> Self {
        let held = StepMemory { other: &plan.needed, resident: &plan.resident };
        Self::of(held, plan.host_bytes, (caps, plan.actions.host_pool))
    }

    /// What a rank told that trained by the plan.
    fn measured(run: &ChunkRun, plan: &ChunkPlan, caps: (Bytes, Bytes)) -> Self {
        let held = StepMemory { other: &run.other_bytes, resident: &run.payload_bytes };
        Self::of(held, run.host_bytes, (caps, plan.actions.host_pool))
    }

    fn of(
        held: StepMemory<'_>,
        host: Bytes,
        ((device_cap, host_cap), pool): ((Bytes, Bytes), Bytes),
    ) -> Self {
        let (step, most) = held.highest();
        let device = held.resident.get(step).copied().unwrap_or(0);
        Self {
            step,
            device: Bytes(device),
            device_room: Bytes(device_cap.0.saturating_sub(most.saturating_sub(device))),
            host,
            host_room: Bytes(host_cap.0.saturating_sub(pool.0)),
        }
    }

    /// All that there is for chunks.
    fn room(&self) -> u64 {
        self.device_room.0.saturating_add(self.host_room.0)
    }

    /// What of it chunks take.
    fn share(&self) -> f64 {
        self.share_of(self.device.0.saturating_add(self.host.0))
    }

    /// What of it the model's state would take that PatrickStar counts.
    fn model_share(&self, parameters: u64) -> f64 {
        self.share_of(parameters.saturating_mul(MODEL_BYTES))
    }

    /// What of it so many bytes are.
    fn share_of(&self, bytes: u64) -> f64 {
        bytes as f64 / self.room().max(1) as f64
    }
}
