//! Activations on the host beside chunks: what is trained is the same, and what is there is what was planned.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::chunks::activations::{ActivationPoints, on_host};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::training::actions::{
    Action, Block, Destination, Optimization, PeerPool, StageActions, Stripe,
};

use super::shared::Replicas;
use super::*;
use crate::actions::pools::{away, offload, out_of_memory};

pub(super) const ROOM: Bytes = Bytes(1 << 26);

/// What a model's layers keep goes to the host at these points, where there is so much room.
pub(super) fn kept_on_host(spec: &RankSpec, points: [u32; 2], host_pool: Bytes) -> StageActions {
    let [release_after, fetch_before] = points;
    let points = ActivationPoints { release_after, fetch_before };
    let layers = spec.model.layers().len();
    StageActions { host_pool, ..on_host(layers, spec.training.recompute, points) }
}

pub(super) fn with(spec: &RankSpec, actions: StageActions) -> RankSpec {
    RankSpec { actions, ..spec.clone() }
}

/// Every family, in both formats and orders, kept or recomputed, with chunks of any size that are evicted at every boundary
/// or paged: the same bits. Chunks move what they would without; what leaves comes back; and a device holds at most what a step
/// needs, less what is away, and the chunks that are there.
#[test]
#[ignore = "slow: make test-slow"]
fn models_become_the_same_with_activations_on_the_host() {
    let mut random = Random::new(31);
    let recomputes = [RecomputePolicy::None, RecomputePolicy::Layer].into_iter().cycle();
    for (model, recompute) in families().into_iter().zip(recomputes) {
        let training = TrainingSpec {
            schedule: random.of(&[Schedule::Gpipe, Schedule::OneFOneB]),
            precision: random.of(&[Precision::Fp32, Precision::Bf16]),
            recompute,
            optimizer: random.of(&[ADAM, SGD]),
            micro_batches: 1 + random.below(4) as u32,
            ..training()
        };
        let spec = RankSpec { iterations: 2, ..whole(&model, training) };
        let (plain, _) = run(&spec, None);
        for order in ChunkOrder::ALL {
            let bare = ChunkedStage {
                host_copy: HostParameters::Stored,
                ..in_chunks(700 + 600 * random.below(3) as u64, order)
            };
            let residency = match random.below(2) {
                0 => at_every_boundary(&spec, &bare, &mut random),
                _ => ChunkResidency::Paged,
            };
            let chunks = ChunkedStage { residency, ..bare };
            let points = [random.below(4) as u32, random.below(4) as u32];
            let what = format!("{} {training:?} {order} {points:?}", model.family());
            let (_, there) = run(&spec, Some(chunks.clone()));
            let (away, measured) = run(&with(&spec, kept_on_host(&spec, points, ROOM)), Some(chunks));
            assert_same_bits(&away, &plain, &what);
            assert_less_is_there(&measured, &there, &what);
        }
    }
}

/// Chunks move as they would without activations on the host, and what steps need less is there at least.
fn assert_less_is_there(away: &Measurement, there: &Measurement, what: &str) {
    let [told, before] = [away, there].map(|of| of.chunks.as_ref().unwrap());
    assert_eq!((told.up_bytes, told.down_bytes), (before.up_bytes, before.down_bytes), "{what}");
    assert_eq!(told.host_bytes, before.host_bytes, "{what}: the pool is another one");
    let less = told.other_bytes.iter().zip(&before.other_bytes);
    assert!(less.clone().all(|(away, there)| away <= there), "{what}");
    let sums = told.other_bytes.iter().zip(&told.payload_bytes).map(|(one, other)| one + other);
    assert_eq!(away.peak_allocated.0, sums.max().unwrap(), "{what}");
    let of = offload(away);
    for copies in &of.copies {
        assert_eq!((copies.peer, copies.out_bytes), (None, copies.in_bytes), "{what}");
        assert!(less.clone().any(|(away, there)| away < there), "{what}");
    }
    let most = less.map(|(away, there)| there - away).max().unwrap();
    assert!(most <= of.host_peak.0, "{what}: {most} bytes are away, {} of them there", of.host_peak);
}

/// Ranks that share chunks, shards with chunks of their own, and both: each has its own activations on the host.
#[test]
fn ranks_and_shards_train_the_same_with_activations_on_the_host() {
    let cases = [
        (ChunkOrder::Layer, 2, 1),
        (ChunkOrder::MicroBatch, 3, 1),
        (ChunkOrder::MicroBatch, 1, 2),
        (ChunkOrder::Layer, 2, 2),
    ];
    for (order, ranks, shards) in cases {
        let training = TrainingSpec { micro_batch_size: 12, micro_batches: 2, optimizer: ADAM, ..training() };
        let replicas = Replicas { shards, ..Replicas::new(small_gpt(true), training, ranks) };
        let (plain, _) = replicas.train(None);
        let bare = in_chunks(1200, order);
        let intervals = bare.bare_intervals(&replicas.lay_out(&bare)).unwrap();
        let chunks = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..bare };
        let spec = whole(&replicas.model, training);
        let what = format!("{order} {ranks} x {shards}");
        let (shared, measured) = replicas.train_acting(Some(&chunks), &kept_on_host(&spec, [1, 1], ROOM));
        assert_same_bits(&shared, &plain, &what);
        let (_, there) = replicas.train(Some(&chunks));
        for (away, there) in measured.iter().zip(&there) {
            replicas.assert_counted(&chunks, away, &what);
            assert_less_is_there(away, there, &what);
            assert!(offload(away).copies.iter().all(|copies| copies.out_bytes > 0), "{what}");
        }
    }
}

/// A pool of what is there at once is enough, and a byte less is not; the host says so.
#[test]
fn the_pool_is_as_large_as_what_is_there_at_once() {
    let model = small_gpt(true);
    for (recompute, order) in
        [(RecomputePolicy::None, ChunkOrder::Layer), (RecomputePolicy::Layer, ChunkOrder::MicroBatch)]
    {
        let training = TrainingSpec { recompute, micro_batches: 3, ..training() };
        let spec = whole(&model, training);
        let chunks = in_chunks(1200, order);
        let pool = |bytes| with(&spec, kept_on_host(&spec, [1, 2], Bytes(bytes)));
        let (_, roomy) = run(&pool(ROOM.0), Some(chunks.clone()));
        let peak = offload(&roomy).host_peak.0;
        let (_, tight) = run(&pool(peak), Some(chunks.clone()));
        assert_eq!(offload(&tight).host_peak.0, peak);
        let short = RankSpec { chunks: Some(Box::new(chunks)), ..pool(peak - 1) };
        let told = out_of_memory(&crate::processes::run(&short));
        assert_eq!((told.ledger, told.allowed), (Accounting::Host, Bytes(peak - 1)));
    }
}

/// Chunks and activations share the two ways of the link: copies that are paced take as long as all of them together, whoever
/// asked for them.
#[test]
fn one_link_carries_both() {
    let model = small_gpt(true);
    let training = TrainingSpec { micro_batches: 4, ..training() };
    let pace = CopyPace { host: Some(2e6), peer: None };
    let spec = RankSpec { iterations: 1, pace, ..whole(&model, training) };
    let chunks = in_chunks(1200, ChunkOrder::Layer);
    let (_, measured) = run(&with(&spec, kept_on_host(&spec, [0, 0], ROOM)), Some(chunks));
    let (told, of) = (measured.chunks.as_ref().unwrap(), offload(&measured));
    let copied = of.copies[0];
    for bytes in [told.up_bytes + copied.in_bytes, told.down_bytes + copied.out_bytes] {
        // Copies take no less than their pace allows, and begin and end within the iteration.
        let least = bytes as f64 / 2e6;
        assert!(measured.iteration_seconds >= least, "{} s, not {least}", measured.iteration_seconds);
    }
    assert!(copied.waited_seconds > 0.0 && told.fetch_seconds > 0.0);
}

/// What cannot be done beside chunks is refused by the name of its field.
#[test]
fn actions_that_chunks_know_nothing_of_are_refused_by_name() {
    let model = small_gpt(true);
    let spec = whole(&model, training());
    let last = model.layers().len() - 1;
    let swap = |block, to| away((0, last), block, to, [1, 1]);
    let one = |action| StageActions { actions: vec![action], host_pool: ROOM, ..StageActions::default() };
    let peer_pools = vec![PeerPool { stage: 1, bytes: Bytes(8) }];
    let recompute =
        Action { first_layer: 0, last_layer: 1, slots: Vec::new(), optimization: Optimization::Recompute };
    let of_slot = Action { slots: vec![0], ..swap(Block::Activations, Destination::Host) };
    let peers = Destination::Peers(vec![Stripe { stage: 1, share: Stripe::WHOLE }]);
    let cases = [
        (one(recompute), "actions.optimizations[0].recompute"),
        (one(of_slot), "actions.optimizations[0].micro_batch_slots"),
        (one(swap(Block::Weights, Destination::Host)), "actions.optimizations[0].swap.block"),
        (one(swap(Block::Optimizer, Destination::Host)), "actions.optimizations[0].swap.block"),
        (one(swap(Block::Inputs, Destination::Host)), "actions.optimizations[0].swap.block"),
        (one(swap(Block::Activations, peers)), "actions.optimizations[0].swap.peer_stripes"),
        (StageActions { peer_pools, ..StageActions::default() }, "actions.peer_pools"),
    ];
    for (actions, field) in cases {
        let chunks = Some(Box::new(in_chunks(1200, ChunkOrder::Layer)));
        let ended = crate::processes::run(&RankSpec { chunks, ..with(&spec, actions) });
        assert_eq!(ended.code, Some(EXIT_BAD_SPEC), "{field}: {ended:?}");
        assert!(ended.message().contains(field), "{field}: {}", ended.message());
    }
}
