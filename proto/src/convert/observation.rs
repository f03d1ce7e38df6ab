//! Observations; names, plans, times and sources of figures are the planner's.

use super::{ledger_from_wire, to_i64, unsigned};
use crate::bytes::Bytes;
use crate::error::{Invalid, in_range};
use crate::name::checked_name;
use crate::plan::observation::{Measured, Observation, Peak};
use crate::wire::v1;

impl TryFrom<v1::Observation> for Observation {
    type Error = Invalid;

    fn try_from(wire: v1::Observation) -> Result<Self, Invalid> {
        let seconds =
            in_range("iteration_seconds", wire.iteration_seconds, 0.0..=Self::MAX_ITERATION_SECONDS)?;
        let stage_peaks: Vec<Peak> = wire
            .stage_peaks
            .iter()
            .enumerate()
            .map(|(index, figure)| {
                peak(figure).map_err(|invalid| invalid.under(&format!("stage_peaks[{index}]")))
            })
            .collect::<Result<_, _>>()?;
        let measured = Measured { iteration_seconds: (seconds > 0.0).then_some(seconds), stage_peaks };
        if measured == Measured::default() {
            return Err(Invalid::field(
                "iteration_seconds",
                "is 0, and there are no stage_peaks: report at least one of the two",
            ));
        }
        let iterations = unsigned("iterations", wire.iterations)?;
        if !wire.device_kind.is_empty() {
            checked_name("device_kind", &wire.device_kind, Self::MAX_DEVICE_KIND)?;
        }
        short("source", &wire.source, Self::MAX_SOURCE)?;
        Ok(Self {
            measured,
            iterations: in_range("iterations", iterations, 1..=Self::MAX_ITERATIONS)?,
            device_kind: (!wire.device_kind.is_empty()).then_some(wire.device_kind),
            source: wire.source,
        })
    }
}

fn peak(figure: &v1::MemoryFigure) -> Result<Peak, Invalid> {
    let bytes: u64 = unsigned("bytes", figure.bytes)?;
    let bytes = in_range("bytes", bytes, 1..=i64::MAX.unsigned_abs()).map(Bytes)?;
    Ok(Peak { bytes, ledger: ledger_from_wire("ledger", figure.ledger)? })
}

fn short(field: &str, text: &str, most: usize) -> Result<(), Invalid> {
    match text.chars().count() {
        // A line end may be part of a note; the rest is for no terminal and no database.
        _ if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') => {
            Err(Invalid::field(field, "has control characters"))
        }
        length if length <= most => Ok(()),
        length => Err(Invalid::field(field, format!("has {length} characters, must have at most {most}"))),
    }
}

impl Peak {
    /// As a message, measured by `origin`: a run or an observation.
    pub fn to_wire(self, origin: &str) -> v1::MemoryFigure {
        v1::MemoryFigure {
            bytes: self.bytes.to_wire(),
            ledger: v1::Ledger::from(self.ledger).into(),
            source: v1::FigureSource::Measured.into(),
            origin: origin.to_owned(),
        }
    }
}

impl From<&Observation> for v1::Observation {
    fn from(observation: &Observation) -> Self {
        let Measured { iteration_seconds, stage_peaks } = &observation.measured;
        Self {
            iteration_seconds: iteration_seconds.unwrap_or_default(),
            stage_peaks: stage_peaks.iter().map(|peak| peak.to_wire("")).collect(),
            iterations: to_i64(observation.iterations),
            device_kind: observation.device_kind.clone().unwrap_or_default(),
            source: observation.source.clone(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported() -> v1::Observation {
        let figure = v1::MemoryFigure {
            bytes: 1 << 30,
            ledger: v1::Ledger::Device.into(),
            ..v1::MemoryFigure::default()
        };
        v1::Observation {
            iteration_seconds: 0.5,
            stage_peaks: vec![figure.clone(), figure],
            iterations: 10,
            source: "job 7".to_owned(),
            ..v1::Observation::default()
        }
    }

    fn refused(change: impl FnOnce(&mut v1::Observation)) -> String {
        let mut wire = reported();
        change(&mut wire);
        Observation::try_from(wire).unwrap_err().violations()[0].field.clone()
    }

    /// What a user reports is kept whole, ledgers included.
    #[test]
    fn reports_survive_the_wire() {
        let observation = Observation::try_from(reported()).unwrap();
        assert_eq!(Observation::try_from(v1::Observation::from(&observation)).unwrap(), observation);
        assert_eq!(observation.measured.stage_peaks[1].ledger, crate::ledger::Ledger::Device);
    }

    /// Every number has a range, bytes have a ledger, and an empty report is refused by name.
    #[test]
    fn wrong_reports_are_refused_by_field() {
        assert_eq!(refused(|wire| wire.iteration_seconds = f64::NAN), "iteration_seconds");
        assert_eq!(refused(|wire| wire.iteration_seconds = -1.0), "iteration_seconds");
        assert_eq!(refused(|wire| wire.iterations = 0), "iterations");
        assert_eq!(refused(|wire| wire.iterations = -5), "iterations");
        assert_eq!(refused(|wire| wire.source = "x".repeat(1_001)), "source");
        assert_eq!(refused(|wire| wire.device_kind = "x".repeat(101)), "device_kind");
        assert_eq!(refused(|wire| wire.source = "job\0".to_owned()), "source");
        assert_eq!(refused(|wire| wire.device_kind = "a/b".to_owned()), "device_kind");
        assert_eq!(refused(|wire| wire.stage_peaks[1].bytes = 0), "stage_peaks[1].bytes");
        assert_eq!(refused(|wire| wire.stage_peaks[0].ledger = 0), "stage_peaks[0].ledger");
        let nothing = |wire: &mut v1::Observation| {
            wire.iteration_seconds = 0.0;
            wire.stage_peaks.clear();
        };
        assert_eq!(refused(nothing), "iteration_seconds");
    }
}
