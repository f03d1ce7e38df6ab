//! The certificate of a plan whose memory optimizations were chosen, and the plans that it is compared with.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::{Baseline, Outline};
use loadmaster_proto::plan::findings::{Certificate, optimality_gap};
use loadmaster_proto::plan::objective::PlanShape;

use super::Stages;
use super::choice::Choice;
use super::problem::ActionProblem;
use crate::result::certified;
use loadmaster_memory::actions::optimizer::{self, Known};
use loadmaster_search::Stop;

/// Within which share of the bound a value is as good.
pub(super) const EQUAL: f64 = 1e-9;

/// Seconds of an iteration; infinite where they are not known.
pub(super) fn seconds(plan: &Plan) -> f64 {
    plan.iteration_seconds().unwrap_or(f64::INFINITY)
}

/// Whether a plan takes no longer than its stages untouched, which no actions make faster where each device has its own cores.
pub(super) fn is_as_fast_as_untouched(problem: &ActionProblem<'_>, plan: &Plan) -> bool {
    let untouched = problem.untouched.iteration_seconds().unwrap_or(0.0);
    problem.node.cores.is_none() && seconds(plan) <= untouched * (1.0 + EQUAL)
}

/// How far from the best the plan's seconds can be, and of what their bound is.
pub(super) fn certificate(
    problem: &ActionProblem<'_>,
    stages: &Stages,
    choice: Choice<'_>,
    plan: &Plan,
    stop: &Stop,
) -> (Certificate, String) {
    let best = seconds(plan);
    let is_endless = problem.candidate.schedule.updates_always();
    let of_stages = || {
        // Actions only add to what the stages do, so nothing of these stages is faster than they are untouched.
        let own = problem.least_seconds().or_else(|| problem.untouched.iteration_seconds()).unwrap_or(0.0);
        if is_endless {
            return own;
        }
        let node = problem.node_within(choice.allowed);
        let question = problem.question(&node, &[], choice.allowed, stop);
        let edges = problem.least_edges();
        let known = Known { edges: Some(&edges), ..problem.known() };
        optimizer::bound(&question, known, best).ok().flatten().unwrap_or(0.0).max(own)
    };
    let bound = stages.bound.unwrap_or_else(of_stages).min(best);
    // A bound of 0 is that of a search which was stopped: it bounds nothing, unless nothing takes any time.
    let bound = Some(bound).filter(|&bound| bound > 0.0 || bound == best);
    let gap = bound.map(|bound| optimality_gap(best, bound.min(best)));
    let certificate = Certificate {
        gap,
        proven: gap.is_some_and(|gap| gap <= EQUAL),
        stopped: stages.stopped || stop.is_requested(),
        states: stages.states,
        ..certified(best, bound, "seconds")
    };
    let bound_is = if certificate.bound.is_none() {
        "no bound on the iteration time is known: the search was stopped before it found one".to_owned()
    } else if stages.bound.is_some() {
        format!(
            "the bound on the iteration time is valid for every pipeline with {}. The bound ignores memory and memory \
             optimizations. Memory optimizations were searched for the stages of {} of these pipelines",
            of_shape(problem.untouched.asked.shape),
            stages.candidates.len()
        )
    } else if is_endless {
        "the bound on the iteration time is valid for this pipeline layout in the steady state of pipedream. The bound \
         ignores memory optimizations, which never make a stage faster. \
         Other pipeline layouts were not searched"
            .to_owned()
    } else {
        "the bound on the iteration time is valid for this pipeline layout and schedule with any of the allowed memory \
         optimizations. The bound assumes that copies do not wait for each other. Other pipeline layouts were not \
         searched"
            .to_owned()
    };
    (certificate, bound_is)
}

/// Which pipelines are looked at where no stages are named.
pub(super) fn of_shape(shape: PlanShape) -> String {
    match shape {
        PlanShape::SinglePipeline => "one device per stage".to_owned(),
        PlanShape::UniformGrid
        | PlanShape::EqualDevices
        | PlanShape::PerStageReplicas
        | PlanShape::PerStageMesh => format!("the layout {shape}"),
    }
}

/// A plan beside the best one.
///
/// # Errors
/// Its stages do not follow each other.
pub(crate) fn baseline(
    name: &str,
    plan: Option<&Plan>,
    best: &Plan,
    note: String,
) -> Result<Baseline, Invalid> {
    let fits = plan.is_some_and(|plan| plan.stages.iter().all(super::fits));
    Ok(outlined(name.to_owned(), plan.map(Plan::outline).transpose()?, fits, note, best))
}

/// A plan beside the best one, of which no more than an outline is known.
pub(crate) fn outlined(
    name: String,
    plan: Option<Outline>,
    fits: bool,
    note: String,
    best: &Plan,
) -> Baseline {
    let ratio = |own: f64, other: f64| (other > 0.0).then_some(own / other);
    Baseline {
        peak_ratio: plan.as_ref().and_then(|plan| ratio(plan.peak as f64, best.peak() as f64)),
        time_ratio: plan.as_ref().and_then(|plan| ratio(plan.seconds?, best.iteration_seconds()?)),
        name,
        plan,
        fits,
        note,
    }
}
