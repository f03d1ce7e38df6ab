//! The model with the most parameters that fits.

use loadmaster_proto::plan::findings::{Certificate, Rejected};
use loadmaster_proto::plan::objective::Objective;

use super::plan::NamedPlan;
use super::question::PlanQuestion;
use super::result::{QuestionError, RecommendError};
use loadmaster_search::Stop;

/// Most models that a certificate names as rejected.
const NAMED: usize = 3;

/// The answer to the question whose model has the most parameters, from the largest one down, among those that have
/// one; each question comes with its parameters.
///
/// # Errors
/// Those of the smallest model, where none fits, and whatever is wrong with a question.
pub fn largest_model(
    mut questions: Vec<(u64, PlanQuestion)>,
    stop: &Stop,
) -> Result<(NamedPlan, Vec<NamedPlan>), QuestionError> {
    // Of equally large ones the first that was named.
    questions.sort_by_key(|(parameters, _)| std::cmp::Reverse(*parameters));
    // The largest of which it is not proven that it does not fit.
    let mut open: Option<u64> = None;
    let mut rejected: Vec<Rejected> = Vec::new();
    let mut last = None;
    for (parameters, question) in &questions {
        match question.answer(stop) {
            Ok(((_, mut plan), others)) => {
                let is_chosen = question.request.allowed.is_some();
                let states = plan.found.certificate.as_ref().map_or(0, |certificate| certificate.states);
                let value = *parameters as f64;
                let is_proven = open.is_none();
                let bound = open.map_or(value, |open| open as f64);
                plan.found.certificate = Some(Certificate {
                    value,
                    bound: Some(bound),
                    gap: Some(if is_proven { 0.0 } else { (bound - value) / bound }),
                    unit: Objective::MaxModel.unit().to_owned(),
                    proven: is_proven,
                    stopped: is_chosen && stop.is_requested(),
                    states,
                    rejected,
                    fetches_fewest: plan.found.certificate.as_ref().is_some_and(|of| of.fetches_fewest),
                });
                // How the plans that came next compare is told in bytes, not in parameters.
                return Ok(((plan.name()?, plan), others));
            }
            // With actions to choose there may be time for a part of the models alone.
            Err(QuestionError::Recommend(RecommendError::Stopped)) if question.request.allowed.is_some() => {
                open = open.or(Some(*parameters));
                last = Some(RecommendError::Stopped);
            }
            Err(QuestionError::Recommend(
                error @ (RecommendError::NoPlan { .. }
                | RecommendError::Limits { .. }
                | RecommendError::NoRoomInChunks { .. }
                | RecommendError::Neither { .. }),
            )) => {
                if !error.is_proof() {
                    open = open.or(Some(*parameters));
                }
                if rejected.len() < NAMED {
                    rejected.push(Rejected {
                        what: question.chain.profile.to_string(),
                        value: Some(*parameters as f64),
                        reason: error.to_string(),
                    });
                }
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    // There is at least one candidate.
    Err(last.unwrap_or(RecommendError::Stopped).into())
}
