//! `loadmaster model chunks`.

use clap::Args;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::chunk_spec::Size;
use loadmaster_proto::wire::v1::compute_chunk_layout_request;
use loadmaster_proto::wire::v1::create_profile_request::Subject;

use crate::failure::Failure;
use crate::input::model::ModelArgs;
use crate::input::parse::{self, AskedChunkSize, choice};
use crate::input::training::OptimizerKind;

/// See [`ModelVerb::Chunks`](super::ModelVerb::Chunks).
#[derive(Debug, Args)]
pub(crate) struct ComputeChunkLayout {
    #[command(flatten)]
    model: ModelArgs,

    /// Chunk size: `auto` for the best of --candidate-sizes; elements, for example 480M (M is 2^20, as in the paper); or the
    /// bytes of a chunk of parameters, for example 960MiB.
    #[arg(long, value_name = "SIZE", value_parser = parse::chunk_size, default_value = "auto",
          help_heading = "Chunks")]
    chunk_size: AskedChunkSize,

    /// How tensors are placed in chunks.
    #[arg(long, value_parser = choice::<v1::ChunkLayout>(), default_value = "aligned", help_heading = "Chunks")]
    chunk_layout: v1::ChunkLayout,

    /// Chunk sizes that --chunk-size auto compares [default: breakpoints].
    #[arg(long, value_parser = choice::<v1::ChunkSizes>(), help_heading = "Chunks")]
    candidate_sizes: Option<v1::ChunkSizes>,

    /// Largest chunk size that is compared, in elements [default: 512M].
    #[arg(long, value_name = "SIZE", value_parser = parse::chunk_elements, help_heading = "Chunks")]
    max_chunk_size: Option<i64>,

    /// Number of ranks that share the chunks.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse::positive(), help_heading = "Chunks")]
    ranks: i32,

    /// Number of chunks that are all-gathered and reduce-scattered together [default: 1; for patrickstar the number of
    /// ranks, of which it must be a multiple].
    #[arg(long, value_name = "N", value_parser = parse::positive(), help_heading = "Chunks")]
    chunks_per_group: Option<i32>,

    /// Number formats of parameters, gradients and activations.
    #[arg(long, value_parser = choice::<v1::Precision>(), default_value = "bf16", help_heading = "Training")]
    precision: v1::Precision,

    /// Optimizer.
    #[arg(long, value_enum, default_value_t = OptimizerKind::Adam, help_heading = "Training")]
    optimizer: OptimizerKind,

    /// For sgd: momentum; 0 needs no state [default: 0.9].
    #[arg(long, value_name = "SHARE", help_heading = "Training")]
    momentum: Option<f64>,

    /// Print at most this many sizes, the best first.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = parse::positive())]
    limit: i32,
}

impl ComputeChunkLayout {
    pub(super) fn request(&self) -> Result<v1::ComputeChunkLayoutRequest, Failure> {
        let size = match (self.chunk_size.0, self.candidate_sizes) {
            (Some(_), Some(sizes)) => {
                return Failure::usage(format!(
                    "--candidate-sizes {sizes}: candidate sizes are compared only without --chunk-size. Leave one of \
                     the two options out.",
                    sizes = loadmaster_show::choice::Choice::word(sizes)
                ));
            }
            (named, sizes) => named.or_else(|| sizes.map(|sizes| Size::SizeCandidates(sizes.into()))),
        };
        let spec = v1::ChunkSpec {
            precision: self.precision.into(),
            optimizer: Some(self.optimizer()?),
            layout: self.chunk_layout.into(),
            size,
            max_chunk_elements: self.max_chunk_size.unwrap_or_default(),
            rank_count: self.ranks,
            group_chunk_count: self.chunks_per_group.unwrap_or_default(),
            max_size_count: self.limit,
        };
        let subject = match self.model.subject()? {
            Subject::Model(name) => compute_chunk_layout_request::Subject::Model(name),
            Subject::Source(source) => compute_chunk_layout_request::Subject::Source(source),
        };
        Ok(v1::ComputeChunkLayoutRequest { subject: Some(subject), spec: Some(spec) })
    }

    fn optimizer(&self) -> Result<v1::Optimizer, Failure> {
        use v1::optimizer::Kind;
        let kind = match self.optimizer {
            OptimizerKind::Sgd => Kind::Sgd(v1::Sgd { momentum: self.momentum }),
            OptimizerKind::Adam | OptimizerKind::Adamw if self.momentum.is_some() => {
                return Failure::usage(
                    "--momentum is valid only with --optimizer sgd. Leave --momentum out.",
                );
            }
            OptimizerKind::Adam => Kind::Adam(v1::Adam::default()),
            OptimizerKind::Adamw => Kind::Adamw(v1::AdamW::default()),
        };
        Ok(v1::Optimizer { kind: Some(kind), ..v1::Optimizer::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::tests::parsed;

    fn spec(options: &str) -> Result<v1::ChunkSpec, Failure> {
        let chunks: ComputeChunkLayout = parsed(&format!("--model gpt2 {options}")).unwrap();
        Ok(chunks.request()?.spec.unwrap())
    }

    #[test]
    fn options_become_the_request() {
        let asked =
            spec("--chunk-layout patrickstar --candidate-sizes grid-b --max-chunk-size 256M --ranks 8 --optimizer sgd")
                .unwrap();
        assert_eq!((asked.layout(), asked.rank_count), (v1::ChunkLayout::Patrickstar, 8));
        assert_eq!(asked.size, Some(Size::SizeCandidates(v1::ChunkSizes::GridB.into())));
        assert_eq!(asked.max_chunk_elements, 256 << 20);
        assert_eq!(spec("--chunk-size 960MiB").unwrap().size, Some(Size::ChunkBytes(960 << 20)));
        assert_eq!(spec("").unwrap().size, None);
        assert!(spec("--chunk-size auto --candidate-sizes grid-a").is_ok());
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for (options, named) in [
            ("--chunk-size 480M --candidate-sizes grid-a", "--candidate-sizes grid-a"),
            ("--momentum 0.9", "--momentum"),
        ] {
            assert!(matches!(spec(options), Err(Failure::Usage(why)) if why.contains(named)), "{options}");
        }
    }
}
