//! The bytes of all stages that begin with the same layer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use loadmaster_proto::training::TrainingSpec;

use super::stage::setting;
use crate::predict::{PeakCurve, Predictor};
use crate::search::{Choice, StageAt};

/// By last layer.
type Row = Box<[PeakCurve]>;

/// Stages of one choice by their first layer, each row worked out when it is first asked for.
#[derive(Debug)]
pub(super) struct Rows {
    /// By last layer: curves over the micro-batches in flight; none where the predictor has no curves.
    curves: Box<[OnceLock<Option<Row>>]>,
    /// Counts the bytes that they take, with those of others.
    bytes: Arc<AtomicUsize>,
}

/// Bytes as they are predicted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Predicted {
    pub(super) bytes: u64,
    pub(super) margin: Option<f64>,
}

/// What a predictor without curves was asked: first layer, last layer and micro-batches in flight.
pub(super) type Asked = Mutex<BTreeMap<(usize, usize, u32), Option<Predicted>>>;

/// How a predictor is asked for the stages of a choice.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
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
    /// Nothing is known yet.
    pub(super) fn new(layers: usize, bytes: Arc<AtomicUsize>) -> Self {
        bytes.fetch_add(layers.saturating_mul(size_of::<OnceLock<Option<Row>>>()), Ordering::Relaxed);
        Self { curves: (0..layers).map(|_| OnceLock::new()).collect(), bytes }
    }

    /// The bytes of a stage; none where the predictor has no answer.
    pub(super) fn bytes(
        &self,
        terms: Terms<'_>,
        asked: &Asked,
        stage: &StageAt,
        in_flight: u32,
    ) -> Option<Predicted> {
        match self.curves.get(stage.first)?.get_or_init(|| self.read(terms, stage.first)) {
            Some(curves) => Some(Predicted::of(curves.get(stage.last - stage.first)?, in_flight)),
            None => {
                // A panic elsewhere cannot leave an answer half written.
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                *asked.entry((stage.first, stage.last, in_flight)).or_insert_with(|| {
                    let Terms { predictor, training, choice } = terms;
                    let setting = setting(training, choice, stage.first, stage.last, in_flight);
                    let predicted = predictor.stage(&setting).ok()?;
                    Some(Predicted { bytes: predicted.bytes.0, margin: predicted.margin })
                })
            }
        }
    }

    /// The curves of the stages from a layer on; none where the predictor has none.
    pub(super) fn curves(&self, terms: Terms<'_>, first: usize) -> Option<&[PeakCurve]> {
        self.curves.get(first)?.get_or_init(|| self.read(terms, first)).as_deref()
    }

    fn read(&self, terms: Terms<'_>, first: usize) -> Option<Row> {
        let Terms { predictor, training, choice } = terms;
        // With all micro-batches in flight, so that the curve is that of this training.
        let all = setting(training, choice, first, first, training.micro_batches);
        let curves = predictor.curves(&all)?.into_boxed_slice();
        self.bytes.fetch_add(size_of_val(&*curves), Ordering::Relaxed);
        Some(curves)
    }
}
