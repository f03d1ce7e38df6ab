//! What a launcher costs where memory actions are chosen: the best plan that anything could run, beside the one that it runs.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::RestrictionCost;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::Allowed;
use loadmaster_proto::training::stage::Partitioning;

use super::{ActionsQuestion, LayerMinima};
use crate::memory_optimizations::certificate::EQUAL;
use crate::memory_optimizations::{Choice, Chooser};
use crate::problem::Criteria;
use crate::result::broken_stages;

impl ActionsQuestion<'_> {
    /// Weighs the plan that was found against the best one without the launcher, in the terms of the objective, where stages
    /// may do all that the request allows; none where no launcher is named, or nothing else is found in time.
    pub(crate) fn restriction(&self, plan: &Plan, asked: &Allowed) -> Option<RestrictionCost> {
        // What the largest of several models is told in is no value of one of them.
        let is_told = self.criteria.rules.is_some()
            && !self.criteria.brief
            && self.criteria.objective != Objective::MaxModel;
        if !is_told || self.stop.is_requested() {
            return None;
        }
        // A front is told by its fastest end.
        let objective = match self.criteria.objective {
            Objective::Pareto => Objective::MinIterationTime,
            other => other,
        };
        let criteria = Criteria { objective, ..self.criteria.free() };
        let choice =
            Choice { chooser: Chooser::Fastest, allowed: asked, framework_rules: None, ..self.choice };
        let free = ActionsQuestion { criteria: &criteria, choice, known: &LayerMinima::default(), ..*self };
        let found = free.answer().ok().map(|(plan, _)| plan);
        self.weighed(plan, found.as_ref())
    }

    fn weighed(&self, plan: &Plan, free: Option<&Plan>) -> Option<RestrictionCost> {
        let value = |plan: &Plan| plan.found.certificate.as_ref().map(|of| of.value);
        let is_maximum = self.criteria.objective.is_maximum();
        let restricted_value = value(plan)?;
        let is_better = |free: &&Plan| {
            value(free)
                .is_some_and(|of| if is_maximum { of > restricted_value } else { of < restricted_value })
        };
        // What was found restricted is a free plan, too, and a search may miss it.
        let best = free.filter(is_better).unwrap_or(plan);
        let free_value = value(best)?;
        let ratio = match is_maximum {
            _ if free_value == restricted_value => 1.0,
            true => free_value / restricted_value,
            false => restricted_value / free_value,
        };
        let binding = if ratio > 1.0 { self.broken(best) } else { Vec::new() };
        // A proof of the restricted plan is of the plans that the launcher can run: only what is known of free ones says more.
        let bound = free.and_then(|free| free.found.certificate.as_ref()?.bound);
        let free_proven = bound.is_some_and(|bound| match is_maximum {
            true => bound <= free_value * (1.0 + EQUAL),
            false => bound >= free_value * (1.0 - EQUAL),
        });
        Some(RestrictionCost {
            free_value,
            restricted_value,
            ratio,
            free_partitioning: Partitioning::new(best.stages.iter().map(|stage| stage.config).collect())
                .ok()?,
            binding,
            free_proven,
        })
    }

    /// The rules that a plan breaks: of stages that the request names those of their actions alone.
    fn broken(&self, plan: &Plan) -> Vec<String> {
        let by_actions = || {
            let stages: Vec<_> = plan.stages.iter().map(|stage| stage.config.layers()).collect();
            let actions: Vec<_> = plan.stages.iter().map(|stage| stage.actions.clone()).collect();
            self.criteria
                .rules
                .map(|rules| rules.broken_by(self.job.model, &stages, &actions))
                .unwrap_or_default()
        };
        let by_stages =
            if self.given.is_none() { broken_stages(self.job, self.criteria, plan) } else { Vec::new() };
        by_stages.into_iter().chain(by_actions()).collect()
    }
}
