//! The fold against a replay of every event, and both against pencil and paper.

use loadmaster_proto::measure::tape::{Event, LayerTape, Passage, Step};
use loadmaster_proto::training::schedule::Pass;
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use proptest::prelude::*;

use super::super::machine::{BlockClass, ClassBytes};
use super::super::schedule::{Place, StageBytes, replay};
use super::super::stage::{ReplayStage, StageLayer};

/// A layer by what it holds on to.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Bytes of its output.
    output: u64,
    /// Kept between the passes besides the edges.
    retained: u64,
    forward_scratch: u64,
    backward_scratch: u64,
    parameters: u64,
    step_scratch: u64,
    keeps_input: bool,
    keeps_output: bool,
    /// The output is the input, as of a flattening.
    hands_on: bool,
    /// Its first gradient is the block of what it was computed from.
    steals: bool,
}

/// The tape of such a layer behind an input of so many bytes.
struct Writer {
    passage: Passage,
}

impl Writer {
    fn block(&mut self, bytes: u64) -> Event {
        self.passage.blocks.push(bytes);
        self.passage.blocks.len() as Event
    }
}

fn at(event: Event) -> u32 {
    event as u32 - 1
}

fn passage(shape: Shape, input: u64, trained_input: bool, graph: bool, first: bool) -> Passage {
    let mut writer = Writer { passage: Passage::default() };
    let [input_block, retained, scratch] =
        [input, shape.retained, shape.forward_scratch].map(|bytes| writer.block(bytes));
    let output = if shape.hands_on { input_block } else { writer.block(shape.output) };
    let [output_gradient, parameter_gradient, backward_scratch] =
        [if shape.hands_on { input } else { shape.output }, shape.parameters, shape.backward_scratch]
            .map(|bytes| writer.block(bytes));
    let input_gradient = if shape.hands_on { output_gradient } else { writer.block(input) };
    let (keeps_input, keeps_output) = (graph && shape.keeps_input, graph && shape.keeps_output);

    let mut forward = vec![scratch];
    forward.extend((!shape.hands_on).then_some(output));
    forward.push(retained);
    forward.push(-scratch);
    forward.extend((!shape.hands_on && !keeps_input).then_some(-input_block));
    let mut handing_over = Vec::new();
    handing_over.extend((!graph).then_some(-retained));
    let output_stays = keeps_output || (shape.hands_on && keeps_input);
    handing_over.extend((!output_stays).then_some(-output));

    let mut backward = vec![backward_scratch, parameter_gradient];
    backward.extend((trained_input && !shape.hands_on).then_some(input_gradient));
    backward.extend([-backward_scratch, -retained]);
    backward.extend((!first).then_some(-parameter_gradient));
    backward.extend(output_stays.then_some(-output));
    backward.extend((keeps_input && !shape.hands_on).then_some(-input_block));
    // A stolen gradient stays when the passage is over, whatever else it was.
    let stolen = first && shape.steals && !shape.hands_on;
    backward.extend((!shape.hands_on && !stolen).then_some(-output_gradient));
    backward.extend((shape.hands_on && !trained_input).then_some(-output_gradient));

    writer.passage.inputs = vec![at(input_block)];
    writer.passage.outputs = vec![at(output)];
    let handed_back = if trained_input { vec![-input_gradient] } else { Vec::new() };
    writer.passage.slots = if graph {
        [vec![input_block], forward, handing_over, vec![output_gradient], backward, handed_back]
    } else {
        [vec![input_block], forward, handing_over, Vec::new(), Vec::new(), Vec::new()]
    };
    if graph {
        writer.passage.output_gradients = vec![at(output_gradient)];
        writer.passage.input_gradients = if trained_input { vec![at(input_gradient)] } else { Vec::new() };
    }
    assert_eq!(writer.passage.check(), Ok(()));
    writer.passage
}

fn tape(shape: Shape, input: u64, is_first: bool) -> LayerTape {
    LayerTape {
        layer: 0,
        content: String::new(),
        first: passage(shape, input, !is_first, true, true),
        later: passage(shape, input, !is_first, true, false),
        without_graph: passage(shape, input, !is_first, false, false),
        untrained_input: None,
        step: Step { blocks: vec![shape.step_scratch], update: vec![1, -1], ..Step::default() },
        has_saved: false,
        overhead: 0,
    }
}

fn tapes(shapes: &[Shape], is_first: bool) -> Vec<LayerTape> {
    let mut input = 64;
    let mut tapes = Vec::new();
    for (index, &shape) in shapes.iter().enumerate() {
        tapes.push(tape(shape, input, is_first && index == 0));
        input = if shape.hands_on { input } else { shape.output };
    }
    tapes
}

fn stage(tapes: &[LayerTape], recompute: RecomputePolicy, is_first: bool) -> ReplayStage<'_> {
    let layers =
        tapes.iter().map(|tape| StageLayer { tape, untrained_input: false, first: None, updates: true });
    ReplayStage { layers: layers.collect(), recompute, wants_gradient: !is_first, exchanges: false }
}

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let bytes = || 0_u64..1_000;
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let shape = ((bytes(), bytes(), bytes(), bytes(), bytes(), bytes()), flags).prop_map(
        |((output, retained, forward_scratch, backward_scratch, parameters, step_scratch), flags)| {
            let (keeps_input, keeps_output, hands_on, steals) = flags;
            Shape {
                output,
                retained,
                forward_scratch,
                backward_scratch,
                parameters,
                step_scratch,
                keeps_input,
                keeps_output,
                hands_on,
                steals,
            }
        },
    );
    prop::collection::vec(shape, 1..7)
}

fn policies() -> impl Strategy<Value = RecomputePolicy> {
    prop_oneof![Just(RecomputePolicy::None), Just(RecomputePolicy::Stage), Just(RecomputePolicy::Layer)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Playing each kind of pass once tells the same peak as playing all of them, and no byte is lost.
    #[test]
    fn the_fold_is_the_replay(
        shapes in shapes(),
        recompute in policies(),
        is_first: bool,
        schedule in prop_oneof![Just(Schedule::Gpipe), Just(Schedule::OneFOneB)],
        (stages, stage_index) in (1_u32..6).prop_flat_map(|stages| (Just(stages), 0..stages)),
        micro_batches in 1_u32..8,
    ) {
        let tapes = tapes(&shapes, is_first);
        let stage = stage(&tapes, recompute, is_first);
        let place = Place { schedule, stages, stage: stage_index, micro_batches };
        let folded = StageBytes::of(&stage).peak(place, ClassBytes::default());
        prop_assert_eq!(folded.total(), replay(&stage, place).total());
    }

    /// A search reads the same peak from a line over the micro-batches in flight.
    #[test]
    fn the_curve_is_the_fold(
        shapes in shapes(),
        recompute in policies(),
        is_first: bool,
        schedule in prop_oneof![Just(Schedule::Gpipe), Just(Schedule::OneFOneB)],
        (stages, stage_index) in (1_u32..6).prop_flat_map(|stages| (Just(stages), 0..stages)),
        micro_batches in 1_u32..8,
        (buffer, constant) in (0_u64..3_000, 0_u64..1_000),
    ) {
        let tapes = tapes(&shapes, is_first);
        let bytes = StageBytes::of(&stage(&tapes, recompute, is_first));
        let place = Place { schedule, stages, stage: stage_index, micro_batches };
        let mut synchronisation = ClassBytes::default();
        synchronisation.add(BlockClass::Communication, buffer);
        let in_flight = schedule.in_flight(stages, stage_index, micro_batches);
        let read = bytes.curve(micro_batches, buffer, constant).bytes(in_flight);
        prop_assert_eq!(read, bytes.peak(place, synchronisation).total() + constant);
    }

    /// Whoever keeps an edge tensor, it counts once: a stage never needs more for its edges than all of
    /// them kept by both sides.
    #[test]
    fn more_micro_batches_in_flight_never_need_less(shapes in shapes(), recompute in policies(), micro_batches in 1_u32..8) {
        let tapes = tapes(&shapes, false);
        let bytes = StageBytes::of(&stage(&tapes, recompute, false));
        let peak = |micro_batches| {
            let place = Place { schedule: Schedule::Gpipe, stages: 3, stage: 1, micro_batches };
            bytes.peak(place, ClassBytes::default()).total()
        };
        prop_assert!(peak(micro_batches) <= peak(micro_batches + 1));
    }
}

/// A linear layer in the middle of a pipeline, with pencil and paper: the inputs that wait, the gradients
/// of output and input, and the parameters' gradients twice while new ones are added.
#[test]
fn a_linear_layer_is_what_theory_says() {
    let (edge, weights) = (1_000, 1_500);
    let linear = Shape {
        output: edge,
        retained: 0,
        forward_scratch: 0,
        backward_scratch: 0,
        parameters: weights,
        step_scratch: 0,
        keeps_input: true,
        keeps_output: false,
        hands_on: false,
        steals: false,
    };
    let tapes = vec![tape(linear, edge, false)];
    let stage = stage(&tapes, RecomputePolicy::None, false);
    let peak = |schedule, micro_batches| {
        let place = Place { schedule, stages: 3, stage: 1, micro_batches };
        StageBytes::of(&stage).peak(place, ClassBytes::default())
    };
    // The first backward pass leaves one input less when gradients exist.
    let gpipe = peak(Schedule::Gpipe, 5);
    assert_eq!(gpipe.total(), 4 * edge + 2 * edge + 2 * weights);
    assert_eq!(gpipe.of(BlockClass::Gradient), weights);
    assert_eq!(gpipe.of(BlockClass::Edge), 6 * edge);
    let one_f_one_b = peak(Schedule::OneFOneB, 5);
    assert_eq!(one_f_one_b.total(), 2 * edge + 2 * edge + 2 * weights);
    assert_eq!(
        Schedule::OneFOneB.passes(3, 1, 5).iter().filter(|p| matches!(p, Pass::Forward(_))).count(),
        5
    );
}
