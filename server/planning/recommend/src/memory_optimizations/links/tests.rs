//! Who says how fast copies are, and what they share.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};
use loadmaster_proto::training::boundaries::BoundaryInterval;

use super::*;
use loadmaster_simulate::Overlap;
use loadmaster_simulate::copies::{
    CopyPipeline, DeviceSteps, Keep, Parcel, Place, TimedStep, Trip, simulate,
};

const FREE: CopyPace = CopyPace { host: None, peer: None };

/// A node of four GPUs, described by these keys of a document.
fn node(keys: &str) -> Node {
    let text = format!(
        "format: loadmaster.cluster/1\nkinds: [{{name: gpu, memory: 80GiB}}]\nnodes:\n  - {{name: n, kind: gpu, devices: 4, {keys}}}\n"
    );
    let cluster: Cluster = import(ClusterFormat::Loadmaster, &text, &ImportOptions::default()).unwrap();
    cluster.nodes()[0].clone()
}

/// Stage by stage the indices of its devices on the node.
fn of(node: &Node, stages: &[&[u32]], pace: CopyPace) -> CopyLinks {
    let stage = |devices: &&[u32]| devices.iter().map(|&device| (Some(node), device)).collect();
    CopyLinks::of(&stages.iter().map(stage).collect::<Vec<_>>(), "gpu", pace)
}

fn host_ways(stages: u32) -> BTreeSet<Way> {
    (0..stages).flat_map(|stage| [Way::ToHost(stage), Way::FromHost(stage)]).collect()
}

fn both(from: u32, to: u32) -> [Way; 2] {
    [Way::Between { from, to }, Way::Between { from: to, to: from }]
}

fn gigabytes(links: &Links, way: Way) -> f64 {
    links.ways[&way].bytes_per_second / 1e9
}

/// Each device moves two gigabytes to its place and back, with nothing to do meanwhile: seconds of both.
fn seconds(links: &CopyLinks, places: &[Place]) -> f64 {
    let trip = |&place: &Place| Trip {
        at: BoundaryInterval { fetched: 2, needed: 2, leaves: 1, freed: 1 },
        parcels: vec![Parcel { place, bytes: 2_000_000_000 }],
    };
    let device = |place| DeviceSteps { steps: vec![TimedStep::alone(1.0); 3], trips: vec![trip(place)] };
    let devices: Vec<DeviceSteps> = places.iter().map(device).collect();
    let used = (0..).zip(places).flat_map(|(own, place)| match *place {
        Place::Host => [Way::ToHost(own), Way::FromHost(own)],
        Place::Peer(peer) => both(own, peer),
    });
    let links = links.links(&used.collect());
    let stepped = CopyPipeline { devices: &devices, edges: &[], overlap: Overlap::Computing, links: &links };
    simulate(&stepped, Keep::default()).unwrap().iteration_seconds - 3.0
}

/// No one set it: by the kind of device, as before there was anything to say.
#[test]
fn what_nobody_says_is_guessed_by_the_kind_of_device() {
    let stages = vec![vec![(None, 0)], vec![(None, 1)]];
    let told = |kind: &str, pace| CopyLinks::of(&stages, kind, pace).told(&BTreeSet::new());
    assert_eq!(
        told("gpu", FREE),
        "copies to CPU memory at 25.00 GB/s (guessed), to peers at 100.00 GB/s (guessed)"
    );
    assert_eq!(
        told("cpu", CopyPace { host: Some(1e9), peer: None }),
        "copies to CPU memory at 1.00 GB/s (given), to peers at 5.00 GB/s (guessed)"
    );
    let alone = CopyLinks::of(&stages[..1], "gpu", FREE).told(&BTreeSet::new());
    assert!(alone.contains("to peers at 100.00 GB/s (guessed)"), "{alone}");
    // A node that says nothing of its host is guessed there alone.
    let silent = of(&node("link: {bandwidth: 40GB/s}"), &[&[0], &[1]], FREE);
    assert_eq!(
        silent.told(&host_ways(2)),
        "copies to CPU memory at 25.00 GB/s (guessed), to peers at 40.00 GB/s (of the cluster, given)"
    );
}

/// The request wins over the cluster, link by link; the cluster over guesses, each device and direction as it is.
#[test]
fn the_request_wins_over_the_cluster_and_the_cluster_over_guesses() {
    let node = node(
        "host: {link: {bandwidth: 24GB/s, back: 20GB/s, origin: measured}, links: [{device: 2, bandwidth: 12GB/s, origin: \
         assumed}]}, peers: [{a: 0, b: 1, bandwidth: 90GB/s, back: 80GB/s, origin: measured}]",
    );
    let links = of(&node, &[&[1], &[0], &[2]], FREE);
    let used = host_ways(3);
    let simulated = links.links(&used);
    let rates = [Way::ToHost(0), Way::FromHost(0), Way::ToHost(2), Way::FromHost(2)];
    assert_eq!(rates.map(|way| gigabytes(&simulated, way)), [24.0, 20.0, 12.0, 12.0]);
    // Stage 0 is on device 1: its copies to stage 1 go from device 1 to device 0.
    assert_eq!(both(0, 1).map(|way| gigabytes(&simulated, way)), [80.0, 90.0]);
    let link = node.link.unwrap();
    assert_eq!(gigabytes(&simulated, Way::Between { from: 1, to: 2 }), link.bytes_per_second / 1e9);
    assert!(simulated.ways[&Way::Between { from: 1, to: 2 }].latency_seconds > 0.0);
    let told = links.told(&used);
    assert!(
        told.contains(
            "to CPU memory at 12.00 to 24.00 GB/s (of the cluster, measured, of the cluster, assumed)"
        ),
        "{told}"
    );
    assert_eq!(
        links
            .to_host()
            .iter()
            .map(|link| [link.out, link.back].map(|way| way.bytes_per_second / 1e9))
            .collect::<Vec<_>>(),
        [[24.0, 20.0], [24.0, 20.0], [12.0, 12.0]]
    );

    let asked = of(&node, &[&[1], &[0], &[2]], CopyPace { host: Some(2e9), peer: None });
    let simulated = asked.links(&used);
    assert_eq!((gigabytes(&simulated, Way::ToHost(2)), gigabytes(&simulated, Way::FromHost(0))), (2.0, 2.0));
    assert_eq!(gigabytes(&simulated, Way::Between { from: 0, to: 1 }), 80.0);
    assert!(asked.told(&used).starts_with("copies to CPU memory at 2.00 GB/s (given), to peers at"));
}

/// Two devices below one switch take turns with its uplink; rates of the request know of none.
#[test]
fn devices_below_one_switch_share_its_uplink() {
    let node = node(
        "host: {link: {bandwidth: 20GB/s, latency: 0}, uplinks: [{devices: [0, 1], bandwidth: 20GB/s, origin: assumed}]}",
    );
    let places = [Place::Host; 2];
    let together = of(&node, &[&[0], &[1]], FREE);
    let apart = of(&node, &[&[0], &[2]], FREE);
    assert!((seconds(&apart, &places) - 0.2).abs() < 1e-6, "{}", seconds(&apart, &places));
    assert!((seconds(&together, &places) - 0.4).abs() < 1e-6, "{}", seconds(&together, &places));
    let told = together.told(&host_ways(2));
    assert!(
        told.contains(
            "; stage 0 to the host, stage 1 to the host share 20 GB/s (of the cluster, assumed); the host to"
        ),
        "{told}"
    );
    assert!(!apart.told(&host_ways(2)).contains("share"));
    // Where one of the two copies nothing there is nothing to share, and nothing to simulate.
    assert!(together.links(&host_ways(1)).shared.is_empty());
    let asked = of(&node, &[&[0], &[1]], CopyPace { host: Some(20e9), peer: None });
    assert!((seconds(&asked, &places) - 0.2).abs() < 1e-6);
}

/// A half-duplex link has both directions take turns: two trips that cross need as long as four ways.
#[test]
fn a_half_duplex_link_takes_turns() {
    let keys = |duplex: &str| {
        format!(
            "link: {{bandwidth: 10GB/s, latency: 0}}, peers: [{{a: 0, b: 1, bandwidth: 10GB/s, latency: 0{duplex}}}]"
        )
    };
    let crossing = [Place::Peer(1), Place::Peer(0)];
    let full = seconds(&of(&node(&keys("")), &[&[0], &[1]], FREE), &crossing);
    let half = seconds(&of(&node(&keys(", duplex: half")), &[&[0], &[1]], FREE), &crossing);
    assert!((full - 0.4).abs() < 1e-6 && (half - 0.8).abs() < 1e-6, "{full} {half}");
    let measured = node(&keys(", both: 15GB/s, origin: measured"));
    let between = seconds(&of(&measured, &[&[0], &[1]], FREE), &crossing);
    assert!(between > full && between < half, "{between}");
}

/// Peers without NVLink go over the PCIe links of both, which copies to the host need, too; NVLink leaves them alone.
#[test]
fn peers_over_pcie_take_of_the_links_to_the_host() {
    let keys = |class: &str| {
        format!(
            "link: {{class: {class}, bandwidth: 10GB/s, latency: 0}}, host: {{link: {{bandwidth: 10GB/s, latency: 0}}}}"
        )
    };
    let of_pairs = of(&node(&keys("PHB")), &[&[0], &[1]], FREE);
    assert!(
        of_pairs.links(&both(0, 1).into()).shared.is_empty(),
        "each direction of the pair has the links alone"
    );
    let crossing = seconds(&of_pairs, &[Place::Peer(1), Place::Peer(0)]);
    assert!((crossing - 0.4).abs() < 1e-6, "{crossing}");
    // Two come in at device 1 over one link, and leave over one.
    let fan = [Place::Peer(1), Place::Host, Place::Peer(1)];
    let [pcie, nvlink] =
        ["PHB", "NV4"].map(|class| seconds(&of(&node(&keys(class)), &[&[0], &[1], &[2]], FREE), &fan));
    assert!((pcie - 0.8).abs() < 1e-6 && (nvlink - 0.4).abs() < 1e-6, "{pcie} {nvlink}");
}

/// Where a stage has several devices, the slowest stands for all, and what they share has a part for each.
#[test]
fn devices_of_a_stage_copy_at_the_same_time() {
    let node = node(
        "host: {link: {bandwidth: 20GB/s, latency: 0}, links: [{device: 1, bandwidth: 16GB/s, latency: 0}], uplinks: \
         [{devices: [2, 3], bandwidth: 20GB/s}]}",
    );
    let links = of(&node, &[&[0, 1], &[2, 3]], FREE);
    let simulated = links.links(&host_ways(2));
    assert_eq!([Way::ToHost(0), Way::ToHost(1)].map(|way| gigabytes(&simulated, way)), [16.0, 20.0]);
    assert!((seconds(&links, &[Place::Host; 2]) - 0.4).abs() < 1e-6, "half of the uplink each");
    assert_eq!(node.copies.as_ref().unwrap().host_memory, None::<Bytes>);
}
