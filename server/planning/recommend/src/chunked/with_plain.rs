//! Which plan is better: one in chunks or one without, and the best one of several numbers of devices.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::warning::WarningCode;

use crate::plan::NamedPlan;
use crate::result::{QuestionError, RecommendError, certified};

/// The better of a plan without chunks, with the plans that it names, and one in chunks. Where only one of them is possible,
/// that one, with why the other is not. What is proven is so of both kinds.
///
/// # Errors
/// Neither is possible: why the one in chunks is not, which needs less, and what lacks for the other.
pub(crate) fn better(
    objective: Objective,
    plain: Result<(Plan, Vec<NamedPlan>), QuestionError>,
    chunked: Result<Plan, QuestionError>,
) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
    // Of one model the fastest plan is the best.
    let objective = match objective {
        Objective::MaxModel => Objective::MinIterationTime,
        objective => objective,
    };
    match (plain, chunked) {
        (Ok((mut plain, others)), Ok(mut chunked)) => {
            let note = |of: &Plan| told(objective, of);
            let [of_plain, of_chunked] = [&plain, &chunked].map(|plan| plan.found.certificate.clone());
            if is_better(objective, &chunked, &plain) {
                let other = format!("without chunks it would be {}", note(&plain));
                chunked.warnings.push(WarningCode::OtherValue.says(other));
                bound_both(objective, &mut chunked, of_plain.as_ref());
                Ok((chunked, Vec::new()))
            } else {
                let other = format!("in chunks it would be {}", note(&chunked));
                plain.warnings.push(WarningCode::OtherValue.says(other));
                bound_both(objective, &mut plain, of_chunked.as_ref());
                Ok((plain, others))
            }
        }
        (Ok((mut plain, others)), Err(why)) => {
            plain
                .warnings
                .push(WarningCode::OtherValue.says(format!("there is no plan with chunked training: {why}")));
            if !rules_out(&why) {
                bound_both(objective, &mut plain, None);
            }
            Ok((plain, others))
        }
        (Err(QuestionError::Recommend(why)), Ok(mut chunked)) => {
            chunked
                .warnings
                .push(WarningCode::OtherValue.says(format!("there is no plan without chunks: {why}")));
            if !why.is_proof() {
                bound_both(objective, &mut chunked, None);
            }
            Ok((chunked, Vec::new()))
        }
        // A profile that lacks something, or a field that is wrong.
        (Err(why), Ok(_)) => Err(why),
        (Err(plain), Err(QuestionError::Recommend(chunked @ RecommendError::NoRoomInChunks { .. }))) => {
            Err(RecommendError::Neither { plain: plain.to_string(), chunked: Box::new(chunked) }.into())
        }
        // What takes too long in chunks, or was not looked at to the end, is nearer to a plan than what does not fit.
        (
            Err(QuestionError::Recommend(plain)),
            Err(QuestionError::Recommend(RecommendError::Limits { reason, is_proof, remedies })),
        ) => Err(RecommendError::Limits {
            reason: format!("{reason}; without chunks: {plain}"),
            is_proof: is_proof && plain.is_proof(),
            remedies,
        }
        .into()),
        (Err(QuestionError::Recommend(_)), Err(QuestionError::Recommend(RecommendError::Stopped))) => {
            Err(RecommendError::Stopped.into())
        }
        // Nothing is known of a training in chunks: that there is no plan is so without them.
        (Err(QuestionError::Recommend(plain)), Err(chunked)) => {
            Err(plain.unproven().with_note(&format!("chunked training was not searched: {chunked}")).into())
        }
        (Err(plain), Err(_)) => Err(plain),
    }
}

/// Whether an error says of every plan in chunks that there is none.
fn rules_out(why: &QuestionError) -> bool {
    match why {
        // Of what such trainings cannot do there is none in chunks.
        QuestionError::Invalid(_) => true,
        QuestionError::Recommend(why) => why.is_proof(),
        QuestionError::Prediction(_) => false,
    }
}

/// Has a plan's bound be one of other plans, too; none where it is not known that one.
pub(super) fn bound_both(objective: Objective, plan: &mut Plan, other: Option<&Certificate>) {
    let Some(own) = &mut plan.found.certificate else { return };
    let bound = own.bound.zip(other.and_then(|of| of.bound)).map(|(a, b)| farther(objective, a, b));
    let stopped = own.stopped || other.is_some_and(|of| of.stopped);
    let states = own.states + other.map_or(0, |of| of.states);
    if bound.is_some() && bound == own.bound {
        (own.stopped, own.states) = (stopped, states);
        return;
    }
    *own = Certificate {
        states,
        stopped,
        rejected: own.rejected.clone(),
        fetches_fewest: own.fetches_fewest,
        ..certified(own.value, bound, &own.unit)
    };
}

/// The bound of both where each has one.
fn farther(objective: Objective, one: f64, other: f64) -> f64 {
    if objective.is_maximum() { one.max(other) } else { one.min(other) }
}

/// Whether one plan is better than another at an objective.
pub(super) fn is_better(objective: Objective, one: &Plan, other: &Plan) -> bool {
    let [one, other] = [one, other].map(|plan| value(objective, plan));
    if objective.is_maximum() { one > other } else { one < other }
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

/// The best answer and its position, the fewest devices of equal ones. Its bound is one of all answers. Where there is none, what
/// lacks with most devices, or else what none of them can do of what the request names: what some can leaves out the others.
///
/// # Errors
/// None of them is a plan, or what one needs is not known.
pub(super) fn best_of_several(
    objective: Objective,
    answers: impl Iterator<Item = Result<Plan, QuestionError>>,
) -> Result<(usize, Plan), QuestionError> {
    let mut best: Option<(usize, Plan)> = None;
    let mut proofs: Vec<(usize, Certificate)> = Vec::new();
    let (mut is_cut, mut is_open, mut refused, mut wrong) = (false, false, None, None);
    for (index, answer) in answers.enumerate() {
        match answer {
            Ok(plan) => {
                proofs.extend(plan.found.certificate.clone().map(|proof| (index, proof)));
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
    let others = proofs.iter().filter(|(other, _)| *other != index);
    others.for_each(|(_, proof)| bound_both(objective, &mut plan, Some(proof)));
    if is_cut || is_open {
        bound_both(objective, &mut plan, None);
    }
    if let Some(certificate) = &mut plan.found.certificate {
        certificate.stopped |= is_cut;
    }
    Ok((index, plan))
}
