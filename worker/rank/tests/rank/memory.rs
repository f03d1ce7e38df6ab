//! What a rank measures is exact, repeatable and independent of its neighbours.

use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::measure::trace::{LayerContent, Retained};
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

use crate::processes::{pipeline, positions, run, run_all, small_gpt, small_vgg, solo, training};

pub(crate) fn assert_solo_equals_pipeline(model: &Model, training: TrainingSpec, sizes: &[usize]) {
    let folder = tempfile::tempdir().unwrap();
    let connected = run_all(&pipeline(model, training, sizes, folder.path()));
    for (position, connected) in positions(sizes).into_iter().zip(connected) {
        let alone = run(&solo(model, training, position)).measurement();
        assert_eq!(
            alone.peak_allocated,
            connected.peak_allocated,
            "{} {:?} {:?} stage {} of {sizes:?}",
            model.family(),
            training.schedule,
            training.recompute,
            position.stage_index
        );
        assert_eq!(alone.static_bytes, connected.static_bytes);
        assert!(alone.solo && !connected.solo);
    }
}

fn gpt_stage_memory_is_its_own(schedule: Schedule) {
    for recompute in [RecomputePolicy::None, RecomputePolicy::Stage, RecomputePolicy::Layer] {
        let training = TrainingSpec { schedule, recompute, ..training() };
        assert_solo_equals_pipeline(&small_gpt(false), training, &[2, 2, 2]);
    }
}

/// The same bytes, with real neighbours and with none: first, middle and last stage.
#[test]
fn a_gpt_stage_needs_the_same_alone_and_under_gpipe() {
    gpt_stage_memory_is_its_own(Schedule::Gpipe);
}

/// The same bytes, with real neighbours and with none: first, middle and last stage.
#[test]
fn a_gpt_stage_needs_the_same_alone_and_under_1f1b() {
    gpt_stage_memory_is_its_own(Schedule::OneFOneB);
}

/// The same for images, and for a precision with master weights.
#[test]
fn a_vgg_stage_needs_the_same_alone_and_in_a_pipeline() {
    let training = TrainingSpec { schedule: Schedule::OneFOneB, ..training() };
    assert_solo_equals_pipeline(&small_vgg(), training, &[8, 8, 7, 7]);
    let bf16 = TrainingSpec { precision: Precision::Bf16, ..training };
    assert_solo_equals_pipeline(&small_gpt(true), bf16, &[3, 3]);
}

#[test]
fn the_same_specification_gives_the_same_answer() {
    let spec = solo(&small_gpt(false), training(), positions(&[6])[0]);
    let [first, second]: [Measurement; 2] = std::array::from_fn(|_| run(&spec).measurement());
    assert_eq!(first.peak_allocated, second.peak_allocated);
    assert_eq!(first.losses, second.losses);
    assert_eq!(first.losses.len(), 3);
}

/// The peak of one linear layer in the middle of a pipeline, with pencil and paper, to the byte: nothing
/// is kept that training does not need.
#[test]
fn the_peak_of_a_linear_layer_is_what_theory_says() {
    const WIDTH: u64 = 256;
    let linear = |name: &str| Layer {
        name: name.to_owned(),
        kind: LayerKind::Linear { in_features: WIDTH as i64, out_features: WIDTH as i64 },
    };
    let flatten = Layer { name: "flatten".to_owned(), kind: LayerKind::Flatten };
    let model = Model::new(
        "chain".to_owned(),
        ModelInput::Image { channels: 1, height: 1, width: WIDTH as i64 },
        vec![flatten, linear("a"), linear("b"), linear("c")],
    )
    .unwrap();
    for (schedule, in_flight) in [(Schedule::Gpipe, 5), (Schedule::OneFOneB, 2)] {
        for micro_batch_size in [2, 16] {
            let training = TrainingSpec { schedule, micro_batch_size, micro_batches: 5, ..training() };
            let (weight, bias) = (WIDTH * WIDTH * 4, WIDTH * 4);
            let edge = u64::from(micro_batch_size) * WIDTH * 4;
            // In the second backward pass: parameters, their gradients and their velocities; the inputs
            // that wait; the gradients of output and input; and the new gradients of the parameters.
            let waiting = if schedule == Schedule::Gpipe { in_flight - 1 } else { in_flight };
            let expected = 3 * (weight + bias) + waiting * edge + 2 * edge + weight + bias;
            assert_eq!(peak(&model, training, &[2, 1, 1], 1), expected, "{schedule:?} {micro_batch_size}");
        }
    }
}

fn peak(model: &Model, training: TrainingSpec, sizes: &[usize], stage: usize) -> u64 {
    run(&solo(model, training, positions(sizes)[stage])).measurement().peak_allocated.0
}

/// 1F1B holds as many micro-batches as there are stages, `GPipe` all of them.
#[test]
fn one_f_one_b_needs_less_than_gpipe_at_the_first_stage() {
    let (model, sizes) = (small_gpt(true), [2, 2, 2]);
    let gpipe = TrainingSpec { micro_batches: 12, ..training() };
    let one_f_one_b = TrainingSpec { schedule: Schedule::OneFOneB, ..gpipe };
    let (gpipe, one_f_one_b) = (peak(&model, gpipe, &sizes, 0), peak(&model, one_f_one_b, &sizes, 0));
    assert!(one_f_one_b < gpipe / 2, "{one_f_one_b} {gpipe}");
}

/// Computing again keeps one input per stage, or per layer, instead of every activation.
#[test]
fn recomputation_needs_less_memory() {
    let (model, sizes) = (small_gpt(true), [4, 2]);
    let with = |recompute| {
        let training = TrainingSpec { recompute, micro_batches: 8, micro_batch_size: 4, ..training() };
        peak(&model, training, &sizes, 0)
    };
    let none = with(RecomputePolicy::None);
    let stage = with(RecomputePolicy::Stage);
    let layer = with(RecomputePolicy::Layer);
    assert!(stage < none / 2, "{stage} {none}");
    assert!(layer < none / 2, "{layer} {none}");
    assert_ne!(stage, layer);
}

/// Every layer has its times, in a stage of several as alone; only recomputation takes recompute time; and they
/// add up to no more than the iteration. (Of one iteration: medians over several need not add up.)
#[test]
fn times_are_attributed_to_layers() {
    for recompute in [RecomputePolicy::None, RecomputePolicy::Layer, RecomputePolicy::Stage] {
        let training = TrainingSpec { recompute, ..training() };
        // Whose weights are wanted trains no longer than it was told to.
        let folder = tempfile::tempdir().unwrap();
        let once = RankSpec {
            iterations: 1,
            dump_parameters: Some(folder.path().join("parameters.safetensors")),
            ..solo(&small_gpt(false), training, positions(&[6])[0])
        };
        let measured = run(&once).measurement();
        let layers: Vec<usize> = measured.layers.iter().map(|times| times.layer).collect();
        assert_eq!(layers, [0, 1, 2, 3, 4, 5]);
        let mut sum = 0.0;
        for times in &measured.layers {
            assert!(times.forward_seconds > 0.0 && times.backward_seconds > 0.0, "{times:?}");
            assert_eq!(times.recompute_seconds > 0.0, recompute != RecomputePolicy::None, "{times:?}");
            sum += times.forward_seconds + times.backward_seconds + times.recompute_seconds;
        }
        let passes = f64::from(training.micro_batches) * sum;
        assert!(passes < measured.iteration_seconds, "{passes} {}", measured.iteration_seconds);
        assert!(passes > measured.iteration_seconds * 0.1, "{passes} {}", measured.iteration_seconds);
    }
}

/// The peak can never be below what a stage holds anyway.
#[test]
fn the_peak_contains_the_static_bytes() {
    let adam =
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };
    let adamw =
        Optimizer::AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1 };
    for (precision, optimizer) in [
        (Precision::Fp32, adam),
        (Precision::Bf16, adam),
        (Precision::Bf16Fp32Gradients, adam),
        (Precision::Fp32, adamw),
    ] {
        let training = TrainingSpec { precision, optimizer, ..training() };
        let measured = run(&solo(&small_vgg(), training, positions(&[15, 15])[1])).measurement();
        let scalars: u64 = small_vgg().layers()[15..].iter().map(|layer| layer.kind.parameter_count()).sum();
        assert_eq!(measured.static_bytes, training.static_bytes(scalars));
        assert!(measured.peak_allocated.0 > measured.static_bytes.total());
    }
}

/// A layer alone is recorded: what it keeps of a micro-batch is what its backward pass needs, and what its
/// first backward pass leaves behind are the gradients. A longer stage is not recorded.
#[test]
fn a_layer_alone_is_recorded() {
    const WIDTH: u64 = 64;
    let linear = LayerKind::Linear { in_features: WIDTH as i64, out_features: WIDTH as i64 };
    let layers = [LayerKind::Flatten, linear, LayerKind::Relu, linear]
        .map(|kind| Layer { name: "layer".to_owned(), kind });
    let input = ModelInput::Image { channels: 1, height: 8, width: 8 };
    let model = Model::new("chain".to_owned(), input, layers.to_vec()).unwrap();
    let edge = u64::from(training().micro_batch_size) * WIDTH * 4;
    let alone = positions(&[1, 1, 1, 1]);
    for (layer, keeps) in [
        // The first linear map's input may need no gradient; it is kept for the weight's.
        (1, Retained { inner: 0, inputs: edge, outputs: 0 }),
        (2, Retained { inner: 0, inputs: 0, outputs: edge }),
    ] {
        let measured = run(&solo(&model, training(), alone[layer])).measurement();
        let trace = measured.trace.as_deref().unwrap();
        assert_eq!((trace.layer, trace.overhead), (layer, 0));
        assert_eq!(trace.content, LayerContent::of(&model, layer).unwrap().fingerprint());
        assert_eq!(measured.components().unwrap().retained, keeps, "layer {layer}");
        let left: u64 = trace.first.left().into_iter().map(|block| trace.first.blocks[block]).sum();
        assert_eq!(left, measured.static_bytes.gradients);
        assert!(trace.later.left().is_empty() && trace.without_graph.left().is_empty());
        // Up to the first layer with parameters, also as it is behind layers that have none.
        assert_eq!(trace.untrained_input.is_some(), layer == 1);
    }
    let longer = positions(&[2, 2])[0];
    assert_eq!(run(&solo(&model, training(), longer)).measurement().trace, None);
}

/// Gradients in fp32 beside bf16 parameters: what a backward pass computes in bf16 is gone when it is over, and fp32
/// gradients are left, twice the bytes; later passes leave nothing more. The peak shows it.
#[test]
fn fp32_gradients_are_what_a_backward_pass_leaves_behind() {
    let model = small_gpt(true);
    let alone = positions(&[1, 1, 1, 1, 1, 1]);
    let block = |precision| {
        let training = TrainingSpec { precision, ..training() };
        run(&solo(&model, training, alone[2])).measurement()
    };
    let (half, whole) = (block(Precision::Bf16), block(Precision::Bf16Fp32Gradients));
    let left = |measured: &Measurement| {
        let trace = measured.trace.as_deref().unwrap();
        assert!(trace.later.left().is_empty());
        trace.first.left().into_iter().map(|block| trace.first.blocks[block]).sum::<u64>()
    };
    assert_eq!(left(&half), half.static_bytes.gradients);
    assert_eq!(left(&whole), whole.static_bytes.gradients);
    assert_eq!(whole.static_bytes.gradients, 2 * half.static_bytes.gradients);
    assert!(whole.peak_allocated > half.peak_allocated);
}

/// Recording comes after measuring: a recorded layer's peak is that of the same layer in a pipeline, which
/// is not recorded.
#[test]
fn recording_changes_no_peak() {
    assert_solo_equals_pipeline(&small_gpt(false), training(), &[1, 1, 3, 1]);
}
