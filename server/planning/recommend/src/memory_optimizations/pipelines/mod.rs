//! The family of pipelines with chosen memory optimizations.
//!
//! | module | question |
//! |---|---|
//! | here | what do objectives ask of it, what may a plan need at most, and what does the framework cost? |
//! | `subproblem` | which plan is the fastest on these devices, with these batches, within this peak? |
//! | `floor` | which pipelines are there on them, and what does each of them need, whatever is done? |
//! | `impossible` | is it proven that nothing fits, since layers need more alone? |
//! | `remedies` | what would help where there is none? |
//!
//! `subproblem` looks at a few fast pipelines of the shape that is asked for. What it does not find need not be impossible: that says
//! `impossible`.

mod floor;
mod impossible;
mod remedies;
mod subproblem;
#[cfg(test)]
mod tests;

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::RestrictionCost;
use loadmaster_proto::plan::objective::{Objective, PlanShape};
use loadmaster_proto::training::actions::Allowed;
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::warning::{Warning, WarningCode};

use super::certificate::{EQUAL, of_shape};
use super::choice::ActionSearch;
use super::{Choice, Chooser};
use crate::objectives::{Answer, FamilyContext, FamilySolution, PlanFamily, Point, Subproblem, best};
use crate::problem::Criteria;
use crate::result::{QuestionError, RecommendError, broken_stages, restriction_cost};
pub(crate) use impossible::LayerMinima;
use loadmaster_search::fleet::Subset;
use loadmaster_search::{FleetNode, Peak, Unit};

/// A question for a plan whose memory optimizations are to be chosen.
#[derive(Clone, Copy)]
pub(crate) struct ActionsQuestion<'a> {
    pub(crate) family: FamilyContext<'a>,
    pub(crate) choice: Choice<'a>,
}

impl<'a> ActionsQuestion<'a> {
    /// A search for the actions of stages.
    fn search(&self) -> ActionSearch<'a> {
        let Self { family: FamilyContext { context, stop, .. }, choice } = *self;
        ActionSearch { context, choice, stop }
    }

    /// The best plan by the criteria's objective, and the plans that it names.
    ///
    /// # Errors
    /// Nothing that is allowed makes one fit within the limits, as far as anything was found, or the search was stopped before.
    pub(crate) fn answer(&self) -> Answer {
        best(self).map_err(|error| match error {
            QuestionError::Recommend(error) => error.within(self.least_allowed()).into(),
            other => other,
        })
    }
}

impl PlanFamily for ActionsQuestion<'_> {
    fn context(&self) -> &FamilyContext<'_> {
        &self.family
    }

    fn whole(&self) -> Subproblem {
        let may_idle = self.family.criteria.constraints.allow_idle_devices;
        Subproblem {
            may_idle,
            ..Subproblem::on(&Subset::whole(self.family.job.fleet), &self.family.criteria.batches)
        }
    }

    fn fastest(&self, subproblem: &Subproblem) -> Result<FamilySolution, QuestionError> {
        self.or_within_more(subproblem, self.ask(subproblem, false))
    }

    fn compared(&self, subproblem: &Subproblem) -> Result<FamilySolution, QuestionError> {
        self.or_within_more(subproblem, self.ask(subproblem, true))
    }

    /// Of the fast pipelines within the same peak, or of its own where none of them fits.
    fn of_lowest_peak(
        &self,
        found: FamilySolution,
        within: &Subproblem,
        bound: Option<f64>,
    ) -> (FamilySolution, bool) {
        let peak = self.peak(&found.plan);
        let keeps = |told: &FamilySolution| self.peak(&told.plan) <= peak;
        let of_its_own = || self.annotated_of(found.candidate.as_ref()?, bound, within).ok().filter(keeps);
        match self.compared(within).ok().filter(keeps).or_else(of_its_own) {
            Some(told) => (told, true),
            None => (found, false),
        }
    }

    fn point(&self, subproblem: &Subproblem, cap: u64) -> Result<Point<FamilySolution>, QuestionError> {
        let found = self.ask(&subproblem.within(cap), false)?;
        Ok(Point { cap, peak: self.peak(&found.plan), found })
    }

    fn compares_points(&self) -> bool {
        false
    }

    fn lightest(&self, subproblem: &Subproblem, first: &FamilySolution) -> Option<FamilySolution> {
        self.plain(subproblem, Some(first))
    }

    fn may_take(&self, devices: u32) -> bool {
        self.family.criteria.shape != PlanShape::SinglePipeline
            || devices as usize <= self.family.job.names.len()
    }

    fn nowhere(&self) -> Option<RecommendError> {
        self.lacks_layer(&self.whole())
    }

    /// The fastest plan on all devices, or on those of the largest node.
    fn spare(&self) -> Option<FamilySolution> {
        let (fleet, pins) = (self.family.job.fleet, self.family.criteria.cuts.pins());
        let on =
            |devices: Subset| self.fastest(&Subproblem { devices, may_idle: false, ..self.whole() }).ok();
        let all = on(Subset::whole(fleet));
        let is_at = |node: &FleetNode, other: &FleetNode| fleet.is_one_node || node.name == other.name;
        let of_node = |node: &FleetNode| -> Vec<u32> {
            fleet.nodes.iter().map(|other| if is_at(node, other) { other.devices } else { 0 }).collect()
        };
        let largest = || fleet.nodes.iter().map(of_node).max_by_key(|taken| taken.iter().sum::<u32>());
        all.or_else(|| on(Subset::of(fleet, &largest()?, pins)))
    }

    fn is_impossible(&self, subproblem: &Subproblem) -> bool {
        self.is_proven_impossible(subproblem)
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn floor(&self, subproblem: &Subproblem, known: u64) -> u64 {
        self.least_peak(subproblem, known)
    }

    fn peak(&self, plan: &Plan) -> u64 {
        let unit = self.family.criteria.unit;
        let peaks = plan.stages.iter().map(|stage| unit.of(stage.predicted_peak, Bytes(stage.capacity)));
        peaks.max().unwrap_or(0)
    }

    fn counted(&self, peak: u64) -> f64 {
        match self.family.criteria.unit {
            Unit::Bytes => peak as f64,
            Unit::Share => peak as f64 / Unit::WHOLE as f64,
        }
    }

    fn peak_text(&self, peak: u64) -> String {
        match self.family.criteria.unit {
            Unit::Bytes => Bytes(peak).to_string(),
            Unit::Share => format!("{:.1} %", 100.0 * peak as f64 / Unit::WHOLE as f64),
        }
    }

    fn explained(&self, error: QuestionError, subproblem: &Subproblem) -> QuestionError {
        self.with_remedies(error, subproblem)
    }

    fn looked_at(&self) -> Option<Warning> {
        let shape = of_shape(self.family.criteria.shape);
        Some(
            WarningCode::SearchIncomplete.says(format!(
                "memory optimizations were searched only for the fastest pipelines with {shape}"
            )),
        )
    }

    /// On all devices.
    fn shortest(&self) -> Answer {
        let subproblem = self.whole();
        let FamilySolution { mut plan, certificate, bound_is, .. } =
            self.compared(&subproblem).map_err(|error| self.explained(error, &subproblem))?;
        plan.found.certificate = Some(certificate);
        plan.warnings.push(WarningCode::BoundScope.says(bound_is));
        Ok((plan, Vec::new()))
    }
}

/// By what part of itself a limit may be exceeded by rounding.
const SAME: f64 = 1e-12;

impl ActionsQuestion<'_> {
    /// The most predicted bytes that a plan may need on a device of this capacity.
    fn most_bytes(&self, subproblem: &Subproblem, capacity: Bytes) -> u64 {
        let peak =
            subproblem.most.map_or(u64::MAX, |most| self.family.criteria.unit.most_bytes(most, capacity));
        let most =
            peak.min(self.family.criteria.constraints.max_peak_bytes.unwrap_or(u64::MAX)).min(capacity.0);
        let Some((parts, of)) = subproblem.beyond else { return most };
        u64::try_from(u128::from(most) * u128::from(parts) / u128::from(of.max(1))).unwrap_or(u64::MAX)
    }

    /// The highest peak that a subproblem allows, in the criteria's unit; none without devices.
    fn highest(&self, subproblem: &Subproblem) -> Option<u64> {
        let kinds = subproblem.devices.fleet.kinds.iter();
        kinds
            .map(|kind| {
                self.family.criteria.unit.of(self.most_bytes(subproblem, kind.capacity), kind.capacity)
            })
            .max()
    }

    /// Returns the bytes that the request allows on every device, where that is less than one of them has.
    fn least_allowed(&self) -> Option<Bytes> {
        let most = self.family.criteria.constraints.max_peak_bytes?;
        self.family.job.fleet.kinds.iter().any(|kind| kind.capacity.0 > most).then_some(Bytes(most))
    }

    /// Returns the bytes that a device may hold, with those kept free besides a peak, where the subproblem allows less than it has.
    fn capacity(&self, subproblem: &Subproblem, own: Bytes, peak: Peak, is_strict: bool) -> Bytes {
        let most = self.most_bytes(subproblem, own);
        if most == own.0 || is_strict || peak.bytes == 0 {
            return Bytes(most);
        }
        let needed = u128::from(most) * u128::from(peak.needed) / u128::from(peak.bytes);
        Bytes(u64::try_from(needed).unwrap_or(u64::MAX).clamp(most, own.0.max(most)))
    }

    /// Checks the limit on the seconds of an iteration.
    ///
    /// # Errors
    /// How far they are from it, and whether it is proven that nothing keeps to it.
    fn check_seconds(&self, found: &FamilySolution) -> Result<(), RecommendError> {
        let Some(limit) = self.family.criteria.constraints.max_iteration_seconds else { return Ok(()) };
        let seconds = found.plan.iteration_seconds().unwrap_or(f64::INFINITY);
        if seconds <= limit * (1.0 + SAME) {
            return Ok(());
        }
        let bound = found.certificate.bound.unwrap_or(0.0);
        let is_proof = bound > limit * (1.0 + SAME);
        let none = match is_proof {
            true => format!(", and none takes less than {}", Seconds(bound)),
            false => String::new(),
        };
        let has_cores = found.plan.found.copy_rates.as_ref().is_some_and(|rates| !rates.cores.is_empty());
        let waits = match has_cores {
            true => {
                " (including the wait of CPU slots for shared cores; predicted seconds without memory optimizations do \
                 not contain this wait)"
            }
            false => "",
        };
        Err(RecommendError::Limits {
            reason: format!(
                "the stages fit with the allowed memory optimizations, but no plan was found within the limit on the \
                 iteration time. The fastest plan takes {} per iteration{waits}, but the limit is {} \
                 (`constraints.max_iteration_time`){none}",
                Seconds(seconds),
                Seconds(limit)
            ),
            is_proof,
            remedies: Vec::new(),
        })
    }
}

impl ActionsQuestion<'_> {
    /// Weighs the plan that was found against the best one without the framework, in the terms of the objective, where stages
    /// may do all that the request allows. None where no framework is named, or nothing else is found in time.
    pub(crate) fn restriction(&self, plan: &Plan, asked: &Allowed) -> Option<RestrictionCost> {
        // `MaxModel` is measured in parameters, which do not compare plans of one model.
        let is_told = self.family.criteria.rules.is_some()
            && !self.family.criteria.brief
            && self.family.criteria.objective != Objective::MaxModel;
        if !is_told || self.family.stop.is_requested() {
            return None;
        }
        // A front is compared by its fastest plan.
        let objective = match self.family.criteria.objective {
            Objective::Pareto => Objective::MinIterationTime,
            other => other,
        };
        let criteria = Criteria { objective, ..self.family.criteria.free() };
        let choice =
            Choice { chooser: Chooser::Fastest, allowed: asked, framework_rules: None, ..self.choice };
        let known = LayerMinima::default();
        let free = ActionsQuestion { family: self.family.with(&criteria, &known), choice };
        let found = free.answer().ok().map(|(plan, _)| plan);
        self.weighed(plan, found.as_ref())
    }

    fn weighed(&self, plan: &Plan, free: Option<&Plan>) -> Option<RestrictionCost> {
        let value = |plan: &Plan| plan.found.certificate.as_ref().map(|certificate| certificate.value);
        let is_maximum = self.family.criteria.objective.is_maximum();
        let restricted_value = value(plan)?;
        let is_better = |free: &&Plan| {
            value(free).is_some_and(|value| {
                if is_maximum { value > restricted_value } else { value < restricted_value }
            })
        };
        // What was found restricted is a free plan, too, and a search may miss it.
        let best = free.filter(is_better).unwrap_or(plan);
        let free_value = value(best)?;
        // A proof of the restricted plan is of the plans that the framework can run: only what is known of free ones says more.
        let bound = free.and_then(|free| free.found.certificate.as_ref()?.bound);
        let free_proven = bound.is_some_and(|bound| match is_maximum {
            true => bound <= free_value * (1.0 + EQUAL),
            false => bound >= free_value * (1.0 - EQUAL),
        });
        let stages = best.stages.iter().map(|stage| stage.config).collect();
        let free = (Partitioning::new(stages).ok()?, free_proven);
        let values = [free_value, restricted_value];
        let objective = self.family.criteria.objective;
        Some(restriction_cost(objective, values, free, || self.broken(best)))
    }

    /// The rules that a plan breaks: of stages that the request names those of their actions alone.
    fn broken(&self, plan: &Plan) -> Vec<String> {
        let by_actions = || {
            let stages: Vec<_> = plan.stages.iter().map(|stage| stage.config.layers()).collect();
            let actions: Vec<_> = plan.stages.iter().map(|stage| stage.actions.clone()).collect();
            self.family
                .criteria
                .rules
                .map(|rules| rules.broken_by(self.family.job.model, &stages, &actions))
                .unwrap_or_default()
        };
        let by_stages = if self.family.given.is_none() {
            broken_stages(self.family.job, self.family.criteria, plan)
        } else {
            Vec::new()
        };
        by_stages.into_iter().chain(by_actions()).collect()
    }
}
