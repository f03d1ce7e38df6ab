//! What is asked of a planner so that a plan's iteration can be drawn.

use loadmaster_proto::wire::v1::{Plan, SimulatePlanRequest};

/// Passes that a picture is made of. More of them than this are not told apart anywhere.
const MOST_PASSES: i32 = 50_000;
/// Predictors that read recordings step by step, whatever their version.
const BY_STEPS: &str = "component/";

/// The plan's own iteration, with memory over time where recordings tell it.
pub fn simulation(plan: &Plan) -> SimulatePlanRequest {
    SimulatePlanRequest {
        name: plan.name.clone(),
        max_passes: MOST_PASSES,
        with_memory: is_known_by_steps(plan),
        ..SimulatePlanRequest::default()
    }
}

/// Whether it is told what is held in every step.
pub fn is_known_by_steps(plan: &Plan) -> bool {
    plan.predicted_peak.as_ref().is_some_and(|peak| peak.origin.starts_with(BY_STEPS))
}
