//! What a plan predicted of itself, beside what was measured.

use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::findings::AppliedCorrection;
use loadmaster_proto::plan::observation::Measured;
use loadmaster_proto::plan::{Plan, PlanStage};

use super::{Pair, Quantity, Subject};

/// predicted / measured − 1: negative where the prediction was too low.
pub fn error_ratio(predicted: f64, measured: f64) -> Option<f64> {
    let ratio = predicted / measured - 1.0;
    (measured > 0.0 && ratio.is_finite()).then_some(ratio)
}

/// What the predictions of one quantity were multiplied with for a plan on its own kind of device alone; 1 where
/// they were not. Corrections of the other kinds that its request offered did not touch it.
fn factor(plan: &Plan, quantity: Quantity) -> f64 {
    let corrects = |correction: &&AppliedCorrection| match quantity {
        Quantity::PeakBytes(ledger) => correction.ledger == Some(ledger),
        Quantity::IterationSeconds => correction.ledger.is_none(),
    };
    let own = plan.found.corrections.iter().filter(|of| of.device_kind == plan.device_kind);
    own.filter(corrects).map(|correction| correction.factor).reduce(f64::max).unwrap_or(1.0)
}

/// Whether all devices of a stage are of the plan's own kind.
fn is_of_one_kind(stage: &PlanStage, kind: &str) -> bool {
    stage.devices.iter().all(|device| device.kind.is_empty() || device.kind == kind)
}

/// The figures of a plan that can be compared: what was measured on its kind of device, bytes of its ledger.
/// Predictions are those before any correction. Of a plan on several kinds nothing is compared: what was
/// measured does not say on which. Nor of a plan in chunks: what misses there is none of what misses of plain stages.
pub fn pairs(name: &PlanName, plan: &Plan, device_kind: &str, measured: &Measured) -> Vec<Pair> {
    let one_kind = plan.stages.iter().all(|stage| is_of_one_kind(stage, &plan.device_kind));
    if device_kind != plan.device_kind || !one_kind || plan.chunks().is_some() {
        return Vec::new();
    }
    let pair = |quantity, predicted: f64, measured: f64| {
        let (device_kind, predictor) = (device_kind.to_owned(), plan.predictor.clone());
        let subject = Subject { device_kind, predictor, quantity };
        Pair { subject, plan: name.to_string(), predicted: predicted / factor(plan, quantity), measured }
    };
    // Stages that take turns on a device have one peak together.
    let peaks = plan.first_stages().iter().zip(&measured.stage_peaks);
    let mut pairs: Vec<Pair> = peaks
        .filter(|(_, peak)| peak.ledger == plan.ledger)
        .map(|(stage, peak)| {
            pair(Quantity::PeakBytes(peak.ledger), stage.predicted_peak as f64, peak.bytes.0 as f64)
        })
        .collect();
    let seconds = plan.iteration_seconds().zip(measured.iteration_seconds);
    pairs.extend(seconds.map(|(predicted, measured)| pair(Quantity::IterationSeconds, predicted, measured)));
    pairs
}
