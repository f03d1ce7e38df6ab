//! Stages in chunks as they are printed.

use loadmaster_proto::wire::v1::{
    ChunkLayout, CpuOptimizerTiming, MicroBatchOrder, OnDemandPaging, ResidencyInterval, ResidencyPlan,
};

use super::*;

const MIB: i64 = 1 << 20;

/// Four chunks of 4M elements, the first and the last with their state on the device.
fn stage() -> ChunkedStage {
    let visit =
        |chunk, fetched| ResidencyInterval { chunk, prefetch_step: fetched, ..ResidencyInterval::default() };
    ChunkedStage {
        layout: ChunkLayout::Aligned.into(),
        chunk_elements: 4 << 20,
        micro_batch_order: MicroBatchOrder::MicroBatch.into(),
        host_parameters: HostParameters::Cast.into(),
        staging_buffer_count: 2,
        eviction: ChunkEviction::Discard.into(),
        cpu_optimizer_timing: CpuOptimizerTiming::OnArrival.into(),
        embedding_place: EmbeddingPlace::Chunk.into(),
        resident_chunks: vec![0, 3],
        residency: Some(Residency::PlannedResidency(ResidencyPlan {
            intervals: vec![visit(1, 0), visit(2, 1), visit(1, 4)],
        })),
        host_memory_bytes: 1 << 30,
    }
}

fn run() -> ChunkTraffic {
    ChunkTraffic {
        non_chunk_step_bytes: vec![100 * MIB, 300 * MIB, 200 * MIB],
        chunk_step_bytes: vec![64 * MIB, 32 * MIB, 256 * MIB],
        host_bytes: 640 * MIB,
        fetched_bytes: 24 * MIB,
        evicted_bytes: 16 * MIB,
        fetch_count: 3,
        fetch_wait_seconds: 0.25,
        cpu_optimizer_seconds: 1.5,
        ..ChunkTraffic::default()
    }
}

fn table(chunks: &ChunkedStage, predicted: Option<&ChunkTraffic>, measured: Option<&ChunkTraffic>) -> String {
    let precision = Some(Precision::Bf16);
    of_stages([StageChunkFigures { chunks: Some(chunks), predicted, measured, precision }], Look::PLAIN)
}

#[test]
fn how_a_stage_trains_and_what_that_takes_are_told_with_units() {
    assert_eq!(
        table(&stage(), Some(&run()), None),
        "in chunks  4 chunks of 4M elements (8.00 MiB of parameters), aligned; M: 2^20 elements\n\
         order      micro-batch\n\
         host       parameters are cast from their fp32 copy while they are fetched; 2 buffers for copies of \
         gradients; at most 1.00 GiB of CPU memory in total\n\
         device     2 chunks with state always on the device (0, 3); others in 3 planned visits; dropped where they leave \
         unchanged\n\
         update     on arrival\n\
         chunks                                         predicted\n\
         in CPU memory                                 640.00 MiB\n\
         to the device                                  24.00 MiB\n\
         from the device                                16.00 MiB\n\
         chunks that come with a copy                           3\n\
         device waits for what comes                     250.0 ms\n\
         device waits for what leaves                         0 s\n\
         host updates chunks                               1.50 s\n\
         most besides chunks, N (allocated)  300.00 MiB in step 1\n\
         most of chunks, R (allocated)       256.00 MiB in step 2\n\
         most of both (allocated)            456.00 MiB in step 2\n"
            .to_owned()
            + NOTE
    );
}

/// What was measured stands beside its prediction, and what several ranks exchange only where there is any.
#[test]
fn measured_amounts_stand_beside_predicted_ones() {
    let measured = ChunkTraffic {
        non_chunk_step_bytes: Vec::new(),
        chunk_step_bytes: Vec::new(),
        all_gather_bytes: 5 * MIB,
        fetch_wait_seconds: 0.5,
        replanned: true,
        ..run()
    };
    let text = table(&stage(), Some(&run()), Some(&measured));
    let row = |name: &str| {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}:\n{text}"));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).skip(1).collect::<Vec<_>>()
    };
    assert_eq!(row("chunks "), ["predicted", "measured", "error"]);
    assert_eq!(row("device waits for what comes"), ["250.0 ms", "500.0 ms", "-50.0 %"]);
    assert_eq!(row("to the device"), ["24.00 MiB", "24.00 MiB", "+0.0 %"]);
    assert_eq!(row("parameters from other ranks"), ["0 B", "5.00 MiB", "-100.0 %"]);
    assert_eq!(row("most of both"), ["456.00 MiB in step 2", "-", "-"]);
    assert!(!text.contains("gradients to other ranks") && text.ends_with(REPLANNED), "{text}");
}

/// What bytes move for is told where it is more than one thing.
#[test]
fn bytes_are_told_by_their_cause() {
    let predicted = ChunkTraffic {
        backward_fetched_bytes: 8 * MIB,
        partial_gradient_fetched_bytes: 4 * MIB,
        partial_gradient_evicted_bytes: 5 * MIB,
        clean_evicted_bytes: MIB,
        ..run()
    };
    let measured = ChunkTraffic { backward_fetched_bytes: 10 * MIB, ..predicted.clone() };
    let text = table(&stage(), Some(&predicted), Some(&measured));
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("of those, "))
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(
        rows,
        [
            ["of those, for forward passes", "12.00 MiB", "10.00 MiB", "+20.0 %"],
            ["of those, for backward passes", "8.00 MiB", "10.00 MiB", "-20.0 %"],
            ["of those, unfinished gradients", "4.00 MiB", "4.00 MiB", "+0.0 %"],
            ["of those, complete gradients", "10.00 MiB", "10.00 MiB", "+0.0 %"],
            ["of those, unfinished gradients", "5.00 MiB", "5.00 MiB", "+0.0 %"],
            ["of those, unchanged parameters", "1.00 MiB", "1.00 MiB", "+0.0 %"],
        ]
    );
    assert!(!table(&stage(), Some(&run()), None).contains("of those"));
}

/// Of a table on the host it is said where it is, and what of it moves.
#[test]
fn an_embedding_on_the_host_is_told() {
    let chunks = ChunkedStage { embedding_place: EmbeddingPlace::Host.into(), ..stage() };
    let run = ChunkTraffic { embedding_row_bytes: 3 * MIB, embedding_gradient_bytes: MIB, ..run() };
    let text = table(&chunks, Some(&run), None);
    for line in [
        "embedding  table (chunk 0) in CPU memory: only the rows of a micro-batch's tokens are copied to the device",
        "of those, rows of the embedding                 3.00 MiB",
        "of those, gradients of rows                     1.00 MiB",
    ] {
        assert!(text.lines().any(|told| told == line), "{line}:\n{text}");
    }
    assert!(in_short(&chunks, None).contains("embedding on the host"));
    assert!(!in_short(&stage(), None).contains("embedding"));
}

/// Side by side with others a plan says that its activations are on the host.
#[test]
fn activations_on_the_host_are_told_in_short() {
    let actions = loadmaster_proto::wire::v1::StageMemoryOptimizations::default();
    assert!(in_short(&stage(), Some(&actions)).contains("activations on the host"));
    assert!(!in_short(&stage(), None).contains("activations"));
}

/// Of chunks that a rule pages nobody knows how many they are; of a format that nobody names, how large.
#[test]
fn what_cannot_be_known_is_not_told() {
    let paging = OnDemandPaging {};
    let paged =
        ChunkedStage { residency: Some(Residency::OnDemand(paging)), resident_chunks: Vec::new(), ..stage() };
    let stage = StageChunkFigures { chunks: Some(&paged), predicted: None, measured: None, precision: None };
    let text = of_stages([stage], Look::PLAIN);
    assert!(text.starts_with("in chunks  chunks of 4M elements, aligned; M:"), "{text}");
    assert!(text.contains("others as steps use them"), "{text}");
    assert!(!text.contains("predicted"), "{text}");
    assert_eq!(
        of_stages([StageChunkFigures { chunks: None, predicted: Some(&run()), ..stage }], Look::PLAIN),
        ""
    );
}

#[test]
fn chunks_that_follow_each_other_are_a_range() {
    assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    assert_eq!(ranges(&(0..100).step_by(2).collect::<Vec<_>>()).matches(", ").count(), MOST_RANGES);
    assert!(ranges(&[i32::MAX, i32::MIN]).contains(','));
}

#[test]
fn strange_numbers_are_told_somehow() {
    let wild = ChunkTraffic {
        non_chunk_step_bytes: vec![i64::MAX, i64::MIN],
        chunk_step_bytes: vec![i64::MAX],
        fetch_wait_seconds: f64::NAN,
        fetched_bytes: i64::MIN,
        ..ChunkTraffic::default()
    };
    let mut chunks = ChunkedStage { chunk_elements: i64::MAX, staging_buffer_count: -1, ..stage() };
    assert!(table(&chunks, Some(&wild), Some(&wild)).contains("most of both"));
    chunks.residency = Some(Residency::PlannedResidency(ResidencyPlan::default()));
    chunks.resident_chunks = vec![-5];
    assert_eq!(chunk_count(&chunks), None);
    assert!(table(&ChunkedStage::default(), Some(&wild), None).starts_with("in chunks"));
}

/// Of what ranks share each has its part for good, and the whole in visits.
#[test]
fn parts_of_shared_chunks_are_told() {
    let told = table(&ChunkedStage { resident_chunks: vec![1, 2], ..stage() }, None, None);
    assert!(
        told.contains("2 chunks with each rank's part always on the device (1-2); all in 3 planned visits"),
        "{told}"
    );
}
