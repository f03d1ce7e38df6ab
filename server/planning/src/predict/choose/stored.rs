//! CAPTURE's predictor from the measurements of a stored profile.

use loadmaster_proto::measure::measurement::Measurement;

use super::{Evidence, NoPredictor, Profiled};
use crate::campaign::runs::Layout;
use crate::campaign::stages::expand;
use crate::predict::capture::metrics::StagePeak;
use crate::predict::capture::{Capture, NamedPeak};

/// See the module.
///
/// # Errors
/// The profile has no metrics, or its peaks are not of one ledger.
pub(super) fn capture(profiled: Profiled<'_>) -> Result<Capture, NoPredictor> {
    let Profiled { settings, model, evidence } = profiled;
    let layout = Layout::new(settings, model)?;
    if layout.scenarios.is_empty() {
        return Err(NoPredictor::Lacks(
            "it measured single layers, and the `capture` predictor needs the peaks of neighbouring ones: \
             profile with `--campaign stages` or `--campaign paper`, or ask the `component` predictor"
                .to_owned(),
        ));
    }
    let mut ledgers = evidence.iter().map(|of| of.measurement.peak_ledger);
    let ledger = ledgers.next().unwrap_or_default();
    if ledgers.any(|other| other != ledger) {
        return Err(NoPredictor::Lacks(
            "its peaks are of different ledgers, which cannot be subtracted: profile again with one command"
                .to_owned(),
        ));
    }
    let fitted: Vec<&Measurement> =
        evidence.iter().filter(|of| !of.held_out).map(|of| &of.measurement).collect();
    let metrics = layout.metrics(model, &fitted);
    Ok(Capture::new(model.layers().len(), &metrics.layers)
        .with_peaks(&peaks(&layout, evidence))
        .profiled_under(settings.training)
        .scaled_by_pipeline(settings.scale_by_pipeline)
        .in_ledger(ledger))
}

/// The peaks of all measured stages and of those that they stand for.
fn peaks(layout: &Layout, evidence: &[Evidence]) -> Vec<NamedPeak> {
    let mut peaks = Vec::with_capacity(evidence.len());
    for Evidence { name, measurement, .. } in evidence {
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
