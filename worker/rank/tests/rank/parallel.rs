//! Stages of several devices train exactly the model that they share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::{EXIT_LOST_NEIGHBOUR, EXIT_OUT_OF_MEMORY, RankSpec};
use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::model::layer::{Layer, LayerKind, TokenEmbedding, TransformerBlock};
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::shard::ShardParameter;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use tch::Tensor;

use crate::correctness::{ADAM, SGD, assert_close};
use crate::models::{families, small_bert, small_qwen3};
use crate::processes::{Ended, connected, cpu, run_all, small_vgg, solo_ranks, start, training};
use crate::reference;

/// Replicas, and shards of each.
type Degrees = (u32, u32);

const NONE: Degrees = (1, 1);

fn data(degree: u32) -> Degrees {
    (degree, 1)
}

fn tensor(degree: u32) -> Degrees {
    (1, degree)
}

/// Two replicas of two shards each.
const MIXED: Degrees = (2, 2);

/// Stages of these numbers of layers.
pub(crate) fn stages(stages: &[(usize, Degrees)]) -> Partitioning {
    let mut first_layer = 0;
    let configs = stages
        .iter()
        .map(|&(layers, (data_degree, tensor_degree))| {
            let last_layer = first_layer + layers - 1;
            let stage =
                StageConfig { data_degree, tensor_degree, ..StageConfig::single(first_layer, last_layer) };
            first_layer += layers;
            stage
        })
        .collect();
    Partitioning::new(configs).unwrap()
}

/// Returns these stages with optimizer states divided by their replicas, where there are several.
fn sharded(of: &Partitioning) -> Partitioning {
    let stage = |&stage: &StageConfig| StageConfig {
        sharding: if stage.data_degree > 1 { StateSharding::Optimizer } else { StateSharding::None },
        ..stage
    };
    Partitioning::new(of.stages().iter().map(stage).collect()).unwrap()
}

/// A GPT-2 of two blocks whose vocabulary no degree divides. Residuals drop.
fn gpt(heads: i64, untied_head: bool) -> Model {
    let gpt = Gpt2 {
        blocks: 2,
        hidden_size: 4 * heads,
        heads,
        sequence_length: 6,
        positions: 8,
        vocabulary_size: 37,
        untied_head,
        dropout: 0.1,
    };
    without_attention_dropout(&Zoo::Gpt2(gpt).build().unwrap())
}

/// The shards of a stage drop attention weights of their own heads, and one process cannot draw as they do.
fn without_attention_dropout(model: &Model) -> Model {
    let mut layers = model.layers().to_vec();
    for layer in &mut layers {
        if let LayerKind::TransformerBlock(block) = layer.kind {
            layer.kind =
                LayerKind::TransformerBlock(TransformerBlock { attention_dropout: Some(0.0), ..block });
        }
    }
    Model::new(model.family().to_owned(), model.input(), layers).unwrap().with_loss(model.loss())
}

/// Convolutions and linear maps whose outputs no degree divides, the last one with fewer than eight.
fn convolutions() -> Model {
    let convolution = |in_channels, out_channels| LayerKind::Conv2d {
        in_channels,
        out_channels,
        kernel: 3,
        stride: 1,
        padding: 1,
    };
    let kinds = [
        convolution(3, 10),
        LayerKind::Relu,
        LayerKind::MaxPool2d { kernel: 2, stride: 2 },
        convolution(10, 13),
        LayerKind::Relu,
        LayerKind::Flatten,
        LayerKind::Linear { in_features: 13 * 16, out_features: 21 },
        LayerKind::Relu,
        LayerKind::Linear { in_features: 21, out_features: 7 },
    ];
    let name = |(index, kind): (usize, LayerKind)| Layer { name: format!("layer {index}"), kind };
    let input = ModelInput::Image { channels: 3, height: 8, width: 8 };
    Model::new("convolutions".to_owned(), input, kinds.into_iter().enumerate().map(name).collect()).unwrap()
}

/// The slice of a whole tensor that a device holds.
fn held(whole: &Tensor, parameter: &ShardParameter) -> Tensor {
    let Some(slice) = &parameter.slice else { return whole.shallow_clone() };
    let parts: Vec<Tensor> = slice
        .ranges
        .iter()
        .map(|range| whole.narrow(slice.axis as i64, range.start, range.end - range.start))
        .collect();
    Tensor::cat(&parts, slice.axis as i64)
}

/// What a rank holds of the parameter of this name.
fn part(model: &Model, spec: &RankSpec, name: &str) -> ShardParameter {
    let [_, layer, short] = name.splitn(3, '.').collect::<Vec<_>>()[..] else { panic!("{name}") };
    let kind = model.layers()[layer.parse::<usize>().unwrap()].kind;
    let shard = spec.position.stage.shard(spec.shard);
    let mut own = kind.shard_parameters(shard).into_iter().chain(kind.shard_shared_parameter(shard));
    own.find(|parameter| parameter.whole.name == short).unwrap()
}

pub(crate) fn read(path: &Option<PathBuf>) -> Vec<(String, Tensor)> {
    Tensor::read_safetensors(path.as_ref().unwrap()).unwrap()
}

pub(crate) fn dumping(mut specs: Vec<RankSpec>, folder: &Path) -> Vec<RankSpec> {
    for (index, spec) in specs.iter_mut().enumerate() {
        spec.dump_gradients = Some(folder.join(format!("gradients-{index}.safetensors")));
        spec.dump_parameters = Some(folder.join(format!("parameters-{index}.safetensors")));
    }
    specs
}

/// Losses of four iterations and the gradients of the first one are those of training in one piece, on
/// every device; and what several devices of a stage hold is the same on all of them, to the bit, in the
/// end.
fn assert_as_in_one_piece(
    model: &Model,
    training: TrainingSpec,
    partitioning: &Partitioning,
    tolerance: f64,
) {
    let what = format!("{} {partitioning} {:?} {:?}", model.family(), training.schedule, training.recompute);
    let reference = reference::train_stages(model, training, partitioning.stages(), 4);
    let folder = tempfile::tempdir().unwrap();
    let specs = dumping(connected(model, training, partitioning, folder.path()), folder.path());
    let measurements = run_all(&specs);

    let tied = format!("layers.{}.weight", model.layers().len() - 1);
    for (spec, measurement) in specs.iter().zip(&measurements) {
        let stage = spec.position.stage;
        assert_eq!((measurement.stage, measurement.shard), (stage, spec.shard), "{what}");
        assert_eq!(
            measurement.static_bytes,
            model.rank_static_bytes(&stage, spec.shard, &training),
            "{what}"
        );
        let gradients = read(&spec.dump_gradients);
        let count = model.rank_parameters(&stage, spec.shard).len();
        assert_eq!(gradients.len(), count, "{what}: every gradient is there");
        for (name, gradient) in &gradients {
            // The copy of a tied weight goes by its own layer, but its gradient is the embedding's.
            let original = if model.has_tied_head() && *name == tied { "layers.0.token" } else { name };
            let whole = &reference.gradients.iter().find(|(name, _)| name == original).unwrap().1;
            let expected = held(whole, &part(model, spec, name));
            assert_close(gradient, &expected, tolerance, &format!("{what} shard {} {name}", spec.shard));
        }
        let expected_losses = if stage.last_layer + 1 == model.layers().len() { 3 } else { 0 };
        assert_eq!(measurement.losses.len(), expected_losses, "{what}");
        // The warm-up iteration's loss is not reported.
        for (loss, expected) in measurement.losses.iter().zip(&reference.losses[1..]) {
            let difference = ((loss - expected) / expected).abs();
            assert!(difference < tolerance, "{what}: {:?} {:?}", measurement.losses, reference.losses);
        }
    }
    assert_copies_are_equal(model, &specs, &what);
}

/// What several ranks hold of the same part of the same parameter is equal to the bit.
pub(crate) fn assert_copies_are_equal(model: &Model, specs: &[RankSpec], what: &str) {
    let mut seen: BTreeMap<String, Tensor> = BTreeMap::new();
    let mut compared = 0;
    for spec in specs {
        for (name, value) in read(&spec.dump_parameters) {
            let slice = part(model, spec, &name).slice;
            match seen.get(&format!("{name} {slice:?}")) {
                Some(other) => {
                    assert!(value.equal(other), "{what}: {name} differs on shard {}", spec.shard);
                    compared += 1;
                }
                None => drop(seen.insert(format!("{name} {slice:?}"), value)),
            }
        }
    }
    let copies = specs.iter().filter(|spec| spec.shard > 0).flat_map(|spec| {
        let parameters = model.rank_parameters(&spec.position.stage, spec.shard);
        // Shards are alike in different replicas.
        let is_copy = spec.position.stage.replica(spec.shard) > 0;
        parameters.into_iter().filter(move |parameter| is_copy || parameter.slice.is_none())
    });
    assert_eq!(compared, copies.count(), "{what}: every copy was compared");
}

fn four(optimizer: Optimizer) -> TrainingSpec {
    TrainingSpec { micro_batch_size: 4, micro_batches: 3, optimizer, ..training() }
}

#[test]
fn replicas_of_vgg_train_as_in_one_piece() {
    let training = TrainingSpec { micro_batches: 2, ..four(SGD) };
    assert_as_in_one_piece(&small_vgg(), training, &stages(&[(9, data(2)), (21, NONE)]), 1e-4);
}

#[test]
fn shards_of_vgg_train_as_in_one_piece() {
    let training = TrainingSpec { micro_batches: 2, ..four(SGD) };
    assert_as_in_one_piece(&small_vgg(), training, &stages(&[(9, NONE), (21, tensor(2))]), 1e-4);
}

/// A way in which a stage's output can be held meets every way in which the next one may want it, and so do
/// their gradients.
fn assert_meets_every_other(first: Degrees, schedule: Schedule) {
    for second in [NONE, data(2), data(4), tensor(2), tensor(4)] {
        let training = TrainingSpec { schedule, micro_batches: 2, ..four(SGD) };
        assert_as_in_one_piece(&convolutions(), training, &stages(&[(4, first), (5, second)]), 1e-4);
    }
}

#[test]
fn a_single_device_meets_every_other_stage() {
    assert_meets_every_other(NONE, Schedule::Gpipe);
}

#[test]
fn two_replicas_meet_every_other_stage() {
    assert_meets_every_other(data(2), Schedule::OneFOneB);
}

#[test]
fn four_replicas_meet_every_other_stage() {
    assert_meets_every_other(data(4), Schedule::Gpipe);
}

#[test]
fn two_shards_meet_every_other_stage() {
    assert_meets_every_other(tensor(2), Schedule::Gpipe);
}

#[test]
fn four_shards_meet_every_other_stage() {
    assert_meets_every_other(tensor(4), Schedule::OneFOneB);
}

/// Replicas that consist of shards hold a part of the samples on each replica, and the same part on all of
/// its shards: with every other way before them, and behind them.
#[test]
#[ignore = "slow: make test-slow"]
fn replicas_of_shards_meet_every_other_stage() {
    let training = TrainingSpec { schedule: Schedule::OneFOneB, micro_batches: 2, ..four(SGD) };
    for other in [NONE, data(4), tensor(4), MIXED, (4, 2), (2, 4)] {
        for ends in [[(4, MIXED), (5, other)], [(4, other), (5, MIXED)]] {
            assert_as_in_one_piece(&convolutions(), training, &stages(&ends), 1e-4);
        }
    }
}

/// A data degree that is no power of two, in front of shards.
#[test]
fn three_replicas_meet_shards() {
    let training = TrainingSpec { micro_batch_size: 6, micro_batches: 2, ..four(SGD) };
    for ends in [[(4, data(3)), (5, MIXED)], [(4, (3, 2)), (5, tensor(2))]] {
        assert_as_in_one_piece(&convolutions(), training, &stages(&ends), 1e-4);
    }
}

#[test]
fn recomputation_repeats_the_exchanges_of_shards_and_the_draws_of_replicas() {
    let model = gpt(4, true);
    for recompute in [RecomputePolicy::Stage, RecomputePolicy::Layer] {
        for schedule in [Schedule::Gpipe, Schedule::OneFOneB] {
            let training = TrainingSpec { recompute, schedule, ..four(ADAM) };
            assert_as_in_one_piece(&model, training, &stages(&[(2, tensor(4)), (3, data(2))]), 1e-4);
            assert_as_in_one_piece(&model, training, &stages(&[(2, MIXED), (3, NONE)]), 1e-4);
        }
    }
}

/// The weight that both ends share may be whole or split at either end, and by different degrees.
#[test]
fn a_tied_weight_may_be_held_differently_at_its_ends() {
    let model = gpt(4, false);
    for ends in [
        (data(2), tensor(4)),
        (tensor(2), data(4)),
        (tensor(4), tensor(2)),
        (tensor(2), NONE),
        (NONE, tensor(4)),
        (data(4), data(2)),
        (MIXED, tensor(2)),
        (data(2), MIXED),
        (MIXED, MIXED),
    ] {
        assert_as_in_one_piece(&model, four(SGD), &stages(&[(2, ends.0), (3, ends.1)]), 1e-4);
    }
    assert_as_in_one_piece(&model, four(ADAM), &stages(&[(1, tensor(2)), (2, NONE), (2, data(2))]), 1e-4);
}

/// Both ends of a tied weight, and nothing else, in one stage.
#[test]
fn one_stage_of_several_devices_trains_the_whole_model() {
    for untied_head in [false, true] {
        let model = gpt(4, untied_head);
        for way in [data(2), data(4), tensor(2), tensor(4), MIXED] {
            assert_as_in_one_piece(&model, four(ADAM), &stages(&[(5, way)]), 1e-4);
        }
    }
}

/// As many processes as tests can bear.
#[test]
fn degrees_8_and_16_train_as_in_one_piece() {
    let model = gpt(16, false);
    let training = TrainingSpec { micro_batch_size: 16, micro_batches: 1, ..four(SGD) };
    for way in [data(8), tensor(8), data(16), tensor(16)] {
        assert_as_in_one_piece(&model, training, &stages(&[(5, way)]), 1e-4);
    }
}

/// Every family's layers, split and replicated.
#[test]
#[ignore = "slow: make test-slow"]
fn every_family_trains_in_parallel_stages() {
    for model in families() {
        let model = without_attention_dropout(&model);
        let layers = model.layers().len();
        let rule = Optimizer::Sgd { learning_rate: 1e-3, momentum: 0.9, weight_decay: 0.01 };
        let training = TrainingSpec { micro_batch_size: 16, micro_batches: 1, ..four(rule) };
        // Rectifiers behind batch normalisations make jumps of errors of rounding, in a pipeline without
        // parallel stages too; a sum that is missing or done twice would still be found.
        let is_jumpy = model.layers().iter().any(|layer| matches!(layer.kind, LayerKind::AmoebaCell(_)));
        let tolerance = if is_jumpy { 0.3 } else { 1e-3 };
        for (first, second) in [(tensor(2), data(2)), (data(2), tensor(2))] {
            let partitioning = stages(&[(layers / 2, first), (layers - layers / 2, second)]);
            assert_as_in_one_piece(&model, training, &partitioning, tolerance);
        }
    }
}

/// Shards drop of their own heads, yet what all of them hold stays the same: after attention they draw the
/// same again.
#[test]
fn shards_that_drop_of_their_own_heads_stay_together() {
    let model = small_bert();
    for (recompute, way) in [
        (RecomputePolicy::None, tensor(2)),
        (RecomputePolicy::Layer, tensor(2)),
        (RecomputePolicy::None, MIXED),
    ] {
        let partitioning = stages(&[(model.layers().len(), way)]);
        let folder = tempfile::tempdir().unwrap();
        let training = TrainingSpec { recompute, ..four(ADAM) };
        let specs = dumping(connected(&model, training, &partitioning, folder.path()), folder.path());
        let measurements = run_all(&specs);
        assert!(measurements.iter().all(|of| of.losses == measurements[0].losses));
        assert_copies_are_equal(&model, &specs, "dropout");
    }
}

/// Parts of tensors that no number of replicas divides, of tensors with fewer scalars than replicas, and of a weight whose ends
/// are divided differently, or at one end alone.
#[test]
fn replicas_that_shard_optimizer_states_train_as_in_one_piece() {
    let two = stages(&[(2, data(2)), (3, data(4))]);
    for untied_head in [false, true] {
        assert_as_in_one_piece(&gpt(4, untied_head), four(ADAM), &sharded(&two), 1e-4);
    }
    let half = Partitioning::new(vec![sharded(&two).stages()[0], two.stages()[1]]).unwrap();
    assert_as_in_one_piece(&gpt(4, false), four(SGD), &half, 1e-4);
    assert_as_in_one_piece(&gpt(4, false), four(ADAM), &sharded(&stages(&[(5, MIXED)])), 1e-4);
    let training = TrainingSpec { micro_batch_size: 6, schedule: Schedule::OneFOneB, ..four(SGD) };
    assert_as_in_one_piece(&convolutions(), training, &sharded(&stages(&[(4, data(3)), (5, (3, 2))])), 1e-4);
    let wide = TrainingSpec { micro_batch_size: 16, micro_batches: 1, ..four(ADAM) };
    assert_as_in_one_piece(&convolutions(), wide, &sharded(&stages(&[(9, data(16))])), 1e-4);
}

/// In every precision, and where weights are updated behind every backward pass.
#[test]
fn sharded_optimizer_states_leave_parameters_as_they_are_without_sharding() {
    let mixed = [Precision::Bf16, Precision::Bf16Fp32Gradients];
    let mixed = mixed.map(|precision| (gpt(4, false), TrainingSpec { precision, ..four(ADAM) }));
    let endless = TrainingSpec { schedule: Schedule::PipeDream, ..four(ADAM) };
    let partitioning = stages(&[(2, MIXED), (3, data(4))]);
    for (model, training) in mixed.into_iter().chain([(gpt(4, true), endless)]) {
        let parameters = |partitioning: &Partitioning| -> Vec<BTreeMap<String, Tensor>> {
            let folder = tempfile::tempdir().unwrap();
            let specs = dumping(connected(&model, training, partitioning, folder.path()), folder.path());
            let measurements = run_all(&specs);
            for (spec, measurement) in specs.iter().zip(&measurements) {
                let expected = model.rank_static_bytes(&spec.position.stage, spec.shard, &training);
                assert_eq!(measurement.static_bytes, expected, "{partitioning} {training:?}");
            }
            specs.iter().map(|spec| read(&spec.dump_parameters).into_iter().collect()).collect()
        };
        let (whole, parts) = (parameters(&partitioning), parameters(&sharded(&partitioning)));
        // Sums in bf16 are rounded in another order.
        let tolerance = if training.precision == Precision::Bf16 { 0.02 } else { 1e-6 };
        for ((name, one), (_, other)) in whole.iter().flatten().zip(parts.iter().flatten()) {
            assert_close(other, one, tolerance, &format!("{name} {training:?}"));
        }
    }
}

#[test]
fn bf16_trains_in_parallel_stages() {
    let training = TrainingSpec { precision: Precision::Bf16, ..four(ADAM) };
    // Eight bits of mantissa, sums in another order.
    assert_as_in_one_piece(&gpt(4, false), training, &stages(&[(2, tensor(2)), (3, data(2))]), 0.1);
}

/// The same bytes on every device, with real neighbours and with none.
#[test]
fn a_parallel_stage_needs_the_same_alone_and_in_a_pipeline() {
    let cases = [
        (gpt(4, false), stages(&[(2, data(2)), (1, tensor(2)), (2, tensor(4))])),
        (gpt(4, true), stages(&[(1, tensor(4)), (2, data(4)), (2, NONE)])),
        (small_qwen3(), stages(&[(1, NONE), (1, tensor(2)), (3, data(2))])),
        (convolutions(), stages(&[(4, tensor(4)), (5, data(2))])),
        (gpt(4, false), stages(&[(2, MIXED), (1, NONE), (2, MIXED)])),
        (gpt(4, false), sharded(&stages(&[(2, data(3)), (1, NONE), (2, data(2))]))),
    ];
    for (index, (model, partitioning)) in cases.iter().enumerate() {
        let schedule = [Schedule::OneFOneB, Schedule::Gpipe][index % 2];
        let recompute = [RecomputePolicy::None, RecomputePolicy::Layer, RecomputePolicy::Stage][index % 3];
        let micro_batch_size = 12;
        let training = TrainingSpec { schedule, recompute, micro_batch_size, ..four(SGD) };
        assert_solo_equals_pipeline(model, partitioning, training);
    }
}

fn assert_solo_equals_pipeline(model: &Model, partitioning: &Partitioning, training: TrainingSpec) {
    let folder = tempfile::tempdir().unwrap();
    let measured = run_all(&connected(model, training, partitioning, folder.path()));
    let stage_count = partitioning.stages().len() as u32;
    for (stage_index, &stage) in (0..).zip(partitioning.stages()) {
        let folder = tempfile::tempdir().unwrap();
        let position = SoloStage { stage, stage_count, stage_index };
        let alone = run_all(&solo_ranks(model, training, position, folder.path()));
        let peaks = |measurements: &[Measurement]| -> Vec<(u32, Bytes)> {
            let own = measurements.iter().filter(|own| own.stage_index == stage_index);
            own.map(|own| (own.shard, own.peak_allocated)).collect()
        };
        let what = format!("{} stage {stage_index} of {partitioning} {training:?}", model.family());
        assert_eq!(peaks(&alone), peaks(&measured), "{what}");
    }
}

/// Every device's own capacity counts: its peak is enough, one byte less is not; and the others say that
/// they only lost it, wherever they waited for it.
#[test]
fn each_device_enforces_its_own_capacity() {
    let cases = [(gpt(4, false), tensor(2)), (gpt(4, true), data(2)), (convolutions(), tensor(2))];
    for (model, way) in cases {
        let partitioning = stages(&[(model.layers().len(), way)]);
        let folder = tempfile::tempdir().unwrap();
        let mut specs = connected(&model, four(ADAM), &partitioning, folder.path());
        let measured = run_all(&specs);
        for (spec, measured) in specs.iter_mut().zip(&measured) {
            spec.device = cpu(measured.peak_allocated.0);
            spec.folder = folder.path().join("again");
        }
        std::fs::create_dir(folder.path().join("again")).unwrap();
        assert_eq!(run_all(&specs).len(), 2);

        for tight in 0..2 {
            let folder = tempfile::tempdir().unwrap();
            let mut specs = specs.clone();
            specs.iter_mut().for_each(|spec| spec.folder = folder.path().to_owned());
            specs[tight].device = cpu(measured[tight].peak_allocated.0 - 1);
            let children: Vec<Child> = specs.iter().map(start).collect();
            let codes: Vec<Option<i32>> = children.into_iter().map(|child| Ended::of(child).code).collect();
            assert_eq!(codes[tight], Some(EXIT_OUT_OF_MEMORY), "{} {tight}", model.family());
            assert_eq!(codes[1 - tight], Some(EXIT_LOST_NEIGHBOUR), "{} {tight}", model.family());
        }
    }
}

/// A shard needs no room for a whole parameter, not even while it starts.
#[test]
fn a_shard_needs_no_room_for_the_whole() {
    let embedding = TokenEmbedding::gpt2(20_000, 8, 16, 0.0);
    let head = LayerKind::LanguageModelHead { hidden_size: 16, vocabulary_size: 20_000, tied: true };
    let layer = |name: &str, kind| Layer { name: name.to_owned(), kind };
    let model = Model::new(
        "wide".to_owned(),
        ModelInput::Tokens { sequence_length: 4, vocabulary_size: 20_000 },
        vec![layer("embedding", LayerKind::TokenEmbedding(embedding)), layer("head", head)],
    )
    .unwrap();
    let training = TrainingSpec { micro_batch_size: 1, micro_batches: 1, ..four(SGD) };
    let folder = tempfile::tempdir().unwrap();
    let mut specs = connected(&model, training, &stages(&[(2, tensor(8))]), folder.path());
    let whole = 20_000 * 16 * 4;
    specs.iter_mut().for_each(|spec| spec.device = cpu(whole - 1));
    let measured = run_all(&specs);
    assert!(measured.iter().all(|measured| measured.peak_allocated.0 < whole));
}

/// Outputs fewer than devices are not split: every shard computes them all.
#[test]
fn outputs_fewer_than_shards_are_computed_by_all() {
    let training = TrainingSpec { micro_batches: 1, ..four(SGD) };
    assert_as_in_one_piece(&convolutions(), training, &stages(&[(6, NONE), (3, tensor(8))]), 1e-4);
}

/// Replicas hold their part of the samples and a buffer for the gradients; shards hold their part of the
/// parameters.
#[test]
fn parallel_stages_need_less_on_each_device() {
    let model = gpt(16, true);
    let training = TrainingSpec { micro_batch_size: 8, ..four(ADAM) };
    let peak = |way: Degrees| {
        let folder = tempfile::tempdir().unwrap();
        let partitioning = stages(&[(5, way)]);
        let measured = run_all(&connected(&model, training, &partitioning, folder.path()));
        measured.iter().map(|measurement| measurement.peak_allocated).max().unwrap()
    };
    let whole = peak(NONE);
    assert!(peak(data(4)) < whole);
    assert!(peak(tensor(4)) < peak(tensor(2)) && peak(tensor(2)) < whole);
}
