//! For which trainings a profile's metrics hold.
//!
//! A peak is that of one precision, optimizer, schedule and recompute policy; micro-batch size and
//! micro-batches in flight are what the lines are for, and numbers such as the learning rate hold no
//! memory.

use loadmaster_proto::training::{Optimizer, TrainingSpec};

use crate::PredictionError;

/// Reads the name of one setting.
type NameOf = fn(&TrainingSpec) -> &'static str;

/// Whether metrics of one training hold for another; `predictor` is the one that asks.
///
/// # Errors
/// The first setting that differs.
pub(super) fn check(
    predictor: &'static str,
    profiled: &TrainingSpec,
    target: &TrainingSpec,
) -> Result<(), PredictionError> {
    let settings: [(&str, NameOf); 4] = [
        ("schedule", |of| of.schedule.as_str()),
        ("recompute policy", |of| of.recompute.as_str()),
        ("precision", |of| of.precision.as_str()),
        ("optimizer", optimizer),
    ];
    for (what, name) in settings {
        let (profiled, target) = (name(profiled), name(target));
        if profiled != target {
            let (profiled, target) = (profiled.to_owned(), target.to_owned());
            return Err(PredictionError::OtherTraining { what, profiled, target, predictor });
        }
    }
    Ok(())
}

fn optimizer(training: &TrainingSpec) -> &'static str {
    match training.optimizer {
        Optimizer::Sgd { momentum: 0.0, .. } => "sgd without momentum",
        Optimizer::Sgd { .. } => "sgd with momentum",
        Optimizer::Adam { .. } => "adam",
        Optimizer::AdamW { .. } => "adamw",
    }
}
