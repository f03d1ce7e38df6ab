//! Parts of predictions; they only ever travel from the planner to its callers.

use super::to_i64;
use crate::ledger::Ledger;
use crate::plan::prediction::{Breakdown, Interval, Origin, SecondsInterval, StageSeconds};
use crate::wire::v1;

impl Breakdown {
    /// As a message; all of its bytes are of `ledger`.
    pub fn to_wire(&self, ledger: Ledger) -> v1::MemoryBreakdown {
        v1::MemoryBreakdown {
            weights_bytes: to_i64(self.weights),
            gradients_bytes: to_i64(self.gradients),
            optimizer_bytes: to_i64(self.optimizer),
            activations_bytes: to_i64(self.activations),
            edges_bytes: to_i64(self.edges),
            communication_bytes: to_i64(self.communication),
            transient_bytes: to_i64(self.transient),
            overhead_bytes: to_i64(self.overhead),
            ledger: v1::Ledger::from(ledger).into(),
        }
    }
}

impl From<Interval> for v1::MemoryInterval {
    fn from(interval: Interval) -> Self {
        Self {
            low_bytes: interval.low.to_wire(),
            high_bytes: interval.high.to_wire(),
            margin: interval.margin,
        }
    }
}

impl From<SecondsInterval> for v1::SecondsInterval {
    fn from(interval: SecondsInterval) -> Self {
        let SecondsInterval { low, high, margin } = interval;
        Self { low_seconds: low, high_seconds: high, margin }
    }
}

impl From<Origin> for v1::PredictionOrigin {
    fn from(origin: Origin) -> Self {
        match origin {
            Origin::Profiled => Self::Profiled,
            Origin::Interpolated => Self::Interpolated,
            Origin::Extrapolated => Self::Extrapolated,
        }
    }
}

impl From<StageSeconds> for v1::StageSeconds {
    fn from(seconds: StageSeconds) -> Self {
        Self {
            forward_seconds: seconds.forward,
            backward_seconds: seconds.backward,
            step_seconds: seconds.step,
        }
    }
}
