//! What a search asks about stages, from what a predictor knows.
//!
//! A [`Pricing`] answers for one micro-batch size B and one number of micro-batches. Everything that a layer
//! costs alone is summed up once from the first layer on, so that a stage is the difference of two sums
//! (`sums`). Peaks come as curves over the micro-batches in flight, one row of stages at a time, when they
//! are first asked for (`rows`). Both are kept for later requests (`price_cache`).
//!
//! ```text
//! forward   Σ layers + what the shards sum and the profile's seconds do not contain
//! backward  the same, and the forward pass once more where it is recomputed
//! step      Σ updates + what replicas wait for the slowest of them
//!           + ring all-reduce of the shard's gradients over the replicas (AMP, 3.3)
//!           + exchange of the tied weight's gradient, where its ends are in different stages
//! cut       activations to the receiving replica and their gradients back, over its link
//! ```
//!
//! Where a stage's devices are of several kinds, the slowest and the highest peak of them count. What cannot be
//! run, or is not known, has no price, and [`Pricing::why_not`] says why.
//!
//! # Limits
//!
//! * Seconds of sharded layers contain the collectives of the devices that they were measured on, not those of
//!   the fleet's own link.
//! * The two ends of a tied weight exchange its gradient over the slowest of the links.
//! * Groups of replicas or shards that reach beyond a node share its link to the outside while they all work;
//!   transfers between stages are priced as if each had it for itself.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use loadmaster_predict::{Margin, Origin, PeakCurve, Predictor, Share, StageSetting};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::gradient_buckets::BUCKET_BYTES;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_simulate::{all_reduce, point_to_point};

use super::price_cache::PriceCache;
use super::rows::{self, Predicted, PredictionMemo, Rows};
use super::sums::Sums;
use crate::{Choice, KindSet, Link, LinkId, Peak, Seconds, StageAt, StageCosts};

/// A predictor that may be asked from several threads.
pub type SharedPredictor<'a> = &'a (dyn Predictor + Sync);

/// What prices on one kind of device are made from.
#[derive(Clone)]
pub struct KindOfDevice<'a> {
    pub predictor: SharedPredictor<'a>,
    /// What it was asked before.
    pub known: Arc<PriceCache>,
}

impl<'a> KindOfDevice<'a> {
    /// With a predictor that nothing was asked yet.
    pub fn new(predictor: SharedPredictor<'a>) -> Self {
        Self { predictor, known: Arc::default() }
    }
}

impl fmt::Debug for KindOfDevice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindOfDevice").field("predictor", &self.predictor.name()).finish_non_exhaustive()
    }
}

/// What prices are asked for.
#[derive(Debug, Clone, Copy)]
pub struct PriceTerms<'a> {
    /// How it is trained. The micro-batch size is that of a whole stage, B; the recompute policy is each
    /// choice's own.
    pub training: TrainingSpec,
    /// The ways to run a stage.
    pub choices: &'a [Choice],
    /// The links between devices: [`Places::links`](crate::Places::links).
    pub links: &'a [Link],
    /// What has to stay free on every device.
    pub margin: Margin,
    /// The model, where it is known: it determines which tensor-parallel sizes its layers allow.
    pub model: Option<&'a Model>,
}

/// Prices of all stages at one micro-batch size.
#[derive(Debug)]
pub struct Pricing<'a> {
    layers: usize,
    training: TrainingSpec,
    choices: Vec<Choice>,
    links: Vec<Link>,
    /// The slowest of them in every respect.
    slowest: Option<Link>,
    margin: Margin,
    /// Why a choice is none at this micro-batch size.
    refused: Vec<Option<String>>,
    /// By choice: how many of the layers before each do not allow its tensor-parallel size.
    unfit: Vec<Option<Vec<u32>>>,
    /// One for each kind of device.
    kinds: Vec<KindPrices<'a>>,
}

/// Prices on one kind of device.
struct KindPrices<'a> {
    predictor: SharedPredictor<'a>,
    /// By choice; none where the choice is refused.
    ways: Vec<Option<ChoicePrices>>,
}

/// Prices of one choice on one kind of device.
#[derive(Debug)]
struct ChoicePrices {
    sums: Arc<Sums>,
    rows: Arc<Rows>,
    asked: PredictionMemo,
    /// See [`Predictor::waiting_share`].
    waiting_share: f64,
}

impl fmt::Debug for KindPrices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindPrices").field("predictor", &self.predictor.name()).finish_non_exhaustive()
    }
}

impl<'a> Pricing<'a> {
    /// Prices on each kind of device, in the fleet's order of kinds; all predictors are of the same
    /// model. Layers are read here; the bytes of stages when they are asked for.
    pub fn new(kinds: &[KindOfDevice<'a>], terms: PriceTerms<'_>) -> Self {
        let PriceTerms { training, choices, links, margin, model } = terms;
        let layers = kinds.iter().map(|kind| kind.predictor.layers()).min().unwrap_or(0);
        let refused: Vec<Option<String>> =
            choices.iter().map(|&choice| refusal(choice, training.micro_batch_size)).collect();
        let kinds = kinds.iter().map(|KindOfDevice { predictor, known }| {
            let ways = choices.iter().zip(&refused).map(|(&choice, refused)| {
                let is_run = refused.is_none();
                is_run.then(|| ChoicePrices {
                    sums: known.sums(*predictor, share(choice, training.micro_batch_size), layers),
                    rows: known.rows(&training, choice, layers),
                    asked: PredictionMemo::default(),
                    waiting_share: predictor.waiting_share(choice.data),
                })
            });
            KindPrices { predictor: *predictor, ways: ways.collect() }
        });
        Self {
            layers,
            training,
            kinds: kinds.collect(),
            unfit: choices.iter().map(|choice| unfit(model, choice.tensor)).collect(),
            choices: choices.to_vec(),
            links: links.to_vec(),
            slowest: links.iter().copied().reduce(Link::slower),
            margin,
            refused,
        }
    }

    /// Whether any stage has seconds: predictors that know no times price bytes alone.
    pub fn has_seconds(&self) -> bool {
        let ways = || self.kinds.iter().map(|kind| kind.ways.iter().flatten());
        !self.kinds.is_empty() && ways().all(|mut ways| ways.any(|way| way.sums.knows_seconds()))
    }

    /// The stage as a predictor is asked for it, with this many micro-batches in flight.
    pub fn setting(&self, stage: &StageAt, in_flight: u32) -> Option<StageSetting> {
        let choice = self.choices.get(stage.choice)?;
        Some(setting(self.training, *choice, stage.first, stage.last, in_flight))
    }

    /// How the seconds of a stage were read: the least certain of its layers and kinds.
    pub fn origin(&self, stage: &StageAt) -> Option<Origin> {
        let ways: Option<Vec<&ChoicePrices>> = self.ways(stage.kinds, stage.choice).collect();
        ways?.into_iter().map(|way| way.sums.origin(stage.first, stage.last)).max().flatten()
    }

    /// Why a stage has no seconds or no bytes, with what to do about it; none where it has both.
    pub fn why_not(&self, stage: &StageAt, in_flight: u32) -> Option<String> {
        let choice = self.choices.get(stage.choice)?;
        if let Some(Some(why)) = self.refused.get(stage.choice) {
            return Some(why.clone());
        }
        if self.is_unfit(stage) {
            return Some(format!(
                "a layer in the range {}..{} cannot be split into {} tensor shards. Use a tensor-parallel size that \
                 divides the attention heads and the feed-forward size",
                stage.first, stage.last, choice.tensor
            ));
        }
        let setting = setting(self.training, *choice, stage.first, stage.last, in_flight);
        for kind in self.kinds_of(stage.kinds) {
            if let Err(error) = kind.predictor.stage(&setting) {
                return Some(error.to_string());
            }
        }
        self.seconds(stage).is_none().then(|| {
            let Share { micro_batch_size, tensor_degree } = share(*choice, self.training.micro_batch_size);
            format!(
                "the profile has no times of layers {}..{} at tensor-parallel size {tensor_degree} and \
                 {micro_batch_size} samples per device. Profile with `profiling_mode` PROFILING_MODE_PER_LAYER at this \
                 number of samples, or at two other numbers for a linear estimate",
                stage.first, stage.last
            )
        })
    }

    fn kinds_of(&self, kinds: KindSet) -> impl Iterator<Item = &KindPrices<'a>> {
        self.kinds.iter().enumerate().filter(move |(kind, _)| kinds.has(*kind)).map(|(_, prices)| prices)
    }

    fn ways(&self, kinds: KindSet, choice: usize) -> impl Iterator<Item = Option<&ChoicePrices>> {
        self.kinds_of(kinds).map(move |kind| kind.ways.get(choice)?.as_ref())
    }

    /// Whether a layer does not allow the stage's tensor-parallel size.
    fn is_unfit(&self, stage: &StageAt) -> bool {
        let Some(Some(before)) = self.unfit.get(stage.choice) else { return false };
        before.get(stage.first) != before.get(stage.last + 1)
    }

    fn link(&self, link: LinkId) -> Option<Link> {
        self.links.get(usize::from(link)).copied()
    }

    /// A link that several groups use at once: each has its part of the bandwidth.
    fn shared(&self, link: LinkId, groups: u32) -> Option<Link> {
        let link = self.link(link)?;
        Some(Link { bytes_per_second: link.bytes_per_second / f64::from(groups.max(1)), ..link })
    }

    /// Micro-batches between two steps.
    fn passes_before_a_step(&self) -> f64 {
        match self.training.schedule {
            Schedule::Gpipe | Schedule::OneFOneB => f64::from(self.training.micro_batches),
            Schedule::PipeDream => 1.0,
        }
    }

    /// Gradient synchronisation of a stage, once per iteration.
    fn synchronisation(&self, stage: &StageAt, choice: Choice, sums: &Sums) -> f64 {
        let (starts, ends) = (stage.first == 0, stage.last + 1 == self.layers);
        let tied = sums.tied_bytes();
        // The head's copy of a tied weight has a gradient of its own.
        let copy = if ends && !starts { tied } else { 0 };
        let bytes = sums.gradient_bytes(stage.first, stage.last).saturating_add(copy);
        let rings = bytes.div_ceil(BUCKET_BYTES).max(1) as f64;
        let over_replicas =
            match self.shared(stage.data_link, stage.data_rings).filter(|_| choice.data > 1 && bytes > 0) {
                Some(link) => {
                    let link = Link { latency_seconds: link.latency_seconds * rings, ..link };
                    let whole = all_reduce(bytes as f64, choice.data, link);
                    match choice.sharding {
                        StateSharding::None => whole,
                        // A reduce-scatter of gradients and an all-gather of parameters, each half of a ring.
                        StateSharding::Optimizer => {
                            let precision = self.training.precision;
                            let scalars = bytes / precision.gradient_bytes();
                            let parameters = scalars.saturating_mul(precision.scalar_bytes());
                            (whole + all_reduce(parameters as f64, choice.data, link)) / 2.0
                        }
                    }
                }
                None => 0.0,
            };
        let between_ends = match self.slowest.filter(|_| starts != ends && tied > 0) {
            Some(link) => all_reduce(tied as f64, 2, link),
            None => 0.0,
        };
        over_replicas + between_ends
    }
}

impl StageCosts for Pricing<'_> {
    fn layers(&self) -> usize {
        self.layers
    }

    fn choices(&self) -> &[Choice] {
        &self.choices
    }

    fn seconds(&self, stage: &StageAt) -> Option<Seconds> {
        if stage.first > stage.last || stage.last >= self.layers || self.is_unfit(stage) {
            return None;
        }
        let choice = *self.choices.get(stage.choice)?;
        let mut slowest: Option<Seconds> = None;
        for way in self.ways(stage.kinds, stage.choice) {
            let ChoicePrices { sums, waiting_share, .. } = way?;
            let mut own = sums.seconds(stage.first, stage.last)?;
            let exchange = sums.exchange(stage.first, stage.last);
            if exchange.count > 0
                && choice.tensor > 1
                && let Some(link) = self.shared(stage.tensor_link, stage.tensor_rings)
            {
                let latency_seconds = link.latency_seconds * f64::from(exchange.count);
                let each = all_reduce(exchange.bytes as f64, choice.tensor, Link { latency_seconds, ..link });
                own.forward += each;
                own.backward += each;
            }
            if choice.recompute != RecomputePolicy::None {
                own.backward += own.forward;
            }
            own.step /= f64::from(choice.sharding.optimizer_parts(choice.data));
            // Replicas wait for each other where they meet: before the step.
            let waited = waiting_share * self.passes_before_a_step() * (own.forward + own.backward);
            own.step += waited + self.synchronisation(stage, choice, sums);
            slowest = Some(slowest.map_or(own, |other| Seconds {
                forward: own.forward.max(other.forward),
                backward: own.backward.max(other.backward),
                step: own.step.max(other.step),
            }));
        }
        slowest
    }

    fn peak(&self, stage: &StageAt, in_flight: u32) -> Option<Peak> {
        if stage.first > stage.last || stage.last >= self.layers || self.is_unfit(stage) {
            return None;
        }
        let choice = *self.choices.get(stage.choice)?;
        let mut fullest: Option<Peak> = None;
        for kind in self.kinds_of(stage.kinds) {
            let way = kind.ways.get(stage.choice)?.as_ref()?;
            let terms = rows::PredictionTerms { predictor: kind.predictor, training: self.training, choice };
            let predicted = way.rows.bytes(terms, &way.asked, stage, in_flight)?;
            let needed = self.margin.needed_for(Bytes(predicted.bytes), predicted.margin).0;
            let own = Peak { bytes: predicted.bytes, needed };
            fullest = Some(fullest.map_or(own, |other| Peak {
                bytes: own.bytes.max(other.bytes),
                needed: own.needed.max(other.needed),
            }));
        }
        fullest
    }

    fn peaks(&self, stage: &StageAt, lasts: Range<usize>, in_flight: u32) -> Vec<Option<Peak>> {
        let one_by_one = |lasts: Range<usize>| {
            lasts.map(|last| self.peak(&StageAt { last, ..*stage }, in_flight)).collect()
        };
        // On devices of one kind, which is most often asked for: the row is looked up once.
        let mut kinds = self.kinds_of(stage.kinds);
        let (Some(kind), None) = (kinds.next(), kinds.next()) else { return one_by_one(lasts) };
        let (way, choice) =
            (kind.ways.get(stage.choice).and_then(Option::as_ref), self.choices.get(stage.choice));
        let (Some(way), Some(&choice)) = (way, choice) else { return one_by_one(lasts) };
        let is_plain = stage.first <= lasts.start && lasts.end <= self.layers && lasts.start < lasts.end;
        if !is_plain || self.unfit.get(stage.choice).is_none_or(Option::is_some) {
            return one_by_one(lasts);
        }
        let terms = rows::PredictionTerms { predictor: kind.predictor, training: self.training, choice };
        let of_row = |curves: &[PeakCurve]| {
            let peak = |last: usize| {
                let predicted = Predicted::of(curves.get(last - stage.first)?, in_flight);
                let needed = self.margin.needed_for(Bytes(predicted.bytes), predicted.margin).0;
                Some(Peak { bytes: predicted.bytes, needed })
            };
            lasts.clone().map(peak).collect()
        };
        let found = way.rows.with(terms, stage.first..=lasts.end - 1, of_row);
        found.flatten().unwrap_or_else(|| one_by_one(lasts))
    }

    fn adds_up(&self) -> bool {
        // On one kind of device: of several the slowest counts, which may be another one for each layer.
        true
    }

    fn cut_seconds(&self, layer: usize, link: LinkId, choice: usize) -> f64 {
        self.link(link).map_or(0.0, |link| self.cut_seconds_over(layer, link, choice))
    }

    fn cut_seconds_over(&self, layer: usize, link: Link, choice: usize) -> f64 {
        // Every kind of device sends the same bytes.
        let way = self.kinds.first().and_then(|kind| kind.ways.get(choice)?.as_ref());
        way.map_or(0.0, |way| 2.0 * point_to_point(way.sums.output_bytes(layer) as f64, link))
    }
}

/// Why nothing can be run with this choice at this micro-batch size.
fn refusal(choice: Choice, micro_batch_size: u32) -> Option<String> {
    let Choice { data, tensor, .. } = choice;
    if data == 0 || tensor == 0 {
        return Some(format!("{choice} has no devices. Use parallel sizes of 1 or more"));
    }
    (!micro_batch_size.is_multiple_of(data)).then(|| {
        format!(
            "a micro-batch of {micro_batch_size} samples is not divisible by data-parallel size {data}. Use a multiple of \
             {data}"
        )
    })
}

/// By layer and one more: how many of the layers before it do not allow this tensor-parallel size. None where all do.
fn unfit(model: Option<&Model>, tensor: u32) -> Option<Vec<u32>> {
    if tensor <= 1 {
        return None;
    }
    let mut before = vec![0];
    let mut count = 0;
    for layer in model?.layers() {
        count += u32::from(layer.kind.check_tensor_degree(tensor).is_err());
        before.push(count);
    }
    (count > 0).then_some(before)
}

/// What a device of a stage works on under a choice that is not refused.
pub(super) fn share(choice: Choice, micro_batch_size: u32) -> Share {
    Share { micro_batch_size: micro_batch_size / choice.data.max(1), tensor_degree: choice.tensor }
}

/// A stage with this many micro-batches in flight: as far from the end of its pipeline as that takes under
/// 1F1B, and with as many micro-batches per iteration under GPipe.
pub(super) fn setting(
    training: TrainingSpec,
    choice: Choice,
    first_layer: usize,
    last_layer: usize,
    in_flight: u32,
) -> StageSetting {
    let in_flight = in_flight.max(1);
    let micro_batches = match training.schedule {
        Schedule::Gpipe => in_flight,
        Schedule::OneFOneB => training.micro_batches.max(in_flight),
        Schedule::PipeDream => training.micro_batches,
    };
    let stage_index = u32::from(first_layer > 0);
    StageSetting {
        stage: choice.stage(first_layer, last_layer),
        stage_index,
        stage_count: stage_index.saturating_add(in_flight),
        training: TrainingSpec { micro_batches, recompute: choice.recompute, ..training },
    }
}
