//! Placement of a plan on the nodes that a scheduler gave, and the seconds of an iteration there.
//!
//! | file | question |
//! |---|---|
//! | here | what is asked, and what is answered? |
//! | `needs` | what does each rank need of a device, and do the devices given have it? |
//! | `part_assignment` | which nodes are parts of one machine, and which part has which of its ranks? |
//! | `ways` | which ranks stay together, and in which ways can they be put on the nodes? |
//! | `visits` | which of these ways exist, counting equivalent ones once? |
//! | `price` | how long does an iteration take in one of these ways, and in none of them less? |
//! | `simulation_pricer` | the same where stages copy, share cores or train in chunks, and which nodes copy alike? |
//! | `fastest` | which way is the fastest? |
//!
//! Ranks that the plan has on one node stay on one machine. Its devices may be of several kinds, and allow different bytes: each
//! rank has one that is large enough. Where no machine has devices of all kinds, those of each kind stay together, unless shards
//! that split the same tensors would be torn apart. Where the nodes given have other sizes, ranks take them one behind the other
//! in the plan's order, and these shards stay together. Among the placements that keep most together the fastest is taken.
//!
//! * Machines with equal devices in equal domains form one group, so few placements remain on most clusters. All of them are
//!   simulated, and the best is optimal.
//! * Where there are too many, machines are exchanged while that helps. The bound is the pipeline over the fastest links of any
//!   placement.
//! * On a node with different links, ranks take the devices that make the placement fastest.
//! * Plans with memory optimizations, shared cores or chunks are simulated step by step, at the copy rates of the cluster that
//!   describes the nodes. Without a description the plan's own rates apply.
//! * Devices without stated bytes are taken for the plan's own devices of that kind, if these are all alike.

mod fastest;
mod needs;
mod part_assignment;
mod price;
mod simulation_pricer;
#[cfg(test)]
mod tests;
mod visits;
mod ways;

use std::collections::BTreeMap;
use std::sync::Arc;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::findings::optimality_gap;
use loadmaster_proto::warning::{Warning, WarningCode};

use super::problem::{ProfiledChain, prices};
use loadmaster_predict::Margin;
use loadmaster_search::Stop;
use loadmaster_search::cost::Factors;
use loadmaster_search::fleet::PlannedFleet;
use loadmaster_simulate::is_stepped;
pub use needs::{PlacementError, StageLack};
use price::Pricer;
use simulation_pricer::{ChunkedPricer, SimulationPricer, classes};
use ways::{Cohesion, Ways};

/// A plan, and the devices that a scheduler gave for it.
#[derive(Debug, Clone)]
pub struct PlacementProblem {
    /// What is to be bound.
    pub plan: Plan,
    /// The profiles that its seconds follow from, one for each of its kinds of devices; none where they cannot be read.
    pub chains: Vec<Arc<ProfiledChain>>,
    /// All devices that were given, of the plan's kinds.
    pub fleet: PlannedFleet,
}

/// Which device has which rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// By stage, in the order of its ranks: a device of the fleet.
    pub stages: Vec<Vec<u32>>,
    /// Simulated seconds of one iteration; none where no one can tell.
    pub seconds: Option<f64>,
    /// No way is faster than this.
    pub least: Option<f64>,
    /// All ways that differ were simulated, or the bound was met.
    pub is_proven: bool,
    /// What to know, human-readable.
    pub notes: Vec<Warning>,
}

impl Placement {
    /// The optimality gap; none without a bound.
    pub fn gap(&self) -> Option<f64> {
        let (seconds, least) = (self.seconds?, self.least?);
        Some(if self.is_proven { 0.0 } else { optimality_gap(seconds, least.min(seconds)) })
    }
}

impl PlacementProblem {
    /// The fastest way that is found before it is stopped.
    ///
    /// # Errors
    /// The stages that lack devices.
    pub fn answer(&self, stop: &Stop) -> Result<Placement, PlacementError> {
        let is_plain = !is_stepped(&self.plan) && self.plan.chunks().is_none();
        let classes = if is_plain { Vec::new() } else { classes(&self.fleet) };
        let ways = Ways::of(&self.plan, &self.fleet.fleet, classes)?;
        let mut notes = self.fleet.notes.clone();
        let other = match ways.kept {
            Cohesion::Nodes => None,
            Cohesion::Kinds => Some(
                "the plan uses several kinds of devices on one node, but no given node has all these kinds. Only ranks \
                 on devices of the same kind are kept together on one node",
            ),
            Cohesion::Shards => Some(
                "the given nodes differ in size from the nodes of the plan. Ranks fill the given nodes one after \
                 another, and only tensor-parallel ranks are kept together on one node",
            ),
        };
        notes.extend(other.map(|why: &str| WarningCode::NodesDiffer.says(why)));
        let found = match self.untold() {
            Some(why) => Err(why),
            None => self.timed(&ways, stop)?,
        };
        let bound = match found {
            Ok((bound, told)) => {
                notes.extend(told.map(|told| WarningCode::RatesUsed.says(told)));
                bound
            }
            Err(why) => {
                notes.push(WarningCode::TimeUnknown.says(why));
                let stages = ways.first().ok_or_else(|| ways.torn())?;
                Placement { stages, seconds: None, least: None, is_proven: false, notes: Vec::new() }
            }
        };
        Ok(Placement { stages: self.in_turn(&bound.stages), notes, ..bound })
    }

    /// The devices of all stages, of those of the first of each device.
    fn in_turn(&self, firsts: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let places = firsts.len().min(self.plan.positions());
        firsts[..places].iter().cycle().take(self.plan.stages.len()).cloned().collect()
    }

    /// The fastest way with its seconds and what these are based on, human-readable; or why no one can tell seconds.
    ///
    /// # Errors
    /// The stages that no way puts where they may be.
    fn timed(
        &self,
        ways: &Ways<'_>,
        stop: &Stop,
    ) -> Result<Result<(Placement, Option<String>), String>, PlacementError> {
        let no_seconds = || "a stage of the plan has no predicted seconds on these devices".to_owned();
        let Some(chain) = self.chains.first() else { return Ok(Err(no_seconds())) };
        if self.plan.chunks().is_some() {
            let pricer = match ChunkedPricer::new(&self.plan, chain, &self.fleet) {
                Ok(pricer) => pricer,
                Err(why) => {
                    return Ok(Err(format!("the iteration time on these nodes was not simulated: {why}")));
                }
            };
            let found = fastest::fastest(ways, &pricer, stop)?;
            return Ok(found.map(|(way, bound)| (bound, pricer.told(ways, &way))).ok_or_else(no_seconds));
        }
        let kinds = self.fleet.kinds().filter_map(|kind| self.chain_of(kind));
        let kinds: Vec<(&ProfiledChain, Factors)> = kinds.map(|chain| (chain, self.factors(chain))).collect();
        let prices = prices(&kinds, chain, self.plan.training, Margin::Known);
        if !is_stepped(&self.plan) {
            let found = fastest::fastest(ways, &Pricer::of(&prices, &self.plan, self.fleet.devices()), stop)?;
            return Ok(found.map(|(_, bound)| (bound, None)).ok_or_else(no_seconds));
        }
        let pricer = match SimulationPricer::of(&self.plan, (chain, &kinds), &prices, &self.fleet) {
            Ok(pricer) => pricer,
            Err(why) => {
                return Ok(Err(format!("the iteration time on these nodes was not simulated: {why}")));
            }
        };
        match fastest::fastest(ways, &pricer, stop)? {
            Some((way, bound)) => Ok(Ok((bound, pricer.told(ways, &way)))),
            None => match pricer.refused(ways) {
                Some(why) => Err(PlacementError { stages: vec![StageLack { stage: None, why }] }),
                None => Ok(Err(no_seconds())),
            },
        }
    }

    fn chain_of(&self, kind: &str) -> Option<&ProfiledChain> {
        self.chains.iter().map(|chain| &**chain).find(|chain| chain.device_kind == kind)
    }

    /// Why no one can tell seconds; none where they can be told.
    fn untold(&self) -> Option<String> {
        if self.plan.iteration_seconds().is_none() {
            return Some(
                "the plan has no predicted seconds, so the fastest order of the nodes is not known"
                    .to_owned(),
            );
        }
        let missing = self.fleet.kinds().find(|kind| self.chain_of(kind).is_none());
        if let Some(kind) = missing {
            return Some(format!(
                "the iteration time is not known, because no profile of the device kind {kind:?} was \
                given"
            ));
        }
        let (then, now) = (&self.plan.predictor, self.chains.first()?.predictor.name());
        (then != now).then(|| {
            format!(
                "the iteration time was not simulated: the plan was predicted by {then}, but its profile \
                now uses the predictor {now}"
            )
        })
    }

    /// What the plan's predictions were multiplied with.
    fn factors(&self, chain: &ProfiledChain) -> Factors {
        let predictor = chain.predictor.name();
        let of = |is_bytes: bool| {
            let mut applied = self.plan.found.corrections.iter();
            let found = applied.find(|of| {
                of.device_kind == chain.device_kind
                    && of.predictor == predictor
                    && of.ledger.is_some() == is_bytes
            });
            found.map_or(1.0, |of| of.factor)
        };
        Factors { bytes: of(true), seconds: of(false) }
    }
}

/// The kinds of a plan's devices, and the bytes that each of them allows; none where some allow more than others,
/// since no one says then how many a device has that was given.
pub fn usual_kinds(plan: &Plan) -> BTreeMap<&str, Option<Bytes>> {
    let mut kinds: BTreeMap<&str, Option<Bytes>> = BTreeMap::new();
    let mut add = |kind, capacity| {
        let known = kinds.entry(kind).or_insert(Some(Bytes(capacity)));
        *known = known.filter(|&known| known == Bytes(capacity));
    };
    for stage in &plan.stages {
        if stage.devices.is_empty() {
            add(plan.device_kind.as_str(), stage.capacity);
        }
        for device in &stage.devices {
            let kind = Some(device.kind.as_str()).filter(|kind| !kind.is_empty());
            add(kind.unwrap_or(&plan.device_kind), device.capacity);
        }
    }
    kinds
}
