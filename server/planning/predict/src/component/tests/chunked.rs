//! What a device holds besides chunks, against the oracle and with pencil and paper.

use std::collections::BTreeMap;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::{ChunkedStage, Chunks};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::trace::{LayerContent, LayerTrace, Passage, Slot};
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::zoo::{Gpt2, Llama, Zoo};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::actions::{Action, Block, Destination, Optimization, StageActions, Swap};
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule, StaticBytes, TrainingSpec};
use proptest::prelude::*;

use super::super::memory_optimizations::player::Gradients;
use super::super::memory_optimizations::resident_state::ResidentState;
use super::super::memory_optimizations::shard::{Scene, ShardMemory};
use super::super::stage::ReplayStage;
use super::super::{Component, margin as margins};
use super::oracle::{Answer, Oracle};
use super::promise::{self, PACKED, measurement, recorded};
use super::traces::{Shape, schedules, shapes, stage, trace, traces};
use crate::tests::training;
use crate::{Margin, Moments, PredictionError, Predictor, StageSetting};

/// So many linear maps.
fn chain(layers: usize) -> Model {
    let linear = LayerKind::Linear { in_features: 4, out_features: 4 };
    let layers = vec![Layer { name: "linear".to_owned(), kind: linear }; layers];
    Model::new("chain".to_owned(), ModelInput::Vector { size: 4 }, layers).unwrap()
}

fn chunks(model: &Model, training: &TrainingSpec, order: ChunkOrder) -> Chunks {
    let stage = ChunkedStage { order, staging: 1, ..ChunkedStage::on_demand(1, Bytes(1 << 50)) };
    stage.lay_out(model, training).unwrap()
}

/// How a model is trained in chunks.
fn settings() -> impl Strategy<Value = (TrainingSpec, ChunkOrder)> {
    let recompute = prop_oneof![Just(RecomputePolicy::None), Just(RecomputePolicy::Layer)];
    let orders = prop_oneof![Just(ChunkOrder::Layer), Just(ChunkOrder::MicroBatch)];
    (schedules(), 1_u32..6, recompute, orders).prop_map(|(schedule, micro_batches, recompute, order)| {
        (
            TrainingSpec { recompute, precision: Precision::Fp32, ..training(schedule, 4, micro_batches) },
            order,
        )
    })
}

/// What of some layers' micro-batches is on the host, and at which points: of layers that are kept or recomputed.
fn on_host(points: &[Option<(u32, u32)>], layers: usize, recompute: RecomputePolicy) -> StageActions {
    let block = if recompute == RecomputePolicy::None { Block::Activations } else { Block::Inputs };
    let of = |(layer, points): (usize, &Option<(u32, u32)>)| {
        let (release_after, fetch_before) = (*points)?;
        let swap = Swap { block, to: Destination::Host, release_after, fetch_before };
        Some(Action {
            first_layer: layer,
            last_layer: layer,
            slots: Vec::new(),
            optimization: Optimization::Swap(swap),
        })
    };
    let actions = (0..layers).zip(points.iter().cycle()).filter_map(of).collect();
    StageActions { actions, ..StageActions::default() }
}

/// Points of layers, over once more; nothing of some of them is on the host.
fn points() -> impl Strategy<Value = Vec<Option<(u32, u32)>>> {
    let point = (0_u32..5, prop_oneof![0_u32..5, 0_u32..30]);
    prop::collection::vec(prop::option::weighted(0.6, point), 1..6)
}

fn told(shapes: &[Shape], chunks: &Chunks, actions: &StageActions) -> Answer {
    let absences = actions.absences(&chunks.steps);
    Oracle::new(shapes, (true, 0), (0, &chunks.steps, &absences), 0).in_chunks().play()
}

fn played(traces: &[LayerTrace], chunks: &Chunks) -> ShardMemory {
    acted(traces, chunks, &StageActions::default())
}

fn acted(traces: &[LayerTrace], chunks: &Chunks, actions: &StageActions) -> ShardMemory {
    let steps = &chunks.steps;
    let runs = (0..steps.slots()).map(|slot| steps.runs(slot).to_vec()).collect();
    Scene {
        stage: &ReplayStage { runs, ..stage(traces, RecomputePolicy::None, true) },
        stored: ResidentState {
            whole: StaticBytes { buffers: 5, ..StaticBytes::default() },
            ..ResidentState::default()
        },
        overhead: 11,
        steps,
        absences: &actions.absences(steps),
        actions,
        synchronisation: 0,
        gradients: Gradients::Delivered(&chunks.uses),
    }
    .play()
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(400))]

    /// Every byte of every step.
    #[test]
    fn every_step_is_what_layers_hold(
        shapes in shapes(), (training, order) in settings(), points in prop_oneof![Just(vec![None]), points()],
    ) {
        let chunks = chunks(&chain(shapes.len()), &training, order);
        let actions = on_host(&points, shapes.len(), training.recompute);
        let acted = acted(&traces(&shapes, true), &chunks, &actions);
        let found: Vec<(u64, u64)> =
            acted.curve.iter().map(|step| (step.at_boundary - 16, step.most.total() - 16)).collect();
        let told = told(&shapes, &chunks, &actions);
        prop_assert_eq!(found, told.curve);
        let away: Vec<(usize, u64)> =
            acted.away.iter().map(|away| (away.tensors as usize, away.bytes)).collect();
        let bytes = |tensors: &Vec<u64>| (tensors.len(), tensors.iter().sum::<u64>());
        prop_assert_eq!(away, told.away.iter().map(bytes).collect::<Vec<_>>());
        prop_assert_eq!(acted.left, 0, "every gradient is delivered, and nothing twice");
    }
}

/// What all edges of a model have.
const EDGE: u64 = 640;
const OVERHEAD: u64 = 7;

/// A model whose head is tied, or not, or which has tables of rotary positions besides.
fn models() -> impl Strategy<Value = Model> {
    let gpt = |untied_head| Gpt2 {
        hidden_size: 16,
        heads: 2,
        vocabulary_size: 50,
        sequence_length: 8,
        untied_head,
        ..Gpt2::default()
    };
    let gpt = (1_i64..4, any::<bool>())
        .prop_map(move |(blocks, untied)| Zoo::Gpt2(Gpt2 { blocks, ..gpt(untied) }).build().unwrap());
    let llama =
        (1_i64..4).prop_map(|blocks| Zoo::Llama(Llama { blocks, ..Llama::default() }).build().unwrap());
    prop_oneof![3 => gpt, 1 => llama]
}

/// Like layers have like shapes; the embedding and a head have a gradient of the shared weight's size.
fn shapes_of(model: &Model, drawn: &[Shape]) -> (Vec<String>, Vec<Shape>) {
    let last = model.layers().len() - 1;
    let contents: Vec<String> =
        (0..=last).map(|layer| LayerContent::of(model, layer).unwrap().fingerprint()).collect();
    let mut known = BTreeMap::new();
    let shared = model.layers()[last].kind.shared_parameter();
    let shape = |(layer, content): (usize, &String)| {
        let next = known.len() % drawn.len();
        let shape = *known.entry(content.clone()).or_insert(drawn[next]);
        let is_end = layer == 0 || layer == last;
        Shape {
            output: if layer == last { 4 } else { EDGE },
            // The input of the first is not as long as its output.
            hands_on: shape.hands_on && !is_end,
            parameters: shared.as_ref().filter(|_| is_end).map_or(shape.parameters, |of| 4 * of.elements()),
            ..shape
        }
    };
    let shapes = contents.iter().enumerate().map(shape).collect();
    (contents, shapes)
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(150))]

    /// A model's recordings, its buffers and what its allocator holds besides. Both ends of a tied weight have gradients of
    /// their own.
    #[test]
    fn a_models_steps_are_what_its_layers_hold(
        model in models(), drawn in shapes(), (training, order) in settings(),
        points in prop_oneof![Just(vec![None]), points()],
    ) {
        let (contents, shapes) = shapes_of(&model, &drawn);
        let measured = |layer: usize| {
            let input = if layer == 0 { 64 } else { EDGE };
            let trace = LayerTrace {
                layer,
                content: contents[layer].clone(),
                overhead: OVERHEAD,
                ..trace(shapes[layer], input, layer == 0)
            };
            measurement(trace, 4, (0, 1), "cpu")
        };
        let measured: Vec<Measurement> = (0..shapes.len()).map(measured).collect();
        let predictor = Component::new(&model, &training, measured.iter().map(|of| ("run", of))).unwrap();
        let chunks = chunks(&model, &training, order);
        let actions = on_host(&points, shapes.len(), training.recompute);
        let moments = predictor.moments(&whole(&model, training), &chunks, &actions).unwrap();
        let last = shapes.len() - 1;
        let buffers: u64 = model.stage_buffers(0, last).iter().map(|buffer| 4 * buffer.elements()).sum();
        let constant = OVERHEAD + buffers;
        let found: Vec<(u64, u64)> = moments
            .curve
            .iter()
            .map(|step| (step.at_boundary - constant, step.most.total() - constant))
            .collect();
        let told = told(&shapes, &chunks, &actions);
        prop_assert_eq!(found, told.curve);
        let there = actions.absences(&chunks.steps);
        let there = there.iter().zip(&told.away).map(|(of, tensors)| (of.at.stored(), tensors.iter().sum::<u64>()));
        let at = |boundary: usize| there.clone().filter(|of| of.0.contains(&boundary)).map(|of| of.1).sum::<u64>();
        let most = (0..chunks.steps.all().len()).map(at).max();
        prop_assert_eq!(moments.pool_bytes().0, most.unwrap_or(0));
        let all: Vec<u64> = moments.curve.iter().map(|step| step.most.total()).collect();
        prop_assert_eq!(moments.upper, all, "scratch is known");
        prop_assert_eq!(moments.margin, Some(margins::PROFILED));
    }
}

fn whole(model: &Model, training: TrainingSpec) -> StageSetting {
    let stage = StageConfig::single(0, model.layers().len() - 1);
    StageSetting { stage, stage_index: 0, stage_count: 1, training }
}

/// Ten bytes between the passes, and a gradient of a hundred.
const PLAIN: Shape = Shape {
    output: 0,
    retained: 10,
    unsaved: 0,
    forward_scratch: 0,
    backward_scratch: 0,
    parameters: 100,
    step_scratch: 0,
    keeps_input: false,
    keeps_output: false,
    hands_on: false,
    steals: false,
};

/// One layer of 100 bytes of gradients: with its micro-batches one after the other they are there until the last is done,
/// and a later one's for a moment besides; where another layer is in between, each is there for its own step alone.
#[test]
fn gradients_wait_for_the_last_micro_batch_of_their_layer() {
    let spec = training(Schedule::Gpipe, 4, 3);
    let most = |layers: usize, order| {
        let chunks = chunks(&chain(layers), &spec, order);
        let traces = traces(&vec![PLAIN; layers], true);
        let acted = played(&traces, &chunks);
        let backward = acted.curve.iter().skip(layers * 3);
        backward.map(|step| (step.at_boundary - 16, step.most.total() - 16)).collect::<Vec<_>>()
    };
    let one = [(30, 130), (120, 220), (110, 210)];
    assert_eq!(most(1, ChunkOrder::Layer), one);
    assert_eq!(most(1, ChunkOrder::MicroBatch), one);
    // The input of 64 of the first layer is freed as it goes forward; its output of 0 is the second's.
    let two = [(60, 160), (150, 250), (140, 240), (30, 130), (120, 220), (110, 210)];
    assert_eq!(most(2, ChunkOrder::Layer), two);
    let alone = [(60, 160), (50, 150), (40, 140), (30, 130), (20, 120), (10, 110)];
    assert_eq!(most(2, ChunkOrder::MicroBatch), alone);
}

/// The gradient of the upper layer's parameters is the block of its input's gradient, which the layer below needs when the
/// other is in its chunk: it is there until that one has used it, and once.
#[test]
fn a_gradient_that_is_also_an_inputs_lives_until_that_is_used() {
    let passage = |blocks: &[u64], slots: [&[i32]; 6]| Passage {
        blocks: blocks.to_vec(),
        slots: slots.map(<[i32]>::to_vec),
        ..Passage::default()
    };
    // Blocks: input, output, gradient of the output, gradient of parameters.
    let lower = Passage {
        inputs: vec![0],
        outputs: vec![1],
        output_gradients: vec![2],
        ..passage(&[64, 8, 8, 1_000], [&[1], &[2, -1], &[-2], &[3], &[-3, 4], &[]])
    };
    // Blocks: input, output, gradient of the output, of input and parameters.
    let upper = Passage {
        inputs: vec![0],
        outputs: vec![1],
        output_gradients: vec![2],
        input_gradients: vec![3],
        ..passage(&[8, 4, 4, 8], [&[1], &[2, -1], &[-2], &[3], &[4, -3], &[]])
    };
    assert_eq!(upper.left().into_iter().collect::<Vec<_>>(), [3]);
    assert!(upper.slot(Slot::InputGradient).is_empty());
    let [lower, upper] = [lower, upper].map(|passage| LayerTrace {
        first: passage.clone(),
        later: passage,
        ..trace(PLAIN, 0, false)
    });
    let spec = training(Schedule::Gpipe, 4, 1);
    let acted = played(&[lower, upper], &chunks(&chain(2), &spec, ChunkOrder::Layer));
    let found: Vec<_> =
        acted.curve.iter().map(|step| (step.at_boundary - 16, step.most.total() - 16)).collect();
    // Forward; forward, whose input its run holds; backward; backward.
    assert_eq!(found, [(0, 72), (8, 12), (8, 20), (8, 1_000)]);
    assert_eq!(acted.left, 0);
}

/// What kernels may take in bf16 at sizes that were not recorded is within what must be kept free in each step.
#[test]
fn the_upper_end_holds_in_every_step() {
    let model = promise::model();
    let moments = |recorded_at: &[(u32, u64)], size: u32, recompute, order| -> Moments {
        let spec =
            TrainingSpec { precision: Precision::Bf16, recompute, ..training(Schedule::Gpipe, size, 3) };
        let predictor = recorded(spec, recorded_at, "cpu");
        let chunks = chunks(&model, &spec, order);
        predictor.moments(&whole(&model, spec), &chunks, &StageActions::default()).unwrap()
    };
    for (recompute, order) in
        [(RecomputePolicy::None, ChunkOrder::Layer), (RecomputePolicy::Layer, ChunkOrder::MicroBatch)]
    {
        for (size, _) in PACKED {
            let real = moments(&PACKED, size, recompute, order);
            let real: Vec<u64> = real.curve.iter().map(|step| step.most.total()).collect();
            for pair in PACKED.windows(2) {
                let said = moments(pair, size, recompute, order);
                let needed = said.needed(Margin::Known);
                assert_eq!(needed.len(), real.len());
                assert!(real.iter().zip(&needed).all(|(real, needed)| real <= needed), "{pair:?} at {size}");
                let is_recorded = pair.iter().any(|&(recorded, _)| recorded == size);
                let lines: Vec<u64> = said.curve.iter().map(|step| step.most.total()).collect();
                assert_eq!(said.upper == lines, is_recorded);
                assert_eq!(said.needed(Margin::Share(0.0)), lines);
            }
        }
    }
}

/// Only all layers of a model are trained in chunks, and a replica's device is one that trains its share alone.
#[test]
fn parts_of_a_model_are_refused_by_name() {
    let (model, spec) = (promise::model(), training(Schedule::Gpipe, 4, 2));
    let predictor = recorded(spec, &PACKED, "cpu");
    let chunks = chunks(&model, &spec, ChunkOrder::Layer);
    let none = StageActions::default();
    let ask = |stage| predictor.moments(&StageSetting { stage, ..whole(&model, spec) }, &chunks, &none);
    let of = StageConfig::single(0, 1);
    assert!(ask(of).is_ok());
    let replicas = StageConfig { data_degree: 2, ..of };
    let doubled = TrainingSpec { micro_batch_size: 8, ..spec };
    let shared = StageSetting { stage: replicas, ..whole(&model, doubled) };
    assert_eq!(predictor.moments(&shared, &chunks, &none), ask(of));
    for stage in [StageConfig::single(0, 0), StageConfig::single(1, 1)] {
        let (first, last) = (stage.first_layer, stage.last_layer);
        let refused = ask(stage).unwrap_err();
        assert_eq!(refused, PredictionError::PartInChunks { first, last, layers: 2 });
        assert!(refused.to_string().contains("whole model"), "{refused}");
    }
    let beyond = ask(StageConfig::single(0, 2)).unwrap_err();
    assert_eq!(beyond, PredictionError::NoSuchStage { first: 0, last: 2, layers: 2 });
}
