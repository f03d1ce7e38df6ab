//! In which ways can the ranks of a plan be put on nodes?

use std::collections::BTreeSet;

use loadmaster_proto::plan::Plan;

use super::alike::{Alike, Mark};
use super::needs::{self, BindError, RankNeed};
use crate::search::{Fleet, FleetNode};

/// A node that ranks are put on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seat {
    /// Index of the node in the fleet.
    pub(super) node: usize,
    /// How many of its devices are taken, the first ones.
    pub(super) taken: u32,
}

/// All ways to put a plan's ranks on the nodes of a fleet.
#[derive(Debug)]
pub(super) struct Ways<'a> {
    pub(super) fleet: &'a Fleet,
    needs: Vec<RankNeed<'a>>,
    /// Ranks that the plan has on one node, in the order of their first ones; none where the nodes given cannot have them so.
    blocks: Option<Blocks<'a>>,
    alike: Alike,
    /// See [`Alike::of`].
    classes: Vec<usize>,
}

/// Ranks that the plan has on one node.
#[derive(Debug, Clone)]
pub(super) struct Block<'a> {
    pub(super) kind: &'a str,
    /// Bytes that the most demanding of them needs.
    pub(super) bytes: u64,
    pub(super) ranks: Vec<usize>,
}

#[derive(Debug)]
struct Blocks<'a> {
    blocks: Vec<Block<'a>>,
    /// A node for each of them.
    matched: Vec<usize>,
}

/// Where a search through the ways is: what may come next, and what came last.
struct Turn {
    /// Groups of nodes whose next one may be taken.
    open: Vec<usize>,
    /// How many of them have been.
    tried: usize,
    /// The group that the seat of this turn is of, and the domains that it was the first to take something of.
    taken: Option<(usize, Vec<(usize, u32)>)>,
}

impl<'a> Ways<'a> {
    /// Nodes of other `classes` are not alike, though a search sees no difference; see [`Alike::of`].
    ///
    /// # Errors
    /// The stages for which there are not enough devices, or whose shards would be on several nodes.
    pub(super) fn of(plan: &'a Plan, fleet: &'a Fleet, classes: Vec<usize>) -> Result<Self, BindError> {
        let needs = needs::of_ranks(plan);
        needs::check(&needs, fleet)?;
        let blocks = blocks(plan, &needs);
        let matched = matched(&blocks, fleet);
        let blocks = matched.map(|matched| Blocks { blocks, matched });
        let ways = Self { fleet, needs, blocks, alike: Alike::of(fleet, &classes), classes };
        if ways.some().is_some() { Ok(ways) } else { Err(ways.torn()) }
    }

    /// Whether ranks that the plan has on one node are on one node.
    pub(super) fn is_as_planned(&self) -> bool {
        self.blocks.is_some()
    }

    /// Ranks that the plan has on one node; none where ranks take nodes one behind the other.
    pub(super) fn blocks(&self) -> Option<&[Block<'a>]> {
        self.blocks.as_ref().map(|blocks| blocks.blocks.as_slice())
    }

    /// Nodes whose devices have the name of this kind.
    pub(super) fn of_kind(&self, kind: usize) -> impl Iterator<Item = &'a FleetNode> {
        let fleet = self.fleet;
        let name = fleet.kinds.get(kind).map(|kind| &kind.name);
        fleet.nodes.iter().filter(move |node| fleet.kinds.get(node.kind).map(|kind| &kind.name) == name)
    }

    /// Whether every way takes as many devices of its first node, as many of its second, and so on.
    pub(super) fn have_equal_seats(&self) -> bool {
        let is_like_all = |node: &FleetNode| {
            self.of_kind(node.kind).all(|other| (node.kind, node.devices) == (other.kind, other.devices))
        };
        self.is_as_planned() || self.fleet.nodes.iter().all(is_like_all)
    }

    /// Whether nothing tells two nodes apart.
    pub(super) fn are_alike(&self, one: usize, other: usize) -> bool {
        let nodes = &self.fleet.nodes;
        nodes
            .get(one)
            .zip(nodes.get(other))
            .is_some_and(|(one, other)| one.is_like(other) && one.domains == other.domains)
            && self.classes.get(one) == self.classes.get(other)
    }

    /// Why there is no way.
    pub(super) fn torn(&self) -> BindError {
        needs::torn(&self.needs, self.fleet)
    }

    /// How many ranks there are.
    pub(super) fn ranks(&self) -> usize {
        self.needs.len()
    }

    /// The seat of every rank: a position of the way, and a device of it.
    pub(super) fn seated(&self, way: &[Seat]) -> Vec<(usize, u32)> {
        let mut seated = vec![(0, 0); self.needs.len()];
        let mut next = 0;
        for (position, seat) in way.iter().enumerate() {
            for device in 0..seat.taken {
                let rank = match self.blocks() {
                    Some(blocks) => {
                        blocks.get(position).and_then(|of| of.ranks.get(device as usize)).copied()
                    }
                    None => Some(next),
                };
                next += 1;
                if let Some(of) = rank.and_then(|rank| seated.get_mut(rank)) {
                    *of = (position, device);
                }
            }
        }
        seated
    }

    /// By stage, in the order of its ranks: the fleet's devices in this way.
    pub(super) fn devices(&self, way: &[Seat]) -> Vec<Vec<u32>> {
        let begins = self.fleet.begins();
        let mut stages: Vec<Vec<u32>> = Vec::new();
        for (need, (position, device)) in self.needs.iter().zip(self.seated(way)) {
            stages.resize(stages.len().max(need.stage + 1), Vec::new());
            let begin = way.get(position).and_then(|seat| begins.get(seat.node)).copied().unwrap_or_default();
            stages[need.stage].push(begin + device);
        }
        stages
    }

    /// Some way, by its devices.
    pub(super) fn first(&self) -> Option<Vec<Vec<u32>>> {
        self.some().map(|way| self.devices(&way))
    }

    /// Some way: the first one that is come by, or nodes as they were matched.
    pub(super) fn some(&self) -> Option<Vec<Seat>> {
        let mut found = None;
        self.each(Self::FIRST_STEPS, &mut |way| {
            found = Some(way.to_vec());
            false
        });
        found.or_else(|| {
            let Blocks { blocks, matched } = self.blocks.as_ref()?;
            let seat = |(block, &node): (&Block<'_>, &usize)| Seat { node, taken: block.ranks.len() as u32 };
            Some(blocks.iter().zip(matched).map(seat).collect())
        })
    }

    /// Most nodes that are taken, and put back, to come by a way.
    const FIRST_STEPS: u64 = 1 << 16;

    /// The way that takes these nodes in this order; none where there is none.
    pub(super) fn along(&self, nodes: impl IntoIterator<Item = usize>) -> Option<Vec<Seat>> {
        let mut way = Vec::new();
        let mut filled = 0;
        for node in nodes {
            if self.is_whole(way.len(), filled) {
                break;
            }
            let taken = self.taken(node, way.len(), filled)?;
            filled += taken as usize;
            way.push(Seat { node, taken });
        }
        self.is_whole(way.len(), filled).then_some(way)
    }

    /// Visits the ways, of those that nothing tells apart one, until a visit says that it is enough or so many nodes have been
    /// taken. Whether those were all.
    pub(super) fn each(&self, mut steps: u64, visit: &mut dyn FnMut(&[Seat]) -> bool) -> bool {
        let groups = &self.alike.groups;
        // Of each group the nodes that nobody has, the first one last.
        let mut free: Vec<Vec<usize>> =
            groups.iter().map(|group| group.nodes.iter().rev().copied().collect()).collect();
        let mut domains: BTreeSet<(usize, u32)> = BTreeSet::new();
        let (mut way, mut filled): (Vec<Seat>, usize) = (Vec::new(), 0);
        let mut turns = vec![Turn { open: self.open(&free, &domains, &way, filled), tried: 0, taken: None }];
        while let Some(turn) = turns.last_mut() {
            if let Some((group, first)) = turn.taken.take()
                && let Some(seat) = way.pop()
            {
                filled -= seat.taken as usize;
                free[group].push(seat.node);
                for domain in first {
                    domains.remove(&domain);
                }
            }
            let Some(&group) = turn.open.get(turn.tried) else {
                turns.pop();
                continue;
            };
            turn.tried += 1;
            let node = free[group].last().copied();
            let Some((node, taken)) =
                node.and_then(|node| Some((node, self.taken(node, way.len(), filled)?)))
            else {
                continue;
            };
            if steps == 0 {
                return false;
            }
            steps -= 1;
            free[group].pop();
            let own = groups[group].domains.iter().copied().enumerate();
            turn.taken = Some((group, own.filter(|&domain| domains.insert(domain)).collect()));
            way.push(Seat { node, taken });
            filled += taken as usize;
            let open = if self.is_whole(way.len(), filled) {
                if !visit(&way) {
                    return false;
                }
                Vec::new()
            } else {
                self.open(&free, &domains, &way, filled)
            };
            turns.push(Turn { open, tried: 0, taken: None });
        }
        true
    }

    /// Groups whose next node may come next, of those that nothing tells apart one: the nearest to the last one first.
    fn open(
        &self,
        free: &[Vec<usize>],
        domains: &BTreeSet<(usize, u32)>,
        way: &[Seat],
        filled: usize,
    ) -> Vec<usize> {
        let last = way.last().and_then(|seat| self.fleet.nodes.get(seat.node));
        let mut seen: BTreeSet<Mark> = BTreeSet::new();
        let mut open: Vec<(usize, usize)> = Vec::new();
        for (index, group) in self.alike.groups.iter().enumerate() {
            let Some(&node) = free.get(index).and_then(|free| free.last()) else { continue };
            if self.taken(node, way.len(), filled).is_some() && seen.insert(self.alike.mark(group, domains)) {
                open.push((last.map_or(0, |last| distance(&last.domains, &group.domains)), index));
            }
        }
        open.sort_unstable();
        open.into_iter().map(|(_, group)| group).collect()
    }

    fn is_whole(&self, seats: usize, filled: usize) -> bool {
        self.blocks().map_or(filled == self.needs.len(), |blocks| seats == blocks.len())
    }

    /// How many devices of a node are taken, if it comes next; none where it cannot.
    fn taken(&self, node: usize, seats: usize, filled: usize) -> Option<u32> {
        let node = self.fleet.nodes.get(node)?;
        let kind = self.fleet.kinds.get(node.kind)?;
        if let Some(blocks) = self.blocks() {
            let block = blocks.get(seats)?;
            return holds(block, node, &kind.name, kind.capacity.0).then_some(block.ranks.len() as u32);
        }
        let left = self.needs.get(filled..)?;
        let suits = |need: &&RankNeed<'_>| need.kind == kind.name && need.bytes <= kind.capacity.0;
        let mut taken = left.iter().take(node.devices as usize).take_while(suits).count();
        // Shards of the same tensors stay together.
        while taken > 0 && left.get(taken).is_some_and(|next| next.group < filled + taken) {
            taken -= 1;
        }
        (taken > 0).then_some(taken as u32)
    }
}

/// How far apart nodes of these domains are: the nearest tier of which they share a domain.
fn distance(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).position(|(one, other)| one == other).unwrap_or(one.len())
}

fn holds(block: &Block<'_>, node: &FleetNode, kind: &str, capacity: u64) -> bool {
    block.kind == kind && block.ranks.len() <= node.devices as usize && block.bytes <= capacity
}

/// The ranks of each node of the plan; those of each kind on their own.
fn blocks<'a>(plan: &'a Plan, needs: &[RankNeed<'a>]) -> Vec<Block<'a>> {
    let placed = plan.stages.iter().flat_map(|stage| {
        (0..stage.config.devices() as usize)
            .map(|rank| stage.devices.get(rank).map_or("", |device| &device.node))
    });
    let mut known: std::collections::HashMap<(&str, &str), usize> = std::collections::HashMap::new();
    let mut blocks: Vec<Block<'a>> = Vec::new();
    for (rank, (node, need)) in placed.zip(needs).enumerate() {
        let at = *known.entry((node, need.kind)).or_insert_with(|| {
            blocks.push(Block { kind: need.kind, bytes: 0, ranks: Vec::new() });
            blocks.len() - 1
        });
        blocks[at].ranks.push(rank);
        blocks[at].bytes = blocks[at].bytes.max(need.bytes);
    }
    blocks
}

/// A node for each block, each node once; none where there are not as many that hold them (a maximum matching by augmenting
/// paths).
fn matched(blocks: &[Block<'_>], fleet: &Fleet) -> Option<Vec<usize>> {
    let suits = |block: usize, node: usize| {
        let (block, node) = (&blocks[block], &fleet.nodes[node]);
        fleet.kinds.get(node.kind).is_some_and(|kind| holds(block, node, &kind.name, kind.capacity.0))
    };
    if blocks.len() > fleet.nodes.len() {
        return None;
    }
    let mut owner: Vec<Option<usize>> = vec![None; fleet.nodes.len()];
    for block in 0..blocks.len() {
        // Breadth first: each node is reached from the block that would give it up.
        let mut reached: Vec<Option<usize>> = vec![None; fleet.nodes.len()];
        let mut queue = std::collections::VecDeque::from([block]);
        let mut free = None;
        'search: while let Some(asking) = queue.pop_front() {
            for node in 0..fleet.nodes.len() {
                if reached[node].is_some() || !suits(asking, node) {
                    continue;
                }
                reached[node] = Some(asking);
                match owner[node] {
                    None => {
                        free = Some(node);
                        break 'search;
                    }
                    Some(other) => queue.push_back(other),
                }
            }
        }
        let mut node = free?;
        loop {
            let asking = reached[node]?;
            let before = owner.iter().position(|of| *of == Some(asking));
            owner[node] = Some(asking);
            match before {
                Some(given_up) => node = given_up,
                None => break,
            }
        }
    }
    let mut nodes = vec![0; blocks.len()];
    for (node, block) in owner.iter().enumerate() {
        if let Some(block) = block {
            nodes[*block] = node;
        }
    }
    Some(nodes)
}
