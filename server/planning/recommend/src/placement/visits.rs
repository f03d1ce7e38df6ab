//! A visit to every way: one of each set of equivalent ways.
//!
//! Machines whose parts are alike, and that are in the same domains, are a group: which of them is taken makes no difference. Nor
//! does it matter which of two domains is taken first that contain the same, as long as nothing was taken of either.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::part_assignment::{Machine, PartAssignments};
use super::ways::{Filled, Seat, Ways, in_order};
use loadmaster_search::Fleet;

/// Machines of a fleet that are alike and in the same domains.
#[derive(Debug, Clone)]
pub(super) struct MachineGroup {
    /// Index of their kind, which counts links and devices of all parts too: machines of one look are alike.
    pub(super) look: usize,
    /// Their domains, nearest tier first.
    pub(super) domains: Vec<u32>,
    /// Indices of the machines.
    pub(super) machines: Vec<usize>,
}

/// The machines of a fleet in groups.
#[derive(Debug, Clone)]
pub(super) struct EquivalentMachines {
    /// In the order of their first machines.
    pub(super) groups: Vec<MachineGroup>,
    /// By tier and domain: a number that domains share which contain the same.
    contents: Vec<HashMap<u32, usize>>,
    /// Whether every domain is within one domain of the next tier; otherwise those that contain the same may still differ.
    is_nested: bool,
}

/// What distinguishes a domain of a tier from others: its number where something was taken of it, else what it
/// contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Taken(u32),
    Untouched(usize),
}

/// A mark distinguishes a group from others when the next machine is taken.
pub(super) type Mark = (usize, Vec<(u8, u64)>);

impl EquivalentMachines {
    /// `classes` are numbers of the nodes: those of others are not alike, whatever else they are. Of nodes beyond the list it is 0.
    pub(super) fn new(fleet: &Fleet, machines: &[Machine<'_>], classes: &[usize]) -> Self {
        let mut looks: Vec<usize> = Vec::new();
        let mut groups: Vec<MachineGroup> = Vec::new();
        let mut known: HashMap<(usize, &[u32]), usize> = HashMap::new();
        for (index, machine) in machines.iter().enumerate() {
            let is_like = |&look: &usize| {
                machines.get(look).is_some_and(|other| are_alike(fleet, classes, machine, other))
            };
            let look = looks.iter().position(is_like).unwrap_or_else(|| {
                looks.push(index);
                looks.len() - 1
            });
            let domains = domains(fleet, machine);
            let group = *known.entry((look, domains)).or_insert_with(|| {
                groups.push(MachineGroup { look, domains: domains.to_vec(), machines: Vec::new() });
                groups.len() - 1
            });
            groups[group].machines.push(index);
        }
        let tiers = fleet.tiers.len();
        Self { contents: contents(&groups, tiers), is_nested: is_nested(&groups, tiers), groups }
    }

    /// Returns the mark of a group, if these domains (tier and number) are those of which something was taken.
    pub(super) fn mark(&self, group: &MachineGroup, taken: &BTreeSet<(usize, u32)>) -> Mark {
        let seen = group.domains.iter().enumerate().map(|(tier, &domain)| {
            if !self.is_nested || taken.contains(&(tier, domain)) {
                return Seen::Taken(domain);
            }
            let content = self.contents.get(tier).and_then(|contents| contents.get(&domain));
            content.map_or(Seen::Taken(domain), |&content| Seen::Untouched(content))
        });
        let seen = seen.map(|seen| match seen {
            Seen::Taken(domain) => (0, u64::from(domain)),
            Seen::Untouched(content) => (1, content as u64),
        });
        (group.look, seen.collect())
    }
}

/// Returns whether two machines differ by names and places alone: part by part they are of one class, and alike.
pub(super) fn are_alike(fleet: &Fleet, classes: &[usize], one: &Machine<'_>, other: &Machine<'_>) -> bool {
    let class = |node: usize| classes.get(node).copied().unwrap_or_default();
    let is_like = |one: usize, other: usize| {
        let nodes = fleet.nodes.get(one).zip(fleet.nodes.get(other));
        nodes.is_some_and(|(one, other)| one.is_like(other)) && class(one) == class(other)
    };
    let mut parts = one.parts.iter().zip(&other.parts);
    one.parts.len() == other.parts.len() && parts.all(|(one, other)| is_like(one.node, other.node))
}

/// The domains of a machine, which all of its parts are in.
pub(super) fn domains<'f>(fleet: &'f Fleet, machine: &Machine<'_>) -> &'f [u32] {
    let first = machine.parts.first().and_then(|part| fleet.nodes.get(part.node));
    first.map_or(&[], |node| &node.domains)
}

/// Returns by tier the content of each domain as a number.
fn contents(groups: &[MachineGroup], tiers: usize) -> Vec<HashMap<u32, usize>> {
    let mut by_tier: Vec<HashMap<u32, usize>> = Vec::with_capacity(tiers);
    for tier in 0..tiers {
        // What is in a domain: of groups directly on the nearest tier, else of the domains below.
        let mut parts: BTreeMap<u32, Vec<(usize, usize)>> = BTreeMap::new();
        let mut below: BTreeSet<(u32, u32)> = BTreeSet::new();
        for group in groups {
            let Some(&domain) = group.domains.get(tier) else { continue };
            let inner = tier.checked_sub(1).and_then(|inner| Some((inner, *group.domains.get(inner)?)));
            match inner {
                None => parts.entry(domain).or_default().push((group.look, group.machines.len())),
                Some((inner, of)) => {
                    if below.insert((domain, of)) {
                        let content = by_tier.get(inner).and_then(|known| known.get(&of)).copied();
                        parts.entry(domain).or_default().push((content.unwrap_or(usize::MAX), 1));
                    }
                }
            }
        }
        let mut numbers: BTreeMap<Vec<(usize, usize)>, usize> = BTreeMap::new();
        let mut of_tier = HashMap::new();
        for (domain, mut content) in parts {
            content.sort_unstable();
            let next = numbers.len();
            of_tier.insert(domain, *numbers.entry(content).or_insert(next));
        }
        by_tier.push(of_tier);
    }
    by_tier
}

fn is_nested(groups: &[MachineGroup], tiers: usize) -> bool {
    (1..tiers).all(|tier| {
        let mut outer: HashMap<u32, u32> = HashMap::new();
        groups.iter().all(|group| match (group.domains.get(tier - 1), group.domains.get(tier)) {
            (Some(&of), Some(&domain)) => *outer.entry(of).or_insert(domain) == domain,
            _ => false,
        })
    })
}

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
    /// Of each group the machines that no one has, the first one last.
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
    /// Visits one of each set of equivalent ways, until a visit says that it is enough or so many machines have been taken.
    /// Returns whether those were all.
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
    /// The machines that may come next, one of each set of equivalent ones: the nearest to the last group first.
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
