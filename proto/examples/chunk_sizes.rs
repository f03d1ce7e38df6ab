//! How long choosing a chunk size takes, and what it saves: `cargo run --release -p loadmaster-proto --example chunk_sizes`.
//!
//! BERT in sizes that PatrickStar was measured at, and AmoebaNet-D, whose many small modules make the most sizes; on eight
//! ranks, from the model on: listing its tensors is timed too.

#![expect(clippy::print_stdout, reason = "its table is what it is for")]

use std::time::{Duration, Instant};

use loadmaster_proto::chunks::mebi;
use loadmaster_proto::chunks::packing::ChunkLayout;
use loadmaster_proto::chunks::question::ChunkQuestion;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{AmoebaNet, Bert, Zoo};
use loadmaster_proto::wire::v1;

/// Name, hidden size and blocks.
const BERTS: [(&str, i64, i64); 6] = [
    ("1B", 2048, 20),
    ("10B", 4096, 50),
    ("18B", 4096, 90),
    ("20B", 8192, 25),
    ("60B", 8192, 75),
    ("68B", 9216, 66),
];
/// Runs whose median is printed.
const RUNS: usize = 21;

fn main() -> Result<(), Invalid> {
    println!("model   layout         tried  chunk size  chunks  mean      after sharding  median");
    for (name, hidden_size, blocks) in BERTS {
        let heads = hidden_size / 128;
        let options =
            Bert { blocks, hidden_size, heads, sequence_length: 1024, positions: 1024, ..Bert::default() };
        measure(name, &Zoo::Bert(options).build()?)?;
    }
    let amoebanet = AmoebaNet { cells: 72, filters: 512, ..AmoebaNet::default() };
    measure("Amoeba", &Zoo::AmoebaNetD(amoebanet).build()?)
}

fn measure(name: &str, model: &Model) -> Result<(), Invalid> {
    for layout in ChunkLayout::ALL {
        let layout_sent = v1::ChunkLayout::from(layout).into();
        let spec = v1::ChunkSpec { layout: layout_sent, rank_count: 8, ..v1::ChunkSpec::default() };
        let question = ChunkQuestion::try_from(spec)?;
        let mut taken = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            let start = Instant::now();
            std::hint::black_box(question.answer(model)?);
            taken.push(start.elapsed());
        }
        taken.sort_unstable();
        let median: Duration = taken[RUNS / 2];
        let answer = question.answer(model)?;
        let Some(best) = answer.best() else { continue };
        println!(
            "{name:<6}  {layout:<12}  {:>6}  {:>10}  {:>6}  {:>6.2} %  {:>12.2} %  {median:.1?}",
            answer.sizes.tried,
            mebi(best.chunk_elements).to_string(),
            best.chunks,
            100.0 * best.utilisation(),
            100.0 * best.sharded_utilisation(),
        );
    }
    Ok(())
}
