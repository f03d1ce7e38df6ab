//! Every plan of criteria, enumerated from what a plan is: nothing here knows places, subsets, variants or any search.
//!
//! Devices are taken node by node, in every order of the nodes; where devices may be idle, in every subset. Only the
//! prices of single stages and the simulator are those of the planner.

use loadmaster_proto::plan::objective::{NodeSpanning, PlanShape};
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use crate::problem::Criteria;
use loadmaster_search::cost::{Batch, Market};
use loadmaster_search::{Choice, Fleet, KindSet, Link, Pin, Seconds, StageAt, StageCosts};
use loadmaster_simulate::{Edge, Order, Pipeline, iteration_seconds};

/// A plan that fits.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) batch: Batch,
    pub(super) devices: u32,
    pub(super) price: f64,
    /// Peaks of all devices in the criteria's unit, the highest first.
    pub(super) peaks: Vec<u64>,
    pub(super) bytes: u64,
    /// Simulated; 0 without times.
    pub(super) seconds: f64,
    /// What the fullest device lacks of its capacity.
    pub(super) lacks: u64,
    /// Its stages: layers, data and tensor degree.
    pub(super) stages: Vec<(usize, usize, u32, u32)>,
    /// What a failed assertion prints.
    #[expect(dead_code, reason = "read by Debug alone")]
    pub(super) text: String,
}

/// A stage: layers, choice, and its devices with their nodes.
#[derive(Debug, Clone)]
struct Stage {
    first: usize,
    last: usize,
    choice: Choice,
    /// Node of each device.
    nodes: Vec<usize>,
}

/// Every plan of criteria on a fleet, whether it fits or not; the limits of the criteria do not count.
pub(super) fn every_plan<M: Market>(
    market: &M,
    criteria: &Criteria,
    fleet: &Fleet,
    may_idle: bool,
) -> Vec<Plan> {
    let mut plans = Vec::new();
    for order in orders(fleet, criteria.keeps_order || fleet.is_one_node) {
        for counts in counts(fleet, may_idle) {
            let used: Vec<u32> = counts.iter().copied().filter(|&count| count > 0).collect();
            let is_even = used.windows(2).all(|pair| pair[0] == pair[1]);
            if used.is_empty()
                || criteria.rules.is_some_and(|rules| rules.even_nodes && !fleet.is_one_node && !is_even)
            {
                continue;
            }
            // The devices in the pipeline's order, each by its node.
            let sequence: Vec<usize> =
                order.iter().flat_map(|&node| std::iter::repeat_n(node, counts[node] as usize)).collect();
            for &batch in &criteria.batches {
                for &schedule in &criteria.schedules {
                    let asked = Enumeration {
                        market,
                        criteria,
                        fleet,
                        batch,
                        schedule,
                        sequence: &sequence,
                        counts: &counts,
                    };
                    asked.extend(&mut Vec::new(), 0, 0, &mut plans);
                }
            }
        }
    }
    plans
}

fn orders(fleet: &Fleet, is_given: bool) -> Vec<Vec<usize>> {
    let count = fleet.nodes.len();
    let mut orders = vec![Vec::new()];
    for _ in 0..count {
        orders = orders
            .into_iter()
            .flat_map(|begun: Vec<usize>| {
                let next = (0..count).filter(|node| !begun.contains(node)).collect::<Vec<_>>();
                next.into_iter().map(move |node| begun.iter().copied().chain([node]).collect())
            })
            .collect();
    }
    if is_given { vec![(0..count).collect()] } else { orders }
}

/// Devices used of each node.
fn counts(fleet: &Fleet, may_idle: bool) -> Vec<Vec<u32>> {
    fleet.nodes.iter().fold(vec![Vec::new()], |all, node| {
        let least = if may_idle { 0 } else { node.devices };
        all.iter()
            .flat_map(|begun| {
                (least..=node.devices).map(|count| begun.iter().copied().chain([count]).collect())
            })
            .collect()
    })
}

struct Enumeration<'a, M> {
    market: &'a M,
    criteria: &'a Criteria,
    fleet: &'a Fleet,
    batch: Batch,
    schedule: Schedule,
    sequence: &'a [usize],
    counts: &'a [u32],
}

impl<M: Market> Enumeration<'_, M> {
    fn extend(&self, begun: &mut Vec<Stage>, layer: usize, taken: usize, plans: &mut Vec<Plan>) {
        let layers = self.market.layers();
        if layer == layers {
            let limits = &self.criteria.constraints;
            let (least, most) = (limits.min_stages.unwrap_or(1), limits.max_stages.unwrap_or(layers));
            if taken == self.sequence.len() && (least..=most).contains(&begun.len()) {
                plans.extend(self.weigh(begun));
            }
            return;
        }
        for last in layer..layers {
            for choice in self.choices() {
                let size = choice.devices() as usize;
                let Some(nodes) = self.sequence.get(taken..taken + size) else { continue };
                let stage = Stage { first: layer, last, choice, nodes: nodes.to_vec() };
                if self.is_allowed(begun, &stage) {
                    begun.push(stage);
                    self.extend(begun, last + 1, taken + size, plans);
                    begun.pop();
                }
            }
        }
    }

    fn choices(&self) -> Vec<Choice> {
        let limits = &self.criteria.constraints;
        let mut choices = Vec::new();
        for data in 1..=self.batch.micro_batch_size {
            for tensor in [1, 2, 4, 8] {
                let is_listed = |list: &[u32], degree: u32| list.is_empty() || list.contains(&degree);
                let is_possible = self.batch.micro_batch_size.is_multiple_of(data)
                    && is_listed(&limits.data_degrees, data)
                    && is_listed(&limits.tensor_degrees, tensor);
                for &recompute in self.criteria.recompute.iter().filter(|_| is_possible) {
                    choices.push(Choice { data, tensor, recompute });
                }
            }
        }
        choices
    }

    fn is_allowed(&self, begun: &[Stage], stage: &Stage) -> bool {
        let cuts = &self.criteria.cuts;
        let Choice { data, tensor, recompute } = stage.choice;
        let in_shape = |other: &Stage| match self.criteria.shape {
            PlanShape::UniformGrid => (data, tensor) == (other.choice.data, other.choice.tensor),
            PlanShape::EqualDevices => stage.choice.devices() == other.choice.devices(),
            PlanShape::SinglePipeline | PlanShape::PerStageReplicas | PlanShape::PerStageMesh => true,
        };
        let is_shaped = match self.criteria.shape {
            PlanShape::SinglePipeline => stage.choice.devices() == 1,
            PlanShape::PerStageReplicas => tensor == 1,
            _ => begun.iter().all(in_shape),
        };
        let alike = |policy: RecomputePolicy| begun.iter().all(|other| other.choice.recompute == policy);
        is_shaped
            && (self.criteria.constraints.recompute_per_stage || alike(recompute))
            && cuts.may_be_stage(stage.first, stage.last)
            && self.may_span(stage)
            && self.keeps_pins(stage)
    }

    fn may_span(&self, stage: &Stage) -> bool {
        if self.fleet.is_one_node || stage.nodes.windows(2).all(|pair| pair[0] == pair[1]) {
            return true;
        }
        let spanning = match (self.criteria.constraints.spanning, self.criteria.shape) {
            (Some(spanning), _) => spanning,
            (None, PlanShape::UniformGrid) => NodeSpanning::Anywhere,
            (None, _) => NodeSpanning::Never,
        };
        let has_all = |&node: &usize| {
            let own = stage.nodes.iter().filter(|&&other| other == node).count() as u32;
            own == self.fleet.nodes[node].whole && own == self.counts[node]
        };
        match spanning {
            NodeSpanning::Never => false,
            NodeSpanning::WholeNodes => stage.nodes.iter().all(has_all),
            NodeSpanning::Anywhere => true,
        }
    }

    /// Whether a stage can have every device that its layers are pinned to, and no other stage needs one of them.
    fn keeps_pins(&self, stage: &Stage) -> bool {
        let is_in = |pin: &&Pin| (stage.first..=stage.last).contains(&pin.layer);
        let pins = self.criteria.cuts.pins();
        let shares = pins
            .iter()
            .filter(is_in)
            .any(|pin| pins.iter().any(|other| other.device == pin.device && !is_in(&other)));
        let enough = (0..self.fleet.nodes.len()).all(|node| {
            let begin: u32 = self.fleet.nodes[..node].iter().map(|node| node.devices).sum();
            let own = begin as usize..(begin + self.fleet.nodes[node].devices) as usize;
            let mut devices: Vec<usize> = pins
                .iter()
                .filter(is_in)
                .map(|pin| pin.device)
                .filter(|device| own.contains(device))
                .collect();
            devices.sort_unstable();
            devices.dedup();
            devices.len() <= stage.nodes.iter().filter(|&&other| other == node).count()
        });
        !shares && enough
    }

    fn between(&self, one: usize, other: usize) -> Link {
        let inside = self.fleet.nodes[one].inside;
        if one == other { inside } else { self.fleet.between(one, other).unwrap() }
    }

    fn weigh(&self, stages: &[Stage]) -> Option<Plan> {
        let mut links: Vec<Link> = Vec::new();
        let mut id = |link: Link| {
            links.push(link);
            (links.len() - 1) as u16
        };
        let choices: Vec<Choice> = stages.iter().map(|stage| stage.choice).collect();
        let slowest = |pairs: Vec<(usize, usize)>, alone: Link| {
            pairs
                .into_iter()
                .map(|(one, other)| self.between(one, other))
                .reduce(Link::slower)
                .unwrap_or(alone)
        };
        let ring = |members: &[usize]| -> Vec<(usize, usize)> {
            let next = members.iter().cycle().skip(1);
            members.iter().copied().zip(next.copied()).filter(|_| members.len() > 1).collect()
        };
        let mut at = Vec::new();
        for (index, stage) in stages.iter().enumerate() {
            let Choice { data, tensor, .. } = stage.choice;
            let (data, tensor) = (data as usize, tensor as usize);
            let groups: Vec<Vec<usize>> = stage.nodes.chunks(tensor).map(<[usize]>::to_vec).collect();
            let rings: Vec<Vec<usize>> = (0..tensor)
                .map(|shard| (0..data).map(|replica| stage.nodes[replica * tensor + shard]).collect())
                .collect();
            let alone = self.fleet.nodes[stage.nodes[0]].inside;
            let inside =
                stage.nodes.iter().map(|&node| self.fleet.nodes[node].inside).reduce(Link::slower).unwrap();
            // What the planner promises: one link for all groups of a stage, the slowest that any of its kind crosses.
            let spans =
                |groups: &[Vec<usize>]| groups.iter().any(|group| group.iter().any(|node| *node != group[0]));
            let mut visited = stage.nodes.clone();
            visited.dedup();
            let across = slowest(ring(&visited), alone);
            let sharing = |groups: &[Vec<usize>]| {
                let through = |&node: &usize| {
                    groups
                        .iter()
                        .filter(|group| group.contains(&node) && group.iter().any(|other| *other != node))
                        .count()
                };
                let most = stage.nodes.iter().map(through).max().unwrap_or(1).max(1);
                if self.fleet.is_one_node { 1 } else { most as u32 }
            };
            at.push(StageAt {
                first: stage.first,
                last: stage.last,
                choice: index,
                kinds: stage
                    .nodes
                    .iter()
                    .map(|&node| KindSet::one(self.fleet.nodes[node].kind))
                    .reduce(KindSet::with)?,
                tensor_link: id(if spans(&groups) { across } else { inside }),
                data_link: id(if visited.len() > 1 { across } else { inside }),
                tensor_rings: sharing(&groups),
                data_rings: sharing(&rings),
            });
        }
        let entries: Vec<u16> = stages
            .windows(2)
            .map(|pair| {
                let (from, to) = (*pair[0].nodes.last().unwrap(), pair[1].nodes[0]);
                // A transfer between two devices has one of the links of which a ring has all.
                id(if from == to {
                    self.between(from, to)
                } else {
                    self.fleet.edge_between(from, to).unwrap()
                })
            })
            .collect();
        let costs = self.market.costs(self.schedule, self.batch, &choices, &links);
        let (mut peaks, mut bytes, mut lacks) = (Vec::new(), 0, 0);
        for (index, stage) in at.iter().enumerate() {
            let after = (stages.len() - 1 - index) as u32;
            let held = match self.schedule {
                Schedule::Gpipe => self.batch.micro_batches,
                Schedule::OneFOneB => self.batch.micro_batches.min(after + 1),
                Schedule::PipeDream => after + 1,
            };
            let peak = costs.peak(stage, held)?;
            let capacity = self.fleet.capacity(stage.kinds);
            lacks = lacks.max(peak.needed.saturating_sub(capacity.0));
            bytes = bytes.max(peak.bytes);
            peaks.extend(stages[index].nodes.iter().map(|_| self.criteria.unit.of(peak.bytes, capacity)));
        }
        peaks.sort_unstable_by(|a, b| b.cmp(a));
        let seconds: Option<Vec<Seconds>> = at.iter().map(|stage| costs.seconds(stage)).collect();
        let edges: Vec<Edge> = entries
            .iter()
            .enumerate()
            .map(|(index, &link)| {
                let of = |side: usize| costs.cut_seconds(at[index].last, link, side);
                Edge::halves(of(index).max(of(index + 1)))
            })
            .collect();
        let simulated = seconds.map(|stages| {
            let micro_batches = self.batch.micro_batches;
            let (order, overlap) = (Order::from(self.schedule), self.criteria.overlap);
            iteration_seconds(&Pipeline { stages: &stages, edges: &edges, micro_batches, order, overlap })
                .unwrap()
        });
        let price = |&node: &usize| self.fleet.kinds[self.fleet.nodes[node].kind].hourly_price.unwrap_or(0.0);
        Some(Plan {
            batch: self.batch,
            devices: self.sequence.len() as u32,
            price: self.sequence.iter().map(price).sum(),
            peaks,
            bytes,
            seconds: simulated.unwrap_or(0.0),
            lacks,
            stages: stages.iter().map(|of| (of.first, of.last, of.choice.data, of.choice.tensor)).collect(),
            text: format!("{:?} {:?} {stages:?}", self.batch, self.schedule),
        })
    }
}

/// The highest peak of a plan.
pub(super) fn highest(plan: &Plan) -> u64 {
    plan.peaks.first().copied().unwrap_or(0)
}
