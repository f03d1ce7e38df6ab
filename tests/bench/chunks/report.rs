//! What is printed, and how much of the memory that there is for chunks they take.
//!
//! Both caps are less what is no chunk: the device's less N(t) at the moment when it holds most, and the host's less the pool of
//! activations that are there. What chunks take of that is R(t) of the same moment, and all that the host has of them for good.
//!
//! That counts bytes that are there, also twice: parameters that layers compute with on the device, while the host has them, too,
//! and ends of chunks that are empty. So it is told beside what PatrickStar published of its largest model, 86.5 %: each
//! parameter's 14 bytes (Adam, 16-bit) once, of the same caps. Who keeps fewer bytes of a parameter, since the 16-bit value is
//! the rounded fp32 one, may have more than all of them.

use std::fmt::Write;

use anyhow::Result;
use loadmaster_memory::chunks::{ChunkPlan, StepMemory};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::cluster::quantity::show_bytes_per_second;
use loadmaster_proto::measure::chunked::ChunkRun;

use crate::chunks::machine::{Machine, Setting};
use crate::chunks::profile::Profile;
use crate::chunks::rule::{Attempt, Largest, Rule, Shared};

pub(crate) fn setting(setting: &Setting) -> String {
    let Setting { backend, device, host, hidden_size, micro_batches, pace, .. } = setting;
    let slot = if *backend == Backend::Cuda { "GPU, of which plans may allocate" } else { "CPU slot of" };
    format!(
        "GPT-2 of hidden size {hidden_size} in bf16 with Adam on a {slot} {device}, with {host} of the host, copies {:.0} MB/s \
         each way; the largest models with one micro-batch of a sample, compared with {micro_batches}\n",
        pace / 1e6
    )
}

pub(crate) fn profile(profile: &Profile) -> String {
    format!(
        "{} distinct layers recorded; the host updates {:.2} billion parameters a second\n\n",
        profile.layers(),
        profile.update / 1e9
    )
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
    let mut text = String::new();
    let name = rule.name();
    match (blocks, attempt) {
        (Some(blocks), Some(attempt)) => {
            let host = attempt.measured.chunks.as_ref().map_or(Bytes(0), |of| of.host_bytes);
            let _ = write!(
                text,
                "{name}: {blocks} blocks, {:.2} M parameters; device {} ({}), host {host}, {:.2} bytes of both a parameter",
                *parameters as f64 / 1e6,
                attempt.measured.peak_allocated,
                as_predicted(attempt),
                (attempt.measured.peak_allocated.0 + host.0) as f64 / *parameters as f64,
            );
            let more = machine.model(blocks + 1)?.parameter_count().saturating_sub(*parameters);
            text += &used(attempt, (*parameters, more), &machine.setting);
        }
        _ => {
            let _ = write!(text, "{name}: trains none");
        }
    }
    let _ =
        write!(text, "\n  one block more has no plan: {refused}\n  by the plan for twice the room: {next}");
    Ok(text)
}

/// How much of both caps the largest model of a rule uses, and what keeps a block more out.
fn used(attempt: &Attempt, (parameters, more): (u64, u64), setting: &Setting) -> String {
    let (device, host) = (setting.device, setting.host);
    let Some((plan, run)) = attempt.plan.as_ref().zip(attempt.measured.chunks.as_ref()) else {
        let share = attempt.measured.peak_allocated.0 as f64 / device.0.max(1) as f64;
        return format!("\n  used: {:.2} % of the device, nothing of the host", 100.0 * share);
    };
    let planned = Used::planned(plan, (device, host));
    let measured = Used::measured(run, plan, (device, host));
    let as_planned = if planned == measured {
        "as planned".to_owned()
    } else {
        format!("NOT as planned, {:.2} %", 100.0 * planned.share())
    };
    let Used { step, device, device_room, host, host_room } = measured;
    let goal = if attempt.rule == Rule::Ours { "; goal 96 %" } else { "" };
    // As many bytes a parameter as those that are there take.
    let next = measured.share() * more as f64 / parameters.max(1) as f64;
    format!(
        "\n  used: {:.2} % of both caps less what is no chunk ({as_planned}{goal}): {device} of {device_room} of the device in step \
         {step}, where it holds most, and {host} of {host_room} of the host; one block more takes {:.2} %, {:.2} % are left\
         \n  14 bytes a parameter are {:.2} % of the same (PatrickStar published 86.5 %)",
        100.0 * measured.share(),
        100.0 * next,
        100.0 * (1.0 - measured.share()).max(0.0),
        100.0 * measured.model_share(parameters),
    )
}

pub(crate) fn ratios(all: &[Largest]) -> String {
    let of = |rule: Rule| all.iter().find(|of| of.rule == rule).map_or(0.0, |of| of.parameters as f64);
    let ours = of(Rule::Ours);
    let ratio = |rule| ours / of(rule).max(1.0);
    format!(
        "\nlargest of ours: {:.2} × plain (goal 15), {:.2} × static (goal 2.3), {:.2} × PatrickStar mode (goal 1.1)\n",
        ratio(Rule::Plain),
        ratio(Rule::Static),
        ratio(Rule::Patrickstar)
    )
}

pub(crate) fn compared(all: &[Attempt], setting: &Setting) -> String {
    let blocks = all.first().map_or(0, |of| of.blocks);
    let mut text = format!(
        "\n{blocks} blocks, {} micro-batches, {:.0} MB/s\n{:<30}device       host        predicted   measured  error    up         \
         down       planned in  waits for\n",
        setting.micro_batches,
        setting.pace / 1e6,
        ""
    );
    let seconds = |rule: Rule| all.iter().find(|of| of.rule == rule).map(|of| of.measured.iteration_seconds);
    for of in all {
        let (Some(plan), Some(told)) = (&of.plan, &of.measured.chunks) else { continue };
        let (predicted, measured) = (plan.lanes.iteration_seconds, of.measured.iteration_seconds);
        let as_planned = (told.up_bytes, told.down_bytes) == (plan.moved.up, plan.moved.down);
        let _ = writeln!(
            text,
            "{:<30}{:>10}{}{:>12}{} {:>9.3} s {:>8.3} s {:>+6.1} % {:>7.0} MB {:>7.0} MB{} {:>8.0} ms  {:.2} + {:.2} s, {} {}",
            of.rule.name(),
            of.measured.peak_allocated.to_string(),
            if of.measured.peak_allocated == of.predicted_peak { "" } else { " (NOT as planned)" },
            told.host_bytes.to_string(),
            if told.host_bytes == plan.host_bytes { "" } else { " (NOT as planned)" },
            predicted,
            measured,
            100.0 * (predicted - measured) / measured,
            told.up_bytes as f64 / 1e6,
            told.down_bytes as f64 / 1e6,
            if as_planned { "" } else { " (NOT as planned)" },
            1e3 * of.planned_in,
            told.fetch_seconds,
            told.leave_seconds,
            plan.stage.order,
            plan.recompute,
        );
    }
    for (rule, goal) in [(Rule::Patrickstar, 2.0), (Rule::Static, 1.3)] {
        if let Some((own, ours)) = seconds(rule).zip(seconds(Rule::Ours)) {
            let _ = writeln!(text, "as fast as {}: {:.2} times (goal {goal})", rule.name(), own / ours);
        }
    }
    text
}

/// The same model by our rule on several ranks.
pub(crate) fn shared(all: &[Shared]) -> String {
    let mut text = "\nranks  device      host each   predicted   measured  error    up, down each        gathered, scattered each\n".to_owned();
    for Shared { ranks, link, plan, measured } in all {
        let seconds = measured.iter().map(|of| of.iteration_seconds).fold(0.0, f64::max);
        let peak = measured.iter().map(|of| of.peak_allocated).max().unwrap_or_default();
        let moved = plan.moved;
        let are_as_planned = measured.iter().all(|of| {
            of.peak_allocated == plan.peak()
                && of.chunks.as_ref().is_some_and(|told| {
                    (told.up_bytes, told.down_bytes) == (moved.up, moved.down)
                        && (told.gathered_bytes, told.scattered_bytes) == (moved.gathered, moved.scattered)
                        && told.host_bytes == plan.host_bytes
                })
        });
        let predicted = plan.lanes.iteration_seconds;
        let [up, down, gathered, scattered] =
            [moved.up, moved.down, moved.gathered, moved.scattered].map(|bytes| bytes as f64 / 1e6);
        let link = link.map_or_else(String::new, |link| {
            format!(
                " at {} and {:.0} us, {:.2} s of it",
                show_bytes_per_second(link.bytes_per_second),
                1e6 * link.latency_seconds,
                plan.lanes.exchange_seconds
            )
        });
        let _ = writeln!(
            text,
            "{ranks:<6} {:<11} {:<11} {predicted:>7.3} s {seconds:>8.3} s {:>+6.1} % {up:>7.0}, {down:.0} MB {gathered:>9.0}, \
             {scattered:.0} MB{link}{}, {} {}",
            peak.to_string(),
            plan.host_bytes.to_string(),
            100.0 * (predicted - seconds) / seconds,
            if are_as_planned { " (bytes as planned)" } else { " (NOT as planned)" },
            plan.stage.order,
            plan.recompute,
        );
    }
    text
}

/// Bytes that PatrickStar counts of a parameter: value or gradient, fp32 copy and two moments.
const MODEL_BYTES: u64 = 14;

/// What chunks take, and what there is for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    /// The first step in which the device holds most, from 0.
    pub(crate) step: usize,
    /// Bytes of chunks on the device then.
    pub(crate) device: Bytes,
    /// What of the device is there for them then.
    pub(crate) device_room: Bytes,
    pub(crate) host: Bytes,
    pub(crate) host_room: Bytes,
}

impl Used {
    /// What a plan says of caps for device and host.
    pub(crate) fn planned(plan: &ChunkPlan, caps: (Bytes, Bytes)) -> Self {
        let held = StepMemory { other: &plan.needed, resident: &plan.resident };
        Self::of(held, plan.host_bytes, (caps, plan.actions.host_pool))
    }

    /// What a rank told that trained by the plan.
    pub(crate) fn measured(run: &ChunkRun, plan: &ChunkPlan, caps: (Bytes, Bytes)) -> Self {
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
    pub(crate) fn share(&self) -> f64 {
        self.share_of(self.device.0.saturating_add(self.host.0))
    }

    /// What of it the model's state would take that PatrickStar counts.
    pub(crate) fn model_share(&self, parameters: u64) -> f64 {
        self.share_of(parameters.saturating_mul(MODEL_BYTES))
    }

    /// What of it so many bytes are.
    fn share_of(&self, bytes: u64) -> f64 {
        bytes as f64 / self.room().max(1) as f64
    }
}
