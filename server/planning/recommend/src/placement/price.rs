//! How long an iteration takes in a way, and in none of them less.

use std::cell::Cell;
use std::collections::BTreeSet;

use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::TrainingSpec;

use super::ways::{Seat, Ways};
use crate::fixed_partition::choices_of;
use crate::problem::Variant;
use crate::search::{Candidate, KnownOrders};
use loadmaster_search::cost::{Batch, Market};
use loadmaster_search::fleet::{DeviceRef, Subset};
use loadmaster_search::{Cuts, Fleet, FleetNode, Link, Places, Question};
use loadmaster_simulate::Overlap;

/// What computes how long an iteration of a plan takes in its ways.
pub(super) trait Price {
    /// Seconds of an iteration in a way; none where no one can tell, or the plan may not be put so.
    fn seconds(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64>;

    /// Seconds that no way takes less than.
    fn least(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64>;

    /// How much it is to price one of these ways, in ranks that are priced by their passes.
    fn work(&self, ways: &Ways<'_>) -> u64;

    /// Whether equivalent ways take the same seconds, so that one of them stands for all, and no way is faster than it was
    /// found to be.
    fn tells_all(&self) -> bool;

    /// By stage, in the order of its ranks: the fleet's devices in a way, for which its seconds are.
    fn devices(&self, ways: &Ways<'_>, way: &[Seat]) -> Vec<Vec<u32>> {
        ways.devices(way)
    }
}

/// What prices the ways of a plan by its passes.
pub(super) struct Pricer<'a, M> {
    market: &'a M,
    /// How its stages are run.
    variant: Variant,
    overlap: Overlap,
    /// First layer, last layer and choice of each stage.
    stages: Vec<(usize, usize, usize)>,
    /// How many of them each device has interleaved.
    each: u32,
    cuts: Cuts,
    /// By rank, which device of its node the plan has it on.
    planned: Vec<Option<u32>>,
    /// Those that were given, in the fleet's order.
    given: &'a [DeviceRef],
    orders: KnownOrders,
    /// Whether every way was found on devices that are proven to be the best of its nodes.
    is_proven: Cell<bool>,
}

impl<'a, M: Market> Pricer<'a, M> {
    /// `given` are the devices that were given, in the fleet's order.
    pub(super) fn of(market: &'a M, plan: &Plan, given: &'a [DeviceRef]) -> Self {
        let (choices, stages) = choices_of(plan.stages.iter().map(|stage| (stage.config, stage.recompute)));
        let TrainingSpec { schedule, micro_batch_size, micro_batches, .. } = plan.training;
        let batch = Batch { micro_batch_size, micro_batches };
        Self {
            market,
            variant: Variant { batch, schedule, choices, stages: stages.len()..=stages.len() },
            overlap: plan.found.iteration.as_ref().map(|of| of.overlap).unwrap_or_default(),
            stages,
            each: plan.virtual_stages.max(1),
            cuts: Cuts::anywhere(market.layers()),
            planned: plan
                .first_stages()
                .iter()
                .flat_map(|stage| {
                    let ranks = 0..stage.config.devices() as usize;
                    ranks.map(|rank| stage.devices.get(rank).map(|device| device.index))
                })
                .collect(),
            given,
            orders: KnownOrders::default(),
            is_proven: Cell::new(true),
        }
    }

    /// A way as candidates, not simulated yet. Ranks on a node take its devices in their order, as the plan has them if there are
    /// such: where that is asked for, or links between devices are unlike. Then as they are fastest.
    pub(super) fn candidates(
        &self,
        ways: &Ways<'_>,
        way: &[Seat],
        are_unlike: bool,
    ) -> Option<Vec<Candidate>> {
        let node = |seat: &Seat| ways.fleet.nodes.get(seat.node).map(|node| node.first(seat.taken()));
        let nodes: Option<Vec<FleetNode>> = way.iter().map(node).collect();
        let begins = ways.fleet.begins();
        let origin = |seat: &Seat| {
            let begin = begins.get(seat.node).copied().unwrap_or_default();
            begin..begin + seat.taken()
        };
        let subset =
            Subset { fleet: ways.fleet.with_nodes(nodes?), origin: way.iter().flat_map(origin).collect() };
        let on = self.on(&subset, ways, way)?;
        let nodes = subset.unlike();
        let mut all = vec![on.candidate];
        if are_unlike || !nodes.is_empty() {
            all.extend(self.as_planned(ways, way).and_then(|devices| {
                let mut planned = all.first()?.clone();
                for (stage, devices) in planned.stages.iter_mut().zip(devices) {
                    stage.devices = devices;
                }
                planned.price_edges(&on.costs, &nodes);
                Some(planned)
            }));
        }
        // Which of unlike devices is best for several interleaved stages is not looked for.
        self.is_proven.set(self.is_proven.get() && (nodes.is_empty() || self.each == 1));
        if !nodes.is_empty() && self.each == 1 {
            let first = fastest_of(&mut all)?.clone();
            let mapped = first.map_devices(&on.costs, &nodes, &[], &self.orders);
            self.is_proven.set(self.is_proven.get() && mapped.is_proven);
            all.push(mapped.candidate);
        }
        Some(all)
    }

    /// By stage: the devices with the indices that the plan has, where the nodes of a way have them.
    fn as_planned(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<Vec<Vec<u32>>> {
        let begins = ways.fleet.begins();
        let device = |((position, _), planned): ((usize, u32), &Option<u32>)| {
            let node = way.get(position)?.node;
            let begin = *begins.get(node)?;
            let mut own = begin..begin + ways.fleet.nodes.get(node)?.devices;
            let index = (*planned)?;
            own.find(|&device| self.given.get(device as usize).is_some_and(|given| given.index == index))
        };
        let devices: Vec<u32> =
            ways.seated(way).into_iter().zip(&self.planned).map(device).collect::<Option<_>>()?;
        let distinct: BTreeSet<u32> = devices.iter().copied().collect();
        (distinct.len() == devices.len()).then(|| self.by_stage(&devices, 0))?
    }

    /// The devices of each stage, of those of all ranks: where they have several interleaved stages, each time so
    /// many further on.
    fn by_stage(&self, devices: &[u32], further: u32) -> Option<Vec<Vec<u32>>> {
        let mut stages = Vec::with_capacity(self.stages.len());
        for turn in 0..self.each {
            let mut left = devices;
            for &(_, _, choice) in self.stages.iter().take(self.stages.len() / self.each as usize) {
                let (own, rest) =
                    left.split_at_checked(self.variant.choices.get(choice)?.devices() as usize)?;
                stages.push(own.iter().map(|device| device + turn * further).collect());
                left = rest;
            }
        }
        (stages.len() == self.stages.len()).then_some(stages)
    }

    /// The fastest of the candidates of a way.
    fn fastest(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<Candidate> {
        fastest_of(&mut self.candidates(ways, way, false)?).cloned()
    }
}

/// The fastest of these, once they are simulated.
fn fastest_of(all: &mut [Candidate]) -> Option<&Candidate> {
    all.iter_mut().for_each(Candidate::simulate);
    let seconds = |of: &Candidate| of.seconds().unwrap_or(f64::INFINITY);
    all.iter().min_by(|one, other| seconds(one).total_cmp(&seconds(other)))
}

/// A way as a candidate with what it was priced with.
struct On<C> {
    candidate: Candidate,
    costs: C,
}

impl<M: Market> Price for Pricer<'_, M> {
    fn seconds(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64> {
        self.fastest(ways, way)?.seconds()
    }

    fn devices(&self, ways: &Ways<'_>, way: &[Seat]) -> Vec<Vec<u32>> {
        let stages = self.fastest(ways, way).map(|fastest| fastest.stages);
        stages.map_or_else(|| ways.devices(way), |of| of.into_iter().map(|stage| stage.devices).collect())
    }

    /// Those of this one, were all links as fast as the fastest, if all ways take as many
    /// devices of their nodes, or else were all ranks of a kind on one node.
    fn least(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64> {
        let (inside, across) = fastest_links(ways.fleet);
        let any = inside.map_or(across, |inside| inside.faster(across));
        let has_equal_seats = ways.have_equal_seats();
        let ideal = |seat: &Seat| {
            let node = ways.fleet.nodes.get(seat.node)?;
            let alike = ways.of_kind(node.kind).filter(|of| of.devices >= seat.taken());
            let alike = alike.map(FleetNode::fastest);
            let (inside, outside) =
                if has_equal_seats { (alike.reduce(Link::faster)?, across) } else { (any, any) };
            let devices = seat.taken();
            let (one_transfer, unlike) = (None, None);
            Some(FleetNode {
                devices,
                inside,
                outside,
                one_transfer,
                domains: Vec::new(),
                unlike,
                ..node.clone()
            })
        };
        let nodes: Option<Vec<FleetNode>> = way.iter().map(ideal).collect();
        // On one machine nothing is shared with others.
        let is_one_node = !has_equal_seats;
        let fleet = Fleet { tiers: Vec::new(), is_one_node, ..ways.fleet.with_nodes(nodes?) };
        let mut candidate = self.on(&Subset::whole(&fleet), ways, way)?.candidate;
        candidate.simulate();
        candidate.seconds()
    }

    fn work(&self, ways: &Ways<'_>) -> u64 {
        (ways.ranks() as u64).saturating_mul(u64::from(self.each))
    }

    fn tells_all(&self) -> bool {
        self.is_proven.get()
    }
}

impl<M: Market> Pricer<'_, M> {
    /// The plan with the seats of a way as the nodes of a fleet, in its order.
    fn on(&self, subset: &Subset, ways: &Ways<'_>, way: &[Seat]) -> Option<On<M::Costs>> {
        let in_turn = (self.each > 1).then(|| subset.in_turn(self.each));
        let along = in_turn.as_ref().unwrap_or(subset);
        let fleet = &along.fleet;
        let mut begins = Vec::with_capacity(way.len());
        let mut begin = 0;
        for seat in way {
            begins.push(begin);
            begin += seat.taken();
        }
        let devices: Vec<u32> = ways
            .seated(way)
            .into_iter()
            .map(|(position, device)| begins.get(position).map_or(device, |begin| begin + device))
            .collect();
        let groups: Vec<(Vec<u32>, u32)> = self
            .by_stage(&devices, subset.fleet.devices())?
            .into_iter()
            .zip(&self.stages)
            .map(|(devices, &(_, _, choice))| Some((devices, self.variant.choices.get(choice)?.tensor)))
            .collect::<Option<_>>()?;
        // As a plan is priced whose stages take nodes one behind the other, so that the same devices take the same seconds.
        let is_in_order = devices.iter().zip(0..).all(|(&device, place)| device == place);
        let places = if is_in_order {
            let sizes: Vec<u32> = groups.iter().map(|(devices, _)| devices.len() as u32).collect();
            Places::along(fleet, &sizes)
        } else {
            Places::given(fleet, &groups)?
        };
        let Variant { batch, schedule, choices, .. } = &self.variant;
        let costs = self.market.costs(*schedule, *batch, choices, places.links());
        let choices: Vec<usize> = (0..choices.len()).collect();
        let question = self.variant.question(&costs, (fleet, &places), &choices, &self.cuts);
        let question = Question { within_capacity: false, ..question };
        let mut candidate = Candidate::given(&question, &self.stages, *batch, self.overlap, along)?;
        if self.each > 1 {
            candidate = candidate.in_turn(self.each, &costs, subset);
        }
        Some(On { candidate, costs })
    }
}

/// The fastest link inside any node, where one has several devices, and the fastest between any two.
fn fastest_links(fleet: &Fleet) -> (Option<Link>, Link) {
    let nodes = || fleet.nodes.iter();
    let inside = nodes().filter(|node| node.devices > 1).map(FleetNode::fastest).reduce(Link::faster);
    let own = nodes().map(|node| node.outside).reduce(Link::faster).unwrap_or(FleetNode::ALONE);
    // Where a tier says nothing, nodes' own links say it all.
    let is_free = fleet.tiers.is_empty() || fleet.tiers.iter().any(Option::is_none);
    let tier = fleet.tiers.iter().copied().flatten().reduce(Link::faster).filter(|_| !is_free);
    (inside, tier.map_or(own, |tier| own.slower(tier)))
}
