use proptest::prelude::*;

use super::*;
use crate::model::zoo::{Gpt2, Vgg, Zoo};

fn tensor(first: usize, last: usize, degree: u32) -> StageConfig {
    StageConfig { tensor_degree: degree, ..StageConfig::single(first, last) }
}

fn gpt(heads: i64) -> Model {
    let gpt = Gpt2 {
        blocks: 2,
        hidden_size: 24 * heads,
        heads,
        sequence_length: 12,
        positions: 20,
        vocabulary_size: 101,
        untied_head: false,
        dropout: 0.0,
    };
    Zoo::Gpt2(gpt).build().unwrap()
}

proptest! {
    /// The shards of an axis are in order, cover it and differ by one at most.
    #[test]
    fn shards_cover_an_axis_evenly(extent in 0_i64..10_000, degree in 1_u32..=64) {
        let ranges: Vec<Range<i64>> = (0..degree).map(|index| Shard { index, degree }.range(extent)).collect();
        let covered: i64 = ranges.iter().map(|range| range.end - range.start).sum();
        prop_assert_eq!(covered, extent);
        prop_assert_eq!(ranges[0].start, 0);
        for pair in ranges.windows(2) {
            prop_assert_eq!(pair[0].end, pair[1].start);
            let longer = (pair[0].end - pair[0].start) - (pair[1].end - pair[1].start);
            prop_assert!((0..=1).contains(&longer));
        }
    }
}

/// Every scalar of a split parameter is on exactly one shard, every other one on all of them.
#[test]
fn the_shards_of_a_parameter_are_the_parameter() {
    let vgg = Zoo::Vgg11(Vgg { image_size: 32, classes: 10, classifier_width: 16 }).build().unwrap();
    for model in [gpt(16), vgg] {
        for degree in [2, 4, 8, 16] {
            for layer in model.layers() {
                let shards: Vec<Vec<ShardParameter>> =
                    (0..degree).map(|index| layer.kind.shard_parameters(Shard { index, degree })).collect();
                for (position, whole) in layer.kind.parameters().into_iter().enumerate() {
                    let parts: Vec<&ShardParameter> = shards.iter().map(|shard| &shard[position]).collect();
                    assert!(parts.iter().all(|part| part.whole == whole));
                    let held: u64 = parts.iter().map(|part| part.elements()).sum();
                    let Some(slice) = &parts[0].slice else {
                        assert_eq!(held, whole.elements() * u64::from(degree));
                        continue;
                    };
                    assert_eq!(held, whole.elements(), "{} {}", layer.name, whole.name);
                    let mut rows: Vec<i64> = parts
                        .iter()
                        .flat_map(|part| part.slice.iter().flat_map(|slice| slice.ranges.clone()))
                        .flatten()
                        .collect();
                    rows.sort_unstable();
                    assert_eq!(rows, (0..whole.shape[slice.axis]).collect::<Vec<i64>>());
                }
            }
        }
    }
}

/// Queries, keys and values are one weight, but each shard gets its heads of all three.
#[test]
fn fused_attention_weights_are_split_block_by_block() {
    let block = gpt(4).layers()[1].kind;
    let second = block.shard_parameters(Shard { index: 1, degree: 2 });
    let qkv = second.iter().find(|part| part.whole.name == "attention.qkv.weight").unwrap();
    assert_eq!(qkv.slice, Some(Slice { axis: 0, ranges: vec![48..96, 144..192, 240..288] }));
    assert_eq!(qkv.shape(), [144, 96]);
    let out = second.iter().find(|part| part.whole.name == "attention.out.weight").unwrap();
    assert_eq!(out.slice, Some(Slice { axis: 1, ranges: std::iter::once(48..96).collect() }));
    let bias = second.iter().find(|part| part.whole.name == "attention.out.bias").unwrap();
    assert_eq!(bias.slice, None);
}

/// No device of a stage holds more than the first, and one device holds what the model says.
#[test]
fn the_first_device_holds_the_most() {
    let model = gpt(16);
    let training = TrainingSpec {
        precision: Default::default(),
        optimizer: Default::default(),
        schedule: Default::default(),
        micro_batch_size: 1,
        micro_batches: 1,
        recompute: Default::default(),
        seed: 0,
    };
    let last = model.layers().len() - 1;
    let whole = model.rank_static_bytes(&StageConfig::single(0, last), 0, &training);
    assert_eq!(whole, training.static_bytes(model.parameter_count()));
    for degree in [2, 4, 8, 16] {
        let bytes: Vec<u64> = (0..degree)
            .map(|index| model.rank_static_bytes(&tensor(0, last, degree), index, &training).total())
            .collect();
        assert_eq!(bytes.iter().max(), bytes.first());
        assert!(bytes[0] < whole.total());
    }
    let replicas = StageConfig { data_degree: 4, ..StageConfig::single(0, last) };
    assert_eq!(model.rank_static_bytes(&replicas, 3, &training), whole);
}

#[test]
fn degrees_that_do_not_fit_are_refused_by_name() {
    let model = gpt(4);
    let path = |stage: &StageConfig, micro_batch| {
        model.check_stage(stage, micro_batch).map_err(|invalid| invalid.to_string())
    };
    assert_eq!(path(&tensor(0, 3, 4), 1), Ok(()));
    assert!(path(&tensor(1, 1, 8), 1).unwrap_err().contains("heads"));
    // Without a block there is nothing that heads could forbid.
    assert_eq!(path(&tensor(0, 0, 8), 1), Ok(()));
    let data = StageConfig { data_degree: 4, ..StageConfig::single(0, 3) };
    assert_eq!(path(&data, 8), Ok(()));
    assert!(path(&data, 6).unwrap_err().contains("micro-batch size 6"));
}
