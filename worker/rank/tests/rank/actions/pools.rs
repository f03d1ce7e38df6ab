//! What is away is in a pool, to the byte; and pools are as large as the plan says, wherever they are.

use std::io::{BufRead, BufReader};
use std::process::Child;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::failure::{OutOfMemory, Phase};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::{CopyPace, Offload};
use loadmaster_proto::measure::rank::{
    EXIT_BAD_SPEC, EXIT_LOST_NEIGHBOUR, EXIT_OUT_OF_MEMORY, RankEvent, RankSpec,
};
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::actions::{
    Action, Block, Destination, Optimization, PeerPool, StageActions, Stripe, Swap,
};
use loadmaster_proto::training::{Schedule, TrainingSpec};

use crate::correctness::ADAM;
use crate::processes::{Ended, pipeline, positions, run, run_all, small_gpt, solo, start, training};

const ROOM: Bytes = Bytes(1 << 24);

/// The block of these layers is away, released and fetched so many steps after and before its uses.
pub(crate) fn away(
    (first_layer, last_layer): (usize, usize),
    block: Block,
    to: Destination,
    [release_after, fetch_before]: [u32; 2],
) -> Action {
    let swap = Swap { block, to, release_after, fetch_before };
    Action { first_layer, last_layer, slots: Vec::new(), optimization: Optimization::Swap(swap) }
}

pub(super) fn peers<const COUNT: usize>(stripes: [(u32, u32); COUNT]) -> Destination {
    Destination::Peers(stripes.map(|(stage, share)| Stripe { stage, share }).to_vec())
}

pub(crate) fn offload(measured: &Measurement) -> &Offload {
    measured.offload.as_deref().unwrap()
}

pub(crate) fn out_of_memory(ended: &Ended) -> OutOfMemory {
    assert_eq!(ended.code, Some(EXIT_OUT_OF_MEMORY), "{ended:?}");
    match ended.events.last() {
        Some(RankEvent::OutOfMemory { out_of_memory }) => out_of_memory.clone(),
        other => panic!("not out of memory but {other:?}"),
    }
}

/// All that leaves of a model with an untied head, at once.
pub(super) fn everything(model: &Model, points: [u32; 2]) -> Vec<Action> {
    let all = (0, model.layers().len() - 1);
    [Block::Activations, Block::Weights, Block::Gradients, Block::Optimizer]
        .map(|block| away(all, block, Destination::Host, points))
        .to_vec()
}

/// Of the layers of [`chain`].
const CHAIN_WIDTH: u64 = 256;

/// Three linear layers behind one that does nothing, and the bytes of what 16 samples have between them.
pub(super) fn chain() -> (Model, u64) {
    let linear = |name: &str| Layer {
        name: name.to_owned(),
        kind: LayerKind::Linear { in_features: CHAIN_WIDTH as i64, out_features: CHAIN_WIDTH as i64 },
    };
    let flatten = Layer { name: "flatten".to_owned(), kind: LayerKind::Flatten };
    let input = ModelInput::Image { channels: 1, height: 1, width: CHAIN_WIDTH as i64 };
    let layers = vec![flatten, linear("a"), linear("b"), linear("c")];
    (Model::new("chain".to_owned(), input, layers).unwrap(), 16 * CHAIN_WIDTH * 4)
}

/// With pencil and paper: a linear layer in the middle of a pipeline, whose five inputs wait in the host but for those
/// that a step needs, or that come a step earlier.
#[test]
fn a_swapped_layer_holds_what_theory_says() {
    let (model, edge) = chain();
    let training =
        TrainingSpec { schedule: Schedule::Gpipe, micro_batches: 5, micro_batch_size: 16, ..training() };
    let weight = CHAIN_WIDTH * CHAIN_WIDTH * 4 + CHAIN_WIDTH * 4;
    for (fetch_before, here) in [(0, 1), (1, 2), (2, 3)] {
        let mut spec = solo(&model, training, positions(&[2, 1, 1])[1]);
        let points = [0, fetch_before];
        spec.actions = StageActions {
            actions: vec![away((2, 2), Block::Activations, Destination::Host, points)],
            host_pool: ROOM,
            peer_pools: Vec::new(),
        };
        let measured = run(&spec).measurement();
        // Parameters, gradients and velocities; the inputs that are here; the gradients of output and input, and the
        // new ones of the parameters.
        let expected = 3 * weight + here * edge + 2 * edge + weight;
        assert_eq!(measured.peak_allocated.0, expected, "{fetch_before}");
        // Micro-batch i of five goes at boundary i + 1 and would be back so many before 9 - i.
        let left = u64::from((8 - fetch_before).div_ceil(2));
        let copies = offload(&measured).copies[0];
        assert_eq!((copies.out_bytes, copies.in_bytes), (left * edge, left * edge), "{fetch_before}");
        assert_eq!(offload(&measured).host_peak.0, left * edge, "{fetch_before}");
    }
}

/// The pool of the host may be as small as what is there at once. One byte less is out of memory, in the host's ledger.
#[test]
fn a_pool_one_byte_too_small_is_out_of_memory_of_the_host() {
    let model = small_gpt(true);
    for points in [[0, 0], [1, 2]] {
        let mut spec = solo(&model, TrainingSpec { optimizer: ADAM, ..training() }, positions(&[6])[0]);
        spec.actions.actions = everything(&model, points);
        spec.actions.host_pool = ROOM;
        let roomy = run(&spec).measurement();
        let peak = offload(&roomy).host_peak;
        assert!(peak.0 > roomy.peak_allocated.0, "most of it is away");

        spec.actions.host_pool = peak;
        let tight = run(&spec).measurement();
        assert_eq!((tight.peak_allocated, &tight.losses), (roomy.peak_allocated, &roomy.losses));
        assert_eq!(offload(&tight).host_peak, peak);

        spec.actions.host_pool = Bytes(peak.0 - 1);
        let refused = out_of_memory(&run(&spec));
        assert_eq!((refused.ledger, refused.allowed), (Accounting::Host, Bytes(peak.0 - 1)));
        assert!(refused.held.0 + refused.asked.0 > refused.allowed.0 && refused.held <= refused.allowed);
    }
}

/// A pool that this host cannot make is out of memory in its ledger as well, beside what it has left.
#[test]
fn a_pool_that_no_host_has_is_out_of_memory_of_the_host() {
    let mut spec = solo(&small_gpt(true), training(), positions(&[6])[0]);
    spec.actions.actions = vec![away((1, 3), Block::Activations, Destination::Host, [0, 0])];
    spec.actions.host_pool = Bytes(1 << 48);
    let refused = out_of_memory(&run(&spec));
    assert_eq!((refused.ledger, refused.asked), (Accounting::Host, Bytes(1 << 48)));
    assert!(refused.allowed.0 > 0 && refused.allowed < refused.asked);
}

/// What fails in the middle of a backward pass, which is libtorch's, ends it with the cause.
#[test]
fn a_boundary_that_fails_ends_its_backward_pass() {
    let mut spec = solo(&small_gpt(true), training(), positions(&[6])[0]);
    spec.actions.actions = vec![away((1, 3), Block::Gradients, Destination::Host, [0, 0])];
    let refused = out_of_memory(&run(&spec));
    // The third block's gradients leave where the second block's pass begins.
    assert_eq!((refused.ledger, refused.phase, refused.layer), (Accounting::Host, Phase::Backward, Some(2)));
    assert_eq!((refused.held, refused.allowed), (Bytes(0), Bytes(0)));

    let mut spec = solo(&small_gpt(true), training(), positions(&[6])[0]);
    spec.actions.actions = everything(&spec.model, [0, 0]);
    spec.actions.host_pool = ROOM;
    let measured = run(&spec).measurement();
    spec.device.capacity = Bytes(measured.peak_allocated.0 - 1);
    assert_eq!(out_of_memory(&run(&spec)).ledger, Accounting::Allocated);
}

/// With everything away a device holds little more than the largest layer; and no moment, setting up and the first
/// iteration included, needs more than the peak that is measured.
#[test]
fn a_device_holds_what_is_at_work() {
    let model = small_gpt(true);
    let training = TrainingSpec { optimizer: ADAM, micro_batches: 8, ..training() };
    let mut spec = solo(&model, training, positions(&[6])[0]);
    let untouched = run(&spec).measurement();
    spec.actions.actions = everything(&model, [0, 0]);
    spec.actions.host_pool = ROOM;
    let acted = run(&spec).measurement();
    assert_eq!(acted.losses, untouched.losses);
    assert!(acted.peak_allocated.0 < untouched.peak_allocated.0 / 4, "{acted:?} {untouched:?}");
    assert!(acted.peak_allocated.0 < acted.static_bytes.total());

    spec.device.capacity = acted.peak_allocated;
    assert_eq!(run(&spec).measurement().losses, untouched.losses);
    spec.device.capacity = Bytes(acted.peak_allocated.0 - 1);
    assert_eq!(out_of_memory(&run(&spec)).ledger, Accounting::Allocated);
}

/// Stage 0 parks its activations on the devices of both others, a third of each here and the rest there.
fn striped(pool: [Bytes; 2], folder: &std::path::Path) -> Vec<RankSpec> {
    let mut specs = pipeline(&small_gpt(false), training(), &[3, 2, 1], folder);
    let to = peers([(1, 3_333), (2, 6_667)]);
    specs[0].actions.actions = vec![away((0, 2), Block::Activations, to, [0, 0])];
    for (spec, bytes) in specs[1..].iter_mut().zip(pool) {
        spec.actions.peer_pools = vec![PeerPool { stage: 0, bytes }];
    }
    specs
}

/// A pool for another stage is part of a device's own peak, whole and from the start; the one whose blocks are there has
/// fewer, by what theory says; and both know how much was there.
#[test]
fn what_is_set_aside_for_others_counts() {
    let folder = tempfile::tempdir().unwrap();
    let untouched = run_all(&pipeline(&small_gpt(false), training(), &[3, 2, 1], folder.path()));
    let folder = tempfile::tempdir().unwrap();
    let roomy = run_all(&striped([ROOM; 2], folder.path()));
    assert_eq!(roomy[2].losses, untouched[2].losses);
    assert!(roomy[0].peak_allocated < untouched[0].peak_allocated);
    let peer_pools = [1, 2].map(|stage: usize| {
        assert_eq!(roomy[stage].peak_allocated.0, untouched[stage].peak_allocated.0 + ROOM.0);
        offload(&roomy[stage]).peer_pool_peak
    });
    let moved: Vec<_> =
        offload(&roomy[0]).copies.iter().map(|copies| (copies.peer, copies.out_bytes > 0)).collect();
    assert_eq!(moved, [(Some(1), true), (Some(2), true)], "and nothing at the host");

    let folder = tempfile::tempdir().unwrap();
    let tight = run_all(&striped(peer_pools, folder.path()));
    assert_eq!((&tight[2].losses, tight[0].peak_allocated), (&untouched[2].losses, roomy[0].peak_allocated));
    for (stage, bytes) in [(1, peer_pools[0]), (2, peer_pools[1])] {
        assert_eq!(offload(&tight[stage]).peer_pool_peak, bytes);
        assert_eq!(tight[stage].peak_allocated.0, untouched[stage].peak_allocated.0 + bytes.0);
    }

    let folder = tempfile::tempdir().unwrap();
    let specs = striped([Bytes(peer_pools[0].0 - 1), peer_pools[1]], folder.path());
    let children: Vec<Child> = specs.iter().map(start).collect();
    let ended: Vec<Ended> = children.into_iter().map(Ended::of).collect();
    assert_eq!(out_of_memory(&ended[0]).allowed, Bytes(peer_pools[0].0 - 1));
    assert!(ended[1..].iter().all(|ended| ended.code == Some(EXIT_LOST_NEIGHBOUR)), "{ended:?}");
}

/// A stage alone needs as much as between its neighbours, wherever its blocks go and whoever has blocks there.
#[test]
fn a_stage_alone_moves_as_much_as_in_its_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    let specs = striped([ROOM; 2], folder.path());
    let connected = run_all(&specs);
    for ((spec, connected), position) in specs.iter().zip(&connected).zip(positions(&[3, 2, 1])) {
        let mut alone = solo(&spec.model, spec.training, position);
        alone.actions = spec.actions.clone();
        let alone = run(&alone).measurement();
        assert_eq!(alone.peak_allocated, connected.peak_allocated);
        let moved = |measured: &Measurement| -> Vec<(Option<u32>, u64, u64)> {
            let copies = offload(measured).copies.iter();
            copies.map(|copies| (copies.peer, copies.out_bytes, copies.in_bytes)).collect()
        };
        let hosts_only = spec.actions.actions.is_empty();
        assert!(hosts_only || moved(&alone) == moved(connected));
    }
}

/// Copies with a pace are waited for as long as they take: here nothing hides them.
#[test]
fn a_pace_makes_waiting_real() {
    let model = small_gpt(false);
    let mut spec = solo(&model, training(), positions(&[6])[0]);
    spec.actions.actions = vec![away((0, 5), Block::Activations, Destination::Host, [0, 0])];
    spec.actions.host_pool = ROOM;
    let pace = 1e6;
    spec.pace = CopyPace { host: Some(pace), peer: None };
    let measured = run(&spec).measurement();
    let copies = offload(&measured).copies[0];
    let seconds = (copies.out_bytes + copies.in_bytes) as f64 / pace;
    // Computing goes on while the first byte is on its way, but not for longer.
    assert!(seconds > 0.1 && copies.waited_seconds > 0.9 * seconds, "{copies:?} {seconds}");
    assert!(measured.iteration_seconds > copies.waited_seconds);
}

/// Whoever dies, the others end; what was shared goes with its processes.
#[test]
fn a_killed_peer_ends_the_others() {
    for killed in [0, 2] {
        let folder = tempfile::tempdir().unwrap();
        let mut specs = striped([ROOM; 2], folder.path());
        specs.iter_mut().for_each(|spec| spec.iterations = 1000);
        let mut children: Vec<Child> = specs.iter().map(start).collect();
        let mut victim = children.remove(killed);
        let told = BufReader::new(victim.stdout.take().unwrap()).lines();
        assert!(told.map_while(Result::ok).any(|line| line.contains("backward")), "it ended too early");
        victim.kill().unwrap();
        for child in children {
            let ended = Ended::of(child);
            assert_eq!(ended.code, Some(EXIT_LOST_NEIGHBOUR), "{ended:?}");
        }
        victim.wait().unwrap();
        // Sockets alone are left, which go with the folder.
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            assert_eq!(entry.unwrap().path().extension().unwrap(), "sock");
        }
    }
}

/// Actions that make no sense are refused by field, and a peer that sets nothing aside is not waited for for ever.
#[test]
fn actions_that_make_no_sense_are_refused() {
    let good = solo(&small_gpt(false), training(), positions(&[6])[0]);
    let cases = [
        (away((0, 6), Block::Activations, Destination::Host, [0, 0]), "actions.optimizations[0].last_layer"),
        (away((0, 1), Block::Weights, Destination::Host, [0, 0]), "actions.optimizations[0].swap.block"),
        (away((1, 1), Block::Inputs, Destination::Host, [0, 0]), "actions.optimizations[0].swap.block"),
        (
            away((1, 1), Block::Optimizer, peers([(0, 10_000)]), [0, 0]),
            "actions.optimizations[0].swap.peer_stripes[0].stage",
        ),
    ];
    for (action, field) in cases {
        let mut bad = good.clone();
        bad.actions.actions = vec![action];
        let ended = run(&bad);
        assert_eq!(ended.code, Some(EXIT_BAD_SPEC), "{ended:?}");
        assert!(ended.message().contains(field), "{field}: {}", ended.message());
    }
    let bad = RankSpec { pace: CopyPace { host: Some(0.0), peer: None }, ..good };
    assert!(run(&bad).message().contains("pace.host"), "{:?}", run(&bad));

    let folder = tempfile::tempdir().unwrap();
    let mut specs = striped([ROOM; 2], folder.path());
    specs[1].actions.peer_pools.clear();
    specs.iter_mut().for_each(|spec| spec.neighbour_timeout_seconds = 1.0);
    let children: Vec<Child> = specs.iter().map(start).collect();
    let ended: Vec<Ended> = children.into_iter().map(Ended::of).collect();
    assert!(ended.iter().all(|ended| !matches!(ended.code, Some(0))), "{ended:?}");
}
