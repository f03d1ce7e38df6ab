//! How a model lies in chunks.

use loadmaster_proto::chunks::mebi;
use loadmaster_proto::wire::v1::{
    ChunkFootprint, ChunkLayout, ChunkSizes, ChunkSpec, ComputeChunkLayoutResponse, chunk_spec,
};

use super::grid::Side::Right;
use super::grid::{Facts, Grid};
use super::training::update_rule;
use crate::Show;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, count, plural, word};

impl Show for ComputeChunkLayoutResponse {
    const TYPE: &'static str = "loadmaster.v1.ComputeChunkLayoutResponse";

    /// A size is no resource; what can be given to other commands is the best one.
    fn names(&self) -> Vec<String> {
        self.footprints.iter().filter(|of| of.best).map(|of| of.chunk_elements.to_string()).collect()
    }

    fn table(&self, look: Look) -> String {
        let spec = self.spec.unwrap_or_default();
        let mut facts = Facts::default();
        facts.add("model", &self.model);
        facts.add(
            "parameters",
            format!(
                "{} in {}, {}; the largest group has {} elements",
                count(self.parameter_count),
                plural(self.tensor_count, "tensor"),
                plural(self.parameter_group_count, "parameter group"),
                elements(self.largest_group_elements)
            ),
        );
        facts.add("training", training(&spec, self));
        facts.add("layout", layout(&spec));
        facts.add("sizes", sizes(self, &spec));
        if let Some(best) = self.footprints.iter().find(|of| of.best) {
            let is_named = !matches!(spec.size, Some(chunk_spec::Size::SizeCandidates(_)));
            facts.add(if is_named { "size" } else { "best" }, told(best, spec.rank_count));
        }
        facts.render() + "\n" + &grid(&self.footprints, look) + NOTE
    }
}

const NOTE: &str = "allocated bytes of the tensors of all chunk lists, on the device or in CPU memory; before \
                    sharding: whole chunks; after sharding: the sum over all ranks; M: 2^20 elements of each list\n";

/// Elements as the paper writes them.
fn elements(count: i64) -> String {
    mebi(count.unsigned_abs()).to_string()
}

fn training(spec: &ChunkSpec, chunks: &ComputeChunkLayoutResponse) -> String {
    let rule = update_rule(spec.optimizer.as_ref()).unwrap_or("unknown rule");
    let all = i64::from(chunks.bytes_per_parameter);
    let precision = word(spec.precision().as_str_name(), "PRECISION_");
    let text = format!("{precision}, {rule}: {all} bytes per parameter");
    let Some(size) = chunks.footprints.first().filter(|size| size.chunk_elements > 0) else { return text };
    let [own, copy] = [size.parameter_chunk_bytes, size.fp32_chunk_bytes].map(|of| of / size.chunk_elements);
    format!(
        "{text} ({own} for the parameter and later its gradient, {copy} for the fp32 copy, {} for the optimizer state)",
        all - own - copy
    )
}

fn layout(spec: &ChunkSpec) -> String {
    let word = word(spec.layout().as_str_name(), "CHUNK_LAYOUT_");
    let ranks = plural(spec.rank_count, "rank");
    let group = plural(spec.group_chunk_count, "chunk");
    match (spec.layout(), spec.rank_count) {
        (_, 1) => word,
        (ChunkLayout::Patrickstar, _) => {
            format!("{word}, {ranks}; each rank owns whole chunks of each group of {group}")
        }
        _ => format!("{word}, {ranks}; each rank owns an equal part of each group of {group}"),
    }
}

fn sizes(chunks: &ComputeChunkLayoutResponse, spec: &ChunkSpec) -> String {
    let Some(chunk_spec::Size::SizeCandidates(sizes)) = spec.size else {
        return "the named one, no others".to_owned();
    };
    let sizes = ChunkSizes::try_from(sizes).unwrap_or_default();
    let mut text = format!(
        "{}, up to {}: {} tried",
        word(sizes.as_str_name(), "CHUNK_SIZES_").replace(' ', "-"),
        elements(spec.max_chunk_elements),
        count(chunks.tried_size_count)
    );
    if chunks.too_small_size_count > 0 {
        text += &format!(", {} below the largest parameter group", count(chunks.too_small_size_count));
    }
    if i64::try_from(chunks.footprints.len()).is_ok_and(|shown| shown < chunks.tried_size_count) {
        text += &format!("; the {} best are listed", chunks.footprints.len());
    }
    text
}

fn told(best: &ChunkFootprint, ranks: i32) -> String {
    let larger = match best.oversized_chunk_count {
        0 => String::new(),
        outliers => format!(" ({} larger, of one parameter group each)", count(outliers)),
    };
    format!(
        "{} elements per chunk ({} for parameters, {} in each list of fp32 chunks): {}{larger}, {} full; {} in total \
         on {}",
        elements(best.chunk_elements),
        bytes(best.parameter_chunk_bytes),
        bytes(best.fp32_chunk_bytes),
        plural(best.chunk_count, "chunk"),
        share(best.utilization_ratio),
        bytes(best.sharded_bytes),
        plural(ranks, "rank")
    )
}

/// With the digits that chunk sizes differ in.
fn share(value: f64) -> String {
    format!("{:.2} %", value * 100.0)
}

fn grid(sizes: &[ChunkFootprint], look: Look) -> String {
    let titles = [
        "chunk size",
        "chunks",
        "mean",
        "highest",
        "before",
        "after",
        "full after",
        "per rank",
        "parameters",
        "fp32 list",
        "elements",
    ];
    let mut grid = Grid::new(&titles.map(|title| (title, Right)), look);
    for of in sizes {
        let best = if of.best { "best " } else { "" };
        let dummies = if of.padding_chunk_count > 0 {
            format!(" + {}", count(of.padding_chunk_count))
        } else {
            String::new()
        };
        grid.row([
            format!("{best}{}", elements(of.chunk_elements)),
            count(of.chunk_count) + &dummies,
            share(of.utilization_ratio),
            share(of.max_utilization_ratio),
            bytes(of.total_bytes),
            bytes(of.sharded_bytes),
            share(of.sharded_utilization_ratio),
            bytes(of.rank_bytes),
            bytes(of.parameter_chunk_bytes),
            bytes(of.fp32_chunk_bytes),
            count(of.chunk_elements),
        ]);
    }
    grid.render()
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::chunks::question::ChunkQuestion;
    use loadmaster_proto::model::zoo::{Gpt2, Zoo};
    use loadmaster_proto::wire::v1::Precision;

    use super::*;

    fn table(spec: ChunkSpec) -> (String, Vec<String>) {
        let model = Zoo::Gpt2(Gpt2 { blocks: 2, ..Gpt2::default() }).build().unwrap();
        let question = ChunkQuestion::try_from(spec).unwrap();
        let chunks = question.answer(&model).unwrap().message(&question, &model);
        (chunks.table(Look::PLAIN), chunks.names())
    }

    /// The paper's layout on four ranks, row by row: 36.8M and 0.75M of embedding, then blocks of 6.76M.
    #[test]
    fn a_row_tells_what_a_size_costs() {
        let (text, names) = table(ChunkSpec {
            layout: ChunkLayout::Patrickstar.into(),
            size: Some(chunk_spec::Size::SizeCandidates(ChunkSizes::GridA.into())),
            max_chunk_elements: 64 << 20,
            rank_count: 4,
            ..ChunkSpec::default()
        });
        assert!(text.contains(
            "training    bf16, adam: 14 bytes per parameter (2 for the parameter and later its gradient, 4 for the \
             fp32 copy, 8 for the optimizer state)\n\
             layout      patrickstar, 4 ranks; each rank owns whole chunks of each group of 4 chunks\n\
             sizes       grid-a, up to 64M: 1 tried\n"
        ), "{text}");
        assert!(
            text.contains(
                "chunk size  chunks     mean  highest      before     after  full after    per rank"
            ),
            "{text}"
        );
        assert!(text.contains(
            "best 64M   1 + 3  79.81 %  79.81 %  896.00 MiB  3.50 GiB     19.95 %  896.00 MiB  128.00 MiB  256.00 MiB"
        ), "{text}");
        assert_eq!(names, ["67108864"], "what --chunk-size takes");
    }

    #[test]
    fn larger_chunks_and_rows_that_are_missing_are_told() {
        let (text, _) =
            table(ChunkSpec { size: Some(chunk_spec::Size::ChunkElements(8 << 20)), ..ChunkSpec::default() });
        assert!(
            text.contains("sizes       the named one, no others\nsize        8M elements")
                && text.contains("(1 larger, of one parameter group each)"),
            "{text}"
        );
        let (text, names) =
            table(ChunkSpec { max_size_count: 2, precision: Precision::Fp32.into(), ..ChunkSpec::default() });
        assert!(
            text.contains("the 2 best are listed")
                && text.contains("16 bytes per parameter (4 for the parameter"),
            "{text}"
        );
        assert_eq!((text.matches(" MiB").count() > 4, names.len()), (true, 1));
    }
}
