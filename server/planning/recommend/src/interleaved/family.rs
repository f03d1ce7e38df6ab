//! Objectives of plans with interleaved stages, and the findings beside a plan: its certificate, and the best plan with a
//! single stage on each device.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::plan::objective::{Objective, PlanShape};
use loadmaster_proto::training::actions::{Allowed, Way};
use loadmaster_proto::warning::{Warning, WarningCode};

use super::best::EQUAL;
use super::{InterleavedQuestion, SOLVER, check_length};
use crate::memory_optimizations::{ActionsQuestion, Choice, Chooser, LayerMinima, baseline};
use crate::objectives::{
    Answer, Availability, FamilyContext, FamilySolution, PlanFamily, Subproblem, annotate_next,
};
use crate::plan::PlanBuilder;
use crate::problem::Criteria;
use crate::result::{QuestionError, RecommendError, certified, recommend};
use loadmaster_search::cost::{Batch, Market as _};
use loadmaster_search::fleet::Subset;
use loadmaster_search::{Spanning, Unit};

impl InterleavedQuestion<'_> {
    /// The same criteria for the fastest plan within a subproblem; for that with the lowest peaks, where it is not
    /// known seconds.
    pub(super) fn criteria_within(&self, subproblem: &Subproblem) -> Criteria {
        let constraints = &self.family.criteria.constraints;
        let most = [subproblem.most, constraints.max_peak_bytes].into_iter().flatten().min();
        let has_times = self.family.context.prices.has_times();
        Criteria {
            objective: if has_times { Objective::MinIterationTime } else { Objective::MinPeakMemory },
            batches: subproblem.batches.clone(),
            constraints: Constraints { max_peak_bytes: most, ..constraints.clone() },
            ..self.family.criteria.clone()
        }
    }

    /// Asks the question of a subproblem.
    pub(super) fn within<T>(
        &self,
        subproblem: &Subproblem,
        ask: impl FnOnce(&InterleavedQuestion<'_>) -> Result<T, QuestionError>,
    ) -> Result<T, QuestionError> {
        let criteria = self.criteria_within(subproblem);
        let family = self.family.with(&criteria, self.family.known);
        ask(&InterleavedQuestion { family, devices: &subproblem.devices, ..*self })
    }

    /// Asks what holds for any plan, whose stages may do what is allowed, or recompute.
    fn of_any<T>(&self, ask: impl FnOnce(&ActionsQuestion<'_>) -> T) -> T {
        // What is recomputed by a policy is no action.
        let policies = Allowed {
            ways: vec![Way::Recompute],
            blocks: Vec::new(),
            host_memory: Bytes(0),
            smallest_block: Bytes(0),
        };
        let allowed = self.allowed.unwrap_or(&policies);
        ask(&ActionsQuestion { family: self.family, choice: self.choice(allowed) })
    }

    /// The fastest of what is allowed.
    fn choice<'c>(&'c self, allowed: &'c Allowed) -> Choice<'c> {
        let (pace, framework_rules) = (self.request.copy_pace, self.framework_rules);
        Choice { chooser: Chooser::Fastest, allowed, pace, framework_rules }
    }

    /// Whether devices hold as much wherever they are.
    fn is_any_alike(&self) -> bool {
        let (criteria, fleet) = (self.family.criteria, self.family.job.fleet);
        let is_anywhere =
            criteria.shape == PlanShape::SinglePipeline || criteria.spanning_on(fleet) == Spanning::Anywhere;
        // A node's host has memory for its own devices.
        is_anywhere && criteria.rules.is_none() && self.allowed.is_none() && self.limit().is_infinite()
    }

    /// What one search answers, on all devices.
    pub(super) fn at_once(&self, criteria: &Criteria) -> Answer {
        let family = self.family.with(criteria, self.family.known);
        let FamilySolution { mut plan, certificate, next, .. } =
            InterleavedQuestion { family, ..*self }.found()?;
        // Of stages that are given no one looked at others.
        if self.family.given.is_some() {
            return Ok((plan, Vec::new()));
        }
        if certificate.bound.is_some() && !certificate.proven {
            plan.warnings.push(WarningCode::BoundScope.says(
                "the bound on the iteration time is valid for any layout and ignores memory. The bound divides the \
                 seconds of all layers evenly among the devices. It adds the transfers to and from the first stage of \
                 each device",
            ));
        }
        plan.found.certificate = Some(certificate);
        self.annotate_comparison(&mut plan, criteria)?;
        let others = annotate_next(&mut plan, next)?;
        Ok((plan, others))
    }

    /// How good a plan is by the criteria's seconds or peak, and what no plan is below, where that is known.
    pub(super) fn certificate(&self, value: f64, bound: Option<f64>, states: u64) -> Certificate {
        let is_timed = self.family.criteria.objective == Objective::MinIterationTime;
        let is_closed = bound.is_some_and(|bound| (value - bound).abs() <= EQUAL * bound.abs());
        // 0 bounds nothing: a search that was stopped early has it.
        let bound = bound.filter(|&bound| bound > 0.0);
        let is_share = self.family.criteria.unit == Unit::Share && !is_timed;
        let unit = if is_share { "share" } else { self.family.criteria.objective.unit() };
        Certificate {
            proven: is_closed,
            stopped: self.family.stop.is_requested(),
            states,
            ..certified(value, bound, unit)
        }
    }

    /// Says so where another order of the devices might be better.
    pub(super) fn annotate_order(&self, plan: &mut Plan) {
        if !self.is_any_order() {
            let why = "stages are placed on the devices in the order in which the devices are listed. Other orders \
                were not searched";
            plan.warnings.push(WarningCode::SearchIncomplete.says(why));
        }
    }

    /// Says what the best plan by criteria is whose devices have one stage each, with the same actions to choose from.
    pub(super) fn annotate_comparison(
        &self,
        plan: &mut Plan,
        criteria: &Criteria,
    ) -> Result<(), QuestionError> {
        // Stages that are given are beside no others.
        if self.family.criteria.brief || self.family.given.is_some() {
            return Ok(());
        }
        let (other, note) = match self.one_stage_each(criteria) {
            Ok(other) => (Some(other), String::new()),
            Err(error) => (None, error.to_string()),
        };
        plan.found.baselines.push(baseline("one-stage-each", other.as_ref(), plan, note)?);
        Ok(())
    }

    fn one_stage_each(&self, criteria: &Criteria) -> Result<Plan, QuestionError> {
        let FamilyContext { context, job, stop, .. } = self.family;
        let criteria = &Criteria { alternatives: 0, brief: true, ..criteria.clone() };
        let Some(allowed) = self.allowed else {
            let best = recommend(context.prices, job, criteria, stop)?.best;
            return PlanBuilder { context }.plan(&best, SOLVER);
        };
        let known = LayerMinima::default();
        let family = FamilyContext { given: None, ..self.family.with(criteria, &known) };
        ActionsQuestion { family, choice: self.choice(allowed) }.answer().map(|(plan, _)| plan)
    }
}

/// Peaks are counted in bytes.
impl PlanFamily for InterleavedQuestion<'_> {
    fn context(&self) -> &FamilyContext<'_> {
        &self.family
    }

    fn whole(&self) -> Subproblem {
        Subproblem::on(self.devices, &self.family.criteria.batches)
    }

    /// That with the lowest peaks where it is not known seconds.
    fn fastest(&self, subproblem: &Subproblem) -> Result<FamilySolution, QuestionError> {
        self.within(subproblem, |question| question.found())
    }

    fn compares_points(&self) -> bool {
        true
    }

    fn stand_for_all(&self) -> bool {
        self.is_any_alike()
    }

    fn availability(&self, devices: &Subset, batches: &[Batch]) -> Result<Availability, QuestionError> {
        self.within(&Subproblem::on(devices, batches), |one| {
            let (is_possible, is_short) = match one.family.given {
                None => {
                    let possible = one.possible();
                    (!possible.is_empty(), one.is_any_short(&possible))
                }
                Some(given) => {
                    let places = given.stages().len() / one.request.virtual_stages.max(1) as usize;
                    let layers = one.family.context.chain.layer_names.len();
                    let in_groups = |of: &&Batch| (of.micro_batches as usize).is_multiple_of(places.max(1));
                    let mut batches = batches.iter().filter(in_groups).peekable();
                    let is_possible = batches.peek().is_some();
                    (is_possible, batches.any(|of| check_length(layers, of.micro_batches).is_ok()))
                }
            };
            Ok(match (is_possible, is_short) {
                (_, true) => Availability::Searched,
                (true, false) => Availability::TooLong,
                (false, false) => Availability::Absent,
            })
        })
    }

    /// The fastest plan on all devices, where the framework starts processes on these.
    fn spare(&self) -> Option<FamilySolution> {
        let may_start = self.devices.is_even() || !self.family.criteria.starts_evenly();
        may_start.then(|| self.fastest(&self.whole()).ok()).flatten()
    }

    /// However its stages take turns: what they hold is at least what layers need alone.
    fn lacks(&self, subproblem: &Subproblem) -> Option<RecommendError> {
        self.of_any(|any| any.lacks_anyhow(&subproblem.devices, &subproblem.batches))
    }

    fn is_exact(&self) -> bool {
        self.allowed.is_none()
    }

    fn floor(&self, subproblem: &Subproblem, _known: u64) -> u64 {
        self.of_any(|any| any.least_anyhow(subproblem))
    }

    fn floor_is(&self) -> &'static str {
        ", which one layer needs alone"
    }

    fn peak(&self, plan: &Plan) -> u64 {
        plan.peak()
    }

    fn counted(&self, peak: u64) -> f64 {
        let fleet = &self.devices.fleet;
        // Devices are alike.
        let whole = fleet.nodes.first().and_then(|node| fleet.kinds.get(node.kind));
        match self.family.criteria.unit {
            Unit::Bytes => peak as f64,
            Unit::Share => peak as f64 / whole.map_or(1, |kind| kind.capacity.0.max(1)) as f64,
        }
    }

    fn why_absent(&self) -> QuestionError {
        // Says why there are no such plans on all of them.
        let on_all = self.check_nodes().map_err(QuestionError::from);
        on_all
            .and_then(|()| self.fastest(&self.whole()))
            .err()
            .unwrap_or_else(|| RecommendError::Stopped.into())
    }

    /// Not every way to cut, where actions were chosen.
    fn looked_at(&self) -> Option<Warning> {
        let told = "memory optimizations were searched only for the fastest layouts, and for the layouts that need the \
            fewest additional bytes";
        (self.allowed.is_some() && self.family.given.is_none())
            .then(|| WarningCode::SearchIncomplete.says(told))
    }

    fn compare(&self, plan: &mut Plan, beside: Option<&Subproblem>) -> Result<(), QuestionError> {
        let within = beside.map(|beside| self.criteria_within(beside));
        self.annotate_comparison(plan, within.as_ref().unwrap_or(self.family.criteria))
    }

    fn shortest(&self) -> Answer {
        match self.family.criteria.objective {
            // Of several models the caller asks for one after another.
            Objective::MaxModel => self.at_once(&self.criteria_within(&self.whole())),
            _ => self.at_once(self.family.criteria),
        }
    }
}
