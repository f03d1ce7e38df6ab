//! How long an iteration takes in a way whose stages copy, share cores or train in chunks: simulated step by step, as the plan was.
//!
//! The copy rates are those of the nodes that the way is on. A search for orders sees links between nodes alone, so nodes that copy
//! unlike are of different classes.

use std::collections::HashMap;
use std::ops::Range;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::{CopyLink, LinkClass, Uplink};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::rates::LaneRates;

use super::price::{Price, Pricer};
use super::ways::{Seat, Ways};
use crate::context::Context;
use crate::interleaved::{Interleaving, timed_in_turn};
use crate::memory_optimizations::{
    CopiesAsPlanned, CopyLinks, HostRates, Timed, check_acts_on, settings, timed,
};
use crate::problem::{ProfiledChain, Transfers};
use crate::search::Candidate;
use crate::timeline::{LanesOfPlan, TimelineError};
use loadmaster_predict::{ActionsError, ActionsPrediction, Margin, PipelineActions};
use loadmaster_search::cost::{Factors, Prices};
use loadmaster_search::fleet::PlannedFleet;
use loadmaster_search::{FleetNode, Link};

/// The links that copies of a part of a node depend on. Nodes without a description are all alike.
#[derive(Debug, Clone, PartialEq, Default)]
struct Copying {
    /// By device.
    to_host: Vec<Option<CopyLink>>,
    /// By pair of devices.
    between: Vec<Option<CopyLink>>,
    /// By device and one of another part of its node.
    beside: Vec<Option<CopyLink>>,
    class: Option<LinkClass>,
    /// Ways to the host that devices share, with the indices of the part's devices; both empty where none is shared.
    uplinks: Vec<Uplink>,
    devices: Vec<u32>,
    host_memory: Option<Bytes>,
}

impl Copying {
    /// `given` are the devices of each node that were given, those of all of its parts.
    fn new(fleet: &PlannedFleet, part: Range<u32>, given: &HashMap<&str, Vec<u32>>) -> Self {
        let name = part.clone().next().and_then(|first| fleet.device(first)).map(|device| &device.node);
        let Some(node) = name.and_then(|name| fleet.described(name)) else { return Self::default() };
        let devices: Vec<u32> = part.filter_map(|device| Some(fleet.device(device)?.index)).collect();
        let pairs = devices.iter().flat_map(|&from| devices.iter().map(move |&to| (from, to)));
        let others = given.get(node.name.as_str()).into_iter().flatten();
        let others: Vec<u32> = others.filter(|device| !devices.contains(device)).copied().collect();
        let beside = devices.iter().flat_map(|&from| others.iter().map(move |&to| (from, to)));
        let uplinks = node.copies.as_ref().map(|copies| copies.uplinks.clone()).unwrap_or_default();
        Self {
            to_host: devices.iter().map(|&device| node.host_link_of(device)).collect(),
            between: pairs
                .filter(|(from, to)| from < to)
                .map(|(from, to)| node.copies_between(from, to))
                .collect(),
            beside: beside.map(|(from, to)| node.copies_between(from, to)).collect(),
            class: node.link_class,
            devices: if uplinks.is_empty() { Vec::new() } else { devices },
            uplinks,
            host_memory: node.copies.as_ref().and_then(|copies| copies.host_memory),
        }
    }

    /// Returns whether the order of ranks on the devices makes no difference.
    fn is_uniform(&self) -> bool {
        let are_same = |links: &[Option<CopyLink>]| links.windows(2).all(|pair| pair[0] == pair[1]);
        let has_all = |uplink: &Uplink| self.devices.iter().all(|device| uplink.devices.contains(device));
        are_same(&self.to_host)
            && are_same(&self.between)
            && are_same(&self.beside)
            && self.uplinks.iter().all(has_all)
    }
}

fn all(fleet: &PlannedFleet) -> impl Iterator<Item = Copying> {
    let mut given: HashMap<&str, Vec<u32>> = HashMap::new();
    for device in fleet.devices() {
        given.entry(device.node.as_str()).or_default().push(device.index);
    }
    let parts = fleet.fleet.nodes.iter().zip(fleet.fleet.begins());
    parts.map(move |(node, begin)| Copying::new(fleet, begin..begin + node.devices, &given))
}

/// Returns by node of the fleet a number that nodes share which copy alike.
pub(super) fn classes(fleet: &PlannedFleet) -> Vec<usize> {
    let mut known: Vec<Copying> = Vec::new();
    let class = |copying: Copying| {
        known.iter().position(|other| *other == copying).unwrap_or_else(|| {
            known.push(copying);
            known.len() - 1
        })
    };
    all(fleet).map(class).collect()
}

/// Returns whether the devices of each node copy alike.
fn are_uniform(fleet: &PlannedFleet) -> bool {
    all(fleet).all(|copying| copying.is_uniform())
}

/// What prices the ways of a plan whose seconds are of its steps.
pub(super) struct SimulationPricer<'a> {
    plan: &'a Plan,
    plain: Pricer<'a, Prices<'a>>,
    context: Context<'a>,
    stages: PipelineActions,
    /// Whose they are where devices have several stages.
    interleaving: Option<Interleaving>,
    copies: CopiesAsPlanned,
    are_uniform: bool,
}

impl<'a> SimulationPricer<'a> {
    /// `kinds` are those of the fleet's devices, in its order.
    ///
    /// # Errors
    /// The profile no longer contains what the plan's actions are predicted from.
    pub(super) fn of(
        plan: &'a Plan,
        (chain, kinds): (&'a ProfiledChain, &'a [(&'a ProfiledChain, Factors)]),
        prices: &'a Prices<'a>,
        fleet: &'a PlannedFleet,
    ) -> Result<Self, ActionsError> {
        let actions = plan.stage_actions();
        let (predictor, model, settings) = (&*chain.predictor, chain.model.as_ref(), settings(plan));
        let interleaving = plan.is_interleaved().then(|| interleaving_of(plan)).flatten();
        let stages = match &interleaving {
            None => PipelineActions::of(predictor, model, &settings, &actions)?,
            Some(interleaving) => {
                let steps = |setting: &_, actions: &_| interleaving.steps(model, setting, actions);
                PipelineActions::in_steps(predictor, model, &settings, &actions, &steps)?
            }
        };
        let overlap = plan.found.iteration.as_ref().map(|of| of.overlap).unwrap_or_default();
        let context = Context {
            chain,
            kinds,
            prices,
            fleet,
            training: plan.training,
            margin: Margin::Known,
            goal: plan.asked.clone(),
            corrections: plan.found.corrections.clone(),
            notes: Vec::new(),
            transfers: Transfers { overlap, reason: String::new() },
        };
        let copies = CopiesAsPlanned::of(plan);
        let are_uniform = are_uniform(fleet) && !fleet.fleet.has_unlike_links();
        let plain = Pricer::of(prices, plan, fleet.devices());
        Ok(Self { plan, plain, context, stages, interleaving, copies, are_uniform })
    }

    /// How fast copies are in a way, and who says so, human-readable; none where nothing is copied.
    pub(super) fn told(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<String> {
        self.fastest(ways, way)?.1.told()
    }

    /// What of the plan's actions may not be on these nodes, in the first of their ways; none where all may.
    pub(super) fn refused(&self, ways: &Ways<'_>) -> Option<String> {
        let firsts = ways.first()?;
        // Devices that have several interleaved stages have the actions of all of them.
        let devices = firsts.iter().map(Vec::as_slice).cycle();
        let devices: Vec<&[u32]> = devices.take(self.plan.stages.len()).collect();
        let why = check_acts_on(&self.context, &devices, &self.stages).err()?;
        Some(format!("needs other nodes for its memory optimizations: {why}"))
    }

    /// The fastest of the ways to put ranks on the devices of its nodes that are tried, with what an iteration takes.
    fn fastest(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<(Candidate, Timed)> {
        let with_seconds = |candidate: Candidate| {
            let devices: Vec<&[u32]> = candidate.stages.iter().map(|of| of.devices.as_slice()).collect();
            let (context, stages) = (&self.context, &self.stages);
            check_acts_on(context, &devices, stages).ok()?;
            let copies = || CopyLinks::between_as_planned(context, &candidate, self.copies);
            let timed = match &self.interleaving {
                None => timed(context, &candidate, stages, &copies),
                Some(interleaving) => {
                    let acted: Vec<&ActionsPrediction> = stages.acted.iter().collect();
                    timed_in_turn(context, &candidate, interleaving, (&acted, &stages.actions), &copies())
                }
            };
            let timed = timed.ok()??;
            Some((candidate, timed))
        };
        let all = self.plain.candidates(ways, way, !self.are_uniform)?.into_iter();
        let all = all.filter_map(with_seconds);
        let seconds = |of: &(Candidate, Timed)| of.1.iteration_seconds();
        all.min_by(|one, other| seconds(one).total_cmp(&seconds(other)))
    }
}

/// Whose turn it is when in a plan whose devices have several stages.
fn interleaving_of(plan: &Plan) -> Option<Interleaving> {
    Interleaving::of(plan.stages.len(), plan.positions(), plan.training.micro_batches)
}

impl Price for SimulationPricer<'_> {
    fn seconds(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64> {
        Some(self.fastest(ways, way)?.1.iteration_seconds())
    }

    fn devices(&self, ways: &Ways<'_>, way: &[Seat]) -> Vec<Vec<u32>> {
        let stages = self.fastest(ways, way).map(|(fastest, _)| fastest.stages);
        stages.map_or_else(|| ways.devices(way), |of| of.into_iter().map(|stage| stage.devices).collect())
    }

    /// Actions add seconds to those of untouched stages, and take none away.
    fn least(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64> {
        self.plain.least(ways, way)
    }

    /// A step of a layer is as much to look at as a rank.
    fn work(&self, ways: &Ways<'_>) -> u64 {
        let layers = self.plan.stages.iter().map(|stage| stage.config.layer_count() as u64).sum::<u64>();
        let steps = layers.saturating_mul(3 * u64::from(self.plan.training.micro_batches));
        steps.max(ways.ranks() as u64)
    }

    /// Few of the ways to take the devices of a node are tried, though each may have a link of its own to the host.
    fn tells_all(&self) -> bool {
        self.are_uniform
    }
}

/// A pricer of the ways of a plan in chunks.
pub(super) struct ChunkedPricer<'a> {
    lanes: LanesOfPlan,
    fleet: &'a PlannedFleet,
    kind: &'a str,
    copies: CopiesAsPlanned,
    are_uniform: bool,
}

impl<'a> ChunkedPricer<'a> {
    /// # Errors
    /// What is missing, or no longer so.
    pub(super) fn new(
        plan: &'a Plan,
        chain: &ProfiledChain,
        fleet: &'a PlannedFleet,
    ) -> Result<Self, TimelineError> {
        let lanes = LanesOfPlan::of(plan, chain)?;
        lanes.check_is_unchanged()?;
        let planned = lanes.rates();
        let copies = CopiesAsPlanned::to_host(planned.up.min(planned.down), planned.copy_seconds);
        Ok(Self { lanes, fleet, kind: &plan.device_kind, copies, are_uniform: are_uniform(fleet) })
    }

    /// How fast copies are in a way, and who says so, human-readable.
    pub(super) fn told(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<String> {
        Some(self.links(ways, way)?.host_way(0))
    }

    /// The ways between the devices of the only stage and their host.
    fn links(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<CopyLinks> {
        let stages = ways.devices(way);
        let place = |&device: &u32| {
            let known = self.fleet.device(device)?;
            Some((self.fleet.described(&known.node), known.index))
        };
        let places: Option<Vec<_>> = stages.first()?.iter().map(place).collect();
        Some(CopyLinks::as_planned(&[places?], self.kind, self.copies))
    }

    /// The rates on these nodes: those of copies and of exchanges between ranks are theirs. How fast hosts and devices update is
    /// as it was planned.
    fn rates(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<LaneRates> {
        let planned = self.lanes.rates();
        let links = self.links(ways, way)?;
        let own = match links.described_host_rates() {
            Some(HostRates { up, down, copy_seconds }) => LaneRates { up, down, copy_seconds, ..planned },
            None => planned,
        };
        let nodes: Option<Vec<&FleetNode>> = way.iter().map(|seat| ways.fleet.nodes.get(seat.node)).collect();
        let nodes = nodes?;
        let inside = way.iter().zip(&nodes).filter(|(seat, _)| seat.taken() > 1).map(|(_, node)| node.inside);
        let across = nodes.iter().filter(|_| nodes.len() > 1).map(|node| node.outside);
        let Some(slowest) = inside.chain(across).reduce(Link::slower) else { return Some(own) };
        Some(LaneRates {
            gather: slowest.bytes_per_second,
            collective_seconds: slowest.latency_seconds,
            ..own
        })
    }
}

impl Price for ChunkedPricer<'_> {
    fn seconds(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64> {
        self.lanes.seconds(self.rates(ways, way)?).ok()
    }

    /// Passes take what they take on any node.
    fn least(&self, _: &Ways<'_>, _: &[Seat]) -> Option<f64> {
        Some(self.lanes.passes_seconds())
    }

    fn tells_all(&self) -> bool {
        self.are_uniform
    }

    fn work(&self, ways: &Ways<'_>) -> u64 {
        (self.lanes.steps() as u64).max(ways.ranks() as u64)
    }
}
