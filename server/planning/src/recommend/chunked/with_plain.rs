//! Whether a plan in chunks or one without is better.

use std::cmp::Ordering;

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;

use crate::recommend::answer::{QuestionError, RecommendError};
use crate::recommend::plan::NamedPlan;

/// The better of a plan without chunks, with the plans that it names, and one in chunks. Where only one of them is possible,
/// that one, with why the other is not.
///
/// # Errors
/// Neither is possible: why the one in chunks is not, which needs less, and what lacks for the other.
pub(in crate::recommend) fn better(
    objective: Objective,
    plain: Result<(Plan, Vec<NamedPlan>), QuestionError>,
    chunked: Result<Plan, QuestionError>,
) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
    match (plain, chunked) {
        (Ok((mut plain, others)), Ok(mut chunked)) => {
            let note = |of: &Plan| told(objective, of);
            if is_better(objective, &chunked, &plain) {
                chunked.warnings.push(format!("without chunks it would be {}", note(&plain)));
                Ok((chunked, Vec::new()))
            } else {
                plain.warnings.push(format!("in chunks it would be {}", note(&chunked)));
                Ok((plain, others))
            }
        }
        (Ok((mut plain, others)), Err(why)) => {
            plain.warnings.push(format!("there is no plan in chunks: {why}"));
            Ok((plain, others))
        }
        (Err(QuestionError::Recommend(why)), Ok(mut chunked)) => {
            chunked.warnings.push(format!("there is no plan without chunks: {why}"));
            Ok((chunked, Vec::new()))
        }
        // A profile that lacks something, or a field that is wrong.
        (Err(why), Ok(_)) => Err(why),
        (Err(plain), Err(QuestionError::Recommend(chunked @ RecommendError::NoRoomInChunks { .. }))) => {
            Err(RecommendError::Neither { plain: plain.to_string(), chunked: Box::new(chunked) }.into())
        }
        (Err(plain), Err(_)) => Err(plain),
    }
}

/// Whether one plan is better than another at an objective.
pub(super) fn is_better(objective: Objective, one: &Plan, other: &Plan) -> bool {
    value(objective, one).partial_cmp(&value(objective, other)) == Some(better_is(objective))
}

/// Which way a better value lies.
pub(super) fn better_is(objective: Objective) -> Ordering {
    match objective {
        Objective::MaxBatch | Objective::MaxModel => Ordering::Greater,
        _ => Ordering::Less,
    }
}

fn value(objective: Objective, plan: &Plan) -> f64 {
    match objective {
        Objective::MinPeakMemory => plan.peak() as f64,
        Objective::MaxBatch => f64::from(plan.training.micro_batch_size),
        _ => plan.iteration_seconds().unwrap_or(f64::INFINITY),
    }
}

fn told(objective: Objective, plan: &Plan) -> String {
    format!("{} {}", value(objective, plan), objective.unit())
}
