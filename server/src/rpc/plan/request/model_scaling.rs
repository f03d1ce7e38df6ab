//! Of which family a request asks for the largest model, checked.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::model_scaling::GrownModel;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::wire::{field, v1};

/// The family; none where the model is given.
///
/// # Errors
/// Names the field that is wrong, or contradicts that models are made.
pub(super) fn grown(request: &v1::RecommendPlanRequest) -> Result<Option<GrownModel>, Invalid> {
    let Some(grown) = field::<Option<GrownModel>, _>("grow", request.grow.clone())? else { return Ok(None) };
    if field::<Option<Objective>, _>("objective", request.objective)? != Some(Objective::MaxModel) {
        let why = "makes larger models of one: name the objective OBJECTIVE_MAX_MODEL, or leave it out";
        return Err(Invalid::field("grow", why));
    }
    for (field, why, is_named) in [
        ("candidate_profiles", "are models to choose from", !request.candidate_profiles.is_empty()),
        ("other_profiles", "are of the profiled model alone", !request.other_profiles.is_empty()),
    ] {
        if is_named {
            return Err(Invalid::field(
                field,
                format!("{why}, and `grow` makes others of one: name one of the two"),
            ));
        }
    }
    Ok(Some(grown))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Models grow where the largest is asked for, and of one profile.
    #[test]
    fn contradictions_are_refused_by_field() {
        let grow = Some(v1::GrownModel { parameter: "blocks".to_owned(), first: 0, last: 9 });
        let objective = v1::Objective::MaxModel.into();
        let some = v1::RecommendPlanRequest { grow, objective, ..Default::default() };
        let refused =
            |request: &v1::RecommendPlanRequest| grown(request).unwrap_err().violations()[0].field.clone();
        assert_eq!(grown(&v1::RecommendPlanRequest::default()), Ok(None));
        assert_eq!(grown(&some).unwrap().map(|of| (of.first, of.last)), Some((1, 9)));
        assert_eq!(refused(&v1::RecommendPlanRequest { objective: 0, ..some.clone() }), "grow");
        let profiles = || vec!["profiles/p".to_owned()];
        let candidates = v1::RecommendPlanRequest { candidate_profiles: profiles(), ..some.clone() };
        assert_eq!(refused(&candidates), "candidate_profiles");
        assert_eq!(
            refused(&v1::RecommendPlanRequest { other_profiles: profiles(), ..some }),
            "other_profiles"
        );
    }
}
