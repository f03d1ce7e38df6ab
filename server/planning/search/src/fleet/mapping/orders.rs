//! Orders of stages on the devices of a node, distinguished by what neighbours send each other.

use std::collections::HashSet;

use super::LinkGraph;
use crate::{Link, UnlikeLinks};

/// Most orders that are kept of a node: measured links are all different, and few orders of them beat no other one.
const MOST_KEPT: usize = 2_048;

/// What a stage of a row takes of the node's devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DevicesWanted {
    /// How many.
    pub count: usize,
    /// Which of the node's are among them in any case.
    pub pinned: Vec<u32>,
    /// Whether it has devices of other nodes, too: what it sends and receives does not depend on those that it has here.
    pub is_torn: bool,
}

impl DevicesWanted {
    /// Whether what these stages send each other depends on the devices that they have of the node.
    pub fn are_within(stages: &[Self]) -> bool {
        stages.iter().all(|stage| !stage.is_torn)
    }
}

/// Stages in a row on the devices of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceOrder {
    /// By stage, its devices in the order of its ranks.
    pub devices: Vec<Vec<u32>>,
    /// Between each stage and the next one the slowest that ranks send over; none where one of both is torn.
    pub links: Vec<Option<Link>>,
}

/// The orders that are no slower than another one whatever stages send.
#[derive(Debug, Clone, PartialEq)]
pub struct Orders {
    pub all: Vec<DeviceOrder>,
    /// Whether no other order is needed: whatever stages send, one of these is the fastest.
    pub is_complete: bool,
}

impl Orders {
    /// Those of these stages. None where the node has more devices than can be listed.
    pub fn of(links: &UnlikeLinks, stages: &[DevicesWanted]) -> Option<Self> {
        let pinned = |device: u32| stages.iter().position(|stage| stage.pinned.contains(&device));
        let devices: Vec<Option<usize>> = (0..links.devices()).map(pinned).collect();
        let link = |one: usize, other: usize| between(links, one, other).map(speed);
        let taken = stages.iter().map(|stage| stage.count).sum();
        let classes = LinkGraph::new(&devices, link).classes(taken)?;
        let orders = classes.into_iter().filter_map(|mapping| DeviceOrder::of(links, stages, &mapping));
        // Most have the same links as another one.
        let mut seen = HashSet::new();
        let bits = |link: &Link| [link.bytes_per_second.to_bits(), link.latency_seconds.to_bits()];
        let mut orders: Vec<(f64, DeviceOrder)> = orders
            .filter(|order| seen.insert(order.links.iter().flatten().flat_map(bits).collect::<Vec<u64>>()))
            .map(|order| (usual_seconds(&order), order))
            .collect();
        // An order that beats another one comes before it.
        orders.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut kept: Vec<DeviceOrder> = Vec::new();
        for (_, order) in orders {
            if kept.iter().any(|other| is_no_slower(other, &order)) {
                continue;
            }
            if kept.len() == MOST_KEPT {
                return Some(Self { all: kept, is_complete: false });
            }
            kept.push(order);
        }
        Some(Self { all: kept, is_complete: true })
    }
}

impl DeviceOrder {
    /// Stages on these devices, one after another; none where one is not on those that it is pinned to.
    fn of(links: &UnlikeLinks, stages: &[DevicesWanted], mapping: &[usize]) -> Option<Self> {
        let mut left = mapping.iter().filter_map(|&device| u32::try_from(device).ok());
        let devices: Vec<Vec<u32>> =
            stages.iter().map(|stage| left.by_ref().take(stage.count).collect()).collect();
        let keeps = |(stage, own): (&DevicesWanted, &Vec<u32>)| {
            stage.pinned.iter().all(|device| own.contains(device))
        };
        if !stages.iter().zip(&devices).all(keeps) {
            return None;
        }
        let link = |(stages, devices): (&[DevicesWanted], &[Vec<u32>])| {
            let is_within = DevicesWanted::are_within(stages);
            links.entry(&devices[0], &devices[1]).filter(|_| is_within)
        };
        let links = stages.windows(2).zip(devices.windows(2)).map(link).collect();
        Some(Self { devices, links })
    }
}

fn between(links: &UnlikeLinks, one: usize, other: usize) -> Option<Link> {
    links.between(u32::try_from(one).ok()?, u32::try_from(other).ok()?)
}

fn speed(link: Link) -> (f64, f64) {
    (link.bytes_per_second, link.latency_seconds)
}

/// Seconds of a mebibyte over every link.
fn usual_seconds(order: &DeviceOrder) -> f64 {
    let of = |link: &Link| link.latency_seconds + f64::from(1 << 20) / link.bytes_per_second;
    order.links.iter().flatten().map(of).sum()
}

fn is_no_slower(one: &DeviceOrder, other: &DeviceOrder) -> bool {
    one.links.iter().flatten().zip(other.links.iter().flatten()).all(|(one, other)| {
        one.bytes_per_second >= other.bytes_per_second && one.latency_seconds <= other.latency_seconds
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use loadmaster_samples::CUBE_MESH;

    use super::super::tests::every_mapping;
    use super::*;
    use crate::LinkOrigin;

    fn link(bytes_per_second: u32) -> Link {
        Link {
            bytes_per_second: f64::from(bytes_per_second),
            latency_seconds: 0.0,
            origin: LinkOrigin::Given,
        }
    }

    fn single() -> DevicesWanted {
        DevicesWanted { count: 1, ..DevicesWanted::default() }
    }

    /// A ring over two links everywhere goes through all devices of a hybrid cube mesh, so that no other order is needed.
    #[test]
    fn a_hybrid_cube_mesh_has_one_order() {
        let mesh = |a: u32, b: u32| link(1 + 2 * CUBE_MESH[a as usize][b as usize]);
        let links = UnlikeLinks::of(8, mesh).unwrap();
        for stages in 2..=8 {
            let orders = Orders::of(&links, &vec![single(); stages]).unwrap();
            assert_eq!((orders.all.len(), orders.is_complete), (1, true));
            assert_eq!(orders.all[0].links, vec![Some(link(5)); stages - 1]);
        }
        let nine = UnlikeLinks::of(9, |a, b| link(1 + a + b)).unwrap();
        assert_eq!(Orders::of(&nine, &[single(), single()]), None);
    }

    proptest! {
        /// Brute force: of every order some one that is kept is no slower over any edge, and keeps what is pinned; also where
        /// stages have several devices, or some elsewhere.
        #[test]
        fn no_order_beats_those_that_are_kept(
            devices in 2_u32..=5,
            counts in proptest::collection::vec((1_usize..=3, 0_u32..8), 1..5),
            speeds in proptest::collection::vec(1_u32..5, 10),
            pin in proptest::option::of((0_usize..5, 0_u32..5)),
        ) {
            let speed = |a: u32, b: u32| speeds[(a.max(b) * (a.max(b) - 1) / 2 + a.min(b)) as usize];
            let Some(links) = UnlikeLinks::of(devices, |a, b| link(speed(a, b))) else { return Ok(()) };
            let mut left = devices as usize;
            let mut stages: Vec<DevicesWanted> = Vec::new();
            for (count, torn) in counts {
                if count <= left {
                    stages.push(DevicesWanted { count, is_torn: torn == 0, ..DevicesWanted::default() });
                    left -= count;
                }
            }
            if let Some((stage, device)) = pin.filter(|&(stage, device)| stage < stages.len() && device < devices) {
                stages[stage].pinned.push(device);
            }
            let taken = stages.iter().map(|stage| stage.count).sum();
            let parted = |order: &[u32]| -> Vec<Vec<u32>> {
                let mut left = order.iter().copied();
                stages.iter().map(|stage| left.by_ref().take(stage.count).collect()).collect()
            };
            let keeps = |parts: &[Vec<u32>]| {
                parts.iter().zip(&stages).all(|(own, stage)| stage.pinned.iter().all(|pin| own.contains(pin)))
            };
            // Of two stages the larger one's ranks each have one of the other's: as many follow each other.
            let slowest = |parts: &[Vec<u32>], edge: usize| -> u32 {
                if stages[edge].is_torn || stages[edge + 1].is_torn {
                    return 0;
                }
                let (a, b) = (&parts[edge], &parts[edge + 1]);
                let most = a.len().max(b.len());
                (0..most).map(|rank| speed(a[rank * a.len() / most], b[rank * b.len() / most])).min().unwrap()
            };
            let speeds_of = |parts: &[Vec<u32>]| -> Vec<u32> {
                (0..parts.len() - 1).map(|edge| slowest(parts, edge)).collect()
            };
            let orders = Orders::of(&links, &stages).unwrap();
            prop_assert!(orders.is_complete);
            let kept: Vec<Vec<u32>> = orders.all.iter().map(|order| speeds_of(&order.devices)).collect();
            for order in &orders.all {
                prop_assert!(keeps(&order.devices));
                let own = speeds_of(&order.devices);
                let links: Vec<Option<Link>> = own.into_iter().map(|own| (own > 0).then(|| link(own))).collect();
                prop_assert_eq!(&order.links, &links);
            }
            for mapping in every_mapping(devices as usize, taken) {
                let order: Vec<u32> = mapping.iter().map(|&device| device as u32).collect();
                let parts = parted(&order);
                let own = speeds_of(&parts);
                let is_covered = kept.iter().any(|kept| kept.iter().zip(&own).all(|(kept, own)| kept >= own));
                prop_assert!(!keeps(&parts) || is_covered, "{order:?}");
            }
        }
    }
}
