//! What a device holds of chunks and besides, step by step.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::layout::List;
use loadmaster_proto::chunks::residency::intervals::Intervals;
use loadmaster_proto::chunks::stage::Chunks;
use loadmaster_proto::plan::prediction::{Breakdown, Interval};

/// `N(t)` and `R(t)`, as predicted.
#[derive(Debug, Clone, Copy)]
pub struct StepMemory<'a> {
    /// Bytes of each step besides chunks: `N(t)`.
    pub other: &'a [u64],
    /// Bytes of chunks: `R(t)`.
    pub resident: &'a [u64],
}

impl StepMemory<'_> {
    /// The first step in which the device holds most, and how much.
    pub fn highest(&self) -> (usize, u64) {
        let sums = self.other.iter().zip(self.resident).map(|(other, chunks)| other.saturating_add(*chunks));
        let earlier = |(step, bytes): (usize, u64)| (bytes, std::cmp::Reverse(step));
        sums.enumerate().max_by_key(|&of| earlier(of)).unwrap_or((0, 0))
    }

    /// What the bytes of a step are, `besides` those that are no chunks: parameters count as weights, whose space gradients
    /// take, and state that is always there as the optimizer's. What `besides` leaves of `N(t)` is overhead.
    pub fn breakdown(&self, step: usize, besides: Breakdown, chunks: &Chunks) -> Breakdown {
        let at = |bytes: &[u64]| bytes.get(step).copied().unwrap_or(0);
        let resident = at(self.resident);
        let state = state_bytes(chunks).min(resident);
        let parts = Breakdown {
            optimizer: besides.optimizer.saturating_add(state),
            weights: besides.weights.saturating_add(resident - state),
            ..besides
        };
        let rest = at(self.other).saturating_add(resident).saturating_sub(parts.total());
        Breakdown { overhead: parts.overhead.saturating_add(rest), ..parts }
    }
}

/// Around a predicted peak, up to the bytes that must be there: a margin is of what steps hold besides chunks, whose own bytes are
/// exact.
pub fn interval(peak: u64, needed: u64) -> Interval {
    let margin = if peak > 0 { needed.saturating_sub(peak) as f64 / peak as f64 } else { 0.0 };
    let Interval { low, margin, .. } = Interval::around(Bytes(peak), margin);
    Interval { low, high: Bytes(needed.max(peak)), margin }
}

/// Bytes of chunks on the device in each step of these intervals, with those that are always there: `R(t)`.
pub(super) fn resident(chunks: &Chunks, intervals: &Intervals<'_>) -> Vec<u64> {
    let always = chunks.on_device_bytes();
    let visiting = intervals.resident(|chunk| chunks.payload_bytes(chunk));
    visiting.into_iter().map(|bytes| bytes.saturating_add(always)).collect()
}

/// Bytes of the optimizer's state that is always on a rank's device.
fn state_bytes(chunks: &Chunks) -> u64 {
    let each = chunks.lists.parameter_bytes() - chunks.lists.scalar_bytes(List::Parameters);
    let all = chunks.layout.chunks().iter().enumerate();
    let there = all.filter(|(index, _)| chunks.uses.is_on_device(*index));
    there.map(|(_, chunk)| chunks.sharing.part(chunk).saturating_mul(each)).fold(0, u64::saturating_add)
}
