//! What connected workers are as a cluster.

use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::links::copies::{
    CopyMeasurement, CopySpeeds, CopyWay, DeviceCopies, PairCopies,
};
use loadmaster_proto::measure::links::updates::{DeviceUpdates, TimedUpdate};
use loadmaster_proto::measure::links::{Collectives, GroupLink, LinkPoint, PairLink};
use loadmaster_proto::training::step_kind::StepKind;

use super::*;

fn slot(ordinal: u32, mebibytes: u64) -> Device {
    Device {
        id: format!("cpu{ordinal}"),
        backend: Backend::Cpu,
        kind: "cpu".to_owned(),
        capacity: Bytes(mebibytes << 20),
        physical: Bytes(mebibytes << 20),
        uuid: String::new(),
        ordinal,
        driver_version: String::new(),
        pci_bus_id: String::new(),
    }
}

fn gpu(ordinal: u32) -> Device {
    Device {
        id: format!("gpu{ordinal}"),
        backend: Backend::Cuda,
        kind: "NVIDIA H100 80GB HBM3".to_owned(),
        uuid: format!("GPU-{ordinal}"),
        pci_bus_id: format!("00000000:{ordinal:02}:00.0"),
        driver_version: "580.1".to_owned(),
        ..slot(ordinal, 80 << 10)
    }
}

/// GPUs keep the numbers that the driver and frameworks have for them, also beside slots of the CPU.
#[test]
fn gpus_have_the_numbers_of_their_driver() {
    let told = |devices: &[Device]| {
        let worker = worker("w", "host", devices, &[]);
        indices(&worker.devices.iter().map(|device| (&worker, *device)).collect::<Vec<_>>())
    };
    assert_eq!(told(&[gpu(4), gpu(5), slot(0, 1), slot(4, 1)]), [4, 5, 6, 10]);
    assert_eq!(told(&[slot(0, 1), slot(1, 1), gpu(0)]), [1, 2, 0]);
    assert_eq!(told(&[slot(1, 1), slot(3, 1)]), [1, 3]);
    assert_eq!(told(&[gpu(1), gpu(1), gpu(0)]), [0, 1, 2], "shares of one have none of their own");
}

fn nvlink(a: u32, b: u32, count: u32) -> GpuLink {
    GpuLink {
        a_uuid: format!("GPU-{a}"),
        b_uuid: format!("GPU-{b}"),
        class: if count > 0 { LinkClass::NvLink } else { LinkClass::System },
        nvlink_count: count,
        compute_capability: 90,
        pcie_generation: 5,
        pcie_lanes: 16,
    }
}

fn worker<'a>(
    name: &str,
    host: &'a str,
    devices: &'a [Device],
    links: &'a [GpuLink],
) -> DiscoveredWorker<'a> {
    let name = format!("workers/{name}");
    let devices = devices.iter().collect();
    DiscoveredWorker { name, host, devices, links, measured: None, host_memory: Bytes(0) }
}

#[test]
fn slots_of_a_host_are_a_node_whose_smaller_ones_say_so() {
    let (first, second) = ([slot(0, 2_048), slot(1, 2_048)], [slot(0, 1_024)]);
    let workers =
        [worker("a", "n1", &first, &[]), worker("b", "n1", &second, &[]), worker("c", "n2", &first, &[])];
    let cluster = discover(&workers, None).unwrap();
    let names: Vec<&str> = cluster.nodes().iter().map(|node| node.name.as_str()).collect();
    assert_eq!((names, cluster.device_count()), (vec!["n1", "n2"], 5));
    let node = &cluster.nodes()[0];
    let slots: Vec<&str> = node.devices.iter().map(|device| device.slot.as_str()).collect();
    assert_eq!(slots, ["workers/a/cpu0", "workers/a/cpu1", "workers/b/cpu0"]);
    assert_eq!((node.devices[1].usable, node.devices[2].usable), (None, Some(Bytes(1_024 << 20))));
    assert_eq!((node.link, node.link_class), (Some(priors::host_memory()), Some(LinkClass::System)));
    assert_eq!(node.network.unwrap().origin, LinkOrigin::Assumed);
    let given = discover(&workers[..1], Some(1e9)).unwrap();
    assert_eq!(given.nodes()[0].network.unwrap().origin, LinkOrigin::Given);
    assert_eq!(discover(&[], None).unwrap_err().violations()[0].field, "kinds");
}

#[test]
fn gpus_have_the_links_that_their_driver_describes() {
    let gpus = [gpu(0), gpu(1), gpu(2)];
    let links = [nvlink(0, 1, 18), nvlink(0, 2, 0), nvlink(1, 2, 0)];
    let cluster = discover(&[worker("a", "n1", &gpus, &links)], None).unwrap();
    let node = &cluster.nodes()[0];
    assert_eq!((node.links[0].class, node.links[0].count), (Some(LinkClass::NvLink), 18));
    assert!((node.links[0].link.bytes_per_second - 370.8e9).abs() < 1e6);
    assert_eq!(node.links[1].class, Some(LinkClass::System));
    assert_eq!((node.driver_version.as_str(), node.network), ("580.1", None));
    let told: Vec<&str> = cluster.warnings().iter().map(|of| of.message.as_str()).collect();
    let missing = "GPU-2 in n1 has no NVLink, but other GPUs of the host have. Check the health of this GPU";
    assert_eq!(told, [missing]);
}

/// Of what slots add up, too, where that is slower than what one sends.
#[test]
fn what_was_measured_counts_most() {
    let slots = [slot(0, 2_048), slot(1, 2_048), slot(2, 2_048)];
    let points = |rate: f64| {
        let seconds = |bytes: u64| 1e-5 + bytes as f64 / rate;
        let point = |payload_bytes| LinkPoint { payload_bytes, seconds: seconds(payload_bytes) };
        vec![point(1 << 16), point(1 << 24)]
    };
    let measurement = LinkMeasurement {
        device_ids: vec!["cpu2".to_owned(), "cpu0".to_owned()],
        transport: Collectives::Host,
        pairs: vec![PairLink::new(0, 1, points(1e9)).unwrap()],
        groups: vec![GroupLink::new(vec![0, 1], points(8e8)).unwrap()],
        environment: Environment::default(),
        copies: None,
        updates: Vec::new(),
    };
    let measured = DiscoveredWorker { measured: Some(&measurement), ..worker("a", "n1", &slots, &[]) };
    let cluster = discover(&[measured], None).unwrap();
    let node = &cluster.nodes()[0];
    let found = node.link_between(2, 0).unwrap();
    assert_eq!(found.origin, LinkOrigin::Measured);
    assert!((found.bytes_per_second / 8e8 - 1.0).abs() < 0.01, "{found:?}");
    assert_eq!(node.link_between(0, 1).unwrap().origin, LinkOrigin::Assumed);
}

/// Three slots of which the first two share a way to the host; the second and the third copy into each other slowly.
#[test]
fn measured_copies_become_host_links_uplinks_and_peers() {
    let slots = [slot(0, 2_048), slot(1, 2_048), slot(2, 2_048)];
    let way = |rate: f64, at_once: u32| {
        let point = |payload_bytes: u64| LinkPoint {
            payload_bytes,
            seconds: 1e-5 + f64::from(at_once) * payload_bytes as f64 / rate,
        };
        CopyWay::new(vec![point(1 << 20), point(1 << 24)], at_once).unwrap()
    };
    let speeds =
        |rate: f64, both: f64| CopySpeeds { out: way(rate, 1), back: way(rate, 1), both: Some(way(both, 2)) };
    let device = |device: u32, all: f64| DeviceCopies {
        device,
        host: speeds(10e9, 20e9),
        all_out: way(all, 1),
        all_back: way(all, 1),
        all_next: None,
    };
    let pair = |first, second, both| PairCopies { first, second, copies: speeds(8e9, both) };
    let points = way(1e9, 1).points;
    let measurement = LinkMeasurement {
        device_ids: ["cpu2", "cpu0", "cpu1"].map(str::to_owned).to_vec(),
        transport: Collectives::Host,
        pairs: [(0, 1), (0, 2), (1, 2)].map(|(a, b)| PairLink::new(a, b, points.clone()).unwrap()).to_vec(),
        groups: vec![GroupLink::new(vec![0, 1], points).unwrap()],
        environment: Environment::default(),
        copies: Some(CopyMeasurement {
            devices: vec![device(0, 5e9), device(1, 5e9), device(2, 4e9)],
            pairs: vec![pair(0, 1, 16e9), pair(0, 2, 9e9), pair(1, 2, 16e9)],
        }),
        updates: Vec::new(),
    }
    .checked()
    .unwrap();
    let host_memory = Bytes(1 << 30);
    let worker =
        DiscoveredWorker { measured: Some(&measurement), host_memory, ..worker("a", "n1", &slots, &[]) };
    let cluster = discover(&[worker], None).unwrap();
    let node = &cluster.nodes()[0];
    let copies = node.copies.as_ref().unwrap();
    assert_eq!((copies.host_memory, copies.host_links.len()), (Some(host_memory), 3));
    let host = node.host_link_of(1).unwrap();
    assert_eq!((host.origin(), host.both_bytes_per_second), (LinkOrigin::Measured, None), "full duplex");
    assert!((host.out.bytes_per_second / 10e9 - 1.0).abs() < 1e-6, "{host:?}");
    // All of them together reach 14 of 30 GB/s.
    let [uplink] = copies.uplinks.as_slice() else { panic!("{copies:?}") };
    assert_eq!((&uplink.devices[..], uplink.origin), (&[0, 1, 2][..], LinkOrigin::Measured));
    assert!((uplink.bytes_per_second / 14e9 - 1.0).abs() < 1e-2, "{uplink:?}");
    // Devices 0 and 2 of the measurement are slots 2 and 1.
    let half = node.copies_between(1, 2).unwrap().both_bytes_per_second.unwrap();
    assert!((half / 9e9 - 1.0).abs() < 1e-2, "{half}");
    assert_eq!(node.copies_between(0, 1).unwrap().both_bytes_per_second, None);
    // Nothing measured, nothing offered: nothing said.
    assert_eq!(discover(&[self::worker("a", "n1", &slots, &[])], None).unwrap().nodes()[0].copies, None);
}

/// Drivers know which GPUs are below one switch: what they reach together is the switch's.
#[test]
fn gpus_below_one_switch_share_what_they_reach_together() {
    let gpus = [gpu(0), gpu(1), gpu(2), gpu(3)];
    let class = |a: u32, b: u32, class| GpuLink { class, ..nvlink(a, b, 0) };
    let (near, far) = (LinkClass::PcieBridge, LinkClass::System);
    let links = [
        class(0, 1, near),
        class(0, 2, far),
        class(0, 3, far),
        class(1, 2, far),
        class(1, 3, far),
        class(2, 3, near),
    ];
    let way = |rate: f64| {
        let point = |bytes: u64| LinkPoint { payload_bytes: bytes, seconds: bytes as f64 / rate };
        CopyWay::new(vec![point(1 << 20), point(1 << 24)], 1).unwrap()
    };
    let device = |(device, all): (u32, f64)| DeviceCopies {
        device,
        host: CopySpeeds { out: way(20e9), back: way(20e9), both: None },
        all_out: way(all),
        all_back: way(all),
        all_next: None,
    };
    let points = way(1e9).points;
    let pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];
    let measurement = LinkMeasurement {
        device_ids: (0..4).map(|device| format!("gpu{device}")).collect(),
        transport: Collectives::Nccl,
        pairs: pairs.map(|(a, b)| PairLink::new(a, b, points.clone()).unwrap()).to_vec(),
        groups: vec![GroupLink::new(vec![0, 1], points).unwrap()],
        environment: Environment::default(),
        // The first two slow each other down, the others do not.
        copies: Some(CopyMeasurement {
            devices: [(0, 10e9), (1, 10e9), (2, 20e9), (3, 20e9)].map(device).to_vec(),
            pairs: Vec::new(),
        }),
        updates: Vec::new(),
    };
    let worker = DiscoveredWorker { measured: Some(&measurement), ..worker("a", "n1", &gpus, &links) };
    let cluster = discover(&[worker], None).unwrap();
    let copies = cluster.nodes()[0].copies.clone().unwrap();
    let [uplink] = copies.uplinks.as_slice() else { panic!("{copies:?}") };
    assert_eq!(uplink.devices, [0, 1]);
    assert!((uplink.bytes_per_second / 20e9 - 1.0).abs() < 1e-2, "{uplink:?}");
    assert!(copies.peers.is_empty(), "GPUs cannot copy into others yet");
}

/// Ranks of two workers on one host: of each kind of step the slower one alone, and the most that any of them reach together;
/// a worker that measured nothing takes nothing away.
#[test]
fn updates_of_a_host_are_those_of_its_workers() {
    let slots = [slot(0, 2_048), slot(1, 2_048)];
    let measurement = |alone_seconds: f64, together_seconds: f64| {
        let timed = |step| TimedUpdate { step, parameters: 1_000_000, alone_seconds, together_seconds };
        let of = |device| DeviceUpdates { device, steps: StepKind::ALL.map(timed).to_vec() };
        LinkMeasurement {
            device_ids: vec!["cpu0".to_owned(), "cpu1".to_owned()],
            transport: Collectives::Host,
            pairs: Vec::new(),
            groups: Vec::new(),
            environment: Environment::default(),
            copies: None,
            updates: vec![of(0), of(1)],
        }
    };
    let (first, second) = (measurement(0.010, 0.016), measurement(0.008, 0.020));
    let worker = |name, measured| DiscoveredWorker { measured, ..worker(name, "n1", &slots, &[]) };
    let workers = [worker("a", Some(&first)), worker("b", Some(&second)), worker("c", None)];
    let cluster = discover(&workers, None).unwrap();
    let node = &cluster.nodes()[0];
    assert_eq!(node.updates.len(), StepKind::ALL.len());
    let update = node.host_update(StepKind::AdamBf16).unwrap();
    assert_eq!(update.origin, LinkOrigin::Measured);
    let near = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-9;
    // 1 million parameters in 10 ms; two at once in 16.
    assert!(near(update.parameters_per_second, 100e6), "{update:?}");
    assert!(update.together_per_second.is_some_and(|all| near(all, 125e6)), "{update:?}");
    let known_by_one = discover(&[worker("c", None), worker("a", Some(&first))], None).unwrap();
    let of_one = discover(&[worker("a", Some(&first))], None).unwrap();
    assert_eq!(known_by_one.nodes()[0].updates, of_one.nodes()[0].updates);
    assert_eq!(discover(&[worker("c", None)], None).unwrap().nodes()[0].updates, []);
}
