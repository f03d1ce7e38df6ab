//! What a predictor says of a device of a stage, as it is shown and stored: its bytes, what memory optimizations
//! save of them, and whether they stay within a capacity.

use serde::{Deserialize, Serialize};

use crate::accounting::Accounting;
use crate::bytes::Bytes;
use crate::wire::{ToWire, v1};
use crate::{choice, message};

/// Between which bytes a peak is expected, both included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Least bytes.
    pub low: Bytes,
    /// Most bytes.
    pub high: Bytes,
    /// Half its width as a share of the predicted bytes.
    pub margin: f64,
}

impl Interval {
    /// `bytes · (1 ± margin)`, each end rounded away from the middle; `margin` is 0 or more.
    pub fn around(bytes: Bytes, margin: f64) -> Self {
        let spread = (bytes.0 as f64 * margin.max(0.0)).ceil() as u64;
        let (low, high) = (bytes.0.saturating_sub(spread), bytes.0.saturating_add(spread));
        Self { low: Bytes(low), high: Bytes(high), margin }
    }
}

/// Between which seconds a time is expected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SecondsInterval {
    /// Least seconds.
    pub low: f64,
    /// Most seconds.
    pub high: f64,
    /// Half its width as a share of the predicted seconds.
    pub margin: f64,
}

/// Predicted seconds whose interval is wider than this share of them are shown as unusable.
pub const UNUSABLE_MARGIN: f64 = 0.5;

impl SecondsInterval {
    /// `seconds · (1 ± margin)`, never below 0; `margin` is 0 or more.
    pub fn around(seconds: f64, margin: f64) -> Self {
        let spread = seconds * margin.max(0.0);
        Self { low: (seconds - spread).max(0.0), high: seconds + spread, margin }
    }
}

/// The bytes of a device at the moment of its peak. They add up to the peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Breakdown {
    /// Parameters, master weights included, and buffers.
    pub weights: u64,
    /// Gradients of parameters.
    pub gradients: u64,
    /// State of the optimizer.
    pub optimizer: u64,
    /// What lies between forward and backward passes, edges apart.
    pub activations: u64,
    /// Inputs, outputs and their gradients at the stage's own edges.
    pub edges: u64,
    /// Buffers of collectives.
    pub communication: u64,
    /// What lives within one layer's pass or step.
    pub transient: u64,
    /// What the allocator or its libraries hold besides: rounding, workspaces.
    pub overhead: u64,
}

impl Breakdown {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.edges
            + self.communication
            + self.transient
            + self.overhead
    }
}

/// Seconds on one device of a stage, waiting for other stages not included.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StageSeconds {
    /// Forward pass of one micro-batch.
    pub forward: f64,
    /// Backward pass of one micro-batch, recomputation included.
    pub backward: f64,
    /// Once per iteration: gradient synchronisation and optimizer step.
    pub step: f64,
}

impl StageSeconds {
    /// Returns the same where each of so many replicas updates one part of the parameters.
    #[must_use]
    pub fn sharded(self, parts: u32) -> Self {
        Self { step: self.step / f64::from(parts.max(1)), ..self }
    }
}

/// How a figure was read from the profiled settings; later ones are less certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The stage's micro-batch size and micro-batches in flight were profiled.
    Profiled,
    /// An imported table has exactly these values; the table may not have been measured.
    Imported,
    /// At least one of the two lies between profiled values.
    Interpolated,
    /// At least one of the two lies outside the profiled values.
    Extrapolated,
}

choice! { Origin = v1::ProfileCoverage { Profiled, Imported, Interpolated, Extrapolated } }

message! {
    Interval => v1::MemoryInterval { low = low_bytes, high = high_bytes, margin = margin_ratio }
}

message! {
    SecondsInterval => v1::SecondsInterval { low = low_seconds, high = high_seconds, margin = margin_ratio }
}

message! {
    StageSeconds => v1::StageSeconds {
        forward = forward_seconds,
        backward = backward_seconds,
        step = optimizer_step_seconds,
    }
}

impl Breakdown {
    /// As a message; all of its bytes are of `ledger`.
    pub fn to_wire(&self, ledger: Accounting) -> v1::MemoryBreakdown {
        v1::MemoryBreakdown {
            weights_bytes: self.weights.to_wire(),
            gradients_bytes: self.gradients.to_wire(),
            optimizer_bytes: self.optimizer.to_wire(),
            activations_bytes: self.activations.to_wire(),
            p2p_bytes: self.edges.to_wire(),
            communication_bytes: self.communication.to_wire(),
            transient_bytes: self.transient.to_wire(),
            overhead_bytes: self.overhead.to_wire(),
            accounting: ledger.to_wire(),
        }
    }
}

/// Bytes that each device of a stage need not hold at once, by what is done instead (MPress, Table IV): a block counts once for
/// every micro-batch in flight that has one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SavedBytes {
    /// Bytes that are recomputed, less the inputs of these layers.
    pub recompute: Bytes,
    /// Bytes in CPU memory.
    pub host: Bytes,
    /// Bytes on devices of other stages.
    pub peers: Bytes,
}

message! {
    SavedBytes <=> v1::SavedBytes {
        recompute = recompute_bytes,
        host = host_bytes,
        peers = peer_bytes,
    }
}

impl SavedBytes {
    /// All together.
    #[must_use]
    pub fn all(self) -> Bytes {
        Bytes(self.recompute.0.saturating_add(self.host.0).saturating_add(self.peers.0))
    }

    /// Parts of the whole: on the host, recomputed, on peers; all 0 where nothing is saved.
    #[must_use]
    pub fn parts(self) -> [f64; 3] {
        [self.host, self.recompute, self.peers].map(|bytes| bytes.0 as f64 / self.all().0.max(1) as f64)
    }

    /// With those of another stage.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let sum = |own: Bytes, other: Bytes| Bytes(own.0.saturating_add(other.0));
        Self {
            recompute: sum(self.recompute, other.recompute),
            host: sum(self.host, other.host),
            peers: sum(self.peers, other.peers),
        }
    }
}

/// Whether predicted bytes stay within a capacity; later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// No one asked: no capacity was given.
    NotAsked,
    /// With the margin.
    Fits,
    /// Uncertain: the predicted bytes do, the upper end of their interval does not.
    FitsWithoutMargin,
    /// Uncertain: the predicted bytes do, and they have no interval.
    Uncertain,
    /// Not even the predicted bytes do.
    DoesNotFit,
}

impl Verdict {
    /// Returns the verdict on predicted bytes, which are expected within an interval, on a device of a capacity;
    /// none where no one said.
    ///
    /// ```
    /// use loadmaster_proto::bytes::Bytes;
    /// use loadmaster_proto::plan::prediction::Interval;
    /// use loadmaster_proto::plan::prediction::Verdict;
    ///
    /// let bytes = Bytes(100);
    /// let interval = Some(Interval::around(bytes, 0.1));
    /// assert_eq!(Verdict::judge(bytes, interval, Some(Bytes(110))), Verdict::Fits);
    /// assert_eq!(Verdict::judge(bytes, interval, Some(Bytes(109))), Verdict::FitsWithoutMargin);
    /// assert_eq!(Verdict::judge(bytes, None, Some(Bytes(100))), Verdict::Uncertain);
    /// assert_eq!(Verdict::judge(bytes, interval, Some(Bytes(99))), Verdict::DoesNotFit);
    /// assert_eq!(Verdict::judge(bytes, interval, None), Verdict::NotAsked);
    /// ```
    pub fn judge(bytes: Bytes, interval: Option<Interval>, capacity: Option<Bytes>) -> Self {
        let Some(capacity) = capacity else { return Self::NotAsked };
        if bytes > capacity {
            return Self::DoesNotFit;
        }
        match interval {
            Some(interval) if interval.high <= capacity => Self::Fits,
            Some(_) => Self::FitsWithoutMargin,
            None => Self::Uncertain,
        }
    }
}

impl From<Verdict> for v1::Verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::NotAsked => Self::Unspecified,
            Verdict::Fits => Self::Fits,
            Verdict::FitsWithoutMargin => Self::FitsWithoutMargin,
            Verdict::Uncertain => Self::Uncertain,
            Verdict::DoesNotFit => Self::DoesNotFit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounding never makes an interval narrower than its margin, and no end wraps around.
    #[test]
    fn an_interval_is_rounded_outwards_and_stays_in_range() {
        let around = |bytes, margin| {
            let Interval { low, high, .. } = Interval::around(Bytes(bytes), margin);
            (low.0, high.0)
        };
        assert_eq!(around(1_000, 0.05), (950, 1_050));
        assert_eq!(around(1_001, 0.05), (950, 1_052));
        assert_eq!(around(1_000, 0.0), (1_000, 1_000));
        assert_eq!(around(10, 3.0), (0, 40));
        assert_eq!(around(u64::MAX, 0.5).1, u64::MAX);
    }

    /// What is uncertain by more than itself may take no time, never less.
    #[test]
    fn seconds_are_never_expected_below_none() {
        let SecondsInterval { low, high, margin } = SecondsInterval::around(2.0, 0.25);
        assert_eq!((low, high, margin), (1.5, 2.5, 0.25));
        let wide = SecondsInterval::around(2.0, 3.0);
        assert_eq!((wide.low, wide.high), (0.0, 8.0));
    }
}
