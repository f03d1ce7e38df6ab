//! The `component` predictor against real ranks: stages that nobody trained before are predicted from
//! recordings of single layers, then trained, and the bytes compared. On CPU slots everything repeats
//! exactly, so every byte that differs is a defect of recording or replay.

mod actions;
mod chunks;
mod pipedream;

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use loadmaster_predict::component::Component;
use loadmaster_predict::{Origin, Predictor, StageSetting};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::{Edges, RankEvent, RankSpec};
use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::measure::trace::LayerContent;
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::zoo::{AmoebaNet, Bert, Gpt2, Llama, Vgg, Zoo};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_tests::{binary, rank_spec};

const ADAM: Optimizer =
    Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.01 };
const POLICIES: [RecomputePolicy; 3] =
    [RecomputePolicy::None, RecomputePolicy::Stage, RecomputePolicy::Layer];
const WHOLE: Degrees = (1, 1);

/// Replicas, and shards of each.
type Degrees = (u32, u32);

fn training() -> TrainingSpec {
    TrainingSpec { seed: 17, ..loadmaster_samples::training(Schedule::Gpipe, 4, 4) }
}

/// A stage to train alone, or in a pipeline of others.
#[derive(Clone)]
struct Run {
    training: TrainingSpec,
    position: SoloStage,
    pipeline: Option<Partitioning>,
}

impl Run {
    /// Layers `first..=last` between neighbours, where the model has any.
    fn new(
        model: &Model,
        training: TrainingSpec,
        (first, last): (usize, usize),
        (data_degree, tensor_degree): Degrees,
    ) -> Self {
        let stage = StageConfig { data_degree, tensor_degree, ..StageConfig::single(first, last) };
        let before = u32::from(first > 0);
        // Two stages behind it, so that 1F1B holds some micro-batches.
        let after = if last + 1 < model.layers().len() { 2 } else { 0 };
        let position = SoloStage { stage, stage_count: before + 1 + after, stage_index: before };
        Self { training, position, pipeline: None }
    }

    /// The measurements of all shards.
    fn train(&self, model: &Model) -> Vec<Measurement> {
        let folder = tempfile::Builder::new().prefix("lmc").tempdir().unwrap();
        let children: Vec<Child> = (0..self.position.stage.devices())
            .map(|shard| start(&self.spec(model, shard, folder.path())))
            .collect();
        children.into_iter().map(end).collect()
    }

    /// What a shard of it is told.
    fn spec(&self, model: &Model, shard: u32, folder: &Path) -> RankSpec {
        let own = rank_spec(model, self.training, self.position, folder, Bytes(16 << 30));
        RankSpec { shard, neighbour_timeout_seconds: 60.0, ..own }
    }
}

fn start(spec: &RankSpec) -> Child {
    let mut child = Command::new(binary("loadmaster-rank"))
        .arg("train")
        .env("OMP_NUM_THREADS", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(spec).unwrap()).unwrap();
    child
}

fn end(child: Child) -> Measurement {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    match serde_json::from_str(text.lines().last().unwrap()).unwrap() {
        RankEvent::Measured { measurement } => *measurement,
        other => panic!("no measurement but {other:?}"),
    }
}

/// Trains all of them, two at a time, and returns what the shards of each measured.
fn train_all(model: &Model, runs: &[Run]) -> Vec<Vec<Measurement>> {
    let next = Mutex::new(0..runs.len());
    let results = Mutex::new(vec![Vec::new(); runs.len()]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(index) = next.lock().unwrap().next() else { break };
                    let measured = runs[index].train(model);
                    results.lock().unwrap()[index] = measured;
                }
            });
        }
    });
    results.into_inner().unwrap()
}

/// Records every distinct layer at each size, as the campaign `minimal` does.
fn profile(model: &Model, training: TrainingSpec, sizes: &[u32], degrees: &[Degrees]) -> Component {
    let mut seen = HashSet::new();
    let layers: Vec<usize> = (0..model.layers().len())
        .filter(|&layer| seen.insert(LayerContent::of(model, layer).unwrap().fingerprint()))
        .collect();
    let mut runs = Vec::new();
    for &size in sizes {
        for &degree in degrees {
            let training = TrainingSpec {
                schedule: Schedule::Gpipe,
                micro_batches: 2,
                recompute: RecomputePolicy::None,
                ..training.with_micro_batch_size(size)
            };
            runs.extend(layers.iter().map(|&layer| Run::new(model, training, (layer, layer), degree)));
        }
    }
    let measured: Vec<Measurement> = train_all(model, &runs).into_iter().flatten().collect();
    let names: Vec<String> = (0..measured.len()).map(|index| format!("m{index}")).collect();
    Component::new(model, &training, names.iter().map(String::as_str).zip(&measured)).unwrap()
}

/// Trains the stages and returns a line for each whose bytes were predicted wrong.
fn differences(model: &Model, component: &Component, runs: &[Run]) -> Vec<String> {
    let mut differences = Vec::new();
    for (run, shards) in runs.iter().zip(train_all(model, runs)) {
        let SoloStage { stage, stage_count, stage_index } = run.position;
        let training = run.training;
        let setting = StageSetting { stage, stage_index, stage_count, training };
        let predicted = component.stage(&setting).unwrap();
        let breakdown = predicted.breakdown.unwrap();
        assert_eq!(breakdown.total(), predicted.bytes.0, "a breakdown is of all bytes");
        let measured = shards.iter().map(|measurement| measurement.peak_allocated.0).max().unwrap();
        if predicted.bytes.0 != measured {
            differences.push(format!(
                "{} {stage} ({stage_index} of {stage_count}) {:?} {:?} micro-batch {}: {:+} of {measured} \
                 ({:+.2} %), {breakdown:?}",
                model.family(),
                training.schedule,
                training.recompute,
                training.micro_batch_size,
                predicted.bytes.0 as i64 - measured as i64,
                (predicted.bytes.0 as f64 / measured as f64 - 1.0) * 100.0,
            ));
        }
    }
    differences
}

/// Stages of a model, so that first, middle and last ones meet every policy and both schedules.
fn stages(model: &Model, training: TrainingSpec, stages: &[(usize, usize)], degree: Degrees) -> Vec<Run> {
    let schedules = [Schedule::Gpipe, Schedule::OneFOneB];
    let settings = (0..).map(|index| (POLICIES[index % 3], schedules[index % 2]));
    stages
        .iter()
        .zip(settings)
        .map(|(&stage, (recompute, schedule))| {
            Run::new(model, TrainingSpec { recompute, schedule, ..training }, stage, degree)
        })
        .collect()
}

fn assert_exact(model: &Model, component: &Component, runs: &[Run]) {
    let differences = differences(model, component, runs);
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), runs.len(), differences.join("\n"));
}

fn vgg() -> Model {
    Zoo::Vgg11(Vgg { image_size: 32, classes: 10, classifier_width: 16 }).build().unwrap()
}

fn gpt2(untied_head: bool) -> Model {
    Zoo::Gpt2(Gpt2 {
        blocks: 3,
        hidden_size: 32,
        heads: 4,
        sequence_length: 16,
        positions: 20,
        vocabulary_size: 64,
        untied_head,
        dropout: 0.1,
    })
    .build()
    .unwrap()
}

/// Every kind of layer of an image model, in first, middle and last stages, to the byte; and at a
/// micro-batch between and beyond those that were recorded.
#[test]
#[ignore = "slow: make test-slow"]
fn stages_of_vgg_are_predicted_to_the_byte() {
    let (model, training) = (vgg(), training());
    let component = profile(&model, training, &[2, 4], &[WHOLE]);
    let some = [(0, 29), (0, 5), (2, 14), (20, 29), (3, 3), (10, 22), (24, 29), (0, 9)];
    let mut runs = stages(&model, training, &some, WHOLE);
    runs.extend(stages(&model, training.with_micro_batch_size(3), &[(0, 12), (21, 29)], WHOLE));
    runs.extend(stages(&model, training.with_micro_batch_size(8), &[(12, 29), (4, 10)], WHOLE));
    assert_exact(&model, &component, &runs);
}

/// The same for a language model whose ends share a weight: alone in their stages, and both in one.
#[test]
fn stages_of_gpt2_are_predicted_to_the_byte() {
    let (model, training) = (gpt2(false), TrainingSpec { optimizer: ADAM, ..training() });
    let component = profile(&model, training, &[2, 4], &[WHOLE]);
    let all =
        [(0, 5), (0, 5), (0, 5), (0, 0), (0, 2), (1, 3), (2, 2), (3, 5), (5, 5), (4, 5), (0, 4), (1, 4)];
    assert_exact(&model, &component, &stages(&model, training, &all, WHOLE));
}

/// Bfloat16 with its master weights, and a model whose embedding is not shared.
#[test]
fn stages_in_bf16_are_predicted_to_the_byte() {
    let training = TrainingSpec { optimizer: ADAM, precision: Precision::Bf16, ..training() };
    let model = gpt2(true);
    let component = profile(&model, training, &[4], &[WHOLE]);
    let some = [(0, 5), (0, 2), (1, 3), (2, 2), (3, 5), (5, 5)];
    assert_exact(&model, &component, &stages(&model, training, &some, WHOLE));
}

/// Gradients in fp32 beside bf16 parameters: of a model whose ends are apart, and of one whose ends share a weight,
/// alone in their stages and both in one. Replicas sum fp32 buckets.
#[test]
fn stages_with_fp32_gradients_are_predicted_to_the_byte() {
    let adamw =
        Optimizer::AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };
    let training = TrainingSpec { optimizer: adamw, precision: Precision::Bf16Fp32Gradients, ..training() };
    for is_untied in [true, false] {
        let model = gpt2(is_untied);
        let component = profile(&model, training, &[2, 4], &[WHOLE]);
        let some = [(0, 5), (0, 2), (1, 3), (2, 2), (3, 5), (5, 5)];
        assert_exact(&model, &component, &stages(&model, training, &some, WHOLE));
        assert_exact(&model, &component, &stages(&model, training, &[(1, 3), (3, 5)], (2, 1)));
        for other in [
            TrainingSpec { precision: Precision::Bf16, ..training },
            TrainingSpec { optimizer: ADAM, ..training },
        ] {
            let stage = StageConfig::single(1, 3);
            let asked = StageSetting { stage, stage_index: 1, stage_count: 3, training: other };
            assert!(component.stage(&asked).is_err(), "recordings of one training say nothing of another");
        }
    }
}

/// Cells with two tensors at each edge, one of them the cell's own input.
#[test]
fn stages_of_amoebanet_are_predicted_to_the_byte() {
    let model =
        Zoo::AmoebaNetD(AmoebaNet { cells: 3, filters: 16, image_size: 64, classes: 10 }).build().unwrap();
    let component = profile(&model, training(), &[2, 4], &[WHOLE]);
    let some =
        [(0, 8), (0, 3), (1, 4), (2, 2), (3, 6), (5, 8), (4, 4), (8, 8), (6, 7), (0, 0), (2, 7), (0, 5)];
    assert_exact(&model, &component, &stages(&model, training(), &some, WHOLE));
}

/// Other transformers: grouped-query attention with rotary positions, and a classifier over tokens.
#[test]
fn stages_of_llama_and_bert_are_predicted_to_the_byte() {
    let llama = Zoo::Llama(Llama {
        blocks: 3,
        hidden_size: 32,
        heads: 4,
        key_value_heads: 2,
        feed_forward_size: 48,
        sequence_length: 16,
        vocabulary_size: 64,
        rotary_base: 10_000.0,
        tied_head: false,
    });
    let bert = Zoo::Bert(Bert {
        blocks: 3,
        hidden_size: 32,
        heads: 4,
        sequence_length: 16,
        positions: 16,
        vocabulary_size: 64,
        classes: 3,
        dropout: 0.1,
    });
    for model in [llama.build().unwrap(), bert.build().unwrap()] {
        let last = model.layers().len() - 1;
        let component = profile(&model, training(), &[2, 4], &[WHOLE]);
        let some = [(0, last), (0, 2), (1, 3), (2, 2), (last - 1, last), (1, last), (last, last)];
        assert_exact(&model, &component, &stages(&model, training(), &some, WHOLE));
    }
}

/// Shards of a recorded degree, to the byte on the fullest device.
#[test]
fn tensor_parallel_stages_are_predicted_to_the_byte() {
    let (model, training) = (gpt2(true), training());
    let two = (1, 2);
    let component = profile(&model, training, &[4], &[two]);
    let some = [(0, 5), (0, 2), (1, 3), (2, 2), (3, 5), (5, 5)];
    assert_exact(&model, &component, &stages(&model, training, &some, two));
}

/// Kernels in bf16 copy in blocks that depend on the rows, so between and beyond recorded sizes bytes are no line: no
/// stage needs more than the upper end, and the margin says how sure that is.
#[test]
fn stages_in_bf16_stay_below_their_upper_end_at_sizes_that_were_not_recorded() {
    let training = TrainingSpec { optimizer: ADAM, precision: Precision::Bf16, ..training() };
    let bert = Bert {
        blocks: 2,
        hidden_size: 36,
        heads: 4,
        sequence_length: 17,
        positions: 19,
        vocabulary_size: 101,
        classes: 2,
        dropout: 0.1,
    };
    let model = Zoo::Bert(bert).build().unwrap();
    let last = model.layers().len() - 1;
    // From 57 samples on the classifier's product of 36 × 2 is large enough for oneDNN.
    let component = profile(&model, training, &[12, 24], &[WHOLE]);
    let some = [(0, last), (0, 0), (1, 2), (last, last), (last - 1, last)];
    let mut above = Vec::new();
    for size in [5, 17, 31, 48, 64] {
        let runs = stages(&model, training.with_micro_batch_size(size), &some, WHOLE);
        for (run, shards) in runs.iter().zip(train_all(&model, &runs)) {
            let SoloStage { stage, stage_count, stage_index } = run.position;
            let setting = StageSetting { stage, stage_index, stage_count, training: run.training };
            let predicted = component.stage(&setting).unwrap();
            let (measured, high) = (shards[0].peak_allocated, predicted.interval().unwrap().high);
            if measured > high {
                above.push(format!(
                    "{stage} at {size}: {measured} above {high}, predicted {}",
                    predicted.bytes
                ));
            }
        }
    }
    assert!(above.is_empty(), "{above:#?}");
}

/// A vocabulary that the degree does not divide: the first shards hold a row more, and in bf16 kernels copy more for
/// the others. The fullest device counts, to the byte.
#[test]
fn shards_of_an_uneven_vocabulary_are_predicted_to_the_byte() {
    let training = TrainingSpec { precision: Precision::Bf16, ..training() };
    for (untied_head, degree) in [(true, 2), (false, 2), (true, 4), (false, 4)] {
        let model = Zoo::Gpt2(Gpt2 {
            blocks: 1,
            hidden_size: 48,
            heads: 4,
            sequence_length: 17,
            positions: 17,
            vocabulary_size: 513 * i64::from(degree / 2),
            untied_head,
            dropout: 0.0,
        })
        .build()
        .unwrap();
        let shards = (1, degree);
        let component = profile(&model, training, &[8], &[shards]);
        let training = training.with_micro_batch_size(8);
        assert_exact(
            &model,
            &component,
            &stages(&model, training, &[(3, 3), (0, 3), (2, 3), (0, 0)], shards),
        );
    }
}

/// Replicas are predicted from single devices at a part of the micro-batch.
#[test]
fn data_parallel_stages_are_predicted_to_the_byte() {
    let (model, training) = (vgg(), training());
    let component = profile(&model, training, &[2], &[WHOLE]);
    let some = [(0, 29), (0, 5), (10, 22), (24, 29), (7, 7), (29, 29)];
    assert_exact(&model, &component, &stages(&model, training, &some, (2, 1)));
}

/// Replicas of shards are predicted from shards at a part of the micro-batch, and the buffers that the
/// gradients of a shard are summed in.
#[test]
fn stages_of_replicas_and_shards_are_predicted_to_the_byte() {
    let (model, training) = (gpt2(true), training());
    let component = profile(&model, training, &[2], &[(1, 2)]);
    let some = [(0, 5), (0, 2), (1, 3), (2, 2), (3, 5), (5, 5)];
    assert_exact(&model, &component, &stages(&model, training, &some, (2, 2)));
}

/// The same stages whose replicas divide optimizer states.
fn sharded(mut runs: Vec<Run>) -> Vec<Run> {
    runs.iter_mut().for_each(|run| run.position.stage.sharding = StateSharding::Optimizer);
    runs
}

/// Replicas that divide optimizer states: numbers of them that divide tensors and that do not, of shards, and of a weight whose ends
/// are in one stage or in two.
#[test]
fn stages_of_sharded_optimizer_states_are_predicted_to_the_byte() {
    let training = TrainingSpec { optimizer: ADAM, precision: Precision::Bf16, ..training() };
    let model = gpt2(false);
    let component = profile(&model, training, &[2], &[WHOLE, (1, 2)]);
    for (degrees, some) in [((3, 1), [(0, 5), (1, 3), (3, 5)]), ((2, 2), [(0, 2), (2, 2), (5, 5)])] {
        let training = training.with_micro_batch_size(2 * degrees.0);
        assert_exact(&model, &component, &sharded(stages(&model, training, &some, degrees)));
    }
}

/// The same of 387 stages: in every precision, of all layers in a row, with one micro-batch and with several.
#[test]
#[ignore = "slow: make test-slow"]
fn all_stages_of_sharded_optimizer_states_are_predicted_to_the_byte() {
    let training = TrainingSpec { optimizer: ADAM, ..training() };
    let all: Vec<(usize, usize)> =
        (0..6).flat_map(|first| (first..6).map(move |last| (first, last))).collect();
    for (precision, untied_head) in
        [(Precision::Fp32, true), (Precision::Bf16, true), (Precision::Bf16Fp32Gradients, false)]
    {
        let (model, training) = (gpt2(untied_head), TrainingSpec { precision, ..training });
        let component = profile(&model, training, &[2], &[WHOLE, (1, 2)]);
        for (degrees, micro_batches) in [((2, 1), 1), ((2, 1), 4), ((3, 1), 4), ((2, 2), 4)] {
            let training = TrainingSpec { micro_batches, ..training.with_micro_batch_size(2 * degrees.0) };
            assert_exact(&model, &component, &sharded(stages(&model, training, &all, degrees)));
        }
    }
    let (model, training) = (vgg(), training.with_micro_batch_size(3));
    let component = profile(&model, training, &[1], &[WHOLE]);
    let some = [(0, 29), (0, 5), (2, 14), (20, 29), (3, 3), (10, 22), (24, 29), (0, 9), (29, 29)];
    assert_exact(&model, &component, &sharded(stages(&model, training, &some, (3, 1))));
}

/// Layers before the first one with parameters have no gradients to make, unless each layer is a segment
/// of its own or the stage has another one before it.
#[test]
fn stages_before_the_first_parameter_are_predicted_to_the_byte() {
    let linear = LayerKind::Linear { in_features: 64, out_features: 64 };
    let layers = [LayerKind::Flatten, LayerKind::Relu, linear, LayerKind::Relu, linear]
        .map(|kind| Layer { name: "layer".to_owned(), kind });
    let input = ModelInput::Image { channels: 1, height: 8, width: 8 };
    let model = Model::new("chain".to_owned(), input, layers.to_vec()).unwrap();
    let component = profile(&model, training(), &[4], &[WHOLE]);
    let some = [(0, 4), (0, 4), (0, 4), (0, 1), (1, 3), (0, 2), (0, 0), (2, 4), (1, 1)];
    assert_exact(&model, &component, &stages(&model, training(), &some, WHOLE));
}

/// Where a prediction comes from is said: the layers' measurements, and how far it is from them.
#[test]
fn predictions_name_their_measurements_and_their_distance() {
    let (model, training) = (gpt2(true), training());
    let component = profile(&model, training, &[2, 4], &[WHOLE]);
    let setting = |size| StageSetting {
        stage: StageConfig::single(1, 3),
        stage_index: 0,
        stage_count: 1,
        training: training.with_micro_batch_size(size),
    };
    for (size, origin) in [(4, Origin::Profiled), (3, Origin::Interpolated), (8, Origin::Extrapolated)] {
        let prediction = component.stage(&setting(size)).unwrap();
        assert_eq!(prediction.origin, origin);
        assert!(prediction.seconds.unwrap().forward > 0.0 && prediction.margin.unwrap() > 0.0);
    }
    // One recording of a block stands for all of them, at each size.
    assert_eq!(component.sources(&setting(4)).len(), 1);
    assert_eq!(component.sources(&setting(8)).len(), 2);

    // What was not recorded is named, with the remedy.
    let stage = StageConfig { tensor_degree: 8, ..StageConfig::single(1, 3) };
    let error = component.stage(&StageSetting { stage, ..setting(4) }).unwrap_err().to_string();
    assert!(error.contains("layer 1 (block.0)") && error.contains("`parallel_sizes` 2 and 4"), "{error}");
    let stage = StageConfig { data_degree: 8, ..StageConfig::single(1, 3) };
    let error = component.stage(&StageSetting { stage, ..setting(4) }).unwrap_err().to_string();
    assert!(error.contains("multiple of 8"), "{error}");

    // A check that is a tenth off widens every margin beyond that, so that it would have been covered.
    let run = Run::new(&model, training, (1, 3), WHOLE);
    let mut check = run.train(&model).remove(0);
    let narrow = component.stage(&setting(4)).unwrap().margin.unwrap();
    let component = component.with_checks(&[(training, &check)]);
    assert_eq!(component.stage(&setting(4)).unwrap().margin, Some(narrow), "the prediction was exact");
    check.peak_allocated.0 += check.peak_allocated.0 / 10;
    let wide = component.with_checks(&[(training, &check)]).stage(&setting(4)).unwrap().margin.unwrap();
    assert!(narrow < 0.01 && wide > 0.1, "{narrow} {wide}");
}
