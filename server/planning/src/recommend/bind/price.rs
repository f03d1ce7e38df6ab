//! How long an iteration takes in a way, and in none of them less.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::Schedule;

use super::ways::{Seat, Ways};
use crate::cost::{Batch, Market};
use crate::fleet::Subset;
use crate::iteration::Overlap;
use crate::recommend::find::Candidate;
use crate::search::{Choice, Cuts, Fleet, FleetNode, Link, Places, Question};

/// What tells how long an iteration of a plan takes in its ways.
pub(super) trait Price {
    /// Seconds of an iteration in a way; none where nobody can tell, or the plan may not be put so.
    fn seconds(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64>;

    /// Seconds that no way takes less than.
    fn least(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64>;

    /// How much it is to price one of these ways, in ranks that are priced by their passes.
    fn work(&self, ways: &Ways<'_>) -> u64;

    /// Whether ways that nothing tells apart take the same seconds, so that one of them stands for all.
    fn tells_all(&self) -> bool;
}

/// What prices the ways of a plan by its passes.
pub(super) struct Pricer<'a, M> {
    market: &'a M,
    schedule: Schedule,
    batch: Batch,
    overlap: Overlap,
    choices: Vec<Choice>,
    /// First layer, last layer and choice of each stage.
    stages: Vec<(usize, usize, usize)>,
    cuts: Cuts,
}

impl<'a, M: Market> Pricer<'a, M> {
    pub(super) fn of(market: &'a M, plan: &Plan) -> Self {
        let mut choices: Vec<Choice> = Vec::new();
        let mut stages = Vec::with_capacity(plan.stages.len());
        for stage in &plan.stages {
            let (data, tensor) = (stage.config.data_degree, stage.config.tensor_degree);
            let choice = Choice { data, tensor, recompute: stage.recompute };
            let index = choices.iter().position(|known| *known == choice).unwrap_or_else(|| {
                choices.push(choice);
                choices.len() - 1
            });
            stages.push((stage.config.first_layer, stage.config.last_layer, index));
        }
        let training = plan.training;
        Self {
            market,
            schedule: training.schedule,
            batch: Batch {
                micro_batch_size: training.micro_batch_size,
                micro_batches: training.micro_batches,
            },
            overlap: plan.found.iteration.as_ref().map(|of| of.overlap).unwrap_or_default(),
            choices,
            stages,
            cuts: Cuts::anywhere(market.layers()),
        }
    }

    /// A way as a candidate on its own nodes, not simulated yet.
    pub(super) fn candidate(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<Candidate> {
        let own = |seat: &Seat| ways.fleet.nodes.get(seat.node).cloned();
        let nodes: Option<Vec<FleetNode>> =
            way.iter().map(|seat| Some(FleetNode { devices: seat.taken, ..own(seat)? })).collect();
        self.on(&ways.fleet.with_nodes(nodes?), ways, way)
    }
}

impl<M: Market> Price for Pricer<'_, M> {
    fn seconds(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64> {
        simulated(self.candidate(ways, way)?)
    }

    /// Those of this one, were all links as fast as the fastest, if all ways take as many
    /// devices of their nodes, or else were all ranks of a kind on one node.
    fn least(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64> {
        let (inside, across) = fastest_links(ways.fleet);
        let any = inside.map_or(across, |inside| inside.faster(across));
        let has_equal_seats = ways.have_equal_seats();
        let ideal = |seat: &Seat| {
            let node = ways.fleet.nodes.get(seat.node)?;
            let alike = ways.of_kind(node.kind).filter(|of| of.devices >= seat.taken).map(|of| of.inside);
            let (inside, outside) =
                if has_equal_seats { (alike.reduce(Link::faster)?, across) } else { (any, any) };
            let devices = seat.taken;
            Some(FleetNode { devices, inside, outside, domains: Vec::new(), ..node.clone() })
        };
        let nodes: Option<Vec<FleetNode>> = way.iter().map(ideal).collect();
        // On one machine nothing is shared with others.
        let is_one_node = !has_equal_seats;
        let fleet = Fleet { tiers: Vec::new(), is_one_node, ..ways.fleet.with_nodes(nodes?) };
        simulated(self.on(&fleet, ways, way)?)
    }

    fn work(&self, ways: &Ways<'_>) -> u64 {
        ways.ranks() as u64
    }

    fn tells_all(&self) -> bool {
        true
    }
}

impl<M: Market> Pricer<'_, M> {
    /// The plan with the seats of a way as the nodes of a fleet, in its order.
    fn on(&self, fleet: &Fleet, ways: &Ways<'_>, way: &[Seat]) -> Option<Candidate> {
        let mut begins = Vec::with_capacity(way.len());
        let mut begin = 0;
        for seat in way {
            begins.push(begin);
            begin += seat.taken;
        }
        let devices: Vec<u32> = ways
            .seated(way)
            .into_iter()
            .map(|(position, device)| begins.get(position).map_or(device, |begin| begin + device))
            .collect();
        let mut left = devices.as_slice();
        let mut groups: Vec<(Vec<u32>, u32)> = Vec::with_capacity(self.stages.len());
        for &(_, _, choice) in &self.stages {
            let choice = self.choices.get(choice)?;
            let (own, rest) = left.split_at_checked(choice.devices() as usize)?;
            groups.push((own.to_vec(), choice.tensor));
            left = rest;
        }
        // As a plan is priced whose stages take nodes one behind the other, so that the same devices take the same seconds.
        let is_in_order = devices.iter().zip(0..).all(|(&device, place)| device == place);
        let places = if is_in_order {
            let sizes: Vec<u32> = groups.iter().map(|(devices, _)| devices.len() as u32).collect();
            Places::along(fleet, &sizes)
        } else {
            Places::given(fleet, &groups)?
        };
        let costs = self.market.costs(self.schedule, self.batch, &self.choices, places.links());
        let choices: Vec<usize> = (0..self.choices.len()).collect();
        let question = Question {
            costs: &costs,
            fleet,
            places: &places,
            choices: &choices,
            schedule: self.schedule,
            micro_batches: self.batch.micro_batches,
            stages: self.stages.len()..=self.stages.len(),
            cuts: &self.cuts,
            within_capacity: false,
        };
        let whole = Subset::whole(fleet);
        Candidate::given(&question, &self.stages, self.batch, self.overlap, &whole)
    }
}

fn simulated(mut candidate: Candidate) -> Option<f64> {
    candidate.simulate();
    candidate.seconds()
}

/// The fastest link inside any node, where one has several devices, and the fastest between any two.
fn fastest_links(fleet: &Fleet) -> (Option<Link>, Link) {
    let nodes = || fleet.nodes.iter();
    let inside = nodes().filter(|node| node.devices > 1).map(|node| node.inside).reduce(Link::faster);
    let own = nodes().map(|node| node.outside).reduce(Link::faster).unwrap_or(FleetNode::ALONE);
    // Where a tier says nothing, nodes' own links say it all.
    let is_free = fleet.tiers.is_empty() || fleet.tiers.iter().any(Option::is_none);
    let tier = fleet.tiers.iter().copied().flatten().reduce(Link::faster).filter(|_| !is_free);
    (inside, tier.map_or(own, |tier| own.slower(tier)))
}
