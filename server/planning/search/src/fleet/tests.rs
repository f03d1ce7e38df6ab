//! What a search sees of a cluster, held against the cluster itself.

use std::collections::BTreeMap;

use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};
use loadmaster_proto::cluster::{
    ClusterParts, ClusterSource, DeviceKind, DeviceLink, Domain, LinkOrigin, Tier,
};
use proptest::prelude::*;

use super::*;

const EXAMPLE: &str = include_str!("../../../../../deploy/clusters/two-kinds.yaml");

fn example() -> Cluster {
    import(ClusterFormat::Loadmaster, EXAMPLE, &ImportOptions::default()).unwrap()
}

fn link(gigabytes: f64, microseconds: f64) -> Link {
    Link {
        bytes_per_second: gigabytes * 1e9,
        latency_seconds: microseconds * 1e-6,
        origin: LinkOrigin::Given,
    }
}

#[test]
fn domains_stand_together_and_shares_are_a_kind_of_their_own() {
    let planned = fleet(&example(), &Selection::default()).unwrap();
    let Fleet { kinds, nodes, tiers, .. } = &planned.fleet;
    let capacities: Vec<u64> = kinds.iter().map(|kind| kind.capacity.0 >> 30).collect();
    assert_eq!(capacities, [76, 38, 30]);
    assert_eq!(kinds[1].hourly_price, Some(1.1));
    // The node with a smaller device is two: its devices of one capacity, and the other.
    assert_eq!((nodes.len(), planned.fleet.devices(), tiers.len()), (13, 80, 2));
    assert_eq!((nodes[11].name.as_str(), nodes[11].devices, nodes[12].devices), ("a04", 3, 1));
    assert_eq!(nodes[11].inside.bytes_per_second, 16e9);
    assert_eq!(planned.notes.len(), 1);
    // Within a rack, and between the racks: no faster than the spine, nor than the slower node.
    assert_eq!(planned.fleet.between(0, 7).unwrap().bytes_per_second, 50e9);
    assert_eq!(planned.fleet.between(0, 8).unwrap().bytes_per_second, 12.5e9);
    let last = planned.device(79).unwrap();
    assert_eq!((last.node.as_str(), last.index), ("a04", 3));
    assert!(last.uuid.ends_with("0003") && planned.device(80).is_none());
}

/// Of a network of four links an edge between two devices has one, and a ring over several nodes all; a tier bounds both.
#[test]
fn an_edge_has_one_link_of_a_network_and_a_ring_all_of_them() {
    let fleet_of = |network: &str, tiers: &str| {
        let text = format!(
            "format: loadmaster.cluster/1\nkinds: [{{name: NVIDIA GH200 480GB, memory: 96GB}}]\nnodes:\n  - {{name: \
             \"n[1-3]\", kind: NVIDIA GH200 480GB, devices: 4, network: {network}}}\n{tiers}"
        );
        let cluster = import(ClusterFormat::Loadmaster, &text, &ImportOptions::default()).unwrap();
        fleet(&cluster, &Selection::default()).unwrap().fleet
    };
    let speeds = |fleet: &Fleet| {
        [fleet.between(0, 2), fleet.edge_between(0, 2)].map(|link| link.unwrap().bytes_per_second / 1e9)
    };
    let four = fleet_of("{bandwidth: 800Gb/s, links: 4}", "");
    assert_eq!(speeds(&four), [100.0, 25.0]);
    assert_eq!(speeds(&fleet_of("{bandwidth: 800Gb/s}", "")), [100.0, 100.0]);
    let of_tiers = |tier: &str| {
        fleet_of("{bandwidth: 800Gb/s, links: 4}", &format!("tiers: [{{level: leaf, bandwidth: {tier}}}]\n"))
    };
    assert_eq!(speeds(&of_tiers("400Gb/s")), [50.0, 25.0]);
    assert_eq!(speeds(&of_tiers("80Gb/s")), [10.0, 10.0]);
    // The places of a search: the second stage gets its input over one link, and its replicas' ring has all of them.
    let places = crate::Places::along(&four, &[4, 8]);
    let step = places.steps(4)[0];
    let speed = |link| places.link(link).unwrap().bytes_per_second / 1e9;
    assert_eq!((speed(step.entry), speed(step.data_link())), (25.0, 100.0));
    let stages = [((0..4).collect(), 4), ((4..12).collect(), 4)];
    let given = crate::Places::given(&four, &stages).unwrap();
    let step = given.steps(1)[0];
    let speed = |link| given.link(link).unwrap().bytes_per_second / 1e9;
    assert_eq!((speed(step.entry), speed(step.data_link()), given.data_rings(&step, 4)), (25.0, 100.0, 4));
}

/// A further node like one whose devices are used in part has all of them.
#[test]
fn a_node_is_whole_with_the_devices_that_may_not_be_used() {
    let excluded = vec![Exclusion { node: "h01".to_owned(), device: Some(3) }];
    let planned = fleet(&example(), &Selection { excluded, ..Selection::default() }).unwrap();
    let nodes = planned.fleet.nodes.iter().map(|node| (node.name.as_str(), node.devices, node.whole));
    let nodes: Vec<_> = nodes.collect();
    assert!(nodes.contains(&("h01", 7, 8)) && nodes.contains(&("h02", 8, 8)), "{nodes:?}");
    // The node with a smaller device is two, and each of them whole.
    assert!(nodes.contains(&("a04", 3, 3)) && nodes.contains(&("a04", 1, 1)), "{nodes:?}");
}

/// A remedy that names another node like the last one must help: the selection takes such a node, whole, and with no other
/// devices.
#[test]
fn a_fleet_grows_where_its_selection_takes_further_nodes_and_only_what_it_has_of_them() {
    let mut two_kinds = example().parts().clone();
    // One node, with half of its devices of another kind.
    two_kinds.nodes.truncate(1);
    two_kinds.domains.clear();
    two_kinds.tiers.clear();
    let [first, other] = [0, 1].map(|kind| two_kinds.kinds[kind].name.clone());
    for device in two_kinds.nodes[0].devices.iter_mut().skip(4) {
        device.kind.clone_from(&other);
    }
    let name = two_kinds.nodes[0].name.clone();
    let (example, two_kinds) = (example(), Cluster::new(two_kinds).unwrap());
    let may_grow =
        |cluster: &Cluster, selection: Selection| fleet(cluster, &selection).unwrap().fleet.may_grow;
    let without = |devices: std::ops::Range<u32>| {
        let of = |device| Exclusion { node: name.clone(), device: Some(device) };
        Selection { excluded: devices.map(of).collect(), ..Selection::default() }
    };
    let uniform = Selection { kinds: vec![first], ..Selection::default() };
    assert!(may_grow(&example, uniform.clone()));
    assert!(may_grow(&example, Selection { excluded: without(0..3).excluded, ..uniform.clone() }));
    assert!(
        !may_grow(&example, Selection { first: Some(12), ..uniform.clone() }),
        "there are further ones now"
    );
    assert!(!may_grow(&example, Selection { nodes: vec![name.clone()], ..uniform.clone() }));
    assert!(!may_grow(&two_kinds, Selection::default()), "it would be two");
    assert!(!may_grow(&two_kinds, without(4..8)), "the further one has devices of the other kind");
    assert!(may_grow(&two_kinds, uniform), "whatever else a node has is not asked for");
    let other = Selection { kinds: vec![other], excluded: without(0..2).excluded, ..Selection::default() };
    assert!(may_grow(&two_kinds, other));
}

/// A further node is as far from a single one as that one's network says; what nothing crosses has no origin.
#[test]
fn a_single_node_keeps_its_network() {
    let mut cluster = example().parts().clone();
    let far = cluster.nodes[0].network.map(|of| Link { origin: LinkOrigin::Measured, ..of });
    cluster.nodes[0].network = far;
    let nodes = vec![cluster.nodes[0].name.clone()];
    let cluster = Cluster::new(cluster).unwrap();
    let alone = fleet(&cluster, &Selection { nodes, ..Selection::default() }).unwrap();
    assert_eq!((alone.fleet.nodes.len(), Some(alone.fleet.nodes[0].outside)), (1, far));
    assert_ne!(far, Some(FleetNode::ALONE));
    assert_eq!(alone.link_origins(), alone.fleet.nodes[0].inside.origin.as_str());
    assert!(!alone.link_origins().contains("measured"), "{}", alone.link_origins());
}

#[test]
fn a_selection_takes_kinds_nodes_labels_and_the_first_devices() {
    let cluster = example();
    let devices = |selection: &Selection| fleet(&cluster, selection).map(|planned| planned.fleet.devices());
    let kinds = vec!["NVIDIA A100-SXM4-40GB".to_owned()];
    assert_eq!(devices(&Selection { kinds, ..Selection::default() }), Ok(16));
    let labels = BTreeMap::from([("rack".to_owned(), "1".to_owned())]);
    assert_eq!(devices(&Selection { labels: labels.clone(), ..Selection::default() }), Ok(64));
    let without = |device| Exclusion { node: "h01".to_owned(), device };
    let excluded = vec![without(Some(3)), Exclusion { node: "h02".to_owned(), device: None }];
    assert_eq!(devices(&Selection { labels, excluded, ..Selection::default() }), Ok(55));
    let first = fleet(&cluster, &Selection { first: Some(12), ..Selection::default() }).unwrap();
    let shape: Vec<(&str, u32)> = first.fleet.nodes.iter().map(|of| (of.name.as_str(), of.devices)).collect();
    assert_eq!(shape, [("h01", 8), ("h02", 4)]);
    let nodes = vec!["h01".to_owned()];
    let alone = fleet(&cluster, &Selection { nodes: nodes.clone(), ..Selection::default() }).unwrap();
    assert_eq!(alone.fleet.nodes.len(), 1);
    let kinds = vec!["NVIDIA A100-SXM4-40GB".to_owned()];
    let none = devices(&Selection { nodes, kinds, ..Selection::default() }).unwrap_err();
    assert!(matches!(&none, FleetError::Empty { why } if why.contains("1 nodes")), "{none}");
}

#[test]
fn what_is_not_there_is_named() {
    let cluster = example();
    let refused = |selection: Selection| fleet(&cluster, &selection).unwrap_err().to_string();
    let kinds = refused(Selection { kinds: vec!["TPU".to_owned()], ..Selection::default() });
    assert!(kinds.contains("\"TPU\" is not in the cluster") && kinds.contains("NVIDIA H100"), "{kinds}");
    let nodes = refused(Selection { nodes: vec!["x".to_owned()], ..Selection::default() });
    assert!(nodes.contains("\"x\" is not in the cluster") && nodes.contains("and more"), "{nodes}");
    let excluded = vec![Exclusion { node: "h01".to_owned(), device: Some(8) }];
    let device = refused(Selection { excluded, ..Selection::default() });
    assert!(device.contains("\"h01/8\"") && device.contains("0, 1, 2"), "{device}");
    assert!(refused(Selection { first: Some(0), ..Selection::default() }).contains("first 0"));
}

#[test]
fn switches_that_say_nothing_of_speed_leave_equal_nodes_alike() {
    let text = "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=c Switches=a,b\n";
    let options = ImportOptions {
        device_kind: Some("NVIDIA H100 80GB HBM3".to_owned()),
        memory: Some(Bytes(80 << 30)),
        devices_per_node: Some(8),
        ..ImportOptions::default()
    };
    let cluster = import(ClusterFormat::SlurmConf, text, &options).unwrap();
    let planned = fleet(&cluster, &Selection::default()).unwrap();
    assert!(planned.fleet.is_uniform() && planned.fleet.tiers.is_empty());
}

/// Slurm starts no job over switches without a common switch above them.
#[test]
fn a_fleet_is_of_one_island_and_says_which() {
    let text = "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-5]\nSwitchName=c Nodes=n[6-8]\n";
    let options = ImportOptions {
        device_kind: Some("gpu".to_owned()),
        memory: Some(Bytes(80 << 30)),
        devices_per_node: Some(2),
        ..ImportOptions::default()
    };
    let islands = import(ClusterFormat::SlurmConf, text, &options).unwrap();
    let nodes =
        |planned: &PlannedFleet| planned.fleet.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    let largest = fleet(&islands, &Selection::default()).unwrap();
    assert_eq!(nodes(&largest), ["n3", "n4", "n5"]);
    let note = largest.island.as_deref().unwrap();
    assert!(
        note.contains("a, b, c") && note.contains("The plan uses the island b, with 6 of 16 devices"),
        "{note}"
    );
    assert!(largest.notes.iter().any(|other| other.message == note));
    // What is excluded does not count, and what is left is one island without a word.
    let exclude = |names: &[&str]| Selection {
        excluded: names.iter().map(|&node| Exclusion { node: node.to_owned(), device: None }).collect(),
        ..Selection::default()
    };
    assert_eq!(nodes(&fleet(&islands, &exclude(&["n3", "n4", "n5"])).unwrap()), ["n6", "n7", "n8"]);
    let last = fleet(&islands, &exclude(&["n3", "n4", "n5", "n6", "n7", "n8"])).unwrap();
    assert_eq!((nodes(&last), last.island), (vec!["n1".to_owned(), "n2".to_owned()], None));
    let joined =
        import(ClusterFormat::SlurmConf, &format!("{text}SwitchName=d Switches=a,b,c\n"), &options).unwrap();
    let whole = fleet(&joined, &Selection::default()).unwrap();
    assert_eq!((whole.devices().len(), whole.island), (16, None));
}

#[test]
fn groups_are_one_node_per_kind() {
    let group = |count, gibibytes: u64| DeviceGroup {
        count,
        capacity: Bytes(gibibytes << 30),
        kind: "cpu".to_owned(),
    };
    let planned = of_groups(&[group(2, 2), group(1, 2), group(1, 4), group(0, 9)], None).unwrap();
    let shape: Vec<(usize, u32)> = planned.fleet.nodes.iter().map(|node| (node.kind, node.devices)).collect();
    assert_eq!(shape, [(0, 3), (1, 1)]);
    assert_eq!(planned.fleet.between(0, 1).unwrap().origin, LinkOrigin::Assumed);
    let given = of_groups(&[group(4, 2)], Some(1e9)).unwrap();
    assert_eq!(given.fleet.nodes[0].inside.bytes_per_second, 1e9);
    assert!(of_groups(&[group(0, 2)], None).is_err());
    assert!(of_groups(&[group(u32::MAX, 2)], None).is_err());
}

/// A cluster of random nodes: kinds, link speeds and places in a tree of two levels.
fn clusters() -> impl Strategy<Value = Cluster> {
    let node = (1_u32..5, 0_usize..2, 0_usize..3, 0_usize..3, 1_u32..90, any::<bool>());
    (prop::collection::vec(node, 1..7), any::<bool>(), any::<bool>()).prop_map(
        |(nodes, leaf_says, spine_says)| {
            let kinds = ["k0", "k1"].map(|name| DeviceKind {
                name: name.to_owned(),
                memory: Bytes(100),
                usable: Bytes(90),
                hourly_price: None,
            });
            let domains = (0..9).map(|leaf| Domain {
                level: "leaf".to_owned(),
                name: format!("leaf{leaf}"),
                parent: Some(format!("spine{}", leaf / 3)),
                nodes: (0..nodes.len())
                    .filter(|&node| nodes[node].2 * 3 + nodes[node].3 == leaf)
                    .map(|node| format!("n{node}"))
                    .collect(),
            });
            let spines = (0..3).map(|spine| Domain {
                level: "spine".to_owned(),
                name: format!("spine{spine}"),
                parent: None,
                nodes: Vec::new(),
            });
            let tier = |level: &str, says: bool, gigabytes| Tier {
                level: level.to_owned(),
                link: says.then(|| link(gigabytes, 10.0)),
            };
            let tiers = vec![tier("leaf", leaf_says, 6.0), tier("spine", spine_says, 3.0)];
            let nodes = nodes.iter().enumerate().map(|(place, &(count, kind, _, _, speed, mixed))| Node {
                name: format!("n{place}"),
                labels: BTreeMap::new(),
                driver_version: String::new(),
                devices: (0..count)
                    .map(|index| ClusterDevice {
                        index,
                        kind: format!("k{}", if mixed && index == 0 { 1 - kind } else { kind }),
                        uuid: format!("GPU-{place}-{index}"),
                        pci_bus_id: String::new(),
                        slot: String::new(),
                        usable: None,
                    })
                    .collect(),
                link: Some(link(50.0, 1.0)),
                link_class: None,
                links: (1..count)
                    .map(|b| DeviceLink {
                        a: 0,
                        b,
                        class: None,
                        count: 1,
                        link: link(f64::from(10 * b), 2.0),
                    })
                    .collect(),
                network: Some(link(f64::from(speed), 5.0)),
                network_links: None,
                copies: None,
                updates: Vec::new(),
            });
            let parts = ClusterParts {
                kinds: kinds.to_vec(),
                nodes: nodes.collect(),
                tiers,
                domains: spines.chain(domains).collect(),
                source: ClusterSource::Written,
                warnings: Vec::new(),
            };
            Cluster::new(parts).unwrap()
        },
    )
}

/// The link between two devices of a cluster, straight from its definition.
fn defined(cluster: &Cluster, one: &DeviceRef, other: &DeviceRef) -> Link {
    let place = |of: &DeviceRef| cluster.nodes().iter().position(|node| node.name == of.node).unwrap();
    let (a, b) = (place(one), place(other));
    if a == b {
        return cluster.nodes()[a].link_between(one.index, other.index).unwrap();
    }
    let own = cluster.nodes()[a].network.unwrap().slower(cluster.nodes()[b].network.unwrap());
    let shares = |tier: &usize| {
        let domain = cluster.domain_of(a, *tier);
        domain.is_some() && domain == cluster.domain_of(b, *tier)
    };
    let tier = (0..cluster.tiers().len()).find(shares).unwrap_or_else(|| cluster.tiers().len() - 1);
    cluster.tiers()[tier].link.map_or(own, |link| own.slower(link))
}

proptest! {
    /// Every selected device is in the fleet once, under its own name and of its own kind and capacity.
    #[test]
    fn a_fleet_has_each_device_once(cluster in clusters()) {
        let planned = fleet(&cluster, &Selection::default()).unwrap();
        prop_assert_eq!(planned.devices().len(), cluster.device_count());
        let mut seen = std::collections::BTreeSet::new();
        let of_nodes = planned.fleet.nodes.iter().flat_map(|node| (0..node.devices).map(move |_| node));
        for (device, of) in planned.devices().iter().zip(of_nodes) {
            prop_assert!(seen.insert((device.node.clone(), device.index)));
            let node = cluster.nodes().iter().find(|node| node.name == device.node).unwrap();
            let own = node.devices.iter().find(|own| own.index == device.index).unwrap();
            let kind = &planned.fleet.kinds[of.kind];
            prop_assert_eq!((&of.name, &own.uuid), (&device.node, &device.uuid));
            prop_assert_eq!((&kind.name, kind.capacity), (&own.kind, cluster.usable(own)));
        }
    }

    /// What a search takes a link to be is never faster than it is; between different nodes, and where links of a node are unlike,
    /// exactly it. Where nothing is kept of them, they are all as fast.
    #[test]
    fn no_link_is_taken_to_be_faster_than_it_is(cluster in clusters()) {
        let planned = fleet(&cluster, &Selection::default()).unwrap();
        let mut place = Vec::new();
        for (index, node) in planned.fleet.nodes.iter().enumerate() {
            place.extend(std::iter::repeat_n(index, node.devices as usize));
        }
        for (a, one) in planned.devices().iter().enumerate() {
            for (b, other) in planned.devices().iter().enumerate().filter(|&(b, _)| b != a) {
                let real = defined(&cluster, one, other);
                let seen = match place[a] == place[b] {
                    true => planned.fleet.nodes[place[a]].inside,
                    false => planned.fleet.between(place[a], place[b]).unwrap(),
                };
                prop_assert!(seen.bytes_per_second <= real.bytes_per_second, "{one:?} {other:?} {seen:?} {real:?}");
                prop_assert!(seen.latency_seconds >= real.latency_seconds);
                let is_whole = |name: &String| planned.fleet.nodes.iter().filter(|of| of.name == *name).count() == 1;
                let node = &planned.fleet.nodes[place[a]];
                if place[a] == place[b] {
                    let begin = place.partition_point(|&of| of < place[a]);
                    let pair = [a - begin, b - begin].map(|own| own as u32);
                    let between = node.unlike.as_ref().map(|unlike| unlike.between(pair[0], pair[1]));
                    prop_assert_eq!(between.unwrap_or(Some(Link { origin: real.origin, ..seen })), Some(real));
                }
                if one.node != other.node && is_whole(&one.node) && is_whole(&other.node) {
                    prop_assert_eq!(seen, real);
                }
            }
        }
    }

    /// The nodes of a domain follow each other, on every level.
    #[test]
    fn domains_are_not_interleaved(cluster in clusters()) {
        let planned = fleet(&cluster, &Selection::default()).unwrap();
        for tier in 0..cluster.tiers().len() {
            let domains: Vec<Option<usize>> = planned
                .fleet
                .nodes
                .iter()
                .map(|node| {
                    let place = cluster.nodes().iter().position(|of| of.name == node.name).unwrap();
                    cluster.domain_of(place, tier)
                })
                .collect();
            let mut runs = domains.clone();
            runs.dedup();
            let distinct: std::collections::BTreeSet<_> = domains.into_iter().collect();
            prop_assert_eq!(runs.len(), distinct.len(), "{:?}", runs);
        }
    }
}
