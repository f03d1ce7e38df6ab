//! Ways that share something because of where their devices are: below one switch, or at the end of one PCIe link.

use std::collections::BTreeMap;

use loadmaster_proto::cluster::{LinkOrigin, Node};

use super::{StageDevice, is_pcie};
use loadmaster_simulate::copies::{Shared, Way};

/// What goes up over one thing and what comes down, with how many of its devices the busiest stage has there.
#[derive(Debug, Default)]
struct LinkGroup {
    up: Vec<Way>,
    down: Vec<Way>,
    most: usize,
}

impl LinkGroup {
    /// Both directions, each no faster than this, with a part for each device of a stage.
    fn shared(self, bytes_per_second: f64, origin: LinkOrigin) -> impl Iterator<Item = (Shared, LinkOrigin)> {
        let bytes_per_second = (bytes_per_second / self.most.max(1) as f64).max(1.0);
        let of = move |ways| (Shared { ways, bytes_per_second }, origin);
        [self.up, self.down].into_iter().filter(|ways| !ways.is_empty()).map(of)
    }
}

/// Shared uplinks of the nodes that stages are on. With peers whose copies go over PCIe they, too, take of uplinks, and of
/// the links of both their devices.
pub(super) fn uplinks(stages: &[Vec<StageDevice<'_>>], with_peers: bool) -> Vec<(Shared, LinkOrigin)> {
    let nodes = stages.iter().flatten().filter_map(|&(node, _)| node);
    let nodes: BTreeMap<&str, &Node> = nodes.map(|node| (node.name.as_str(), node)).collect();
    let mut shared = Vec::new();
    for node in nodes.into_values() {
        let Some(copies) = &node.copies else { continue };
        for uplink in &copies.uplinks {
            let group = group(node, &uplink.devices, stages, with_peers);
            shared.extend(group.shared(uplink.bytes_per_second, uplink.origin));
        }
        if !with_peers {
            continue;
        }
        for device in &node.devices {
            let Some(link) = node.host_link_of(device.index) else { continue };
            let LinkGroup { up, down, most } = group(node, &[device.index], stages, true);
            // Alone with the host nothing is shared.
            let crowded = |ways: Vec<Way>| if ways.len() > 1 { ways } else { Vec::new() };
            let [up, down] = [up, down].map(crowded);
            let out = LinkGroup { up, down: Vec::new(), most };
            let back = LinkGroup { up: Vec::new(), down, most };
            shared.extend(out.shared(link.out.bytes_per_second, link.out.origin));
            shared.extend(back.shared(link.back.bytes_per_second, link.back.origin));
        }
    }
    shared
}

/// The ways that leave and enter a group of devices of a node.
fn group(node: &Node, devices: &[u32], stages: &[Vec<StageDevice<'_>>], with_peers: bool) -> LinkGroup {
    let here = |of: &&StageDevice<'_>| of.0.is_some_and(|own| own.name == node.name);
    let inside = |of: &&StageDevice<'_>| here(of) && devices.contains(&of.1);
    let mut group = LinkGroup::default();
    for (stage, own) in (0..).zip(stages) {
        let count = own.iter().filter(inside).count();
        if count == 0 {
            continue;
        }
        group.most = group.most.max(count);
        group.up.push(Way::ToHost(stage));
        group.down.push(Way::FromHost(stage));
        for (other, theirs) in (0..).zip(stages).filter(|(other, _)| with_peers && *other != stage) {
            let crosses = own.iter().filter(inside).any(|&(_, from)| {
                let outside = theirs.iter().filter(|of| here(of) && !devices.contains(&of.1));
                outside.into_iter().any(|&(_, to)| is_pcie(node, from, to))
            });
            if crosses {
                group.up.push(Way::Between { from: stage, to: other });
                group.down.push(Way::Between { from: other, to: stage });
            }
        }
    }
    group
}
