//! Which of the answers for several numbers of devices is best.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::plan::objective::Objective;

use super::with_plain::{bound_both, is_better};
use crate::result::{QuestionError, RecommendError};

/// The best answer and its position, the fewest devices of equal ones. Its bound is one of all answers. Where there is none, what
/// lacks with most devices, or else what none of them can do of what the request names: what some can leaves out the others.
///
/// # Errors
/// None of them is a plan, or what one needs is not known.
pub(super) fn best(
    objective: Objective,
    answers: impl Iterator<Item = Result<Plan, QuestionError>>,
) -> Result<(usize, Plan), QuestionError> {
    let mut best: Option<(usize, Plan)> = None;
    let mut proofs: Vec<(usize, Certificate)> = Vec::new();
    let (mut is_cut, mut is_open, mut refused, mut wrong) = (false, false, None, None);
    for (index, answer) in answers.enumerate() {
        match answer {
            Ok(plan) => {
                proofs.extend(plan.found.certificate.clone().map(|of| (index, of)));
                if best.as_ref().is_none_or(|(_, best)| is_better(objective, &plan, best)) {
                    best = Some((index, plan));
                }
            }
            Err(QuestionError::Recommend(why)) => {
                is_cut |= matches!(why, RecommendError::Stopped);
                // One that was not found may be within the limit.
                is_open |= matches!(why, RecommendError::Limits { is_proof: false, .. });
                refused = Some(why);
            }
            Err(QuestionError::Invalid(why)) => {
                wrong.get_or_insert(why);
            }
            Err(why) => return Err(why),
        }
    }
    let Some((index, mut plan)) = best else {
        return Err(match (refused, wrong) {
            (None, Some(wrong)) => wrong.into(),
            (refused, _) => refused.unwrap_or(RecommendError::Stopped).into(),
        });
    };
    let others = proofs.iter().filter(|(of, _)| *of != index);
    others.for_each(|(_, of)| bound_both(objective, &mut plan, Some(of)));
    if is_cut || is_open {
        bound_both(objective, &mut plan, None);
    }
    if let Some(certificate) = &mut plan.found.certificate {
        certificate.stopped |= is_cut;
    }
    Ok((index, plan))
}
