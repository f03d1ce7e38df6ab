//! Whether plans may be compared.

use std::collections::BTreeSet;

use loadmaster_proto::plan::Plan;

/// What makes the numbers of plans incomparable.
pub fn incomparable(plans: &[&Plan]) -> Vec<String> {
    let differ = |of: &dyn Fn(&Plan) -> String| {
        let values: BTreeSet<String> = plans.iter().map(|plan| of(plan)).collect();
        (values.len() > 1).then(|| values.into_iter().collect::<Vec<_>>().join(", "))
    };
    let mut warnings = Vec::new();
    if let Some(models) = differ(&|plan| plan.model.to_string()) {
        warnings.push(format!("the plans are of different models: {models}"));
    }
    if let Some(batches) = differ(&|plan| plan.training.global_batch_size().to_string()) {
        warnings.push(format!(
            "an iteration has different numbers of samples ({batches}): compare samples per second, not seconds"
        ));
    }
    if let Some(ledgers) = differ(&|plan| plan.ledger.as_str().to_owned()) {
        warnings.push(format!("bytes are of different ledgers ({ledgers}) and must not be compared"));
    }
    if let Some(profiles) = differ(&|plan| plan.profile.to_string()) {
        warnings.push(format!("the predictions come from different profiles: {profiles}"));
    }
    if let Some(predictors) = differ(&|plan| plan.predictor.clone()) {
        warnings.push(format!("the predictions come from different predictors: {predictors}"));
    }
    let corrected = |plan: &Plan| {
        let versions: Vec<&str> =
            plan.found.corrections.iter().map(|correction| correction.version.as_str()).collect();
        if versions.is_empty() { "none".to_owned() } else { versions.join("+") }
    };
    if let Some(versions) = differ(&corrected) {
        warnings.push(format!("the predictions are corrected differently: {versions}"));
    }
    let overlaps: BTreeSet<String> =
        plans.iter().filter_map(|plan| Some(plan.found.iteration.as_ref()?.overlap.to_string())).collect();
    if overlaps.len() > 1 {
        let overlaps = overlaps.into_iter().collect::<Vec<_>>().join(", ");
        warnings.push(format!("the seconds are of different transfers between stages: {overlaps}"));
    }
    warnings
}
