//! What may be chosen besides the cuts: micro-batches, degrees and recomputation; and what no plan of each is faster than.

use loadmaster_proto::error::Invalid;

use super::best::EQUAL;
use super::pipeline::{Pipeline, places};
use super::{InterleavedQuestion, check_length, in_no_groups};
use crate::problem::{Variant, variants};
use crate::result::QuestionError;
use crate::search::Inquiry;
use loadmaster_search::StageCosts;
use loadmaster_search::cost::{Market, Prices};

/// The variants that may be chosen. Each is priced when it is looked at: together they are too large to keep.
pub(super) struct Variants<'a> {
    inquiry: Inquiry<'a, Prices<'a>>,
    all: Vec<Variant>,
    /// By variant: seconds that no plan of it is faster than, with its devices in their order.
    pub(super) least: Vec<Option<f64>>,
    /// Those that are searched, which are not too long to be simulated; that may be fastest first: what they have leaves out the
    /// more of the others.
    pub(super) order: Vec<usize>,
}

impl<'a> Variants<'a> {
    pub(super) fn of(
        question: &InterleavedQuestion<'_>,
        inquiry: Inquiry<'a, Prices<'a>>,
    ) -> Result<Self, QuestionError> {
        let all = question.variants()?;
        let mut asked = Self { inquiry, all, least: Vec::new(), order: Vec::new() };
        for index in 0..asked.all.len() {
            let least = question.least_seconds(&asked.pipeline(question, index)?);
            asked.least.push(least);
        }
        let layers = question.builder.chain.layer_names.len();
        let is_searched = |index: &usize| check_length(layers, asked.all[*index].batch.micro_batches).is_ok();
        asked.order = (0..asked.all.len()).filter(is_searched).collect();
        let least = |index: usize| asked.least[index].unwrap_or(0.0);
        asked.order.sort_by(|&one, &other| least(one).total_cmp(&least(other)));
        Ok(asked)
    }

    pub(super) fn pipeline<'p>(
        &'p self,
        question: &'p InterleavedQuestion<'p>,
        index: usize,
    ) -> Result<Pipeline<'p, <Prices<'p> as Market>::Costs>, QuestionError> {
        question.pipeline(self.inquiry, &self.all[index])
    }

    /// Whether all are searched.
    pub(super) fn are_searched(&self) -> bool {
        self.order.len() == self.all.len()
    }

    /// Seconds that no plan of those that are not searched is faster than, with its devices in their order.
    pub(super) fn least_unsearched(&self) -> Option<f64> {
        let mut unsearched = (0..self.all.len()).filter(|index| !self.order.contains(index));
        unsearched.try_fold(f64::INFINITY, |least, index| Some(least.min(self.least[index]?)))
    }

    /// Seconds that no plan is faster than, in whatever order devices are; none where that is not known: shards of a stage may be
    /// nearer to each other in another one.
    pub(super) fn least_in_any_order(&self) -> Option<f64> {
        let is_known = self.all.iter().flat_map(|of| &of.choices).all(|choice| choice.tensor == 1);
        let least = self.least.iter().copied().reduce(|a, b| Some(a?.min(b?))).flatten();
        least.filter(|_| is_known)
    }
}

impl InterleavedQuestion<'_> {
    /// The variants whose devices are two or more places with several stages each, and whose micro-batches go in groups of these: none
    /// where there is no such plan at all.
    pub(super) fn possible(&self) -> Vec<Variant> {
        let mut all = self.in_places();
        all.retain(|of| (of.batch.micro_batches as usize).is_multiple_of(places(of, self.devices)));
        all
    }

    /// Those whose devices are as many places.
    fn in_places(&self) -> Vec<Variant> {
        let (layers, each) = (self.builder.chain.layer_names.len(), self.request.virtual_stages as usize);
        let mut all = variants(self.criteria, self.devices, layers);
        all.retain(|of| (2..=layers / each.max(1)).contains(&places(of, self.devices)));
        all
    }

    /// Whether an iteration of some of them is short enough to be searched.
    pub(super) fn is_any_short(&self, all: &[Variant]) -> bool {
        let layers = self.builder.chain.layer_names.len();
        all.iter().any(|of| check_length(layers, of.batch.micro_batches).is_ok())
    }

    /// The variants that are possible.
    ///
    /// # Errors
    /// There are none, or all are too long to be searched.
    pub(super) fn variants(&self) -> Result<Vec<Variant>, QuestionError> {
        let (layers, each) = (self.builder.chain.layer_names.len(), self.request.virtual_stages as usize);
        let possible = self.possible();
        let Some(fewest) = possible.iter().map(|of| of.batch.micro_batches).min() else {
            return Err(match self.in_places().first() {
                Some(first) => in_no_groups(first.batch.micro_batches, places(first, self.devices)).into(),
                None => {
                    let why = format!(
                        "is {each}: {layers} layers on {} devices are not {each} or more for each of two or more places along a \
                         pipeline of this shape: name fewer virtual stages, other degrees, or other devices",
                        self.devices.devices()
                    );
                    Invalid::field("virtual_stages", why).into()
                }
            });
        };
        check_length(layers, fewest)?;
        Ok(possible)
    }

    /// Seconds that no plan of a variant is faster than, wherever it is cut and whatever it holds; none where stages may be faster
    /// than their layers.
    ///
    /// A device begins when the stages below its first one have passed the first micro-batch on, and after its last pass they still
    /// have that of the last one: with `x_k` both passes of stage k, `m · Σ x_k of device d + Σ x_k of the first d stages`. Its mean over
    /// all devices is below the slowest one's, and a stage has a layer at least. And the first micro-batch goes through all of them.
    fn least_seconds<C: StageCosts>(&self, pipeline: &Pipeline<'_, C>) -> Option<f64> {
        let layers = pipeline.layer_seconds()?;
        let all: f64 = layers.iter().sum();
        let shortest = layers.iter().copied().fold(f64::INFINITY, f64::min);
        let devices = pipeline.interleaving.devices() as f64;
        let micro_batches = f64::from(pipeline.variant.batch.micro_batches);
        let filled = micro_batches * all / devices + (devices - 1.0) / 2.0 * shortest;
        Some(filled.max(all) * (1.0 - EQUAL))
    }
}
