//! How a stage trains in chunks, and what they move and hold: predicted, and measured beside it.

use loadmaster_proto::chunks::mebi;
use loadmaster_proto::training::Precision as Scalars;
use loadmaster_proto::wire::v1::chunked_stage::Residency;
use loadmaster_proto::wire::v1::{
    ChunkEviction, ChunkTraffic, ChunkedStage, EmbeddingPlace, HostParameters, Precision,
    StageMemoryOptimizations,
};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, count, plural, ratio, seconds, word};

/// Most ranges of chunks that are listed.
const MOST_RANGES: usize = 12;

/// A stage's chunks, what they are predicted to move and hold, and what they did.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageChunkFigures<'a> {
    pub(super) chunks: Option<&'a ChunkedStage>,
    pub(super) predicted: Option<&'a ChunkTraffic>,
    pub(super) measured: Option<&'a ChunkTraffic>,
    /// Number format of the parameters; none where nobody says it.
    pub(super) precision: Option<Precision>,
}

/// The stages that have chunks, one after the other; nothing where none has.
pub(super) fn of_stages<'a>(stages: impl IntoIterator<Item = StageChunkFigures<'a>>, look: Look) -> String {
    stages.into_iter().map(|stage| of_stage(&stage, look)).collect()
}

fn of_stage(stage: &StageChunkFigures<'_>, look: Look) -> String {
    let Some(chunks) = stage.chunks else { return String::new() };
    let mut facts = Facts::default();
    facts.add("in chunks", laid_out(chunks, stage.precision));
    facts
        .add("order", word(chunks.micro_batch_order().as_str_name(), "MICRO_BATCH_ORDER_").replace(' ', "-"));
    facts.add("host", on_host(chunks));
    if chunks.embedding_place() == EmbeddingPlace::Host {
        facts.add(
            "embedding",
            "table (chunk 0) in CPU memory: only the rows of a micro-batch's tokens are copied to the device",
        );
    }
    facts.add("device", on_device(chunks));
    facts.add("update", update(chunks));
    facts.render() + &amounts(stage, look)
}

/// In a few words, for plans side by side. What the stage does besides puts activations on the host.
pub fn in_short(chunks: &ChunkedStage, actions: Option<&StageMemoryOptimizations>) -> String {
    let order = word(chunks.micro_batch_order().as_str_name(), "MICRO_BATCH_ORDER_").replace(' ', "-");
    let copies = word(chunks.host_parameters().as_str_name(), "HOST_PARAMETERS_");
    let kept = plural(chunks.resident_chunks.len(), "chunk");
    let embedding = match chunks.embedding_place() {
        EmbeddingPlace::Host => ", embedding on the host",
        EmbeddingPlace::Unspecified | EmbeddingPlace::Chunk => "",
    };
    let activations = if actions.is_some() { ", activations on the host" } else { "" };
    format!(
        "{} elements, order {order}, host parameters {copies}{embedding}{activations}, {kept} always on the device",
        elements(chunks)
    )
}

fn elements(chunks: &ChunkedStage) -> String {
    mebi(chunks.chunk_elements.unsigned_abs()).to_string()
}

fn laid_out(chunks: &ChunkedStage, precision: Option<Precision>) -> String {
    let number = chunk_count(chunks).map_or_else(|| "chunks".to_owned(), |number| plural(number, "chunk"));
    let scalar = match precision {
        None => None,
        Some(Precision::Bf16) => Some(Scalars::Bf16),
        Some(Precision::Unspecified | Precision::Fp32) => Some(Scalars::Fp32),
    };
    let size =
        scalar.and_then(|of| chunks.chunk_elements.checked_mul(i64::try_from(of.scalar_bytes()).ok()?));
    let size = size.map_or_else(String::new, |size| format!(" ({} of parameters)", bytes(size)));
    let layout = word(chunks.layout().as_str_name(), "CHUNK_LAYOUT_");
    format!("{number} of {} elements{size}, {layout}; M: 2^20 elements", elements(chunks))
}

/// How many chunks there are; none where no visits are planned: each that is not always there has one.
fn chunk_count(chunks: &ChunkedStage) -> Option<i64> {
    let Some(Residency::PlannedResidency(planned)) = &chunks.residency else { return None };
    let visited = planned.intervals.iter().map(|visit| visit.chunk);
    let last = visited.chain(chunks.resident_chunks.iter().copied()).max()?;
    Some(i64::from(last).saturating_add(1)).filter(|&number| number > 0)
}

fn on_host(chunks: &ChunkedStage) -> String {
    let copies = match chunks.host_parameters() {
        HostParameters::Unspecified => "",
        HostParameters::Stored => "parameters are stored in addition to their fp32 copy; ",
        HostParameters::Cast => "parameters are cast from their fp32 copy while they are fetched; ",
    };
    let buffers = plural(chunks.staging_buffer_count, "buffer");
    format!(
        "{copies}{buffers} for copies of gradients; at most {} of CPU memory in total",
        bytes(chunks.host_memory_bytes)
    )
}

fn on_device(chunks: &ChunkedStage) -> String {
    // Those that ranks share visit besides.
    let are_shared = match &chunks.residency {
        Some(Residency::PlannedResidency(planned)) => {
            planned.intervals.iter().any(|visit| chunks.resident_chunks.contains(&visit.chunk))
        }
        _ => false,
    };
    let state = if are_shared { "each rank's part" } else { "state" };
    let kept = match chunks.resident_chunks.as_slice() {
        [] => String::new(),
        kept => {
            format!("{} with {state} always on the device ({}); ", plural(kept.len(), "chunk"), ranges(kept))
        }
    };
    let others = match &chunks.residency {
        None => "others by an unknown rule".to_owned(),
        Some(Residency::PlannedResidency(planned)) => {
            let whose = if are_shared { "all" } else { "others" };
            format!("{whose} in {}", plural(planned.intervals.len(), "planned visit"))
        }
        Some(Residency::OnDemand(_)) => "others as steps use them".to_owned(),
    };
    let unchanged = match chunks.eviction() {
        ChunkEviction::Unspecified => "",
        ChunkEviction::Discard => "; dropped where they leave unchanged",
        ChunkEviction::WriteBack => "; copied back where they leave unchanged, too",
    };
    kept + &others + unchanged
}

fn update(chunks: &ChunkedStage) -> String {
    word(chunks.cpu_optimizer_timing().as_str_name(), "CPU_OPTIMIZER_TIMING_")
}

/// Ascending numbers as ranges: `0-3, 7`.
fn ranges(numbers: &[i32]) -> String {
    let runs: Vec<&[i32]> = numbers.chunk_by(|one, next| one.checked_add(1) == Some(*next)).collect();
    let text = |run: &&[i32]| match *run {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    };
    let mut texts: Vec<String> = runs.iter().take(MOST_RANGES).map(text).collect();
    if runs.len() > MOST_RANGES {
        texts.push("and more".to_owned());
    }
    texts.join(", ")
}

/// What a run has of something.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Amount {
    Bytes(i64),
    Seconds(f64),
    Count(i64),
    /// The most bytes of all steps, and in which step.
    InStep(i64, usize),
}

impl Amount {
    fn value(self) -> f64 {
        match self {
            Self::Bytes(bytes) | Self::InStep(bytes, _) => bytes as f64,
            Self::Seconds(seconds) => seconds,
            Self::Count(count) => count as f64,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Bytes(of) => bytes(of),
            Self::Seconds(of) => seconds(of),
            Self::Count(of) => count(of),
            Self::InStep(of, step) => format!("{} in step {step}", bytes(of)),
        }
    }
}

/// What it is called, how to find it, and whether it is told where it is nothing.
type AmountRow = (&'static str, fn(&ChunkTraffic) -> Option<Amount>, bool);

const ROWS: [AmountRow; 20] = [
    ("in CPU memory", |run| Some(Amount::Bytes(run.host_bytes)), true),
    ("to the device", |run| Some(Amount::Bytes(run.fetched_bytes)), true),
    ("of those, for forward passes", forward_up, false),
    ("of those, for backward passes", |run| caused(run, run.backward_fetched_bytes), false),
    ("of those, unfinished gradients", |run| caused(run, run.partial_gradient_fetched_bytes), false),
    ("of those, rows of the embedding", |run| Some(Amount::Bytes(run.embedding_row_bytes)), false),
    ("from the device", |run| Some(Amount::Bytes(run.evicted_bytes)), true),
    ("of those, complete gradients", complete_down, false),
    ("of those, unfinished gradients", |run| caused(run, run.partial_gradient_evicted_bytes), false),
    ("of those, unchanged parameters", |run| caused(run, run.clean_evicted_bytes), false),
    ("of those, gradients of rows", |run| Some(Amount::Bytes(run.embedding_gradient_bytes)), false),
    ("parameters from other ranks", |run| Some(Amount::Bytes(run.all_gather_bytes)), false),
    ("gradients to other ranks", |run| Some(Amount::Bytes(run.reduce_scatter_bytes)), false),
    ("chunks that come with a copy", |run| Some(Amount::Count(run.fetch_count)), true),
    ("device waits for what comes", |run| timed(run, run.fetch_wait_seconds), true),
    ("device waits for what leaves", |run| timed(run, run.evict_wait_seconds), true),
    ("host updates chunks", |run| timed(run, run.cpu_optimizer_seconds), true),
    ("most besides chunks, N (allocated)", |run| most(&run.non_chunk_step_bytes), true),
    ("most of chunks, R (allocated)", |run| most(&run.chunk_step_bytes), true),
    ("most of both (allocated)", |run| most(&totals(run)), true),
];

/// What comes for nothing else.
fn forward_up(run: &ChunkTraffic) -> Option<Amount> {
    rest(
        run,
        run.fetched_bytes,
        [run.backward_fetched_bytes, run.partial_gradient_fetched_bytes, run.embedding_row_bytes],
    )
}

/// What leaves as nothing else.
fn complete_down(run: &ChunkTraffic) -> Option<Amount> {
    rest(
        run,
        run.evicted_bytes,
        [run.partial_gradient_evicted_bytes, run.clean_evicted_bytes, run.embedding_gradient_bytes],
    )
}

fn rest(run: &ChunkTraffic, all: i64, parts: [i64; 3]) -> Option<Amount> {
    let parts = parts.into_iter().fold(0_i64, i64::saturating_add);
    caused(run, all.saturating_sub(parts)).filter(|_| parts > 0)
}

/// Bytes of a cause; none where nobody says what anything comes or leaves for, as runs of before do not.
fn caused(run: &ChunkTraffic, bytes: i64) -> Option<Amount> {
    let causes = [
        run.backward_fetched_bytes,
        run.partial_gradient_fetched_bytes,
        run.partial_gradient_evicted_bytes,
        run.clean_evicted_bytes,
    ];
    let is_known = causes.iter().any(|&bytes| bytes > 0) || run.fetched_bytes == 0;
    is_known.then_some(Amount::Bytes(bytes))
}

/// Seconds of a run that was simulated or measured: predictions of given chunks have none.
fn timed(run: &ChunkTraffic, seconds: f64) -> Option<Amount> {
    let any = run.fetch_wait_seconds + run.evict_wait_seconds + run.cpu_optimizer_seconds;
    (any > 0.0).then_some(Amount::Seconds(seconds))
}

const NOTE: &str =
    "copied bytes and seconds are of one iteration; a step is a pass of one layer, and steps count from 0\n";
const REPLANNED: &str = "the training needed more memory outside chunks than the plan left free: some chunks were \
                         fetched later or evicted earlier than planned\n";

fn amounts(stage: &StageChunkFigures<'_>, look: Look) -> String {
    let runs = [stage.predicted, stage.measured];
    if runs.iter().all(Option::is_none) {
        return String::new();
    }
    let mut columns = vec![("chunks", Left), ("predicted", Right)];
    if stage.measured.is_some() {
        columns.extend([("measured", Right), ("error", Right)]);
    }
    let mut grid = Grid::new(&columns, look);
    for (name, find, _) in ROWS.into_iter().filter(|row| is_told(row, runs.into_iter().flatten())) {
        let [predicted, measured] = runs.map(|run| run.and_then(find));
        let mut cells = vec![name.to_owned(), text(predicted, look)];
        if stage.measured.is_some() {
            let error = predicted.zip(measured).and_then(|(predicted, measured)| error(predicted, measured));
            cells.extend([text(measured, look), error.map_or_else(|| look.none().to_owned(), ratio)]);
        }
        grid.rows(cells);
    }
    let replanned = stage.measured.is_some_and(|run| run.replanned);
    grid.render() + NOTE + if replanned { REPLANNED } else { "" }
}

/// Whether any of these runs has something of it.
fn is_told<'a>(&(_, find, where_nothing): &AmountRow, runs: impl Iterator<Item = &'a ChunkTraffic>) -> bool {
    runs.filter_map(find).any(|amount| where_nothing || amount.value() != 0.0)
}

fn text(amount: Option<Amount>, look: Look) -> String {
    amount.map_or_else(|| look.none().to_owned(), Amount::text)
}

/// predicted / measured − 1.
fn error(predicted: Amount, measured: Amount) -> Option<f64> {
    let (predicted, measured) = (predicted.value(), measured.value());
    (measured > 0.0).then(|| predicted / measured - 1.0).filter(|error| error.is_finite())
}

/// Bytes of the device in each step, as far as both parts are known.
fn totals(run: &ChunkTraffic) -> Vec<i64> {
    let both = run.non_chunk_step_bytes.iter().zip(&run.chunk_step_bytes);
    both.map(|(&other, &chunks)| other.saturating_add(chunks)).collect()
}

/// The most of all steps, and the first that has it.
fn most(steps: &[i64]) -> Option<Amount> {
    let highest = steps.iter().copied().max()?;
    let step = steps.iter().position(|&bytes| bytes == highest)?;
    Some(Amount::InStep(highest, step))
}

#[cfg(test)]
mod tests;
