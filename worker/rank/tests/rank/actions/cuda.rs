//! The same on GPUs: queues of copies, pinned memory, and memory of one process that another one uses. Skipped, loudly, on
//! machines without a CUDA device.

use std::path::Path;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::rank::{RankDevice, RankSpec};
use loadmaster_proto::model::zoo::{Bert, Zoo};
use loadmaster_proto::training::actions::{Block, Destination, PeerPool, StageActions, Stripe};
use loadmaster_proto::training::{Precision, Schedule, TrainingSpec};

use super::pools::{away, chain, everything, offload, out_of_memory, peers};
use super::random::Random;
use super::{assert_same_bits, train};
use crate::correctness::{ADAM, SGD};
use crate::cuda::gpu;
use crate::models::{small_bert, small_llama, small_qwen3};
use crate::processes::{connected, pipeline, positions, run, run_all, small_gpt, solo, training};

const ROOM: Bytes = Bytes(1 << 26);

/// Stages on shares of one GPU.
fn on(device: &RankDevice, mut specs: Vec<RankSpec>) -> Vec<RankSpec> {
    specs.iter_mut().for_each(|spec| spec.device = device.clone());
    specs
}

/// Whatever leaves a GPU, for the host or for memory of another process on a GPU, comes back to the bit. Of models whose
/// operators add up in one order, so that two untouched runs are the same.
#[test]
fn what_leaves_a_gpu_comes_back_to_the_bit() {
    let Some(device) = gpu(4 << 30) else { return };
    let mut random = Random::new(5);
    let mut moved = [0; 2];
    let flushed = [small_gpt(true), small_gpt(false), small_bert(), small_llama(), small_qwen3()];
    let flushed = flushed.map(|model| (model, random.of(&[Schedule::Gpipe, Schedule::OneFOneB])));
    let endless = [small_gpt(true), small_bert()].map(|model| (model, Schedule::PipeDream));
    for (model, schedule) in flushed.into_iter().chain(endless) {
        let training = TrainingSpec {
            schedule,
            precision: random.of(&[Precision::Fp32, Precision::Bf16, Precision::Bf16Fp32Gradients]),
            optimizer: random.of(&[ADAM, SGD]),
            micro_batches: 2 + random.below(5) as u32,
            ..training()
        };
        let partitioning = random.partitioning(&model, 3, (1, 1));
        let ranks = |folder: &Path| on(&device, connected(&model, training, &partitioning, folder));
        let [first, second] = [0; 2].map(|_| {
            let folder = tempfile::tempdir().unwrap();
            train(ranks(folder.path()), folder.path()).0
        });
        assert_same_bits(&second, &first, "twice untouched");
        let folder = tempfile::tempdir().unwrap();
        let mut specs = ranks(folder.path());
        random.act(&mut specs);
        let actions: Vec<&StageActions> = specs.iter().map(|spec| &spec.actions).collect();
        let what = format!("{} {training:?} {partitioning} {actions:?}", model.family());
        println!("{what}");
        let (acted, measured) = train(specs, folder.path());
        assert_same_bits(&acted, &first, &what);
        for copies in measured.iter().flat_map(|measured| &offload(measured).copies) {
            assert_eq!(copies.out_bytes, copies.in_bytes, "what left is back: {what}");
            moved[usize::from(copies.peer.is_some())] += copies.out_bytes;
        }
    }
    assert!(moved.iter().all(|&moved| moved > 0), "to the host and to peers: {moved:?}");
}

/// With pencil and paper, as on CPU slots: what is here of five inputs of a linear layer.
#[test]
fn a_gpu_holds_what_is_not_away() {
    let Some(device) = gpu(2 << 30) else { return };
    let (model, edge) = chain();
    let training =
        TrainingSpec { schedule: Schedule::Gpipe, micro_batches: 5, micro_batch_size: 16, ..training() };
    let peaks = [0, 1, 2].map(|fetch_before| {
        let mut spec =
            RankSpec { device: device.clone(), ..solo(&model, training, positions(&[2, 1, 1])[1]) };
        spec.actions = StageActions {
            actions: vec![away((2, 2), Block::Activations, Destination::Host, [0, fetch_before])],
            host_pool: ROOM,
            peer_pools: Vec::new(),
        };
        let measured = run(&spec).measurement();
        let left = u64::from((8 - fetch_before).div_ceil(2));
        let copies = offload(&measured).copies[0];
        assert_eq!((copies.out_bytes, copies.in_bytes), (left * edge, left * edge), "{fetch_before}");
        assert_eq!(offload(&measured).host_peak.0, left * edge, "{fetch_before}");
        assert!(copies.waited_seconds.is_finite() && copies.waited_seconds >= 0.0);
        measured.peak_allocated.0
    });
    // Beside workspaces, which are the same: one, two and three inputs.
    assert_eq!((peaks[1] - peaks[0], peaks[2] - peaks[1]), (edge, edge), "{peaks:?}");
}

/// What leaves is what the GPU's memory was recorded to hold for it: operators also save numbers on the host. All tensors of
/// this layer are multiples of what the allocator rounds up to.
#[test]
fn only_memory_of_the_gpu_leaves_it() {
    let Some(device) = gpu(4 << 30) else { return };
    let model = Zoo::Bert(Bert {
        blocks: 2,
        hidden_size: 128,
        heads: 2,
        sequence_length: 128,
        positions: 128,
        vocabulary_size: 512,
        classes: 2,
        dropout: 0.1,
    })
    .build()
    .unwrap();
    let training =
        TrainingSpec { schedule: Schedule::Gpipe, micro_batches: 4, micro_batch_size: 4, ..training() };
    let position = positions(&vec![1; model.layers().len()])[1];
    let mut spec = RankSpec { device, ..solo(&model, training, position) };
    let trace = run(&spec).measurement().trace.unwrap();
    let own = trace.first.saved.iter().filter(|block| !trace.first.outputs.contains(block));
    let own_bytes: u64 = own.map(|&block| trace.first.blocks[block as usize]).sum();
    spec.actions.actions = vec![away((1, 1), Block::Activations, Destination::Host, [0, 0])];
    spec.actions.host_pool = ROOM;
    // The last of four is used next.
    assert_eq!(offload(&run(&spec).measurement()).copies[0].out_bytes, 3 * own_bytes);
}

/// The pool of the host ends at its last byte, on a GPU too.
#[test]
fn a_pool_of_a_gpu_one_byte_too_small_is_out_of_memory_of_the_host() {
    let Some(device) = gpu(2 << 30) else { return };
    let model = small_gpt(true);
    let training = TrainingSpec { optimizer: ADAM, ..training() };
    let mut spec = RankSpec { device, ..solo(&model, training, positions(&[6])[0]) };
    let untouched = run(&spec).measurement();
    spec.actions.actions = everything(&model, [1, 2]);
    spec.actions.host_pool = ROOM;
    let roomy = run(&spec).measurement();
    let peak = offload(&roomy).host_peak;
    assert!(roomy.peak_allocated < untouched.peak_allocated && roomy.losses == untouched.losses);
    spec.actions.host_pool = peak;
    assert_eq!(offload(&run(&spec).measurement()).host_peak, peak);
    spec.actions.host_pool = Bytes(peak.0 - 1);
    let refused = out_of_memory(&run(&spec));
    assert_eq!((refused.ledger, refused.allowed), (Accounting::Host, Bytes(peak.0 - 1)));
}

/// What others may have on a GPU counts there from the start, and what they had at most is told.
#[test]
fn a_gpu_lends_memory_to_others() {
    let Some(device) = gpu(2 << 30) else { return };
    let training = TrainingSpec { schedule: Schedule::OneFOneB, micro_batches: 6, ..training() };
    let model = small_gpt(true);
    let measured = |lent: u64| {
        let folder = tempfile::tempdir().unwrap();
        let mut specs = on(&device, pipeline(&model, training, &[2, 2, 2], folder.path()));
        if lent > 0 {
            let stripes = [(1, Stripe::WHOLE / 2), (2, Stripe::WHOLE / 2)];
            specs[0].actions.actions = vec![away((0, 1), Block::Activations, peers(stripes), [1, 1])];
            for spec in &mut specs[1..] {
                spec.actions.peer_pools = vec![PeerPool { stage: 0, bytes: Bytes(lent) }];
            }
        }
        run_all(&specs)
    };
    let (untouched, lending) = (measured(0), measured(8 << 20));
    let copies = &offload(&lending[0]).copies;
    assert_eq!(copies.iter().map(|copies| copies.peer).collect::<Vec<_>>(), [Some(1), Some(2)]);
    for (index, (before, now)) in untouched.iter().zip(&lending).enumerate().skip(1) {
        assert_eq!(now.peak_allocated.0 - before.peak_allocated.0, 8 << 20, "stage {index}");
        assert!(offload(now).peer_pool_peak.0 > 0);
    }
    assert!(lending[0].peak_allocated < untouched[0].peak_allocated);
    assert_eq!(lending[2].losses, untouched[2].losses);
}

/// A pace is of CPU slots.
#[test]
fn a_gpu_has_no_pace() {
    let mut spec = solo(&small_gpt(true), training(), positions(&[6])[0]);
    spec.device.backend = Backend::Cuda;
    spec.pace.host = Some(1e9);
    let ended = run(&spec);
    assert!(ended.message().contains("pace.host"), "{}", ended.message());
}
