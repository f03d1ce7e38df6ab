use proptest::prelude::*;

use super::copies::{CopySpeeds, CopyWay, DeviceCopies, PairCopies};
use super::updates::TimedUpdate;
use super::*;
use crate::training::step_kind::StepKind;

fn points(of: impl Fn(f64) -> f64) -> Vec<LinkPoint> {
    let payloads = [4_u64 << 10, 64 << 10, 1 << 20, 16 << 20];
    payloads.map(|payload_bytes| LinkPoint { payload_bytes, seconds: of(payload_bytes as f64) }).to_vec()
}

fn measurement(devices: u32) -> LinkMeasurement {
    let points = || points(|bytes| 1e-5 + bytes / 1e9);
    let work = LinkWork::standard(devices, 1 << 30);
    LinkMeasurement {
        device_ids: (0..devices).map(|device| format!("cpu{device}")).collect(),
        transport: Collectives::Host,
        pairs: work.pairs().map(|(first, second)| PairLink::new(first, second, points()).unwrap()).collect(),
        groups: work
            .groups()
            .into_iter()
            .map(|size| GroupLink::new((0..size).collect(), points()).unwrap())
            .collect(),
        environment: Environment::default(),
        copies: None,
        updates: Vec::new(),
    }
}

proptest! {
    /// A link that takes latency + bytes / bandwidth is found once more, whatever the two are, and for an
    /// all-reduce it is the link that a ring would have.
    #[test]
    fn a_straight_line_is_found_again(latency in 0.0..1e-2_f64, power in 6.0..12.0_f64, devices in 2_usize..64) {
        let bandwidth = 10_f64.powf(power);
        let close = |one: f64, other: f64, least: f64| (one - other).abs() <= 1e-6 * other.abs() + least;
        let pair = PairLink::new(0, 1, points(|bytes| latency + bytes / bandwidth)).unwrap().link;
        prop_assert!(close(pair.latency_seconds, latency, 1e-9), "{pair:?}");
        prop_assert!(close(pair.bytes_per_second, bandwidth, 0.0), "{pair:?}");
        let share = GroupLink::ring_share(devices);
        let all = (0..devices as u32).collect();
        let group = GroupLink::new(all, points(|bytes| latency + share * bytes / bandwidth)).unwrap().link;
        prop_assert!(close(group.bytes_per_second, bandwidth, 0.0), "{group:?}");
    }

    /// Whatever noise does to the points, the link is possible.
    #[test]
    fn noise_never_makes_an_impossible_link(seconds in proptest::collection::vec(1e-9..10.0_f64, 4)) {
        let mut noisy = points(|_| 1.0);
        noisy.iter_mut().zip(seconds).for_each(|(point, seconds)| point.seconds = seconds);
        let link = PairLink::new(0, 1, noisy).unwrap().link;
        prop_assert!(link.check().is_ok() && link.latency_seconds >= 0.0);
    }
}

#[test]
fn groups_double_up_to_all_devices() {
    let groups = |devices| LinkWork::standard(devices, 1 << 30).groups();
    assert!(groups(1).is_empty());
    assert_eq!(groups(2), [2]);
    assert_eq!(groups(3), [2, 3]);
    assert_eq!(groups(8), [2, 4, 8]);
    assert_eq!(LinkWork::standard(4, 1 << 30).pairs().count(), 6);
}

/// Small devices exchange small tensors, but always of two sizes.
#[test]
fn payloads_follow_the_capacity() {
    for capacity in [0, 1 << 20, 1 << 26, 1 << 40] {
        let work = LinkWork::standard(2, capacity).checked().unwrap();
        assert!(work.payload_bytes.last().unwrap() * 4 <= capacity.max(1 << 19));
    }
}

#[test]
fn what_cannot_be_measured_is_named() {
    let work = LinkWork::standard(4, 1 << 30);
    let field = |work: LinkWork| work.checked().unwrap_err().violations()[0].field.clone();
    assert_eq!(field(LinkWork { devices: 0, ..work.clone() }), "devices");
    assert_eq!(field(LinkWork { repeats: 0, ..work.clone() }), "repeats");
    assert_eq!(field(LinkWork { payload_bytes: vec![4096], ..work }), "payload_bytes");
    assert_eq!(field(LinkWork { payload_bytes: vec![4096, 4096], ..work }), "payload_bytes[1]");
    assert_eq!(field(LinkWork { payload_bytes: vec![4096, 4098], ..work }), "payload_bytes[1]");
}

#[test]
fn a_measurement_has_every_pair_and_possible_numbers() {
    assert!(measurement(3).checked().is_ok());
    let field = |change: fn(&mut LinkMeasurement)| {
        let mut changed = measurement(3);
        change(&mut changed);
        changed.checked().unwrap_err().violations()[0].field.clone()
    };
    assert_eq!(field(|of| drop(of.pairs.pop())), "pairs");
    assert_eq!(field(|of| of.pairs[1] = of.pairs[0].clone()), "pairs");
    assert_eq!(field(|of| of.device_ids[2] = "cpu0".into()), "device_ids[2]");
    assert_eq!(field(|of| of.pairs[0].link.bytes_per_second = 0.0), "pairs[0].bandwidth");
    assert_eq!(field(|of| of.pairs[2].points[1].seconds = f64::NAN), "pairs[2].points[1].seconds");
    assert_eq!(field(|of| of.groups[0].devices = vec![0, 3]), "groups[0].devices");
}

/// A device alone has a link to its host, and exchanges with no one.
#[test]
fn of_a_device_alone_copies_are_measured() {
    let alone = || LinkMeasurement {
        copies: Some(CopyMeasurement { pairs: Vec::new(), ..copies(1) }),
        pairs: Vec::new(),
        groups: Vec::new(),
        ..measurement(1)
    };
    assert!(alone().checked().is_ok());
    let field = |change: fn(&mut LinkMeasurement)| {
        let mut changed = alone();
        change(&mut changed);
        changed.checked().unwrap_err().violations()[0].field.clone()
    };
    assert_eq!(field(|of| of.copies = None), "copies");
    assert_eq!(field(|of| of.groups = measurement(2).groups), "groups");
    assert_eq!(field(|of| of.pairs = measurement(2).pairs), "pairs");
    assert_eq!(field(|of| of.device_ids.clear()), "device_ids");
    assert_eq!(copies(1).shared_by(&[0]), None);
}

fn copies(devices: u32) -> CopyMeasurement {
    let way = |rate: f64, at_once: u32| {
        CopyWay::new(points(|bytes| 1e-5 + f64::from(at_once) * bytes / rate), at_once).unwrap()
    };
    let speeds = || CopySpeeds { out: way(4e9, 1), back: way(2e9, 1), both: Some(way(5e9, 2)) };
    let device = |device| DeviceCopies {
        device,
        host: speeds(),
        all_out: way(3e9, 1),
        all_back: way(1.9e9, 1),
        all_next: Some(way(1e9, 1)),
    };
    let pairs = LinkWork::standard(devices, 1 << 30);
    CopyMeasurement {
        devices: (0..devices).map(device).collect(),
        pairs: pairs.pairs().map(|(first, second)| PairCopies { first, second, copies: speeds() }).collect(),
    }
}

/// Both ways of the payload in the time of one are twice its bytes; what is clearly less than each way alone is no full
/// duplex, and devices that together reach less than alone share something.
#[test]
fn copies_tell_duplex_and_what_devices_share() {
    let of = copies(3);
    // What is reached with the largest payload has its latency, too.
    let close = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-2;
    let host = of.devices[1].host.link();
    assert!(close(host.out.bytes_per_second, 4e9) && close(host.back.bytes_per_second, 2e9), "{host:?}");
    assert!(host.both_bytes_per_second.is_some_and(|both| close(both, 5e9)), "{host:?}");
    let mut free = of.devices[1].host.clone();
    free.both = Some(CopyWay::new(points(|bytes| 2.0 * bytes / 5.9e9), 2).unwrap());
    assert_eq!(free.link().both_bytes_per_second, None);
    // Out they reach 3 of 4 GB/s each; back 1.9 of 2 is as good as free.
    assert!(of.shared_by(&[0, 2]).is_some_and(|rate| close(rate, 6e9)), "{:?}", of.shared_by(&[0, 2]));
    assert_eq!((of.shared_by(&[1]), of.shared_by(&[])), (None, None));
}

#[test]
fn copies_are_of_every_device_and_possible() {
    let with = |copies| LinkMeasurement { copies: Some(copies), ..measurement(3) };
    assert!(with(copies(3)).checked().is_ok());
    assert!(
        with(CopyMeasurement { pairs: Vec::new(), ..copies(3) }).checked().is_ok(),
        "devices that cannot"
    );
    let field = |change: fn(&mut CopyMeasurement)| {
        let mut changed = copies(3);
        change(&mut changed);
        with(changed).checked().unwrap_err().violations()[0].field.clone()
    };
    assert_eq!(field(|of| drop(of.devices.pop())), "copies.devices");
    assert_eq!(field(|of| of.devices[1].device = 0), "copies.devices");
    assert_eq!(field(|of| drop(of.pairs.pop())), "copies.pairs");
    assert_eq!(
        field(|of| of.pairs[0].copies.both.as_mut().unwrap().link.bytes_per_second = 0.0),
        "copies.pairs[0].copies.both.bandwidth"
    );
    assert_eq!(
        field(|of| of.devices[2].all_out.points[0].seconds = f64::NAN),
        "copies.devices[2].all_out.points[0].seconds"
    );
    let of = copies(2);
    assert!(of.check_payloads(16 << 20).is_ok());
    let refused = of.check_payloads((16 << 20) - 1).unwrap_err();
    assert_eq!(refused.violations()[0].field, "devices[0].host.out.points");
}

fn updates(device: u32) -> DeviceUpdates {
    let timed = |step| TimedUpdate { step, parameters: 4096, alone_seconds: 1e-3, together_seconds: 2e-3 };
    DeviceUpdates { device, steps: StepKind::ALL.map(timed).to_vec() }
}

/// Of all devices, or none: what is wrong is named below the measurement's own list.
#[test]
fn updates_are_of_every_device_or_none() {
    let with = |updates| LinkMeasurement { updates, ..measurement(3) }.checked();
    assert!(with((0..3).map(updates).collect()).is_ok() && with(Vec::new()).is_ok());
    let refused = with((0..2).map(updates).collect()).unwrap_err();
    assert_eq!(refused.violations()[0].field, "updates");
}

/// What ranks found of their own copies, pairs and updates is put together, if all of them have it.
#[test]
fn the_copies_of_all_ranks_are_put_together() {
    let updates: Vec<DeviceUpdates> = (0..3).map(updates).collect();
    let whole = LinkMeasurement { copies: Some(copies(3)), updates: updates.clone(), ..measurement(3) };
    let rank = |index: u32| {
        let all = copies(3);
        RankLinks {
            index,
            device_id: format!("cpu{index}"),
            transport: Collectives::Host,
            pairs: whole.pairs.iter().filter(|pair| pair.first == index).cloned().collect(),
            groups: if index == 0 { whole.groups.clone() } else { Vec::new() },
            environment: Environment::default(),
            copies: Some(CopyMeasurement {
                devices: all.devices.into_iter().filter(|of| of.device == index).collect(),
                pairs: all.pairs.into_iter().filter(|of| of.first == index).collect(),
            }),
            updates: updates.get(index as usize).cloned(),
        }
    };
    assert_eq!(LinkMeasurement::of_ranks((0..3).map(rank).collect()), Ok(whole.clone()));
    let mut without: Vec<RankLinks> = (0..3).map(rank).collect();
    without[1].copies = None;
    without[2].updates = None;
    let without = LinkMeasurement::of_ranks(without).unwrap();
    assert_eq!((without.copies, without.updates), (None, Vec::new()));
}

#[test]
fn copies_are_of_the_largest_payloads_that_end_soon() {
    let work =
        |payload_bytes: &[u64]| LinkWork { devices: 2, payload_bytes: payload_bytes.to_vec(), repeats: 1 };
    let standard = LinkWork::standard(2, 1 << 30);
    assert_eq!(standard.copied_bytes(None), [4 << 20, 16 << 20]);
    assert_eq!(work(&[4 << 10, 1 << 20]).copied_bytes(None), [4 << 10, 1 << 20]);
    assert_eq!(work(&[32 << 20, 64 << 20, 128 << 20]).copied_bytes(None), [32 << 20, 64 << 20]);
    assert_eq!(work(&[1 << 20, 64 << 20]).copied_bytes(None), [1 << 20, 64 << 20]);
    // As slow as a pace may be: no copy takes longer than a moment, and none is larger than without a pace.
    assert_eq!(standard.copied_bytes(Some(1e12)), standard.copied_bytes(None));
    for pace in [1e3, 1e5, 1e8, 5e8] {
        let sizes = standard.copied_bytes(Some(pace));
        let [least, most] = sizes[..] else { panic!("{pace}: {sizes:?}") };
        assert!(
            4 <= least && least < most && most <= 16 << 20 && most as f64 <= (0.02 * pace).max(16.0),
            "{sizes:?}"
        );
        assert!(least.is_multiple_of(4) && most.is_multiple_of(4));
    }
}

/// Points that no machine has make no rate that a cluster could not have.
#[test]
fn impossible_points_make_no_impossible_rates() {
    let mut of = copies(2);
    for device in &mut of.devices {
        for way in [&mut device.host.out, &mut device.host.back, &mut device.all_out, &mut device.all_back] {
            way.points.iter_mut().for_each(|point| point.seconds = f64::MIN_POSITIVE);
        }
        device.host.both.as_mut().unwrap().points.iter_mut().for_each(|point| point.seconds = 3_600.0);
    }
    let both = of.devices[0].host.link().both_bytes_per_second.unwrap();
    assert!((Link::MIN_BYTES_PER_SECOND..=Link::MAX_BYTES_PER_SECOND).contains(&both), "{both}");
    for device in &mut of.devices {
        device.all_out.points.iter_mut().for_each(|point| point.seconds = 3_600.0);
    }
    let shared = of.shared_by(&[0, 1]).unwrap();
    assert!((Link::MIN_BYTES_PER_SECOND..=Link::MAX_BYTES_PER_SECOND).contains(&shared), "{shared}");
}
