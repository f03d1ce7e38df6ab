//! What never makes an iteration shorter, and what may.

use proptest::prelude::*;

use super::beside::{Random, alone, apart, shared_of};
use super::*;

/// How much worse something gets, often not at all.
fn worse() -> impl Strategy<Value = f64> {
    prop_oneof![3 => Just(0.0), 1 => 0.0..1.0_f64]
}

/// Slower steps, transfers and links, and more bytes, by some amounts one after another.
fn slowed(random: &Random, by: &[f64]) -> Random {
    let mut slower = random.clone();
    let mut by = by.iter().copied().cycle();
    let mut next = || by.next().unwrap_or(0.0);
    for device in &mut slower.devices {
        device.steps.iter_mut().for_each(|step| step.seconds += next());
        let parcels = device.trips.iter_mut().flat_map(|trip| &mut trip.parcels).filter(|of| of.bytes > 0);
        parcels.for_each(|parcel| parcel.bytes += (1e3 * next()) as u64);
    }
    for edge in &mut slower.edges {
        edge.forward += next();
        edge.backward += next();
    }
    for rate in slower.links.ways.values_mut() {
        rate.bytes_per_second /= 1.0 + next();
        rate.latency_seconds += next();
    }
    slower
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(512))]

    /// Where no speed changes and each way has one device that asks, the order of all is fixed, and times are those of a
    /// longest path: no second or byte more anywhere, and no byte per second less, makes an iteration shorter.
    #[test]
    fn nothing_slower_is_shorter_where_nothing_is_shared(
        random in apart(), by in prop::collection::vec(worse(), 1..60),
    ) {
        let [fast, slow] = [&random, &slowed(&random, &by)]
            .map(|of| simulate(&of.stepped(), Keep::default()).unwrap());
        prop_assert!(fast.is_steady && slow.is_steady);
        prop_assert!(fast.iteration_seconds <= slow.iteration_seconds * (1.0 + 1e-9));
    }

    /// Sharing only adds seconds to copies and steps: a simulation without it is a bound of one with it.
    #[test]
    fn nothing_shared_is_faster_than_alone(random in shared_of(apart())) {
        let mut alone = random.clone();
        alone.links = random.links.alone();
        prop_assert!(alone.seconds() <= random.seconds() * (1.0 + 1e-9));
    }

    /// Memory that is waited for earlier, or fetched later, costs time or nothing: with fewer steps for a copy none is
    /// faster, as long as boundaries ask in the same order.
    #[test]
    fn earlier_frees_are_never_faster(random in apart(), by in prop::collection::vec(0_usize..4, 1..20)) {
        let mut strict = random.clone();
        let mut by = by.into_iter().cycle();
        for trip in strict.devices.iter_mut().flat_map(|device| &mut device.trips) {
            trip.at.freed = trip.at.leaves.max(trip.at.freed - by.next().unwrap_or(0).min(trip.at.freed));
        }
        prop_assert!(random.seconds() <= strict.seconds() * (1.0 + 1e-9));
    }

    /// Under 1F1B with equal stages a block of stage s waits `(S − 1 − s)(t_f + t_b)` at least: its micro-batch goes
    /// through all stages behind, there and back.
    #[test]
    fn a_block_waits_for_all_stages_behind(
        random in alone(), forward in 0.1..2.0_f64, backward in 0.1..4.0_f64, layers in 1_usize..4, count in 1_u32..5,
        micro_batches in 1_u32..8, points in 0_u32..3, bytes in 1_u64..4_000,
    ) {
        let layer = LayerSeconds { forward, backward, again: forward, update: 0.1 };
        let actions = StageActions { actions: vec![swap(0, layers - 1, points)], ..StageActions::default() };
        let stages = vec![TestStage { layers: vec![layer; layers], actions, bytes }; count as usize];
        let devices = devices(&stages, Schedule::OneFOneB, micro_batches);
        let rate = random.links.ways[&Way::ToHost(0)];
        let links = (0..count).fold(Links::default(), |links, device| links.host(device, rate, rate));
        let edges = vec![Edge { forward: 0.1, backward: 0.2 }; count as usize - 1];
        let stepped = CopyPipeline { devices: &devices, edges: &edges, overlap: random.overlap, links: &links };
        let copied = simulate(&stepped, Keep { steps: true, copies: false }).unwrap();
        for (index, (times, device)) in copied.devices.iter().zip(&devices).enumerate() {
            let behind = (count as usize - 1 - index) as f64 * layers as f64 * (forward + backward);
            for trip in &device.trips {
                let interval = times.steps[trip.at.needed].0 - times.steps[trip.at.leaves - 1].1;
                prop_assert!(interval >= behind * (1.0 - 1e-9), "{interval} {behind}");
            }
        }
    }
}

fn device(seconds: &[f64], trips: &[Trip]) -> DeviceSteps {
    DeviceSteps {
        steps: seconds.iter().map(|&seconds| TimedStep::alone(seconds)).collect(),
        trips: trips.to_vec(),
    }
}

/// A block that comes back as soon as it has left.
fn out(leaves: usize, freed: usize, place: Place, bytes: u64) -> Trip {
    let at = BoundaryInterval { fetched: freed, needed: freed, leaves, freed };
    Trip { at, parcels: vec![Parcel { place, bytes }] }
}

/// Two host links that share this rate on the way out; the way back costs nothing to speak of.
fn uplink(own: [f64; 2], together: f64) -> Links {
    let fast = Rate::new(1e9, 0.0);
    let [first, second] = own.map(|own| Rate::new(own, 0.0));
    let ways = vec![Way::ToHost(0), Way::ToHost(1)];
    let shared = vec![Shared { ways, bytes_per_second: together }];
    Links { shared, ..Links::default() }.host(0, first, fast).host(1, second, fast)
}

/// Where two devices share an uplink, one that is later may leave it to the other one that all wait for.
#[test]
fn a_second_more_may_help_where_an_uplink_is_shared() {
    let second = device(&[1.0, 1.0, 20.0], &[out(1, 1, Place::Host, 4)]);
    let with = |seconds| {
        let first = device(&[seconds, 10.0, 1.0], &[out(1, 2, Place::Host, 4)]);
        super::seconds(&[first, second.clone()], &[], &uplink([1.0, 1.0], 1.0))
    };
    assert!(with(5.0) < with(1.0) - 3.9, "{} {}", with(5.0), with(1.0));
}

/// A faster link of one device takes more of what it shares with another one.
#[test]
fn a_faster_link_may_harm_where_an_uplink_is_shared() {
    let first = device(&[1.0, 80.0, 1.0], &[out(1, 2, Place::Host, 120)]);
    let second = device(&[1.0, 90.0, 1.0], &[out(1, 1, Place::Host, 120)]);
    let with = |own| seconds(&[first.clone(), second.clone()], &[], &uplink([own, 4.0], 4.0));
    assert!(with(1.0) < with(4.0) - 19.9, "{} {}", with(1.0), with(4.0));
}

/// Even if all links are faster, or a block is smaller: what is over earlier may meet what it missed before.
#[test]
fn a_faster_uplink_may_harm_and_so_may_fewer_bytes() {
    let with = |rate, bytes| {
        // So many bytes at once, then two seconds of work, then a thousand bytes that no one waits for.
        let trips = [out(1, 1, Place::Host, bytes), out(2, 3, Place::Host, 1_000)];
        let first = device(&[0.0, 2.0, 50.0, 0.0], &trips);
        // A hundred bytes that all wait for, from 11 to 12 seconds.
        let second = device(&[11.0, 100.0], &[out(1, 1, Place::Host, 100)]);
        seconds(&[first, second], &[], &uplink([rate, rate], rate))
    };
    assert!(with(100.0, 1_000) < with(105.0, 1_000) - 0.3, "{} {}", with(100.0, 1_000), with(105.0, 1_000));
    assert!(with(100.0, 1_000) < with(100.0, 900) - 0.9, "{} {}", with(100.0, 1_000), with(100.0, 900));
}

/// Two devices that swap blocks to each other ask for the same ways: one that asks earlier may come before the other one
/// that all wait for.
#[test]
fn a_second_more_may_help_where_two_ask_for_a_way() {
    let rate = Rate::new(1.0, 0.0);
    let links = Links::default().peer(0, 1, rate).peer(1, 0, rate);
    let second = device(&[3.0, 1.0, 30.0], &[out(1, 1, Place::Peer(0), 2)]);
    let with = |seconds| {
        // Comes back over the way on which the block of the second one leaves.
        let first = device(&[0.5, seconds, 9.0, 1.0], &[out(1, 2, Place::Peer(1), 1)]);
        super::seconds(&[first, second.clone()], &[], &links)
    };
    assert!(with(6.0) < with(2.4) - 0.8, "{} {}", with(6.0), with(2.4));
}
