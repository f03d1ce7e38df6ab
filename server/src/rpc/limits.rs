//! What callers may ask for, each with its reason, and the checks that several services share.
//!
//! Other limits are beside what keeps them. What a peer may hold on to is in `transport`, how large a profile, a plan or a name
//! may be in `proto` and `planning`. What a question about plans may ask for is in `plan`.

use std::time::Duration;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::wire::field;

/// Bytes of a request of clients, which are small but for documents and the workers' stream.
pub(super) const MAX_REQUEST_BYTES: usize = 4 << 20;
/// Characters of what an error says: it travels in HTTP headers, which have little room.
pub(super) const MAX_ERROR_CHARACTERS: usize = 2_000;

/// Memory that a worker may offer of its host: sums over many runs still have room.
pub(super) const MAX_HOST_MEMORY: Bytes = Bytes(1 << 50);

/// Rows of a page where the caller does not say.
pub(super) const DEFAULT_PAGE_ROWS: u32 = 50;
/// Rows of a page: each is a row of the database, read at once.
pub(super) const MAX_PAGE_ROWS: u32 = 1_000;
/// Rows of a page of whole resources: each is read by itself.
pub(super) const MAX_PAGE_WHOLE: u32 = 100;
/// Models of a page: rows count layers, of which a model may have 10,000.
pub(super) const MAX_PAGE_MODELS: u32 = 200;
/// Link measurements of a page: one may be of every pair of 64 devices at 16 sizes.
pub(super) const MAX_PAGE_LINKS: u32 = 16;
/// Bytes of an encoded page, well below what clients take. A row that is longer by itself comes alone.
pub(super) const MAX_PAGE_BYTES: usize = 1 << 20;
/// Bytes of a page token that is read: longer ones are not ours.
pub(super) const MAX_TOKEN_BYTES: usize = 8_192;
/// Bytes of link measurements in an operation's response: it must fit into a message.
pub(super) const MAX_ANSWERED_LINKS: Bytes = Bytes(12 << 20);
/// What a profile lacks, as lists show it: one of a long model may lack thousands of things.
pub(super) const MAX_LISTED_MISSING: usize = 10;

/// Workers that are looked at for a question, the newest first: a page of the store.
pub(super) const MAX_WORKERS: u32 = 1_000;
/// Ways to share a stage that a request names: there are three.
pub(super) const MAX_PARALLELISMS: usize = 16;

/// Longest search of one call: a call ends after a minute.
pub(super) const MAX_SEARCH_TIME: Duration = Duration::from_secs(50);

/// Longest search of an operation.
pub(super) const MAX_LONG_SEARCH_TIME: Duration = Duration::from_secs(3_600);

/// Streams of changes at once, of all callers together.
pub(super) const MAX_CHANGE_STREAMS: usize = 256;
/// Longest time of such a stream. Its caller opens another.
pub(super) const MAX_STREAM_TIME: Duration = Duration::from_secs(3_600);

/// Wait of one `WaitOperation`, half of what a call may take; a caller that wants more calls again.
pub(super) const MAX_OPERATION_WAIT: Duration = Duration::from_secs(30);

/// Documents that are read at once, however many cores there are: each takes up to a quarter of a gigabyte.
pub(super) const MAX_IMPORTS: usize = 2;
/// Calls that wait for their turn to have a document read: each holds its document.
pub(super) const MAX_WAITING_IMPORTS: usize = 16;
/// How long such a call waits, before it is told to come again.
pub(super) const MAX_IMPORT_WAIT: Duration = Duration::from_secs(10);

/// How long a new stream of a worker may take to introduce itself: until then no one knows whose it is.
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages that wait for a worker to read them: one that reads none of so many is not there.
pub(super) const MAX_OUTBOX: usize = 64;
/// Training commands that a worker may offer: they are stored, and compared with every claim.
pub(super) const MAX_COMMANDS: usize = 64;
/// Bytes of a text in which a worker describes itself: a line of a list.
pub(super) const MAX_WORKER_TEXT: usize = 256;
/// Cores, and threads of a rank, that are believed of a worker: more than any machine has.
pub(super) const MAX_CORES: u32 = 1 << 16;

/// Limit of one attempt of a run where the caller does not say.
const DEFAULT_RUN_SECONDS: f64 = 600.0;
/// Limit of one attempt of a run, a day: it holds its devices for as long.
const MAX_RUN_SECONDS: f64 = 86_400.0;

/// The hard limit of one attempt in seconds, rounded up.
///
/// # Errors
/// When it is shorter than a second or longer than a day.
pub(super) fn run_seconds(limit: Option<prost_types::Duration>) -> Result<u32, Invalid> {
    let limit: Option<f64> = field("run_time_limit", limit)?;
    let seconds = limit.unwrap_or(DEFAULT_RUN_SECONDS);
    if (1.0..=MAX_RUN_SECONDS).contains(&seconds) {
        // Within the range of the type by the check.
        return Ok(seconds.ceil() as u32);
    }
    Err(Invalid::field(
        "run_time_limit",
        format!("{seconds} s is out of range. Use 1 s to {MAX_RUN_SECONDS} s (24 h)."),
    ))
}

/// A count where 0 means `default`.
///
/// # Errors
/// When it is negative or above `max`.
pub(super) fn count_or(field: &str, value: i32, default: u32, max: u32) -> Result<u32, Invalid> {
    match u32::try_from(value) {
        Ok(0) => Ok(default),
        Ok(value) => in_range(field, value, 1..=max),
        Err(_) => Err(Invalid::field(field, format!("{value} is out of range. Use 1 to {max}."))),
    }
}
