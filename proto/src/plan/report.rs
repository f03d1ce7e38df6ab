//! What a plan needed when it was really trained.

use serde::{Deserialize, Serialize};

use crate::accounting::Accounting;
use crate::bytes::Bytes;
use crate::error::{Invalid, in_range};
use crate::measure::chunked::ChunkRun;
use crate::measure::offload::Offload;
use crate::name::{INVISIBLE, checked_name, is_invisible};
use crate::wire::{FromWire, ToWire, field, v1};

/// A highest byte count with its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Bytes.
    pub bytes: Bytes,
    /// Memory accounting of the bytes.
    pub ledger: Accounting,
}

/// What was measured of a plan, by a trial or by a real training run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Mean seconds of one iteration, of the rank that took longest; none where it was not measured.
    pub iteration_seconds: Option<f64>,
    /// Peak of each stage's device with the highest peak, in order; empty where they were not measured.
    pub stage_peaks: Vec<Peak>,
}

impl Measured {
    /// The highest peak; none where none was measured, or where they are of several memory accountings, which cannot be
    /// compared.
    pub fn peak(&self) -> Option<Peak> {
        let first = self.stage_peaks.first()?;
        let comparable = self.stage_peaks.iter().all(|peak| peak.ledger == first.ledger);
        self.stage_peaks.iter().copied().max_by_key(|peak| peak.bytes).filter(|_| comparable)
    }
}

/// What the device with the highest peak of a stage copied in a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopiedStage {
    /// Its position in the plan, from 0.
    pub stage: usize,
    /// By memory optimizations; none where no one counted.
    pub offload: Option<Offload>,
    /// By chunks, without what was held in each step; none where it has not trained in chunks.
    pub chunks: Option<ChunkRun>,
}

/// What a real training run of a plan needed, as its user reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The figures; at least one is there.
    #[serde(flatten)]
    pub measured: Measured,
    /// Iterations that they are of.
    pub iterations: u64,
    /// Kind of the devices; none where it is the plan's.
    pub device_kind: Option<String>,
    /// Where the figures are from, human-readable.
    pub source: String,
}

impl Report {
    /// Shortest iteration that is believed, in seconds: a kernel alone takes some microseconds to start.
    pub const MIN_ITERATION_SECONDS: f64 = 1e-6;
    /// Longest iteration that is believed: a day, in seconds.
    pub const MAX_ITERATION_SECONDS: f64 = 86_400.0;
    /// Most iterations.
    pub const MAX_ITERATIONS: u64 = 1_000_000_000_000;
    /// Most characters of `source`.
    pub const MAX_SOURCE: usize = 1_000;
    /// Most characters of `device_kind`.
    pub const MAX_DEVICE_KIND: usize = 100;
}

impl TryFrom<v1::Report> for Report {
    type Error = Invalid;

    fn try_from(wire: v1::Report) -> Result<Self, Invalid> {
        let seconds =
            in_range("iteration_seconds", wire.iteration_seconds, 0.0..=Self::MAX_ITERATION_SECONDS)?;
        if seconds > 0.0 && seconds < Self::MIN_ITERATION_SECONDS {
            let why = format!(
                "{seconds:e} is out of range. Use {:e} to {}, or 0 if no time was measured",
                Self::MIN_ITERATION_SECONDS,
                Self::MAX_ITERATION_SECONDS
            );
            return Err(Invalid::field("iteration_seconds", why));
        }
        let stage_peaks = field("stage_peaks", wire.stage_peaks)?;
        let measured = Measured { iteration_seconds: (seconds > 0.0).then_some(seconds), stage_peaks };
        if measured == Measured::default() {
            return Err(Invalid::field(
                "iteration_seconds",
                "is 0, and stage_peaks is empty. Set one of the two",
            ));
        }
        let iterations = field("iteration_count", wire.iteration_count)?;
        if !wire.device_kind.is_empty() {
            checked_name("device_kind", &wire.device_kind, Self::MAX_DEVICE_KIND)?;
        }
        short("source", &wire.source, Self::MAX_SOURCE)?;
        Ok(Self {
            measured,
            iterations: in_range("iteration_count", iterations, 1..=Self::MAX_ITERATIONS)?,
            device_kind: (!wire.device_kind.is_empty()).then_some(wire.device_kind),
            source: wire.source,
        })
    }
}

impl FromWire<v1::MemoryFigure> for Peak {
    fn from_wire(wire: v1::MemoryFigure) -> Result<Self, Invalid> {
        let bytes: u64 = field("bytes", wire.bytes)?;
        let bytes = in_range("bytes", bytes, 1..=i64::MAX.unsigned_abs()).map(Bytes)?;
        let ledger: Accounting = field("accounting", wire.accounting)?;
        Ok(Self { bytes, ledger: ledger.of_device().map_err(|invalid| invalid.under("accounting"))? })
    }
}

fn short(field: &str, text: &str, most: usize) -> Result<(), Invalid> {
    match text.chars().count() {
        // A line end may be part of a note; the rest is for no terminal and no database.
        _ if text.chars().any(|c| is_invisible(c) && c != '\n' && c != '\t') => {
            Err(Invalid::field(field, INVISIBLE))
        }
        length if length <= most => Ok(()),
        length => Err(invalid!(field, "has {length} characters. Use at most {most}")),
    }
}

impl Peak {
    /// As a message, measured by `origin`: a run or a report.
    pub fn to_wire(self, origin: &str) -> v1::MemoryFigure {
        v1::MemoryFigure {
            bytes: self.bytes.to_wire(),
            accounting: self.ledger.to_wire(),
            origin: v1::FigureOrigin::Measured.into(),
            producer: origin.to_owned(),
        }
    }
}

impl From<&Report> for v1::Report {
    fn from(report: &Report) -> Self {
        let Measured { iteration_seconds, stage_peaks } = &report.measured;
        Self {
            iteration_seconds: iteration_seconds.to_wire(),
            stage_peaks: stage_peaks.iter().map(|peak| peak.to_wire("")).collect(),
            iteration_count: report.iterations.to_wire(),
            device_kind: report.device_kind.to_wire(),
            source: report.source.clone(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(peaks: &[(u64, Accounting)]) -> Measured {
        let stage_peaks = peaks.iter().map(|&(bytes, ledger)| Peak { bytes: Bytes(bytes), ledger }).collect();
        Measured { iteration_seconds: None, stage_peaks }
    }

    /// Bytes of two memory accountings have no highest one.
    #[test]
    fn peaks_of_several_ledgers_are_not_compared() {
        let allocated =
            measured(&[(5, Accounting::Allocated), (7, Accounting::Allocated), (6, Accounting::Allocated)]);
        assert_eq!(allocated.peak(), Some(Peak { bytes: Bytes(7), ledger: Accounting::Allocated }));
        assert_eq!(measured(&[(5, Accounting::Allocated), (7, Accounting::Device)]).peak(), None);
        assert_eq!(measured(&[]).peak(), None);
    }

    fn reported() -> v1::Report {
        let figure = v1::MemoryFigure {
            bytes: 1 << 30,
            accounting: v1::MemoryAccounting::Device.into(),
            ..v1::MemoryFigure::default()
        };
        v1::Report {
            iteration_seconds: 0.5,
            stage_peaks: vec![figure.clone(), figure],
            iteration_count: 10,
            source: "job 7".to_owned(),
            ..v1::Report::default()
        }
    }

    fn refused(change: impl FnOnce(&mut v1::Report)) -> String {
        let mut wire = reported();
        change(&mut wire);
        Report::try_from(wire).unwrap_err().violations()[0].field.clone()
    }

    /// What a user reports is kept whole, memory accountings included.
    #[test]
    fn reports_survive_the_wire() {
        let report = Report::try_from(reported()).unwrap();
        assert_eq!(Report::try_from(v1::Report::from(&report)).unwrap(), report);
        assert_eq!(report.measured.stage_peaks[1].ledger, crate::accounting::Accounting::Device);
    }

    /// Every number has a range, bytes have a memory accounting, and an empty report is refused by name.
    #[test]
    fn wrong_reports_are_refused_by_field() {
        assert_eq!(refused(|wire| wire.iteration_seconds = f64::NAN), "iteration_seconds");
        assert_eq!(refused(|wire| wire.iteration_seconds = -1.0), "iteration_seconds");
        assert_eq!(refused(|wire| wire.iteration_count = 0), "iteration_count");
        assert_eq!(refused(|wire| wire.iteration_count = -5), "iteration_count");
        assert_eq!(refused(|wire| wire.source = "x".repeat(1_001)), "source");
        assert_eq!(refused(|wire| wire.device_kind = "x".repeat(101)), "device_kind");
        assert_eq!(refused(|wire| wire.source = "job\0".to_owned()), "source");
        assert_eq!(refused(|wire| wire.device_kind = "a/b".to_owned()), "device_kind");
        assert_eq!(refused(|wire| wire.stage_peaks[1].bytes = 0), "stage_peaks[1].bytes");
        assert_eq!(refused(|wire| wire.stage_peaks[0].accounting = 0), "stage_peaks[0].accounting");
        let nothing = |wire: &mut v1::Report| {
            wire.iteration_seconds = 0.0;
            wire.stage_peaks.clear();
        };
        assert_eq!(refused(nothing), "iteration_seconds");
    }
}
