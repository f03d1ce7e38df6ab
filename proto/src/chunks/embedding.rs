//! Where the rows of an embedding are taken from.
//!
//! A micro-batch reads of an embedding table the rows of its tokens alone, and finds gradients of no others. So the
//! table may stay on the host (PatrickStar, § embedding on CPU). Its rows are gathered there, rounded to what layers
//! compute with, and come to the device as what the lookup would have made.
//!
//! The gradient of that goes to the host,
//! where it is added up. Of a tied weight the upper end still computes with the whole table, in intervals of its
//! chunk, and its gradient is added to that of the rows.
//!
//! What that changes:
//!
//! * **The device.** No step of the embedding needs the table's payload, and its backward pass makes no gradient of the whole
//!   table, which N(t) loses. Gathered rows are there exactly when what a lookup makes would be: N(t) gains nothing.
//! * **The host** gains a gradient of the table, in the format of parameters, and a place for the rows of one micro-batch each
//!   way. What only the rows need of the table, its parameters have no place for: rows are made of the fp32 copy.
//! * **The link** carries the rows of a micro-batch up for every forward pass of the embedding, those that are done once more
//!   included, and down for every backward pass.
//! * **Order.** Rows are gathered behind the table's last update. The next iteration's first pass waits for that, and the update
//!   begins when the last micro-batch's rows are added, and, of a tied weight, the upper end's gradient before.
//!
//! The table is a chunk of its own, so that nothing else waits for it; positions and whatever else the layer has stay in chunks.
//!
//! Several replicas share it like any chunk: of its state each owns a part. A micro-batch's rows may be of any part, so the host of
//! each has the whole table besides, as layers compute with it, and rows are made of that. And a gradient of the whole table, in
//! which its own micro-batches' are added up.
//!
//! Behind the last of them ranks stop and add these up, each those of its part, in the
//! order in which replicas add up gradients anyway. Each part is updated, and before the first rows of the next iteration ranks
//! stop once more and give each other their new parts.

use serde::{Deserialize, Serialize};

use super::groups::Sharing;
use super::layout::{Chunk, Layout};
use crate::choice;
use crate::error::Invalid;
use crate::model::layer::{LayerKind, TokenEmbedding};
use crate::model::{Model, ModelInput};
use crate::training::TrainingSpec;
use crate::training::actions::{Step, Steps};
use crate::training::stage::StageConfig;
use crate::wire::v1;

/// Where the token table of a model's embedding is when its layer computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmbeddingPlace {
    /// In a chunk that comes to the device like all others.
    #[default]
    Chunk,
    /// On the host: rows are gathered there, also for the lower end of a tied weight.
    Host,
}

choice! { EmbeddingPlace = v1::EmbeddingPlace { Chunk, Host } }

impl EmbeddingPlace {
    /// Whether it is what no one needs to name.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A table on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostTable {
    /// Rows: one for each token that there is.
    pub rows: u64,
    /// Elements of a row.
    pub width: u64,
    /// Rows that a rank takes for a micro-batch: the tokens of its samples.
    pub tokens: u64,
    /// Forward passes of its layer in an iteration, those that are done once more included.
    pub gathers: u64,
    /// Backward passes of it.
    pub scatters: u64,
    /// The last of those: behind it the table has all its gradients.
    pub last: Option<usize>,
}

impl HostTable {
    /// The chunk that it is: the first.
    pub const CHUNK: usize = 0;
    /// Its place among the tensors that are laid out: the first of the first layer.
    pub const TENSOR: usize = 0;

    /// That of a model which such a stage trains in these steps, if it is on the host.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub fn of(
        place: EmbeddingPlace,
        model: &Model,
        training: &TrainingSpec,
        stage: &StageConfig,
        steps: &Steps,
    ) -> Result<Option<Self>, Invalid> {
        let Some((kind, sequence_length)) = Self::check(place, model, stage)? else { return Ok(None) };
        let samples = stage.per_device_micro_batch(training.micro_batch_size);
        let of = |number: i64| u64::try_from(number).unwrap_or(0);
        let count = |is: fn(&Step) -> bool| steps.all().iter().filter(|step| is(step)).count() as u64;
        Ok(Some(Self {
            rows: of(kind.vocabulary_size),
            width: of(kind.hidden_size),
            tokens: of(sequence_length).saturating_mul(samples.into()),
            gathers: count(|step| Self::gathers_in(*step)),
            scatters: count(|step| Self::scatters_in(*step)),
            last: steps.all().iter().rposition(|step| Self::scatters_in(*step)),
        }))
    }

    /// Whether a step takes rows of the table.
    pub fn gathers_in(step: Step) -> bool {
        matches!(step, Step::Forward { layer: 0, .. } | Step::Again { layer: 0, .. })
    }

    /// Whether a step finds gradients of rows.
    pub fn scatters_in(step: Step) -> bool {
        matches!(step, Step::Backward { layer: 0, .. })
    }

    /// The embedding of a model that such a stage trains, and the tokens of a sample, where its table is on the host.
    ///
    /// # Errors
    /// Names the field: the model has no embedding table, or shards compute each layer.
    pub fn check(
        place: EmbeddingPlace,
        model: &Model,
        stage: &StageConfig,
    ) -> Result<Option<(TokenEmbedding, i64)>, Invalid> {
        if place == EmbeddingPlace::Chunk {
            return Ok(None);
        }
        let refuse = |why: String| Err(Invalid::field("embedding_place", why));
        let first = model.layers().first().map(|layer| layer.kind);
        let (Some(LayerKind::TokenEmbedding(kind)), ModelInput::Tokens { sequence_length, .. }) =
            (first, model.input())
        else {
            return refuse(format!(
                "{place} is not possible: the model does not begin with an embedding table. Use {}",
                EmbeddingPlace::Chunk
            ));
        };
        if stage.tensor_degree > 1 {
            // What tokens of others' rows become is added up on the device, between the shards.
            return refuse(format!(
                "{place} is not possible, because tensor parallelism splits the rows of the embedding table into {} shards. \
                 Use {}, or data parallelism only",
                stage.tensor_degree,
                EmbeddingPlace::Chunk
            ));
        }
        Ok(Some((kind, sequence_length)))
    }

    /// Elements of what a micro-batch takes.
    pub fn taken(&self) -> u64 {
        self.tokens.saturating_mul(self.width)
    }

    /// Elements of the table, where ranks share it the parts of all.
    pub fn elements(&self, layout: &Layout, sharing: &Sharing) -> u64 {
        let all = |chunk: &Chunk| match sharing.ranks() {
            1 => chunk.extent,
            ranks => sharing.part(chunk).saturating_mul(ranks.into()),
        };
        layout.chunks().get(Self::CHUNK).map_or(0, all)
    }
}
