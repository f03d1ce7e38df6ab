//! The fewest or cheapest devices that hold the training.
//!
//! Numbers of devices are tried in the order of what they are worth. [`DeviceWorth`] is their number, or their price of an hour.
//! Those on which no plan is possible wherever the devices are are left out at once, however large the fleet is. On the others,
//! a family of plans is asked for its fastest one ([`fewest_devices`]). Plans that are known by what their stages cost alone are
//! searched in all subsets of the fleet, those on the fewest nodes first ([`exact_fewest_devices`]).

use loadmaster_proto::amounts::plural;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;

use super::{
    Answer, Availability, FamilyContext, FamilySolution, PlanFamily, Progress, Subproblem, Verdict,
    nothing_found,
};
use crate::problem::Criteria;
use crate::result::RecommendError;
use crate::search::{
    BestNodes, Effort, Inquiry, MOST_NAMED, Ranking, Solution, first_fit, least, least_device_count,
    on_any_subset, rank, settle,
};
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::Subsets;
use loadmaster_search::{Choice, Fleet, KindSet, Spanning, StageAt, StageCosts as _};

/// Most choices of devices that are asked about.
const MOST_ASKED: usize = 512;
/// Most of them of one size.
const MOST_WAYS: usize = 8;

/// The fastest plan on the fewest or cheapest devices for which one was found.
pub(super) fn fewest_devices<F: PlanFamily>(family: &F) -> Answer {
    let FamilyContext { context, job, criteria, stop, .. } = *family.context();
    let fleet = job.fleet;
    let device_worth = DeviceWorth { fleet, objective: criteria.objective };
    device_worth.check()?;
    if let Some(error) = family.nowhere() {
        return Err(family.explained(error.into(), &family.whole()));
    }
    // What is left where the search is stopped.
    let spare = family.spare();
    let subsets = Subsets::of(fleet, &criteria.cuts, criteria.starts_evenly(), criteria.keeps_order);
    let speeds = device_worth.speeds(context.prices, criteria);
    let mut sizes = subsets.sizes(speeds, |counts| device_worth.of_counts(counts));
    let (mut tried, mut last, mut asked) = (Progress::default(), None, 0);
    while let Some((worth, counts)) = sizes.next_size() {
        let devices: u32 = counts.iter().sum();
        if !family.may_take(devices) && !stop.is_requested() {
            continue;
        }
        if stop.is_requested() || asked >= MOST_ASKED {
            tried.is_stopped = stop.is_requested();
            tried.doubtful = tried.doubtful.or(Some(worth));
            break;
        }
        let (choices, mut is_proven) = match family.stand_for_all() {
            true => (subsets.with(&counts, 1).0, true),
            false => subsets.with(&counts, MOST_WAYS),
        };
        let mut is_possible = !is_proven;
        for devices in choices {
            let availability = family.availability(&devices, &criteria.batches)?;
            is_possible |= availability != Availability::Absent;
            if availability != Availability::Searched {
                is_proven &= availability == Availability::Absent;
                continue;
            }
            asked += 1;
            let subproblem = Subproblem::on(&devices, &criteria.batches);
            let found = match family.lacks(&subproblem) {
                Some(error) => Err(error.into()),
                None => family.compared(&subproblem),
            };
            match found {
                Ok(found) => return on_fewest(family, found, tried, worth),
                Err(error) => {
                    let error = nothing_found(error)?;
                    is_proven &= error.is_proof();
                    last = Some((error, subproblem));
                }
            }
        }
        // On other numbers there are no such plans.
        if is_possible {
            tried.pass_over(plural(devices, "device"), worth, is_proven);
        }
    }
    if let Some(found) = spare {
        let value = device_worth.of_plan(&found.plan);
        return on_fewest(family, found, tried, value);
    }
    if tried.is_stopped {
        return Err(RecommendError::Stopped.into());
    }
    let Some((error, subproblem)) = last else {
        return Err(family.explained(family.why_absent(), &family.whole()));
    };
    let error = if tried.doubtful.is_none() { error.proven() } else { error.unproven() };
    Err(family.explained(error.into(), &subproblem))
}

fn on_fewest<F: PlanFamily>(family: &F, found: FamilySolution, mut tried: Progress, value: f64) -> Answer {
    tried.states = tried.states.saturating_add(found.certificate.states);
    tried.is_stopped |= found.certificate.stopped;
    let verdict = Verdict {
        certificate: tried.certificate(value, family.context().criteria.objective.unit()),
        notes: Vec::new(),
        among: Some("on these devices"),
        beside: None,
        next_worth: Some(value),
    };
    family.told(found, verdict)
}

/// Most subsets of one size that are searched.
const MOST_OF_A_SIZE: usize = 256;

/// By what part of itself a limit may be exceeded by rounding.
const SAME: f64 = 1e-12;

/// The fewest or cheapest devices, with the best plan on them.
pub(super) fn exact_fewest_devices<M: Market>(inquiry: Inquiry<'_, M>) -> Solution {
    let (Inquiry { criteria, effort, .. }, fleet) = (inquiry, inquiry.fleet());
    // Whatever the limits leave, the plan should be good besides: the fastest where time counts.
    let limit = criteria.constraints.max_iteration_seconds;
    let objective = if limit.is_some() { Objective::MinIterationTime } else { Objective::MinPeakMemory };
    let asked = Criteria { objective, ..criteria.clone() };
    let inquiry = inquiry.with(&asked);
    let subsets = inquiry.subsets();
    let device_worth = DeviceWorth { fleet, objective: criteria.objective };
    let mut tried = ExactProgress::default();
    // Whatever the nodes, fewer are not enough.
    let Some(fewest) = least_device_count(inquiry) else {
        return tried.nothing();
    };
    // Where stages may take any devices, of which all are of one kind, bytes do not depend on the nodes.
    let is_any_alike = limit.is_none()
        && criteria.spanning_on(fleet) == Spanning::Anywhere
        && fleet.nodes.iter().all(|node| node.kind == fleet.nodes[0].kind)
        && criteria.rules.is_none()
        && inquiry.cuts.pins().is_empty();
    let nodes = BestNodes::of(fleet);
    let mut sizes =
        subsets.sizes(device_worth.speeds(inquiry.market, criteria), |counts| device_worth.of_counts(counts));
    while let Some((worth, counts)) = sizes.next_size() {
        let devices: u32 = counts.iter().sum();
        if devices < fewest {
            continue;
        }
        if effort.is_requested() || effort.is_short() {
            tried.is_stopped = effort.is_requested();
            tried.doubt(worth, devices);
            return tried.last_resort(inquiry, criteria.objective);
        }
        let relaxed = least(inquiry, &nodes, &counts);
        let is_late = limit.is_some_and(|limit| relaxed.seconds > limit * (1.0 + SAME));
        if relaxed.highest.is_infinite() || is_late {
            tried.passed_over.push((plural(devices, "device"), worth));
            continue;
        }
        let (own, is_complete) = match is_any_alike {
            true => (subsets.with(&counts, 1).0, true),
            false => subsets.with(&counts, MOST_OF_A_SIZE),
        };
        let mut is_proven = is_complete;
        for (index, subset) in own.iter().enumerate() {
            if index > 0 && effort.is_listed_out() {
                is_proven = false;
                break;
            }
            let Some(cuts) = subset.cuts(inquiry.cuts) else { continue };
            let ranking = rank(inquiry.on(subset, &cuts));
            tried.states = tried.states.saturating_add(ranking.states);
            if !ranking.candidates.is_empty() {
                return tried.found(ranking, worth);
            }
            is_proven &= !ranking.is_bounded && !ranking.is_stopped;
            if effort.is_requested() {
                break;
            }
        }
        if !is_proven {
            tried.doubt(worth, devices);
        }
        tried.passed_over.push((plural(devices, "device"), worth));
    }
    tried.nothing()
}

/// What was tried before anything was found.
#[derive(Debug, Default)]
struct ExactProgress {
    states: u64,
    is_stopped: bool,
    passed_over: Vec<(String, f64)>,
    /// The least worth of which it is not proven that no plan is possible.
    doubtful: Option<f64>,
    open: Vec<String>,
}

impl ExactProgress {
    fn doubt(&mut self, worth: f64, devices: u32) {
        self.doubtful = self.doubtful.or(Some(worth));
        let name = plural(devices, "device");
        if self.open.len() < MOST_NAMED && !self.open.contains(&name) {
            self.open.push(name);
        }
    }

    /// A plan that was found fits, whether or not the search for a better one on the same devices was ended.
    fn found(self, ranking: Ranking, worth: f64) -> Solution {
        let is_bounded = self.doubtful.is_some();
        let ranking =
            Ranking { states: self.states, is_stopped: self.is_stopped && is_bounded, is_bounded, ..ranking };
        let bound = self.doubtful.or(Some(worth));
        Solution {
            passed_over: self.passed_over,
            open: self.open,
            ..Solution::new(ranking, Some(worth), bound)
        }
    }

    fn nothing(self) -> Solution {
        let Self { states, is_stopped, passed_over, doubtful, open } = self;
        let ranking = Ranking { states, is_stopped, is_bounded: doubtful.is_some(), ..Ranking::default() };
        Solution { passed_over, open, ..Solution::new(ranking, None, doubtful) }
    }

    /// A search that was ended: some devices that are enough, with the gap to what it had come to.
    fn last_resort<M: Market>(self, inquiry: Inquiry<'_, M>, objective: Objective) -> Solution {
        let Inquiry { criteria: asked, effort, .. } = inquiry;
        // An ended search may still take one look: the first variant that fits.
        let plan = first_fit(inquiry.within(&Effort::last_look()), true);
        let mut ranking = Ranking { candidates: plan.into_iter().collect(), ..Ranking::default() };
        settle(&mut ranking, asked);
        if ranking.candidates.is_empty() && asked.objective.is_timed() && !effort.is_requested() {
            // What is fastest keeps a limit on time the likeliest.
            let mut fastest = asked.clone();
            fastest.constraints.allow_idle_devices = true;
            ranking = on_any_subset(inquiry.with(&fastest).within(&Effort::besides(&effort.stop)));
        }
        let worth = ranking.candidates.first().map(|plan| match objective {
            Objective::MinCost => plan.hourly_price.unwrap_or(f64::INFINITY),
            _ => f64::from(plan.devices()),
        });
        match worth {
            Some(worth) => self.found(ranking, worth),
            None => self.nothing(),
        }
    }
}

/// Devices of a fleet, by how many they are, or by their price of an hour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceWorth<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) objective: Objective,
}

impl DeviceWorth<'_> {
    fn is_price(&self) -> bool {
        self.objective == Objective::MinCost
    }

    fn price(&self, kind: usize) -> Option<f64> {
        self.fleet.kinds.get(kind)?.hourly_price
    }

    /// # Errors
    /// The cheapest are asked for, and the price of some is not known.
    pub(crate) fn check(&self) -> Result<(), RecommendError> {
        if self.is_price() && self.fleet.nodes.iter().any(|node| self.price(node.kind).is_none()) {
            return Err(RecommendError::NoPrices { objective: self.objective });
        }
        Ok(())
    }

    /// Returns the worth of so many devices of each kind.
    pub(crate) fn of_counts(&self, counts: &[u32]) -> f64 {
        let each = counts.iter().enumerate().filter(|(_, devices)| **devices > 0);
        let one = |kind| if self.is_price() { self.price(kind).unwrap_or(f64::INFINITY) } else { 1.0 };
        each.map(|(kind, &devices)| f64::from(devices) * one(kind)).sum()
    }

    /// Returns the part of the chain that a device of each kind computes in a second, 0 without times: ties go to the faster one.
    pub(crate) fn speeds<M: Market>(&self, market: &M, criteria: &Criteria) -> Vec<f64> {
        let kinds = 0..self.fleet.kinds.len();
        let asked = (criteria.schedules.first(), criteria.batches.first(), market.layers().checked_sub(1));
        let (Some(&schedule), Some(&batch), Some(last)) = asked else { return vec![0.0; kinds.len()] };
        let costs = market.costs(schedule, batch, &[Choice::SINGLE], &[]);
        let seconds = |kind| Some(costs.seconds(&StageAt::anywhere(0, last, KindSet::one(kind)))?.passes());
        kinds.map(|kind| seconds(kind).filter(|&seconds| seconds > 0.0).map_or(0.0, f64::recip)).collect()
    }

    /// Returns the worth of a plan's devices.
    pub(crate) fn of_plan(&self, plan: &Plan) -> f64 {
        let price = plan.found.hourly_price.filter(|_| self.is_price());
        price.unwrap_or_else(|| plan.device_count() as f64)
    }
}
