//! Whether what a rank in chunks moved and held is what its run asked for.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::{ChunkResidency, Chunks};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::chunked::ChunkRun;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::RunSpec;
use loadmaster_proto::training::StaticBytes;

use super::same;

/// What follows from how a run's chunks lie; none where it has none. All of its ranks have the same.
///
/// # Errors
/// They cannot lie so.
pub(super) fn laid(spec: &RunSpec) -> Result<Option<Chunks>, Invalid> {
    let (Some(chunks), Some(position)) = (&spec.strategy.chunks(), spec.stages().first().copied()) else {
        return Ok(None);
    };
    let training = spec.strategy.training_at(&position);
    chunks.lay_out_stage(&spec.model, &training, (&position.stage, position.stage_count)).map(Some)
}

/// Of a rank's parameters, gradients and state what it has all the time: in chunks none, for these come and go.
pub(super) fn staying(laid: Option<&Chunks>, of: StaticBytes) -> StaticBytes {
    match laid {
        None => of,
        Some(_) => StaticBytes { buffers: of.buffers, ..StaticBytes::default() },
    }
}

/// The least that a rank in chunks holds at its peak besides what stays: the chunks of a step.
pub(super) fn least(measured: &Measurement) -> u64 {
    let chunks = measured.chunks.as_deref();
    chunks.and_then(|chunks| chunks.payload_bytes.iter().max().copied()).unwrap_or(0)
}

/// Holds what a rank says of its chunks against those of the run, on a device of so many bytes.
pub(super) fn check(
    spec: &RunSpec,
    laid: Option<&Chunks>,
    measured: Option<&ChunkRun>,
    (most_bytes, most_seconds): (Bytes, f64),
) -> Result<(), Invalid> {
    match (laid, measured) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(Invalid::field("chunks", "is set, but the run has no chunked training")),
        (Some(_), None) => Err(Invalid::field("chunks", "is missing, but the run has chunked training")),
        (Some(laid), Some(measured)) => {
            of_rank(laid, measured, most_bytes, most_seconds).map_err(|invalid| invalid.under("chunks"))?;
            let residency = spec.strategy.chunks().map(|chunks| &chunks.residency);
            let is_planned = matches!(residency, Some(ChunkResidency::Planned(_)));
            if measured.is_replanned && !is_planned {
                return Err(Invalid::field("chunks.replanned", "is set, but no intervals were planned"));
            }
            Ok(())
        }
    }
}

fn of_rank(laid: &Chunks, measured: &ChunkRun, most: Bytes, most_seconds: f64) -> Result<(), Invalid> {
    let steps = laid.uses.steps();
    for (field, of_steps) in
        [("other_bytes", &measured.other_bytes), ("payload_bytes", &measured.payload_bytes)]
    {
        if of_steps.len() != steps {
            let why = format!("has {} entries, but the stage has {steps} steps", of_steps.len());
            return Err(Invalid::field(field, why));
        }
        if let Some((step, held)) = of_steps.iter().enumerate().find(|(_, held)| **held > most.0) {
            let why = format!("{held} exceeds the {} bytes of the device", most.0);
            return Err(Invalid::field(format!("{field}[{step}]"), why));
        }
    }
    // It is all taken before the first iteration, and known to the byte.
    same("host_bytes", &measured.host_bytes.0, &laid.host.bytes)?;
    if laid.sharing.ranks() == 1 {
        same("gathered_bytes", &measured.gathered_bytes, &0)?;
        same("scattered_bytes", &measured.scattered_bytes, &0)?;
    }
    for (field, seconds) in [
        ("fetch_seconds", measured.fetch_seconds),
        ("leave_seconds", measured.leave_seconds),
        ("step_seconds", measured.step_seconds),
    ] {
        if !(0.0..=most_seconds).contains(&seconds) {
            let why = format!("{seconds} is out of range. Use 0 to the run's {most_seconds} seconds");
            return Err(Invalid::field(field, why));
        }
    }
    Ok(())
}
