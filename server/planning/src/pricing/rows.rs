//! The bytes of all stages that begin with the same layer.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use loadmaster_proto::training::TrainingSpec;

use super::stage::setting;
use crate::predict::{PeakCurve, Predictor};
use crate::search::{Choice, StageAt};

/// Stages by their last layer.
#[derive(Debug)]
pub(super) enum Row {
    /// Curves over the micro-batches in flight.
    Curves(Box<[PeakCurve]>),
    /// What was asked for each number of micro-batches in flight and last layer.
    Asked(Mutex<BTreeMap<(u32, usize), Option<Predicted>>>),
}

/// Bytes as they are predicted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Predicted {
    pub(super) bytes: u64,
    pub(super) margin: Option<f64>,
}

impl Row {
    pub(super) fn of(
        predictor: &dyn Predictor,
        training: TrainingSpec,
        choice: Choice,
        first: usize,
    ) -> Self {
        // With all micro-batches in flight, so that the curve is that of this training.
        let all = setting(training, choice, first, first, training.micro_batches);
        match predictor.curves(&all) {
            Some(curves) => Self::Curves(curves.into_boxed_slice()),
            None => Self::Asked(Mutex::default()),
        }
    }

    /// The bytes of a stage; none where the predictor has no answer.
    pub(super) fn bytes(
        &self,
        predictor: &dyn Predictor,
        training: TrainingSpec,
        choice: Choice,
        stage: &StageAt,
        in_flight: u32,
    ) -> Option<Predicted> {
        match self {
            Self::Curves(curves) => {
                let curve = curves.get(stage.last - stage.first)?;
                Some(Predicted { bytes: curve.bytes(in_flight), margin: curve.margin(in_flight) })
            }
            Self::Asked(asked) => {
                // A panic elsewhere cannot leave an answer half written.
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                *asked.entry((in_flight, stage.last)).or_insert_with(|| {
                    let setting = setting(training, choice, stage.first, stage.last, in_flight);
                    let predicted = predictor.stage(&setting).ok()?;
                    Some(Predicted { bytes: predicted.bytes.0, margin: predicted.margin })
                })
            }
        }
    }
}
