//! The `component` predictor from the measurements of a stored profile.

use loadmaster_proto::measure::run::Campaign;
use loadmaster_proto::training::TrainingSpec;

use super::{Evidence, NoPredictor, Profiled};
use crate::campaign::minimal::CHECKED_MICRO_BATCHES;
use crate::predict::component::Component;

/// Whether this is the predictor to ask: the campaign was made for it, or recorded every layer by the way,
/// so that any stage can be predicted at the profile's target.
pub(super) fn is_recorded(profiled: Profiled<'_>) -> bool {
    if profiled.settings.campaign == Campaign::Minimal {
        return true;
    }
    let size = profiled.settings.training.micro_batch_size;
    learnt(profiled).is_ok_and(|component| component.missing(1, size).is_empty())
}

/// See the module.
///
/// # Errors
/// Nothing was recorded.
pub(super) fn component(profiled: Profiled<'_>) -> Result<Component, NoPredictor> {
    let training = profiled.settings.training;
    // As the campaign lays its checks out.
    let checked =
        TrainingSpec { micro_batches: training.micro_batches.min(CHECKED_MICRO_BATCHES), ..training };
    let checks: Vec<_> = profiled
        .evidence
        .iter()
        .filter(|of| of.held_out)
        .map(|of| (checked.with_micro_batch_size(of.measurement.micro_batch_size), &of.measurement))
        .collect();
    Ok(learnt(profiled)?.with_checks(&checks))
}

fn learnt(profiled: Profiled<'_>) -> Result<Component, NoPredictor> {
    let Profiled { settings, model, evidence } = profiled;
    let fitted = evidence.iter().filter(|of| !of.held_out);
    let named = fitted.map(|Evidence { name, measurement, .. }| (name.as_str(), measurement));
    Component::new(model, &settings.training, named).map_err(|error| NoPredictor::Lacks(error.to_string()))
}
