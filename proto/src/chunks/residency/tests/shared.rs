//! What ranks that share chunks give each other, and what their devices hold always.

use proptest::prelude::*;

use super::naive::{Case, Need, cases, gpt};
use super::{stage, training};
use crate::chunks::embedding::EmbeddingPlace;
use crate::chunks::host::HostParameters;
use crate::chunks::residency::Payload;
use crate::chunks::residency::intervals::{Moved, ResidencyInterval};
use crate::chunks::residency::paging_intervals::Paging;
use crate::chunks::stage::{ChunkEviction, ChunkedStage};
use crate::training::actions::Step;
use crate::training::chunk_order::ChunkOrder;
use crate::training::stage::StageConfig;
use crate::training::{Precision, RecomputePolicy, Schedule};

/// Residency intervals of the case's own rule for unfinished gradients, with room for some payloads more than steps need.
fn intervals(case: &Case, share: u64, paging: Paging) -> Vec<ResidencyInterval> {
    let always = case.chunks.on_device_bytes();
    let all: u64 = case.needs().iter().map(|&(payload, _)| case.bytes(payload)).sum();
    let room: Vec<u64> = case.needed().iter().map(|needed| always + needed + all * share / 100).collect();
    case.stage.paged(paging, &case.chunks, &room).unwrap()
}

/// What a residency interval moves, told from what its payload is needed for: bytes over the link and between ranks.
fn moved(case: &Case, interval: &ResidencyInterval, need: &Need) -> Moved {
    let Payload { chunk, is_gradients } = interval.payload;
    let scalar = case.scalar();
    let extent = case.chunks.layout.chunks()[chunk].extent;
    let own = scalar * if case.ranks == 1 { extent } else { case.part(chunk) };
    let others = u64::from(case.ranks - 1) * scalar * case.part(chunk);
    let is_within = |step: &usize| (interval.at.needed..interval.at.leaves).contains(step);
    let had_gradients = need.gradients.first().is_some_and(|&first| first < interval.at.needed);
    let is_complete = need.last_gradient().is_some_and(|last| is_within(&last));
    let is_changed = need.gradients.iter().any(is_within) || (had_gradients && !is_complete);
    let whole = if case.ranks == 1 { extent * scalar } else { case.bytes(interval.payload) };
    let mut moved = Moved::default();
    let is_forward = matches!(case.chunks.steps.all()[interval.at.needed], Step::Forward { .. });
    if had_gradients {
        (moved.up, moved.unfinished_up) = (whole, whole);
    } else if !is_gradients {
        (moved.up, moved.gathered) = (own, others);
        moved.backward_up = if is_forward { 0 } else { own };
    }
    moved.fetches = u64::from(moved.up > 0);
    if is_complete {
        (moved.down, moved.scattered) = (own, others);
    } else if need.gradients.iter().any(is_within) {
        (moved.down, moved.unfinished_down) = (whole, whole);
    }
    assert!(is_changed || moved.down == 0);
    if case.has_parts(chunk) {
        assert!(!had_gradients && (is_complete || !is_changed), "the host has no place for it");
        let Moved { gathered, scattered, .. } = moved;
        moved = Moved { gathered, scattered, ..Moved::default() };
    }
    moved
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Bytes over the link, and between ranks, interval by interval. Of chunks whose state is on the device nothing
    /// passes the link; their parts are gathered whenever they come, and reduced once.
    #[test]
    fn what_ranks_move_follows_from_their_visits(
        case in cases(), share in 0_u64..60, ahead in 0_usize..3, behind in 0_usize..3
    ) {
        let paging = Paging { ahead, behind };
        let (intervals, needs) = (intervals(&case, share, paging), case.needs());
        let mut sum = Moved::default();
        for interval in &intervals {
            let need = &needs.iter().find(|of| of.0 == interval.payload).unwrap().1;
            let of = moved(&case, interval, need);
            sum.up += of.up;
            sum.down += of.down;
            sum.backward_up += of.backward_up;
            sum.unfinished_up += of.unfinished_up;
            sum.unfinished_down += of.unfinished_down;
            sum.fetches += of.fetches;
            sum.gathered += of.gathered;
            sum.scattered += of.scattered;
        }
        if case.is_on_host() {
            // Samples of eight tokens, one for each rank in each micro-batch, a row of sixteen each.
            let bytes = 8 * 16 * case.scalar();
            let steps = case.chunks.steps.all().iter();
            let of_rows = |is: fn(&&Step) -> bool| steps.clone().filter(is).count() as u64 * bytes;
            sum.rows_up = of_rows(|of| matches!(of, Step::Forward { layer: 0, .. } | Step::Again { layer: 0, .. }));
            sum.rows_down = of_rows(|of| matches!(of, Step::Backward { layer: 0, .. }));
            sum.up += sum.rows_up;
            sum.down += sum.rows_down;
            // Ranks give each other the table once, and its gradients.
            let others = u64::from(case.ranks - 1) * case.scalar() * case.part(0);
            (sum.gathered, sum.scattered) = (sum.gathered + others, sum.scattered + others);
        }
        let told = case.stage.told(&case.chunks, &intervals).unwrap();
        prop_assert_eq!(case.chunks.moved(&told), sum);
    }

    /// Whatever room there is, a device holds its part of each chunk whose state it has in all lists: sixteen bytes of an element
    /// in fp32, fourteen in bf16, with `Adam`.
    #[test]
    fn parts_of_all_lists_are_always_there(case in cases()) {
        let each = 12 + case.scalar();
        let of = |&chunk: &usize| {
            let is_apart = case.needs().iter().any(|(of, _)| of.chunk == chunk && of.is_gradients);
            let gradients = if is_apart && case.ranks == 1 { case.part(chunk) * case.scalar() } else { 0 };
            each * case.part(chunk) + gradients
        };
        prop_assert_eq!(case.chunks.on_device_bytes(), case.stage.on_device.iter().map(of).sum::<u64>());
    }
}

/// Exclusive moves copy back what leaves unchanged, but not what comes from ranks' devices.
#[test]
fn exclusive_moves_are_of_chunks_on_the_host() {
    let model = gpt(1, true);
    let training = training((Schedule::Gpipe, 1), RecomputePolicy::None, Precision::Bf16);
    let bare = stage(512, ChunkOrder::Layer, HostParameters::Stored);
    let stage = ChunkedStage { moves: ChunkEviction::WriteBack, ..bare };
    let count = stage.lay_out(&model, &training).unwrap().layout.chunks().len();
    let moved = |on_device: Vec<usize>| {
        let stage = ChunkedStage { on_device, ..stage.clone() };
        let chunks = stage.lay_out_shared(&model, &training, 2).unwrap();
        let bare = stage.bare_intervals(&chunks).unwrap();
        chunks.moved(&stage.told(&chunks, &bare).unwrap())
    };
    let (host, device) = (moved(Vec::new()), moved((0..count).collect()));
    assert!(host.up > 0 && host.down == host.up, "{host:?}");
    // What comes once more for its backward pass left as it came before, and all leaves with gradients, of two ranks
    // as much as between them.
    assert_eq!((host.unchanged_down, host.unchanged_down + host.scattered), (host.backward_up, host.down));
    assert_eq!((device.up, device.down, device.fetches, device.unchanged_down), (0, 0, 0, 0));
    assert_eq!((device.gathered, device.scattered), (host.gathered, host.scattered));
}

/// All shards have the layout of the first one: each tensor of each shard has room in its place, and of the first one no place is
/// longer than its tensor; with one shard it is the layout of the whole model.
#[test]
fn every_shard_has_room_in_the_places_of_the_first() {
    let training = training((Schedule::Gpipe, 2), RecomputePolicy::None, Precision::Bf16);
    for (model, degree) in [(gpt(2, true), 2), (gpt(1, false), 2), (gpt(1, true), 1)] {
        let whole = StageConfig::single(0, model.layers().len() - 1);
        for replicas in [1, 3] {
            let split = StageConfig { data_degree: replicas, tensor_degree: degree, ..whole };
            let stage = stage(300, ChunkOrder::Layer, HostParameters::Cast);
            let chunks = stage.lay_out_split(&model, &training, &split).unwrap();
            assert_eq!(chunks.sharing.ranks(), replicas, "each shard shares with its like");
            for device in 0..split.devices() {
                let tensors = model.rank_parameters(&split, device);
                let places = chunks.layout.tensors();
                assert_eq!(tensors.len(), places.len());
                for (tensor, place) in tensors.iter().zip(places) {
                    let is_first = split.shard(device).index == 0;
                    assert!(tensor.elements() <= place.elements, "{device}: {tensor:?}");
                    assert!(!is_first || tensor.elements() == place.elements, "{tensor:?}");
                }
            }
            if degree == 1 {
                let shared = stage.lay_out_shared(&model, &training, replicas).unwrap();
                assert_eq!((chunks.layout, chunks.host), (shared.layout, shared.host));
            }
        }
    }
}

/// A table on the host is of whole layers: shards have none, and pipelines have no chunks.
#[test]
fn what_stages_cannot_have_in_chunks_is_named() {
    let (model, training) =
        (gpt(1, true), training((Schedule::Gpipe, 1), RecomputePolicy::None, Precision::Bf16));
    let whole = StageConfig::single(0, model.layers().len() - 1);
    let on_host = ChunkedStage {
        embedding: EmbeddingPlace::Host,
        ..stage(512, ChunkOrder::Layer, HostParameters::Stored)
    };
    let field = |stage: &ChunkedStage, of: StageConfig, count: u32| {
        stage.lay_out_stage(&model, &training, (&of, count)).unwrap_err().violations()[0].field.clone()
    };
    assert!(on_host.lay_out_stage(&model, &training, (&whole, 1)).is_ok());
    let of_two = StageConfig { data_degree: 2, ..whole };
    assert!(on_host.lay_out_stage(&model, &training, (&of_two, 1)).is_ok());
    assert_eq!(field(&on_host, StageConfig { tensor_degree: 2, ..whole }, 1), "chunks.embedding_place");
    let bare = stage(512, ChunkOrder::Layer, HostParameters::Stored);
    assert_eq!(field(&bare, whole, 2), "chunks");
    assert_eq!(field(&bare, StageConfig::single(0, 1), 1), "chunks");
}
