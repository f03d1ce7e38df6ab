//! What the choice of actions promises, against brute force.

mod brute;
mod chain;
mod programs;
mod room;

use std::sync::LazyLock;

use loadmaster_proto::cluster::{CopyLink, Link, LinkOrigin};
use loadmaster_proto::training::actions::{Action, Block, Destination, Optimization, StageActions};
use loadmaster_proto::training::overlap::Overlap;

use super::{Effort, FastestPlan, Known, bound, plan};
use crate::actions::{
    Allowed, LayerBlocks, NodeDevices, PlanError, Question, StageBlocks, paper, simulation,
};
use loadmaster_search::Stop;
use loadmaster_simulate::Order;
use loadmaster_simulate::copies::{LayerSeconds, Shared, Way};

const BLOCKS: [Block; 3] = [Block::Activations, Block::Gradients, Block::Optimizer];
const MB: u64 = 1_000_000;
static NEVER: LazyLock<Stop> = LazyLock::new(Stop::default);

fn link(bytes_per_second: f64) -> Link {
    Link { bytes_per_second, latency_seconds: 1e-5, origin: LinkOrigin::Given }
}

/// A node whose devices have one capacity, and links of so many bytes a second.
fn node(devices: usize, capacity: u64, host: f64, peer: f64) -> NodeDevices {
    let row = |from: usize| (0..devices).map(|to| (from != to).then(|| link(peer))).collect();
    NodeDevices {
        capacity: vec![capacity; devices],
        host: vec![CopyLink::full_duplex(link(host)); devices],
        pairs: (0..devices).map(row).collect(),
        host_bytes: 1 << 50,
        hosts: Vec::new(),
        shared: Vec::new(),
        cores: None,
    }
}

/// A layer that keeps so many MB and goes forward in so many ms.
fn layer(kept: u64, forward: u32) -> LayerBlocks {
    let forward = f64::from(forward) * 1e-3;
    LayerBlocks {
        seconds: LayerSeconds { forward, backward: 2.0 * forward, again: forward, update: 1e-3 },
        activations: kept * MB,
        input: kept * MB / 20,
        versions: 0,
        weights: 20 * MB,
        gradients: 20 * MB,
        optimizer: 40 * MB,
        working: kept * MB / 2,
    }
}

/// Stages of so many such layers each.
fn stages(layers: &[Vec<LayerBlocks>]) -> Vec<StageBlocks> {
    let mut first_layer = 0;
    let of = |layers: &Vec<LayerBlocks>| {
        let stage = StageBlocks { first_layer, layers: layers.clone(), fixed: 0 };
        first_layer += layers.len();
        stage
    };
    layers.iter().map(of).collect()
}

fn question<'a>(stages: &'a [StageBlocks], node: &'a NodeDevices, allowed: Allowed) -> Question<'a> {
    const EDGES: [u64; 8] = [MB; 8];
    Question {
        stages,
        edge_bytes: &EDGES[..stages.len() - 1],
        order: Order::OneFOneB,
        micro_batches: 8,
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

const ALL: Allowed = Allowed { recompute: true, host: true, peers: true };

/// What fits stays as it is, and nothing is faster.
#[test]
fn what_fits_is_left_alone() {
    let stages = stages(&vec![vec![layer(100, 10); 3]; 3]);
    let node = node(3, 10_000 * MB, 1e9, 1e10);
    let FastestPlan { actions, seconds, bound, untouched_seconds, .. } =
        plan(&question(&stages, &node, ALL), Known::default(), Effort::All).unwrap();
    assert!(actions.iter().all(StageActions::is_empty));
    assert_eq!((seconds, bound), (untouched_seconds, untouched_seconds));
}

/// A link that is fast enough costs nothing, and that is proven.
#[test]
fn a_fast_host_is_free_and_proven() {
    let stages = stages(&vec![vec![layer(100, 10); 4]; 4]);
    let tight = node(4, 1_500 * MB, 1e11, 1e11);
    let found =
        plan(&question(&stages, &tight, Allowed { peers: false, ..ALL }), Known::default(), Effort::All)
            .unwrap();
    assert!(found.actions.iter().any(|stage| stage.host_pool.0 > 0));
    assert!(found.bound >= found.seconds * (1.0 - 1e-9), "{} {}", found.bound, found.seconds);
}

/// Who chooses knows what links share: on one uplink for all devices a plan takes longer than on links of their own, and one that was
/// chosen for those is no faster there; MPress's planner is asked about the same node.
#[test]
fn an_uplink_that_devices_share_is_known_to_who_chooses() {
    let stages = stages(&vec![vec![layer(100, 10); 4]; 4]);
    let own = node(4, 1_200 * MB, 2e10, 2e10);
    let ways = |way: fn(u32) -> Way| (0..4).map(way).collect();
    let uplink = |way| Shared { ways: ways(way), bytes_per_second: 1e10 };
    let shared = NodeDevices { shared: vec![uplink(Way::ToHost), uplink(Way::FromHost)], ..own.clone() };
    let allowed = Allowed { recompute: false, host: true, peers: false };
    let on = |node| question(&stages, node, allowed);
    let [of_own, of_shared] =
        [&own, &shared].map(|node| plan(&on(node), Known::default(), Effort::All).unwrap());
    let there = |mapping: &[usize]| simulation::seconds(&on(&shared), mapping, &of_own.actions).unwrap();
    let seconds = there(&[0, 1, 2, 3]);
    assert!(of_own.seconds < of_shared.seconds && of_shared.seconds <= seconds, "{seconds}");
    // Whichever device a stage is on, its way is that of its device.
    assert!((there(&[3, 1, 0, 2]) - seconds).abs() < 1e-9 * seconds);
    let papers = [&own, &shared].map(|node| paper::plan(&on(node)).unwrap().seconds);
    assert!(papers[0] < papers[1], "{papers:?}");
}

/// What is away of a micro-batch must be back within its backward pass: 4 layers of 100 MB and 80 MB that last, of which 450 MB
/// have room, so that 110 MB of what is not optimizer's state are away in front of each. In the 60 ms until the lowest layer
/// goes backward 60 MB come back, so that each of the micro-batches between the first and the last one waits for 50 ms.
#[test]
fn what_must_travel_takes_its_time() {
    let stages = stages(&[vec![layer(100, 10); 4]]);
    let tight = node(1, 450 * MB, 1e9, 1e9);
    let asked = question(&stages, &tight, Allowed { recompute: false, host: true, peers: false });
    let asked = Question { micro_batches: 6, ..asked };
    let untouched = 6.0 * 0.12 + 4e-3;
    let least = bound(&asked, Known::default(), 10.0).unwrap().unwrap();
    assert!(least >= untouched + 0.199, "{least}");
    let found = plan(&asked, Known::default(), Effort::All).unwrap();
    assert!(found.bound >= untouched + 0.199 && found.bound <= found.seconds, "{found:?}");
}

/// Where layers may only be recomputed, a pipeline whose longest stage is all that counts is proven.
#[test]
fn a_stage_alone_is_proven() {
    let stages = stages(&[vec![layer(100, 10); 20], vec![layer(100, 10)], vec![layer(100, 10)]]);
    for capacity in [3_500, 4_500, 6_500] {
        let tight = node(3, capacity * MB, 1e9, 1e9);
        let only = Allowed { recompute: true, host: false, peers: false };
        let found = plan(&question(&stages, &tight, only), Known::default(), Effort::All).unwrap();
        assert!(found.seconds > found.untouched_seconds);
        assert!(found.bound >= found.seconds * (1.0 - 1e-9), "{capacity}: {} {}", found.bound, found.seconds);
    }
}

/// So is a pipeline under GPipe, whose last micro-batch goes backward first: what each of the others keeps is another question.
#[test]
fn a_stage_alone_is_proven_under_gpipe() {
    let unlike = |index: u64| layer(40 + 30 * (index % 4), 2 + (7 * index % 5) as u32);
    let stages = stages(&[(0..6).map(unlike).collect(), vec![layer(10, 1)]]);
    for capacity in [950, 1_300, 1_900] {
        let tight = node(2, capacity * MB, 1e9, 1e9);
        let only = Allowed { recompute: true, host: false, peers: false };
        let asked = Question { order: Order::Gpipe, micro_batches: 5, ..question(&stages, &tight, only) };
        let found = plan(&asked, Known::default(), Effort::All).unwrap();
        assert!(found.seconds > found.untouched_seconds, "{capacity}");
        assert!(found.bound >= found.seconds * (1.0 - 1e-9), "{capacity}: {} {}", found.bound, found.seconds);
    }
}

/// Where not even weights, gradients and optimizer's state have room, they leave between their uses.
#[test]
fn a_model_larger_than_its_devices_is_planned() {
    let stages = stages(&vec![vec![layer(10, 10); 12]; 2]);
    // 960 MB last.
    let tight = node(2, 200 * MB, 1e11, 1e11);
    let blocks = [Block::Activations, Block::Inputs, Block::Weights, Block::Gradients, Block::Optimizer];
    let asked = question(&stages, &tight, ALL);
    assert!(plan(&asked, Known::default(), Effort::All).is_err());
    let found = plan(&Question { blocks: &blocks, ..asked }, Known::default(), Effort::All).unwrap();
    let away = |block| {
        let is_of = |optimization: &Optimization| matches!(optimization, Optimization::Swap(swap) if swap.block == block);
        found.actions.iter().all(|stage| stage.actions.iter().any(|action| is_of(&action.optimization)))
    };
    assert!(away(Block::Weights) && away(Block::Gradients) && away(Block::Optimizer), "{found:?}");
}

/// What lasts goes to a peer with room where the host takes nothing: optimizer's state, and gradients, too.
#[test]
fn what_lasts_goes_to_peers_that_have_room() {
    let stages = stages(&vec![vec![layer(10, 10); 4]; 2]);
    let both = [Block::Gradients, Block::Optimizer];
    let peers = Allowed { recompute: false, host: false, peers: true };
    // Of the 320 MB that last a half is the optimizer's; two micro-batches in flight keep 80 MB more.
    for (room, blocks, leaving) in
        [(330, &[Block::Optimizer][..], Block::Optimizer), (220, &both, Block::Gradients)]
    {
        let tight = NodeDevices { capacity: vec![room * MB, 4_000 * MB], ..node(2, 0, 1e9, 1e11) };
        let asked = Question { blocks, ..question(&stages, &tight, peers) };
        let found = plan(&asked, Known::default(), Effort::Few).unwrap();
        let goes = |action: &Action| match &action.optimization {
            Optimization::Swap(swap) => swap.block == leaving && matches!(swap.to, Destination::Peers(_)),
            Optimization::Recompute => false,
        };
        assert!(found.actions[0].actions.iter().any(goes), "{room}: {found:?}");
        assert!(found.actions[1].peer_pools[0].bytes.0 >= 70 * MB, "{found:?}");
    }
    // Where both may be had, the faster of the two is taken.
    let tight = NodeDevices { capacity: vec![330 * MB, 4_000 * MB], ..node(2, 0, 1e8, 1e11) };
    let anywhere = Allowed { host: true, ..peers };
    let asked = Question { blocks: &[Block::Optimizer], ..question(&stages, &tight, anywhere) };
    let found = plan(&asked, Known::default(), Effort::All).unwrap();
    assert!(found.seconds <= found.untouched_seconds * 1.001, "{found:?}");
}

/// Stopped before it began, it says so; what cannot fit is named.
#[test]
fn stopped_and_impossible_are_told_apart() {
    let stages = stages(&vec![vec![layer(100, 10); 4]; 2]);
    let (tight, tiny) = (node(2, 700 * MB, 1e9, 1e9), node(2, 100 * MB, 1e9, 1e9));
    let stop = Stop::default();
    stop.request();
    let asked = Question { stop: &stop, ..question(&stages, &tight, ALL) };
    assert_eq!(plan(&asked, Known::default(), Effort::All), Err(PlanError::Stopped));
    let none = plan(&question(&stages, &tiny, ALL), Known::default(), Effort::All);
    // With all activations and all optimizer's state on the host, 4 × 40 MB of weights and gradients stay, and what one
    // layer goes backward with.
    assert!(
        matches!(none, Err(PlanError::NoRoom { missing, .. }) if (160 * MB..320 * MB).contains(&missing)),
        "{none:?}"
    );
}
