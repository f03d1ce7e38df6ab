//! In which ways can the ranks of a plan be put on nodes?

use std::rc::Rc;

use loadmaster_proto::plan::Plan;

use super::blocks::{self, Block};
use super::equivalence::{self, EquivalentMachines};
use super::machines::{self, Machine};
use super::matching::maximum_matching;
use super::needs::{self, PlacementError, RankNeed};
use super::part_assignment::PartAssignment;
use super::visits::Parting;
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
    /// See [`EquivalentMachines::of`].
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
    /// [`EquivalentMachines::of`].
    ///
    /// # Errors
    /// The stages for which there are not enough devices, or whose shards would be on several nodes.
    pub(super) fn of(plan: &'a Plan, fleet: &'a Fleet, classes: Vec<usize>) -> Result<Self, PlacementError> {
        let needs = needs::of_ranks(plan);
        needs::check(&needs, fleet)?;
        let with = |kept, machines, blocks| Self::with(kept, fleet, (&needs, &classes), machines, blocks);
        let has_parts = machines::machines(fleet).len() < fleet.nodes.len();
        let all = with(Cohesion::Nodes, machines::machines(fleet), Some(blocks::of_nodes(plan, &needs)));
        all.or_else(|| with(Cohesion::Kinds, machines::nodes(fleet), Some(blocks::of_kinds(plan, &needs)?)))
            .or_else(|| with(Cohesion::Shards, machines::nodes(fleet), None))
            // What one part of a machine has no room for several may have.
            .or_else(|| with(Cohesion::Shards, machines::machines(fleet), None).filter(|_| has_parts))
            .ok_or_else(|| needs::torn(&needs, &machines::machines(fleet)))
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
        let equivalence = EquivalentMachines::of(fleet, &machines, classes);
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

    /// Whether nothing tells two machines apart.
    pub(super) fn are_alike(&self, one: usize, other: usize) -> bool {
        let (fleet, machines) = (self.fleet, &self.machines);
        machines.get(one).zip(machines.get(other)).is_some_and(|(one, other)| {
            equivalence::are_alike(fleet, &self.classes, one, other)
                && equivalence::domains(fleet, one) == equivalence::domains(fleet, other)
        })
    }

    /// Why there is no way.
    pub(super) fn torn(&self) -> PlacementError {
        needs::torn(&self.needs, &machines::machines(self.fleet))
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
