//! What is set aside, and what is missing.

use loadmaster_proto::training::actions::Steps;

use super::*;
use crate::predict::{Origin, Pool, Prediction};

/// A stage that needs so many bytes, give or take a tenth, and puts these into places.
fn acted(bytes: u64, pools: &[(Option<u32>, u64)]) -> Acted {
    let prediction = Prediction {
        bytes: Bytes(bytes),
        breakdown: None,
        seconds: None,
        margin: Some(0.1),
        seconds_margin: None,
        predictor: "tens/1",
        origin: Origin::Profiled,
    };
    let pool = |&(peer, peak): &(Option<u32>, u64)| Pool {
        peer,
        peak,
        moved_bytes: 2 * peak,
        at_boundaries: vec![peak],
    };
    let steps = Steps::of(&[], 0..=0, &[], false);
    Acted::new(prediction, steps, Vec::new(), Vec::new(), pools.iter().map(pool).collect())
}

/// Stage 0 on four devices puts 30 at the host and 50 on stage 1, which is on two and puts 7 on stage 2, on one.
fn pipeline() -> [Acted; 3] {
    [acted(1_000, &[(None, 30), (Some(1), 50)]), acted(100, &[(Some(2), 7)]), acted(10, &[])]
}

fn with<'a>(actions: &'a [StageActions], acted: &'a [Acted]) -> Vec<ActedStage<'a>> {
    let stages = [4, 2, 1].into_iter().zip(actions).zip(acted);
    stages.map(|((devices, actions), acted)| ActedStage { devices, actions, acted }).collect()
}

/// Each stage sets aside what others put there, for each of the devices that send to it.
#[test]
fn pools_are_as_large_as_what_is_there_at_once() {
    let acted = pipeline();
    let mut actions = vec![StageActions::default(); 3];
    set_aside(&mut actions, &acted);
    assert_eq!([0, 1, 2].map(|stage| actions[stage as usize].host_pool.0), [30, 0, 0]);
    assert_eq!(actions[0].hosted, []);
    assert_eq!(actions[1].hosted, [Hosted { stage: 0, bytes: Bytes(50) }]);
    assert_eq!(actions[2].hosted, [Hosted { stage: 1, bytes: Bytes(7) }]);
    let on = |stage: u32, device| hosted_bytes(&actions[stage as usize].hosted, &[4, 2, 1], stage, device);
    assert_eq!([on(0, 0), on(1, 0), on(1, 1), on(2, 0)], [0, 100, 100, 14]);
    // Three devices on two: the first takes two of them.
    let hosted = [Hosted { stage: 0, bytes: Bytes(50) }];
    assert_eq!([0, 1].map(|device| hosted_bytes(&hosted, &[3, 2], 1, device)), [100, 50]);
    assert_eq!([0, 1, 2].map(|device| hosted_bytes(&hosted, &[1, 3], 1, device)), [50, 0, 0]);
}

/// Every pool, device and node that is too small is named, and nothing else; the margin is of what a device itself needs.
#[test]
fn whatever_there_is_no_room_for_is_named() {
    let acted = pipeline();
    let mut actions = vec![StageActions::default(); 3];
    set_aside(&mut actions, &acted);
    let enough = [1_100, 1_100, 1_100, 1_100, 210, 210, 25].map(Bytes);
    let (nodes, hosts) = ([0; 7], [Bytes(120)]);
    let room = Room { capacities: &enough, nodes: &nodes, hosts: &hosts };
    let missing = |room, actions: &[StageActions]| shortages(&with(actions, &acted), room, Margin::Known);
    assert_eq!(missing(room, &actions), []);

    let mut tight = enough;
    (tight[3], tight[5], tight[6]) = (Bytes(1_099), Bytes(209), Bytes(24));
    let device = |(stage, device), needed, hosted, capacity| Shortage::Device {
        stage,
        device,
        needed: Bytes(needed),
        hosted: Bytes(hosted),
        capacity: Bytes(capacity),
    };
    assert_eq!(
        missing(Room { capacities: &tight, ..room }, &actions),
        [device((0, 3), 1_100, 0, 1_099), device((1, 1), 210, 100, 209), device((2, 0), 25, 14, 24)]
    );
    let hosts = [Bytes(119)];
    let host = Shortage::Host { node: 0, needed: Bytes(120), available: Bytes(119) };
    assert_eq!(missing(Room { hosts: &hosts, ..room }, &actions), [host]);

    // The second half of the devices of stage 0 is elsewhere, with memory enough, and device 4 hosts for both halves.
    let (nodes, hosts) = ([0, 0, 1, 1, 0, 0, 0], [Bytes(60), Bytes(60)]);
    let far = Shortage::Far { stage: 0, device: 2, peer: 1 };
    assert_eq!(missing(Room { nodes: &nodes, hosts: &hosts, ..room }, &actions), [far]);

    let mut small = actions;
    small[0].host_pool = Bytes(29);
    small[1].hosted[0].bytes = Bytes(49);
    small[2].hosted.clear();
    let pool = Shortage::Pool { stage: 0, needed: Bytes(30), set_aside: Bytes(29) };
    let hosted = |stage, needed, set_aside| Shortage::Hosted {
        stage,
        peer: stage + 1,
        needed: Bytes(needed),
        set_aside: Bytes(set_aside),
    };
    assert_eq!(missing(room, &small), [pool, hosted(0, 50, 49), hosted(1, 7, 0)]);
    assert!(hosted(1, 7, 0).to_string().contains("stage 1 puts 7 B on a device of stage 2"));
}
