//! What takes ranks at once: a machine with all of its parts, or one of them alone.

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
    fleet.nodes.iter().enumerate().map(|(node, of)| {
        let (kind, capacity) =
            fleet.kinds.get(of.kind).map_or(("", 0), |kind| (kind.name.as_str(), kind.capacity.0));
        MachinePart { node, kind, capacity, devices: of.devices as usize }
    })
}
