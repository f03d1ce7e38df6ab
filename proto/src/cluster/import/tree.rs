//! A tree of switches as levels and domains: a switch's level is the longest way down to a node.

use std::collections::{HashMap, HashSet};

use super::super::{Domain, MAX_TIERS, Tier};
use crate::error::Invalid;

/// A switch as a scheduler describes it.
#[derive(Debug, Clone)]
pub(super) struct Switch {
    /// Its name.
    pub(super) name: String,
    /// Names of the switches below it.
    pub(super) children: Vec<String>,
    /// Names of the nodes at it.
    pub(super) nodes: Vec<String>,
    /// Its level as `scontrol show topology` prints it. There a switch lists all nodes below it, and a request for some
    /// nodes leaves switches out.
    pub(super) level: Option<u32>,
    /// Where it is in the file, for errors.
    pub(super) field: String,
}

/// Tiers and domains of the switches.
///
/// # Errors
/// Names the switch: a child that is not there, that has two parents, or a cycle.
pub(super) fn domains(switches: Vec<Switch>) -> Result<(Vec<Tier>, Vec<Domain>), Invalid> {
    let switches = without_twins(without_repeated_nodes(switches));
    let mut parents: HashMap<&str, &Switch> = HashMap::new();
    let known: HashMap<&str, &Switch> = switches.iter().map(|of| (of.name.as_str(), of)).collect();
    if let Some(twice) =
        switches.iter().find(|of| known.get(of.name.as_str()).is_some_and(|one| one.field != of.field))
    {
        return Err(invalid!(&twice.field, "{:?} is listed twice", twice.name));
    }
    for switch in &switches {
        for child in &switch.children {
            if !known.contains_key(child.as_str()) {
                let why = format!(
                    "{:?} contains {child:?}, which is not a switch of the file. Add this switch, or remove its name",
                    switch.name
                );
                return Err(Invalid::field(&switch.field, why));
            }
            if let Some(other) = parents.insert(child, switch) {
                let why = format!(
                    "{child:?} is below {:?} and below {:?}. Put it below one switch",
                    other.name, switch.name
                );
                return Err(Invalid::field(&switch.field, why));
            }
        }
    }
    let heights = heights(&switches, &parents)?;
    let levels = heights.values().max().map_or(0, |highest| highest + 1);
    let tiers = (0..levels).map(|level| Tier { level: key(level), link: None }).collect();
    let domains = switches
        .iter()
        .map(|switch| Domain {
            level: key(heights.get(switch.name.as_str()).copied().unwrap_or_default()),
            name: switch.name.clone(),
            parent: parents.get(switch.name.as_str()).map(|parent| parent.name.clone()),
            nodes: switch.nodes.clone(),
        })
        .collect();
    Ok((tiers, domains))
}

/// Leaves each node at the lowest of the printed switches that list it.
fn without_repeated_nodes(mut switches: Vec<Switch>) -> Vec<Switch> {
    if switches.iter().all(|switch| switch.level.is_none()) {
        return switches;
    }
    let names: HashSet<String> = switches.iter().map(|switch| switch.name.clone()).collect();
    let mut order: Vec<usize> = (0..switches.len()).collect();
    order.sort_by_key(|&index| switches.get(index).and_then(|switch| switch.level));
    let mut seen = HashSet::new();
    for index in order {
        let Some(switch) = switches.get_mut(index).filter(|switch| switch.level.is_some()) else { continue };
        switch.children.retain(|child| names.contains(child));
        switch.nodes.retain(|node| seen.insert(node.clone()));
    }
    switches
}

/// Leaves one of the switches that join the same switches: a network with several planes has one for each.
fn without_twins(mut switches: Vec<Switch>) -> Vec<Switch> {
    // A level of twins at each turn.
    for _ in 0..MAX_TIERS {
        let mut first: HashSet<Vec<String>> = HashSet::new();
        let mut twins: HashSet<String> = HashSet::new();
        for switch in switches.iter().filter(|switch| !switch.children.is_empty() && switch.nodes.is_empty())
        {
            let mut children = switch.children.clone();
            children.sort_unstable();
            if !first.insert(children) {
                twins.insert(switch.name.clone());
            }
        }
        if twins.is_empty() {
            break;
        }
        // A name that is there twice is an error, not a twin.
        let names: HashSet<&str> = switches.iter().map(|switch| switch.name.as_str()).collect();
        if names.len() < switches.len() {
            break;
        }
        switches.retain(|switch| !twins.contains(&switch.name));
        switches.iter_mut().for_each(|switch| switch.children.retain(|child| !twins.contains(child)));
    }
    switches
}

/// Key of a level of switches.
fn key(height: usize) -> String {
    format!("switch-{height}")
}

/// Heights grow from the leaves up: each pass settles what has only settled switches below it.
fn heights<'a>(
    switches: &'a [Switch],
    parents: &HashMap<&str, &'a Switch>,
) -> Result<HashMap<&'a str, usize>, Invalid> {
    let mut open: HashMap<&str, usize> =
        switches.iter().map(|switch| (switch.name.as_str(), switch.children.len())).collect();
    let mut heights: HashMap<&str, usize> = HashMap::new();
    let mut ready: Vec<&Switch> = switches.iter().filter(|switch| switch.children.is_empty()).collect();
    let mut settled = 0;
    while let Some(switch) = ready.pop() {
        settled += 1;
        let height = *heights.entry(&switch.name).or_default();
        if height >= MAX_TIERS {
            let why = format!(
                "{:?} is more than {MAX_TIERS} levels of switches above a node. Use fewer levels",
                switch.name
            );
            return Err(Invalid::field(&switch.field, why));
        }
        let Some(&parent) = parents.get(switch.name.as_str()) else { continue };
        let above = heights.entry(&parent.name).or_default();
        *above = (*above).max(height + 1);
        if let Some(left) = open.get_mut(parent.name.as_str()) {
            *left -= 1;
            if *left == 0 {
                ready.push(parent);
            }
        }
    }
    if settled == switches.len() {
        return Ok(heights);
    }
    let stuck = switches.iter().find(|switch| open.get(switch.name.as_str()).is_some_and(|&left| left > 0));
    let (field, name) = stuck.map_or(("", ""), |switch| (&switch.field, &switch.name));
    Err(invalid!(field, "{name:?} is part of a cycle of switches, or above one. Remove the cycle"))
}
