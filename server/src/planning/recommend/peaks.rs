//! The predicted peaks of all stages that a search can meet.
//!
//! They are predicted once, before the search: a gap in the profile surfaces as the error that it
//! is, no stage is predicted that no partitioning contains, and the search only looks numbers up.
//! Inner positions with equally many micro-batches in flight share a table: all of them under
//! GPipe.

use loadmaster_proto::stage::StageConfig;
use loadmaster_proto::training::TrainingSpec;

use super::number;
use crate::planning::predictor::{Margin, PredictionError, Predictor, StageSetting};

/// Peaks by position, first and last layer.
#[derive(Debug)]
pub(super) struct Peaks {
    tables: Vec<Table>,
    /// Which table is that of a position.
    table_of: Vec<usize>,
}

/// Peaks of neighbouring positions.
#[derive(Debug)]
struct Table {
    /// First layer of the first row.
    first: usize,
    rows: Vec<Row>,
}

/// Peaks of the stages that share a first layer.
#[derive(Debug)]
struct Row {
    /// Last layer of the first entry.
    last: usize,
    peaks: Vec<Peak>,
}

/// One stage, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peak {
    /// What is predicted.
    pub(super) bytes: u64,
    /// What its device must hold: with the margin.
    pub(super) needed: u64,
}

impl Peaks {
    /// Predicts for this many positions, one device each; there are at most as many as layers.
    ///
    /// # Errors
    /// The first stage that cannot be predicted.
    pub(super) fn predict(
        predictor: &(impl Predictor + ?Sized),
        training: &TrainingSpec,
        positions: usize,
        margin: Margin,
    ) -> Result<Self, PredictionError> {
        let layers = predictor.layers();
        let setting = |position: usize, first: usize, last: usize| StageSetting {
            stage: StageConfig::single(first, last),
            stage_index: number(position),
            stage_count: number(positions),
            training: *training,
        };
        let in_flight = |position: usize| setting(position, 0, 0).in_flight();
        let mut peaks = Self { tables: Vec::new(), table_of: Vec::with_capacity(positions) };
        let mut from = 0;
        while from < positions {
            let is_end = |position: usize| position == 0 || position + 1 == positions;
            let same = |&to: &usize| !is_end(from) && !is_end(to) && in_flight(to) == in_flight(from);
            let to = (from + 1..positions).take_while(same).last().unwrap_or(from);
            let firsts = if from == 0 { 0..=0 } else { from..=layers - positions + to };
            let mut rows = Vec::new();
            for first in firsts {
                let farthest = layers - positions + to.min(first);
                let lasts = if to + 1 == positions { layers - 1..=layers - 1 } else { first..=farthest };
                let last = *lasts.start();
                let peaks = lasts.map(|last| {
                    let prediction = predictor.stage(&setting(from, first, last))?;
                    Ok(Peak { bytes: prediction.bytes.0, needed: margin.needed(&prediction).0 })
                });
                let peaks = peaks.collect::<Result<Vec<Peak>, PredictionError>>()?;
                rows.push(Row { last, peaks });
            }
            peaks.table_of.extend(std::iter::repeat_n(peaks.tables.len(), to + 1 - from));
            peaks.tables.push(Table { first: from, rows });
            from = to + 1;
        }
        Ok(peaks)
    }

    /// The peak of a stage.
    ///
    /// # Panics
    /// When no partitioning has such a stage at that position.
    pub(super) fn of(&self, position: usize, first: usize, last: usize) -> Peak {
        let table = &self.tables[self.table_of[position]];
        let row = &table.rows[first - table.first];
        row.peaks[last - row.last]
    }
}
