//! A stage in chunks from a file, and the options that fix what is chosen of a training in chunks.

use std::path::Path;

use clap::Args;
use loadmaster_proto::cluster::quantity;
use loadmaster_proto::wire::v1;
use loadmaster_show::json;

use crate::failure::Failure;
use crate::input::parse::choice;
use crate::input::{parse, read_file};

/// Room for every visit that a stage may have, as `plan show -o json` prints it.
const MOST_BYTES: usize = 256 << 20;

/// `--chunks`: what a plan in JSON has of its stage; the planner checks it.
pub(super) fn read(path: &Path) -> Result<v1::ChunkedStage, Failure> {
    let text = read_file("file of --chunks", path, MOST_BYTES)?;
    json::parse("loadmaster.v1.ChunkedStage", &text).map_err(|error| {
        Failure::Usage(format!(
            "--chunks: {} does not say how a stage trains in chunks: {error}; write what `plan show PLAN -o json` has as \
             .stages[0].chunkedTraining",
            path.display()
        ))
    })
}

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
    #[arg(long, value_delimiter = ',', value_parser = choice::<v1::MicroBatchOrder>(), requires = "memory")]
    chunk_order: Vec<v1::MicroBatchOrder>,

    /// What the host holds of the parameters that layers compute with, or both to choose from [default: both].
    #[arg(long, value_delimiter = ',', value_parser = choice::<v1::HostParameters>(), requires = "memory")]
    host_parameters: Vec<v1::HostParameters>,

    /// Where the table of tokens is when the embedding computes, or both to choose from [default: both].
    /// On the host where a model begins with such a table, which no shards compute.
    #[arg(long, value_delimiter = ',', value_parser = choice::<v1::EmbeddingPlace>(), requires = "memory")]
    chunk_embedding: Vec<v1::EmbeddingPlace>,

    /// Where what layers keep of a micro-batch is between its passes, or both to choose from [default: both; the
    /// device where --framework is to train it].
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
    pub(super) fn choices(&self) -> Option<v1::ChunkOptions> {
        let choices = v1::ChunkOptions {
            policy: self.chunk_policy.unwrap_or_default().into(),
            chunk_elements: self.chunk_size.clone(),
            micro_batch_orders: self.chunk_order.iter().copied().map(Into::into).collect(),
            host_parameters: self.host_parameters.iter().copied().map(Into::into).collect(),
            embedding_places: self.chunk_embedding.iter().copied().map(Into::into).collect(),
            activation_places: self.chunk_activations.iter().copied().map(Into::into).collect(),
            resident_chunk_count: self.chunks_on_device,
        };
        Some(choices).filter(|choices| *choices != v1::ChunkOptions::default())
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::chunked_stage::Residency;

    use super::*;

    fn stage() -> v1::ChunkedStage {
        let visit = v1::ResidencyInterval {
            chunk: 1,
            gradients_only: true,
            prefetch_step: 0,
            first_use_step: 2,
            evict_step: 5,
            free_step: 6,
        };
        v1::ChunkedStage {
            layout: v1::ChunkLayout::Aligned.into(),
            chunk_elements: 4 << 20,
            micro_batch_order: v1::MicroBatchOrder::Layer.into(),
            resident_chunks: vec![0, 2],
            host_memory_bytes: 64 << 30,
            residency: Some(Residency::PlannedResidency(v1::ResidencyPlan { intervals: vec![visit] })),
            ..v1::ChunkedStage::default()
        }
    }

    fn written(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// What `plan show` prints of a stage is what `plan predict` reads.
    #[test]
    fn what_is_printed_is_read() {
        let stages = vec![v1::PlanStage { chunked_training: Some(stage()), ..v1::PlanStage::default() }];
        let plan = json::json(&v1::Plan { stages, ..v1::Plan::default() }).unwrap();
        let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        let file = written(&plan["stages"][0]["chunkedTraining"].to_string());
        assert_eq!(read(file.path()).unwrap(), stage());
    }

    #[test]
    fn a_file_of_something_else_is_refused_by_its_option() {
        for wrong in ["", "{", "[]", "{\"stages\": []}", "{\"layout\": \"ROUND\"}", "{} {}"] {
            let file = written(wrong);
            let refused = read(file.path());
            let told = file.path().display().to_string();
            assert!(
                matches!(&refused, Err(Failure::Usage(why)) if why.contains("--chunks") && why.contains(&told)),
                "{wrong:?}: {refused:?}"
            );
        }
        assert!(
            matches!(read(Path::new("/does/not/exist")), Err(Failure::Usage(why)) if why.contains("--chunks"))
        );
    }
}
