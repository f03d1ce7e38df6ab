use proptest::prelude::*;

use super::*;

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
    }
}

proptest! {
    /// A link that takes latency + bytes / bandwidth is found again, whatever the two are, and for an
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
    assert_eq!(field(LinkWork { devices: 1, ..work.clone() }), "devices");
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
