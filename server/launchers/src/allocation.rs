//! What to ask a scheduler for, before it has given nodes.

use std::collections::BTreeMap;

use loadmaster_proto::choice;
use loadmaster_proto::warning::{Warning, WarningCode};
use loadmaster_proto::wire::v1;

use crate::export_parts::RankPlace;

/// Nodes with devices as the plan has them, and which ranks must be near each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Nodes that are alike are counted together, in the order of their first ranks.
    pub nodes: Vec<NodeGroup>,
    /// What must be together; nothing where there is one node.
    pub localities: Vec<StageLocality>,
}

/// Nodes with equal devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup {
    /// How many.
    pub count: u32,
    /// Devices that are taken of each, by kind.
    pub devices: Vec<AskedDevices>,
}

/// Devices of a node that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedDevices {
    /// How many.
    pub count: u32,
    /// Kind; empty where the plan names none.
    pub kind: String,
    /// Bytes that each must allow.
    pub capacity: u64,
}

/// Ranks of a stage that must be near each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageLocality {
    /// The stage.
    pub stage: usize,
    /// So many of its ranks, one behind the other: those of a replica, or all.
    pub ranks: u32,
    /// How near.
    pub within: Locality,
}

/// Where ranks are near each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Locality {
    /// On one node.
    Node,
    /// On nodes of one switch.
    Switch,
}

choice! { Locality = v1::Locality { Node, Switch } }

/// Devices beyond which hardly any node has more.
const LARGEST_NODE: usize = 16;

/// What is said of more devices than a node has that no cluster describes: they are asked for on one.
pub(crate) fn warning(ranks: &[RankPlace]) -> Option<Warning> {
    let is_of_no_node = |place: &RankPlace| place.device.as_ref().is_none_or(|device| device.node.is_empty());
    (ranks.len() > LARGEST_NODE && ranks.iter().all(is_of_no_node)).then(|| {
        WarningCode::NodesAssumed.says(format!(
            "the plan's {} devices were given without a cluster and are assumed to be in one node. If they are in \
                several nodes, set `problem.cluster` to a cluster with these nodes",
            ranks.len()
        ))
    })
}

impl Allocation {
    /// That of ranks as a plan places them. Devices without a node's name are taken to be on one.
    ///
    /// Shards exchange with every layer, and replicas once per iteration: so each replica of several shards is to be where the
    /// plan has it, and all replicas of a stage too.
    pub(crate) fn of(ranks: &[RankPlace]) -> Self {
        let mut nodes: Vec<(&str, Vec<AskedDevices>)> = Vec::new();
        for place in ranks {
            let (name, kind, capacity) = place
                .device
                .as_ref()
                .map_or(("", "", 0), |device| (device.node.as_str(), device.kind.as_str(), device.capacity));
            let at = nodes.iter().position(|(node, _)| *node == name).unwrap_or_else(|| {
                nodes.push((name, Vec::new()));
                nodes.len() - 1
            });
            let devices = &mut nodes[at].1;
            match devices.iter_mut().find(|of| of.kind == kind && of.capacity == capacity) {
                Some(of) => of.count += 1,
                None => devices.push(AskedDevices { count: 1, kind: kind.to_owned(), capacity }),
            }
        }
        let is_one_node = nodes.len() < 2;
        let mut groups: Vec<NodeGroup> = Vec::new();
        for (_, devices) in nodes {
            match groups.iter_mut().find(|group| group.devices == devices) {
                Some(group) => group.count += 1,
                None => groups.push(NodeGroup { count: 1, devices }),
            }
        }
        let localities = if is_one_node { Vec::new() } else { localities(ranks) };
        Self { nodes: groups, localities }
    }
}

fn localities(ranks: &[RankPlace]) -> Vec<StageLocality> {
    let mut stages: BTreeMap<usize, BTreeMap<u32, Vec<&str>>> = BTreeMap::new();
    for place in ranks {
        let node = place.device.as_ref().map_or("", |device| device.node.as_str());
        stages.entry(place.stage).or_default().entry(place.replica).or_default().push(node);
    }
    let is_one = |nodes: &[&str]| nodes.windows(2).all(|pair| pair[0] == pair[1]);
    let mut localities = Vec::new();
    for (stage, replicas) in stages {
        let all: Vec<&str> = replicas.values().flatten().copied().collect();
        let mut add = |ranks: usize, within| {
            let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
            localities.extend((ranks > 1).then_some(StageLocality { stage, ranks, within }));
        };
        if is_one(&all) {
            add(all.len(), Locality::Node);
            continue;
        }
        if replicas.values().all(|nodes| is_one(nodes)) {
            add(replicas.values().map(Vec::len).max().unwrap_or(0), Locality::Node);
        }
        add(all.len(), Locality::Switch);
    }
    localities
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::plan::PlacedDevice;
    use proptest::prelude::*;

    use super::*;

    fn place(rank: u32, (stage, replica, shard): (usize, u32, u32), node: &str, kind: &str) -> RankPlace {
        let (node, kind) = (node.to_owned(), kind.to_owned());
        let device = PlacedDevice { node, index: rank, uuid: String::new(), kind, capacity: 40 };
        RankPlace { rank, stage, replica, shard, device: Some(device) }
    }

    #[test]
    fn nodes_that_are_alike_are_counted_together_and_shards_stay_on_one() {
        // Two stages of two replicas of two shards on three nodes: the second stage's replicas are apart.
        let nodes = ["a", "a", "a", "a", "b", "b", "c", "c"];
        let at = |rank: usize| (rank / 4, (rank / 2 % 2) as u32, (rank % 2) as u32);
        let ranks: Vec<RankPlace> =
            (0..8).map(|rank| place(rank as u32, at(rank), nodes[rank], "gpu")).collect();
        let of = |count, devices| NodeGroup {
            count,
            devices: vec![AskedDevices { count: devices, kind: "gpu".to_owned(), capacity: 40 }],
        };
        let (node, switch) = (Locality::Node, Locality::Switch);
        let found = Allocation::of(&ranks);
        assert_eq!(found.nodes, [of(1, 4), of(2, 2)]);
        let told: Vec<_> = found.localities.iter().map(|of| (of.stage, of.ranks, of.within)).collect();
        assert_eq!(told, [(0, 4, node), (1, 2, node), (1, 4, switch)]);
        assert_eq!(Allocation::of(&ranks[..4]).localities, []);
    }

    /// Who names devices and no cluster hears that all are asked for on one node, where no node has as many.
    #[test]
    fn more_devices_than_a_node_has_are_told() {
        let of = |count: u32, node: &str| {
            let ranks: Vec<RankPlace> =
                (0..count).map(|rank| place(rank, (0, rank, 0), node, "gpu")).collect();
            warning(&ranks)
        };
        assert!(
            of(17, "").unwrap().message.starts_with("the plan's 17 devices were given without a cluster")
        );
        assert_eq!([of(16, ""), of(17, "a")], [None, None]);
    }

    proptest! {
        /// Every rank has a device in what is asked for, of its kind, and nodes are as many as the plan's.
        #[test]
        fn every_rank_is_asked_for(ranks in proptest::collection::vec((0_usize..4, 0_u32..3, 0_usize..5, 0_usize..2), 1..40)) {
            let ranks: Vec<RankPlace> = ranks
                .into_iter()
                .enumerate()
                .map(|(rank, (stage, replica, node, kind))| {
                    place(rank as u32, (stage, replica, 0), ["a", "b", "c", "d", "e"][node], ["x", "y"][kind])
                })
                .collect();
            let found = Allocation::of(&ranks);
            let count = |kind: &str| -> u32 {
                let of = |group: &NodeGroup| {
                    let alike = group.devices.iter().filter(|of| of.kind == kind).map(|of| of.count);
                    group.count * alike.sum::<u32>()
                };
                found.nodes.iter().map(of).sum()
            };
            let is = |place: &&RankPlace, kind: &str| place.device.as_ref().unwrap().kind == kind;
            for kind in ["x", "y"] {
                prop_assert_eq!(count(kind), ranks.iter().filter(|place| is(place, kind)).count() as u32);
            }
            let mut nodes: Vec<&str> = ranks.iter().map(|place| place.device.as_ref().unwrap().node.as_str()).collect();
            nodes.sort_unstable();
            nodes.dedup();
            prop_assert_eq!(found.nodes.iter().map(|group| group.count).sum::<u32>(), nodes.len() as u32);
        }
    }
}
