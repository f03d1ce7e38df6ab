//! Which clusters there can be, and how what cannot be is named.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn link(gigabytes: f64) -> Link {
    Link { bytes_per_second: gigabytes * 1e9, latency_seconds: 2e-6, origin: LinkOrigin::Given }
}

fn device(index: u32) -> ClusterDevice {
    ClusterDevice {
        index,
        kind: "gpu".to_owned(),
        uuid: String::new(),
        pci_bus_id: String::new(),
        slot: String::new(),
        usable: None,
    }
}

fn node(name: &str, devices: u32) -> Node {
    Node {
        name: name.to_owned(),
        labels: BTreeMap::new(),
        driver_version: String::new(),
        devices: (0..devices).map(device).collect(),
        link: Some(link(100.0)),
        link_class: None,
        links: Vec::new(),
        network: Some(link(10.0)),
        network_links: None,
        copies: None,
        updates: Vec::new(),
    }
}

fn pair(a: u32, b: u32, gigabytes: f64) -> DeviceLink {
    DeviceLink { a, b, class: None, count: 1, link: link(gigabytes) }
}

fn domain(level: &str, name: &str, parent: Option<&str>, nodes: &[&str]) -> Domain {
    Domain {
        level: level.to_owned(),
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
    }
}

fn tier(level: &str) -> Tier {
    Tier { level: level.to_owned(), link: None }
}

/// Four nodes at two leaf switches below one spine.
fn parts() -> ClusterParts {
    ClusterParts {
        kinds: vec![DeviceKind {
            name: "gpu".to_owned(),
            memory: Bytes(100),
            usable: Bytes(90),
            hourly_price: Some(2.0),
        }],
        nodes: ["n0", "n1", "n2", "n3"].map(|name| node(name, 2)).to_vec(),
        tiers: vec![tier("leaf"), tier("spine")],
        domains: vec![
            domain("spine", "s", None, &[]),
            domain("leaf", "a", Some("s"), &["n0", "n1"]),
            domain("leaf", "b", Some("s"), &["n2", "n3"]),
        ],
        source: ClusterSource::Written,
        warnings: Vec::new(),
    }
}

/// What makes a cluster wrong.
type Bend = fn(&mut ClusterParts);

/// The only violation of a cluster that is bent by `bend`: field and description.
fn refused(bend: impl FnOnce(&mut ClusterParts)) -> (String, String) {
    let mut parts = parts();
    bend(&mut parts);
    let invalid = Cluster::new(parts).unwrap_err();
    let [violation] = invalid.violations() else { panic!("{invalid}") };
    (violation.field.clone(), violation.description.clone())
}

#[test]
fn a_valid_cluster_knows_its_domains_and_survives_json() {
    let cluster = Cluster::new(parts()).unwrap();
    assert_eq!(cluster.device_count(), 8);
    assert_eq!((cluster.domain_of(0, 0), cluster.domain_of(0, 1)), (Some(1), Some(0)));
    assert_eq!((cluster.domain_of(3, 0), cluster.domain_of(3, 1)), (Some(2), Some(0)));
    let stored = serde_json::to_string(&cluster).unwrap();
    assert_eq!(serde_json::from_str::<Cluster>(&stored).unwrap(), cluster);
    // What is stored is checked once more when it is read.
    assert!(serde_json::from_str::<Cluster>(&stored.replace("\"n3\"", "\"n0\"")).is_err());
}

#[test]
fn a_link_must_be_the_same_both_ways() {
    let (field, why) = refused(|parts| parts.nodes[1].links = vec![pair(0, 1, 20.0), pair(1, 0, 5.0)]);
    assert_eq!(field, "nodes[1].links[1].bandwidth");
    assert!(why.contains("differs from the opposite direction"), "{why}");
    let mut both = parts();
    both.nodes[1].links = vec![pair(0, 1, 20.0), pair(1, 0, 20.0)];
    assert_eq!(Cluster::new(both).unwrap().nodes()[1].links, [pair(0, 1, 20.0)]);
}

#[test]
fn bandwidths_and_latencies_are_positive_numbers() {
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
        let of_pair = refused(|parts| parts.nodes[0].links = vec![pair(0, 1, wrong)]);
        assert_eq!(of_pair.0, "nodes[0].links[0].bandwidth", "{wrong}");
        let of_network = refused(|parts| parts.nodes[2].network = Some(link(wrong)));
        assert_eq!(of_network.0, "nodes[2].network.bandwidth", "{wrong}");
        let of_tier = refused(|parts| parts.tiers[1].link = Some(link(wrong)));
        assert_eq!(of_tier.0, "tiers[1].bandwidth", "{wrong}");
    }
    let late = Link { latency_seconds: -1e-6, ..link(1.0) };
    assert_eq!(refused(|parts| parts.nodes[0].link = Some(late)).0, "nodes[0].link.latency");
}

#[test]
fn what_is_not_there_is_named() {
    let cases: [(&str, &str, Bend); 7] = [
        ("nodes[0].links[0].b", "not a device of this node", |parts| {
            parts.nodes[0].links = vec![pair(0, 7, 1.0)]
        }),
        ("nodes[0].links[0].b", "two different devices", |parts| {
            parts.nodes[0].links = vec![pair(1, 1, 1.0)]
        }),
        ("nodes[1].devices[0].kind", "not a device kind", |parts| {
            parts.nodes[1].devices[0].kind = "tpu".to_owned()
        }),
        ("domains[1].nodes[2]", "not a node of the cluster", |parts| {
            parts.domains[1].nodes.push("n9".to_owned())
        }),
        ("domains[1].parent", "not a domain of the cluster", |parts| {
            parts.domains[1].parent = Some("t".to_owned())
        }),
        ("domains[2].level", "not a tier", |parts| parts.domains[2].level = "rack".to_owned()),
        ("nodes", "has no nodes", |parts| parts.nodes.clear()),
    ];
    for (field, why, bend) in cases {
        let found = refused(bend);
        assert!(found.0 == field && found.1.contains(why), "{found:?}, expected {field}: {why}");
    }
}

#[test]
fn names_are_unique() {
    let cases: [(&str, Bend); 6] = [
        ("nodes[3].name", |parts| parts.nodes[3].name = "n0".to_owned()),
        ("kinds[1].name", |parts| parts.kinds.push(parts.kinds[0].clone())),
        ("tiers[1].level", |parts| parts.tiers[1].level = "leaf".to_owned()),
        ("domains[2].name", |parts| parts.domains[2].name = "a".to_owned()),
        ("nodes[0].devices[1].index", |parts| parts.nodes[0].devices[1].index = 0),
        ("nodes[0].devices[1].uuid", |parts| {
            for device in &mut parts.nodes[0].devices {
                device.uuid = "GPU-1".to_owned();
            }
        }),
    ];
    for (field, bend) in cases {
        let found = refused(bend);
        assert!(found.0 == field && found.1.contains("listed twice"), "{found:?}, expected {field}");
    }
}

#[test]
fn domains_are_a_tree() {
    let (field, why) = refused(|parts| {
        parts.domains[0].parent = Some("a".to_owned());
    });
    assert_eq!(field, "domains[0].parent");
    assert!(why.contains("cycle") && why.contains("s in a in s"), "{why}");
    let (field, why) = refused(|parts| parts.domains[1].parent = Some("b".to_owned()));
    assert!(field == "domains[1].parent" && why.contains("at the same or a lower level"), "{field}: {why}");
    let (field, why) = refused(|parts| parts.domains[2].nodes.push("n0".to_owned()));
    assert!(
        field == "domains[2].nodes[2]" && why.contains("two domains of the level \"leaf\""),
        "{field}: {why}"
    );
    // Once more in a domain that contains its own is no contradiction.
    let mut again = parts();
    again.domains[0].nodes.push("n0".to_owned());
    assert!(Cluster::new(again).is_ok());
}

#[test]
fn every_two_devices_and_nodes_have_a_link() {
    let (field, why) = refused(|parts| {
        parts.nodes[0] = Node { link: None, links: vec![pair(0, 1, 1.0), pair(1, 2, 1.0)], ..node("n0", 3) };
    });
    assert!(
        field == "nodes[0].links" && why.contains("the link between devices 0 and 2 is missing"),
        "{field}: {why}"
    );
    let (field, why) = refused(|parts| parts.nodes[2].network = None);
    assert!(
        field == "nodes[2].network" && why.contains("the link between the nodes n2 and n0 is missing"),
        "{field}: {why}"
    );
    let mut by_tiers = parts();
    by_tiers.nodes.iter_mut().for_each(|node| node.network = None);
    by_tiers.tiers.iter_mut().for_each(|tier| tier.link = Some(link(1.0)));
    assert!(Cluster::new(by_tiers).is_ok());
}

#[test]
fn sizes_have_limits() {
    assert_eq!(refused(|parts| parts.nodes[0] = node("n0", 129)).0, "nodes[0].devices");
    assert_eq!(refused(|parts| parts.nodes[0].devices.clear()).0, "nodes[0].devices");
    assert_eq!(
        refused(|parts| parts.nodes = (0..20_001).map(|n| node(&n.to_string(), 1)).collect()).0,
        "nodes"
    );
    assert_eq!(refused(|parts| parts.nodes[0].name = "x".repeat(254)).0, "nodes[0].name");
    assert_eq!(refused(|parts| parts.nodes[0].name = "a\nb".to_owned()).0, "nodes[0].name");
    assert_eq!(refused(|parts| parts.kinds[0].usable = Bytes(101)).0, "kinds[0].usable_memory_bytes");
    assert_eq!(refused(|parts| parts.kinds[0].hourly_price = Some(f64::NAN)).0, "kinds[0].hourly_price");
    assert_eq!(refused(|parts| parts.tiers = (0..17).map(|n| tier(&n.to_string())).collect()).0, "tiers");
}

/// The largest cluster that is promised: more than 10,000 devices.
#[test]
fn ten_thousand_devices_have_room() {
    let mut large = parts();
    large.nodes = (0..1_250).map(|n| node(&format!("n{n}"), 8)).collect();
    assert_eq!(Cluster::new(large).unwrap().device_count(), 10_000);
}

proptest! {
    /// Domains given by random parents are a tree or are refused; nothing hangs or panics. A node in a domain is also in
    /// all domains around that domain.
    #[test]
    fn any_parents_are_a_tree_or_refused(
        parents in prop::collection::vec(prop::option::of(0_usize..8), 8),
        levels in prop::collection::vec(0_usize..4, 8),
        places in prop::collection::vec(0_usize..8, 4),
    ) {
        let mut random = parts();
        random.tiers = (0..4).map(|level| tier(&level.to_string())).collect();
        random.domains = parents
            .iter()
            .zip(&levels)
            .enumerate()
            .map(|(index, (parent, level))| Domain {
                level: level.to_string(),
                name: format!("d{index}"),
                parent: parent.map(|parent| format!("d{parent}")),
                nodes: (0..4).filter(|&node| places[node] == index).map(|node| format!("n{node}")).collect(),
            })
            .collect();
        let is_tree = parents.iter().zip(&levels).all(|(parent, level)| parent.is_none_or(|p| levels[p] > *level));
        let cluster = Cluster::new(random);
        prop_assert_eq!(cluster.is_ok(), is_tree);
        if let Ok(cluster) = cluster {
            for (node, &place) in places.iter().enumerate() {
                let mut at = Some(place);
                while let Some(domain) = at {
                    prop_assert_eq!(cluster.domain_of(node, levels[domain]), Some(domain));
                    at = parents[domain];
                }
            }
        }
    }
}
