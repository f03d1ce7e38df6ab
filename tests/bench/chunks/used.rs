//! How much of the memory that there is for chunks they take.
//!
//! Both caps are less what is no chunk: the device's less N(t) at the moment when it holds most, and the host's less the pool of
//! activations that are there. What chunks take of that is R(t) of the same moment, and all that the host has of them for good.
//!
//! That counts bytes that are there, also twice: parameters that layers compute with on the device, while the host has them, too,
//! and ends of chunks that are empty. So it is told beside what PatrickStar published of its largest model, 86.5 %: each
//! parameter's 14 bytes (Adam, 16-bit) once, of the same caps. Who keeps fewer bytes of a parameter, since the 16-bit value is
//! the rounded fp32 one, may have more than all of them.

use loadmaster_planning::chunks::{ChunkPlan, Held};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::chunked::ChunkRun;

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
        let held = Held { other: &plan.needed, resident: &plan.resident };
        Self::of(held, plan.host_bytes, (caps, plan.actions.host_pool))
    }

    /// What a rank told that trained by the plan.
    pub(crate) fn measured(run: &ChunkRun, plan: &ChunkPlan, caps: (Bytes, Bytes)) -> Self {
        let held = Held { other: &run.other_bytes, resident: &run.payload_bytes };
        Self::of(held, run.host_bytes, (caps, plan.actions.host_pool))
    }

    fn of(held: Held<'_>, host: Bytes, ((device_cap, host_cap), pool): ((Bytes, Bytes), Bytes)) -> Self {
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
