//! What takes ranks at once: a machine with all of its parts, or one of them alone.

use std::collections::HashMap;

use crate::search::Fleet;

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
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut machines: Vec<Machine<'_>> = Vec::new();
    for (node, part) in fleet.nodes.iter().zip(parts(fleet)) {
        let at = *known.entry(node.name.as_str()).or_insert_with(|| {
            machines.push(Machine { parts: Vec::new() });
            machines.len() - 1
        });
        machines[at].parts.push(part);
    }
    machines
}

/// The parts of all machines, each alone.
pub(super) fn nodes(fleet: &Fleet) -> Vec<Machine<'_>> {
    parts(fleet).map(|part| Machine { parts: vec![part] }).collect()
}

fn parts(fleet: &Fleet) -> impl Iterator<Item = MachinePart<'_>> {
    fleet.nodes.iter().enumerate().map(|(node, of)| {
        let (kind, capacity) =
            fleet.kinds.get(of.kind).map_or(("", 0), |kind| (kind.name.as_str(), kind.capacity.0));
        MachinePart { node, kind, capacity, devices: of.devices as usize }
    })
}
