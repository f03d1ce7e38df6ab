//! Bytes by another way than sums of differences: every block is asked for at every step.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::{
    CopyLink, DeviceLink, HostLink, Link, LinkOrigin, Node, NodeCopies, PeerCopies,
};
use loadmaster_proto::training::actions::{
    Absence, Action, Block, Destination, Optimization, Part, StageActions, Step, Stripe, Swap,
};
use proptest::prelude::*;

use super::*;
use loadmaster_simulate::Order;

const BLOCKS: [Block; 5] =
    [Block::Activations, Block::Versions, Block::Weights, Block::Gradients, Block::Optimizer];

/// Layers whose blocks all have other bytes.
fn stage(layers: usize) -> StageBlocks {
    let layer = |index: usize| {
        let of = |kind: u64| 1_000 * kind + 64 * (index as u64 + 1);
        LayerBlocks {
            activations: of(9),
            input: of(1),
            versions: of(2),
            weights: of(3),
            gradients: of(4),
            optimizer: of(5),
            working: of(6),
            ..LayerBlocks::default()
        }
    };
    StageBlocks { first_layer: 3, layers: (0..layers).map(layer).collect(), fixed: 77 }
}

/// Whether a block is away at a step of an iteration like all others.
fn is_away(absence: &Absence, at: usize, count: usize) -> bool {
    let is_within = |at: usize| (absence.at.freed..absence.at.fetched).contains(&at);
    is_within(at) || is_within(at + count)
}

/// Bytes on the device in a step.
pub(super) fn at(stage: &StageBlocks, work: &StageWork, at: usize) -> u64 {
    let count = work.steps.all().len();
    let away = |layer: usize, block: Block, micro_batch: Option<u32>| {
        let is_it = |one: &&Absence| (one.layer, one.block, one.micro_batch) == (layer, block, micro_batch);
        work.absences.iter().filter(is_it).any(|one| one.part == Part::Own && is_away(one, at, count))
    };
    let mut bytes = stage.fixed;
    for layer in stage.range() {
        for block in [Block::Weights, Block::Gradients, Block::Optimizer] {
            bytes += if away(layer, block, None) { 0 } else { stage.bytes(layer, block) };
        }
        // Where any of its gradients leave, none are counted that no backward pass has made yet.
        let leaves = |one: &Absence| (one.layer, one.block) == (layer, Block::Gradients);
        let passed = |step: &Step| matches!(*step, Step::Backward { layer: of, .. } if of == layer);
        let is_made = work.steps.all()[..=at].iter().any(passed);
        let is_updated = work.steps.index(Step::Update { layer }).is_some_and(|updated| updated < at);
        if work.flushes && work.absences.iter().any(leaves) && (!is_made || is_updated) {
            bytes -= stage.bytes(layer, Block::Gradients);
        }
        for micro_batch in 0.. {
            let Some(forward) = work.steps.index(Step::Forward { micro_batch, layer }) else { break };
            let backward = work.steps.index(Step::Backward { micro_batch, layer }).unwrap();
            let again = work.steps.index(Step::Again { micro_batch, layer });
            let mut hold = |from: usize, to: usize, block: Block| {
                let is_there = (from..=to).contains(&at) && !away(layer, block, Some(micro_batch));
                bytes += if is_there { stage.bytes(layer, block) } else { 0 };
            };
            hold(forward, backward, Block::Versions);
            match again {
                None => hold(forward, backward, Block::Activations),
                Some(again) => {
                    hold(forward, forward, Block::Activations);
                    hold(again, backward, Block::Activations);
                    let run = work.steps.run(layer, work.steps.slot(micro_batch)).unwrap();
                    if *run.layers.start() == layer {
                        hold(forward + 1, backward, Block::Inputs);
                    }
                    bytes += if at == backward { stage.layer(layer).unwrap().working } else { 0 };
                }
            }
        }
    }
    bytes
}

/// What is in the host's memory at a boundary.
pub(super) fn on_host(stage: &StageBlocks, work: &StageWork, boundary: usize, actions: &StageActions) -> u64 {
    let count = work.steps.all().len();
    let is_there = |one: &&Absence| {
        let Optimization::Swap(swap) = &actions.actions[one.action].optimization else { return false };
        let is_within = |at: usize| (one.at.leaves..=one.at.needed).contains(&at);
        swap.to == Destination::Host && (is_within(boundary) || is_within(boundary + count))
    };
    let own = |one: &&Absence| one.part == Part::Own;
    work.absences.iter().filter(own).filter(is_there).map(|one| stage.bytes(one.layer, one.block)).sum()
}

proptest! {
    /// Whatever leaves, is recomputed or stays: the most of every step is what the stage is said to hold, on its device,
    /// the host, and its peers, which have all of what leaves for them.
    #[test]
    fn what_is_held_is_the_most_of_every_step(
        layers in 1_usize..4, index in 0_u32..3, micro_batches in 1_u32..6,
        order in prop_oneof![Just(Order::OneFOneB), Just(Order::Gpipe), Just(Order::PipeDream)],
        optimizations in proptest::collection::vec((0_u8..4, 0_u32..3, 0_u32..3), 15),
    ) {
        let stage = stage(layers);
        let mut actions = StageActions::default();
        for (at, &(optimization, release_after, fetch_before)) in optimizations.iter().enumerate().take(5 * layers) {
            let (layer, block) = (3 + at / 5, BLOCKS[at % 5]);
            let swap = |to| Optimization::Swap(Swap { block, to, release_after, fetch_before });
            let optimization = match (optimization, block) {
                (0, _) => continue,
                (1, Block::Activations) => Optimization::Recompute,
                (2, _) => swap(Destination::Peers(vec![Stripe { stage: 7, share: 4_000 }, Stripe { stage: 8, share: 6_000 }])),
                _ => swap(Destination::Host),
            };
            actions.actions.push(Action { first_layer: layer, last_layer: layer, slots: Vec::new(), optimization });
        }
        let work = StageWork::of(&stage, (index, 3), order, micro_batches, &actions);
        let held = PeakMemory::of(&stage, &work, &actions);
        let count = work.steps.all().len();
        prop_assert_eq!(held.device, (0..count).map(|step| at(&stage, &work, step)).max().unwrap());
        let host = (0..=count).map(|boundary| on_host(&stage, &work, boundary, &actions)).max().unwrap();
        prop_assert_eq!(held.host, host);
        // Nothing that leaves makes the device hold more.
        let only_again = StageActions {
            actions: actions.actions.iter().filter(|action| action.optimization == Optimization::Recompute).cloned().collect(),
            ..StageActions::default()
        };
        let kept = StageWork::of(&stage, (index, 3), order, micro_batches, &only_again);
        prop_assert!(held.device <= PeakMemory::of(&stage, &kept, &only_again).device);
    }
}

/// PipeDream in two stages, by hand: the first has two micro-batches in flight, each with its weights, from its forward to its
/// backward pass, and needs its optimizer's state in every backward pass.
#[test]
fn pipedream_moves_versions_and_state_around_every_pass() {
    let of = |block| {
        let swap = Swap { block, to: Destination::Host, release_after: 0, fetch_before: 0 };
        let action = Action {
            first_layer: 3,
            last_layer: 3,
            slots: Vec::new(),
            optimization: Optimization::Swap(swap),
        };
        let actions = StageActions { actions: vec![action], ..StageActions::default() };
        let work = StageWork::of(&stage(1), (0, 2), Order::PipeDream, 3, &actions);
        let spans = work.absences.iter().map(|one| (one.micro_batch, one.at.leaves, one.at.needed));
        (spans.collect::<Vec<_>>(), PeakMemory::of(&stage(1), &work, &actions))
    };
    // F0 F1 B0 F2 B1 B2 and the update at the end, which PipeDream does not have.
    assert_eq!(of(Block::Versions).0, [(Some(0), 1, 2), (Some(1), 2, 4), (Some(2), 4, 5)]);
    assert_eq!(of(Block::Optimizer).0, [(None, 3, 4)]);
    let layer = stage(1).layers[0];
    let untouched = 77 + layer.lasting() + 2 * (layer.activations + layer.versions);
    assert_eq!(of(Block::Weights).1.device, untouched, "weights are needed where the most is held");
    assert_eq!(of(Block::Versions).1.device, untouched - layer.versions);
}

#[test]
fn a_node_of_a_cluster_keeps_its_pairs() {
    let link = |bytes_per_second| Link { bytes_per_second, latency_seconds: 0.0, origin: LinkOrigin::Given };
    let pair = |a, b, rate| DeviceLink { a, b, class: None, count: 1, link: link(rate) };
    let node = Node {
        name: "node".to_owned(),
        labels: Default::default(),
        driver_version: String::new(),
        devices: Vec::new(),
        link: Some(link(1e9)),
        link_class: None,
        links: vec![pair(0, 2, 5e9), pair(1, 2, 7e9)],
        network: None,
        network_links: None,
        copies: None,
        updates: Vec::new(),
    };
    let capacity = Bytes(1 << 30).0;
    let devices = NodeDevices::of_node(&node, &[(2, capacity), (0, capacity), (1, capacity)], link(2e9), 9);
    let rate = |from, to| devices.link(from, to).map(|link| link.bytes_per_second);
    assert_eq!(
        [rate(0, 1), rate(1, 0), rate(0, 2), rate(1, 2), rate(0, 0)],
        [Some(5e9), Some(5e9), Some(7e9), Some(1e9), None]
    );
    assert_eq!(devices.graph().classes(3).map(|classes| classes.len()), Some(6));
    // What the node says of its host and of copies between two devices counts more.
    let slow = CopyLink { out: link(3e9), back: link(4e9), both_bytes_per_second: None };
    let copies = NodeCopies {
        host_links: vec![HostLink { device: 0, link: slow }],
        peers: vec![PeerCopies { a: 0, b: 2, link: slow }],
        ..NodeCopies::default()
    };
    let said = Node { copies: Some(copies), ..node.clone() };
    let said = NodeDevices::of_node(&said, &[(0, capacity), (2, capacity)], link(2e9), 9);
    assert_eq!([said.host[0], said.host[1]], [slow, CopyLink::full_duplex(link(2e9))]);
    assert_eq!([said.link(0, 1), said.link(1, 0)], [Some(link(3e9)), Some(link(4e9))]);
    // Without any link by way of the host.
    let apart = NodeDevices::of_node(&Node { link: None, ..node }, &[(0, 1), (1, 1)], link(2e9), 9);
    assert_eq!((apart.link(0, 1), apart.seconds(0, 1, 2_000_000_000)), (None, 2.0));
}
