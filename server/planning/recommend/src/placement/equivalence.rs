//! Which machines does nothing tell apart?
//!
//! Machines whose parts are alike, and that are in the same domains, are a group: which of them is taken makes no difference. Nor
//! does it matter which of two domains is taken first that contain the same, as long as nothing was taken of either.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::machines::Machine;
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

/// How a domain of a tier is told from others: by its number where something was taken of it, else by what it contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Taken(u32),
    Untouched(usize),
}

/// What tells a group from others when the next machine is taken.
pub(super) type Mark = (usize, Vec<(u8, u64)>);

impl EquivalentMachines {
    /// `classes` are numbers of the nodes: those of others are not alike, whatever else they are. Of nodes beyond the list it is 0.
    pub(super) fn of(fleet: &Fleet, machines: &[Machine<'_>], classes: &[usize]) -> Self {
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

    /// What tells a group from others, if these domains (tier and number) are those of which something was taken.
    pub(super) fn mark(&self, group: &MachineGroup, taken: &BTreeSet<(usize, u32)>) -> Mark {
        let seen = group.domains.iter().enumerate().map(|(tier, &domain)| {
            if !self.is_nested || taken.contains(&(tier, domain)) {
                return Seen::Taken(domain);
            }
            let content = self.contents.get(tier).and_then(|of| of.get(&domain));
            content.map_or(Seen::Taken(domain), |&content| Seen::Untouched(content))
        });
        let seen = seen.map(|seen| match seen {
            Seen::Taken(domain) => (0, u64::from(domain)),
            Seen::Untouched(content) => (1, content as u64),
        });
        (group.look, seen.collect())
    }
}

/// Whether nothing but their names and places tells two machines apart: part by part they are of one class, and alike.
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

/// By tier: the content of each domain as a number.
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
