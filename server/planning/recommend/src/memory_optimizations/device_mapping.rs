//! Which stage is on which device of a node whose links are unlike (MPress, III-C).
//!
//! Stages that hold much belong where devices with room are near, and neighbours next to each other. A plan that is found soon says
//! what a mapping is worth, edges of the pipeline included; the best one's stages are then asked about like any others. Devices
//! of the node that would be idle take stages over like any other.

use loadmaster_proto::plan::PlacedDevice;
use loadmaster_proto::training::actions::Way;

use super::choice::{ActionSearch, Choice, Chooser};
use super::links::CopyLinks;
use super::problem::ActionProblem;
use super::replay_fit::Incumbent;
use crate::context::Context;
use crate::fixed_partition::choices_of;
use crate::search::{Candidate, CandidateStage};
use loadmaster_memory::actions::optimizer::{self, Effort};
use loadmaster_memory::actions::{NodeDevices, paper};
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::mapping::{self, Promise};
use loadmaster_search::{StageCosts, Stop, UnlikeNodes};

/// Of how many mappings of a candidate a plan is looked for at most.
const MOST_VALUED: usize = 24;

impl ActionSearch<'_> {
    /// The same stages on other devices of their node, each other's and idle ones, of every candidate for which a faster plan is
    /// soon found there. Only devices that are alike but for the links to each other change places.
    pub(super) fn map_devices(&self, candidates: &[Candidate]) -> Vec<Candidate> {
        candidates.iter().filter_map(|candidate| self.on_other_devices(candidate)).collect()
    }

    fn on_other_devices(&self, candidate: &Candidate) -> Option<Candidate> {
        let Self { context, choice, stop } = *self;
        if stop.is_requested() || !is_on_one_node(context, candidate) {
            return None;
        }
        let sends_to_peers = choice.allowed.ways.contains(&Way::PeerSwap);
        let has_unlike_edges = context.fleet.fleet.has_unlike_links();
        let every = with_idle(context, candidate);
        let links = CopyLinks::between(context, &every, choice.pace);
        if !(sends_to_peers && links.has_unlike_pairs() || has_unlike_edges) {
            return None;
        }
        let problem = self.problem(candidate).ok()?;
        let node = with_links(problem.node_within(choice.allowed), &every, &links);
        let costs = edge_costs(context, candidate);
        let nodes = UnlikeNodes::of_all(&context.fleet.fleet);
        let placed = |mapping: &[usize]| {
            let mut placed = candidate.clone();
            for (stage, &device) in placed.stages.iter_mut().zip(mapping) {
                stage.devices.clone_from(&every.stages.get(device)?.devices);
            }
            placed.price_edges(&costs, &nodes);
            Some(placed)
        };
        // What is free for blocks where the stages are is so elsewhere: a replay sees the same bytes besides.
        let besides = self.incumbent(&problem).map(Incumbent::likely).unwrap_or_default();
        // No plan is faster than its stages untouched: where that is reached no other mapping is looked at.
        let least = problem.least_seconds().unwrap_or(0.0);
        let graph = node.graph_with(|from, to| {
            let devices = [from, to].map(|of| every.stages.get(of).map_or(&[][..], |of| &of.devices));
            nodes.entry(devices[0], devices[1]).map(|link| (link.bytes_per_second, link.latency_seconds))
        });
        let found = mapping::best(
            &graph,
            candidate.stages.len(),
            MOST_VALUED,
            |mapping| {
                let own = if has_unlike_edges { placed(mapping).and_then(|of| of.at_least()) } else { None };
                let bound = own.unwrap_or(0.0).max(least);
                let sending = if sends_to_peers { sending(&problem, &node, mapping) } else { 0.0 };
                Promise { bound, guess: bound + sending }
            },
            |mapping| {
                let are_alike = mapping.iter().enumerate().all(|(stage, &own)| are_alike(&node, stage, own));
                let may_go_on = are_alike && !stop.is_requested();
                let placed = placed(mapping).filter(|_| may_go_on)?;
                let there = problem.on(&placed, node.mapped(mapping));
                match choice.framework_rules {
                    Some(framework_rules) => Some(self.expressible(&there, framework_rules).ok()?.seconds),
                    None => soon(&there, &besides, choice, stop),
                }
            },
        )?;
        let changes = found.mapping.iter().enumerate().any(|(stage, &device)| stage != device);
        let mut mapped = placed(&found.mapping).filter(|_| changes)?;
        mapped.simulate();
        Some(mapped)
    }
}

/// A candidate whose stages are on one node, with one more stage for each device of that node that is idle and of the kind of
/// one of theirs. As if it did what that one does.
fn with_idle(context: &Context<'_>, candidate: &Candidate) -> Candidate {
    let kind = |stage: &CandidateStage| stage.devices.first().map(|&device| context.fleet.placed(device));
    let own: Vec<(PlacedDevice, &CandidateStage)> =
        candidate.stages.iter().filter_map(|stage| Some((kind(stage)?, stage))).collect();
    // Of devices without a name no one says that any is linked better than another.
    let node = own.first().map(|(device, _)| &device.node).filter(|node| !node.is_empty());
    let mut every = candidate.clone();
    for (device, own_of) in (0..).zip(context.fleet.devices()) {
        if Some(&own_of.node) != node || candidate.stages.iter().any(|stage| stage.devices.contains(&device))
        {
            continue;
        }
        let idle = context.fleet.placed(device);
        let like = own.iter().find(|(used, _)| used.kind == idle.kind).map(|(_, stage)| *stage);
        every.stages.extend(like.map(|stage| CandidateStage { devices: vec![device], ..stage.clone() }));
    }
    every
}

/// The stages of a candidate as if edges were over the best links of their nodes.
pub(super) fn at_best_edges(context: &Context<'_>, candidate: &Candidate) -> Candidate {
    let nodes = UnlikeNodes::of_all(&context.fleet.fleet);
    if nodes.is_empty() {
        return candidate.clone();
    }
    candidate.at_best_edges(&edge_costs(context, candidate), &nodes)
}

/// Prices of what the stages of a candidate send each other.
fn edge_costs(context: &Context<'_>, candidate: &Candidate) -> impl StageCosts {
    let (choices, _) =
        choices_of(candidate.stages.iter().map(|stage| (stage.config(), stage.choice.recompute)));
    context.prices.costs(candidate.schedule, candidate.batch, &choices, &[])
}

/// Whether each stage is one device, and all are on the same node.
fn is_on_one_node(context: &Context<'_>, candidate: &Candidate) -> bool {
    let mut nodes = candidate.stages.iter().map(|stage| match stage.devices[..] {
        [device] => Some(context.fleet.placed(device).node),
        _ => None,
    });
    let Some(Some(first)) = nodes.next() else { return false };
    nodes.all(|node| node.as_ref() == Some(&first))
}

/// The devices of a node, and behind them those of further stages with the links of all.
fn with_links(node: NodeDevices, every: &Candidate, links: &CopyLinks) -> NodeDevices {
    let mut capacity = node.capacity;
    capacity.extend(every.stages.iter().skip(capacity.len()).map(|stage| stage.capacity.0));
    let mut hosts = node.hosts;
    hosts.resize(capacity.len(), vec![1]);
    NodeDevices {
        capacity,
        host: links.to_host(),
        pairs: links.pairs(),
        hosts,
        shared: links.shared(),
        host_bytes: node.host_bytes,
        cores: node.cores,
    }
}

/// Seconds of an iteration with actions that are soon found on these devices with so much left free, or with MPress's; none
/// where neither fit.
fn soon(problem: &ActionProblem<'_>, besides: &[u64], choice: Choice<'_>, stop: &Stop) -> Option<f64> {
    let question = problem.question(&problem.node, besides, choice.allowed, stop);
    let is_searched = choice.chooser == Chooser::Fastest && !problem.candidate.schedule.updates_always();
    let found =
        is_searched.then(|| optimizer::unproven(&question, problem.known(), Effort::Few).ok()).flatten();
    match found {
        Some(plan) => Some(plan.seconds),
        None => paper::plan(&question).ok().map(|plan| plan.seconds),
    }
}

/// Seconds of sending once what stages lack to all that have room, over all links at once.
fn sending(problem: &ActionProblem<'_>, node: &NodeDevices, mapping: &[usize]) -> f64 {
    let needs = problem.known().needs.unwrap_or(&[]);
    let rate = |from: usize, to: usize| {
        let link = mapping.get(from).zip(mapping.get(to)).and_then(|(&from, &to)| node.link(from, to));
        link.map_or(0.0, |link| link.bytes_per_second)
    };
    let of_donor = |(from, &need): (usize, &i128)| {
        let with_room = needs.iter().enumerate().filter(|&(to, &other)| to != from && other < 0);
        need as f64 / with_room.map(|(to, _)| rate(from, to)).sum::<f64>()
    };
    needs.iter().enumerate().filter(|(_, need)| **need > 0).map(of_donor).fold(0.0, f64::max)
}

fn are_alike(node: &NodeDevices, one: usize, other: usize) -> bool {
    (node.capacity.get(one), node.host.get(one)) == (node.capacity.get(other), node.host.get(other))
}
