//! What would make a plan possible where there is none: each remedy was tried by searching once more, as it would be asked.

use std::cmp::Reverse;

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::change::FieldChange;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Framework, NodeSpanning, Objective, PlanShape, SearchMode};
use loadmaster_proto::training::actions::Way;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_proto::wire::v1;
use serde_json::{Value, json};

use super::restriction::is_of_shape;
use crate::problem::{Criteria, check_mode, divisors};
use crate::search::{Candidate, Effort, Inquiry, first_fit, least_device_count, rank};
use loadmaster_search::cost::{Batch, Market};
use loadmaster_search::fleet::Subset;
use loadmaster_search::{Fleet, FleetNode, Spanning};

/// Most times the devices that there are that are tried.
const MOST_TIMES: u32 = 8;

/// Most numbers of devices that are tried.
const MOST_TRIED: u32 = 16;

/// A change of the request after which a plan fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Remedy {
    /// Human-readable description of the change.
    pub what: String,
    /// The fields to change; none where the cluster has to change.
    pub changes: Vec<FieldChange>,
    /// A plan that fits then. It need not be the best one.
    pub plan: Candidate,
    /// The devices after the change; none where they stay.
    pub fleet: Option<Box<Fleet>>,
    /// The plan that the changed request leads to, and the memory optimizations that it allows; none where that was not searched.
    pub result: Option<(Box<Plan>, Vec<Way>)>,
}

impl Remedy {
    /// A change that leaves the devices as they are.
    pub(crate) fn new(what: String, changes: Vec<FieldChange>, plan: Candidate) -> Self {
        Self { what, changes, plan, fleet: None, result: None }
    }

    /// Returns the frameworks that can run the resulting plan.
    pub fn frameworks(&self) -> Vec<Framework> {
        let Some((plan, ways)) = &self.result else { return Vec::new() };
        let policies = || plan.stages.iter().map(|stage| stage.recompute);
        let runs = |framework: &Framework| {
            let rules = loadmaster_launchers::rules(*framework);
            let has_one_policy = policies().all(|policy| Some(policy) == policies().next());
            let own = rules.memory_ways();
            is_of_shape(rules.shape, plan.stages.iter().map(|stage| &stage.config))
                && rules.schedules.contains(&plan.training.schedule)
                && policies().all(|policy| rules.policies.contains(&policy))
                && (rules.recompute_per_stage || has_one_policy)
                && plan.stages.iter().all(|stage| rules.shares(&stage.config, &plan.training.optimizer))
                && (rules.takes_turns || !plan.is_interleaved())
                && ways.iter().all(|way| own.contains(way))
        };
        Framework::ALL.into_iter().filter(runs).collect()
    }
}

/// Most subsets of fleets that all remedies of an answer search together.
const MOST_SUBSETS: u32 = 192;

/// Tries changes of criteria one after another.
struct Trial<'a, M> {
    /// What was asked, within what all of them may cost together.
    inquiry: Inquiry<'a, M>,
    /// Subsets of fleets that may yet be searched.
    subsets_left: u32,
    found: Vec<Remedy>,
}

impl<'a, M: Market> Trial<'a, M> {
    fn within(inquiry: Inquiry<'a, M>, effort: &'a Effort) -> Self {
        Self { inquiry: inquiry.within(effort), subsets_left: MOST_SUBSETS, found: Vec::new() }
    }

    /// Notes a change if a plan fits then; whether one does.
    fn check(&mut self, what: String, changes: Vec<FieldChange>, criteria: &Criteria, fleet: &Fleet) -> bool {
        let plan = self.fits(criteria, fleet);
        let works = plan.is_some();
        let grown = fleet.devices() > self.inquiry.fleet().devices();
        let fleet = grown.then(|| Box::new(fleet.clone()));
        self.found.extend(plan.map(|plan| Remedy { fleet, ..Remedy::new(what, changes, plan) }));
        works
    }

    /// A plan that keeps to all that criteria say; none where none was found.
    fn fits(&mut self, criteria: &Criteria, fleet: &Fleet) -> Option<Candidate> {
        let effort = self.inquiry.effort;
        if effort.is_blind() {
            return None;
        }
        check_mode(criteria).ok()?;
        let (whole, cuts) = (Subset::whole(fleet), criteria.cuts_for(self.inquiry.job.model).ok()?);
        let inquiry = self.inquiry.with(criteria).on(&whole, &cuts);
        let limits = &criteria.constraints;
        let timed = Criteria {
            objective: Objective::MinIterationTime,
            mode: SearchMode::Exact,
            alternatives: 0,
            ..criteria.clone()
        };
        let most = limits.max_peak_bytes.unwrap_or(u64::MAX);
        inquiry.allowed_subsets().iter().find_map(|subset| {
            self.subsets_left = self.subsets_left.checked_sub(1).filter(|_| !effort.is_blind())?;
            let cuts = subset.cuts(&cuts)?;
            let inquiry = inquiry.on(subset, &cuts);
            if !inquiry.may_start() {
                return None;
            }
            if limits.max_iteration_seconds.is_some() && criteria.mode == SearchMode::Exact {
                return rank(inquiry.with(&timed)).candidates.into_iter().next();
            }
            if criteria.mode != SearchMode::Exact {
                // The same program has to find it.
                return rank(inquiry).candidates.into_iter().next();
            }
            let plan = first_fit(inquiry, true)?;
            (plan.peak_bytes() <= most).then_some(plan)
        })
    }
}

/// The remedies that work where nothing fits, those that cost least first. Stopping leaves out what was not tried yet.
pub(super) fn remedies<M: Market>(inquiry: Inquiry<'_, M>) -> Vec<Remedy> {
    let effort = Effort::besides(&inquiry.effort.stop);
    let (criteria, fleet) = (inquiry.criteria, inquiry.fleet());
    let mut trial = Trial::within(inquiry, &effort);
    // What a merger keeps together depends on the training and the devices: of others it is not known here.
    if !criteria.is_merged {
        other_training(&mut trial, criteria);
    }
    over_nodes(&mut trial, criteria);
    for shape in PlanShape::ALL {
        let is_new = !criteria.shape.includes(shape);
        if is_new && criteria.rules.is_none_or(|rules| rules.shape.includes(shape)) {
            let other = Criteria { shape, ..criteria.clone() };
            let name = v1::ParallelismLayout::from(shape).as_str_name();
            let change = FieldChange::new("constraints.parallelism_layout", name);
            if trial.check(format!("parallelism layout {shape}"), vec![change], &other, fleet) {
                break;
            }
        }
    }
    let counts_devices = matches!(criteria.objective, Objective::MinDevices | Objective::MinCost);
    if !criteria.constraints.allow_idle_devices && !counts_devices {
        let mut other = criteria.clone();
        other.constraints.allow_idle_devices = true;
        if let Some(plan) = trial.fits(&other, fleet).filter(|plan| plan.devices() < fleet.devices()) {
            let what = format!("leave devices idle: {} of {} are enough", plan.devices(), fleet.devices());
            let changes = vec![FieldChange::new("constraints.allow_idle_devices", true)];
            trial.found.push(Remedy::new(what, changes, plan));
        }
    }
    if !criteria.is_merged {
        more_devices(&mut trial, criteria);
    }
    trial.found
}

/// Stages of devices of several nodes, where none may have any.
fn over_nodes<M: Market>(trial: &mut Trial<'_, M>, criteria: &Criteria) {
    let fleet = trial.inquiry.fleet();
    if fleet.nodes.len() < 2 || criteria.spanning_on(fleet) != Spanning::Never {
        return;
    }
    for spanning in [NodeSpanning::WholeNodes, NodeSpanning::Anywhere] {
        let mut other = criteria.clone();
        other.constraints.spanning = Some(spanning);
        let name = v1::NodeSpanning::from(spanning).as_str_name();
        let changes = vec![FieldChange::new("constraints.node_spanning", name)];
        if trial.check("stages that span nodes".to_owned(), changes, &other, fleet) {
            return;
        }
    }
}

/// Another schedule, other recomputation, smaller micro-batches.
fn other_training<M: Market>(trial: &mut Trial<'_, M>, criteria: &Criteria) {
    let fleet = trial.inquiry.fleet();
    if let Some(other) = criteria.in_1f1b() {
        let changes = vec![in_1f1b(&criteria.constraints)];
        trial.check("1F1B instead of GPipe".to_owned(), changes, &other, fleet);
    }
    let shards = criteria.constraints.shardings.contains(&StateSharding::Optimizer);
    if criteria.may_shard && !shards && criteria.shape != PlanShape::SinglePipeline {
        let mut other = criteria.clone();
        other.constraints.shardings = vec![StateSharding::Optimizer];
        let name = v1::StateSharding::from(StateSharding::Optimizer).as_str_name();
        let changes = vec![FieldChange::new("constraints.state_shardings", vec![json!(name)])];
        trial.check("shard optimizer states".to_owned(), changes, &other, fleet);
    }
    for policy in [RecomputePolicy::Layer, RecomputePolicy::Stage] {
        let is_said = criteria.rules.is_none_or(|rules| {
            rules.check_policies(("problem.recompute", &[policy]), trial.inquiry.job.model, None).is_ok()
        });
        if is_said && !criteria.recompute.contains(&policy) {
            let other = Criteria { recompute: vec![policy], ..criteria.clone() };
            let name = v1::RecomputePolicy::from(policy).as_str_name();
            let fields = ["problem.recompute", "constraints.recompute_policies"];
            let changes = vec![change_of(fields, &criteria.constraints.recompute, name)];
            trial.check(format!("recompute each {policy}"), changes, &other, fleet);
        }
    }
    for batch in smaller(&criteria.batches) {
        if check_batch(trial, criteria, batch) {
            break;
        }
    }
}

/// The remedies that work where plans fit, but none is fast or small enough.
pub(super) fn for_limits<M: Market>(inquiry: Inquiry<'_, M>) -> Vec<Remedy> {
    let effort = Effort::besides(&inquiry.effort.stop);
    let criteria = inquiry.criteria;
    let mut trial = Trial::within(inquiry, &effort);
    for batch in others(&criteria.batches) {
        if criteria.is_merged || check_batch(&mut trial, criteria, batch) {
            break;
        }
    }
    trial.found
}

fn check_batch<M: Market>(trial: &mut Trial<'_, M>, criteria: &Criteria, batch: Batch) -> bool {
    let (what, changes) = of_batch(batch, &criteria.constraints);
    trial.check(what, changes, &criteria.of_batch(batch), trial.inquiry.fleet())
}

/// Returns the change to micro-batches, and its description, where the request has these constraints.
pub(crate) fn of_batch(batch: Batch, constraints: &Constraints) -> (String, Vec<FieldChange>) {
    let Batch { micro_batch_size, micro_batches } = batch;
    let samples = if micro_batch_size == 1 { "sample" } else { "samples" };
    let changes = vec![
        change_of(
            ["problem.micro_batch_size", "constraints.micro_batch_sizes"],
            &constraints.micro_batch_sizes,
            micro_batch_size,
        ),
        FieldChange::new("problem.micro_batch_count", micro_batches),
    ];
    (format!("a micro-batch of {micro_batch_size} {samples}"), changes)
}

/// Returns the change to 1F1B where the request has these constraints.
pub(crate) fn in_1f1b(constraints: &Constraints) -> FieldChange {
    let name = v1::Schedule::from(Schedule::OneFOneB).as_str_name();
    change_of(["problem.schedule", "constraints.schedules"], &constraints.schedules, name)
}

/// Returns the change of a field, or of the choices where the request names some.
fn change_of<T>([field, choices]: [&'static str; 2], named: &[T], value: impl Into<Value>) -> FieldChange {
    let value: Value = value.into();
    if named.is_empty() { FieldChange::new(field, value) } else { FieldChange::new(choices, vec![value]) }
}

/// Returns the change of the devices to those of a fleet.
fn devices_of(fleet: &Fleet) -> Vec<FieldChange> {
    let groups = fleet.nodes.iter().map(|node| {
        let kind = fleet.kinds.get(node.kind)?;
        Some(json!({ "count": node.devices, "capacityBytes": kind.capacity.0, "kind": kind.name }))
    });
    let groups = groups.collect::<Option<Vec<_>>>();
    groups.map(|groups| FieldChange::new("problem.devices", groups)).into_iter().collect()
}

/// Smaller micro-batches of the same iteration, the largest first.
pub(crate) fn smaller(batches: &[Batch]) -> Vec<Batch> {
    let Some(least) = batches.iter().min_by_key(|batch| batch.micro_batch_size) else { return Vec::new() };
    let mut smaller = others(batches);
    smaller.retain(|batch| batch.micro_batch_size < least.micro_batch_size);
    smaller
}

/// Other micro-batches of the same iteration, the largest first.
fn others(batches: &[Batch]) -> Vec<Batch> {
    let Some(samples) = batches.first().map(|batch| batch.samples()) else { return Vec::new() };
    let mut others: Vec<Batch> = divisors(samples)
        .into_iter()
        .filter_map(|size| {
            let micro_batch_size = u32::try_from(size).ok()?;
            let micro_batches = u32::try_from(samples / size).ok()?;
            let is_allowed = micro_batches <= TrainingSpec::MAX_MICRO_BATCHES
                && micro_batch_size <= TrainingSpec::MAX_MICRO_BATCH_SIZE;
            let other = Batch { micro_batch_size, micro_batches };
            (is_allowed && !batches.contains(&other)).then_some(other)
        })
        .collect();
    others.sort_by_key(|batch| Reverse(batch.micro_batch_size));
    others
}

/// The fewest devices like the last ones that are enough: one more device of a machine at a time, or one more node.
fn more_devices<M: Market>(trial: &mut Trial<'_, M>, criteria: &Criteria) {
    let fleet = trial.inquiry.fleet();
    let Some(last) = fleet.nodes.last() else { return };
    if !fleet.may_grow {
        return;
    }
    if !fleet.is_one_node {
        let is_timed =
            criteria.mode != SearchMode::Exact || criteria.constraints.max_iteration_seconds.is_some();
        let between = fleet.between(fleet.nodes.len() - 1, fleet.nodes.len() - 1);
        let is_reach_known = between.is_some_and(|link| link != FleetNode::ALONE);
        if is_timed && !is_reach_known {
            return;
        }
    }
    let step = if fleet.is_one_node { 1 } else { last.whole.max(1) };
    let most = fleet.devices().saturating_mul(MOST_TIMES);
    // What no number of devices below is enough for is not tried with fewer.
    let mut largest = fleet.clone();
    grow(&mut largest, (most - fleet.devices()).div_ceil(step));
    let Ok(cuts) = criteria.cuts_for(trial.inquiry.job.model) else { return };
    let (largest, cuts) = (Subset::whole(&largest), cuts.without_pins());
    let least = least_device_count(trial.inquiry.with(criteria).on(&largest, &cuts));
    let Some(least) = least else { return };
    let first = least.saturating_sub(fleet.devices()).div_ceil(step).max(1);
    for more in first..first.saturating_add(MOST_TRIED) {
        let mut larger = fleet.clone();
        grow(&mut larger, more);
        if larger.devices() > most || trial.inquiry.effort.is_requested() {
            return;
        }
        let what = format!("{} devices instead of {}", larger.devices(), fleet.devices());
        let (what, changes) = if fleet.is_one_node {
            (what, devices_of(&larger))
        } else {
            let nodes = if more == 1 { "node" } else { "nodes" };
            (format!("{what}: {more} more {nodes} like {} in the cluster", last.name), Vec::new())
        };
        if trial.check(what, changes, criteria, &larger) {
            return;
        }
    }
}

/// More devices of a machine, or more nodes, like the last ones. Of a node that is used in part a further one is whole.
fn grow(fleet: &mut Fleet, more: u32) {
    let Some(last) = fleet.nodes.last_mut() else { return };
    if fleet.is_one_node {
        last.devices += more;
        last.whole += more;
        return;
    }
    let mut last = last.clone();
    if last.devices < last.whole {
        // Between devices that are not used nothing is known: no slower than to other nodes.
        last.inside = last.inside.slower(last.outside);
        last.devices = last.whole;
        last.unlike = None;
    }
    // Parts of one name are one machine, and these are others.
    let named =
        |further: u32| FleetNode { name: format!("{}, {further} further", last.name), ..last.clone() };
    fleet.nodes.extend((1..=more).map(named));
}
