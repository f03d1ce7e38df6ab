//! What to know before trusting predictions, human-readable.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::warning::{Warning, WarningCode};

use crate::{Margin, Origin, Prediction, Predictor, Share, StageSetting};

/// Most warnings that predictors add; the rest is counted.
const MOST: usize = 20;

/// Warnings about the predictions of some stages, each once. That figures are not whole comes first.
pub fn warnings(
    predictor: &(impl Predictor + ?Sized),
    settings: &[StageSetting],
    predictions: &[Prediction],
    margin: Margin,
) -> Vec<Warning> {
    let unknown = predictor.unknown().map(|why| WarningCode::OverheadUnknown.says(why));
    let mut warnings: Vec<Warning> = unknown.into_iter().collect();
    if predictions.iter().any(|prediction| prediction.origin == Origin::Extrapolated) {
        warnings.push(WarningCode::Extrapolated.says(
            "the prediction is extrapolated beyond the profiled micro-batch sizes, micro-batches in flight or parallel \
             sizes",
        ));
    }
    if predictions.iter().any(|prediction| prediction.margin.is_none()) {
        warnings.push(WarningCode::MarginUnknown.says(match margin {
            Margin::Known => format!(
                "the safety margin is not known, because the profile has no held-out stage to test {}. No margin is \
                 reserved, and no plan is reported to fit",
                predictor.name()
            ),
            Margin::Share(share) => format!(
                "{} has no safety margin of its own. The requested margin ({:.1} %) is used",
                predictor.name(),
                100.0 * share
            ),
        }));
    } else if let Margin::Share(share) = margin
        && predictions.iter().any(|prediction| prediction.margin.is_some_and(|known| known > share))
    {
        let known = predictions.iter().filter_map(|prediction| prediction.margin).fold(0.0, f64::max);
        warnings.push(WarningCode::MarginTooSmall.says(format!(
            "the requested safety margin ({:.1} %) is less than the safety margin of {} ({:.1} %). A plan that is \
             reported to fit may run out of memory",
            100.0 * share,
            predictor.name(),
            100.0 * known
        )));
    }
    if let Some(setting) = settings.iter().find(|of| of.training.schedule.updates_always()) {
        warnings.push(WarningCode::StaleGradients.says(format!(
            "with {}, a stage computes gradients with outdated weights: one update behind for each later stage. \
             Training therefore differs from synchronous SGD",
            setting.training.schedule
        )));
    }
    warnings.extend(below_smallest(predictor, settings));
    if predictions.iter().any(|of| of.seconds.is_some() && of.seconds_margin.is_none()) {
        warnings.push(WarningCode::TimeMarginUnknown.says(format!(
            "the prediction interval of the seconds is not known, because the profile has no held-out stage with \
             seconds to test {}",
            predictor.name()
        )));
    }
    let mut own: Vec<Warning> = Vec::new();
    for warning in settings.iter().flat_map(|setting| predictor.warnings(setting)) {
        if !own.contains(&warning) {
            own.push(warning);
        }
    }
    let more = own.len().saturating_sub(MOST);
    own.truncate(MOST);
    if more > 0 {
        own.push(WarningCode::WarningsOmitted.says(format!("{more} more like these")));
    }
    warnings.extend(own);
    warnings
}

/// That a device takes fewer samples than were profiled, of the smallest share among the stages.
fn below_smallest(predictor: &(impl Predictor + ?Sized), settings: &[StageSetting]) -> Option<Warning> {
    let smallest = predictor.smallest_share()?;
    let share = settings.iter().map(|setting| Share::of(setting).micro_batch_size).min()?;
    (share < smallest).then(|| {
        WarningCode::BatchBelowProfiled.says(format!(
            "a device gets {share} samples of a micro-batch, fewer than {smallest}, the smallest profiled number. Its passes \
             are assumed to take as long as with {smallest}"
        ))
    })
}

/// What bytes of a memory accounting do not contain, where that is not listed; see [`excluded`](super::excluded()).
pub fn on_top(ledger: Accounting) -> Option<Warning> {
    let why = match ledger {
        Accounting::Allocated => Some(
            "the predicted bytes are allocated bytes. The contexts, communication libraries and allocator \
             fragmentation of a GPU need additional memory",
        ),
        Accounting::Reserved => Some(
            "the predicted bytes are reserved bytes. The contexts and communication libraries of a GPU need \
                additional memory",
        ),
        Accounting::Device | Accounting::Host => None,
    };
    why.map(|why: &str| WarningCode::MemoryNotCounted.says(why))
}
