//! The run in chunks that a profile may have besides: the whole model on one device, with what a training in chunks needs of
//! the host.
//!
//! How fast the host updates chunks, and what a device holds besides them, does not follow from layers that are trained alone.
//! So it has nothing else to wait for: chunks come when they are needed, layers are computed again, all state is on the host.
//! Predictors learn nothing from it, for its peak is no plain stage's.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::host::HostCopy;
use loadmaster_proto::chunks::lists::Lists;
use loadmaster_proto::chunks::packing::{ChunkLayout, Packing};
use loadmaster_proto::chunks::residency::paged::Paging;
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::chunks::stage::{ChunkMoves, ChunkResidency, ChunkedStage, StepKernel, UpdateTime};
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::run::{SoloStage, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Precision, RecomputePolicy, TrainingSpec};

use super::minimal::CHECKED_MICRO_BATCHES;
use super::planned::{PlannedRun, Purpose};

/// Chunks of the model, where its largest atom is in one of them.
const PARTS: u64 = 16;
/// Buffers that gradients pass through.
const STAGING: usize = 4;

/// The run of these settings; none where they name no memory of the host.
///
/// # Errors
/// The training cannot be in chunks, or the host's memory does not hold the model: `training.…` or `host_memory_bytes`.
pub fn in_chunks(settings: &ProfileSettings, model: &Model) -> Result<Option<PlannedRun>, Invalid> {
    let Some(host_memory) = settings.host_memory else { return Ok(None) };
    let training = TrainingSpec {
        micro_batches: settings.training.micro_batches.min(CHECKED_MICRO_BATCHES),
        recompute: RecomputePolicy::Layer,
        seed: 0,
        ..settings.training
    };
    let lists = Lists::new(training.precision, &training.optimizer).map_err(|of| of.under("training"))?;
    let chunks = ChunkedStage {
        layout: ChunkLayout::Aligned,
        chunk_elements: chunk_elements(model, lists).map_err(named)?,
        order: ChunkOrder::Layer,
        host_copy: host_copy(&settings.device_kind, training.precision),
        staging: STAGING,
        moves: ChunkMoves::Dropped,
        update: UpdateTime::OnArrival,
        kernel: StepKernel::OnePass,
        on_device: Vec::new(),
        residency: ChunkResidency::Paged(Paging::AT_NEED),
        // All that there is: what it takes of that is known when its chunks are laid out.
        host_memory: Bytes(u64::MAX),
    };
    let stage = StageConfig::single(0, model.layers().len().saturating_sub(1));
    let laid = chunks.lay_out_stage(model, &training, (&stage, 1))?;
    if laid.host.bytes > host_memory.0 {
        let why = format!(
            "is {host_memory}, and the model in chunks takes {} of the host: give at least {} bytes, or leave it out",
            Bytes(laid.host.bytes),
            laid.host.bytes
        );
        return Err(named(Invalid::field("", why)));
    }
    Ok(Some(PlannedRun {
        training,
        work: Work::Solo(SoloStage { stage, stage_count: 1, stage_index: 0 }),
        chunks: Some(Box::new(ChunkedStage { host_memory, ..chunks })),
        purpose: Purpose::Check,
    }))
}

fn named(invalid: Invalid) -> Invalid {
    invalid.under("host_memory_bytes")
}

/// A few chunks, and none larger than the others because of a single atom.
fn chunk_elements(model: &Model, lists: Lists) -> Result<u64, Invalid> {
    let sequence = Sequence::of_model(model);
    let packing = Packing::new(&sequence, ChunkLayout::Aligned, lists)?;
    let all: u64 = packing.extents().fold(0, u64::saturating_add);
    packing.checked_size(packing.largest_atom().max(all / PARTS))
}

/// The leaner one, where the rank has it: a GPU's chunks are not rounded on their way.
fn host_copy(device_kind: &str, precision: Precision) -> HostCopy {
    if device_kind == CPU_KIND || precision == Precision::Fp32 { HostCopy::Made } else { HostCopy::Kept }
}
