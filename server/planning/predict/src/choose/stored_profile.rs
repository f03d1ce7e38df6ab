//! Predictors from the measurements of a stored profile.

use loadmaster_proto::measure::disturbance::Disturbance;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::ProfilingMode;
use loadmaster_proto::training::TrainingSpec;

use super::{AnyPredictor, Evidence, NoPredictor, PredictorKind, Profiled};
use crate::capture::metrics::StagePeak;
use crate::capture::metrics::of_profiling::expand;
use crate::capture::{Capture, NamedPeak};
use crate::component::Component;
use crate::profiling::minimal::CHECKED_MICRO_BATCHES;
use crate::profiling::runs::Layout;

/// The predictor of this kind for a profile. Without a kind: `component` where the profiling was made for it
/// or every layer was recorded, else `capture`.
///
/// # Errors
/// The profile lacks what the kind needs; the text says how to measure it.
pub fn predictor(profiled: Profiled<'_>, kind: Option<PredictorKind>) -> Result<AnyPredictor, NoPredictor> {
    match kind {
        Some(PredictorKind::Component) => Ok(Box::new(component(profiled)?)),
        Some(PredictorKind::Capture) => Ok(Box::new(capture(profiled)?)),
        Some(PredictorKind::Table) => Err(NoPredictor::Lacks(
            "it was measured by Loadmaster, but only imported profiles have per-layer tables".to_owned(),
        )),
        None if is_recorded(profiled) => Ok(Box::new(component(profiled)?)),
        None => Ok(Box::new(capture(profiled)?)),
    }
}

/// Whether this is the predictor to ask: the profiling was made for it, or recorded every layer by the way,
/// so that any stage can be predicted at the profile's target.
fn is_recorded(profiled: Profiled<'_>) -> bool {
    if profiled.settings.profiling_mode == ProfilingMode::PerLayer {
        return true;
    }
    let size = profiled.settings.training.micro_batch_size;
    learnt(profiled).is_ok_and(|component| component.missing(1, size).is_empty())
}

/// From the recordings of layers.
///
/// # Errors
/// Nothing was recorded.
pub fn component(profiled: Profiled<'_>) -> Result<Component, NoPredictor> {
    let training = profiled.settings.training;
    // As the profiling lays its checks out.
    let checked =
        TrainingSpec { micro_batches: training.micro_batches.min(CHECKED_MICRO_BATCHES), ..training };
    let checks: Vec<_> = profiled
        .plain()
        .filter(|of| of.held_out)
        .map(|of| (checked.with_micro_batch_size(of.measurement.micro_batch_size), &of.measurement))
        .collect();
    let environments = profiled.evidence.iter().map(|of| &of.measurement.environment);
    Ok(learnt(profiled)?.with_checks(&checks).disturbed_by(Disturbance::of(environments)))
}

fn learnt(profiled: Profiled<'_>) -> Result<Component, NoPredictor> {
    let Profiled { settings, model, .. } = profiled;
    let fitted = profiled.plain().filter(|of| !of.held_out);
    let named = fitted.map(|Evidence { name, measurement, .. }| (name.as_str(), measurement));
    Component::new(model, &settings.training, named).map_err(|error| NoPredictor::Lacks(error.to_string()))
}

/// From the peaks of stages.
///
/// # Errors
/// The profile has no metrics, or its peaks are not of one memory accounting.
fn capture(profiled: Profiled<'_>) -> Result<Capture, NoPredictor> {
    let Profiled { settings, model, .. } = profiled;
    let layout = Layout::new(settings, model)?;
    if layout.scenarios.is_empty() {
        return Err(NoPredictor::Lacks(
            "the profile has measurements of single layers only, but the `capture` predictor needs peaks of stages. \
             Profile with `profiling_mode` PROFILING_MODE_PER_STAGE or PROFILING_MODE_WHOLE_PIPELINE, or use the \
             `component` predictor"
                .to_owned(),
        ));
    }
    let mut ledgers = profiled.plain().map(|of| of.measurement.peak_ledger);
    let ledger = ledgers.next().unwrap_or_default();
    if ledgers.any(|other| other != ledger) {
        return Err(NoPredictor::Lacks(
            "the peaks of the profile have different memory accountings (allocated, reserved or device bytes), so the \
             memory of a layer cannot be computed. Run a new profile in which one custom profiler measures all stages"
                .to_owned(),
        ));
    }
    let fitted: Vec<&Measurement> =
        profiled.plain().filter(|of| !of.held_out).map(|of| &of.measurement).collect();
    let metrics = layout.metrics(model, &fitted);
    Ok(Capture::new(model.layers().len(), &metrics.layers)
        .with_peaks(&peaks(&layout, profiled))
        .profiled_under(settings.training)
        .scaled_by_pipeline(settings.scale_by_pipeline)
        .in_ledger(ledger))
}

/// The peaks of all measured stages and of those that they stand for.
fn peaks(layout: &Layout, profiled: Profiled<'_>) -> Vec<NamedPeak> {
    let mut peaks = Vec::with_capacity(profiled.evidence.len());
    for Evidence { name, measurement, .. } in profiled.plain() {
        let Some(measured) = StagePeak::of(measurement) else { continue };
        let part = layout.scenarios.iter().find(|part| part.scenario == measured.setting.scenario);
        let stand_ins = part.map_or_else(
            || vec![measured],
            |part| expand(&part.representatives, std::slice::from_ref(&measured)),
        );
        peaks.extend(stand_ins.into_iter().map(|peak| NamedPeak { peak, name: name.clone() }));
    }
    peaks
}
