//! What a plan needed when it was really trained.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::ledger::Ledger;

/// A highest byte count with its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Bytes.
    pub bytes: Bytes,
    /// Ledger of the bytes.
    pub ledger: Ledger,
}

/// What was measured of a plan, by a trial or by a real training run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Mean seconds of one iteration, of the rank that took longest; none where it was not measured.
    pub iteration_seconds: Option<f64>,
    /// Peak of each stage's fullest device, in order; empty where they were not measured.
    pub stage_peaks: Vec<Peak>,
}

impl Measured {
    /// The highest peak; none where none was measured, or where they are of several ledgers, which cannot be
    /// compared.
    pub fn peak(&self) -> Option<Peak> {
        let first = self.stage_peaks.first()?;
        let comparable = self.stage_peaks.iter().all(|peak| peak.ledger == first.ledger);
        self.stage_peaks.iter().copied().max_by_key(|peak| peak.bytes).filter(|_| comparable)
    }
}

/// What a real training run of a plan needed, as its user reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The figures; at least one is there.
    #[serde(flatten)]
    pub measured: Measured,
    /// Iterations that they are of.
    pub iterations: u64,
    /// Kind of the devices; none where it is the plan's.
    pub device_kind: Option<String>,
    /// Where the figures are from, for people.
    pub source: String,
}

impl Observation {
    /// Longest iteration that is believed: a day, in seconds.
    pub const MAX_ITERATION_SECONDS: f64 = 86_400.0;
    /// Most iterations.
    pub const MAX_ITERATIONS: u64 = 1_000_000_000_000;
    /// Most characters of `source`.
    pub const MAX_SOURCE: usize = 1_000;
    /// Most characters of `device_kind`.
    pub const MAX_DEVICE_KIND: usize = 100;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(peaks: &[(u64, Ledger)]) -> Measured {
        let stage_peaks = peaks.iter().map(|&(bytes, ledger)| Peak { bytes: Bytes(bytes), ledger }).collect();
        Measured { iteration_seconds: None, stage_peaks }
    }

    /// Bytes of two ledgers have no highest one.
    #[test]
    fn peaks_of_several_ledgers_are_not_compared() {
        let allocated = measured(&[(5, Ledger::Allocated), (7, Ledger::Allocated), (6, Ledger::Allocated)]);
        assert_eq!(allocated.peak(), Some(Peak { bytes: Bytes(7), ledger: Ledger::Allocated }));
        assert_eq!(measured(&[(5, Ledger::Allocated), (7, Ledger::Device)]).peak(), None);
        assert_eq!(measured(&[]).peak(), None);
    }
}
