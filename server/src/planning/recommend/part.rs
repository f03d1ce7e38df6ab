//! A part of a fleet: what a plan on fewer devices than there are takes.

use crate::planning::search::{Cuts, Fleet, FleetNode, Pin};

/// Most parts of a fleet that are told apart; beyond it only whole nodes are, and of these not every number.
pub(super) const MOST_PARTS: usize = 4_096;

/// Most nodes of all parts together: each part has nodes of its own.
const MOST_NODES: usize = 1 << 21;

/// Some devices of a fleet, as a fleet of their own.
#[derive(Debug, Clone)]
pub struct Part {
    /// The devices.
    pub fleet: Fleet,
    /// Which of the whole fleet's devices each of them is.
    pub origin: Vec<u32>,
}

impl Part {
    /// All of it.
    pub fn whole(fleet: &Fleet) -> Self {
        Self { fleet: fleet.clone(), origin: (0..fleet.devices()).collect() }
    }

    /// The first so many devices of each node; nodes of none are left out.
    pub fn of(fleet: &Fleet, taken: &[u32]) -> Self {
        let mut part = Self { fleet: Fleet { nodes: Vec::new(), ..fleet.clone() }, origin: Vec::new() };
        let mut begin = 0;
        for (node, &devices) in fleet.nodes.iter().zip(taken) {
            let devices = devices.min(node.devices);
            part.origin.extend(begin..begin + devices);
            begin += node.devices;
            if devices > 0 {
                let mut node = node.clone();
                node.devices = devices;
                part.fleet.nodes.push(node);
            }
        }
        part
    }

    /// Devices.
    pub fn devices(&self) -> u32 {
        self.fleet.devices()
    }

    /// Price of an hour of its devices; none where the price of one is not known.
    pub fn hourly_price(&self) -> Option<f64> {
        let nodes = self.fleet.nodes.iter();
        nodes.map(|node| Some(f64::from(node.devices) * self.fleet.kinds.get(node.kind)?.hourly_price?)).sum()
    }

    /// Restrictions on the whole fleet as restrictions on this part; none where a layer is pinned to a device
    /// that the part does not have.
    pub fn cuts(&self, cuts: &Cuts) -> Option<Cuts> {
        if cuts.pins().is_empty() {
            return Some(cuts.clone());
        }
        let pins = cuts.pins().iter().map(|pin| {
            let device = self.origin.binary_search(&u32::try_from(pin.device).ok()?).ok()?;
            Some(Pin { layer: pin.layer, device })
        });
        Some(cuts.with_pins(pins.collect::<Option<Vec<Pin>>>()?))
    }

    /// Whether all of its nodes have equally many devices, as torchrun starts processes.
    pub fn is_even(&self) -> bool {
        self.fleet.nodes.windows(2).all(|pair| pair[0].devices == pair[1].devices)
    }
}

/// The parts of a fleet: each number of devices of each class of nodes that are alike, nodes filled one after
/// another in the fleet's order. Where that is too many, classes are kinds, and parts have whole nodes. The whole
/// fleet is the last.
pub(super) fn parts(fleet: &Fleet) -> Vec<Part> {
    let classes = Classes::of(fleet);
    let counts = counts(fleet, &classes);
    let mut parts = Vec::new();
    let mut chosen = vec![0; counts.len()];
    extend(fleet, &classes, &counts, &mut chosen, 0, &mut parts);
    parts.retain(|part: &Part| part.devices() > 0);
    parts
}

/// Whether [`parts`] have every number of devices of each class of nodes that are alike.
pub(super) fn are_complete(fleet: &Fleet) -> bool {
    Classes::alike(fleet).is_some()
}

/// Nodes that are not told apart.
struct Classes {
    /// The class of each node.
    of_node: Vec<usize>,
    /// Devices of each class.
    totals: Vec<u32>,
}

impl Classes {
    /// Alike ones if all their parts can be looked at, else those of a kind, else all.
    fn of(fleet: &Fleet) -> Self {
        let of_kind = || Self::grouped(fleet, |one, other| one.kind == other.kind);
        let all = || Self { of_node: vec![0; fleet.nodes.len()], totals: vec![fleet.devices()] };
        Self::alike(fleet).or_else(of_kind).unwrap_or_else(all)
    }

    /// Nodes that are alike, and in the same domains where there are tiers; none where there are too many parts.
    fn alike(fleet: &Fleet) -> Option<Self> {
        let has_tiers = fleet.tiers.iter().any(Option::is_some);
        let classes = Self::grouped(fleet, |one, other| {
            one.is_like(other) && (!has_tiers || one.domains == other.domains)
        });
        classes.filter(|classes| classes.parts().is_some_and(|parts| parts <= most_parts(fleet)))
    }

    /// None where there are so many classes that all or nothing of each makes too many parts.
    fn grouped(fleet: &Fleet, are_alike: impl Fn(&FleetNode, &FleetNode) -> bool) -> Option<Self> {
        let most = most_parts(fleet).ilog2() as usize;
        let mut firsts: Vec<&FleetNode> = Vec::new();
        let mut classes = Self { of_node: Vec::with_capacity(fleet.nodes.len()), totals: Vec::new() };
        for node in &fleet.nodes {
            let known = firsts.iter().position(|first| are_alike(first, node));
            let class = known.unwrap_or(firsts.len());
            if known.is_none() {
                if firsts.len() == most {
                    return None;
                }
                firsts.push(node);
                classes.totals.push(0);
            }
            classes.totals[class] += node.devices;
            classes.of_node.push(class);
        }
        Some(classes)
    }

    /// How many parts there are if every number of devices of each class is one; none if nobody can count them.
    fn parts(&self) -> Option<usize> {
        self.totals.iter().map(|&total| total as usize + 1).try_fold(1_usize, usize::checked_mul)
    }
}

fn most_parts(fleet: &Fleet) -> usize {
    MOST_PARTS.min(MOST_NODES / fleet.nodes.len().max(1)).max(2)
}

/// By class: the numbers of devices that parts take of it, ascending; none of it and all of it are among them.
fn counts(fleet: &Fleet, classes: &Classes) -> Vec<Vec<u32>> {
    let most = most_parts(fleet);
    if classes.parts().is_some_and(|parts| parts <= most) {
        return classes.totals.iter().map(|&total| (0..=total).collect()).collect();
    }
    let mut counts: Vec<Vec<u32>> = vec![vec![0]; classes.totals.len()];
    for (node, &class) in fleet.nodes.iter().zip(&classes.of_node) {
        let filled = counts[class].last().copied().unwrap_or(0) + node.devices;
        counts[class].push(filled);
    }
    // Too many still: every other number of the class that has the most, until they are few enough.
    while counts.iter().map(Vec::len).try_fold(1_usize, usize::checked_mul).is_none_or(|all| all > most) {
        let longest = counts.iter_mut().max_by_key(|numbers| numbers.len());
        let Some(numbers) = longest.filter(|numbers| numbers.len() > 2) else { break };
        let last = numbers.len() - 1;
        let mut index = 0_usize;
        numbers.retain(|_| {
            let is_kept = index.is_multiple_of(2) || index == last;
            index += 1;
            is_kept
        });
    }
    counts
}

fn extend(
    fleet: &Fleet,
    classes: &Classes,
    counts: &[Vec<u32>],
    chosen: &mut Vec<u32>,
    index: usize,
    parts: &mut Vec<Part>,
) {
    let Some(options) = counts.get(index) else {
        let mut left = chosen.clone();
        let take = |(node, &class): (&FleetNode, &usize)| {
            let taken = node.devices.min(left[class]);
            left[class] -= taken;
            taken
        };
        let taken: Vec<u32> = fleet.nodes.iter().zip(&classes.of_node).map(take).collect();
        parts.push(Part::of(fleet, &taken));
        return;
    };
    for &count in options {
        chosen[index] = count;
        extend(fleet, classes, counts, chosen, index + 1, parts);
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;

    use super::*;
    use crate::planning::search::{Kind, Link, LinkOrigin};

    fn fleet(nodes: &[(usize, u32)]) -> Fleet {
        let link = Link { bytes_per_second: 1.0, latency_seconds: 0.0, origin: LinkOrigin::Given };
        let kind =
            |name: &str, price| Kind { name: name.to_owned(), capacity: Bytes(1), hourly_price: Some(price) };
        let node = |(index, &(kind, devices)): (usize, &(usize, u32))| FleetNode {
            name: format!("n{index}"),
            kind,
            devices,
            inside: link,
            outside: link,
            domains: Vec::new(),
        };
        Fleet {
            kinds: vec![kind("a", 2.0), kind("b", 3.0)],
            nodes: nodes.iter().enumerate().map(node).collect(),
            tiers: Vec::new(),
        }
    }

    /// Each number of devices of each kind once, the whole fleet among them, never none at all.
    #[test]
    fn parts_are_all_numbers_of_devices_of_each_kind() {
        let parts = parts(&fleet(&[(0, 2), (1, 1), (0, 2)]));
        assert_eq!(parts.len(), 5 * 2 - 1);
        let prices: std::collections::BTreeSet<u64> =
            parts.iter().map(|part| part.hourly_price().unwrap() as u64).collect();
        assert_eq!(prices.iter().next_back(), Some(&11));
        let three =
            parts.iter().find(|part| part.devices() == 3 && part.hourly_price() == Some(6.0)).unwrap();
        assert_eq!(three.origin, [0, 1, 3]);
        assert!(!three.is_even());
    }

    /// A large fleet is not taken apart device by device.
    #[test]
    fn large_fleets_are_taken_node_by_node() {
        let nodes: Vec<(usize, u32)> = (0..1_000).map(|_| (0, 8)).collect();
        assert_eq!(parts(&fleet(&nodes)).len(), 1_000);
    }

    /// A pin follows its device, and has no place in a part without it.
    #[test]
    fn pins_follow_their_devices() {
        let whole = fleet(&[(0, 2), (1, 2)]);
        let mut cuts = Cuts::anywhere(3);
        cuts.pin(Pin { layer: 1, device: 2 });
        let second = Part::of(&whole, &[0, 2]);
        assert_eq!(second.cuts(&cuts).unwrap().pins(), [Pin { layer: 1, device: 0 }]);
        assert!(Part::of(&whole, &[2, 0]).cuts(&cuts).is_none());
    }
}
