//! What a shape and a framework cost: the best plan without them, and which of their rules it breaks.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::RestrictionCost;
use loadmaster_proto::plan::objective::{Objective, PlanShape, SearchMode};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use crate::objectives::attempt;
use crate::problem::{Criteria, restrict};
use crate::search::{Candidate, Effort, Inquiry, Job, Solution, best_value, counted, value};
use loadmaster_search::Cuts;
use loadmaster_search::cost::Market;

/// Weighs the best of the restricted plans against the best free one; none where nothing restricts, or where no value
/// can be compared.
pub(super) fn restriction<M: Market>(inquiry: Inquiry<'_, M>, pool: &[Candidate]) -> Option<RestrictionCost> {
    let criteria = inquiry.criteria;
    // Annealing finds plans that are none of the free ones either: they come to a node twice.
    if !criteria.is_restricted() || criteria.mode == SearchMode::AmpAnnealing {
        return None;
    }
    let (free, effort) = (criteria.free(), Effort::besides(&inquiry.effort.stop));
    let found = attempt(inquiry.with(&free).on(inquiry.subset, &criteria.cuts).within(&effort));
    weigh(inquiry.job, criteria, pool, &found)
}

fn weigh(
    job: &Job<'_>,
    criteria: &Criteria,
    pool: &[Candidate],
    found: &Solution,
) -> Option<RestrictionCost> {
    let restricted_value = best_value(criteria, pool)?;
    let of_value = |plans: &[Candidate], wanted: f64| {
        plans.iter().find(|plan| value(criteria, plan) == Some(wanted)).cloned()
    };
    let worse =
        |one: f64, other: f64| if criteria.objective.is_maximum() { one < other } else { one > other };
    // A search that was stopped may have found less than the restricted one, whose plan is a free one too.
    let (free_value, free, is_proven) = match found.value {
        Some(value) if !worse(value, restricted_value) => {
            // What a merger keeps together was not searched apart.
            (value, of_value(&found.candidates, value)?, found.is_proven() && !criteria.is_merged)
        }
        _ => (restricted_value, of_value(pool, restricted_value)?, false),
    };
    let (partitioning, broken) = (free.partitioning().ok()?, || broken_rules(job, criteria, &free));
    let values = [free_value, restricted_value];
    let cost = restriction_cost(criteria.objective, values, (partitioning, is_proven), broken);
    let [free_value, restricted_value] = values.map(|value| counted(criteria, value));
    Some(RestrictionCost { free_value, restricted_value, ..cost })
}

/// What a restriction costs whose best plan and the best free one have these values; `broken` are rules that the free one breaks.
pub(crate) fn restriction_cost(
    objective: Objective,
    [free_value, restricted_value]: [f64; 2],
    (free_partitioning, free_proven): (Partitioning, bool),
    broken: impl FnOnce() -> Vec<String>,
) -> RestrictionCost {
    let ratio = match objective.is_maximum() {
        _ if free_value == restricted_value => 1.0,
        true => free_value / restricted_value,
        false => restricted_value / free_value,
    };
    let placement = if ratio > 1.0 { broken() } else { Vec::new() };
    RestrictionCost { free_value, restricted_value, ratio, free_partitioning, placement, free_proven }
}

/// A stage as rules see it.
type RuledStage = (StageConfig, RecomputePolicy);

/// The rules of criteria's shape and framework that a plan breaks.
pub(crate) fn broken_rules(job: &Job<'_>, criteria: &Criteria, plan: &Candidate) -> Vec<String> {
    let ruled = plan.stages.iter().map(|stage| (stage.config(), stage.choice.recompute));
    broken(job, criteria, &ruled.collect::<Vec<_>>(), plan.schedule)
}

/// The same of a plan that is written already; of its stages alone, whatever they do about their memory.
pub(crate) fn broken_stages(job: &Job<'_>, criteria: &Criteria, plan: &Plan) -> Vec<String> {
    let ruled: Vec<RuledStage> = plan.stages.iter().map(|stage| (stage.config, stage.recompute)).collect();
    broken(job, criteria, &ruled, plan.training.schedule)
}

/// Whether stages keep to a shape.
pub(super) fn is_of_shape<'a>(
    shape: PlanShape,
    mut stages: impl Iterator<Item = &'a StageConfig> + Clone,
) -> bool {
    let degrees = |stage: &StageConfig| (stage.data_degree, stage.tensor_degree);
    let Some(first) = stages.clone().next() else { return true };
    stages.all(|stage| match shape {
        PlanShape::SinglePipeline => stage.devices() == 1,
        PlanShape::UniformGrid => degrees(stage) == degrees(first),
        PlanShape::EqualDevices => stage.devices() == first.devices(),
        PlanShape::PerStageReplicas => stage.tensor_degree == 1,
        PlanShape::PerStageMesh => true,
    })
}

fn broken(job: &Job<'_>, criteria: &Criteria, stages: &[RuledStage], schedule: Schedule) -> Vec<String> {
    let mut broken = Vec::new();
    let shape = criteria.shape;
    let rule = match shape {
        PlanShape::SinglePipeline => "every stage has one device",
        PlanShape::UniformGrid => "all stages have equal data-parallel and tensor-parallel sizes",
        PlanShape::EqualDevices => "all stages have equally many devices",
        PlanShape::PerStageReplicas => "no stage has tensor parallelism",
        PlanShape::PerStageMesh => "",
    };
    if !is_of_shape(shape, stages.iter().map(|(stage, _)| stage)) {
        broken.push(format!("{shape}: {rule}"));
    }
    let Some(rules) = &criteria.rules else { return broken };
    let framework = rules.framework;
    let mut cuts = Cuts::anywhere(job.names.len());
    if restrict(&mut cuts, rules, job.model).is_ok() {
        let inner = stages.iter().take(stages.len().saturating_sub(1));
        if let Some((stage, _)) = inner.clone().find(|(stage, _)| !cuts.may_end(stage.last_layer)) {
            let last = stage.last_layer;
            let name = job.names.get(last).map_or("", String::as_str);
            broken.push(format!("{framework}: no stage may end after layer {last} ({name})"));
        }
    }
    if !rules.has_policies_of_stages(job.model) {
        let mut policies: Vec<_> = stages.iter().map(|(_, recompute)| *recompute).collect();
        policies.dedup();
        if let [one, other, ..] = policies.as_slice() {
            broken.push(format!(
                "{framework}: all stages must have the same recompute policy, but the plan has {} and {}",
                one, other
            ));
        }
    }
    if !rules.schedules.contains(&schedule) {
        broken.push(format!("{framework}: {schedule} is not supported"));
    }
    broken
}
