//! The options that fix what is chosen of a training in chunks, of every command that has it chosen.

use clap::Args;
use loadmaster_proto::cluster::quantity;
use loadmaster_proto::wire::v1;

use crate::input::choice::choice;
use crate::input::parse;

/// What may be chosen; a command that has these has `--memory`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
pub(super) struct ChunkOptions {
    /// Which chunks are on the device in which step: the fastest plan that the planner finds (ours), or a baseline, PatrickStar as
    /// published (patrickstar) or all parameters for the whole iteration, as ZeRO-Offload has them (static) [default: ours].
    #[arg(long, value_parser = choice::<v1::ChunkPolicy>(), requires = "memory")]
    chunk_policy: Option<v1::ChunkPolicy>,

    /// Chunk sizes to choose from: elements, separated by commas, for example 4M,16M (M is 2^20, as for `model chunks`)
    /// [default: two of each octave, from a 1,024th of the model to all of it].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse::chunk_elements, requires = "memory")]
    chunk_size: Vec<i64>,

    /// How the micro-batches of an iteration pass the layers, or several orders to choose from [default: both].
    #[arg(long, value_delimiter = ',', value_parser = choice::<v1::ChunkOrder>(), requires = "memory")]
    chunk_order: Vec<v1::ChunkOrder>,

    /// What the host holds of the parameters that layers compute with, or both to choose from [default: both].
    #[arg(long, value_delimiter = ',', value_parser = choice::<v1::HostCopy>(), requires = "memory")]
    host_copy: Vec<v1::HostCopy>,

    /// Where the table of tokens is when the embedding computes, or both to choose from [default: both].
    /// On the host where a model begins with such a table, which no shards compute.
    #[arg(long, value_delimiter = ',', value_parser = choice::<v1::EmbeddingPlace>(), requires = "memory")]
    chunk_embedding: Vec<v1::EmbeddingPlace>,

    /// Where what layers keep of a micro-batch is between its passes, or both to choose from [default: both; the
    /// device where --launcher is to train it].
    #[arg(long, value_delimiter = ',', value_parser = choice::<v1::ActivationPlace>(), requires = "memory")]
    chunk_activations: Vec<v1::ActivationPlace>,

    /// How many chunks are on the device for good, with their optimizer state, and are updated there; each rank's part of them
    /// where devices share chunks [default: as many as are best].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..), requires = "memory")]
    chunks_on_device: Option<i32>,

    /// Parameters that the host updates in a second for one device alone, for example 150M/s (M is a million here) [default: as
    /// the profile's run in chunks measured it, or else as the cluster says, if one is named].
    #[arg(long, value_name = "RATE", value_parser = quantity::parameters_per_second, requires = "memory")]
    pub(super) host_update: Option<f64>,
}

impl ChunkOptions {
    /// What it fixes of a training in chunks.
    pub(super) fn choices(&self) -> Option<v1::ChunkChoices> {
        let choices = v1::ChunkChoices {
            policy: self.chunk_policy.unwrap_or_default().into(),
            chunk_elements: self.chunk_size.clone(),
            orders: self.chunk_order.iter().copied().map(Into::into).collect(),
            host_copies: self.host_copy.iter().copied().map(Into::into).collect(),
            embeddings: self.chunk_embedding.iter().copied().map(Into::into).collect(),
            activations: self.chunk_activations.iter().copied().map(Into::into).collect(),
            on_device: self.chunks_on_device,
        };
        Some(choices).filter(|choices| *choices != v1::ChunkChoices::default())
    }
}
