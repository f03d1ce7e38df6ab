//! Tables of tokens on the host: what is trained is the same, and what is moved and held is what was planned.

use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::training::actions::Step;

use super::shared::{Replicas, of_several_ranks};
use super::*;
use crate::models::llama;

pub(super) fn on_host(chunks: ChunkedStage) -> ChunkedStage {
    ChunkedStage { embedding: EmbeddingPlace::Host, ..chunks }
}

/// Bytes each way, rows and their gradients among them, the highest sum of what is held, and bytes of the host.
fn assert_as_planned(measured: &Measurement, chunks: &ChunkedStage, spec: &RankSpec, what: &str) {
    let told = measured.chunks.as_ref().unwrap();
    let all = chunks.lay_out(&spec.model, &spec.training).unwrap();
    if let ChunkResidency::Planned(intervals) = &chunks.residency {
        let moved = all.moved(&chunks.told(&all, intervals).unwrap());
        assert_moved(told, &moved, what);
    }
    // Two samples of twelve tokens, each a row of sixteen.
    let scalar = if spec.training.precision == Precision::Fp32 { 4 } else { 2 };
    let rows = 2 * 12 * 16 * scalar * u64::from(spec.training.micro_batches);
    let times = if spec.training.recompute == RecomputePolicy::Layer { 2 } else { 1 };
    assert_eq!((told.rows_up_bytes, told.rows_down_bytes), (times * rows, rows), "{what}");
    let sums = told.other_bytes.iter().zip(&told.payload_bytes).map(|(other, payloads)| other + payloads);
    assert_eq!(measured.peak_allocated.0, sums.max().unwrap(), "{what}");
    assert_eq!(told.host_bytes.0, all.host.bytes, "{what}");
    assert!(!told.is_replanned, "{what}");
}

/// An untied table becomes the same to the bit, as do losses, gradients and all else. This holds in every family that has
/// one and in both formats and orders, whatever the host keeps, whatever is recomputed, and with eviction at every boundary.
#[test]
fn an_embedding_on_the_host_becomes_the_same() {
    let mut random = Random::new(21);
    for model in [small_gpt(true), small_bert(), small_llama(), small_qwen3()] {
        for precision in [Precision::Fp32, Precision::Bf16] {
            let training = TrainingSpec {
                precision,
                schedule: random.of(&[Schedule::Gpipe, Schedule::OneFOneB]),
                recompute: random.of(&[RecomputePolicy::None, RecomputePolicy::Layer]),
                optimizer: random.of(&[ADAM, SGD]),
                ..training()
            };
            let spec = RankSpec { iterations: 3, ..whole(&model, training) };
            let (plain, _) = run(&spec, None);
            for order in ChunkOrder::ALL {
                let host_copy = random.of(&HostParameters::ALL);
                let is_kept = host_copy == HostParameters::Stored;
                let bare = on_host(ChunkedStage {
                    host_copy,
                    staging: 1,
                    moves: if is_kept { random.of(&ChunkEviction::ALL) } else { ChunkEviction::Discard },
                    update: if is_kept { random.of(&UpdateTime::ALL) } else { UpdateTime::OnArrival },
                    on_device: [vec![], vec![1]][random.below(2)].clone(),
                    ..in_chunks(700 + 600 * random.below(3) as u64, order)
                });
                let residency = if is_kept {
                    at_every_boundary(&spec, &bare, &mut random)
                } else {
                    let all = bare.lay_out(&model, &training).unwrap();
                    ChunkResidency::Planned(bare.bare_intervals(&all).unwrap())
                };
                let chunks = ChunkedStage { residency, ..bare };
                let what = format!("{} {training:?} {order} {host_copy}", model.family());
                let (chunked, measured) = run(&spec, Some(chunks.clone()));
                assert_same_bits(&chunked, &plain, &what);
                assert_as_planned(&measured, &chunks, &spec, &what);
            }
        }
    }
}

/// Of a tied weight the upper end's gradient and that of rows are added up once each is complete. With one micro-batch that is
/// the order of plain training, to the bit; with several a sum differs in its last bits, as in chunks anyway.
#[test]
#[ignore = "slow: make test-slow"]
fn a_tied_table_on_the_host_becomes_the_same_or_nearly() {
    let mut random = Random::new(22);
    for model in [small_gpt(false), llama(true)] {
        for (precision, micro_batches) in [(Precision::Fp32, 1), (Precision::Bf16, 1), (Precision::Fp32, 3)] {
            let training = TrainingSpec {
                precision,
                micro_batches,
                recompute: random.of(&[RecomputePolicy::None, RecomputePolicy::Layer]),
                optimizer: if micro_batches == 1 { ADAM } else { SGD },
                ..training()
            };
            let spec = RankSpec { iterations: 3, ..whole(&model, training) };
            let (plain, _) = run(&spec, None);
            for order in ChunkOrder::ALL {
                for host_copy in HostParameters::ALL {
                    let is_kept = host_copy == HostParameters::Stored;
                    let bare = on_host(ChunkedStage {
                        host_copy,
                        staging: 1,
                        moves: if is_kept { random.of(&ChunkEviction::ALL) } else { ChunkEviction::Discard },
                        update: if is_kept { random.of(&UpdateTime::ALL) } else { UpdateTime::OnArrival },
                        ..in_chunks(900, order)
                    });
                    let residency = if is_kept {
                        at_every_boundary(&spec, &bare, &mut random)
                    } else {
                        ChunkResidency::Paged
                    };
                    let chunks = ChunkedStage { residency, ..bare };
                    let what = format!("{} {training:?} {order} {host_copy}", model.family());
                    let (chunked, measured) = run(&spec, Some(chunks.clone()));
                    assert_as_planned(&measured, &chunks, &spec, &what);
                    if micro_batches == 1 {
                        assert_same_bits(&chunked, &plain, &what);
                        continue;
                    }
                    assert_nearly_same(&chunked, &plain, &what);
                }
            }
        }
    }
}

/// A GPT-2 whose table has so many rows.
fn gpt_with(vocabulary_size: i64) -> Model {
    let gpt = Gpt2 {
        blocks: 1,
        hidden_size: 16,
        heads: 2,
        sequence_length: 12,
        positions: 20,
        vocabulary_size,
        untied_head: true,
        dropout: 0.1,
    };
    Zoo::Gpt2(gpt).build().unwrap()
}

/// Chunks of every kind for ranks that share them, with the table on the host.
fn shared_chunks(
    replicas: &Replicas,
    order: ChunkOrder,
    host_copy: HostParameters,
    random: &mut Random,
) -> ChunkedStage {
    let is_kept = host_copy == HostParameters::Stored;
    let bare = on_host(ChunkedStage {
        host_copy,
        staging: 1,
        update: if is_kept { random.of(&UpdateTime::ALL) } else { UpdateTime::OnArrival },
        on_device: [vec![], vec![1]][random.below(2)].clone(),
        ..in_chunks(700 + 600 * random.below(3) as u64, order)
    });
    let all = replicas.lay_out(&bare);
    let residency = match random.below(3) {
        0 => ChunkResidency::Paged,
        _ => {
            let intervals = bare.bare_intervals(&all).unwrap();
            ChunkResidency::Planned(begun_before(&bare, intervals, &all, random))
        }
    };
    ChunkedStage { residency, ..bare }
}

/// Each rank moved the rows of its own samples, of twelve tokens each and sixteen wide.
fn assert_rows_of_own_samples(replicas: &Replicas, measured: &Measurement, what: &str) {
    let told = measured.chunks.as_ref().unwrap();
    let TrainingSpec { precision, micro_batch_size, micro_batches, recompute, .. } = replicas.training;
    let scalar = if precision == Precision::Fp32 { 4 } else { 2 };
    let rows = u64::from(micro_batch_size / replicas.ranks * micro_batches) * 12 * 16 * scalar;
    let times = if recompute == RecomputePolicy::Layer { 2 } else { 1 };
    assert_eq!((told.rows_up_bytes, told.rows_down_bytes), (times * rows, rows), "{what}");
}

/// Replicas that share a table on the host train what replicas train that hold all, to the bit: each adds up what its own samples
/// find, and the sums of all are added up in the order of plain training.
#[test]
#[ignore = "slow: make test-slow"]
fn ranks_that_share_a_table_on_the_host_train_the_same() {
    let mut random = Random::new(23);
    for (model, ranks) in [
        (small_gpt(true), 2),
        (small_bert(), 4),
        (small_llama(), 3),
        (small_qwen3(), 2),
        (small_gpt(true), 3),
    ] {
        let replicas = Replicas::new(model, of_several_ranks(&mut random), ranks);
        let (mut plain, _) = replicas.train(None);
        // No one has a whole gradient of a table that ranks share, so none are told.
        plain.tensors.retain(|name, _| !name.contains("gradient of"));
        for order in ChunkOrder::ALL {
            for host_copy in HostParameters::ALL {
                let chunks = shared_chunks(&replicas, order, host_copy, &mut random);
                let (shared, measured) = replicas.train(Some(&chunks));
                let what = format!("{} {ranks} {:?} {chunks:?}", replicas.model.family(), replicas.training);
                assert_same_bits(&shared, &plain, &what);
                for measured in &measured {
                    replicas.assert_counted(&chunks, measured, &what);
                    assert_rows_of_own_samples(&replicas, measured, &what);
                }
            }
        }
    }
}

/// The same where a table is so small that most ranks own nothing of it, and where parts are exchanged in several slices.
#[test]
fn tables_of_any_size_are_shared() {
    let mut random = Random::new(25);
    for (vocabulary_size, ranks, precision) in [(2, 4, Precision::Bf16), (150_000, 2, Precision::Fp32)] {
        let training = TrainingSpec { precision, ..of_several_ranks(&mut random) };
        let replicas = Replicas::new(gpt_with(vocabulary_size), training, ranks);
        let (mut plain, _) = replicas.train(None);
        plain.tensors.retain(|name, _| !name.contains("gradient of"));
        for (order, update) in ChunkOrder::ALL.into_iter().zip(UpdateTime::ALL) {
            let chunks = shared_chunks(&replicas, order, HostParameters::Stored, &mut random);
            let residency = ChunkResidency::Paged;
            let chunks = ChunkedStage { residency, update, ..chunks };
            let (shared, measured) = replicas.train(Some(&chunks));
            let what = format!("{vocabulary_size} {ranks} {training:?} {chunks:?}");
            assert_same_bits(&shared, &plain, &what);
            measured.iter().for_each(|measured| assert_rows_of_own_samples(&replicas, measured, &what));
        }
    }
}

/// Of a tied weight ranks add up the gradients of its upper end and those of its rows apart: sums differ in their last bits alone.
#[test]
fn a_tied_table_that_ranks_share_becomes_nearly_the_same() {
    let mut random = Random::new(24);
    for (model, ranks) in [(small_gpt(false), 2), (llama(true), 3)] {
        let training =
            TrainingSpec { precision: Precision::Fp32, optimizer: SGD, ..of_several_ranks(&mut random) };
        let replicas = Replicas::new(model, training, ranks);
        let (plain, _) = replicas.train(None);
        for order in ChunkOrder::ALL {
            for host_copy in HostParameters::ALL {
                let chunks = shared_chunks(&replicas, order, host_copy, &mut random);
                let (shared, measured) = replicas.train(Some(&chunks));
                let what = format!("{} {ranks} {training:?} {chunks:?}", replicas.model.family());
                for measured in &measured {
                    replicas.assert_counted(&chunks, measured, &what);
                    assert_rows_of_own_samples(&replicas, measured, &what);
                }
                assert_nearly_same(&shared, &plain, &what);
            }
        }
    }
}

/// The embedding's steps need neither the table nor a gradient of it.
#[test]
fn steps_of_the_embedding_do_without_the_table() {
    let model = gpt_with(2_000);
    let spec = RankSpec { iterations: 1, ..whole(&model, training()) };
    let held = |chunks: ChunkedStage| {
        let told = run(&spec, Some(chunks.clone())).1.chunks.unwrap();
        let steps = chunks.lay_out(&model, &spec.training).unwrap().steps;
        let step =
            steps.all().iter().position(|step| matches!(step, Step::Backward { layer: 0, .. })).unwrap();
        told.other_bytes[step] + told.payload_bytes[step]
    };
    let chunks = in_chunks(400, ChunkOrder::MicroBatch);
    let (there, on_host) = (held(chunks.clone()), held(on_host(chunks)));
    let table = 2_000 * 16 * 4;
    // Something else takes a little where these are not.
    assert!(there >= on_host + 2 * table * 9 / 10, "{there} and {on_host}");
}

/// What has no table, or computes with it on the device, is refused by name.
#[test]
fn tables_that_cannot_be_on_the_host_are_refused() {
    let chunks = || on_host(in_chunks(1200, ChunkOrder::Layer));
    let vgg = whole(&small_vgg(), training());
    let gpt = whole(&small_gpt(true), training());
    for (spec, chunks, field) in [
        (vgg, chunks(), "chunks.embedding_place"),
        (gpt, ChunkedStage { on_device: vec![0], ..chunks() }, "chunks.resident_chunks"),
    ] {
        let ended = crate::processes::run(&RankSpec { chunks: Some(Box::new(chunks)), ..spec });
        assert_eq!(ended.code, Some(EXIT_BAD_SPEC), "{field}: {ended:?}");
        assert!(ended.message().contains(field), "{field}: {}", ended.message());
    }
}
