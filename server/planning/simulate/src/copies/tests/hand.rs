//! Known cases by hand.

use super::*;

fn trip(leaves: usize, freed: usize, fetched: usize, needed: usize, parcels: &[(Place, u64)]) -> Trip {
    let parcels = parcels.iter().map(|&(place, bytes)| Parcel { place, bytes }).collect();
    Trip { at: BoundaryInterval { fetched, needed, leaves, freed }, parcels }
}

fn device(seconds: &[f64], trips: Vec<Trip>) -> DeviceSteps {
    DeviceSteps { steps: seconds.iter().map(|&seconds| TimedStep::alone(seconds)).collect(), trips }
}

fn rate(bytes_per_second: f64) -> Rate {
    Rate::new(bytes_per_second, 0.0)
}

fn hosts(count: u32, bytes_per_second: f64) -> Links {
    let rate = rate(bytes_per_second);
    (0..count).fold(Links::default(), |links, device| links.host(device, rate, rate))
}

fn of(devices: &[DeviceSteps], links: &Links) -> Copied {
    let stepped = CopyPipeline { devices, edges: &[], overlap: Overlap::Computing, links };
    simulate(&stepped, Keep { steps: true, copies: true }).unwrap()
}

/// 2 bytes at 1 a second out and back, with nothing to do meanwhile: both ways are waited for, a latency each.
#[test]
fn copies_that_nothing_hides_are_waited_for() {
    let devices = [device(&[1.0; 4], vec![trip(1, 1, 2, 2, &[(Place::Host, 2)])])];
    let slow = Rate::new(1.0, 0.5);
    let copied = of(&devices, &Links::default().host(0, rate(1.0), slow));
    assert_eq!(copied.iteration_seconds, 4.0 + 2.0 + 2.5);
    assert_eq!(copied.devices[0].steps, [(0.0, 1.0), (3.0, 4.0), (6.5, 7.5), (7.5, 8.5)]);
    assert_eq!(copied.devices[0].waited, WaitSeconds { frees: 2.0, needs: 2.5 });
    let ways: Vec<_> =
        copied.ways.iter().map(|way| (way.way, way.bytes, way.busy, way.waited.all())).collect();
    assert_eq!(ways, [(Way::ToHost(0), 2, 2.0, 2.0), (Way::FromHost(0), 2, 2.5, 2.5)]);
    assert_eq!(copied.busy_share(Way::FromHost(0)), 2.5 / 8.5);
    let spans: Vec<_> = copied.copies.iter().map(|copy| (copy.is_back, copy.start, copy.end)).collect();
    assert_eq!(spans, [(false, 1.0, 3.0), (true, 4.0, 6.5)]);
    let waits: Vec<_> =
        copied.waits.iter().map(|wait| (wait.boundary, wait.is_back, wait.start, wait.end)).collect();
    assert_eq!(waits, [(1, false, 1.0, 3.0), (2, true, 4.0, 6.5)]);
}

/// A lane does one copy at a time, in the order of asking; the second waits for the first one.
#[test]
fn copies_of_a_lane_follow_each_other() {
    let trips = vec![trip(1, 2, 3, 3, &[(Place::Host, 4)]), trip(1, 3, 3, 4, &[(Place::Host, 4)])];
    let copied = of(&[device(&[1.0; 5], trips)], &hosts(1, 1.0));
    // Out from 1 to 5 and to 9, back from 9 to 13 and to 17.
    assert_eq!(copied.devices[0].steps, [(0.0, 1.0), (1.0, 2.0), (5.0, 6.0), (13.0, 14.0), (17.0, 18.0)]);
}

/// Stripes go side by side, and the block has arrived with the slowest.
#[test]
fn stripes_end_with_the_slowest() {
    let parcels = [(Place::Peer(1), 3), (Place::Peer(2), 2), (Place::Peer(3), 0)];
    let idle = device(&[1.0], Vec::new());
    let devices = [device(&[1.0; 3], vec![trip(1, 1, 2, 2, &parcels)]), idle.clone(), idle.clone(), idle];
    let links = [1, 2, 3].into_iter().fold(Links::default(), |links, peer| {
        links.peer(0, peer, rate(if peer == 2 { 1.0 } else { 2.0 })).peer(peer, 0, rate(1.0))
    });
    let copied = of(&devices, &links);
    assert_eq!(copied.iteration_seconds, 3.0 + 2.0 + 3.0);
    let waited = |from, to| copied.ways.iter().find(|of| of.way == Way::Between { from, to }).unwrap().waited;
    assert_eq!(
        (waited(0, 2).frees, waited(0, 1).frees, waited(1, 0).needs, waited(2, 0).needs),
        (2.0, 0.0, 3.0, 0.0)
    );
    assert_eq!(copied.copies.len(), 4, "nothing of no bytes is copied");
}

/// Both directions at once take twice as long where they share a rate, and no longer where they do not.
#[test]
fn a_link_that_is_not_full_duplex_is_shared_by_both_directions() {
    let trips = || vec![trip(1, 2, 2, 3, &[(Place::Host, 4)]), trip(2, 3, 4, 4, &[(Place::Host, 4)])];
    let devices = [device(&[1.0, 4.0, 4.0, 4.0, 1.0], trips())];
    assert_eq!(of(&devices, &hosts(1, 1.0)).devices[0].steps[3], (9.0, 13.0));
    let half = hosts(1, 1.0).half_duplex(0, 1.0);
    assert_eq!(of(&devices, &half).devices[0].steps[3], (13.0, 17.0));
    // Where both together are faster than one alone, the slower takes what the other leaves.
    let half = hosts(1, 1.0).half_duplex(0, 1.6);
    assert_eq!(of(&devices, &half).devices[0].steps[3], (10.0, 14.0));
}

/// What one device of a switch does not use the others have: one of three has a slow link of its own.
#[test]
fn devices_of_an_uplink_share_it_max_min_fairly() {
    let devices = vec![device(&[1.0; 3], vec![trip(1, 1, 2, 2, &[(Place::Host, 12)])]); 3];
    let mut links = hosts(3, 8.0).uplink(&[0, 1, 2], 8.0);
    links.ways.insert(Way::ToHost(0), rate(2.0));
    let ends: Vec<f64> = of(&devices, &links).devices.iter().map(|of| of.steps[1].0).collect();
    // 2, 3 and 3 bytes a second until the others are done after 4 seconds; then 2.
    assert_eq!(ends, [7.0, 5.0, 5.0]);
}

/// Activations have their seconds, and copies what these leave of the way.
#[test]
fn copies_stand_back_for_activations() {
    let gives = Some(Handover { edge: 0, is_backward: false, micro_batch: 0 });
    let mut first = device(&[1.0, 1.0, 1.0], vec![trip(1, 1, 2, 2, &[(Place::Peer(1), 6)])]);
    first.steps[0].gives = gives;
    let mut second = device(&[1.0], Vec::new());
    second.steps[0].takes = gives;
    let links = Links::default().peer(0, 1, rate(2.0)).peer(1, 0, rate(2.0));
    // What takes no time takes nothing of the way, at whatever rate.
    for (crossing, taken, freed) in [(4.0, 1.0, 6.0), (4.0, 2.0, 8.0), (4.0, 9.0, 8.0), (0.0, 9.0, 4.0)] {
        let edges = [Edge { forward: crossing, backward: 0.0 }];
        let ways = vec![Way::Between { from: 0, to: 1 }];
        let route = Route { edge: 0, is_backward: false, bytes_per_second: taken, ways };
        let links = Links { routes: vec![route], ..links.clone() };
        let stepped = CopyPipeline {
            devices: &[first.clone(), second.clone()],
            edges: &edges,
            overlap: Overlap::Computing,
            links: &links,
        };
        let copied = simulate(&stepped, Keep { steps: true, copies: false }).unwrap();
        let arrived = 1.0 + crossing;
        assert_eq!(copied.devices[1].steps, [(arrived, arrived + 1.0)], "activations are as fast as ever");
        // Those seconds at what is left of 2 bytes a second, then at all of them.
        assert_eq!(copied.devices[0].steps[1].0, freed);
    }
}

/// A copy that ends with a step is over before what this step hands on takes its way, though their ends are a rounding apart.
#[test]
fn copies_that_end_with_a_step_do_not_wait_for_what_it_hands_on() {
    let gives = Some(Handover { edge: 0, is_backward: false, micro_batch: 0 });
    let mut first =
        device(&[0.1, 0.2, 0.1, 0.1, 0.1, 1.0, 1.0], vec![trip(2, 5, 6, 6, &[(Place::Peer(1), 3)])]);
    first.steps[4].gives = gives;
    let mut second = device(&[1.0], Vec::new());
    second.steps[0].takes = gives;
    let route = Route {
        edge: 0,
        is_backward: false,
        bytes_per_second: 10.0,
        ways: vec![Way::Between { from: 0, to: 1 }],
    };
    let links = Links::default().peer(0, 1, rate(10.0)).peer(1, 0, rate(10.0));
    let stepped = CopyPipeline {
        devices: &[first, second],
        edges: &[Edge { forward: 4.0, backward: 0.0 }],
        overlap: Overlap::Computing,
        links: &Links { routes: vec![route], ..links },
    };
    let copied = simulate(&stepped, Keep { steps: true, copies: true }).unwrap();
    let (step, copy) = (copied.devices[0].steps[4].1, copied.copies[0].start + 3.0 / 10.0);
    assert!(step < copy && copy - step < 1e-15, "{step} {copy}");
    assert_eq!(copied.devices[0].steps[5].0, step);
}

/// Cores on which nothing slows anything down.
fn plain(devices: Vec<u32>, cores: f64) -> Cores {
    Cores { devices, cores, contention_slowdown: 1.0, slowdown_seconds_per_byte: 0.0 }
}

/// Two slots that slow each other down to two thirds do so as long as both compute; a third one, for which there is no core, adds
/// nothing to that.
#[test]
fn slots_slow_each_other_down_while_both_compute() {
    let on = |seconds: &[f64]| {
        let devices: Vec<DeviceSteps> =
            seconds.iter().map(|&seconds| device(&[seconds], Vec::new())).collect();
        let cores = Cores { contention_slowdown: 1.5, ..plain((0..devices.len() as u32).collect(), 2.0) };
        let copied = of(&devices, &Links { cores: vec![cores], ..Links::default() });
        copied.devices.iter().map(|device| device.end).collect::<Vec<f64>>()
    };
    assert_eq!(on(&[2.0]), [2.0]);
    assert_eq!(on(&[2.0, 4.0]), [3.0, 5.0]);
    // Each has two thirds of a core, on which it is as slow.
    let three = on(&[2.0, 2.0, 2.0]);
    assert!(three.iter().all(|end| (end - 4.5).abs() < 1e-12), "{three:?}");
}

/// A step becomes longer by what each byte costs that is copied beside it, whether or not another one computes.
#[test]
fn copies_slow_steps_down_by_what_their_bytes_cost() {
    // 8 bytes leave in 4 seconds beside the second step, which does 4 / 1.1 seconds' work meanwhile, and come back beside none.
    let devices = [device(&[1.0, 11.0, 1.0], vec![trip(1, 2, 2, 2, &[(Place::Host, 8)])])];
    let rate = Rate { core_share: 0.2, ..rate(2.0) };
    let cores = vec![Cores { slowdown_seconds_per_byte: 0.05, ..plain(vec![0], 2.0) }];
    let copied = of(&devices, &Links { cores, ..Links::default().host(0, rate, rate) });
    let end = 1.0 + 4.0 + (11.0 - 4.0 / 1.1);
    let [_, second, third] = copied.devices[0].steps[..] else { panic!("{copied:?}") };
    assert!((second.1 - end).abs() < 1e-12 && (third.0 - (end + 4.0)).abs() < 1e-12, "{second:?} {third:?}");
    assert!((third.1 - third.0 - 1.0).abs() < 1e-12);
}

/// Three slots on two cores take half as long once more, a copy counts as one, and what stands still does not.
#[test]
fn slots_share_their_cores_equally() {
    let steps = |seconds: f64| device(&[seconds], Vec::new());
    let on = |devices: &[DeviceSteps], cores: f64, links: Links| {
        let all = (0..devices.len() as u32).collect();
        let copied = of(devices, &Links { cores: vec![plain(all, cores)], ..links });
        copied.devices.iter().map(|device| device.end).collect::<Vec<f64>>()
    };
    let three = on(&[steps(2.0), steps(2.0), steps(2.0)], 2.0, Links::default());
    assert!(three.iter().all(|end| (end - 3.0).abs() < 1e-12), "{three:?}");
    assert_eq!(on(&[steps(2.0), steps(4.0)], 1.0, Links::default()), [4.0, 6.0]);
    assert_eq!(on(&[steps(2.0), steps(4.0)], 2.0, Links::default()), [2.0, 4.0]);
    // A device that stands for two slots takes two cores.
    let two = plain(vec![0, 1, 1], 2.0);
    let copied = of(&[steps(2.0), steps(2.0)], &Links { cores: vec![two], ..Links::default() });
    assert!(copied.devices.iter().all(|device| (device.end - 3.0).abs() < 1e-12), "{copied:?}");
    // The copy from 2 on takes half of the only core for 4 seconds, and the step that goes on beside it, too.
    let moving = device(&[2.0, 2.0, 1.0], vec![trip(1, 2, 2, 2, &[(Place::Host, 2)])]);
    assert_eq!(on(std::slice::from_ref(&moving), 1.0, hosts(1, 1.0)), [2.0 + 4.0 + 2.0 + 1.0]);
    // One that is paced to a quarter of a core has it, and the step the rest.
    let mut paced = hosts(1, 1.0);
    paced.ways.values_mut().for_each(|rate| rate.core_share = 0.25);
    let [end] = on(&[moving], 1.0, paced)[..] else { panic!() };
    // 1.5 of 2 seconds of work beside the copy out, the rest alone; and the copy back, waited for.
    assert_eq!(end, 2.0 + 2.0 + 0.5 + 2.0 + 1.0);
}

/// What is away from one iteration to the next is simulated in the long run: state that leaves behind its update and is
/// needed by the next one waits in no window but that of the whole iteration.
#[test]
fn what_stays_away_over_the_end_of_an_iteration_settles() {
    let steps = [4.0, 4.0, 1.0];
    // Fits: out from the start of the next iteration to 3, back from 4 to 7.
    let fits = device(&steps, vec![trip(3, 4, 4, 5, &[(Place::Host, 3)])]);
    let copied = of(&[fits], &hosts(1, 1.0));
    assert_eq!((copied.iteration_seconds, copied.is_steady), (9.0, true));
    let spans: Vec<_> = copied.copies.iter().map(|copy| (copy.is_back, copy.start, copy.end)).collect();
    assert_eq!(spans, [(false, 0.0, 3.0), (true, 4.0, 7.0)]);
    // Does not: out until 6, back until 12.
    let misses = device(&steps, vec![trip(3, 4, 4, 5, &[(Place::Host, 6)])]);
    let copied = of(&[misses], &hosts(1, 1.0));
    assert_eq!((copied.iteration_seconds, copied.iterations), (13.0, 3));
    assert_eq!(copied.devices[0].waited, WaitSeconds { frees: 2.0, needs: 2.0 });
}

/// A block that leaves late, and for which nothing waits before the iteration ends, decides about later ones: here it comes
/// back later in the second iteration than in the first, to which nothing comes back, and leaves later; but the second one
/// is no longer than the first, since both wait for the other device meanwhile.
#[test]
fn an_iteration_is_not_repeated_while_what_nobody_waited_for_leaves_later() {
    let handed = Handover { edge: 0, is_backward: true, micro_batch: 0 };
    let mut first = device(&[1.0, 1.0, 1.0], vec![trip(2, 3, 4, 4, &[(Place::Host, 95)])]);
    first.steps[2].takes = Some(handed);
    let mut second = device(&[10.0], Vec::new());
    second.steps[0].gives = Some(handed);
    // 9.5 seconds out, one second back, and the two steps between.
    let links = Links::default().host(0, rate(10.0), rate(95.0));
    for links in [links.clone(), links.half_duplex(0, 95.0)] {
        let edges = [Edge { forward: 0.0, backward: 0.0 }];
        let devices = [first.clone(), second.clone()];
        let stepped =
            CopyPipeline { devices: &devices, edges: &edges, overlap: Overlap::Computing, links: &links };
        let copied = simulate(&stepped, Keep::default()).unwrap();
        assert!(copied.is_steady && (copied.iteration_seconds - 12.5).abs() < 1e-9, "{copied:?}");
    }
}

/// A copy for which activations leave nothing at the end of an iteration goes on in the next one: the seconds of an iteration
/// are those after what it has left repeats, not those while it is as long because of the other device.
#[test]
fn an_iteration_is_not_repeated_while_a_copy_that_stands_still_has_more_left() {
    let handed = Handover { edge: 0, is_backward: true, micro_batch: 0 };
    let mut first = device(&[3.0, 0.0], vec![trip(1, 1, 1, 2, &[(Place::Host, 700)])]);
    first.steps[1].takes = Some(handed);
    let mut second = device(&[8.0], Vec::new());
    second.steps[0].gives = Some(handed);
    // 1 second out, 7 back unless the gradient is on its way, from 8 to 9.
    let route = Route { edge: 0, is_backward: true, bytes_per_second: 100.0, ways: vec![Way::FromHost(0)] };
    let links = Links { routes: vec![route], ..Links::default().host(0, rate(700.0), rate(100.0)) };
    let stepped = CopyPipeline {
        devices: &[first, second],
        edges: &[Edge { forward: 0.0, backward: 1.0 }],
        overlap: Overlap::Computing,
        links: &links,
    };
    let copied = simulate(&stepped, Keep::default()).unwrap();
    // 9 seconds twice, of which the copy stands still for the last and has 3 and 6 seconds left; then 10, and 11: back for 7
    // seconds, the step, and the copy out.
    assert!(copied.is_steady && (copied.iteration_seconds - 11.0).abs() < 1e-9, "{copied:?}");
    assert_eq!(copied.iterations, 5);
}

/// What makes no simulation is refused with the number that is wrong.
#[test]
fn wrong_numbers_are_named() {
    let right = device(&[1.0; 4], vec![trip(1, 1, 2, 2, &[(Place::Host, 2)])]);
    let links = hosts(1, 1.0);
    let refused = |device: DeviceSteps, links: &Links| {
        let stepped = CopyPipeline { devices: &[device], edges: &[], overlap: Overlap::Computing, links };
        simulate(&stepped, Keep::default()).unwrap_err().to_string()
    };
    assert!(refused(DeviceSteps::default(), &links).contains("at least 1 step"));
    for (index, wrong) in [f64::NAN, f64::INFINITY, -1.0, 1e300].into_iter().enumerate() {
        let mut device = right.clone();
        device.steps[index].seconds = wrong;
        assert!(refused(device, &links).contains(&format!("devices[0].steps[{index}].seconds is {wrong}")));
        if wrong != 1e300 {
            let links = Links::default().host(0, rate(wrong), rate(1.0));
            assert!(
                refused(right.clone(), &links).contains("the bandwidth of copies from device 0 to its host")
            );
        }
        let late = Rate::new(1.0, wrong);
        assert!(
            refused(right.clone(), &Links::default().host(0, rate(1.0), late))
                .contains("the latency of copies from its host to device 0")
        );
    }
    for (boundaries, why) in [
        ((2, 1, 2, 2), "in this order"),
        ((5, 5, 5, 5), "after the last step"),
        ((4, 5, 6, 8), "after the next iteration"),
        ((1, 2, 3, 5), "is evicted before it is back"),
    ] {
        let mut device = right.clone();
        device.trips.push(trip(boundaries.0, boundaries.1, boundaries.2, boundaries.3, &[]));
        let refused = refused(device, &links);
        assert!(refused.contains("swap 1 of device 0") && refused.contains(why), "{refused}");
    }
    let to = |place| device(&[1.0; 4], vec![trip(1, 1, 2, 2, &[(place, 2)])]);
    assert!(refused(to(Place::Peer(0)), &links).contains("to the device itself"));
    assert!(refused(to(Place::Peer(7)), &links).contains("trips[0].peer is 7"));
    assert!(
        refused(right.clone(), &Links::default())
            .contains("from device 0 to its host, but the bandwidth is not known")
    );
    assert!(refused(right.clone(), &links.clone().half_duplex(0, 0.0)).contains("shared[0] is 0"));
    let cores = |cores, device| Links { cores: vec![plain(vec![device], cores)], ..links.clone() };
    assert!(refused(right.clone(), &cores(0.0, 0)).contains("cores[0] is 0"));
    assert!(refused(right.clone(), &cores(1.0, 3)).contains("cores[0].devices is 3"));
    let mut faster = cores(1.0, 0);
    faster.cores[0].contention_slowdown = 0.5;
    assert!(refused(right.clone(), &faster).contains("cores[0].contention_slowdown is 0.5"));
    let mut quicker = cores(1.0, 0);
    quicker.cores[0].slowdown_seconds_per_byte = -1.0;
    assert!(refused(right.clone(), &quicker).contains("cores[0].slowdown_seconds_per_byte is -1"));
    let mut waiting = right;
    waiting.steps[2].takes = Some(Handover { edge: 0, is_backward: true, micro_batch: 0 });
    let edges = [Edge::default()];
    let stepped =
        CopyPipeline { devices: &[waiting], edges: &edges, overlap: Overlap::Computing, links: &links };
    let refused = simulate(&stepped, Keep::default()).unwrap_err();
    assert_eq!(refused, CopiesError::Deadlock { device: 0, step: 2 });
}
