//! What is found fits, and what fits is found.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::actions::{Action, Optimization, Swap};

use super::brute::{fits, held};
use super::*;

/// A layer that keeps so many MB, its input included, goes forward in 10 ms, and has so many MB of the optimizer's state.
fn keeping(kept: u64, input: u64, working: u64, optimizer: u64) -> LayerBlocks {
    LayerBlocks {
        activations: kept * MB,
        input: input * MB,
        weights: 0,
        gradients: 0,
        optimizer: optimizer * MB,
        working: working * MB,
        ..layer(0, 10)
    }
}

/// There is a plan, and it fits, where devices have so many bytes as a stage holds that does nothing, and these besides or less.
fn assert_found(asked: &Question<'_>, besides: &[i64]) {
    let none = StageActions::default();
    let capacity = |(stage, &of): (usize, &i64)| held(asked, stage, &none).0.checked_add_signed(of).unwrap();
    let capacity = besides.iter().enumerate().map(capacity).collect();
    let tight = NodeDevices { capacity, ..asked.node.clone() };
    let asked = Question { node: &tight, ..*asked };
    let found = plan(&asked, Known::default(), Effort::All).unwrap();
    assert!(fits(&asked, &found.actions), "{:?}", found.actions);
}

/// What one stage puts on a peer was planned before another one took the room there.
#[test]
fn peers_are_never_given_more_than_they_have_room_for() {
    let mb = MB as i64;
    let donor = |optimizer: u64| vec![keeping(100, 5, 50, optimizer); 3];
    let stages = stages(&[donor(10), donor(20), vec![keeping(1, 0, 0, 0)]]);
    let roomy = node(3, u64::MAX / 4, 1e9, 1e14);
    let allowed = Allowed { host: false, ..ALL };
    let blocks = [Block::Activations, Block::Optimizer];
    let asked = Question { micro_batches: 2, blocks: &blocks, ..question(&stages, &roomy, allowed) };
    assert_found(&asked, &[-80 * mb, -15 * mb, 140 * mb]);
}

/// A run that needs more than half of what all layers need is one of those that are tried: a stage of many layers with large inputs
/// fits as a single run alone.
#[test]
fn a_run_of_all_layers_is_tried() {
    let first = keeping(10, 0, 0, 0);
    let others = std::iter::repeat_n(keeping(10, 50, 0, 0), 16);
    let stages = stages(&[std::iter::once(first).chain(others).collect(), vec![keeping(1, 0, 0, 0)]]);
    let roomy = node(2, u64::MAX / 4, 1e9, 1e9);
    let allowed = Allowed { recompute: true, host: false, peers: false };
    let asked = Question { micro_batches: 3, ..question(&stages, &roomy, allowed) };
    assert_found(&asked, &[-170 * MB as i64, 0]);
}

/// Gradients that may leave are not there before they are made, whatever the host has room for: with 80 MB of its memory, 260 MB are
/// absent where one layer is recomputed in one of three micro-batches.
#[test]
fn gradients_that_are_not_there_yet_take_no_room_at_the_host() {
    let of = LayerBlocks { gradients: 80 * MB, ..keeping(100, 0, 0, 0) };
    let stages = stages(&[vec![of; 5]]);
    let roomy = NodeDevices { host_bytes: 80 * MB, ..node(1, u64::MAX / 4, 1e14, 1e14) };
    let allowed = Allowed { peers: false, ..ALL };
    let asked = Question {
        micro_batches: 3,
        order: Order::Gpipe,
        blocks: &[Block::Gradients],
        ..question(&stages, &roomy, allowed)
    };
    let gradients = |layer: usize, release_after: u32| Action {
        first_layer: layer,
        last_layer: layer,
        slots: Vec::new(),
        optimization: Optimization::Swap(Swap {
            block: Block::Gradients,
            to: Destination::Host,
            release_after,
            fetch_before: 0,
        }),
    };
    let again =
        Action { first_layer: 0, last_layer: 0, slots: vec![1], optimization: Optimization::Recompute };
    let actions = vec![again, gradients(0, 4), gradients(3, 5)];
    let plan = vec![StageActions { actions, host_pool: Bytes(80 * MB), ..StageActions::default() }];
    let capacity = vec![held(&asked, 0, &plan[0]).0];
    let tight = NodeDevices { capacity, ..roomy.clone() };
    let asked = Question { node: &tight, ..asked };
    assert!(fits(&asked, &plan));
    let seconds = simulation::seconds(&asked, &[0], &plan).unwrap();
    let least = bound(&asked, Known::default(), seconds).unwrap();
    assert!(least.is_some_and(|least| least <= seconds * (1.0 + 1e-9)), "{least:?} {seconds}");
}

/// Micro-batches that go backward when the others are over need room for themselves alone: recomputing the one that
/// goes backward first would only hold its input besides.
#[test]
fn who_goes_backward_last_may_be_computed_again_alone() {
    for micro_batches in 2..5 {
        let stages = stages(&[vec![layer(20, 1)]]);
        let roomy = node(1, u64::MAX / 4, 1e9, 1e9);
        let allowed = Allowed { recompute: true, host: false, peers: false };
        let asked = Question { order: Order::Gpipe, micro_batches, ..question(&stages, &roomy, allowed) };
        let none = held(&asked, 0, &StageActions::default()).0;
        let first = |slots: u32| {
            let again = Action {
                first_layer: 0,
                last_layer: 0,
                slots: (0..slots).collect(),
                optimization: Optimization::Recompute,
            };
            let actions = StageActions { actions: vec![again], ..StageActions::default() };
            held(&asked, 0, &actions).0
        };
        let fewer = first(micro_batches - 1);
        assert!(fewer < first(micro_batches), "{fewer}");
        assert_found(&asked, &[fewer as i64 - none as i64]);
    }
}
