//! From criteria to a plan, with what proves it, what came next, and what restricted it.

use loadmaster_proto::plan::comparison::{Baseline, RestrictionCost};
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::plan::objective::{Objective, SearchMode};
use loadmaster_proto::warning::{Warning, WarningCode};

use super::baselines;
use super::certificate::{certificate, certified};
use super::error::RecommendError;
use super::no_plan::no_plan;
use super::restriction::restriction;
use crate::objectives::{DeviceWorth, attempt};
use crate::problem::{Criteria, check_mode, solver};
use crate::search::{
    Candidate, Effort, Inquiry, Job, KnownOrders, Solution, counted, first_fit, order, rank_by_formula,
    simulate_best, value,
};
use loadmaster_search::Stop;
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::Subset;

/// The answer to criteria.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// The best plan.
    pub best: Candidate,
    /// What proves it.
    pub certificate: Certificate,
    /// Name and version of the search.
    pub solver: String,
    /// The plans that came next, best first, with their values as the certificate counts them.
    pub alternatives: Vec<(Candidate, f64)>,
    /// The whole front between memory and time, the fastest first; empty but for that objective.
    pub front: Vec<Candidate>,
    /// Plans of well-known rules.
    pub compared: Vec<Baseline>,
    /// What shape and framework cost; none where they restrict nothing.
    pub restriction: Option<RestrictionCost>,
    /// What to know besides, human-readable.
    pub notes: Vec<Warning>,
}

/// Recommends the plan that is best by the criteria's objective.
/// Stopped, it gives the best that it has, and leaves out what it would tell besides: what was rejected, what the
/// restrictions cost, what would help.
///
/// # Errors
/// What cannot be asked of this profile or framework, or why no plan fits, with what would help.
pub fn recommend<M: Market>(
    market: &M,
    job: &Job<'_>,
    criteria: &Criteria,
    stop: &Stop,
) -> Result<Recommendation, RecommendError> {
    check(market, job, criteria)?;
    let cuts = criteria.cuts_for(job.model).map_err(RecommendError::Framework)?;
    let whole = Subset::whole(job.fleet);
    // A pin names a device by its place in the fleet.
    let Some(cuts) = whole.cuts(&cuts) else {
        return Err(RecommendError::no_plan(
            "`constraints.layer_pins` pins a layer to a device that is not among the devices of the request",
        ));
    };
    let effort = Effort::times(stop, criteria.efforts);
    let orders = KnownOrders::default();
    let inquiry =
        Inquiry { market, job, subset: &whole, criteria, cuts: &cuts, effort: &effort, orders: &orders };
    let found = attempt(inquiry);
    let mut pool = plan_pool(inquiry, &found);
    let is_timed = criteria.objective == Objective::MinIterationTime;
    if found.is_bounded && is_timed && criteria.efforts > 1 && !stop.is_requested() {
        // Alternatives are looked for around the best plan, which is another one with less effort.
        let usual = Effort::usual(stop);
        let inquiry = inquiry.within(&usual);
        pool.extend(plan_pool(inquiry, &attempt(inquiry)));
        pool = best_first(criteria, pool);
    }
    let Some(best) = pool.first().cloned() else {
        return Err(if found.is_stopped { RecommendError::Stopped } else { no_plan(inquiry, &found) });
    };
    let mut certificate = certificate(inquiry, &found, &pool);
    let is_brief = criteria.brief || stop.is_requested();
    let restriction = if is_brief { None } else { restriction(inquiry, &pool) };
    let (mut alternatives, mut front) = (Vec::new(), Vec::new());
    if criteria.objective == Objective::Pareto {
        front = pool;
    } else {
        alternatives = alternative_plans(criteria, &pool);
    }
    let compared = if is_brief { Vec::new() } else { baselines::compared(inquiry, &best) };
    let mut notes: Vec<Warning> = Vec::new();
    let of_framework = criteria.rules.map(|rules| rules.note()).filter(|note| !note.is_empty());
    notes.extend(of_framework.map(|note| WarningCode::FrameworkNote.says(note)));
    if !found.open.is_empty() {
        let why = format!(
            "the search did not examine all plans for {}. A better plan may exist",
            found.open.join(", ")
        );
        notes.push(WarningCode::SearchIncomplete.says(why));
    }
    // The findings besides the plan may have been cut short too: a later deadline would have found more.
    certificate.stopped |= stop.is_requested();
    let solver = solver(criteria);
    Ok(Recommendation { best, certificate, solver, alternatives, front, compared, restriction, notes })
}

/// Whether any plan fits the devices.
#[derive(Debug)]
pub(crate) enum Fit {
    /// This one does. Nothing is proven of it.
    Plan(Box<Recommendation>),
    /// None does, and with more memory one would.
    TooLarge,
    /// None is possible, whatever the memory.
    Impossible,
    /// Neither was found within the effort.
    Unknown,
}

/// Returns a plan that fits, or why there is none, without a search for the best plan and without an explanation of what lacks.
/// Limits on time and on peaks are not looked at.
///
/// # Errors
/// As [`recommend`], but for plans that do not fit.
pub(crate) fn fit<M: Market>(
    market: &M,
    job: &Job<'_>,
    criteria: &Criteria,
    stop: &Stop,
) -> Result<Fit, RecommendError> {
    check(market, job, criteria)?;
    let cuts = criteria.cuts_for(job.model).map_err(RecommendError::Framework)?;
    let whole = Subset::whole(job.fleet);
    let Some(cuts) = whole.cuts(&cuts) else { return Ok(Fit::Impossible) };
    let effort = Effort::usual(stop);
    let orders = KnownOrders::default();
    let inquiry =
        Inquiry { market, job, subset: &whole, criteria, cuts: &cuts, effort: &effort, orders: &orders };
    let (subsets, is_complete) = match criteria.constraints.allow_idle_devices {
        true => inquiry.subsets().all(),
        false => (vec![whole.clone()], true),
    };
    let first = |effort: &Effort, within_capacity: bool| {
        subsets.iter().find_map(|subset| {
            let cuts = subset.cuts(&cuts)?;
            first_fit(inquiry.on(subset, &cuts).within(effort), within_capacity)
        })
    };
    if let Some(best) = first(&effort, true) {
        let value = value(criteria, &best).map_or(f64::NAN, |value| counted(criteria, value));
        let certificate = Certificate { stopped: true, ..certified(value, None, criteria.objective.unit()) };
        return Ok(Fit::Plan(Box::new(Recommendation {
            best,
            certificate,
            solver: solver(criteria),
            alternatives: Vec::new(),
            front: Vec::new(),
            compared: Vec::new(),
            restriction: None,
            notes: Vec::new(),
        })));
    }
    if effort.is_blind() || !is_complete {
        return Ok(Fit::Unknown);
    }
    let any = Effort::usual(stop);
    Ok(match first(&any, false) {
        Some(_) => Fit::TooLarge,
        None if any.is_blind() => Fit::Unknown,
        None => Fit::Impossible,
    })
}

fn check<M: Market>(market: &M, job: &Job<'_>, criteria: &Criteria) -> Result<(), RecommendError> {
    let needs_times = matches!(criteria.objective, Objective::MinIterationTime | Objective::Pareto)
        || criteria.constraints.max_iteration_seconds.is_some();
    if needs_times && !market.has_times() {
        return Err(RecommendError::NoTimes { objective: criteria.objective });
    }
    DeviceWorth { fleet: job.fleet, objective: criteria.objective }.check()?;
    check_mode(criteria).map_err(RecommendError::Mode)
}

/// Most cuts of the best plan that are forbidden, one at a time, to find the plans that come next.
const MOST_FORBIDDEN: usize = 8;

/// The plans of a search and those that come next, best first: the best of each variant, and those that differ from
/// the best one in a cut.
fn plan_pool<M: Market>(inquiry: Inquiry<'_, M>, found: &Solution) -> Vec<Candidate> {
    let criteria = inquiry.criteria;
    let mut pool = found.candidates.clone();
    let is_timed = criteria.objective == Objective::MinIterationTime;
    let is_ranked = is_timed || criteria.objective == Objective::MinPeakMemory;
    // Others are in the order of what counts besides, or are a front.
    let Some(best) = pool.first().cloned().filter(|_| is_ranked) else { return pool };
    let is_asked = criteria.alternatives > 0 && criteria.mode == SearchMode::Exact;
    // What other cuts there are on the same devices, with the same batch and schedule.
    if is_asked && best.devices() == inquiry.subset.devices() {
        let one = Criteria {
            batches: vec![best.batch],
            schedules: vec![best.schedule],
            alternatives: 0,
            ..criteria.clone()
        };
        let inner = best.stages.iter().take(best.stages.len().saturating_sub(1)).map(|stage| stage.last);
        let effort = Effort::besides(&inquiry.effort.stop);
        for layer in inner.take(MOST_FORBIDDEN) {
            if effort.is_requested() {
                break;
            }
            let mut without = inquiry.cuts.clone();
            without.keep_together(layer..=layer + 1);
            let others = rank_by_formula(inquiry.with(&one).on(inquiry.subset, &without).within(&effort));
            pool.extend(others.into_iter().take(1));
        }
    }
    if is_timed {
        simulate_best(&mut pool);
    }
    best_first(criteria, pool)
}

/// These plans, the best first, and each once.
fn best_first(criteria: &Criteria, mut pool: Vec<Candidate>) -> Vec<Candidate> {
    pool.sort_by(|a, b| order(criteria, a, b));
    let mut distinct: Vec<Candidate> = Vec::with_capacity(pool.len());
    for plan in pool {
        if !distinct.iter().any(|known| known.is_same(&plan)) {
            distinct.push(plan);
        }
    }
    distinct
}

/// The plans that come next, with their values as a certificate counts them.
fn alternative_plans(criteria: &Criteria, pool: &[Candidate]) -> Vec<(Candidate, f64)> {
    let mut next: Vec<Candidate> = pool.iter().skip(1).take(criteria.alternatives).cloned().collect();
    next.iter_mut().for_each(Candidate::simulate);
    next.sort_by(|a, b| order(criteria, a, b));
    next.into_iter()
        .filter_map(|plan| {
            let value = value(criteria, &plan).map(|value| counted(criteria, value))?;
            Some((plan, value))
        })
        .collect()
}
