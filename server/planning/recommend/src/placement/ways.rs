//! In which ways the ranks of a plan can be put on nodes: blocks of ranks that stay together, and a matching of blocks and machines.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use loadmaster_proto::plan::Plan;

use super::needs;
use super::needs::{PlacementError, RankNeed};
use super::part_assignment::{Machine, PartAssignment, machines, nodes};
use super::visits::{EquivalentMachines, Parting, are_alike, domains};
use loadmaster_search::{Fleet, FleetNode};

/// A node that ranks are put on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seat {
    /// Index of the node in the fleet.
    pub(super) node: usize,
    /// The ranks, which take its first devices.
    pub(super) ranks: Rc<[usize]>,
}

impl Seat {
    /// How many of its devices are taken.
    pub(super) fn taken(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }
}

/// What stays together of the ranks that the plan has on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cohesion {
    /// All of them are on one machine.
    Nodes,
    /// Those of each kind of devices are.
    Kinds,
    /// Shards of the same tensors alone are: ranks take nodes one behind the other.
    Shards,
}

/// All ways to put a plan's ranks on the nodes of a fleet.
#[derive(Debug)]
pub(super) struct Ways<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) kept: Cohesion,
    pub(super) needs: Vec<RankNeed<'a>>,
    /// What takes ranks at once.
    pub(super) machines: Vec<Machine<'a>>,
    /// Ranks that stay together, in the order of their first ones; none where ranks take nodes one behind the other.
    blocks: Option<Blocks<'a>>,
    pub(super) equivalence: EquivalentMachines,
    /// See [`EquivalentMachines::new`].
    classes: Vec<usize>,
}

#[derive(Debug)]
struct Blocks<'a> {
    blocks: Vec<Block<'a>>,
    /// A machine for each of them.
    matched: Vec<usize>,
}

/// What has its place already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Filled {
    pub(super) machines: usize,
    pub(super) ranks: usize,
}

impl Filled {
    pub(super) fn with(self, ranks: usize) -> Self {
        Self { machines: self.machines + 1, ranks: self.ranks + ranks }
    }
}

impl<'a> Ways<'a> {
    /// Those that keep most together. Nodes of other `classes` are not alike, though a search sees no difference; see
    /// [`EquivalentMachines::new`].
    ///
    /// # Errors
    /// The stages for which there are not enough devices, or whose shards would be on several nodes.
    pub(super) fn of(plan: &'a Plan, fleet: &'a Fleet, classes: Vec<usize>) -> Result<Self, PlacementError> {
        let needs = needs::of_ranks(plan);
        needs::check(&needs, fleet)?;
        let with = |kept, machines, blocks| Self::with(kept, fleet, (&needs, &classes), machines, blocks);
        let has_parts = machines(fleet).len() < fleet.nodes.len();
        let all = with(Cohesion::Nodes, machines(fleet), Some(of_nodes(plan, &needs)));
        all.or_else(|| with(Cohesion::Kinds, nodes(fleet), Some(of_kinds(plan, &needs)?)))
            .or_else(|| with(Cohesion::Shards, nodes(fleet), None))
            // What one part of a machine has no room for several may have.
            .or_else(|| with(Cohesion::Shards, machines(fleet), None).filter(|_| has_parts))
            .ok_or_else(|| needs::torn(&needs, &machines(fleet)))
    }

    /// Those of one sort; none where there are none.
    fn with(
        kept: Cohesion,
        fleet: &'a Fleet,
        (needs, classes): (&[RankNeed<'a>], &[usize]),
        machines: Vec<Machine<'a>>,
        blocks: Option<Vec<Block<'a>>>,
    ) -> Option<Self> {
        let blocks = match blocks {
            Some(blocks) => {
                let fits = |block: usize, machine: usize| blocks[block].fits(needs, &machines[machine]);
                let matched = maximum_matching(blocks.len(), machines.len(), fits)?;
                Some(Blocks { blocks, matched })
            }
            None => None,
        };
        let equivalence = EquivalentMachines::new(fleet, &machines, classes);
        let (needs, classes) = (needs.to_vec(), classes.to_vec());
        let ways = Self { fleet, kept, needs, machines, blocks, equivalence, classes };
        ways.some().is_some().then_some(ways)
    }

    /// Nodes whose devices have the name of this kind.
    pub(super) fn of_kind(&self, kind: usize) -> impl Iterator<Item = &'a FleetNode> {
        let fleet = self.fleet;
        let name = fleet.kinds.get(kind).map(|kind| &kind.name);
        fleet.nodes.iter().filter(move |node| fleet.kinds.get(node.kind).map(|kind| &kind.name) == name)
    }

    /// Whether some machine may have its ranks on several parts.
    pub(super) fn have_parts(&self) -> bool {
        self.machines.iter().any(|machine| machine.parts.len() > 1)
    }

    /// Whether every way takes as many devices of its first node, as many of its second, and so on.
    pub(super) fn have_equal_seats(&self) -> bool {
        let is_like_all = |node: &FleetNode| {
            self.of_kind(node.kind).all(|other| (node.kind, node.devices) == (other.kind, other.devices))
        };
        !self.have_parts() && (self.blocks.is_some() || self.fleet.nodes.iter().all(is_like_all))
    }

    /// Whether two machines are equivalent.
    pub(super) fn are_alike(&self, one: usize, other: usize) -> bool {
        let (fleet, machines) = (self.fleet, &self.machines);
        machines.get(one).zip(machines.get(other)).is_some_and(|(one, other)| {
            are_alike(fleet, &self.classes, one, other) && domains(fleet, one) == domains(fleet, other)
        })
    }

    /// Why there is no way.
    pub(super) fn torn(&self) -> PlacementError {
        needs::torn(&self.needs, &machines(self.fleet))
    }

    /// How many ranks there are.
    pub(super) fn ranks(&self) -> usize {
        self.needs.len()
    }

    /// The seat of every rank: a position of the way, and a device of it.
    pub(super) fn seated(&self, way: &[Seat]) -> Vec<(usize, u32)> {
        let mut seated = vec![(0, 0); self.needs.len()];
        for (position, seat) in way.iter().enumerate() {
            for (device, &rank) in (0..).zip(seat.ranks.iter()) {
                if let Some(of) = seated.get_mut(rank) {
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

    /// Some way: the first one that is come by, or machines as they were matched.
    pub(super) fn some(&self) -> Option<Vec<Seat>> {
        let mut found = None;
        self.each(Parting::ByRule, Self::FIRST_STEPS, &mut |way| {
            found = Some(way.to_vec());
            false
        });
        found.or_else(|| self.along(self.blocks.as_ref()?.matched.iter().copied()))
    }

    /// Most machines that are taken, and put back, to come by a way.
    const FIRST_STEPS: u64 = 1 << 16;

    /// The way that takes these machines in this order, parted by the rule; none where there is none.
    pub(super) fn along(&self, machines: impl IntoIterator<Item = usize>) -> Option<Vec<Seat>> {
        let (mut way, mut filled) = (Vec::new(), Filled::default());
        for machine in machines {
            if self.is_whole(filled) {
                break;
            }
            let ranks = self.ranks_of(machine, filled)?;
            way.extend(self.seats(machine, &self.machines.get(machine)?.assign_parts(&self.needs, &ranks)?));
            filled = filled.with(ranks.len());
        }
        self.is_whole(filled).then(|| in_order(way))
    }

    /// The machines that a way takes, in the order in which it takes them.
    pub(super) fn taken(&self, way: &[Seat]) -> Vec<usize> {
        let mut owners = vec![0; self.fleet.nodes.len()];
        for (index, machine) in self.machines.iter().enumerate() {
            for part in &machine.parts {
                owners[part.node] = index;
            }
        }
        let mut is_seen = vec![false; self.machines.len()];
        let own = way.iter().filter_map(|seat| owners.get(seat.node).copied());
        own.filter(|&machine| !std::mem::replace(&mut is_seen[machine], true)).collect()
    }

    /// The parts of a machine as nodes that ranks are put on.
    pub(super) fn seats(&self, machine: usize, parted: &PartAssignment) -> Vec<Seat> {
        let parts = self.machines.get(machine).map_or(&[][..], |machine| &machine.parts);
        let seat = |(part, ranks): &(usize, Rc<[usize]>)| {
            Some(Seat { node: parts.get(*part)?.node, ranks: Rc::clone(ranks) })
        };
        parted.iter().filter_map(seat).collect()
    }

    pub(super) fn is_whole(&self, filled: Filled) -> bool {
        let is_seated = |of: &Blocks<'_>| filled.machines == of.blocks.len();
        self.blocks.as_ref().map_or(filled.ranks == self.needs.len(), is_seated)
    }

    /// The ranks that a machine has, if it comes next; none where it cannot.
    pub(super) fn ranks_of(&self, machine: usize, filled: Filled) -> Option<Rc<[usize]>> {
        let count = self.count_of(machine, filled)?;
        match &self.blocks {
            Some(of) => Some(Rc::clone(&of.blocks.get(filled.machines)?.ranks)),
            None => Some((filled.ranks..filled.ranks + count).collect()),
        }
    }

    /// How many they are.
    pub(super) fn count_of(&self, machine: usize, filled: Filled) -> Option<usize> {
        let machine = self.machines.get(machine)?;
        if let Some(of) = &self.blocks {
            let block = of.blocks.get(filled.machines)?;
            return block.fits(&self.needs, machine).then_some(block.ranks.len());
        }
        let left = self.needs.get(filled.ranks..)?;
        let mut count = match machine.parts.as_slice() {
            [part] => left.iter().take(part.devices).take_while(|need| part.suits(need)).count(),
            _ => {
                let ranks: Vec<usize> = (filled.ranks..self.needs.len()).collect();
                let is_held = |&count: &usize| machine.holds(&self.needs, &ranks[..count]);
                (1..=ranks.len()).take_while(is_held).count()
            }
        };
        // Shards of the same tensors stay together.
        while count > 0 && left.get(count).is_some_and(|next| next.group < filled.ranks + count) {
            count -= 1;
        }
        (count > 0).then_some(count)
    }
}

/// Seats by their first ranks, as plans are priced whose stages take nodes one behind the other.
pub(super) fn in_order(mut way: Vec<Seat>) -> Vec<Seat> {
    way.sort_by_key(|seat| seat.ranks.first().copied());
    way
}

/// Ranks that the plan has on one node.
#[derive(Debug, Clone)]
struct Block<'a> {
    /// Kind of their devices; none where it is not the same of all.
    kind: Option<&'a str>,
    /// Bytes that the most demanding of them needs.
    bytes: u64,
    ranks: Rc<[usize]>,
}

impl<'a> Block<'a> {
    fn new(needs: &[RankNeed<'a>], ranks: Vec<usize>) -> Self {
        let own = || ranks.iter().filter_map(|&rank| needs.get(rank));
        let kind = own().next().map(|first| first.kind).filter(|kind| own().all(|need| need.kind == *kind));
        Self { kind, bytes: own().map(|need| need.bytes).max().unwrap_or(0), ranks: ranks.into() }
    }

    /// Returns whether the machine has a device for each of the ranks.
    fn fits(&self, needs: &[RankNeed<'_>], machine: &Machine<'_>) -> bool {
        match machine.parts.as_slice() {
            // Of a thousand blocks and nodes each pair is asked for.
            [part] => {
                self.kind == Some(part.kind)
                    && self.ranks.len() <= part.devices
                    && self.bytes <= part.capacity
            }
            _ => machine.holds(needs, &self.ranks),
        }
    }
}

/// The ranks of each node of the plan, in the order of their first ones.
fn of_nodes<'a>(plan: &Plan, needs: &[RankNeed<'a>]) -> Vec<Block<'a>> {
    blocks(plan, needs, |_| "")
}

/// The same, those of each kind on their own; none where all are of one, or where shards of the same tensors are of several.
fn of_kinds<'a>(plan: &Plan, needs: &[RankNeed<'a>]) -> Option<Vec<Block<'a>>> {
    let of_nodes = of_nodes(plan, needs);
    if of_nodes.iter().all(|block| block.kind.is_some()) {
        return None;
    }
    let is_torn = of_nodes.iter().any(|block| {
        let own = || block.ranks.iter().filter_map(|&rank| needs.get(rank));
        let shards: BTreeSet<usize> = own().map(|need| need.group).collect();
        let parts: BTreeSet<(usize, &str)> = own().map(|need| (need.group, need.kind)).collect();
        parts.len() > shards.len()
    });
    (!is_torn).then(|| blocks(plan, needs, |need| need.kind))
}

fn blocks<'a>(
    plan: &Plan,
    needs: &[RankNeed<'a>],
    apart: impl Fn(&RankNeed<'a>) -> &'a str,
) -> Vec<Block<'a>> {
    let placed = plan.first_stages().iter().flat_map(|stage| {
        (0..stage.config.devices() as usize)
            .map(|rank| stage.devices.get(rank).map_or("", |device| &device.node))
    });
    let mut known: HashMap<(&str, &str), usize> = HashMap::new();
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    for (rank, (node, need)) in placed.zip(needs).enumerate() {
        let at = *known.entry((node, apart(need))).or_insert_with(|| {
            blocks.push(Vec::new());
            blocks.len() - 1
        });
        blocks[at].push(rank);
    }
    blocks.into_iter().map(|ranks| Block::new(needs, ranks)).collect()
}

/// One of `given` for each of `asking`, each once; none where there are not as many that suit.
fn maximum_matching(asking: usize, given: usize, suits: impl Fn(usize, usize) -> bool) -> Option<Vec<usize>> {
    if asking > given {
        return None;
    }
    let mut owner: Vec<Option<usize>> = vec![None; given];
    for next in 0..asking {
        // Breadth first: each is reached from the one that would give it up.
        let mut reached: Vec<Option<usize>> = vec![None; given];
        let mut queue = VecDeque::from([next]);
        let mut free = None;
        'search: while let Some(asking) = queue.pop_front() {
            for one in 0..given {
                if reached[one].is_some() || !suits(asking, one) {
                    continue;
                }
                reached[one] = Some(asking);
                match owner[one] {
                    None => {
                        free = Some(one);
                        break 'search;
                    }
                    Some(other) => queue.push_back(other),
                }
            }
        }
        let mut one = free?;
        loop {
            let asking = reached[one]?;
            let before = owner.iter().position(|own| *own == Some(asking));
            owner[one] = Some(asking);
            match before {
                Some(given_up) => one = given_up,
                None => break,
            }
        }
    }
    let mut found = vec![0; asking];
    for (one, asking) in owner.iter().enumerate() {
        if let Some(asking) = asking {
            found[*asking] = one;
        }
    }
    Some(found)
}
