//! Random small pipelines with copies beside the clock.

use proptest::prelude::*;

use super::clock::clock;
use super::*;
use crate::Order;

/// A pipeline with copies, and all that they may meet.
#[derive(Debug, Clone)]
pub(super) struct Random {
    pub(super) devices: Vec<DeviceSteps>,
    pub(super) edges: Vec<Edge>,
    pub(super) overlap: Overlap,
    pub(super) links: Links,
}

impl Random {
    pub(super) fn stepped(&self) -> CopyPipeline<'_> {
        let Self { devices, edges, overlap, links } = self;
        CopyPipeline { devices, edges, overlap: *overlap, links }
    }

    pub(super) fn seconds(&self) -> f64 {
        simulate(&self.stepped(), Keep::default()).unwrap().iteration_seconds
    }
}

#[derive(Debug, Clone)]
struct RandomSwap {
    layer: usize,
    block: Block,
    peers: Vec<(u32, u32)>,
    points: (u32, u32),
}

fn random_swap() -> impl Strategy<Value = RandomSwap> {
    let block =
        prop_oneof![4 => Just(Block::Activations), 1 => Just(Block::Optimizer), 1 => Just(Block::Weights)];
    let peers = prop::collection::vec((0_u32..4, 1_u32..5), 0..3);
    (0_usize..3, block, peers, (0_u32..6, 0_u32..6)).prop_map(|(layer, block, peers, points)| RandomSwap {
        layer,
        block,
        peers,
        points,
    })
}

/// Seconds, often none at all or whole ones: then much happens at the same moment.
pub(super) fn seconds(most: f64) -> impl Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 1 => (1_u8..4).prop_map(f64::from), 4 => 0.0..most]
}

/// Devices that ask for one way at one moment may get it in any order: where some share ways, no two steps end together.
fn layer(apart: bool) -> impl Strategy<Value = LayerSeconds> {
    let of = move |most: f64| if apart { seconds(most).boxed() } else { (most / 16.0..most).boxed() };
    (of(2.0), of(4.0), of(1.0)).prop_map(|(forward, backward, update)| LayerSeconds {
        forward,
        backward,
        again: forward,
        update,
    })
}

fn actions(swaps: &[RandomSwap], own: u32, count: u32, layers: usize, apart: bool) -> StageActions {
    let mut seen = Vec::new();
    let mut actions = StageActions::default();
    for swap in swaps {
        let RandomSwap { layer, block, ref peers, points } = *swap;
        if layer >= layers || seen.contains(&(layer, block)) {
            continue;
        }
        seen.push((layer, block));
        let mut stripes: Vec<(u32, u32)> = peers.iter().map(|&(peer, part)| (peer % count, part)).collect();
        stripes.retain(|&(peer, _)| if apart { peer > own } else { peer != own });
        stripes.sort_unstable();
        stripes.dedup_by_key(|stripe| stripe.0);
        let parts: u32 = stripes.iter().map(|stripe| stripe.1).sum();
        let to = if stripes.is_empty() {
            Destination::Host
        } else {
            let stripe = |&(stage, part): &(u32, u32)| Stripe { stage, share: part * Stripe::WHOLE / parts };
            Destination::Peers(stripes.iter().map(stripe).collect())
        };
        let optimization =
            Optimization::Swap(Swap { block, to, release_after: points.0, fetch_before: points.1 });
        actions.actions.push(Action {
            first_layer: layer,
            last_layer: layer,
            slots: Vec::new(),
            optimization,
        });
    }
    actions
}

pub(super) fn rate() -> impl Strategy<Value = Rate> {
    (200.0..5e3_f64, prop_oneof![Just(0.0), 0.0..0.3], 0.2..=1.0).prop_map(
        |(bytes_per_second, latency_seconds, core_share)| Rate {
            bytes_per_second,
            latency_seconds,
            core_share,
        },
    )
}

/// Links of devices with their hosts and with each other, each with the next of these rates.
pub(super) fn links_of(count: u32, rates: Vec<Rate>) -> Links {
    let mut rates = rates.into_iter();
    let mut links = Links::default();
    for device in 0..count {
        links = links.host(device, rates.next().unwrap(), rates.next().unwrap());
        for to in (0..count).filter(|&to| to != device) {
            links = links.peer(device, to, rates.next().unwrap());
        }
    }
    links
}

/// Pipelines in which nothing is shared but ways between peers that both of them ask for.
pub(super) fn alone() -> impl Strategy<Value = Random> {
    pipelines(false)
}

/// The same in which blocks go to later stages alone, so that each way has one device that asks for it.
pub(super) fn apart() -> impl Strategy<Value = Random> {
    pipelines(true)
}

fn pipelines(apart: bool) -> impl Strategy<Value = Random> {
    let stages = prop::collection::vec(
        (prop::collection::vec(layer(apart), 1..4), prop::collection::vec(random_swap(), 0..4), 1_u64..4_000),
        1..5,
    );
    let edge = (seconds(2.0), seconds(2.0)).prop_map(|(forward, backward)| Edge { forward, backward });
    let rates = prop::collection::vec(rate(), 4 * 6);
    let schedule = prop_oneof![Just(Schedule::Gpipe), Just(Schedule::OneFOneB)];
    let overlap = prop_oneof![Just(Overlap::Computing), Just(Overlap::Nothing)];
    (stages, prop::collection::vec(edge, 4), rates, schedule, 1_u32..6, overlap).prop_map(
        move |(stages, edges, rates, schedule, micro_batches, overlap)| {
            let count = stages.len() as u32;
            let stages: Vec<TestStage> = stages
                .into_iter()
                .zip(0..)
                .map(|((layers, swaps, bytes), own)| TestStage {
                    actions: actions(&swaps, own, count, layers.len(), apart),
                    layers,
                    bytes,
                })
                .collect();
            let links = links_of(count, rates);
            let devices = devices(&stages, schedule, micro_batches);
            Random { devices, edges: edges[..count as usize - 1].to_vec(), overlap, links }
        },
    )
}

/// The same with uplinks, half duplex, cores and activations on the way.
pub(super) fn shared_of(alone: impl Strategy<Value = Random>) -> impl Strategy<Value = Random> {
    let some = |rates| prop::option::of(rates);
    let cores = prop::option::of((
        0.5..4.0_f64,
        any::<bool>(),
        prop_oneof![Just(1.0), 1.0..2.0_f64],
        prop_oneof![Just(0.0), 0.0..2e-3_f64],
    ));
    (alone, some(200.0..8e3_f64), some(200.0..8e3_f64), cores, some(100.0..4e3_f64)).prop_map(
        |(mut random, uplink, half, cores, transit)| {
            let count = random.devices.len() as u32;
            let all: Vec<u32> = (0..count).collect();
            let mut links = random.links;
            if let Some(rate) = uplink {
                links = links.uplink(&all[..all.len().div_ceil(2)], rate);
            }
            if let Some(rate) = half {
                links = links.half_duplex(count - 1, rate);
            }
            links.cores.extend(cores.map(
                |(cores, is_two, contention_slowdown, slowdown_seconds_per_byte)| {
                    // The last device may stand for two slots.
                    let more = if is_two { vec![count - 1] } else { Vec::new() };
                    Cores {
                        devices: [all.clone(), more].concat(),
                        cores,
                        contention_slowdown,
                        slowdown_seconds_per_byte,
                    }
                },
            ));
            for edge in 0..count - 1 {
                let ways = [false, true].map(|is_backward| {
                    let (from, to) = if is_backward { (edge + 1, edge) } else { (edge, edge + 1) };
                    let over = vec![Way::Between { from, to }, Way::ToHost(from), Way::FromHost(to)];
                    transit.map(|bytes_per_second| Route { edge, is_backward, bytes_per_second, ways: over })
                });
                links.routes.extend(ways.into_iter().flatten());
            }
            random.links = links;
            random
        },
    )
}

/// The simulator says what a clock shows.
pub(super) fn agrees(random: &Random) -> Result<(), TestCaseError> {
    let copied = simulate(&random.stepped(), Keep { steps: true, copies: true }).unwrap();
    // Of the last iteration, where they do not settle, as where they do.
    let last = copied.devices.iter().map(|device| device.end).fold(0.0, f64::max);
    let shown = clock(&random.stepped(), copied.iterations);
    prop_assert!((last - shown).abs() <= 1e-7 * shown, "{last} {shown}");
    if copied.is_steady {
        prop_assert_eq!(copied.iteration_seconds, last);
    }
    // What is said to repeat itself does so.
    if copied.is_steady && copied.iterations > 1 {
        let later = clock(&random.stepped(), copied.iterations + 2);
        prop_assert!((last - later).abs() <= 1e-7 * later, "{last} {later} in iterations to come");
    }
    Ok(())
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(512))]

    #[test]
    fn a_walk_with_copies_finds_what_a_clock_shows(random in prop_oneof![alone(), apart()]) {
        agrees(&random)?;
    }

    #[test]
    fn shared_lanes_and_cores_go_as_fast_as_a_clock_shows(random in prop_oneof![shared_of(alone()), shared_of(apart())]) {
        agrees(&random)?;
    }

    /// Chunks that are interleaved over devices move their blocks, too.
    #[test]
    fn interleaved_chunks_with_copies_take_what_a_clock_shows(
        count in 1_u32..4, chunks in 1_u32..4, groups in 1_u32..4, rates in prop::collection::vec(rate(), 6),
        seed in prop::collection::vec((prop::collection::vec(layer(true), 1..4), 0_u32..4, 1_u64..4_000), 9),
        edge in seconds(1.0),
    ) {
        let all = count * chunks;
        let stages: Vec<TestStage> = seed[..all as usize]
            .iter()
            .map(|(layers, points, bytes)| {
                let actions = vec![swap(0, layers.len() - 1, *points)];
                TestStage { layers: layers.clone(), actions: StageActions { actions, ..Default::default() }, bytes: *bytes }
            })
            .collect();
        let turns = Order::Interleaved { devices: count }.turns(all as usize, count * groups);
        let rate = |index: u32| rates[index as usize];
        let links = (0..count)
            .fold(Links::default(), |links, device| links.host(device, rate(2 * device), rate(2 * device + 1)));
        let random = Random {
            devices: turns.iter().map(|turns| of_turns(turns, &stages)).collect(),
            edges: vec![Edge { forward: edge, backward: edge }; all as usize - 1],
            overlap: Overlap::Computing,
            links,
        };
        agrees(&random)?;
    }
}
