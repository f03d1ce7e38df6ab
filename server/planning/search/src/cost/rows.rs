//! Peak bytes of all stages that begin with the same layer.
//!
//! The rows of one predictor take 256 MiB at most; beyond that only the newest row is kept. `known` drops costs beyond 24 MiB
//! before and after each request. A request that names its partitioning reads rows of the widths of its own stages only.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use loadmaster_predict::{PeakCurve, Predictor};
use loadmaster_proto::training::TrainingSpec;

use super::pricing::setting;
use crate::{Choice, StageAt};

/// By last layer.
type Row = Box<[PeakCurve]>;

/// Layers of the stages that a row is of, from its first layer on: up to so many, the last to the end of the model. A partitioning
/// that a request names takes a stage of each of its rows, and all rows of a model of thousands of layers take gigabytes.
const WIDTHS: [usize; 3] = [16, 256, usize::MAX];

/// Most bytes of rows that count together. Beyond them one row is kept, since searches ask for one after another.
const MOST_BYTES: usize = 256 << 20;

/// Stages of one choice by their first layer, each row worked out when it is first asked for.
#[derive(Debug)]
pub(super) struct Rows {
    /// By first layer and width: curves over the micro-batches in flight; none where the predictor has no curves.
    curves: Box<[[OnceLock<Option<Row>>; WIDTHS.len()]]>,
    /// The row that was asked for last of those that there is no room for, with its first layer and width.
    last: Mutex<Option<(usize, usize, Option<Row>)>>,
    /// Counts the bytes that they take, with those of others.
    bytes: Arc<AtomicUsize>,
    /// They count no more once they are dropped.
    is_apart: bool,
}

/// Bytes as they are predicted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Predicted {
    pub(super) bytes: u64,
    pub(super) margin: Option<f64>,
}

/// What a predictor without curves was asked: first layer, last layer and micro-batches in flight.
pub(super) type PredictionMemo = Mutex<BTreeMap<(usize, usize, u32), Option<Predicted>>>;

/// How a predictor is asked for the stages of a choice.
#[derive(Clone, Copy)]
pub(super) struct PredictionTerms<'a> {
    pub(super) predictor: &'a dyn Predictor,
    pub(super) training: TrainingSpec,
    pub(super) choice: Choice,
}

impl Predicted {
    pub(super) fn of(curve: &PeakCurve, in_flight: u32) -> Self {
        Self { bytes: curve.bytes(in_flight), margin: curve.margin(in_flight) }
    }
}

impl Rows {
    /// Nothing is known yet. What is worked out counts until all that `bytes` counts is forgotten.
    pub(super) fn new(layers: usize, bytes: Arc<AtomicUsize>) -> Self {
        let curves: Box<[_]> = (0..layers).map(|_| [const { OnceLock::new() }; WIDTHS.len()]).collect();
        bytes.fetch_add(size_of_val(&*curves), Ordering::Relaxed);
        Self { curves, last: Mutex::default(), bytes, is_apart: false }
    }

    /// The same for one request: what is worked out counts until these rows are dropped.
    pub(super) fn apart(layers: usize, bytes: Arc<AtomicUsize>) -> Self {
        let mut rows = Self::new(layers, bytes);
        rows.is_apart = true;
        rows
    }

    /// The bytes of a stage; none where the predictor has no answer.
    pub(super) fn bytes(
        &self,
        terms: PredictionTerms<'_>,
        asked: &PredictionMemo,
        stage: &StageAt,
        in_flight: u32,
    ) -> Option<Predicted> {
        let curve = |row: &[PeakCurve]| row.get(stage.last.checked_sub(stage.first)?).copied();
        match self.with(terms, stage.first..=stage.last, curve)? {
            Some(curve) => Some(Predicted::of(&curve?, in_flight)),
            None => {
                // A panic elsewhere cannot leave an answer half written.
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                *asked.entry((stage.first, stage.last, in_flight)).or_insert_with(|| {
                    let PredictionTerms { predictor, training, choice } = terms;
                    let setting = setting(training, choice, stage.first, stage.last, in_flight);
                    let predicted = predictor.stage(&setting).ok()?;
                    Some(Predicted { bytes: predicted.bytes.0, margin: predicted.margin })
                })
            }
        }
    }

    /// What `act` makes of the curves of the stages that begin with the first of these layers, at least up to the last, as far
    /// as they can be predicted. Inner none where the predictor has no curves.
    pub(super) fn with<T>(
        &self,
        terms: PredictionTerms<'_>,
        layers: RangeInclusive<usize>,
        act: impl FnOnce(&[PeakCurve]) -> T,
    ) -> Option<Option<T>> {
        let (first, last) = layers.into_inner();
        let width = WIDTHS.iter().position(|&most| last.saturating_sub(first) < most)?;
        let place = self.curves.get(first)?.get(width)?;
        let is_full = || self.bytes.load(Ordering::Relaxed) >= MOST_BYTES;
        if place.get().is_none() && is_full() {
            // A panic elsewhere cannot leave a row half written.
            let mut kept = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            return match &*kept {
                Some((of, wide, row)) if (*of, *wide) == (first, width) => Some(row.as_deref().map(act)),
                _ => {
                    let (_, _, row) = kept.insert((first, width, read(terms, first, WIDTHS[width])));
                    Some(row.as_deref().map(act))
                }
            };
        }
        let row = place.get_or_init(|| {
            let row = read(terms, first, WIDTHS[width])?;
            self.bytes.fetch_add(size_of_val(&*row), Ordering::Relaxed);
            Some(row)
        });
        Some(row.as_deref().map(act))
    }
}

/// The curves of the stages of up to so many layers from the first on.
fn read(terms: PredictionTerms<'_>, first: usize, width: usize) -> Option<Row> {
    let PredictionTerms { predictor, training, choice } = terms;
    // With all micro-batches in flight, so that the curve is that of this training.
    let all = setting(training, choice, first, first, training.micro_batches);
    let curves = predictor.curves(&all, first.saturating_add(width - 1))?;
    Some(curves.into_boxed_slice())
}

impl Drop for Rows {
    fn drop(&mut self) {
        if !self.is_apart {
            return;
        }
        let rows = self.curves.iter().flatten().filter_map(|place| place.get()?.as_deref());
        let bytes = rows.map(size_of_val).sum::<usize>() + size_of_val(&*self.curves);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
