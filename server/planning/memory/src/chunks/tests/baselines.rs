//! What others do, against their rules.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::residency::paging_intervals::Paging;
use loadmaster_proto::chunks::stage::{ChunkEviction, ChunkResidency, ChunkedStage, UpdateTime};
use loadmaster_proto::plan::chunked::ChunkPolicy;
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::{Precision, RecomputePolicy, TrainingSpec};
use proptest::prelude::*;

use super::draw::{Costs, RATES, cases, chain, training};
use crate::chunks::baseline::{Baseline, Margin, PatrickStar};
use crate::chunks::{ChunkChoices, ChunkQuestion, NoChunks, choose, fits};

fn baselines() -> impl Strategy<Value = Baseline> {
    prop_oneof![
        prop_oneof![Just(ChunkOrder::Layer), Just(ChunkOrder::MicroBatch)].prop_map(Baseline::Static),
        (0.5..1.0_f64, prop_oneof![Just(1.0), 0.05..1.0_f64]).prop_map(|(overall_ratio, warmup_ratio)| {
            Baseline::PatrickStar(PatrickStar { overall_ratio, warmup_ratio })
        }),
    ]
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(300))]

    /// Residency intervals are valid and have room, gradients leave once, and a static partition holds all
    /// parameters in every step.
    #[test]
    fn baselines_keep_their_rules(
        case in cases(), baseline in baselines(),
        recompute in prop_oneof![Just(RecomputePolicy::None), Just(RecomputePolicy::Layer)],
    ) {
        let question = &case.question;
        let plan = match baseline.plan(question, &case.costs, recompute) {
            Ok(plan) => plan,
            Err(NoChunks::NoRoom(lack)) => {
                prop_assert!(lack.missing() > 0);
                return Ok(());
            }
            Err(why) => return Err(TestCaseError::fail(why.to_string())),
        };
        let training = TrainingSpec { recompute, ..question.training };
        let chunks = plan.stage.lay_out_split(&question.model, &training, &question.stage()).unwrap();
        prop_assert_eq!(plan.stage.update, UpdateTime::AfterBackward);
        prop_assert!(plan.peak() <= question.capacity && plan.host_bytes <= question.host_memory);
        let on_host = (0..chunks.layout.chunks().len()).filter(|chunk| !plan.stage.on_device.contains(chunk));
        let copied: u64 = on_host.map(|chunk| chunks.copied_bytes(chunk, false)).sum();
        match baseline {
            Baseline::Static(order) => {
                prop_assert_eq!(plan.stage.order, order);
                let payloads = chunks.uses.payloads();
                let all: u64 = (0..chunks.layout.chunks().len()).map(|chunk| chunks.payload_bytes(chunk)).sum();
                let apart = payloads.iter().filter(|of| of.payload.is_gradients);
                let apart: Vec<(u64, usize, usize)> = apart
                    .map(|of| (chunks.payload_bytes(of.payload.chunk), of.gradients[0], of.gradients[of.gradients.len() - 1]))
                    .collect();
                for (step, &resident) in plan.resident.iter().enumerate() {
                    let added: u64 = apart.iter().filter(|of| (of.1..=of.2 + 1).contains(&step)).map(|of| of.0).sum();
                    prop_assert_eq!(resident, all + added, "in step {}", step);
                }
                prop_assert_eq!((plan.moved.up, plan.moved.down), (copied, copied));
            }
            Baseline::PatrickStar(settings) => {
                let most = (question.capacity.0 as f64 * settings.overall_ratio) as u64;
                prop_assert!(plan.peak().0 <= most);
                // In its first iteration what a step uses has room in a share of the device; no one counts state then.
                let residency = ChunkResidency::Paged;
                let stage = ChunkedStage { on_device: Vec::new(), host_memory: Bytes(u64::MAX), residency, ..plan.stage.clone() };
                let chunks = stage.lay_out_split(&question.model, &training, &question.stage()).unwrap();
                let share = (most as f64 * settings.warmup_ratio) as u64;
                let room: Vec<u64> = plan.needed.iter().map(|needed| share.min(most - needed)).collect();
                prop_assert!(stage.paged(Paging::AT_NEED, &chunks, &room).is_ok());
                let count = plan.stage.on_device.len();
                prop_assert_eq!(&plan.stage.on_device, &(0..count).collect::<Vec<_>>(), "in list order");
                prop_assert!(plan.moved.up >= copied && plan.moved.down >= copied);
            }
        }
    }
}

/// Chunks of 64M elements in fp16, 28.8 GiB in all, at most 10 GiB of them for others, 20 chunks: 17 groups; and three times
/// what a group takes makes two.
#[test]
fn the_margin_is_that_of_the_paper() {
    let gib = (1_u64 << 30) as f64;
    let of = |overall: f64, most: f64, (chunks, ranks): (usize, usize)| Margin {
        overall: overall * gib,
        most: most * gib,
        ranks,
        chunks,
        chunk_elements: 64.0 * (1 << 20) as f64,
        scalar_bytes: 2.0,
        state_bytes: 12.0,
    };
    assert_eq!(of(28.8, 10.0, (20, 1)).groups(), 17);
    assert_eq!(of(28.8, 10.0, (16, 1)).groups(), 16, "no more than there are");
    // Of four ranks each has 50 of 200 chunks of parameters and one more in 6.375 GiB, and 12.425 GiB for 13 groups.
    assert_eq!(of(28.8, 10.0, (200, 4)).groups(), 13);
    assert_eq!(of(28.8, 10.0, (30, 4)).groups(), 8, "the last of them is filled up");
    // 0.75 GiB a group: 2.8125 GiB make three of them, of which the last is not used.
    assert_eq!(of(2.8125 + 2.625, 0.0, (20, 1)).groups(), 2);
    assert_eq!(of(1.0, 10.0, (20, 1)).groups(), 0);
}

/// A string of 16 equal chunks forward and back with room for six: 20 fetches an iteration where six stay from one to the next. Here
/// they are updated in between, so these come, too.
#[test]
fn a_palindrome_is_fetched_but_for_what_has_room() {
    let model = chain(&[(8, false); 17]);
    let training = training(Precision::Fp32, 1);
    let costs = Costs { training, layers: 16, needed: vec![1000], seconds: vec![1.0], kept: vec![] };
    for room in 2..16_u64 {
        let question = ChunkQuestion {
            model: model.clone(),
            training,
            ranks: 1,
            shards: 1,
            capacity: Bytes(1000 + room * 4 * 72),
            host_memory: Bytes(1 << 20),
            rates: RATES,
            choices: ChunkChoices::default(),
        };
        let plan = Baseline::PATRICKSTAR.plan(&question, &costs, RecomputePolicy::None).unwrap();
        assert_eq!(plan.moved.fetches, 2 * (16 - room) + room, "with room for {room}");
    }
}

/// The policy is the baseline: a question with it has PatrickStar's plan, in the faster of both recomputations, and room where that
/// has some.
#[test]
fn the_policy_is_the_baseline() {
    let training = training(Precision::Fp32, 1);
    let costs = Costs { training, layers: 16, needed: vec![1000], seconds: vec![1.0], kept: vec![] };
    let mut question = ChunkQuestion {
        model: chain(&[(8, false); 17]),
        training,
        ranks: 1,
        shards: 1,
        capacity: Bytes(1000 + 6 * 4 * 72),
        host_memory: Bytes(1 << 20),
        rates: RATES,
        choices: ChunkChoices { policy: ChunkPolicy::Patrickstar, ..ChunkChoices::default() },
    };
    let plan = choose(&question, &costs).unwrap();
    let both = [RecomputePolicy::None, RecomputePolicy::Layer]
        .map(|recompute| Baseline::PATRICKSTAR.plan(&question, &costs, recompute).unwrap());
    let least = both.iter().map(|plan| plan.lanes.iteration_seconds).fold(f64::INFINITY, f64::min);
    assert_eq!((plan.lanes.iteration_seconds, plan.stage.moves), (least, ChunkEviction::WriteBack));
    assert!(fits(&question, &costs, &|| false).unwrap());
    question.capacity = Bytes(1000);
    assert!(!fits(&question, &costs, &|| false).unwrap());
    assert!(matches!(choose(&question, &costs), Err(NoChunks::NoRoom(_))));
}

/// ZeRO-Offload on one device, of each parameter: s bytes there in every step, s + 12 on the host, and s each way of the link.
#[test]
fn a_static_partition_takes_and_moves_what_was_published() {
    let model = chain(&[(32, false); 17]);
    let parameters = model.parameter_count();
    for (precision, scalar) in [(Precision::Bf16, 2), (Precision::Fp32, 4)] {
        let training = training(precision, 1);
        let bytes = scalar * parameters;
        let question = ChunkQuestion {
            model: model.clone(),
            training,
            ranks: 1,
            shards: 1,
            capacity: Bytes(1000 + bytes),
            host_memory: Bytes(bytes + 12 * parameters),
            rates: RATES,
            choices: ChunkChoices::default(),
        };
        let costs = Costs { training, layers: 16, needed: vec![1000], seconds: vec![1.0], kept: vec![] };
        let baseline = Baseline::Static(ChunkOrder::Layer);
        let plan = baseline.plan(&question, &costs, RecomputePolicy::None).unwrap();
        assert!(plan.resident.iter().all(|&resident| resident == bytes), "{precision}: {:?}", plan.resident);
        assert_eq!(plan.host_bytes, question.host_memory, "{precision}");
        assert_eq!((plan.moved.up, plan.moved.down), (bytes, bytes), "{precision}");
        assert_eq!((plan.moved.gathered, plan.moved.scattered), (0, 0));
    }
}
