//! The merger's metrics, from any predictor.

use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::stage::StageConfig;

use super::MergedLayer;
use crate::predict::{PredictionError, Predictor, StageSetting};

/// The two metrics of every layer as a predictor sees them, on one device at the head of a pipeline of
/// `stage_count` stages. For CAPTURE's predictor these are its own metrics at the target; for any other
/// one, those of a neighbour set of one layer.
///
/// # Errors
/// A layer or a pair of layers cannot be predicted.
pub fn metrics<P: Predictor + ?Sized>(
    predictor: &P,
    training: &TrainingSpec,
    stage_count: u32,
) -> Result<Vec<MergedLayer>, PredictionError> {
    let peak = |first: usize, last: usize| -> Result<i128, PredictionError> {
        let stage = StageConfig::single(first, last);
        let setting = StageSetting { stage, stage_index: 0, stage_count, training: *training };
        Ok(i128::from(predictor.stage(&setting)?.bytes.0))
    };
    (0..predictor.layers())
        .map(|layer| {
            let isolated = peak(layer, layer)?;
            let added = match layer.checked_sub(1) {
                Some(before) => peak(before, layer)? - peak(before, before)?,
                None => 0,
            };
            Ok(MergedLayer { isolated, added })
        })
        .collect()
}
