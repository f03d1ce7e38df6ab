//! A visit to every way, of those that nothing tells apart to one.

use std::collections::{BTreeSet, HashMap};

use super::equivalence::Mark;
use super::part_assignment::PartAssignments;
use super::ways::{Filled, Seat, Ways, in_order};

/// How the ranks of a machine are put on its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// In one way.
    ByRule,
    /// In all ways, that of the rule first.
    InAllWays,
}

/// A machine that may be taken next: its group, and which way to part its ranks.
type Next = (usize, usize);

/// Where a search through the ways is: what may come next, and what came last.
struct Turn {
    open: Vec<Next>,
    /// How many of them have been.
    tried: usize,
    taken: Option<Taken>,
}

impl Turn {
    fn of(open: Vec<Next>) -> Self {
        Self { open, tried: 0, taken: None }
    }
}

/// A machine that was taken.
struct Taken {
    group: usize,
    machine: usize,
    /// What had its place before.
    before: Filled,
    /// The domains that it was the first to take something of.
    first: Vec<(usize, u32)>,
    seats: usize,
}

/// A search through the ways.
struct Visits<'w, 'a> {
    ways: &'w Ways<'a>,
    parting: Parting,
    /// Of each group the machines that nobody has, the first one last.
    free: Vec<Vec<usize>>,
    /// Tiers and domains of which something was taken.
    domains: BTreeSet<(usize, u32)>,
    way: Vec<Seat>,
    filled: Filled,
    /// The ways to part the next ranks, by what has its place and the look of a machine.
    known: HashMap<(Filled, usize), PartAssignments>,
    /// Whether no way to part ranks was left out.
    are_all: bool,
}

impl Ways<'_> {
    /// Visits the ways, of those that nothing tells apart one, until a visit says that it is enough or so many machines have been
    /// taken. Whether those were all.
    pub(super) fn each(
        &self,
        parting: Parting,
        mut steps: u64,
        visit: &mut dyn FnMut(&[Seat]) -> bool,
    ) -> bool {
        let free = self.equivalence.groups.iter().map(|group| group.machines.iter().rev().copied().collect());
        let mut visits = Visits {
            ways: self,
            parting,
            free: free.collect(),
            domains: BTreeSet::new(),
            way: Vec::new(),
            filled: Filled::default(),
            known: HashMap::new(),
            are_all: true,
        };
        let mut turns = vec![Turn::of(visits.open(None))];
        while let Some(turn) = turns.last_mut() {
            if let Some(taken) = turn.taken.take() {
                visits.put_back(taken);
            }
            let Some(&next) = turn.open.get(turn.tried) else {
                turns.pop();
                continue;
            };
            turn.tried += 1;
            if steps == 0 {
                return false;
            }
            let Some(taken) = visits.take(next) else { continue };
            steps -= 1;
            turn.taken = Some(taken);
            let open = if self.is_whole(visits.filled) {
                if !visit(&in_order(visits.way.clone())) {
                    return false;
                }
                Vec::new()
            } else {
                visits.open(Some(next.0))
            };
            turns.push(Turn::of(open));
        }
        visits.are_all
    }
}

impl Visits<'_, '_> {
    /// What may come next, of what nothing tells apart one: the nearest to the last group first.
    fn open(&mut self, last: Option<usize>) -> Vec<Next> {
        let groups = &self.ways.equivalence.groups;
        let last = last.and_then(|last| groups.get(last));
        let mut seen: BTreeSet<Mark> = BTreeSet::new();
        let mut open: Vec<(usize, usize)> = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let Some(&machine) = self.free.get(index).and_then(|free| free.last()) else { continue };
            if self.ways.count_of(machine, self.filled).is_some()
                && seen.insert(self.ways.equivalence.mark(group, &self.domains))
            {
                open.push((last.map_or(0, |last| distance(&last.domains, &group.domains)), index));
            }
        }
        open.sort_unstable();
        open.into_iter()
            .flat_map(|(_, group)| (0..self.partings(group)).map(move |parting| (group, parting)))
            .collect()
    }

    /// In how many ways the next ranks are put on the parts of the next machine of a group.
    fn partings(&mut self, group: usize) -> usize {
        let machine = self.free.get(group).and_then(|free| free.last()).copied();
        let own = machine.and_then(|machine| self.ways.machines.get(machine));
        let Some(own) = own.filter(|own| self.parting == Parting::InAllWays && own.parts.len() > 1) else {
            return 1;
        };
        let look = self.ways.equivalence.groups.get(group).map_or(0, |group| group.look);
        let all = self.known.entry((self.filled, look)).or_insert_with(|| {
            let ranks = machine.and_then(|machine| self.ways.ranks_of(machine, self.filled));
            own.all_assignments(&self.ways.needs, &ranks.unwrap_or_default())
        });
        self.are_all &= all.are_all;
        all.ways.len()
    }

    fn take(&mut self, (group, parting): Next) -> Option<Taken> {
        let (ways, before) = (self.ways, self.filled);
        let machine = self.free.get(group)?.last().copied()?;
        let ranks = ways.ranks_of(machine, before)?;
        let own = ways.equivalence.groups.get(group)?;
        let known = self.known.get(&(before, own.look)).and_then(|all| all.ways.get(parting));
        let seats = match known {
            Some(known) => ways.seats(machine, known),
            None => ways.seats(machine, &ways.machines.get(machine)?.assign_parts(&ways.needs, &ranks)?),
        };
        self.free.get_mut(group)?.pop();
        let of = own.domains.iter().copied().enumerate();
        let first = of.filter(|&domain| self.domains.insert(domain)).collect();
        self.filled = before.with(ranks.len());
        let taken = Taken { group, machine, before, first, seats: seats.len() };
        self.way.extend(seats);
        Some(taken)
    }

    fn put_back(&mut self, taken: Taken) {
        self.filled = taken.before;
        self.way.truncate(self.way.len().saturating_sub(taken.seats));
        if let Some(free) = self.free.get_mut(taken.group) {
            free.push(taken.machine);
        }
        for domain in taken.first {
            self.domains.remove(&domain);
        }
    }
}

/// How far apart machines of these domains are: the nearest tier of which they share a domain.
fn distance(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).position(|(one, other)| one == other).unwrap_or(one.len())
}
