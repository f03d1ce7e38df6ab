//! Predictors from an imported profile: its own measurements, its per-layer table, or CAPTURE's metrics
//! that it lists or that follow from the stages that it measured.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::profile::document::{ProfileDocument, Subject};

use super::{AnyPredictor, Evidence, NoPredictor, PredictorKind, Profiled, stored_profile};
use crate::capture::Capture;
use crate::capture::metrics::{LayerMetrics, of_document};
use crate::layer_table::TablePredictor;

/// The predictor of this kind for a document that was imported as a profile of these settings, or the best
/// one that the document has what it takes for.
///
/// # Errors
/// What the document lacks for the kind; the text says which part of it would have it.
pub fn predictor(
    document: &ProfileDocument,
    settings: &ProfileSettings,
    kind: Option<PredictorKind>,
) -> Result<AnyPredictor, NoPredictor> {
    match kind {
        Some(PredictorKind::Table) => table(document),
        Some(PredictorKind::Capture) if document.measurements.is_empty() => capture(document, settings),
        Some(kind) if document.measurements.is_empty() => Err(NoPredictor::Lacks(format!(
            "the profile was imported without Loadmaster's own measurements, which the {} predictor needs. Import a \
             profile that the measuring planner exported, or use the predictor `table` or `capture`",
            kind.as_str()
        ))),
        Some(kind) => measured(document, settings, Some(kind)),
        None if !document.measurements.is_empty() => measured(document, settings, None),
        None => table(document).or_else(|no_table| {
            capture(document, settings)
                .map_err(|no_metrics| NoPredictor::Lacks(format!("{no_metrics}; and {no_table}")))
        }),
    }
}

/// CAPTURE's metrics that a document lists or that follow from it, with their memory accounting; none where it has none.
pub fn layer_metrics(document: &ProfileDocument) -> (Vec<LayerMetrics>, Accounting) {
    of_document::of(document).map(|metrics| (metrics.layers, metrics.ledger)).unwrap_or_default()
}

/// From the measurements of Loadmaster's own runs, as if they had been made here.
fn measured(
    document: &ProfileDocument,
    settings: &ProfileSettings,
    kind: Option<PredictorKind>,
) -> Result<AnyPredictor, NoPredictor> {
    let Subject::Known(model) = &document.model else {
        return Err(NoPredictor::Lacks("its measurements are of an opaque chain".to_owned()));
    };
    let evidence: Vec<Evidence> = document
        .measurements
        .iter()
        .map(|of| Evidence { name: of.name(), measurement: of.measurement.clone(), held_out: of.held_out })
        .collect();
    stored_profile::predictor(Profiled { settings, model, evidence: &evidence }, kind)
}

fn table(document: &ProfileDocument) -> Result<AnyPredictor, NoPredictor> {
    match TablePredictor::new(document) {
        Ok(table) => Ok(Box::new(table)),
        Err(why) => Err(NoPredictor::Lacks(why.to_string())),
    }
}

fn capture(document: &ProfileDocument, settings: &ProfileSettings) -> Result<AnyPredictor, NoPredictor> {
    let metrics = of_document::of(document).map_err(NoPredictor::Lacks)?;
    let capture = Capture::new(document.model.layer_count(), &metrics.layers)
        .profiled_under(settings.training)
        .in_ledger(metrics.ledger);
    Ok(Box::new(capture))
}
