//! The fewest or cheapest devices of a node that hold the training with memory actions.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;

use super::impossible::nothing_found;
use super::proof::{LOOKED_AT, Progress, seconds_note};
use super::room::{Found, Room};
use super::{ActionsQuestion, QuestionError};
use crate::fleet::{Subset, Subsets};
use crate::recommend::answer::RecommendError;
use crate::search::{Fleet, Pin};

/// Most choices of devices that are asked about.
const MOST_ASKED: usize = 512;

impl ActionsQuestion<'_> {
    /// The fastest plan on the fewest or cheapest devices for which one was found.
    pub(super) fn fewest(&self) -> Result<Plan, QuestionError> {
        let (wish, fleet) = (self.wish, self.job.fleet);
        let objective = wish.objective;
        let price = |kind: usize| fleet.kinds.get(kind).and_then(|kind| kind.hourly_price);
        let is_cost = objective == Objective::MinCost;
        if is_cost && fleet.nodes.iter().any(|node| price(node.kind).is_none()) {
            return Err(RecommendError::NoPrices { objective }.into());
        }
        let worth = |counts: &Vec<u32>| -> f64 {
            let each = counts.iter().enumerate().filter(|(_, devices)| **devices > 0);
            let one = |kind| if is_cost { price(kind).unwrap_or(f64::INFINITY) } else { 1.0 };
            each.map(|(kind, &devices)| f64::from(devices) * one(kind)).sum()
        };
        if let Some(error) = self.lacks_layer(&Room::whole(self)) {
            return Err(self.explained(error.into(), &Room::whole(self)));
        }
        let nodes = whole_nodes(fleet, wish.cuts.pins());
        let room = |subset: Subset| Room { subset, may_idle: false, ..Room::whole(self) };
        // What is left where the search is stopped.
        let most = nodes.iter().map(|node| node.taken(fleet, self, None)).max_by_key(Subset::devices);
        let spare = most.and_then(|most| self.fastest(&room(most)).ok());
        let subsets = Subsets::of(fleet, &wish.cuts, wish.starts_evenly());
        let mut sizes = subsets.sizes(worth);
        let (mut tried, mut last, mut asked) = (Progress::default(), None, 0);
        while let Some((worth, counts)) = sizes.next_size() {
            let devices: u32 = counts.iter().sum();
            let has_layers = devices as usize <= self.job.names.len();
            if !has_layers && !self.stop.is_requested() {
                continue;
            }
            if self.stop.is_requested() || asked >= MOST_ASKED {
                tried.is_stopped = self.stop.is_requested();
                tried.doubtful = tried.doubtful.or(Some(worth));
                break;
            }
            let mut is_proven = true;
            for node in nodes.iter().filter(|node| node.has(&counts)) {
                let one = room(node.taken(fleet, self, Some(&counts)));
                asked += 1;
                match self.told(&one) {
                    Ok(found) => return Ok(self.on_fewest(found, tried, worth)),
                    Err(error) => {
                        let error = nothing_found(error)?;
                        is_proven &= error.is_proof();
                        last = Some((error, one));
                    }
                }
            }
            tried.pass_over(format!("{devices} devices"), worth, is_proven);
        }
        if let Some(found) = spare {
            let value = if is_cost { found.plan.found.hourly_price } else { None };
            let value = value.unwrap_or_else(|| found.plan.device_count() as f64);
            return Ok(self.on_fewest(found, tried, value));
        }
        if tried.is_stopped {
            return Err(RecommendError::Stopped.into());
        }
        let is_proven = tried.doubtful.is_none();
        let (error, room) = match last {
            Some((error, room)) => (if is_proven { error.proven() } else { error }, room),
            None => {
                let why =
                    "no number of devices of a node has room for the training, with all that is allowed";
                (RecommendError::no_plan(why), Room::whole(self))
            }
        };
        Err(self.explained(error.into(), &room))
    }

    fn on_fewest(&self, found: Found, mut tried: Progress, value: f64) -> Plan {
        let Found { mut plan, certificate: of_seconds, .. } = found;
        tried.states = tried.states.saturating_add(of_seconds.states);
        tried.is_stopped |= of_seconds.stopped;
        plan.warnings.push(LOOKED_AT.to_owned());
        plan.warnings.push(seconds_note("on these devices", &of_seconds));
        plan.found.certificate = Some(tried.certificate(value, self.wish.objective.unit()));
        plan
    }
}

/// A node with its devices, of one kind or several.
#[derive(Debug)]
struct WholeNode {
    /// Indices of its parts in the fleet.
    parts: Vec<usize>,
    /// Devices of each kind.
    counts: Vec<u32>,
}

impl WholeNode {
    fn has(&self, counts: &[u32]) -> bool {
        self.counts.iter().zip(counts).all(|(own, wanted)| own >= wanted)
    }

    /// So many devices of it; all of them where nobody says how many.
    fn taken(&self, fleet: &Fleet, question: &ActionsQuestion<'_>, counts: Option<&Vec<u32>>) -> Subset {
        let mut left = counts.unwrap_or(&self.counts).clone();
        let mut taken = vec![0; fleet.nodes.len()];
        for &part in &self.parts {
            let Some(node) = fleet.nodes.get(part) else { continue };
            let Some(left) = left.get_mut(node.kind) else { continue };
            taken[part] = node.devices.min(*left);
            *left -= taken[part];
        }
        Subset::of(fleet, &taken, question.wish.cuts.pins())
    }
}

/// The nodes of a fleet that differ: parts of one name are one node, as all are where nobody named any.
fn whole_nodes(fleet: &Fleet, pins: &[Pin]) -> Vec<WholeNode> {
    let mut nodes: Vec<(&str, WholeNode)> = Vec::new();
    for (index, part) in fleet.nodes.iter().enumerate() {
        let at = nodes.iter().position(|(name, _)| fleet.is_one_node || *name == part.name);
        let at = at.unwrap_or_else(|| {
            nodes.push((&part.name, WholeNode { parts: Vec::new(), counts: vec![0; fleet.kinds.len()] }));
            nodes.len() - 1
        });
        nodes[at].1.parts.push(index);
        if let Some(count) = nodes[at].1.counts.get_mut(part.kind) {
            *count += part.devices;
        }
    }
    let mut unlike: Vec<WholeNode> = Vec::new();
    for (_, node) in nodes {
        let is_alike = |other: &WholeNode| {
            let pairs = other
                .parts
                .iter()
                .zip(&node.parts)
                .map(|(&one, &other)| (fleet.nodes.get(one), fleet.nodes.get(other)));
            other.parts.len() == node.parts.len()
                && pairs
                    .into_iter()
                    .all(|pair| matches!(pair, (Some(one), Some(other)) if one.is_like(other)))
        };
        // Another node has no better plan than one like it, unless layers are pinned to it.
        if !pins.is_empty() || !unlike.iter().any(is_alike) {
            unlike.push(node);
        }
    }
    unlike
}
