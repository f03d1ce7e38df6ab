//! What can go wrong in the store, and the one place that reads Postgres's error codes.

use std::future::Future;
use std::time::Duration;

use sqlx::postgres::PgDatabaseError;

/// Why a store call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such row.
    #[error("{what} does not exist")]
    NotFound {
        /// Its name.
        what: String,
    },
    /// Only the names of a model's layers are known.
    #[error("{what} has no tensor shapes. Loadmaster can plan this model, but not train or show it.")]
    Opaque {
        /// Its name.
        what: String,
    },
    /// The name is taken.
    #[error("{what} already exists. {}", instead(what))]
    AlreadyExists {
        /// Its name.
        what: String,
    },
    /// The request id was used for another request.
    #[error("request_id: already used for another request. Use a new UUID.")]
    RequestIdReused,
    /// More runs wait than the planner takes.
    #[error("the queue is full: {} runs are waiting. Retry later.", super::MAX_QUEUED_RUNS)]
    QueueFull,
    /// A plan has as many reports as are kept.
    #[error("{what} has {} reports, which is the limit. Delete one first.", super::MAX_REPORTS)]
    TooManyReports {
        /// Its name.
        what: String,
    },
    /// A change would leave more labels than one thing may have.
    #[error("{what} would have more than {} labels. Remove some.", loadmaster_proto::label::MAX_LABELS)]
    TooManyLabels {
        /// Its name.
        what: String,
    },
    /// Another process has the worker's name.
    #[error(
        "{what} is already connected from host {host:?}, with its last heartbeat at {heartbeat_time}. Stop that process, or \
         give this worker another name."
    )]
    NameTaken {
        /// The name.
        what: String,
        /// Where the other process runs.
        host: String,
        /// When it was last heard of.
        heartbeat_time: jiff::Timestamp,
    },
    /// A worker cannot be deleted.
    #[error("{what} {why}")]
    WorkerInUse {
        /// Its name.
        what: String,
        /// What it is still needed for.
        why: String,
    },
    /// As many purges run as may.
    #[error("{} purges are running, which is the limit. Retry later.", super::MAX_PURGES)]
    TooManyPurges,
    /// A resource has another etag than the caller expects.
    #[error("{what} has etag {stored}, not {expected}. Read it and repeat the change.")]
    EtagMismatch {
        /// Its name.
        what: String,
        /// The etag that it has.
        stored: String,
        /// The etag of the request.
        expected: String,
    },
    /// Only ended operations can be deleted.
    #[error("{what} has not ended. Cancel it first.")]
    NotDone {
        /// Its name.
        what: String,
    },
    /// Only profiles that ended without all that they need can be resumed.
    #[error("{what} is {state}. Only an incomplete or cancelled profile can be resumed.")]
    NotResumable {
        /// Its name.
        what: String,
        /// Where it stands.
        state: &'static str,
    },
    /// Something references it.
    #[error("{what} cannot be deleted: {}. {}", named(by, *count), way_out(what, by))]
    InUse {
        /// Its name.
        what: String,
        /// References, the first of them.
        by: Vec<Dependent>,
        /// How many they are.
        count: u64,
    },
    /// A filter or an order of a list takes too long.
    #[error(
        "the list took more than {} seconds. Narrow its filter, for example by create_time, or leave out order_by.",
        super::connect::LIST_SECONDS
    )]
    ListTooSlow,
    /// Another call changed the same rows repeatedly.
    #[error("other calls changed the same rows at the same time. Retry.")]
    Conflict,
    /// Postgres does not answer for the moment; nothing is known about what was asked.
    #[error("the database does not answer: {0}")]
    Unavailable(String),
    /// A stored row cannot be read, or a report contradicts itself.
    #[error("{what}")]
    Corrupt {
        /// What and why.
        what: String,
    },
    /// The database's tables are not this program's.
    #[error("{0}")]
    Schema(String),
    /// No first connection; never holds the password.
    #[error("{0}")]
    Connect(String),
    /// Anything else that Postgres reported.
    #[error("the database rejected a statement: {0}")]
    Database(#[source] sqlx::Error),
    /// A defect of this program.
    #[error("internal error: {0}")]
    Internal(String),
}

/// A reference to a row that was to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependent {
    /// `REPORT`, `OPERATION`, `PLACEMENT`, `PLAN`, `PROFILE`, `RUN` or `TRIAL`.
    pub kind: String,
    pub name: String,
}

/// The remedy where a name is taken.
fn instead(what: &str) -> &'static str {
    if what.starts_with("clusters/") {
        "Update it with UpdateCluster, or choose another id."
    } else {
        "Choose another id, or leave it out."
    }
}

/// The first dependents and their number.
fn named(by: &[Dependent], count: u64) -> String {
    const SHOWN: usize = 3;
    let names: Vec<&str> = by.iter().take(SHOWN).map(|of| of.name.as_str()).collect();
    let verb = if count == 1 { "references" } else { "reference" };
    match count.saturating_sub(names.len() as u64) {
        0 => format!("{} {verb} it", names.join(", ")),
        more => format!("{} and {more} more {verb} it", names.join(", ")),
    }
}

/// The steps after which it can be deleted.
fn way_out(what: &str, by: &[Dependent]) -> String {
    let has = |kind: &str| by.iter().any(|of| of.kind == kind);
    let is_cluster = what.starts_with("clusters/");
    let steps = [
        (has("OPERATION"), "Cancel the operation first."),
        (
            is_cluster,
            "Set `force` to delete the cluster. Plans and their placements (mappings of ranks to devices) remain, and \
             keep the cluster's name.",
        ),
        (!is_cluster && has("PLAN"), "Delete the plans first."),
        (!is_cluster && has("PROFILE"), "Delete the profiles first."),
        (!is_cluster && has("RUN"), "Delete old runs first with PurgeHistory."),
        (
            has("TRIAL") || has("REPORT"),
            "Set `force` to delete the plan and its reports; runs of its trials remain.",
        ),
    ];
    steps.into_iter().filter(|(applies, _)| *applies).map(|(_, step)| step).collect::<Vec<_>>().join(" ")
}

/// Result of a store call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl StoreError {
    /// A missing row.
    pub(super) fn not_found(what: impl ToString) -> Self {
        Self::NotFound { what: what.to_string() }
    }

    /// A row that cannot be read.
    pub(super) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let error = match error {
            // What a record says of its own columns.
            sqlx::Error::ColumnDecode { source, .. } | sqlx::Error::Decode(source) if source.is::<Self>() => {
                return source.downcast().map_or_else(|other| Self::corrupt(other.to_string()), |own| *own);
            }
            other => other,
        };
        match &error {
            sqlx::Error::Database(database) => {
                let code = database.code().map(|code| code.into_owned()).unwrap_or_default();
                from_sqlstate(&code, error)
            }
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Unavailable(error.to_string()),
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::TypeNotFound { .. } => {
                Self::corrupt(format!("a stored row cannot be read: {error}"))
            }
            _ => Self::Database(error),
        }
    }
}

/// For records that follow from several columns of their rows.
impl From<StoreError> for sqlx::Error {
    fn from(error: StoreError) -> Self {
        Self::Decode(Box::new(error))
    }
}

/// Sorts Postgres's error codes into those that a caller can do something about.
/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn from_sqlstate(code: &str, error: sqlx::Error) -> StoreError {
    match code {
        // serialization_failure, deadlock_detected, lock_not_available
        "40001" | "40P01" | "55P03" => StoreError::Conflict,
        // query_canceled (statement time-out), admin_shutdown, crash_shutdown, cannot_connect_now,
        // idle_in_transaction_session_timeout, read_only_sql_transaction (a standby took over),
        // too_many_connections, disk_full, out_of_memory, io_error
        "57014" | "57P01" | "57P02" | "57P03" | "25P03" | "25006" | "53300" | "53100" | "53200" | "58030" => {
            StoreError::Unavailable(error.to_string())
        }
        // undefined_table, undefined_column, undefined_function
        "42P01" | "42703" | "42883" => StoreError::Schema(format!(
            "the database's tables do not match this Loadmaster. Run `loadmaster migrate`. ({error})"
        )),
        _ if code.starts_with("08") => StoreError::Unavailable(error.to_string()),
        _ => StoreError::Database(error),
    }
}

/// The error of a statement that stores what someone reported. Values that no column takes (data
/// exceptions, broken constraints) stay so however often they are sent: the report is at fault.
pub(super) fn unstorable(error: sqlx::Error, report: impl std::fmt::Display) -> StoreError {
    let code = error.as_database_error().and_then(|database| database.code());
    if code.is_some_and(|code| code.starts_with("22") || code.starts_with("23")) {
        StoreError::corrupt(format!("{report} cannot be stored: {error}"))
    } else {
        error.into()
    }
}

/// The error of a filtered or ordered list, whose statement may take too long (`query_canceled`).
pub(super) fn too_slow(error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|database| database.code());
    if code.as_deref() == Some("57014") { StoreError::ListTooSlow } else { error.into() }
}

/// The error of a statement that deletes rows, one of which was referenced at the same moment: the next look sees the reference.
pub(super) fn still_referenced(error: sqlx::Error) -> StoreError {
    match error.as_database_error() {
        Some(database) if database.is_foreign_key_violation() => StoreError::Conflict,
        _ => error.into(),
    }
}

/// Checks the etag that a caller expects, with or without its quotes; an empty one is any.
///
/// # Errors
/// [`StoreError::EtagMismatch`].
pub fn check_etag(what: impl ToString, stored: &str, expected: &str) -> Result<()> {
    let bare = |etag: &str| etag.trim_matches('"').to_owned();
    if expected.is_empty() || bare(expected) == bare(stored) {
        return Ok(());
    }
    let [stored, expected] = [stored, expected].map(|etag| format!("\"{}\"", bare(etag)));
    Err(StoreError::EtagMismatch { what: what.to_string(), stored, expected })
}

/// The constraint that a statement would have broken.
pub(super) fn broken_constraint(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?.constraint()
}

/// Times that a statement is tried which lost against concurrent ones.
const TRIES: u32 = 5;

/// Repeats what lost against concurrent statements. Each of ours is a transaction of its own, so that
/// repeating it is safe.
pub(super) async fn retry<T, F>(mut statement: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    for attempt in 1..TRIES {
        match statement().await {
            Err(StoreError::Conflict) => {
                let full = 10 << attempt;
                let pause = Duration::from_millis(rand::random_range(0..full));
                tokio::time::sleep(pause).await;
            }
            done => return done,
        }
    }
    statement().await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn conflicts_are_retried_a_bounded_number_of_times() {
        let calls = Cell::new(0);
        let result: Result<()> = retry(|| async {
            calls.set(calls.get() + 1);
            Err(StoreError::Conflict)
        })
        .await;
        assert!(matches!(result, Err(StoreError::Conflict)));
        assert_eq!(calls.get(), TRIES);
    }

    #[tokio::test]
    async fn other_errors_are_not_retried() {
        let calls = Cell::new(0);
        let result: Result<()> = retry(|| async {
            calls.set(calls.get() + 1);
            Err(StoreError::QueueFull)
        })
        .await;
        assert!(result.is_err());
        assert_eq!(calls.get(), 1);
    }
}
