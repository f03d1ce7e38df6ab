//! What is promised of a prediction's upper end, with bytes as real recordings had them.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::trace::{LayerContent, LayerTrace, Passage, TraceStep};
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Precision, Schedule, TrainingSpec};

use super::super::{Component, margin as margins};
use crate::tests::training;
use crate::{Predictor, StageSetting};

const WIDTH: i64 = 32;

/// Two linear maps.
pub(super) fn model() -> Model {
    let linear = LayerKind::Linear { in_features: WIDTH, out_features: WIDTH };
    let layers = [linear, linear].map(|kind| Layer { name: "linear".to_owned(), kind });
    Model::new("chain".to_owned(), ModelInput::Vector { size: WIDTH }, layers.to_vec()).unwrap()
}

fn in_precision(precision: Precision) -> TrainingSpec {
    TrainingSpec { precision, ..training(Schedule::Gpipe, 16, 2) }
}

/// A linear map whose kernels take scratch memory in both passes; no scratch where it is 0.
pub(super) fn trace(model: &Model, layer: usize, edge: u64, scratch: u64) -> LayerTrace {
    // Blocks: input, scratch, output, gradient of the output, scratch, the weight's gradient, the input's.
    let scratches = |block: i32| if scratch > 0 { vec![block, -block] } else { Vec::new() };
    let passage = |frees_gradient: bool| Passage {
        blocks: vec![edge, scratch, edge, edge, scratch, 2_048, edge],
        inputs: vec![0],
        outputs: vec![2],
        output_gradients: vec![3],
        input_gradients: if layer > 0 { vec![6] } else { Vec::new() },
        slots: [
            vec![1],
            [scratches(2), vec![3]].concat(),
            vec![-3],
            vec![4],
            [
                scratches(5),
                vec![6],
                if frees_gradient { vec![-6] } else { Vec::new() },
                if layer > 0 { vec![7] } else { Vec::new() },
                vec![-4, -1],
            ]
            .concat(),
            if layer > 0 { vec![-7] } else { Vec::new() },
        ],
        ..Passage::default()
    };
    let without_graph = Passage {
        blocks: vec![edge, scratch, edge],
        inputs: vec![0],
        outputs: vec![2],
        slots: [vec![1], [scratches(2), vec![3, -1]].concat(), vec![-3], vec![], vec![], vec![]],
        ..Passage::default()
    };
    LayerTrace {
        layer,
        content: LayerContent::of(model, layer).unwrap().fingerprint(),
        first: passage(false),
        later: passage(true),
        without_graph,
        untrained_input: None,
        step: TraceStep::default(),
        has_saved: false,
        overhead: 0,
    }
    .checked()
    .unwrap()
}

pub(super) fn measurement(
    trace: LayerTrace,
    size: u32,
    (shard, tensor_degree): (u32, u32),
    kind: &str,
) -> Measurement {
    let stage = StageConfig { tensor_degree, ..StageConfig::single(trace.layer, trace.layer) };
    Measurement {
        shard,
        micro_batch_size: size,
        in_flight: 2,
        peak_allocated: Bytes(0),
        step_seconds: 0.1,
        trace: Some(Box::new(trace)),
        environment: Environment { device_kind: kind.to_owned(), ..Environment::default() },
        ..crate::tests::measurement(stage)
    }
}

fn predictor(training: TrainingSpec, measurements: &[Measurement]) -> Component {
    Component::new(&model(), &training, measurements.iter().map(|measured| ("run", measured))).unwrap()
}

/// Both layers recorded at sizes with the scratch of each.
pub(super) fn recorded(training: TrainingSpec, scratch: &[(u32, u64)], kind: &str) -> Component {
    let model = model();
    let of = |&(size, scratch): &(u32, u64)| {
        let edge = u64::from(size) * 64;
        [0, 1].map(|layer| measurement(trace(&model, layer, edge, scratch), size, (0, 1), kind))
    };
    predictor(training, &scratch.iter().flat_map(of).collect::<Vec<_>>())
}

fn setting(training: TrainingSpec, size: u32, tensor_degree: u32, micro_batches: u32) -> StageSetting {
    StageSetting {
        stage: StageConfig { tensor_degree, ..StageConfig::single(0, 1) },
        stage_index: 0,
        stage_count: 1,
        training: TrainingSpec { micro_batches, ..training.with_micro_batch_size(size) },
    }
}

/// What oneDNN's matrix products in bf16 took of a map of a GPT-2 with 16 tokens and a width of 32, by samples.
pub(super) const PACKED: [(u32, u64); 8] = [
    (4, 21_504),
    (6, 29_696),
    (8, 37_888),
    (12, 54_272),
    (16, 70_656),
    (24, 54_272),
    (32, 70_656),
    (64, 70_656),
];

/// Scratch in bf16 rises and falls with the samples, and below, between and beyond any two sizes the upper end
/// holds what was recorded there. So it does where every place of a stage is read from a curve.
#[test]
fn the_upper_end_holds_whatever_kernels_take_in_bf16() {
    let training = in_precision(Precision::Bf16);
    let truth = recorded(training, &PACKED, "cpu");
    for (index, &low) in PACKED.iter().enumerate() {
        for &high in &PACKED[index + 1..] {
            let component = recorded(training, &[low, high], "cpu");
            for (size, _) in PACKED {
                for micro_batches in [1, 2, 5] {
                    let setting = setting(training, size, 1, micro_batches);
                    let real = truth.stage(&setting).unwrap().bytes;
                    let predicted = component.stage(&setting).unwrap();
                    let high_end = predicted.interval().unwrap().high;
                    assert!(real <= high_end, "{low:?} {high:?} at {size}: {real} above {high_end}");
                    let curve = component.curves(&setting, usize::MAX).unwrap()[1];
                    assert_eq!(curve.bytes(setting.in_flight()), predicted.bytes.0);
                    assert_eq!(curve.margin(setting.in_flight()), predicted.margin);
                    assert_eq!(
                        predicted.margin.unwrap() > 0.1,
                        component
                            .warnings(&setting)
                            .iter()
                            .any(|warning| warning.message.contains("scratch memory")),
                    );
                }
            }
        }
    }
    // Recorded sizes are as sure as ever.
    let component = recorded(training, &PACKED[..2], "cpu");
    assert_eq!(component.stage(&setting(training, 6, 1, 2)).unwrap().margin, Some(margins::PROFILED));
}

/// A map of 32 × 2 for a sample is too small a product for oneDNN until there are 64 of them; from then on it takes
/// 9,600 bytes, which no recording of fewer samples shows.
#[test]
fn the_upper_end_holds_scratch_that_no_recording_shows() {
    let training = in_precision(Precision::Bf16);
    let linear = LayerKind::Linear { in_features: WIDTH, out_features: 2 };
    let layers = [linear].map(|kind| Layer { name: "head".to_owned(), kind });
    let model = Model::new("head".to_owned(), ModelInput::Vector { size: WIDTH }, layers.to_vec()).unwrap();
    let at = |size: u32, scratch| {
        measurement(trace(&model, 0, u64::from(size) * 64, scratch), size, (0, 1), "cpu")
    };
    let predictor = |measured: &[Measurement]| {
        Component::new(&model, &training, measured.iter().map(|measured| ("run", measured))).unwrap()
    };
    let setting = |size| StageSetting {
        stage: StageConfig::single(0, 0),
        ..setting(training.with_micro_batch_size(size), size, 1, 2)
    };
    let real = predictor(&[at(96, 9_600)]).stage(&setting(96)).unwrap().bytes;
    let low = predictor(&[at(24, 0), at(48, 0)]);
    assert!(real <= low.stage(&setting(96)).unwrap().interval().unwrap().high);
    // Nor is it lost where only the larger recording shows it, or only the smaller one.
    let real = predictor(&[at(72, 9_600)]).stage(&setting(72)).unwrap().bytes;
    for other in [at(400, 0), at(400, 9_600)] {
        for first in [at(48, 0), at(64, 9_600)] {
            if first.trace.as_ref().unwrap().first.blocks[1] + other.trace.as_ref().unwrap().first.blocks[1]
                > 0
            {
                let around = predictor(&[first, other.clone()]);
                assert!(real <= around.stage(&setting(72)).unwrap().interval().unwrap().high);
            }
        }
    }
}

/// In fp32 on CPU slots no one has seen scratch off its line: margins stay narrow. On other devices no one has
/// looked.
#[test]
fn margins_depend_on_precision_and_kind_of_device() {
    let fp32 = in_precision(Precision::Fp32);
    let scratch = [(4, 4_096 + 100), (8, 8_192 + 100)];
    let margin = |kind, size| {
        let predicted = recorded(fp32, &scratch, kind).stage(&setting(fp32, size, 1, 1)).unwrap();
        predicted.margin.unwrap()
    };
    assert_eq!((margin("cpu", 6), margin("cpu", 16)), (margins::INTERPOLATED, margins::EXTRAPOLATED));
    assert!(margin("NVIDIA H200", 6) > 0.1 && margin("NVIDIA H200", 16) > 0.1);
    assert_eq!(margin("NVIDIA H200", 8), margins::PROFILED);
}

/// Each thread of a CPU slot copies for itself in bf16: with eight of them a convolution needed a third more than
/// with one. What was recorded is said.
#[test]
fn bytes_in_bf16_are_those_of_as_many_threads_as_were_recorded() {
    let warnings = |precision, kind, threads: [u32; 2]| {
        let (model, training) = (model(), in_precision(precision));
        let measured = [0, 1].map(|layer: usize| {
            let measured = measurement(trace(&model, layer, 512, 64), 8, (0, 1), kind);
            let environment = Environment { threads: threads[layer], ..measured.environment.clone() };
            Measurement { environment, ..measured }
        });
        predictor(training, &measured)
            .warnings(&setting(training, 8, 1, 2))
            .iter()
            .map(|of| of.message.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(warnings(Precision::Bf16, "cpu", [2, 2]).contains("measured with 2 threads"));
    assert!(warnings(Precision::Bf16, "cpu", [4, 1]).contains("measured with 1 to 4 threads"));
    assert_eq!(warnings(Precision::Fp32, "cpu", [4, 1]), "");
    assert_eq!(warnings(Precision::Bf16, "NVIDIA H200", [4, 1]), "");
}

/// A vocabulary of 513 on two shards, in bf16: the first holds a row more and peaks higher, the second, whose
/// kernels copy more, allocates more in all. What is predicted holds both, whichever came first.
#[test]
fn the_fullest_shard_counts_whichever_allocates_more() {
    let training = in_precision(Precision::Bf16);
    let model = model();
    let of = |shard, edge, scratch| {
        [0, 1].map(|layer| measurement(trace(&model, layer, edge, scratch), 4, (shard, 2), "cpu"))
    };
    // Scratch that is no part of the peak, and scratch that is.
    for (fuller, busier) in [
        ((0, 10_260, 0), (1, 10_240, 8_000)),
        ((1, 10_260, 0), (0, 10_240, 8_000)),
        ((0, 10_260, 2_048), (1, 10_240, 40_960)),
    ] {
        let shards = [of(fuller.0, fuller.1, fuller.2), of(busier.0, busier.1, busier.2)];
        let alone = shards.clone().map(|shard| predictor(training, &shard));
        for measured in [shards.concat(), [shards[1].clone(), shards[0].clone()].concat()] {
            let both = predictor(training, &measured);
            for micro_batches in [1, 2, 40] {
                let setting = setting(training, 4, 2, micro_batches);
                let most = alone.iter().map(|alone| alone.stage(&setting).unwrap().bytes).max().unwrap();
                let predicted = both.stage(&setting).unwrap();
                assert!(predicted.bytes >= most, "{micro_batches}: {} below {most}", predicted.bytes);
                assert_eq!(
                    both.curves(&setting, usize::MAX).unwrap()[1].bytes(micro_batches),
                    predicted.bytes.0
                );
            }
        }
    }
}

/// A degree between two recorded ones, at a size beyond the recorded ones, is as far from the recordings as the
/// size is.
#[test]
fn the_farther_of_size_and_degree_counts() {
    let training = in_precision(Precision::Fp32);
    let model = model();
    let mut measured = Vec::new();
    for degree in [2_u32, 8] {
        for size in [4_u32, 8] {
            for shard in 0..degree {
                let edge = u64::from(size) * 640 / u64::from(degree);
                measured.extend(
                    [0, 1].map(|layer| {
                        measurement(trace(&model, layer, edge, 0), size, (shard, degree), "cpu")
                    }),
                );
            }
        }
    }
    let component = predictor(training, &measured);
    let margin = |size| component.stage(&setting(training, size, 4, 2)).unwrap().margin;
    assert_eq!(margin(6), Some(margins::INTERPOLATED));
    assert_eq!(margin(16), Some(margins::EXTRAPOLATED));
}
