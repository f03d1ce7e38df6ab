//! The options of `loadmaster plan recommend` for models whose state is larger than their devices.

use clap::Args;
use loadmaster_proto::wire::v1;

use crate::input::parse::choice;
use crate::verbs::plan::chunks::ChunkOptions;

/// Where parameters and optimizer state are, and what may be chosen of that.
#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
pub(super) struct RecommendMemoryOptions {
    /// Where parameters and optimizer state are while the model is trained. In chunks they lie in the host's memory, of
    /// which --host-memory says how much may be taken, and one stage trains the whole model: like devices of one node share
    /// its chunks, each with its part of every micro-batch, or several of them are shards of a replica where the profile knows
    /// layers at a tensor degree (--tensor-degrees). What is best is then min-iteration-time with the micro-batch that is named
    /// or profiled, unless --objective is min-iteration-time, which chooses it, min-peak-memory, max-batch or max-model. The
    /// options below fix what is chosen otherwise.
    #[arg(long, value_parser = choice::<v1::MemoryMode>())]
    pub(super) memory: Option<v1::MemoryMode>,

    #[command(flatten)]
    pub(super) chunks: ChunkOptions,

    /// For max-model: the models to choose from, which are the profile's with other values of one parameter, as `model
    /// create` names it: blocks=1..1000, both included, or blocks=1000 for all from 1 on.
    #[arg(long, value_name = "PARAMETER=RANGE", value_parser = grown, conflicts_with_all = ["candidate_profiles", "other_profiles"])]
    pub(super) grow: Option<v1::ModelScaling>,
}

/// `PARAMETER=FIRST..LAST`, both included, or `PARAMETER=LAST`.
fn grown(text: &str) -> Result<v1::ModelScaling, String> {
    let wrong = || "write PARAMETER=FIRST..LAST, both included, for example blocks=1..1000".to_owned();
    let (parameter, range) = text.split_once('=').ok_or_else(wrong)?;
    let (first, last) = range.split_once("..").unwrap_or(("1", range));
    let number = |text: &str| text.trim().parse::<i64>().ok().filter(|&value| value > 0).ok_or_else(wrong);
    let (first, last) = (number(first)?, number(last)?);
    if parameter.trim().is_empty() || first > last {
        return Err(wrong());
    }
    Ok(v1::ModelScaling { parameter: parameter.trim().to_owned(), min_value: first, max_value: last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::plan::recommend::Recommend;
    use crate::verbs::tests::parsed;

    fn request(options: &str) -> Result<v1::RecommendPlanRequest, clap::Error> {
        let line = format!("--profile p --devices 1x1GiB {options}");
        parsed::<Recommend>(&line).map(Recommend::request)
    }

    #[test]
    fn options_become_the_request() {
        let asked = request(
            "--memory chunks --host-memory 64GiB --copy-rates host=12GB/s --chunk-size 4M,16M,65536 --chunk-order \
             micro-batch,layer --host-parameters stored,cast --chunk-embedding host,chunk --chunk-activations host --chunk-policy static \
             --chunks-on-device 0 --host-update 150M/s --grow blocks=2..1000",
        )
        .unwrap();
        let chunks = asked.memory().chunk_options.clone().unwrap();
        assert_eq!(
            (asked.memory().mode(), asked.memory().host_memory_bytes),
            (v1::MemoryMode::Chunks, 64 << 30)
        );
        assert!(asked.memory().copy_bandwidth.is_some());
        assert_eq!(chunks.chunk_elements, [4 << 20, 16 << 20, 65_536]);
        assert!(
            chunks.micro_batch_orders().eq([v1::MicroBatchOrder::MicroBatch, v1::MicroBatchOrder::Layer])
        );
        assert!(chunks.host_parameters().eq([v1::HostParameters::Stored, v1::HostParameters::Cast]));
        assert!(chunks.embedding_places().eq([v1::EmbeddingPlace::Host, v1::EmbeddingPlace::Chunk]));
        assert!(chunks.activation_places().eq([v1::ActivationPlace::Host]));
        assert_eq!((chunks.resident_chunk_count, chunks.policy()), (Some(0), v1::ChunkPolicy::Static));
        assert_eq!(asked.memory().cpu_optimizer_rate, 150e6);
        let grow = v1::ModelScaling { parameter: "blocks".to_owned(), min_value: 2, max_value: 1000 };
        assert_eq!(asked.objective().model_scaling, Some(grow));
    }

    /// What is not said is left to the planner.
    #[test]
    fn nothing_is_fixed_unless_it_is_named() {
        let asked = request("--memory best").unwrap();
        assert_eq!((asked.memory().mode(), &asked.memory().chunk_options), (v1::MemoryMode::Best, &None));
        let plain = request("").unwrap();
        assert_eq!(
            (plain.memory(), plain.objective()),
            (&v1::MemoryOptions::default(), &v1::ObjectiveOptions::default())
        );
        let from_one = request("--grow blocks=64").unwrap().objective().model_scaling.clone().unwrap();
        assert_eq!((from_one.min_value, from_one.max_value), (1, 64));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for wrong in [
            "--chunk-size 4M",
            "--host-update 1M/s",
            "--memory chunks --chunk-size 8MiB",
            "--memory chunks --chunk-size 0",
            "--memory chunks --chunk-order both",
            "--memory chunks --chunk-embedding device",
            "--memory chunks --chunk-activations chunk",
            "--memory chunks --chunk-policy lru",
            "--memory chunks --host-update fast",
            "--memory chunks --grow blocks",
            "--memory chunks --grow =1..2",
            "--memory chunks --grow blocks=3..2",
            "--memory chunks --grow blocks=0..2",
            "--grow blocks=2 --candidate-profiles a,b",
            "--grow blocks=2 --other-profiles a,b",
            "--memory elsewhere",
        ] {
            assert!(request(wrong).is_err(), "{wrong:?}");
        }
    }
}
