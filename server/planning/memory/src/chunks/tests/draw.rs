//! Random questions, and every choice of theirs, weighed through the contract alone.

use loadmaster_predict::{Away, PredictionError};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::{ActivationPlace, ActivationPoints, on_host};
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::chunks::layout::{Chunk, List};
use loadmaster_proto::chunks::residency::intervals::ResidencyInterval;
use loadmaster_proto::chunks::residency::paging_intervals::Paging;
use loadmaster_proto::chunks::residency::uses::PayloadUses;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage, Chunks, UpdateTime};
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::model::zoo::{Bert, Gpt2, Llama, Zoo};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::plan::chunked::ChunkPolicy;
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::training::actions::{Absence, Steps};
use loadmaster_proto::training::boundaries::BoundaryInterval;
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use proptest::prelude::*;

use crate::chunks::{
    ChunkChoices, ChunkQuestion, LaneScene, Lanes, PassChoice, Passes, StepCosts, TriedSizes,
};

/// Of one rank.
pub(super) const RATES: LaneRates = LaneRates {
    up: 1e3,
    down: 1e3,
    copy_seconds: 0.0,
    update: 1e3,
    device_update: 1e4,
    gather: 1e3,
    collective_seconds: 0.0,
    host_memory: None,
};

/// Costs that repeat, begun elsewhere by each order, recomputation and place of the embedding. What is on the host is not needed.
#[derive(Debug, Clone)]
pub(super) struct Costs {
    pub(super) training: TrainingSpec,
    pub(super) layers: usize,
    pub(super) needed: Vec<u64>,
    pub(super) seconds: Vec<f64>,
    /// Bytes of what layers keep.
    pub(super) kept: Vec<u64>,
}

impl Costs {
    /// What a training in these steps has on the host.
    fn away(&self, steps: &Steps, recompute: RecomputePolicy, points: ActivationPoints) -> Vec<Away> {
        let absences = on_host(self.layers, recompute, points).absences(steps);
        let bytes = self.kept.iter().copied().cycle();
        let of = |(absence, bytes)| Away { absence, bytes, tensors: 1, stripes: Vec::new() };
        absences.into_iter().zip(bytes).map(of).collect()
    }
}

impl Passes for Costs {
    fn costs(&self, of: PassChoice) -> Result<StepCosts, PredictionError> {
        let PassChoice { order, recompute, embedding, activations } = of;
        let steps = Steps::of_chunks(&TrainingSpec { recompute, ..self.training }, self.layers, order);
        let from =
            usize::from(order == ChunkOrder::Layer) + 2 * usize::from(recompute == RecomputePolicy::None);
        let from = from + 3 * usize::from(embedding == EmbeddingPlace::Host);
        let count = steps.all().len();
        let mut needed: Vec<u64> = self.needed.iter().cycle().skip(from).copied().take(count).collect();
        let seconds = self.seconds.iter().cycle().skip(from).copied().take(count).collect();
        let away = activations.map_or_else(Vec::new, |points| self.away(&steps, recompute, points));
        let mut pool = 0;
        for (step, needed) in needed.iter_mut().enumerate() {
            let sum = |is: &dyn Fn(&Absence) -> bool| -> u64 {
                away.iter().filter(|away| is(&away.absence)).map(|away| away.bytes).sum()
            };
            *needed = needed.saturating_sub(sum(&|of| of.at.freed <= step && step < of.at.fetched));
            pool = pool.max(sum(&|of| of.at.leaves <= step && step <= of.at.needed));
        }
        Ok(StepCosts { needed, seconds, away, pool: Bytes(pool) })
    }
}

#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) question: ChunkQuestion,
    pub(super) costs: Costs,
}

impl Case {
    /// What steps cost with activations wherever they may be.
    fn costs_of(&self, of: (ChunkOrder, RecomputePolicy, EmbeddingPlace)) -> Vec<StepCosts> {
        let (order, recompute, embedding) = of;
        let ChunkChoices { activations, points, .. } = &self.question.choices;
        let points = points.iter().copied().map(Some);
        let device = activations.contains(&ActivationPlace::Device).then_some(None);
        let host = points.filter(|_| activations.contains(&ActivationPlace::Host));
        let of = |activations| PassChoice { order, recompute, embedding, activations };
        device.into_iter().chain(host).map(|activations| self.costs.costs(of(activations)).unwrap()).collect()
    }
}

/// Maps of these widths, with a layer without parameters behind some of them.
pub(super) fn chain(widths: &[(i64, bool)]) -> Model {
    let mut layers = Vec::new();
    for (pair, &(_, is_followed)) in widths.windows(2).zip(widths) {
        let kind = LayerKind::Linear { in_features: pair[0].0, out_features: pair[1].0 };
        layers.push(Layer { name: "linear".to_owned(), kind });
        layers.extend(is_followed.then(|| Layer { name: "relu".to_owned(), kind: LayerKind::Relu }));
    }
    Model::new("chain".to_owned(), ModelInput::Vector { size: widths[0].0 }, layers).unwrap()
}

pub(super) fn gpt(blocks: i64, hidden_size: i64, untied_head: bool) -> Model {
    let gpt = Gpt2 {
        blocks,
        hidden_size,
        heads: 2,
        vocabulary_size: 40,
        sequence_length: 8,
        untied_head,
        ..Gpt2::default()
    };
    Zoo::Gpt2(gpt).build().unwrap()
}

fn bert(blocks: i64, hidden_size: i64) -> Model {
    let bert = Bert {
        blocks,
        hidden_size,
        heads: 2,
        sequence_length: 8,
        positions: 8,
        vocabulary_size: 30,
        classes: 3,
        ..Bert::default()
    };
    Zoo::Bert(bert).build().unwrap()
}

pub(super) fn llama(blocks: i64, hidden_size: i64, tied_head: bool) -> Model {
    let llama = Llama {
        blocks,
        hidden_size,
        heads: 2,
        key_value_heads: 1,
        feed_forward_size: 2 * hidden_size,
        sequence_length: 8,
        vocabulary_size: 30,
        tied_head,
        ..Llama::default()
    };
    Zoo::Llama(llama).build().unwrap()
}

fn models() -> impl Strategy<Value = Model> {
    let widths = proptest::collection::vec((1_i64..24, proptest::bool::weighted(0.3)), 2..7);
    prop_oneof![
        3 => widths.prop_map(|widths| chain(&widths)),
        1 => (1_i64..3, 1_i64..6).prop_map(|(blocks, half)| bert(blocks, 2 * half)),
        1 => (1_i64..3, 1_i64..4, any::<bool>()).prop_map(|(blocks, quarter, tied)| llama(blocks, 4 * quarter, tied)),
        2 => (1_i64..4, 1_i64..6, any::<bool>()).prop_map(|(blocks, half, untied)| gpt(blocks, 2 * half, untied)),
    ]
}

fn some<T: Clone + std::fmt::Debug + 'static>(all: &[T]) -> impl Strategy<Value = Vec<T>> + use<T> {
    proptest::sample::subsequence(all.to_vec(), 1..=all.len())
}

pub(super) fn training(precision: Precision, micro_batches: u32) -> TrainingSpec {
    let optimizer =
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };
    TrainingSpec {
        micro_batch_size: 1,
        micro_batches,
        schedule: Schedule::Gpipe,
        recompute: RecomputePolicy::None,
        optimizer,
        precision,
        seed: 0,
    }
}

prop_compose! {
    fn rates()(
        up in 1_u32..60, down in 1_u32..60, update in 1_u32..60, device_update in 1_u32..60,
        gather in 1_u32..60, collective_seconds in prop_oneof![Just(0.0), 0.0..0.5_f64],
        copy_seconds in prop_oneof![Just(0.0), 0.0..0.5_f64], speed in prop_oneof![Just(10.0), Just(100.0), Just(1000.0)],
        host_memory in proptest::option::of(1_u32..200),
    ) -> LaneRates {
        let rates = [up, down, update, device_update, gather];
        let [up, down, update, device_update, gather] = rates.map(|of| f64::from(of) * speed);
        LaneRates {
            up, down, copy_seconds, update, gather, collective_seconds,
            device_update: 10.0 * device_update,
            host_memory: host_memory.map(|of| f64::from(of) * speed),
        }
    }
}

fn points() -> impl Strategy<Value = ActivationPoints> {
    (0_u32..4, 0_u32..4)
        .prop_map(|(release_after, fetch_before)| ActivationPoints { release_after, fetch_before })
}

prop_compose! {
    fn choices(parameters: u64, has_table: bool)(
        orders in some(&[ChunkOrder::Layer, ChunkOrder::MicroBatch]),
        recomputes in some(&[RecomputePolicy::None, RecomputePolicy::Layer]),
        host_copies in some(&[HostParameters::Stored, HostParameters::Cast]),
        // Where no table can be on the host none need be.
        embeddings in some(&[EmbeddingPlace::Chunk, EmbeddingPlace::Host]).prop_map(move |mut of| {
            if !has_table { of.insert(0, EmbeddingPlace::Chunk) }
            of.dedup();
            of
        }),
        shares in proptest::collection::vec(1_u64..=110, 1..4),
        (ahead, behind) in (0_usize..=3, 0_usize..=2),
        on_device in prop_oneof![3 => Just(None), 1 => (0_usize..4).prop_map(Some)],
        staging in 1_usize..4,
        activations in prop_oneof![
            2 => Just(vec![ActivationPlace::Device]), 1 => some(&[ActivationPlace::Device, ActivationPlace::Host]),
        ],
        points in proptest::collection::vec(points(), 1..3),
        (policy, update) in (
            prop_oneof![3 => Just(ChunkPolicy::Loadmaster), 1 => Just(ChunkPolicy::Static)],
            prop_oneof![4 => Just(UpdateTime::OnArrival), 1 => Just(UpdateTime::AfterBackward)],
        ),
    ) -> ChunkChoices {
        // What is updated behind the backward pass has a copy on the host.
        let host_copies = if update == UpdateTime::AfterBackward { vec![HostParameters::Stored] } else { host_copies };
        let sizes = shares.iter().map(|share| (parameters * share / 100).max(1)).collect();
        ChunkChoices {
            policy, orders, recomputes, host_copies, embeddings, activations, points, on_device, staging, update,
            sizes: TriedSizes::Named(sizes),
            ahead: 0..=ahead, behind: 0..=behind,
            tolerance: 0.0,
            most_simulated: usize::MAX,
        }
    }
}

/// From too little memory to plenty of it, on both sides, alone and among ranks.
pub(super) fn cases() -> impl Strategy<Value = Case> {
    let precision = prop_oneof![Just(Precision::Fp32), Just(Precision::Bf16)];
    let costs = (
        proptest::collection::vec(0_u64..4_000, 1..20),
        proptest::collection::vec(prop_oneof![1 => Just(0.0), 5 => 0.1..20.0_f64], 1..20),
        proptest::collection::vec(prop_oneof![1 => Just(0), 3 => 1_u64..1_500], 1..20),
    );
    let ranks = prop_oneof![2 => Just((1, 1)), 1 => Just((2, 1)), 1 => Just((3, 1)), 1 => Just((1, 2)), 1 => Just((2, 2))];
    (models(), precision, (1_u32..4, ranks), costs, rates(), 0_u64..=130, 0_u64..=140).prop_flat_map(
        |(
            model,
            precision,
            (micro_batches, (ranks, shards)),
            (needed, seconds, kept),
            rates,
            device,
            host,
        )| {
            // One sample for each.
            let training = training(precision, micro_batches).with_micro_batch_size(ranks);
            let all = 18 * model.parameter_count() + 500;
            let most = needed.iter().copied().max().unwrap();
            let costs = Costs { training, layers: model.layers().len(), needed, seconds, kept };
            let has_table = shards == 1 && matches!(model.input(), ModelInput::Tokens { .. });
            choices(model.parameter_count(), has_table).prop_map(move |choices| {
                let question = ChunkQuestion {
                    model: model.clone(),
                    training,
                    ranks,
                    shards,
                    capacity: Bytes(most + all * device / 100),
                    host_memory: Bytes(all * host / 100),
                    rates,
                    choices,
                };
                Case { question, costs: costs.clone() }
            })
        },
    )
}

/// What several ranks have of a chunk, by the definition alone: equal parts of what is in it, in whole lines of its lists.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedChunk {
    pub(super) ranks: u32,
    /// Bytes of the parameters that each owns.
    pub(super) part: u64,
    /// Bytes of the parameters on a device.
    pub(super) whole: u64,
    /// Parameters that the first of them updates, which has most.
    pub(super) updated: u64,
}

impl SharedChunk {
    pub(super) fn of(chunks: &Chunks, chunk: usize, ranks: u32) -> Self {
        let Chunk { extent, capacity, .. } = chunks.layout.chunks()[chunk];
        let scalar = chunks.lists.scalar_bytes(List::Parameters);
        if ranks == 1 {
            return Self { ranks, part: extent * scalar, whole: capacity * scalar, updated: extent };
        }
        let line = chunks.lists.alignment_elements();
        let mut part = line;
        while part * u64::from(ranks) < extent {
            part += line;
        }
        let whole = capacity.max(part * u64::from(ranks)) * scalar;
        Self { ranks, part: part * scalar, whole, updated: part.min(extent) }
    }

    /// Bytes of a copy.
    pub(super) fn copied(&self, is_unfinished: bool) -> u64 {
        if is_unfinished && self.ranks > 1 { self.whole } else { self.part }
    }
}

/// A stage of a question, but for what is on the device when.
fn stage(
    question: &ChunkQuestion,
    of: (u64, ChunkOrder, HostParameters),
    embedding: EmbeddingPlace,
) -> ChunkedStage {
    let (chunk_elements, order, host_copy) = of;
    let ChunkChoices { staging, update, .. } = question.choices;
    let every = ChunkedStage::on_demand(chunk_elements, Bytes(u64::MAX));
    ChunkedStage { order, host_copy, staging, update, embedding, ..every }
}

/// Chunks whose gradients are complete last first, and of those the ones that are needed first; a table on the host is none.
fn ranked(chunks: &Chunks, stage: &ChunkedStage) -> Vec<usize> {
    let mut all: Vec<(usize, usize, usize)> = Vec::new();
    let first = usize::from(stage.embedding == EmbeddingPlace::Host);
    for chunk in first..chunks.layout.chunks().len() {
        let payloads = chunks.uses.payloads().iter().filter(|of| of.payload.chunk == chunk);
        let last = payloads.clone().flat_map(|of| &of.gradients).max().unwrap();
        let first = payloads.flat_map(|of| &of.steps).min().unwrap();
        all.push((usize::MAX - last, *first, chunk));
    }
    all.sort_unstable();
    all.into_iter().map(|of| of.2).collect()
}

/// Residency intervals of parameters that are on the device from the first step to the last; gradients that are
/// apart are there from the first of them, and have a step to leave in.
pub(super) fn all_there(chunks: &Chunks) -> Vec<ResidencyInterval> {
    let steps = chunks.uses.steps();
    let used = chunks.uses.payloads().iter().filter(|of| !of.steps.is_empty());
    let of = |of: &PayloadUses| {
        let [first, last] = [of.steps[0], of.steps[of.steps.len() - 1]];
        let apart = of.payload.is_gradients;
        let at = BoundaryInterval {
            fetched: if apart { first } else { 0 },
            needed: first,
            leaves: last + 1,
            freed: if apart { steps.min(last + 2) } else { steps },
        };
        ResidencyInterval { at, payload: of.payload }
    };
    used.map(of).collect()
}

/// Whether a stage has room in every step, and its host memory suffices.
fn has_room(question: &ChunkQuestion, stage: &ChunkedStage, chunks: &Chunks, costs: &StepCosts) -> bool {
    let room: Option<Vec<u64>> =
        costs.needed.iter().map(|needed| question.capacity.0.checked_sub(*needed)).collect();
    let is_static = question.choices.policy == ChunkPolicy::Static;
    let fits = room.is_some_and(|room| {
        if is_static {
            let held = |step: usize| -> u64 {
                let there =
                    all_there(chunks).into_iter().filter(|of| (of.at.fetched..of.at.freed).contains(&step));
                there.map(|of| chunks.payload_bytes(of.payload.chunk)).sum::<u64>() + chunks.on_device_bytes()
            };
            room.iter().enumerate().all(|(step, &room)| held(step) <= room)
        } else {
            stage.paged(Paging::AT_NEED, chunks, &room).is_ok()
        }
    });
    fits && chunks.host.bytes + costs.pool.0 <= question.host_memory.0
}

/// Residency intervals every stage of a question that has room for a number of chunks on the device: each number that there is.
pub(super) fn stages(
    case: &Case,
    mut interval: impl FnMut(&ChunkedStage, RecomputePolicy, &Chunks, &StepCosts, bool),
) {
    let question = &case.question;
    let choices = &question.choices;
    let TriedSizes::Named(sizes) = &choices.sizes else { panic!("sizes are named in these cases") };
    for &recompute in &choices.recomputes {
        for &order in &choices.orders {
            let training = TrainingSpec { recompute, ..question.training };
            // Named sizes may be rounded to the same.
            let mut seen = Vec::new();
            for &size in sizes {
                let places = choices.embeddings.iter();
                let held =
                    choices.host_copies.iter().flat_map(|copy| places.clone().map(move |of| (copy, of)));
                for (&copy, &embedding) in held {
                    let costs = case.costs_of((order, recompute, embedding));
                    let stage = stage(question, (size, order, copy), embedding);
                    let lay_out = |stage: &ChunkedStage| {
                        stage.lay_out_split(&question.model, &training, &question.stage())
                    };
                    let Ok(chunks) = lay_out(&stage) else { continue };
                    let rounded = (chunks.layout.chunk_elements(), copy, embedding);
                    if seen.contains(&rounded) {
                        continue;
                    }
                    seen.push(rounded);
                    let ranked = ranked(&chunks, &stage);
                    let all = 0..=ranked.len();
                    let counts = choices.on_device.map(|count| count.min(ranked.len()));
                    for count in counts.map_or(all, |count| count..=count) {
                        let mut on_device = ranked[..count].to_vec();
                        on_device.sort_unstable();
                        let stage = ChunkedStage { on_device, ..stage.clone() };
                        let chunks = lay_out(&stage).unwrap();
                        for costs in &costs {
                            let has_room = has_room(question, &stage, &chunks, costs);
                            interval(&stage, recompute, &chunks, costs, has_room);
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn simulate(
    question: &ChunkQuestion,
    stage: &ChunkedStage,
    chunks: &Chunks,
    costs: &StepCosts,
) -> Lanes {
    let ChunkResidency::Planned(intervals) = &stage.residency else { panic!("visits are planned by now") };
    let intervals = stage.told(chunks, intervals).unwrap();
    let (update, rates) = (stage.update, question.rates);
    LaneScene { chunks, intervals: &intervals, update, away: &costs.away, seconds: &costs.seconds, rates }
        .simulate()
}
