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
    /// Chunk sizes to choose from: elements, separated by commas, for example 4M,16M (M is 2^20, as for `model chunks`)
    /// [default: two of each octave, from a 1,024th of the model to all of it].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse::chunk_elements, requires = "memory")]
    chunk_size: Vec<i64>,

    /// Choose from the sizes of PatrickStar's grids, or from all sums of neighbouring modules (breakpoints): the 64 that waste least
    /// [default: as without --chunk-size].
    #[arg(long, value_parser = choice::<v1::ChunkSizes>(), requires = "memory", conflicts_with = "chunk_size")]
    chunk_sizes: Option<v1::ChunkSizes>,

    /// How tensors lie in chunks, or several ways to choose from [default: aligned].
    #[arg(long, value_delimiter = ',', value_parser = choice::<v1::ChunkLayout>(), requires = "memory")]
    chunk_layout: Vec<v1::ChunkLayout>,

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

    /// Which chunk leaves where there is no room: the one whose next use is farthest (belady), whose last use is longest ago
    /// (lru), or that came first (fifo); or none, as all parameters stay (static) [default: belady,static].
    #[arg(long, value_delimiter = ',', value_parser = choice::<v1::ResidencyRule>(), requires = "memory")]
    chunk_residency: Vec<v1::ResidencyRule>,

    /// How many chunks are on the device for good, with their optimizer state, and are updated there; each rank's part of them
    /// where devices share chunks [default: as many as are best].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..), requires = "memory")]
    chunks_on_device: Option<i32>,

    /// How many chunks are on their way to the device before they are needed, if there is room, up to 16 [default: 0 to 3
    /// are tried].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=16), requires = "memory")]
    fetch_ahead: Option<i32>,

    /// How many steps, which are passes of a layer, a chunk with all its gradients has to leave in, if there is room, up to
    /// 16 [default: 0 to 2 are tried].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=16), requires = "memory")]
    leave_behind: Option<i32>,

    /// Buffers of the host that gradients pass through where they have no place there, and parameters that are rounded for a GPU,
    /// up to 64 [default: 2, on GPUs 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=64), requires = "memory")]
    chunk_staging: Option<i32>,

    /// What updates chunks on the host [default: one-pass].
    #[arg(long, value_parser = choice::<v1::StepKernel>(), requires = "memory")]
    step_kernel: Option<v1::StepKernel>,

    /// Parameters that the host updates in a second for one device alone, for example 150M/s (M is a million here) [default: as
    /// the profile's run in chunks measured it, or else as the cluster says, if one is named].
    #[arg(long, value_name = "RATE", value_parser = quantity::parameters_per_second, requires = "memory")]
    pub(super) host_update: Option<f64>,
}

impl ChunkOptions {
    /// What it fixes of a training in chunks.
    pub(super) fn choices(&self) -> Option<v1::ChunkChoices> {
        let choices = v1::ChunkChoices {
            layouts: self.chunk_layout.iter().copied().map(Into::into).collect(),
            chunk_elements: self.chunk_size.clone(),
            orders: self.chunk_order.iter().copied().map(Into::into).collect(),
            host_copies: self.host_copy.iter().copied().map(Into::into).collect(),
            embeddings: self.chunk_embedding.iter().copied().map(Into::into).collect(),
            activations: self.chunk_activations.iter().copied().map(Into::into).collect(),
            residencies: self.chunk_residency.iter().copied().map(Into::into).collect(),
            sizes: self.chunk_sizes.unwrap_or_default().into(),
            on_device: self.chunks_on_device,
            ahead: self.fetch_ahead,
            behind: self.leave_behind,
            staging: self.chunk_staging.unwrap_or_default(),
            kernel: self.step_kernel.unwrap_or_default().into(),
        };
        Some(choices).filter(|choices| *choices != v1::ChunkChoices::default())
    }
}
