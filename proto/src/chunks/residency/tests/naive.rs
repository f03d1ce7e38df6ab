//! What a training in chunks needs of which payload, told a second time: by walking through the steps with the tensors that
//! each layer has, and random trainings to tell it of.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{stage, training};
use crate::chunks::embedding::EmbeddingPlace;
use crate::chunks::host::HostParameters;
use crate::chunks::packing::ChunkLayout;
use crate::chunks::residency::Payload;
use crate::chunks::sequence::Sequence;
use crate::chunks::stage::{ChunkedStage, Chunks};
use crate::model::layer::{Layer, LayerKind};
use crate::model::zoo::{Gpt2, Zoo};
use crate::model::{Model, ModelInput};
use crate::training::actions::Step;
use crate::training::chunk_order::ChunkOrder;
use crate::training::{Precision, RecomputePolicy, Schedule};

/// A training in chunks, and all that was laid out for it.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) model: Model,
    pub(super) stage: ChunkedStage,
    pub(super) chunks: Chunks,
    pub(super) precision: Precision,
    /// Ranks that share the chunks.
    pub(super) ranks: u32,
}

/// What a payload is needed for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) steps: BTreeSet<usize>,
    /// Steps that end with a gradient in it.
    pub(super) gradients: BTreeSet<usize>,
}

/// What is needed, at the payloads' positions: parameters of each chunk, then gradients of those in which they are apart.
pub(super) type Needs = Vec<(Payload, Need)>;

/// Maps of these widths, with a layer without parameters behind some of them.
fn chain(widths: &[(i64, bool)]) -> Model {
    let mut layers = Vec::new();
    for (pair, &(_, is_followed)) in widths.windows(2).zip(widths) {
        let kind = LayerKind::Linear { in_features: pair[0].0, out_features: pair[1].0 };
        layers.push(Layer { name: "linear".to_owned(), kind });
        layers.extend(is_followed.then(|| Layer { name: "relu".to_owned(), kind: LayerKind::Relu }));
    }
    Model::new("chain".to_owned(), ModelInput::Vector { size: widths[0].0 }, layers).unwrap()
}

pub(super) fn gpt(blocks: i64, untied_head: bool) -> Model {
    let gpt = Gpt2 {
        blocks,
        hidden_size: 16,
        heads: 2,
        vocabulary_size: 50,
        sequence_length: 8,
        untied_head,
        ..Gpt2::default()
    };
    Zoo::Gpt2(gpt).build().unwrap()
}

pub(super) fn models() -> impl Strategy<Value = Model> {
    let widths = proptest::collection::vec((1_i64..24, proptest::bool::weighted(0.3)), 2..7);
    prop_oneof![
        3 => widths.prop_map(|widths| chain(&widths)),
        2 => (1_i64..3, any::<bool>()).prop_map(|(blocks, untied)| gpt(blocks, untied)),
    ]
}

/// Any of them, of one rank or shared by several, some chunks with their state on the device, in chunks of a share of all
/// parameters; of what the largest parameter group needs where it has no chunk of its own.
pub(super) fn cases() -> impl Strategy<Value = Case> {
    let orders = prop_oneof![Just(ChunkOrder::Layer), Just(ChunkOrder::MicroBatch)];
    let copies = prop_oneof![Just(HostParameters::Cast), Just(HostParameters::Stored)];
    let recompute = prop_oneof![Just(RecomputePolicy::None), Just(RecomputePolicy::Layer)];
    let schedules = prop_oneof![Just(Schedule::Gpipe), Just(Schedule::OneFOneB)];
    let precisions = prop_oneof![Just(Precision::Fp32), Just(Precision::Bf16)];
    let trained = (orders, copies, recompute, schedules, precisions, 1_u32..5);
    let layouts = prop_oneof![
        3 => Just(ChunkLayout::Aligned),
        2 => Just(ChunkLayout::Patrickstar),
    ];
    let on_device = proptest::option::weighted(0.3, proptest::collection::vec(any::<bool>(), 1..8));
    let ranks = prop_oneof![Just(1_u32), 2_u32..5];
    let held = (0_usize..4, on_device, ranks, any::<bool>());
    (models(), (0_u64..=60, layouts), held, trained).prop_map(
        |(model, (share, layout), (staging, on_device, ranks, is_on_host), trained)| {
            let (order, copy, recompute, schedule, precision, micro_batches) = trained;
            let atoms = Sequence::of_model(&model);
            let largest = atoms.atoms().map(|atom| atom.iter().sum()).max().unwrap();
            let least = if layout == ChunkLayout::Aligned { 1 } else { largest };
            let chunk_elements = (model.parameter_count() * share / 100).max(least);
            let mut stage =
                ChunkedStage { layout, staging: staging + 1, ..stage(chunk_elements, order, copy) };
            if is_on_host && matches!(model.input(), ModelInput::Tokens { .. }) {
                stage.embedding = EmbeddingPlace::Host;
            }
            let lay_out = |stage: &ChunkedStage| {
                // One sample for each.
                let training = training((schedule, micro_batches), recompute, precision);
                let training = training.with_micro_batch_size(ranks);
                stage.lay_out_shared(&model, &training, ranks).unwrap()
            };
            let count = lay_out(&stage).layout.chunks().len();
            let is_chosen = on_device.into_iter().flat_map(|chosen| chosen.into_iter().cycle().take(count));
            stage.on_device = is_chosen.enumerate().filter(|of| of.1).map(|of| of.0).collect();
            stage.on_device.retain(|&chunk| chunk > 0 || stage.embedding == EmbeddingPlace::Chunk);
            let chunks = lay_out(&stage);
            Case { model, stage, chunks, precision, ranks }
        },
    )
}

impl Case {
    pub(super) fn is_on_host(&self) -> bool {
        self.stage.embedding == EmbeddingPlace::Host
    }

    /// Tensors that each layer computes with: by their positions, and whether its backward pass reads them.
    pub(super) fn tensors(&self) -> Vec<Vec<(usize, bool)>> {
        let mut next = 0;
        let of = |layer: &Layer| {
            let mut tensors = Vec::new();
            for parameter in layer.kind.parameters() {
                // Rows are taken from these, or they are added: their gradients depend on no value of theirs.
                let is_table = ["token", "position", "token_type"].contains(&parameter.name);
                // Rows of a table on the host are gathered there.
                if !(self.is_on_host() && next == 0) {
                    tensors.push((next, !is_table));
                }
                next += 1;
            }
            if matches!(layer.kind, LayerKind::LanguageModelHead { tied: true, .. }) {
                tensors.push((0, true));
            }
            tensors
        };
        self.model.layers().iter().map(of).collect()
    }

    /// Steps with the tensors that each reads, and those whose gradients are in chunks at its end: where no other micro-batch
    /// of the layer goes backward before another layer does.
    fn walk(&self) -> Vec<(Vec<usize>, Vec<usize>)> {
        let (tensors, steps) = (self.tensors(), self.chunks.steps.all());
        let layer_back = |step: &Step| {
            if let Step::Backward { layer, .. } = step { Some(*layer) } else { None }
        };
        let of = |(at, step): (usize, &Step)| match *step {
            Step::Forward { layer, .. } | Step::Again { layer, .. } => {
                (tensors[layer].iter().map(|of| of.0).collect(), Vec::new())
            }
            Step::Backward { layer, .. } => {
                let next = steps[at + 1..].iter().find_map(layer_back);
                let all: Vec<usize> = tensors[layer].iter().map(|of| of.0).collect();
                let read = tensors[layer].iter().filter(|of| of.1).map(|of| of.0).collect();
                (read, if next == Some(layer) { Vec::new() } else { all })
            }
            _ => unreachable!("chunks are updated beside steps"),
        };
        steps.iter().enumerate().map(of).collect()
    }

    pub(super) fn is_on_device(&self, chunk: usize) -> bool {
        self.stage.on_device.contains(&chunk)
    }

    /// What must come: what is always on the device need not, of which no one else has a part.
    pub(super) fn needs(&self) -> Needs {
        let of = |(payload, need): (Payload, Need)| {
            let stays = self.is_on_device(payload.chunk) && self.ranks == 1;
            (payload, if stays { Need::default() } else { need })
        };
        self.all_needs().into_iter().map(of).collect()
    }

    /// A chunk's gradients are apart if they would overwrite a value that a later step reads.
    fn all_needs(&self) -> Needs {
        let walked = self.walk();
        let tensors = self.chunks.layout.tensors();
        let mut overwritten = BTreeSet::<usize>::new();
        let mut apart = BTreeSet::new();
        for (reads, puts) in &walked {
            apart.extend(
                reads.iter().filter(|tensor| overwritten.contains(*tensor)).map(|&of| tensors[of].chunk),
            );
            overwritten.extend(puts);
        }
        let count = self.chunks.layout.chunks().len();
        let parameters = (0..count).map(|chunk| Payload { chunk, is_gradients: false });
        let gradients = apart.iter().map(|&chunk| Payload { chunk, is_gradients: true });
        let mut needs: Needs =
            parameters.chain(gradients).map(|payload| (payload, Need::default())).collect();
        for (step, (reads, puts)) in walked.iter().enumerate() {
            for &tensor in reads {
                needs[tensors[tensor].chunk].1.steps.insert(step);
            }
            for &tensor in puts {
                let chunk = tensors[tensor].chunk;
                let payload = Payload { chunk, is_gradients: apart.contains(&chunk) };
                let need = needs.iter_mut().find(|of| of.0 == payload).unwrap();
                need.1.steps.insert(step);
                need.1.gradients.insert(step);
            }
        }
        needs
    }

    pub(super) fn bytes(&self, payload: Payload) -> u64 {
        let capacity = self.chunks.layout.chunks()[payload.chunk].capacity;
        capacity.max(self.part(payload.chunk) * u64::from(self.ranks)) * self.scalar()
    }

    /// Whether a chunk's state is on the device, but of its parameters a part alone: the others have theirs.
    pub(super) fn has_parts(&self, chunk: usize) -> bool {
        self.is_on_device(chunk) && self.ranks > 1
    }

    /// Elements of a chunk that a rank owns: whole lines of 64 bytes.
    pub(super) fn part(&self, chunk: usize) -> u64 {
        let (of, line) = (&self.chunks.layout.chunks()[chunk], 64 / self.scalar());
        let (ranks, extent) = (u64::from(self.ranks), of.extent);
        if ranks == 1 { of.capacity } else { extent.div_ceil(ranks).div_ceil(line) * line }
    }

    /// Bytes of what layers compute with.
    pub(super) fn scalar(&self) -> u64 {
        if self.precision == Precision::Bf16 { 2 } else { 4 }
    }

    pub(super) fn steps(&self) -> usize {
        self.chunks.steps.all().len()
    }

    /// Bytes that each step needs at once. Gradients that have no place on the host are there until they are complete.
    pub(super) fn needed(&self) -> Vec<u64> {
        let needs = self.needs();
        let of = |step: usize| {
            let stays = |(payload, need): &&(Payload, Need)| {
                let first = need.gradients.first().is_some_and(|&first| first <= step);
                self.is_on_device(payload.chunk) && first && need.last_gradient() >= Some(step)
            };
            let here = needs.iter().filter(|of| of.1.steps.contains(&step) || stays(of));
            here.map(|&(payload, _)| self.bytes(payload)).sum()
        };
        (0..self.steps()).map(of).collect()
    }
}

impl Need {
    /// Whether it may have to leave before all its gradients are there.
    pub(super) fn is_interrupted(&self) -> bool {
        let (Some(&first), Some(&last)) = (self.gradients.first(), self.gradients.last()) else {
            return false;
        };
        (first..=last).any(|step| !self.steps.contains(&step))
    }

    pub(super) fn last_gradient(&self) -> Option<usize> {
        self.gradients.last().copied()
    }
}

proptest! {
    /// Steps, deliveries, and which gradients are apart.
    #[test]
    fn uses_are_what_a_walk_through_the_steps_finds(case in cases()) {
        let uses = &case.chunks.uses;
        let needs = case.needs();
        prop_assert_eq!(uses.payloads().len(), needs.len());
        for (of, (payload, need)) in uses.payloads().iter().zip(&needs) {
            prop_assert_eq!(of.payload, *payload);
            prop_assert_eq!(&of.steps, &need.steps.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(&of.gradients, &need.gradients.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(of.changed, need.gradients.first().copied().zip(need.last_gradient()));
            prop_assert_eq!(of.is_interrupted(), need.is_interrupted());
        }
        for (step, at_once) in uses.by_step().iter().enumerate() {
            let here: Vec<usize> = (0..needs.len()).filter(|&of| needs[of].1.steps.contains(&step)).collect();
            prop_assert_eq!(at_once, &here);
        }
        let all = case.all_needs();
        for step in 0..case.steps() {
            let is_complete = |(payload, need): &&(Payload, Need)| {
                need.last_gradient() == Some(step) && case.is_on_device(payload.chunk)
            };
            let complete: BTreeSet<usize> = all.iter().filter(is_complete).map(|of| of.0.chunk).collect();
            prop_assert_eq!(uses.completed_on_device(step).collect::<BTreeSet<_>>(), complete);
        }
        for chunk in 0..case.chunks.layout.chunks().len() {
            prop_assert_eq!(uses.is_on_device(chunk), case.is_on_device(chunk));
            prop_assert_eq!(uses.stays_whole(chunk), case.is_on_device(chunk) && case.ranks == 1);
            let gradients = needs.iter().rposition(|(payload, _)| payload.chunk == chunk).unwrap();
            prop_assert_eq!(uses.gradients_of(chunk), gradients);
            prop_assert_eq!(uses.are_apart(chunk), needs[gradients].0.is_gradients);
        }
    }
}
