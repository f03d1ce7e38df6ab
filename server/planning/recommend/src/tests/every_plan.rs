//! The oracle's plans of criteria: its fleet and its rules from those of the planner, and the prices of thrown costs.
//!
//! Only the prices of single stages are the planner's. The oracle enumerates and simulates plans by itself.

use loadmaster_oracle::{
    Batch, Bytes, Class, CommunicationOverlap, Device, Fleet, Goal, Link, Node, Plan, PlanRules, Prices,
    Recompute, Schedule, Seconds, Shape, Sharding, Slot, Space, Spanning, Stage, Truth, Unit, groups_at_once,
    rings,
};
use loadmaster_proto::plan::objective::{NodeSpanning, Objective, PlanShape};
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::wire::v1;

use super::{Casino, Thrown};
use crate::problem::Criteria;
use crate::{Candidate, CandidateStage};
use loadmaster_search::cost::Market;
use loadmaster_search::{Choice, FleetNode, KindSet, LinkOrigin, StageAt, StageCosts};

/// An enum's value as the oracle has it: both have the same number on the wire.
macro_rules! same {
    ($name:ty, $wire:ident, $value:expr) => {
        <$name>::from_wire(v1::$wire::from($value).into()).expect("the oracle knows all values")
    };
}

/// Everything that the oracle goes by.
pub(super) struct Oracle<'a> {
    casino: &'a Casino,
    criteria: &'a Criteria,
    fleet: Fleet,
    rules: PlanRules,
    /// By the number of a device.
    devices: Vec<Device>,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(
        casino: &'a Casino,
        criteria: &'a Criteria,
        planned: &loadmaster_search::Fleet,
    ) -> Self {
        let mut fleet = Fleet {
            classes: (planned.kinds.iter().enumerate())
                .map(|(kind, known)| Class { kind, capacity: known.capacity.0 })
                .collect(),
            prices: planned.kinds.iter().map(|kind| kind.hourly_price).collect(),
            nodes: Vec::new(),
            tiers: None,
            keeps_order: criteria.keeps_order,
            pins: Vec::new(),
        };
        let mut devices = Vec::new();
        for group in &planned.nodes {
            // Groups of devices are on one node.
            if !planned.is_one_node || fleet.nodes.is_empty() {
                fleet.nodes.push(node(group));
            }
            let node = fleet.nodes.len() - 1;
            let slots = &mut fleet.nodes[node].slots;
            let first = if planned.is_one_node { devices.len() as i32 } else { 0 };
            let indices: Vec<i32> = (first..first + group.devices as i32).collect();
            devices.extend(indices.iter().map(|&index| Device { node, slot: slots.len(), index }));
            slots.push(Slot { class: group.kind, indices });
        }
        for pin in criteria.cuts.pins() {
            fleet.pin(pin.layer, devices[pin.device]);
        }
        Self { casino, criteria, fleet, rules: rules(criteria, casino.layers()), devices }
    }

    /// What is true of all plans, by an objective and the criteria's limits.
    pub(super) fn truth(&self, objective: Objective) -> Truth {
        let limits = &self.criteria.constraints;
        let is_share = self.criteria.unit == loadmaster_search::Unit::Share;
        let goal = Goal {
            objective: same!(loadmaster_oracle::Objective, Objective, objective),
            unit: if is_share { Unit::Share } else { Unit::Bytes },
            transfers: self.transfers(),
            max_seconds: limits.max_iteration_seconds,
            max_peak: limits.max_peak_bytes,
        };
        Truth::find(&self.space(), &goal, u64::MAX).expect("no number is too many")
    }

    /// Visits every plan that fits, with its seconds, whether it keeps the criteria's limits or not.
    pub(super) fn each(&self, mut visit: impl FnMut(&Plan<'_, Self>, f64)) {
        let mut fitting = |plan: &Plan<'_, Self>| {
            if plan.memory().lack == 0 {
                visit(plan, plan.seconds(self.transfers()));
            }
        };
        self.space().each(u64::MAX, &mut fitting).expect("no number is too many");
    }

    /// Seconds and peaks in bytes of a plan's stages on its devices.
    pub(super) fn weighed(&self, plan: &Candidate) -> (f64, Vec<f64>) {
        let numbers = plan.stages.iter().flat_map(|stage| &stage.devices);
        let route: Vec<Device> = numbers.map(|&device| self.devices[device as usize]).collect();
        let stage = |&CandidateStage { first, last, choice, .. }: &CandidateStage| {
            let policy = same!(Recompute, RecomputePolicy, choice.recompute);
            let sharding = same!(Sharding, StateSharding, choice.sharding);
            Stage { first, last, data: choice.data, tensor: choice.tensor, policy, sharding }
        };
        let stages: Vec<Stage> = plan.stages.iter().map(stage).collect();
        let passes = (batch(&plan.batch), same!(Schedule, Schedule, plan.schedule));
        let weigh = |own: &Plan<'_, Self>| (own.seconds(self.transfers()), own.peaks(Unit::Bytes));
        self.space().plan(passes, &route, &stages, |_| 0, weigh).expect("all stages have prices")
    }

    fn space(&self) -> Space<'_, Self> {
        Space { prices: self, fleet: &self.fleet, rules: &self.rules }
    }

    fn transfers(&self) -> CommunicationOverlap {
        same!(CommunicationOverlap, CommunicationOverlap, self.criteria.overlap)
    }

    fn costs(&self, batch: Batch, choices: &[Choice], links: &[Link]) -> Thrown {
        let batch =
            loadmaster_search::cost::Batch { micro_batch_size: batch.size, micro_batches: batch.count };
        let links: Vec<_> = links.iter().copied().map(planned).collect();
        self.casino.costs(Default::default(), batch, choices, &links)
    }

    /// A stage whose links do not matter.
    fn at(&self, stage: &Stage, devices: &[Device]) -> StageAt {
        let kinds = devices.iter().map(|&device| KindSet::one(self.fleet.class(device).kind));
        StageAt::anywhere(stage.first, stage.last, kinds.reduce(KindSet::with).expect("there are devices"))
    }
}

impl Prices for Oracle<'_> {
    type Way = Batch;

    fn way(&self, batch: Batch, _: u32, _: u32) -> Batch {
        batch
    }

    /// What the planner promises: one link for all groups of a stage, the slowest that any of its kind crosses.
    fn seconds(&self, &batch: &Batch, stage: &Stage, devices: &[Device], _: usize) -> Option<Seconds> {
        let tensor = stage.tensor as usize;
        let groups: Vec<Vec<Device>> = devices.chunks(tensor).map(<[Device]>::to_vec).collect();
        let spans = groups.iter().any(|group| group.iter().any(|device| device.node != group[0].node));
        let across = self.fleet.around(devices);
        let tensor_link = if spans { across } else { self.fleet.inside(devices) };
        let at = StageAt {
            tensor_link: 0,
            data_link: 1,
            tensor_rings: groups_at_once(devices, &groups) as u32,
            data_rings: groups_at_once(devices, &rings(devices, tensor)) as u32,
            ..self.at(stage, devices)
        };
        let costs = self.costs(batch, &[choice(stage)], &[tensor_link, across]);
        let loadmaster_search::Seconds { forward, backward, step } = costs.seconds(&at)?;
        Some(Seconds { forward, backward, step })
    }

    fn peak(&self, &batch: &Batch, stage: &Stage, devices: &[Device], in_flight: u32) -> Option<Bytes> {
        let peak = self.costs(batch, &[choice(stage)], &[]).peak(&self.at(stage, devices), in_flight)?;
        Some(Bytes { predicted: peak.bytes, needed: peak.needed })
    }

    /// Of the busier side, and half of the way there and back.
    fn edge(&self, before: (&Batch, &Stage, &[Device]), after: (&Batch, &Stage, &[Device])) -> f64 {
        let link = self.fleet.entry(before.2, after.2, false);
        let costs = self.costs(*before.0, &[choice(before.1), choice(after.1)], &[link]);
        let seconds = |side: usize| costs.cut_seconds(before.1.last, 0, side);
        seconds(0).max(seconds(1)) / 2.0
    }
}

fn choice(stage: &Stage) -> Choice {
    let recompute = match stage.policy {
        Recompute::None => RecomputePolicy::None,
        Recompute::Stage => RecomputePolicy::Stage,
        Recompute::Layer => RecomputePolicy::Layer,
    };
    let sharding = match stage.sharding {
        Sharding::None => StateSharding::None,
        Sharding::Optimizer => StateSharding::Optimizer,
    };
    Choice { recompute, sharding, ..Choice::SINGLE }.resized(stage.data, stage.tensor)
}

fn batch(known: &loadmaster_search::cost::Batch) -> Batch {
    Batch { size: known.micro_batch_size, count: known.micro_batches }
}

fn link(known: loadmaster_search::Link) -> Link {
    Link { bytes_per_second: known.bytes_per_second, latency_seconds: known.latency_seconds }
}

fn planned(link: Link) -> loadmaster_search::Link {
    let Link { bytes_per_second, latency_seconds } = link;
    loadmaster_search::Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Given }
}

/// A node without its devices.
fn node(group: &FleetNode) -> Node {
    let pairs = (0..group.devices).flat_map(|b| (0..b).map(move |a| (a, b)));
    let between =
        |(a, b): (u32, u32)| Some(((a as i32, b as i32), link(group.unlike.as_ref()?.between(a, b)?)));
    Node {
        name: group.name.clone(),
        slots: Vec::new(),
        whole: group.whole as usize,
        inside: link(group.inside),
        unlike: pairs.filter_map(between).collect(),
        network: link(group.outside),
        transfer: link(group.transfer()),
        rack: 0,
    }
}

fn rules(criteria: &Criteria, layers: usize) -> PlanRules {
    let limits = &criteria.constraints;
    let usual =
        if criteria.shape == PlanShape::UniformGrid { NodeSpanning::Anywhere } else { NodeSpanning::Never };
    let chooses = matches!(criteria.objective, Objective::MinDevices | Objective::MinCost);
    PlanRules {
        layers,
        shape: same!(Shape, ParallelismLayout, criteria.shape),
        spanning: same!(Spanning, NodeSpanning, limits.spanning.unwrap_or(usual)),
        batches: criteria.batches.iter().map(batch).collect(),
        schedules: criteria.schedules.iter().map(|&schedule| same!(Schedule, Schedule, schedule)).collect(),
        policies: criteria
            .recompute
            .iter()
            .map(|&policy| same!(Recompute, RecomputePolicy, policy))
            .collect(),
        policy_per_stage: limits.recompute_per_stage,
        shardings: limits.shardings.iter().map(|&of| same!(Sharding, StateSharding, of)).collect(),
        data_degrees: limits.data_degrees.clone(),
        tensor_degrees: limits.tensor_degrees.clone(),
        stages: (limits.min_stages.unwrap_or(1), limits.max_stages.unwrap_or(layers)),
        keep_together: limits.keep_together.clone(),
        cut_after: limits.cut_after.clone(),
        may_idle: limits.allow_idle_devices || chooses,
        is_even: criteria.rules.is_some_and(|rules| rules.even_nodes),
    }
}
