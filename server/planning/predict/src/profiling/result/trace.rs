//! Whether an allocation trace is of the layer that was trained, and leaves no more behind than was there.

use loadmaster_proto::cluster::device::{Backend, Device};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::{RunSpec, Work};
use loadmaster_proto::measure::trace::{LayerContent, LayerTrace, Passage, Slot, block_of};

use super::{offload, same};

/// Ranks record the layers that they train alone, and no others. The allocation trace is a well-formed one already: no
/// event frees what is not there.
pub(super) fn check(spec: &RunSpec, measured: &Measurement, device: &Device) -> Result<(), Invalid> {
    let is_alone = matches!(spec.strategy.work, Work::Solo(_)) && measured.stage.layer_count() == 1;
    let is_recorded = is_alone && spec.strategy.chunks().is_none();
    match (&measured.trace, is_recorded) {
        (None, false) => Ok(()),
        (None, true) => Err(Invalid::field(
            "tape",
            "is missing, but runs of a single layer must record an allocation trace",
        )),
        (Some(_), false) => {
            Err(Invalid::field("tape", "is set, but only runs of a single layer record an allocation trace"))
        }
        (Some(trace), true) => {
            of_layer(spec, measured, trace, device).map_err(|invalid| invalid.under("tape"))
        }
    }
}

fn of_layer(
    spec: &RunSpec,
    measured: &Measurement,
    trace: &LayerTrace,
    device: &Device,
) -> Result<(), Invalid> {
    let layer = measured.stage.first_layer;
    same("layer", &trace.layer, &layer)?;
    let content = LayerContent::of(&spec.model, layer)
        .ok_or_else(|| Invalid::field("layer", format!("{layer} is not a layer of the model")))?;
    same("content", &trace.content, &content.fingerprint())?;
    let is_untrained_before = layer > 0 && content.untrained_before;
    if trace.untrained_input.is_some() != is_untrained_before {
        let why = if is_untrained_before {
            "is missing. A layer that follows only layers without parameters requires this field"
        } else {
            "is set, but this layer is the first, or an earlier layer has parameters. Remove this field"
        };
        return Err(Invalid::field("untrained_input", why));
    }
    let most = device.physical.max(device.capacity).0;
    let untrained = trace.untrained_input.iter().flat_map(|pair| pair.iter());
    let passages =
        [("first", &trace.first), ("later", &trace.later), ("without_graph", &trace.without_graph)];
    for (field, passage) in passages.into_iter().chain(untrained.map(|passage| ("untrained_input", passage)))
    {
        let highest = highest(passage);
        if highest > most {
            let why = format!("allocates {highest} bytes at once, but the device has {most} bytes");
            return Err(Invalid::field(field, why));
        }
    }
    if trace.overhead > most {
        let why = format!("{} exceeds the {most} bytes of the device", trace.overhead);
        return Err(Invalid::field("overhead_bytes", why));
    }
    let actions = match spec.strategy.work {
        Work::Solo(position) => spec.strategy.actions_at(&position),
        Work::Partitioning(_) => return Ok(()),
    };
    // The first backward pass of an iteration makes the gradients of all parameters, which stay until the step.
    let (gradients, left) = (offload::staying(&actions, measured.static_bytes).gradients, left(&trace.first));
    if left < gradients && !spec.strategy.training.schedule.updates_always() {
        let why = format!(
            "leaves {left} bytes allocated, less than the {gradients} bytes of the gradients that must stay"
        );
        return Err(Invalid::field("first", why));
    }
    // Only CPU slots count bytes to the last one.
    if device.backend == Backend::Cpu { balances(spec, measured, trace) } else { Ok(()) }
}

/// What the passages of an iteration leave behind lies there when its last one is over, so the peak has it.
fn balances(spec: &RunSpec, measured: &Measurement, trace: &LayerTrace) -> Result<(), Invalid> {
    let Work::Solo(position) = spec.strategy.work else { return Ok(()) };
    let statics = offload::staying(&spec.strategy.actions_at(&position), measured.static_bytes);
    let later =
        u64::from(spec.strategy.training.micro_batches.saturating_sub(1)).saturating_mul(left(&trace.later));
    let lasting = statics.parameters.saturating_add(statics.optimizer).saturating_add(statics.buffers);
    let held = lasting.saturating_add(left(&trace.first)).saturating_add(later);
    if held > measured.peak_allocated.0 {
        let why = format!(
            "leaves {} bytes allocated, and each later micro-batch leaves {} more bytes. With weights, optimizer \
             state and buffers, {held} bytes remain allocated, more than the measured peak of {} bytes",
            left(&trace.first),
            left(&trace.later),
            measured.peak_allocated.0
        );
        return Err(Invalid::field("first", why));
    }
    Ok(())
}

/// Bytes that are live when a passage is over.
fn left(passage: &Passage) -> u64 {
    passage.left().into_iter().fold(0, |sum, block| sum.saturating_add(bytes_of(passage, block)))
}

/// The most bytes that are live in a passage.
fn highest(passage: &Passage) -> u64 {
    let (mut live, mut highest) = (0_u64, 0);
    for &event in Slot::ALL.into_iter().flat_map(|slot| passage.slot(slot)) {
        let (block, allocated) = block_of(event);
        let bytes = bytes_of(passage, block);
        live = if allocated { live.saturating_add(bytes) } else { live.saturating_sub(bytes) };
        highest = highest.max(live);
    }
    highest
}

fn bytes_of(passage: &Passage, block: usize) -> u64 {
    passage.blocks.get(block).copied().unwrap_or_default()
}
