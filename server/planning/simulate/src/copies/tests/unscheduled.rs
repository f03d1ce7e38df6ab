//! Pipelines of no schedule: steps, what they hand on, and trips in any order that can be done.

use proptest::prelude::*;

use super::beside::{Random, agrees, links_of, rate, seconds, shared_of};
use super::*;

/// A step before anything is handed on: its seconds, and where it is in an order of all devices' steps.
type Step = (f64, u32);
/// A trip: where it leaves, how many boundaries later each of its others are, a peer or the host, and bytes.
type Way = (usize, [usize; 3], Option<u32>, u64);

fn device_of((steps, trips): (Vec<Step>, Vec<Way>), own: u32, count: u32) -> DeviceSteps {
    let all = steps.len();
    let trips = trips.into_iter().map(|(leaves, later, peer, bytes)| {
        let leaves = 1 + leaves % all;
        // Back before it leaves once more.
        let mut left = all - 1;
        let [freed, fetched, needed] = later.map(|later| {
            let later = later.min(left);
            left -= later;
            later
        });
        let freed = leaves + freed;
        let later_stages = count - 1 - own;
        let place = match peer.filter(|_| later_stages > 0) {
            // To later stages alone: each way has one device that asks for it.
            Some(peer) => Place::Peer(own + 1 + peer % later_stages),
            None => Place::Host,
        };
        let parcels = vec![Parcel { place, bytes }];
        let fetched = freed + fetched;
        Trip { at: BoundaryInterval { fetched, needed: fetched + needed, leaves, freed }, parcels }
    });
    let trips = trips.filter(|trip| trip.at.needed < 2 * all).collect();
    DeviceSteps { steps: steps.into_iter().map(|(seconds, _)| TimedStep::alone(seconds)).collect(), trips }
}

/// Has steps hand on what others take, which come later in an order of all steps: so no one waits for ever.
fn hand_on(devices: &mut [DeviceSteps], order: &[Vec<u32>], pairs: &[(bool, usize, usize)]) {
    for edge in 0..devices.len() - 1 {
        let mut given = [0_u32; 2];
        for &(is_backward, from, to) in pairs {
            let (giver, taker) = if is_backward { (edge + 1, edge) } else { (edge, edge + 1) };
            let (from, to) = (from % order[giver].len(), to % order[taker].len());
            let is_free =
                devices[giver].steps[from].gives.is_none() && devices[taker].steps[to].takes.is_none();
            if is_free && order[giver][from] < order[taker][to] {
                let micro_batch = &mut given[usize::from(is_backward)];
                let handed = Handover { edge: edge as u32, is_backward, micro_batch: *micro_batch };
                *micro_batch += 1;
                devices[giver].steps[from].gives = Some(handed);
                devices[taker].steps[to].takes = Some(handed);
            }
        }
    }
}

fn unscheduled() -> impl Strategy<Value = Random> {
    let steps = prop::collection::vec((seconds(4.0), 0_u32..1_000), 1..7);
    let later = prop::array::uniform3(0_usize..5);
    let trips = prop::collection::vec((0_usize..6, later, prop::option::of(0_u32..3), 1_u64..4_000), 0..5);
    let pairs = prop::collection::vec((any::<bool>(), 0_usize..6, 0_usize..6), 0..6);
    let edge = (seconds(2.0), seconds(2.0)).prop_map(|(forward, backward)| Edge { forward, backward });
    let edges = prop::collection::vec(edge, 3);
    let overlap = prop_oneof![Just(Overlap::Computing), Just(Overlap::Nothing)];
    let devices = prop::collection::vec((steps, trips), 1..4);
    (devices, pairs, edges, prop::collection::vec(rate(), 3 * 5), overlap).prop_map(
        |(mut devices, pairs, mut edges, rates, overlap)| {
            let count = devices.len() as u32;
            for (steps, _) in &mut devices {
                steps.sort_by_key(|&(_, place)| place);
            }
            let order: Vec<Vec<u32>> =
                devices.iter().map(|(steps, _)| steps.iter().map(|&(_, place)| place).collect()).collect();
            let mut devices: Vec<DeviceSteps> =
                devices.into_iter().zip(0..).map(|(of, own)| device_of(of, own, count)).collect();
            hand_on(&mut devices, &order, &pairs);
            edges.truncate(devices.len() - 1);
            let links = links_of(count, rates);
            Random { devices, edges, overlap, links }
        },
    )
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(1024))]

    /// Whatever a device does when, and whatever it waits for, seconds are those that a clock shows, now and later.
    #[test]
    fn what_follows_no_schedule_takes_what_a_clock_shows(random in shared_of(unscheduled())) {
        agrees(&random)?;
    }
}
