//! The machines of a fleet, and which part of a machine has which of its ranks.
//!
//! By a rule, ranks that the plan has on one part stay together, or else shards of the same tensors do, as far as parts have room
//! for all of them. Every other way to part them may be asked for, too.

use std::cmp::Reverse;
use std::rc::Rc;

use super::needs::RankNeed;
use loadmaster_search::Fleet;

/// Nodes of a fleet that are one machine: of each kind and capacity of its devices one.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    /// In the fleet's order.
    pub(super) parts: Vec<MachinePart<'a>>,
}

/// Devices of a machine of one kind and capacity.
#[derive(Debug, Clone, Copy)]
pub(super) struct MachinePart<'a> {
    /// Index of the node in the fleet.
    pub(super) node: usize,
    pub(super) kind: &'a str,
    /// Bytes that each of its devices allows.
    pub(super) capacity: u64,
    pub(super) devices: usize,
}

/// The machines of a fleet, by their names.
pub(super) fn machines(fleet: &Fleet) -> Vec<Machine<'_>> {
    let mut machines: Vec<Machine<'_>> = Vec::new();
    for (machine, part) in fleet.machines().into_iter().zip(parts(fleet)) {
        // Machines are numbered as their first parts come.
        match machines.get_mut(machine) {
            Some(known) => known.parts.push(part),
            None => machines.push(Machine { parts: vec![part] }),
        }
    }
    machines
}

/// The parts of all machines, each alone.
pub(super) fn nodes(fleet: &Fleet) -> Vec<Machine<'_>> {
    parts(fleet).map(|part| Machine { parts: vec![part] }).collect()
}

fn parts(fleet: &Fleet) -> impl Iterator<Item = MachinePart<'_>> {
    fleet.nodes.iter().enumerate().map(|(index, node)| {
        let (kind, capacity) =
            fleet.kinds.get(node.kind).map_or(("", 0), |kind| (kind.name.as_str(), kind.capacity.0));
        MachinePart { node: index, kind, capacity, devices: node.devices as usize }
    })
}

/// The parts of a machine that have ranks, in the order of their first ones: index and ranks of each.
pub(super) type PartAssignment = Vec<(usize, Rc<[usize]>)>;

/// Ways to part ranks.
#[derive(Debug)]
pub(super) struct PartAssignments {
    /// That of the rule first; none where the machine does not hold the ranks.
    pub(super) ways: Vec<PartAssignment>,
    /// Whether there are no others.
    pub(super) are_all: bool,
}

/// Most ways to part the ranks of a machine that are looked at: more than eight ranks on two parts have.
const MOST: usize = 256;

/// What keeps ranks together, the most of them first: those with equal keys are not parted.
const TOGETHER: [fn(usize, &RankNeed<'_>) -> u64; 3] =
    [|_, need| need.planned, |_, need| need.group as u64, |rank, _| rank as u64];

impl MachinePart<'_> {
    pub(super) fn suits(&self, need: &RankNeed<'_>) -> bool {
        need.kind == self.kind && need.bytes <= self.capacity
    }
}

impl Machine<'_> {
    /// Whether there is a device for each of these ranks.
    pub(super) fn holds(&self, needs: &[RankNeed<'_>], ranks: &[usize]) -> bool {
        let free: Vec<usize> = self.parts.iter().map(|part| part.devices).collect();
        self.has_free(&free, needs, ranks)
    }

    /// The same of so many devices of each part. A device that suits a rank suits every other one of its kind that needs less, so
    /// that it is enough to count for each part who needs one of at least its size.
    fn has_free(&self, free: &[usize], needs: &[RankNeed<'_>], ranks: &[usize]) -> bool {
        let own = || ranks.iter().filter_map(|&rank| needs.get(rank));
        let is_enough = |part: &MachinePart<'_>| {
            let like = || self.parts.iter().zip(free).filter(|(other, _)| other.kind == part.kind);
            let smaller = like().map(|(other, _)| other.capacity).filter(|size| *size < part.capacity).max();
            let asking = own()
                .filter(|need| need.kind == part.kind && smaller.is_none_or(|smaller| need.bytes > smaller));
            let suiting = like().filter(|(other, _)| other.capacity >= part.capacity);
            asking.count() <= suiting.map(|(_, free)| free).sum()
        };
        own().all(|need| self.parts.iter().any(|part| part.suits(need))) && self.parts.iter().all(is_enough)
    }

    /// These ranks on the parts of the machine by the rule; none where it does not hold them.
    pub(super) fn assign_parts(&self, needs: &[RankNeed<'_>], ranks: &Rc<[usize]>) -> Option<PartAssignment> {
        if let [_] = self.parts.as_slice() {
            return self.holds(needs, ranks).then(|| vec![(0, Rc::clone(ranks))]);
        }
        TOGETHER.iter().find_map(|key| {
            let mut runs: Vec<Vec<usize>> = Vec::new();
            for &rank in ranks.iter() {
                let own = needs.get(rank)?;
                let is_own = |other: &usize| {
                    needs
                        .get(*other)
                        .is_some_and(|of| of.kind == own.kind && key(*other, of) == key(rank, own))
                };
                match runs.iter_mut().find(|run| run.first().is_some_and(is_own)) {
                    Some(run) => run.push(rank),
                    None => runs.push(vec![rank]),
                }
            }
            self.of_runs(needs, runs)
        })
    }

    /// Each run on a part: that of the planned capacity, else the smallest that is open. Where runs are single ranks there is no
    /// way if this finds none: those that fewest parts suit choose first, and what suits them suits all later ones of their kind.
    fn of_runs(&self, needs: &[RankNeed<'_>], mut runs: Vec<Vec<usize>>) -> Option<PartAssignment> {
        let suits = |part: &MachinePart<'_>, run: &[usize]| {
            run.iter().all(|&rank| needs.get(rank).is_some_and(|need| part.suits(need)))
        };
        runs.sort_by_cached_key(|run| {
            (self.parts.iter().filter(|part| suits(part, run)).count(), Reverse(run.len()))
        });
        let mut taken: Vec<Vec<usize>> = vec![Vec::new(); self.parts.len()];
        for run in runs {
            let planned = run.first().and_then(|&rank| needs.get(rank))?.planned;
            let open = self
                .parts
                .iter()
                .zip(&mut taken)
                .filter(|(part, taken)| taken.len() + run.len() <= part.devices && suits(part, &run));
            let (_, taken) = open.min_by_key(|(part, _)| (part.capacity != planned, part.capacity))?;
            taken.extend(run);
        }
        Some(in_order(taken))
    }

    /// All ways to put these ranks on the parts of the machine, of which too many are left out.
    pub(super) fn all_assignments(&self, needs: &[RankNeed<'_>], ranks: &Rc<[usize]>) -> PartAssignments {
        let mut found = PartAssignments { ways: Vec::new(), are_all: true };
        let Some(rule) = self.assign_parts(needs, ranks) else { return found };
        found.ways.push(rule);
        if self.parts.len() > 1 {
            self.add_parted(needs, ranks, &mut vec![Vec::new(); self.parts.len()], &mut found);
        }
        found
    }

    /// Adds the ways that begin with what is `taken`, and have these ranks left.
    fn add_parted(
        &self,
        needs: &[RankNeed<'_>],
        ranks: &[usize],
        taken: &mut Vec<Vec<usize>>,
        found: &mut PartAssignments,
    ) {
        let Some((&rank, left)) = ranks.split_first() else {
            let way = in_order(taken.clone());
            if found.ways.first() != Some(&way) {
                found.are_all = found.ways.len() < MOST;
                found.ways.extend(found.are_all.then_some(way));
            }
            return;
        };
        for (index, part) in self.parts.iter().enumerate() {
            let suits = needs.get(rank).is_some_and(|need| part.suits(need));
            if !found.are_all || !suits || taken[index].len() == part.devices {
                continue;
            }
            taken[index].push(rank);
            let free: Vec<usize> =
                self.parts.iter().zip(&*taken).map(|(part, taken)| part.devices - taken.len()).collect();
            if self.has_free(&free, needs, left) {
                self.add_parted(needs, left, taken, found);
            }
            taken[index].pop();
        }
    }
}

fn in_order(taken: Vec<Vec<usize>>) -> PartAssignment {
    let mut parted: PartAssignment = Vec::with_capacity(taken.len());
    for (index, mut ranks) in taken.into_iter().enumerate().filter(|(_, ranks)| !ranks.is_empty()) {
        ranks.sort_unstable();
        parted.push((index, ranks.into()));
    }
    parted.sort_by_key(|(_, ranks)| ranks.first().copied());
    parted
}
