//! Links and kinds of devices: what a file does not say is filled from the kind and named, and never becomes PCIe without a
//! word.

use super::super::*;
use super::{options, read, refused};
use crate::cluster::{LinkClass, LinkOrigin, Node};

/// aws/aws-ofi-nccl, `topology/p5.48xl-topo.xml`, commit 79565c0e5a38, Apache-2.0: a template, which NCCL completes.
const P5: &str = include_str!("../fixtures/p5.48xl-topo.xml");
const TWO_TRAYS: &str = include_str!("../fixtures/nccl-gb300-two-trays.xml");
const ONE_TRAY: &str = include_str!("../fixtures/nccl-gb300-one-tray.xml");
const PARTS: &str = include_str!("../fixtures/nccl-mlopart.xml");
const MI300A: &str = include_str!("../fixtures/rccl-mi300a.xml");
const BLOCKS: &str = include_str!("../fixtures/blocks-gb200.conf");
const BY_HAND: &str = include_str!("../fixtures/blocks-gb200-by-hand.yaml");
const KINDS: &str = include_str!("../fixtures/kinds.txt");
const FOUR_NODES: &str = include_str!("../fixtures/four-nodes.conf");

fn of_kind(kind: &str) -> ImportOptions {
    ImportOptions { devices_per_node: None, ..options(kind, 1) }
}

/// 10⁹ bytes per second between two devices of a node.
fn between(node: &Node, a: u32, b: u32) -> f64 {
    rounded(node.link_between(a, b).unwrap().bytes_per_second)
}

fn rounded(bytes_per_second: f64) -> f64 {
    (bytes_per_second / 1e8).round() / 10.0
}

fn warnings(cluster: &Cluster) -> String {
    cluster.warnings().iter().map(|of| of.message.as_str()).collect::<Vec<_>>().join("\n")
}

/// 8 H100 with 18 NVLinks each over NVSwitches, which the file does not have; 32 cards of 100 Gbit/s.
#[test]
fn a_template_without_nvlinks_gets_those_of_its_kind() {
    let cluster = read(P5, &of_kind("NVIDIA H100 80GB HBM3"));
    let node = &cluster.nodes()[0];
    for (a, b) in (0..8).flat_map(|b| (0..b).map(move |a| (a, b))) {
        assert_eq!(between(node, a, b), 370.8, "{a} {b}");
    }
    assert_eq!((node.link_class, node.link.unwrap().origin), (Some(LinkClass::NvLink), LinkOrigin::Assumed));
    assert_eq!(rounded(node.network.unwrap().bytes_per_second), 384.0);
    // Four of the 32 cards are each GPU's.
    assert_eq!(node.network_links, Some(32));
    assert_eq!(rounded(node.network_of_one_transfer().unwrap().bytes_per_second), 48.0);
    let told = warnings(&cluster);
    assert!(
        told.contains("no <nvlink>") && told.contains("NCCL_TOPO_DUMP_FILE") && told.contains("H100"),
        "{told}"
    );

    // Of a kind that is not known PCIe is what the file says, and the kind is named.
    let cluster = read(P5, &of_kind("Some Other GPU"));
    assert!(between(&cluster.nodes()[0], 0, 1) < 100.0);
    assert!(
        warnings(&cluster).contains("\"Some Other GPU\" is not in the catalog"),
        "{}",
        warnings(&cluster)
    );
    // What is given counts, and leaves nothing to warn of.
    let given = ImportOptions { link_bytes_per_second: Some(300e9), ..of_kind("Some Other GPU") };
    let cluster = read(P5, &given);
    assert_eq!(between(&cluster.nodes()[0], 0, 7), 300.0);
    assert_eq!(warnings(&cluster), "");
}

/// Two trays of four GB300 of one NVLink domain, of which GPU 1 of the second has lost its NVLinks.
#[test]
fn a_dump_of_several_hosts_is_a_domain_of_nvlink() {
    let cluster = read(TWO_TRAYS, &of_kind("NVIDIA GB300"));
    let names: Vec<&str> = cluster.nodes().iter().map(|node| node.name.as_str()).collect();
    assert_eq!((names.as_slice(), cluster.device_count()), (["node0", "node1"].as_slice(), 8));
    let [first, second] = cluster.nodes() else { panic!("two nodes") };
    assert_eq!((between(first, 0, 3), between(second, 0, 2)), (721.8, 721.8));
    assert!(between(second, 0, 1) < 100.0);
    // Between the nodes.
    let meet = cluster.domain_of(0, 0).unwrap();
    assert_eq!(cluster.domain_of(1, 0), Some(meet));
    assert_eq!(rounded(cluster.tiers()[0].link.unwrap().bytes_per_second), 721.8);
    assert!(
        cluster.nodes().iter().all(|node| node.network.is_none()),
        "no network card is in the way of NVLink"
    );
    let told = warnings(&cluster);
    assert!(told.contains("GPU 1 (0009:06:00.0) of node1 has no NVLink"), "{told}");

    let named = ImportOptions { nodes: Some("tray[07-08]".to_owned()), ..of_kind("NVIDIA GB300") };
    assert_eq!(read(TWO_TRAYS, &named).nodes()[1].name, "tray08");
    let three = ImportOptions { nodes: Some("tray[1-3]".to_owned()), ..of_kind("NVIDIA GB300") };
    let (field, why) = refused(ClusterFormat::NcclXml, TWO_TRAYS, &three);
    assert!(field == "options.nodes" && why.contains("3 names") && why.contains("2 hosts"), "{field}: {why}");
    // A file of one tray is one node, as ever.
    let alone = read(ONE_TRAY, &of_kind("NVIDIA GB300"));
    assert_eq!((alone.nodes().len(), alone.tiers().len(), between(&alone.nodes()[0], 0, 3)), (1, 0, 721.8));
    // Without `host_hash` the same number twice is an error that speaks of what is in the file.
    let merged = TWO_TRAYS.replace("host_hash=\"0xb0b0002\"", "").replace("host_hash=\"0xa11ce0001\"", "");
    let (field, why) = refused(ClusterFormat::NcclXml, &merged, &of_kind("NVIDIA GB300"));
    assert!(field == "document.system.gpu" && why.contains("host_hash"), "{field}: {why}");
}

/// NCCL writes two GPUs of one number where the driver parts one.
#[test]
fn parts_of_a_gpu_are_devices() {
    let cluster = read(PARTS, &of_kind("NVIDIA VR200"));
    let node = &cluster.nodes()[0];
    assert_eq!(node.devices.iter().map(|device| device.index).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(node.link_between(0, 1).map(|_| node.links[0].class), Some(Some(LinkClass::NvLink)));
}

/// Each two of four MI300A have one xGMI link; each has a card of 200 Gbit/s, which the file has in kb/s.
#[test]
fn rccls_dump_has_xgmi_and_no_network_that_no_hardware_has() {
    let cluster = read(MI300A, &of_kind("AMD Instinct MI300A"));
    let node = &cluster.nodes()[0];
    for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        assert_eq!(between(node, a, b), 48.0, "{a} {b}");
    }
    assert_eq!(node.links[0].class, Some(LinkClass::Xgmi));
    let network = rounded(node.network.unwrap().bytes_per_second);
    assert!((96.0..=100.0).contains(&network), "{network}");
    assert_eq!(node.network_links, Some(4));
    assert!(warnings(&cluster).contains("2e8 Mb/s, which is too high"), "{}", warnings(&cluster));
    // In no unit.
    let absurd = MI300A.replace("speed=\"200000000\"", "speed=\"9e18\"");
    let (field, why) = refused(ClusterFormat::NcclXml, &absurd, &of_kind("AMD Instinct MI300A"));
    assert!(
        field == "document.net.speed" && why.contains("out of range for a network card"),
        "{field}: {why}"
    );
    // Links that are not the same both ways are refused, as NVLinks are.
    let torn = MI300A.replacen(
        "<xgmi target=\"0000:c2:00.0\" count=\"1\"",
        "<xgmi target=\"0000:c2:00.0\" count=\"2\"",
        1,
    );
    let (_, why) = refused(ClusterFormat::NcclXml, &torn, &of_kind("AMD Instinct MI300A"));
    assert!(why.contains("for both directions"), "{why}");
}

/// 16 nodes of four GB200 are one block, which is an NVLink domain.
#[test]
fn blocks_of_devices_whose_nvlinks_cross_nodes_are_linked_by_them() {
    let options = ImportOptions { network_bytes_per_second: Some(200e9), ..options("NVIDIA GB200", 4) };
    let cluster = read(BLOCKS, &options);
    let by_hand = read(BY_HAND, &ImportOptions::default());
    assert_eq!((cluster.nodes().len(), cluster.device_count()), (16, 64));
    let link = |cluster: &Cluster| rounded(cluster.tiers()[0].link.unwrap().bytes_per_second);
    assert_eq!((link(&cluster), link(&by_hand)), (721.8, 722.0));
    assert_eq!(between(&cluster.nodes()[0], 0, 3), 721.8);
    assert!((0..16).all(|node| cluster.domain_of(node, 0) == Some(0)));
    assert!(cluster.nodes().iter().all(|node| node.network.is_none()));
    // Nodes of different blocks meet on the network.
    assert_eq!(cluster.tiers().last().unwrap().link.unwrap().bytes_per_second, 200e9);
    assert!(warnings(&cluster).contains("each block is assumed to be an NVLink domain of \"NVIDIA GB200\""));

    // Devices whose NVLinks end at the node: the block is a part of the network.
    let cluster = read(BLOCKS, &self::options("NVIDIA H100 80GB HBM3", 8));
    assert_eq!((cluster.tiers()[0].link, warnings(&cluster).as_str()), (None, ""));
    // More than a domain holds.
    let large = BLOCKS.replace("node[0001-0016]", "node[0001-0019]");
    let cluster = read(&large, &options);
    assert_eq!(cluster.tiers()[0].link, None);
    assert!(warnings(&cluster).contains("76 devices"), "{}", warnings(&cluster));
    // A tree of switches does not say which nodes share NVLinks, and that is said.
    let cluster = read(FOUR_NODES, &options);
    assert!(
        warnings(&cluster).contains("does not describe which nodes they connect"),
        "{}",
        warnings(&cluster)
    );
}

/// One way: A800 8 × 20, H800 8 × 20.6, H20 18 × 20.6 GB/s, MI300X 48 per pair; and H100 however it is spelled.
#[test]
fn kinds_have_their_links_in_every_spelling() {
    let expected = [160.0, 164.8, 370.8, 48.0, 370.8, 370.8, 370.8, 370.8];
    let kinds: Vec<&str> = KINDS.lines().collect();
    assert_eq!(kinds.len(), expected.len());
    for (kind, expected) in kinds.into_iter().zip(expected) {
        let cluster = read(FOUR_NODES, &options(kind, 8));
        assert_eq!((between(&cluster.nodes()[0], 0, 7), cluster.kinds()[0].name.as_str()), (expected, kind));
        assert_eq!(warnings(&cluster), "", "{kind}");
    }
    // A superchip's NVLinks go to the others of its node, so how fast a pair is depends on how many there are.
    let pair = |devices| between(&read(FOUR_NODES, &options("NVIDIA GH200 480GB", devices)).nodes()[0], 0, 1);
    assert_eq!((pair(2), pair(4)), (370.8, 123.6));
}

/// Whatever the format, a kind that is not known is named once.
#[test]
fn an_unknown_kind_is_named() {
    for text in [FOUR_NODES, super::NVIDIA_SMI, super::TOPOGRAPH_ATTRIBUTES, MI300A] {
        let devices = if text == FOUR_NODES || text == super::TOPOGRAPH_ATTRIBUTES { 8 } else { 4 };
        let told = warnings(&read(text, &options("NVIDIA X9000", devices)));
        assert_eq!(told.matches("\"NVIDIA X9000\" is not in the catalog").count(), 1, "{told}");
    }
    let document = "format: loadmaster.cluster/1\nkinds: [{name: NVIDIA X9000, memory: 80GiB}]\nnodes:\n  \
                    - {name: n, kind: NVIDIA X9000, devices: 8}\n";
    assert!(warnings(&read(document, &ImportOptions::default())).contains("not in the catalog"));
    let given = document.replace("devices: 8", "devices: 8, link: {bandwidth: 400GB/s}");
    assert_eq!(warnings(&read(&given, &ImportOptions::default())), "");
    // Where there is one device there is no link to guess.
    let alone = document.replace("devices: 8", "devices: 1");
    assert_eq!(warnings(&read(&alone, &ImportOptions::default())), "");
}

/// The matrix of a machine whose fabric manager is down has no NVLinks: that is no property of the kind.
#[test]
fn a_matrix_without_nvlinks_is_doubted() {
    let down = super::NVIDIA_SMI.replace("NV12", "SYS");
    let told = warnings(&read(&down, &options("NVIDIA A100-SXM4-80GB", 4)));
    assert!(told.contains("although \"NVIDIA A100-SXM4-80GB\" has NVLinks"), "{told}");
}

/// Bandwidths that no hardware has are doubted, not refused: the unit may be wrong.
#[test]
fn bandwidths_that_no_hardware_has_are_doubted() {
    let document = |link: &str, network: &str, tier: &str| {
        format!(
            "format: loadmaster.cluster/1\nkinds: [{{name: H100, memory: 80GiB}}]\nnodes:\n  - {{name: \"n[1-2]\", kind: \
             H100, devices: 8, link: {{bandwidth: {link}}}, network: {{bandwidth: {network}}}}}\ntiers: [{{level: t, \
             bandwidth: {tier}}}]\n"
        )
    };
    let told =
        |link, network, tier| warnings(&read(&document(link, network, tier), &ImportOptions::default()));
    assert_eq!(told("371GB/s", "3200Gb/s", "3200Gb/s"), "");
    assert!(told("37100GB/s", "3200Gb/s", "3200Gb/s").contains("between devices of \"n1\" has 37.1 TB/s"));
    assert!(told("371GB/s", "96TB/s", "3200Gb/s").contains("the network of \"n1\" has 96 TB/s"));
    assert!(told("371GB/s", "3200Gb/s", "8TB/s").contains("the tier \"t\" has 8 TB/s"));
}

/// How many links a node's network has, and what one transfer has of them.
#[test]
fn a_document_states_the_links_of_a_network() {
    let document = |network: &str| {
        format!(
            "format: loadmaster.cluster/1\nkinds: [{{name: GH200, memory: 96GB}}]\nnodes:\n  - {{name: \"n[1-2]\", kind: \
             GH200, devices: 4, {network}}}\n"
        )
    };
    let node = |network: &str| read(&document(network), &ImportOptions::default()).nodes()[0].clone();
    let one = |network: &str| rounded(node(network).network_of_one_transfer().unwrap().bytes_per_second);
    assert_eq!(one("network: {bandwidth: 800Gb/s}"), 100.0);
    assert_eq!(one("network: {bandwidth: 800Gb/s, links: 4}"), 25.0);
    assert_eq!(one("network: {bandwidth: 800Gb/s, links: 2}"), 50.0);
    // Of eight links each of the four devices has two.
    assert_eq!(one("network: {bandwidth: 800Gb/s, links: 8}"), 25.0);
    let silent = serde_json::to_string(&node("network: {bandwidth: 800Gb/s}")).unwrap();
    assert!(!silent.contains("network_links"), "a node that does not say it is stored as before");
    for (network, field) in [
        ("network: {bandwidth: 800Gb/s, links: 0}", "document.nodes[0].network_links"),
        ("network: {bandwidth: 800Gb/s, links: 5000}", "document.nodes[0].network_links"),
        ("network: {bandwidth: 8Gb/s}, link: {bandwidth: 1GB/s, links: 4}", "document.nodes[0].link.links"),
    ] {
        assert_eq!(
            refused(ClusterFormat::Loadmaster, &document(network), &ImportOptions::default()).0,
            field
        );
    }
}
