use std::sync::LazyLock;
use std::time::Duration;

use loadmaster_proto::cluster::{CopyLink, Link, LinkOrigin};
use loadmaster_proto::training::actions::{Destination, Optimization};
use proptest::prelude::*;

use super::*;
use crate::actions::LayerBlocks;
use crate::actions::{Allowed, NodeDevices, StageBlocks};
use loadmaster_proto::training::actions::Block;
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_samples::CUBE_MESH;
use loadmaster_search::Stop;
use loadmaster_simulate::Order;
use loadmaster_simulate::copies::LayerSeconds;

const BLOCKS: [Block; 5] =
    [Block::Activations, Block::Versions, Block::Weights, Block::Gradients, Block::Optimizer];
const MB: u64 = 1_000_000;
const GB: u64 = 1000 * MB;

fn link(bytes_per_second: f64) -> Link {
    Link { bytes_per_second, latency_seconds: 1e-5, origin: LinkOrigin::Given }
}

/// A node whose pairs have links of so many GB a second.
fn node(capacity: u64, host: f64, devices: usize, pair: impl Fn(usize, usize) -> f64) -> NodeDevices {
    let row = |from: usize| (0..devices).map(|to| (from != to).then(|| link(pair(from, to) * 1e9))).collect();
    NodeDevices {
        capacity: vec![capacity; devices],
        host: vec![CopyLink::full_duplex(link(host * 1e9)); devices],
        pairs: (0..devices).map(row).collect(),
        host_bytes: 1000 * GB,
        hosts: Vec::new(),
        shared: Vec::new(),
        cores: None,
    }
}

fn mesh(from: usize, to: usize) -> f64 {
    f64::from(CUBE_MESH[from][to]).mul_add(20.0, 2.0)
}

/// A stage of a model like BERT: 4 layers that keep `kept` MB each and take 30 ms for both passes.
fn stage(index: usize, kept: u64, parameters: u64) -> StageBlocks {
    let layer = LayerBlocks {
        seconds: LayerSeconds { forward: 0.01, backward: 0.02, again: 0.01, update: 0.002 },
        activations: kept * MB,
        input: kept * MB / 30,
        versions: 0,
        weights: 4 * parameters * MB,
        gradients: 4 * parameters * MB,
        optimizer: 8 * parameters * MB,
        working: kept * MB / 2,
    };
    StageBlocks { first_layer: 4 * index, layers: vec![layer; 4], fixed: 0 }
}

fn stages(kept: u64, parameters: u64) -> Vec<StageBlocks> {
    (0..8).map(|index| stage(index, kept, parameters)).collect()
}

const ALL: Allowed = Allowed { recompute: true, host: true, peers: true };
static NEVER: LazyLock<Stop> = LazyLock::new(Stop::default);
const NOTHING: Allowed = Allowed { recompute: false, host: false, peers: false };

/// 1F1B of 16 micro-batches, with stripes and stages in order.
fn question<'a>(stages: &'a [StageBlocks], node: &'a NodeDevices, allowed: Allowed) -> Question<'a> {
    const EDGES: [u64; 8] = [20 * MB; 8];
    Question {
        stages,
        edge_bytes: &EDGES[..stages.len() - 1],
        order: Order::OneFOneB,
        micro_batches: 16,
        overlap: Overlap::Computing,
        node,
        reserve: &[],
        allowed,
        blocks: &BLOCKS,
        smallest_block: 0,
        stripes: true,
        mappings: 0,
        stop: &NEVER,
    }
}

/// Which of host, recomputation and peers a plan uses.
fn uses(plan: &PaperPlan) -> [bool; 3] {
    let optimizations =
        || plan.actions.iter().flat_map(|stage| &stage.actions).map(|action| &action.optimization);
    let swaps = |to_host: bool| {
        optimizations().any(|optimization| matches!(optimization, Optimization::Swap(swap) if (swap.to == Destination::Host) == to_host))
    };
    [swaps(true), optimizations().any(|optimization| *optimization == Optimization::Recompute), swaps(false)]
}

/// Of every stage with its own formula: static bytes, and what micro-batches in flight keep.
#[test]
fn what_fits_is_left_alone() {
    let (stages, node) = (stages(100, 10), node(4 * GB, 12.0, 8, mesh));
    let plan = plan(&question(&stages, &node, NOTHING)).unwrap();
    assert_eq!((uses(&plan), plan.rounds), ([false; 3], 0));
    assert_eq!((plan.seconds, plan.start_seconds), (plan.untouched_seconds, plan.untouched_seconds));
    let expected = |stage: u64| 4 * 16 * 10 * MB + (8 - stage) * 4 * 100 * MB;
    assert_eq!(plan.peaks, (0..8).map(expected).collect::<Vec<_>>());
    assert!(plan.actions.iter().all(StageActions::is_empty));
}

/// A device that lacks room says how much; recomputing everything does not help against weights.
#[test]
fn what_cannot_fit_is_named() {
    let (stages, node) = (stages(100, 100), node(6 * GB, 12.0, 8, mesh));
    let recompute = Allowed { recompute: true, ..NOTHING };
    let Err(PlanError::NoRoom { stage: 7, missing }) = plan(&question(&stages, &node, recompute)) else {
        panic!("static bytes alone are 6.4 GB")
    };
    assert!((400 * MB..=900 * MB).contains(&missing), "{missing}");
    assert!(uses(&plan(&question(&stages, &node, ALL)).unwrap())[0], "state alone fits on the host");
}

/// MPress's four pressures: nothing is done, peers take all, then some is recomputed, and what cannot be goes to the host.
#[test]
fn more_pressure_takes_more_ways() {
    // A host so slow that nothing is free.
    let slow = |capacity| node(capacity, 0.5, 8, mesh);
    let of = |kept, parameters, capacity| {
        let (stages, node) = (stages(kept, parameters), slow(capacity));
        plan(&question(&stages, &node, ALL)).map(|plan| uses(&plan))
    };
    assert_eq!(of(100, 10, 4 * GB), Ok([false, false, false]));
    // Host, recomputation, peers.
    assert_eq!(of(400, 10, 11 * GB), Ok([false, false, true]));
    assert_eq!(of(900, 10, 14 * GB), Ok([false, true, true]));
    assert_eq!(of(400, 200, 11 * GB), Ok([true, true, true]));
}

#[test]
fn a_switch_gains_nothing_by_mapping_and_a_mesh_may() {
    let stages = stages(500, 10);
    let peers = Allowed { peers: true, ..NOTHING };
    let gain = |node: &NodeDevices| {
        let asked = Question { stripes: false, ..question(&stages, node, peers) };
        let in_order = plan(&asked).unwrap();
        let mapped = plan(&Question { mappings: 40, ..asked }).unwrap();
        assert!(mapped.seconds <= in_order.seconds);
        (in_order.seconds - mapped.seconds, mapped.classes)
    };
    assert_eq!(gain(&node(14 * GB, 12.0, 8, |_, _| 5.0)), (0.0, Some(1)));
    let (gain, classes) = gain(&node(14 * GB, 12.0, 8, mesh));
    assert!(gain > 0.0, "{gain}");
    assert_eq!(classes, Some(10_080));
}

/// Bytes that are to be left free are: a device with so much less would have fitted the same plan.
#[test]
fn what_is_reserved_is_left_free() {
    let (stages, node) = (stages(100, 10), node(4 * GB, 12.0, 8, mesh));
    let reserve = [300 * MB; 8];
    let held = plan(&Question { reserve: &reserve, ..question(&stages, &node, ALL) }).unwrap();
    assert!(held.peaks.iter().all(|peak| peak + 300 * MB <= 4 * GB), "{:?}", held.peaks);
    assert!(plan(&question(&stages, &node, ALL)).unwrap().peaks[0] + 300 * MB > 4 * GB);
}

/// Stopped at any moment, it gives a plan that fits or says that it was stopped, never that nothing fits.
#[test]
fn a_stop_leaves_a_plan_that_fits_or_none() {
    let (stages, node) = (stages(300, 20), node(6 * GB, 12.0, 8, mesh));
    let fits = |plan: &PaperPlan| plan.peaks.iter().all(|&peak| peak <= 6 * GB);
    let ended = |after: Duration| {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(after);
                stop.request();
            });
            plan(&Question { stop: &stop, mappings: 20, ..question(&stages, &node, ALL) })
        })
    };
    let requested = Stop::default();
    requested.request();
    let asked = Question { stop: &requested, ..question(&stages, &node, ALL) };
    assert_eq!(plan(&asked), Err(PlanError::Stopped));
    let roomy = NodeDevices { capacity: vec![1000 * GB; 8], ..node.clone() };
    let untouched = plan(&Question { node: &roomy, ..asked }).unwrap();
    assert_eq!(uses(&untouched), [false; 3]);
    for step in 0..30_u64 {
        let outcome = ended(Duration::from_micros(200 * step * step));
        assert!(
            outcome == Err(PlanError::Stopped) || outcome.as_ref().is_ok_and(fits),
            "{step}: {outcome:?}"
        );
    }
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(64))]

    /// No order of the devices is faster than the mapping that is said to be the best, also where devices without a link reach each
    /// other over hosts that are faster than links.
    #[test]
    fn no_mapping_is_faster_than_one_that_is_exact(
        speeds in proptest::collection::vec(prop_oneof![Just(None), (1_u32..40).prop_map(Some)], 16),
        hosts in prop_oneof![
            (1_u32..200).prop_map(|host| vec![host; 4]),
            proptest::collection::vec(1_u32..200, 4),
        ],
        devices in 2_usize..=4, stages in 2_usize..=4, edge in 1_u64..3_000,
    ) {
        let stages: Vec<StageBlocks> = (0..stages.min(devices)).map(|index| stage(index, 50, 1)).collect();
        let edges = vec![edge * MB; stages.len() - 1];
        let both = |from: usize, to: usize| speeds[4 * from.min(to) + from.max(to)];
        let of = |order: &[usize]| {
            let row = |&from: &usize| {
                let pair = |&to: &usize| both(from, to).filter(|_| from != to).map(|speed| link(f64::from(speed) * 1e9));
                order.iter().map(pair).collect()
            };
            NodeDevices {
                host: order.iter().map(|&of| CopyLink::full_duplex(link(f64::from(hosts[of]) * 1e9))).collect(),
                pairs: order.iter().map(row).collect(),
                ..node(1000 * GB, 1.0, order.len(), mesh)
            }
        };
        let asked = |node: &NodeDevices, mappings: usize| {
            let question = Question { edge_bytes: &edges, mappings, micro_batches: 4, ..question(&stages, node, NOTHING) };
            plan(&question).map_err(|error| TestCaseError::fail(error.to_string()))
        };
        let in_order: Vec<usize> = (0..devices).collect();
        let mapped = asked(&of(&in_order), 100)?;
        if !mapped.is_mapping_exact {
            return Ok(());
        }
        for order in orders(&in_order) {
            let other = asked(&of(&order), 0)?.seconds;
            prop_assert!(mapped.seconds <= other * (1.0 + 1e-9), "{order:?} takes {other}, {mapped:?}");
        }
    }
}

/// All orders of these.
fn orders(of: &[usize]) -> Vec<Vec<usize>> {
    let Some((&first, rest)) = of.split_first() else { return vec![Vec::new()] };
    let put =
        |order: Vec<usize>| (0..=order.len()).map(move |at| [&order[..at], &[first], &order[at..]].concat());
    orders(rest).into_iter().flat_map(put).collect()
}

#[test]
fn what_makes_no_pipeline_is_refused() {
    let (stages, node) = (stages(100, 10), node(4 * GB, 12.0, 8, mesh));
    let asked = question(&stages, &node, ALL);
    let refused = |asked: Question<'_>| matches!(plan(&asked), Err(PlanError::Unfit(_)));
    assert!(refused(Question { stages: &[], ..asked }));
    assert!(refused(Question { edge_bytes: &[], ..asked }));
    assert!(refused(Question { micro_batches: 0, ..asked }));
    assert!(refused(Question { order: Order::Interleaved { devices: 8 }, ..asked }));
    let small = NodeDevices { capacity: vec![GB; 2], ..node.clone() };
    assert!(refused(Question { node: &small, ..asked }));
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(32))]

    /// Whatever is asked: no plan is slower than the one that its loop began with, nor faster than doing nothing; all
    /// devices and the host have room for all that is theirs and others' at any moment; what is done is allowed, each block
    /// is subject to one action, and shares add up.
    #[test]
    fn a_plan_fits_and_is_no_slower_than_its_start(
        kept in 50_u64..900, parameters in 1_u64..80, capacity in 3_u64..20, host in 1_u32..30, micro_batches in 1_u32..12,
        recompute: bool, to_host: bool, peers: bool, stripes: bool,
        order in prop_oneof![Just(Order::OneFOneB), Just(Order::Gpipe), Just(Order::PipeDream)],
    ) {
        let stages: Vec<StageBlocks> = (0..4).map(|index| stage(index, kept, parameters)).collect();
        let node = NodeDevices { host_bytes: 40 * GB, ..node(capacity * GB, f64::from(host), 4, mesh) };
        let allowed = Allowed { recompute, host: to_host, peers };
        let asked = Question { order, micro_batches, stripes, mappings: 3, ..question(&stages, &node, allowed) };
        let plan = match plan(&asked) {
            Ok(plan) => plan,
            Err(PlanError::NoRoom { missing, .. }) => {
                prop_assert!(missing > 0);
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        prop_assert!(plan.seconds <= plan.start_seconds * (1.0 + 1e-9));
        prop_assert!(plan.seconds >= plan.untouched_seconds * (1.0 - 1e-9) || plan.mapping != [0, 1, 2, 3]);
        let whole = super::plan(&Question { stripes: false, ..asked });
        prop_assert!(!stripes || whole.is_err() || plan.seconds <= whole.unwrap().seconds);
        prop_assert!(plan.peaks.iter().all(|&peak| peak <= capacity * GB) && plan.host_bytes <= 40 * GB);
        let [by_host, again, by_peers] = uses(&plan);
        prop_assert!((!by_host || to_host) && (!again || recompute) && (!by_peers || peers));
        let parts: f64 = plan.saved.parts().iter().sum();
        prop_assert!((parts - 1.0).abs() < 1e-9 || plan.saved.all().0 == 0);
        for (index, actions) in plan.actions.iter().enumerate() {
            let work = crate::actions::StageWork::of(&stages[index], (index as u32, 4), order, micro_batches, actions);
            let held = crate::actions::PeakMemory::of(&stages[index], &work, actions);
            let peer_pools: u64 = actions.peer_pools.iter().map(|peer_pools| peer_pools.bytes.0).sum();
            prop_assert_eq!(held.device + peer_pools, plan.peaks[index]);
            prop_assert_eq!(held.host, actions.host_pool.0);
            for (peer, bytes) in held.peers {
                let pool = plan.actions[peer as usize].peer_pools.iter().find(|peer_pools| peer_pools.stage as usize == index);
                prop_assert_eq!(pool.map_or(0, |pool| pool.bytes.0), bytes);
            }
            let mut taken = std::collections::BTreeSet::new();
            for action in &actions.actions {
                let block = match &action.optimization {
                    Optimization::Recompute => Block::Activations,
                    Optimization::Swap(swap) => swap.block,
                };
                prop_assert!(action.layers().all(|layer| taken.insert((layer, block))));
            }
        }
    }
}

/// Layers that keep 100 bytes each, and nothing else but what they are given besides.
fn bare(layers: &[(f64, u64)]) -> StageBlocks {
    let of = |&(backward, gradients): &(f64, u64)| LayerBlocks {
        seconds: LayerSeconds { forward: 1.0, backward, again: 1.0, update: 0.5 },
        activations: 100,
        input: 0,
        versions: 0,
        weights: 0,
        gradients,
        optimizer: 0,
        working: 0,
    };
    StageBlocks { first_layer: 0, layers: layers.iter().map(of).collect(), fixed: 0 }
}

/// A layer below another one keeps what it keeps once, though the one above uses its output, too.
#[test]
fn what_a_layer_keeps_is_idle_once() {
    let stages = [bare(&[(1.0, 0), (1.0, 0)]), StageBlocks { first_layer: 2, ..bare(&[(1.0, 0)]) }];
    let node = node(GB, 1.0, 2, mesh);
    let asked = Question { micro_batches: 2, ..question(&stages, &node, ALL) };
    let nothing = Decision::nothing(&asked, &[0, 1]);
    let ran =
        nothing.simulated(&asked, loadmaster_simulate::copies::Keep { steps: true, copies: false }).unwrap();
    let prices = super::prices::Prices::of(&asked, &nothing, &ran, 0);
    let idle = prices.idle((0, Block::Activations)).unwrap();
    assert_eq!((idle.at_once, idle.times), (2, 2), "{idle:?}");
}

/// What is longest idle, and offloaded first, may be no help, and fill the host: it comes back then for what is.
#[test]
fn what_helps_nobody_does_not_keep_the_host() {
    let stages = [bare(&[(2.0, 0), (1.0, 100)])];
    let node = NodeDevices { host_bytes: 100, ..node(200, 1000.0, 1, mesh) };
    let allowed = Allowed { recompute: false, host: true, peers: false };
    let blocks = [Block::Activations, Block::Gradients];
    let asked = Question {
        micro_batches: 1,
        order: Order::Gpipe,
        blocks: &blocks,
        ..question(&stages, &node, allowed)
    };
    let found = plan(&asked).unwrap();
    assert!(found.host_bytes <= 100 && found.peaks.iter().all(|peak| *peak <= 200), "{found:?}");
}
