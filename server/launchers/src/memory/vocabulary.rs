//! Vocabularies that frameworks pad, so that each shard has as many rows and kernels like their number.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::shard::Shard;
use loadmaster_proto::warning::{Warning, WarningCode};

use super::{Added, AddedCause};
use crate::transformer::Transformer;

/// Bytes of a logit's share in the softmax, which is computed in fp32.
const SOFTMAX_BYTES: u64 = 4;

/// Returns the statement that a framework pads the vocabulary to a multiple of so many rows for each shard.
pub(crate) fn padding(rows: u64) -> String {
    format!("pads the vocabulary to a multiple of {rows} times the tensor-parallel size")
}

/// What a vocabulary is padded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PaddedVocabulary {
    /// Rows that the model has.
    own: u64,
    /// Rows that there are.
    rows: u64,
    /// Shards that have as many of them each.
    shards: u32,
    /// Parameters of a row.
    row: u64,
    /// Tokens of a sample.
    tokens: u64,
    /// The head's weight is the embedding's.
    is_tied: bool,
    /// Layers of the model.
    layers: usize,
}

impl PaddedVocabulary {
    /// That of a transformer whose rows are padded to a multiple, and split over shards; none where they are a multiple.
    pub(crate) fn of(transformer: &Transformer, multiple: u64, shards: u32) -> Option<Self> {
        let positive = |size: i64| u64::try_from(size).unwrap_or_default();
        let own = positive(transformer.embedding.vocabulary_size);
        let rows = own.checked_next_multiple_of(multiple)?;
        (rows > own).then(|| Self {
            own,
            rows,
            shards: shards.max(1),
            row: positive(transformer.block.hidden_size),
            tokens: positive(transformer.sequence_length),
            is_tied: transformer.has_tied_head,
            layers: transformer.layer_count(),
        })
    }

    /// Human-readable.
    pub(crate) fn warning(&self, who: &str) -> Warning {
        WarningCode::MemoryDiffers.says(format!(
            "{who} pads the vocabulary from {} to {} rows: the first and the last stage have {} parameters more on each \
             device than in the plan",
            self.own,
            self.rows,
            self.more().saturating_mul(self.row)
        ))
    }

    /// Rows that the shard with the highest peak has besides those that the plan counts for it.
    fn more(&self) -> u64 {
        let first = Shard { index: 0, degree: self.shards };
        let planned = i64::try_from(self.own).map_or(0, |own| first.range(own).end);
        self.rows.div_ceil(self.shards.into()).saturating_sub(u64::try_from(planned).unwrap_or_default())
    }

    /// Whether a stage has the embedding, and the head.
    fn ends(&self, stage: &PlanStage) -> (bool, bool) {
        (stage.config.first_layer == 0, stage.config.last_layer + 1 == self.layers)
    }

    /// Parameters that a device of a stage has besides.
    pub(super) fn scalars(&self, stage: &PlanStage) -> u64 {
        let tables = match self.ends(stage) {
            (true, true) if self.is_tied => 1,
            (embedding, head) => u64::from(embedding) + u64::from(head),
        };
        self.more().saturating_mul(self.row).saturating_mul(tables)
    }

    /// What a stage has of it: parameters of the ends that it has, with their gradients and the optimizer's state, and with the
    /// head the logits. None where it has neither.
    ///
    /// Of each padded logit there is its share in the softmax for each micro-batch between its passes, and the logit itself or,
    /// later, its gradient.
    pub(super) fn added(&self, plan: &Plan, stage: usize) -> Option<Added> {
        let of = plan.stages.get(stage)?;
        let (has_embedding, has_head) = self.ends(of);
        let scalars = self.scalars(of);
        let fixed = super::parameter_bytes(plan, stage, scalars).0;
        let samples = u64::from(plan.training.micro_batch_size.div_ceil(of.config.data_degree.max(1)));
        let logits = if has_head {
            let each = SOFTMAX_BYTES
                .saturating_mul(of.in_flight.into())
                .saturating_add(plan.training.precision.scalar_bytes());
            self.more().saturating_mul(self.tokens).saturating_mul(samples).saturating_mul(each)
        } else {
            0
        };
        (has_embedding || has_head).then(|| Added {
            cause: AddedCause::PaddedVocabulary,
            bytes: Bytes(fixed.saturating_add(logits)),
            counted: format!(
                "padding adds {} vocabulary rows on a device: {} for {scalars} parameters, and {} for logits",
                self.more(),
                Bytes(fixed),
                Bytes(logits)
            ),
        })
    }
}
