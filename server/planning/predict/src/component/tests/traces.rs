//! Layers by what they hold on to, and their allocation traces.

use loadmaster_proto::measure::trace::{Event, LayerTrace, Passage, TraceStep};
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use proptest::prelude::*;

use super::super::stage::{ReplayStage, StageLayer, runs_of};

/// A layer by what it holds on to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Bytes of its output.
    pub(super) output: u64,
    /// Kept between the passes besides the edges.
    pub(super) retained: u64,
    /// The same, but autograd knows nothing of it.
    pub(super) unsaved: u64,
    pub(super) forward_scratch: u64,
    pub(super) backward_scratch: u64,
    pub(super) parameters: u64,
    pub(super) step_scratch: u64,
    pub(super) keeps_input: bool,
    pub(super) keeps_output: bool,
    /// The output is the input, as of a flattening.
    pub(super) hands_on: bool,
    /// Its first gradient is the block of what it was computed from.
    pub(super) steals: bool,
}

/// The allocation trace of such a layer behind an input of so many bytes.
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
    let [input_block, retained, unsaved, scratch] =
        [input, shape.retained, shape.unsaved, shape.forward_scratch].map(|bytes| writer.block(bytes));
    let output = if shape.hands_on { input_block } else { writer.block(shape.output) };
    let [output_gradient, parameter_gradient, backward_scratch] =
        [if shape.hands_on { input } else { shape.output }, shape.parameters, shape.backward_scratch]
            .map(|bytes| writer.block(bytes));
    let input_gradient = if shape.hands_on { output_gradient } else { writer.block(input) };
    let (keeps_input, keeps_output) = (graph && shape.keeps_input, graph && shape.keeps_output);

    let mut forward = vec![scratch];
    forward.extend((!shape.hands_on).then_some(output));
    forward.extend([retained, unsaved, -scratch]);
    forward.extend((!graph).then_some([-retained, -unsaved]).into_iter().flatten());
    forward.extend((!shape.hands_on && !keeps_input).then_some(-input_block));
    let mut handing_over = Vec::new();
    let output_stays = keeps_output || (shape.hands_on && keeps_input);
    handing_over.extend((!output_stays).then_some(-output));

    let mut backward = vec![backward_scratch, parameter_gradient];
    backward.extend((trained_input && !shape.hands_on).then_some(input_gradient));
    backward.extend([-backward_scratch, -retained, -unsaved]);
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
        writer.passage.saved = vec![at(retained)];
        writer.passage.saved.extend((keeps_input && !shape.hands_on).then_some(at(input_block)));
        writer.passage.saved.extend(output_stays.then_some(at(output)));
        writer.passage.output_gradients = vec![at(output_gradient)];
        writer.passage.input_gradients = if trained_input { vec![at(input_gradient)] } else { Vec::new() };
    }
    assert_eq!(writer.passage.check(), Ok(()));
    writer.passage
}

pub(super) fn trace(shape: Shape, input: u64, is_first: bool) -> LayerTrace {
    LayerTrace {
        layer: 0,
        content: String::new(),
        first: passage(shape, input, !is_first, true, true),
        later: passage(shape, input, !is_first, true, false),
        without_graph: passage(shape, input, !is_first, false, false),
        untrained_input: None,
        step: TraceStep { blocks: vec![shape.step_scratch], update: vec![1, -1], ..TraceStep::default() },
        has_saved: true,
        overhead: 0,
    }
}

pub(super) fn traces(shapes: &[Shape], is_first: bool) -> Vec<LayerTrace> {
    let mut input = 64;
    let mut traces = Vec::new();
    for (index, &shape) in shapes.iter().enumerate() {
        traces.push(trace(shape, input, is_first && index == 0));
        input = if shape.hands_on { input } else { shape.output };
    }
    traces
}

/// Layers up to this one have nothing trained before them: how they pass where a run begins with the first.
pub(super) fn untrained_up_to(shapes: &[Shape], traces: &mut [LayerTrace], last: usize) {
    for (index, trace) in traces.iter_mut().enumerate().take(last + 1).skip(1) {
        let of = |first| passage(shapes[index], trace.first.blocks[0], false, true, first);
        trace.untrained_input = Some(Box::new([of(true), of(false)]));
    }
}

pub(super) fn stage(traces: &[LayerTrace], recompute: RecomputePolicy, is_first: bool) -> ReplayStage<'_> {
    let layers = traces.iter().map(|trace| StageLayer {
        trace,
        untrained_input: trace.untrained_input.is_some(),
        first: None,
        later_with_first: None,
        updates: true,
        divided: Vec::new(),
        gather: 0,
    });
    let runs = runs_of(recompute, traces.len());
    ReplayStage { layers: layers.collect(), runs, wants_gradient: !is_first, exchanges: false, parts: 1 }
}

pub(super) fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let bytes = || 0_u64..1_000;
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let shape = ((bytes(), bytes(), bytes(), bytes(), bytes(), bytes(), bytes()), flags).prop_map(
        |(
            (output, retained, unsaved, forward_scratch, backward_scratch, parameters, step_scratch),
            flags,
        )| {
            let (keeps_input, keeps_output, hands_on, steals) = flags;
            Shape {
                output,
                retained,
                unsaved,
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

pub(super) fn policies() -> impl Strategy<Value = RecomputePolicy> {
    prop_oneof![Just(RecomputePolicy::None), Just(RecomputePolicy::Stage), Just(RecomputePolicy::Layer)]
}

pub(super) fn schedules() -> impl Strategy<Value = Schedule> {
    prop_oneof![Just(Schedule::Gpipe), Just(Schedule::OneFOneB)]
}
