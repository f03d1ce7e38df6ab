//! Residency intervals of chunks of unlike sizes against every set of gaps in which payloads may be there.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::ActivationPlace;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::host::{HostParameters, may_leave_unfinished};
use loadmaster_proto::chunks::residency::intervals::ResidencyInterval;
use loadmaster_proto::chunks::residency::paging_intervals::Paging;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage, Chunks};
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::{Precision, RecomputePolicy, TrainingSpec};
use proptest::prelude::*;

use super::draw::{Case, Costs, RATES, cases, chain, stages, training};
use super::weighed::is_held;
use crate::chunks::irregular_chunks::IrregularChunks;
use crate::chunks::{ChunkChoices, ChunkQuestion, TriedSizes, choose};

/// Most gaps of all payloads of which every set is tried.
const MOST: usize = 11;

/// The fewest bytes that come, of payloads that are there in every set of gaps between their uses, if there are few enough of
/// these.
fn fewest(stage: &ChunkedStage, chunks: &Chunks, room: &[u64]) -> Option<u64> {
    let mut always = vec![chunks.on_device_bytes(); room.len()];
    let (mut all, mut gaps) = (0, Vec::new());
    for of in chunks.uses.payloads().iter().filter(|of| !of.steps.is_empty()) {
        let chunk = of.payload.chunk;
        let bytes = chunks.payload_bytes(chunk);
        let is_on_device = stage.on_device.contains(&chunk);
        let may_leave = may_leave_unfinished(stage.host_copy, &chunks.sharing, is_on_device, of);
        let (first, last) = (of.gradients.iter().min(), of.gradients.iter().max());
        let must_be_there = |step: usize| {
            of.steps.contains(&step)
                || !may_leave
                    && first.is_some_and(|first| *first <= step)
                    && last.is_some_and(|last| step <= *last)
        };
        all += bytes;
        let ends = [of.steps[0], of.steps[of.steps.len() - 1]];
        let mut gap = Vec::new();
        let between = ends[1] + 1 - ends[0];
        for (step, held) in always.iter_mut().enumerate().skip(ends[0]).take(between) {
            if must_be_there(step) {
                *held += bytes;
                gaps.extend((!gap.is_empty()).then(|| (std::mem::take(&mut gap), bytes)));
            } else {
                gap.push(step);
            }
        }
    }
    if gaps.len() > MOST {
        return None;
    }
    let comes = |set: usize| {
        let mut held = always.clone();
        let mut again = 0;
        for (at, (gap, bytes)) in gaps.iter().enumerate() {
            if set >> at & 1 == 1 {
                gap.iter().for_each(|&step| held[step] += bytes);
            } else {
                again += bytes;
            }
        }
        held.iter().zip(room).all(|(held, room)| held <= room).then_some(all + again)
    };
    (0..1_usize << gaps.len()).filter_map(comes).min()
}

fn bytes(chunks: &Chunks, intervals: &[ResidencyInterval]) -> u64 {
    intervals.iter().map(|interval| chunks.payload_bytes(interval.payload.chunk)).sum()
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(300))]

    /// Ways of oversized chunks to be there fetch no more than the rule alone, have room, and fetch as few bytes as any
    /// intervals where that is called proven.
    #[test]
    fn outliers_fetch_no_more_than_by_the_rule(case in cases(), (ahead, behind) in (0_usize..4, 0_usize..3)) {
        let mut failed = Ok(());
        stages(&case, |stage, _, chunks, costs, has_room| {
            if has_room && failed.is_ok() {
                let room: Vec<u64> = costs.needed.iter().map(|needed| case.question.capacity.0 - needed).collect();
                for paging in [Paging::AT_NEED, Paging { ahead, behind }] {
                    failed = failed.clone().and_then(|()| holds((stage, chunks), &room, paging));
                }
            }
        });
        failed?;
    }

    /// What a certificate says of a plan's fetches is so.
    #[test]
    fn a_plan_that_fetches_fewest_does(case in cases()) {
        let Ok(plan) = choose(&case.question, &case.costs) else { return Ok(()) };
        let question = &case.question;
        let training = TrainingSpec { recompute: plan.recompute, ..question.training };
        let chunks = plan.stage.lay_out_split(&question.model, &training, &question.stage()).unwrap();
        let ChunkResidency::Planned(intervals) = &plan.stage.residency else { panic!("visits are planned") };
        let room: Vec<u64> = plan.needed.iter().map(|needed| question.capacity.0 - needed).collect();
        if let Some(fewest) = fewest(&plan.stage, &chunks, &room) {
            let fetches = bytes(&chunks, intervals);
            prop_assert!(fetches >= fewest, "{} of {} bytes", fetches, fewest);
            prop_assert!(!plan.certificate.unwrap().fetches_fewest || fetches == fewest, "{} of {}", fetches, fewest);
        }
    }
}

/// Of one stage and one rule.
fn holds(
    (stage, chunks): (&ChunkedStage, &Chunks),
    room: &[u64],
    paging: Paging,
) -> Result<(), TestCaseError> {
    let found = IrregularChunks::of(stage, chunks, room).fewest(paging).unwrap();
    let by_rule = stage.paged(paging, chunks, room).unwrap();
    prop_assert!(found.bytes <= bytes(chunks, &by_rule));
    prop_assert_eq!(found.bytes, bytes(chunks, &found.intervals));
    prop_assert!(stage.told(chunks, &found.intervals).is_ok());
    for (step, room) in room.iter().enumerate() {
        let here = found.intervals.iter().filter(|interval| is_held(interval, step));
        let held: u64 = here.map(|interval| chunks.payload_bytes(interval.payload.chunk)).sum();
        prop_assert!(held + chunks.on_device_bytes() <= *room, "step {}", step);
    }
    if let Some(fewest) = fewest(stage, chunks, room) {
        prop_assert!(found.bytes >= fewest, "{} of {} bytes", found.bytes, fewest);
        prop_assert!(!found.is_proven || found.bytes == fewest, "{} is not {}", found.bytes, fewest);
    }
    Ok(())
}

/// A first map as large as three others, and room for it beside one of them: the farthest next use is always its own, so the rule
/// lets it go for two that take less. It stays, since nothing else is as much to fetch.
#[test]
fn a_large_chunk_stays_where_small_ones_are_less_to_fetch() {
    let model = chain(&[(48, false), (16, false), (16, false), (16, false), (16, false)]);
    let training = training(Precision::Fp32, 1);
    let (large, small) = (4 * (48 * 16 + 16), 4 * (16 * 16 + 16));
    let costs =
        Costs { training, layers: model.layers().len(), needed: vec![0], seconds: vec![1.0], kept: vec![0] };
    let choices = ChunkChoices {
        sizes: TriedSizes::Named(vec![16 * 16 + 16]),
        orders: vec![ChunkOrder::Layer],
        recomputes: vec![RecomputePolicy::None],
        host_copies: vec![HostParameters::Stored],
        embeddings: vec![EmbeddingPlace::Chunk],
        activations: vec![ActivationPlace::Device],
        ahead: 0..=0,
        behind: 0..=0,
        on_device: Some(0),
        tolerance: 0.0,
        ..ChunkChoices::default()
    };
    let question = ChunkQuestion {
        model,
        training,
        ranks: 1,
        shards: 1,
        capacity: Bytes(large + small),
        host_memory: Bytes(1 << 20),
        rates: RATES,
        choices,
    };
    let case = Case { question, costs };
    let mut by_rule = None;
    stages(&case, |stage, _, chunks, _, has_room| {
        assert!(has_room);
        let intervals = stage.paged(Paging::AT_NEED, chunks, &[large + small; 8]).unwrap();
        by_rule = Some(bytes(chunks, &intervals));
        assert_eq!(fewest(stage, chunks, &[large + small; 8]), Some(large + 5 * small));
    });
    assert_eq!(by_rule, Some(2 * large + 3 * small));
    let plan = choose(&case.question, &case.costs).unwrap();
    assert_eq!(plan.moved.up, large + 5 * small);
    assert!(plan.certificate.unwrap().fetches_fewest);
}
