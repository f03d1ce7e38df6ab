//! Orders of stages on the devices of a node, as far as what neighbours send each other tells them apart.

use std::collections::HashSet;

use super::LinkGraph;
use crate::search::{Link, UnlikeLinks};

/// Most orders that are kept of a node: measured links are all different, and few orders of them beat no other one.
const MOST_KEPT: usize = 2_048;

/// Stages in a row on the devices of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceOrder {
    /// By stage, its device.
    pub devices: Vec<u32>,
    /// Between each stage and the next one.
    pub links: Vec<Link>,
}

/// The orders that are no slower than another one whatever stages send.
#[derive(Debug, Clone, PartialEq)]
pub struct Orders {
    pub all: Vec<DeviceOrder>,
    /// Whether no other order is needed: whatever stages send, one of these is the fastest.
    pub is_complete: bool,
}

impl Orders {
    /// Those of as many stages as there are entries in `fixed`: a stage is on the device that is named there, if any. None
    /// where the node has more devices than can be listed.
    pub fn of(links: &UnlikeLinks, fixed: &[Option<u32>]) -> Option<Self> {
        let pinned = |device: u32| fixed.iter().position(|fixed| *fixed == Some(device));
        let devices: Vec<Option<usize>> = (0..links.devices()).map(pinned).collect();
        let link = |one: usize, other: usize| between(links, one, other).map(speed);
        let classes = LinkGraph::new(&devices, link).classes(fixed.len())?;
        let keeps = |mapping: &Vec<usize>| {
            mapping
                .iter()
                .zip(fixed)
                .all(|(&device, fixed)| fixed.is_none_or(|fixed| fixed as usize == device))
        };
        let order = |mapping: Vec<usize>| {
            let links =
                mapping.windows(2).map(|pair| between(links, pair[0], pair[1])).collect::<Option<_>>();
            Some(DeviceOrder {
                devices: mapping.iter().map(|&device| device as u32).collect(),
                links: links?,
            })
        };
        let orders = classes.into_iter().filter(keeps).filter_map(order);
        // Most have the same links as another one.
        let mut seen = HashSet::new();
        let bits = |link: &Link| [link.bytes_per_second.to_bits(), link.latency_seconds.to_bits()];
        let mut orders: Vec<(f64, DeviceOrder)> = orders
            .filter(|order| seen.insert(order.links.iter().flat_map(bits).collect::<Vec<u64>>()))
            .map(|order| (usual_seconds(&order), order))
            .collect();
        // Whoever beats another one comes before it.
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

fn between(links: &UnlikeLinks, one: usize, other: usize) -> Option<Link> {
    links.between(u32::try_from(one).ok()?, u32::try_from(other).ok()?)
}

fn speed(link: Link) -> (f64, f64) {
    (link.bytes_per_second, link.latency_seconds)
}

/// Seconds of a mebibyte over every link.
fn usual_seconds(order: &DeviceOrder) -> f64 {
    order.links.iter().map(|link| link.latency_seconds + f64::from(1 << 20) / link.bytes_per_second).sum()
}

fn is_no_slower(one: &DeviceOrder, other: &DeviceOrder) -> bool {
    one.links.iter().zip(&other.links).all(|(one, other)| {
        one.bytes_per_second >= other.bytes_per_second && one.latency_seconds <= other.latency_seconds
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{CUBE_MESH, every_mapping};
    use super::*;
    use crate::search::LinkOrigin;

    fn link(bytes_per_second: u32) -> Link {
        Link {
            bytes_per_second: f64::from(bytes_per_second),
            latency_seconds: 0.0,
            origin: LinkOrigin::Given,
        }
    }

    /// A ring over two links everywhere goes through all devices of a hybrid cube mesh, so that no other order is needed.
    #[test]
    fn a_hybrid_cube_mesh_has_one_order() {
        let mesh = |a: u32, b: u32| link(1 + 2 * CUBE_MESH[a as usize][b as usize]);
        let links = UnlikeLinks::of(8, mesh).unwrap();
        for stages in 2..=8 {
            let orders = Orders::of(&links, &vec![None; stages]).unwrap();
            assert_eq!((orders.all.len(), orders.is_complete), (1, true));
            assert_eq!(orders.all[0].links, vec![link(5); stages - 1]);
        }
        let nine = UnlikeLinks::of(9, |a, b| link(1 + a + b)).unwrap();
        assert_eq!(Orders::of(&nine, &[None, None]), None);
    }

    proptest! {
        /// Brute force: of every order some one that is kept is no slower over any edge, and keeps what is fixed.
        #[test]
        fn no_order_beats_those_that_are_kept(
            (devices, stages) in (2_u32..=5).prop_flat_map(|devices| (Just(devices), 1..=devices as usize)),
            speeds in proptest::collection::vec(1_u32..5, 10),
            pin in proptest::option::of((0_usize..5, 0_u32..5)),
        ) {
            let speed = |a: u32, b: u32| speeds[(a.max(b) * (a.max(b) - 1) / 2 + a.min(b)) as usize];
            let Some(links) = UnlikeLinks::of(devices, |a, b| link(speed(a, b))) else { return Ok(()) };
            let mut fixed = vec![None; stages];
            if let Some((stage, device)) = pin.filter(|&(stage, device)| stage < stages && device < devices) {
                fixed[stage] = Some(device);
            }
            let keeps = |order: &[u32]| {
                order.iter().zip(&fixed).all(|(device, fixed)| fixed.is_none_or(|fixed| fixed == *device))
            };
            let speeds_of = |order: &[u32]| -> Vec<u32> {
                order.windows(2).map(|pair| speed(pair[0], pair[1])).collect()
            };
            let orders = Orders::of(&links, &fixed).unwrap();
            prop_assert!(orders.is_complete);
            let kept: Vec<Vec<u32>> = orders.all.iter().map(|order| speeds_of(&order.devices)).collect();
            for order in &orders.all {
                prop_assert!(keeps(&order.devices));
                let links: Vec<Link> = speeds_of(&order.devices).into_iter().map(link).collect();
                prop_assert_eq!(&order.links, &links);
            }
            for mapping in every_mapping(devices as usize, stages) {
                let order: Vec<u32> = mapping.iter().map(|&device| device as u32).collect();
                let own = speeds_of(&order);
                let is_covered = kept.iter().any(|kept| kept.iter().zip(&own).all(|(kept, own)| kept >= own));
                prop_assert!(!keeps(&order) || is_covered, "{order:?}");
            }
        }
    }
}
