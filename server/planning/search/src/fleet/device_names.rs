//! The way back from a search's devices to what schedulers and people call them.

use std::collections::BTreeMap;

use loadmaster_proto::plan::PlacedDevice;

use super::PlannedFleet;
use crate::{Fleet, FleetNode, LinkOrigin};

impl PlannedFleet {
    /// What its devices are called, in the fleet's order: `node/index`, or `device 3` where they were named in groups.
    pub fn names(&self) -> Vec<String> {
        let name = |(position, device): (usize, &super::DeviceRef)| match device.node.as_str() {
            "" => format!("device {position}"),
            node => format!("{node}/{}", device.index),
        };
        self.devices.iter().enumerate().map(name).collect()
    }

    /// The kinds of its devices, in the fleet's order.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.fleet.kinds.iter().map(|kind| kind.name.as_str())
    }

    /// Gives devices their hourly prices, by kind.
    #[must_use]
    pub fn with_prices(mut self, prices: &BTreeMap<String, f64>) -> Self {
        for kind in &mut self.fleet.kinds {
            if let Some(&price) = prices.get(&kind.name) {
                kind.hourly_price = Some(price);
            }
        }
        self
    }

    /// A device as plans keep it.
    pub fn placed(&self, device: u32) -> PlacedDevice {
        let known = self.device(device).cloned().unwrap_or_default();
        let mut begin = 0;
        let node = self.fleet.nodes.iter().find(|node| {
            begin += node.devices;
            device < begin
        });
        let kind = node.and_then(|node| self.fleet.kinds.get(node.kind));
        PlacedDevice {
            node: known.node,
            index: known.index,
            uuid: known.uuid,
            kind: kind.map(|kind| kind.name.clone()).unwrap_or_default(),
            capacity: kind.map_or(0, |kind| kind.capacity.0),
        }
    }

    /// Where the bandwidths come from, for people.
    pub fn link_origins(&self) -> String {
        let Fleet { nodes, tiers, .. } = &self.fleet;
        // Nothing of a single node is sent over its network.
        let (networks, tiers) = if nodes.len() > 1 { (&nodes[..], &tiers[..]) } else { (&[][..], &[][..]) };
        let links = nodes.iter().map(|node| node.inside).chain(networks.iter().map(|node| node.outside));
        let crossed = links.chain(tiers.iter().copied().flatten()).filter(|link| *link != FleetNode::ALONE);
        let mut origins: Vec<LinkOrigin> = crossed.map(|link| link.origin).collect();
        origins.sort_unstable();
        origins.dedup();
        origins.into_iter().map(LinkOrigin::as_str).collect::<Vec<_>>().join(" and ")
    }
}
