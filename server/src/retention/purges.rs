//! Works off purges page by page. Any planner may delete the next page, so a purge goes on when a planner stops.

use std::sync::Arc;
use std::time::Duration;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::reason::Reason;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Rule;
use crate::store::records::{Fenced, OperationState};
use crate::store::{Collection, DuePurge, MAX_PAGE, Purged, ReferencedRow, Store, StoreError};

/// Time between two looks for purges that other planners accepted.
const POLL: Duration = Duration::from_secs(2);
/// Failed attempts in a row after which a purge ends with their error.
const MAX_FAILURES: u32 = 8;
/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Names in a line of the log.
const NAMES: usize = 50;
/// Rows of a page that the log names with their references.
const MOST_REASONS: usize = 10;

/// Purges that wait for a planner. Clones are the same.
#[derive(Debug, Clone)]
pub struct Purges {
    store: Store,
    changed: Arc<Notify>,
}

/// Why a page failed.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("{0}")]
    Invalid(#[from] Invalid),
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// Progress of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PurgeStep {
    /// There may be more to do.
    Worked,
    /// No purge is due, or another planner works on it.
    Idle,
}

impl Purges {
    pub fn new(store: Store) -> Self {
        Self { store, changed: Arc::default() }
    }

    /// A purge was stored.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Works until `stop` is cancelled. Each page is one statement, so nothing is lost where it ends.
    pub async fn run(self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            let step = tokio::select! {
                () = stop.cancelled() => return,
                step = self.step(&mut failures) => step,
            };
            let pause = match step {
                Ok(PurgeStep::Worked) => continue,
                Ok(PurgeStep::Idle) => POLL,
                Err(error) => {
                    tracing::warn!(%error, "a step of a purge failed; retrying");
                    POLL.saturating_mul(1 << failures.min(MAX_FAILURES)).min(LONGEST_PAUSE)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One page of the oldest purge. `failures` counts those in a row.
    async fn step(&self, failures: &mut u32) -> Result<PurgeStep, StoreError> {
        let Some(due) = self.store.due_purge().await? else { return Ok(PurgeStep::Idle) };
        let fault = match self.advance(&due).await {
            Ok(step) => {
                *failures = 0;
                return Ok(step);
            }
            Err(fault) => fault,
        };
        let (reason, message) = match fault {
            Fault::Store(error @ (StoreError::Unavailable(_) | StoreError::Conflict))
                if *failures < MAX_FAILURES =>
            {
                *failures = failures.saturating_add(1);
                return Err(error);
            }
            Fault::Store(error @ StoreError::Unavailable(_)) => {
                (Reason::DatabaseUnavailable, error.to_string())
            }
            Fault::Store(error @ StoreError::Conflict) => (Reason::Conflict, error.to_string()),
            Fault::Store(error) => {
                tracing::error!(operation.id = due.operation.id(), %error, "a purge failed");
                (Reason::DatabaseFailed, "the database failed. See the planner's log.".to_owned())
            }
            Fault::Invalid(invalid) => (Reason::InvalidField, invalid.to_string()),
        };
        let state =
            OperationState::Failed { code: reason.code().into(), reason: reason.to_string(), message };
        let ended = self.store.finish_operation(&due.operation, state).await?;
        *failures = 0;
        Ok(step(ended))
    }

    async fn advance(&self, due: &DuePurge) -> Result<PurgeStep, Fault> {
        let rule = Rule::of(&due.purge.settings)?;
        let at = due.purge.at.as_ref().map(|at| at.collection.as_str());
        if at == Some("") {
            return Ok(step(self.store.finish_operation(&due.operation, OperationState::Succeeded).await?));
        }
        if due.purge.candidate_count.is_none() {
            self.store.count_candidates(&due.operation, rule.age, &rule.of).await?;
            return Ok(PurgeStep::Worked);
        }
        if !due.purge.settings.force {
            let all = self.store.purgeable(rule.age, &rule.of).await?;
            return Ok(step(self.store.note_purgeable(due, &all).await?));
        }
        let position = match at {
            None => Some(0),
            Some(word) => rule.of.iter().position(|of| of.collection.word() == word),
        };
        let found = position.and_then(|position| Some((rule.of.get(position)?, rule.of.get(position + 1))));
        let Some((of, next)) = found else {
            let what = format!(
                "the stored purge {} is not valid: it continues in collection {:?}, but its request does not contain \
                 this collection",
                due.operation,
                at.unwrap_or_default()
            );
            return Err(StoreError::Corrupt { what }.into());
        };
        let next = next.map(|of| of.collection);
        let Some(page) = self.store.purge_page(due, of, next, MAX_PAGE).await? else {
            return Ok(PurgeStep::Idle);
        };
        for line in lines(of.collection, &page) {
            tracing::info!(operation.id = due.operation.id(), "{line}");
        }
        Ok(PurgeStep::Worked)
    }
}

/// Another planner was faster where nothing was applied.
fn step(done: Fenced) -> PurgeStep {
    match done {
        Fenced::Applied => PurgeStep::Worked,
        Fenced::Stale => PurgeStep::Idle,
    }
}

/// A page as lines of the log. They name all deleted rows, which nothing else names afterwards, and the first rows that stay.
fn lines(collection: Collection, page: &Purged) -> Vec<String> {
    let deleted = page.purge_sample.chunks(NAMES).map(|names| format!("deleted: {}", names.join(" ")));
    let kept = page.referenced_sample.iter().take(MOST_REASONS).map(|row| {
        let ReferencedRow { name, referenced_by, reference_count } = row;
        let more = match reference_count.saturating_sub(referenced_by.len() as u64) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("kept: {name}, referenced by {}{more}", referenced_by.join(", "))
    });
    let named = page.referenced_sample.len().min(MOST_REASONS) as u64;
    let rest = page.referenced_count.saturating_sub(named);
    let rest = (rest > 0).then(|| format!("kept: {rest} {} more", collection.word()));
    deleted.chain(kept).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All deleted rows are named; of the rows that stay the first are, with their references.
    #[test]
    fn the_log_names_deleted_rows_and_references() {
        let kept = |number: usize, reference_count| ReferencedRow {
            name: format!("plans/k{number}"),
            referenced_by: vec!["plans/a/reports/1".to_owned(), "runs/2".to_owned()],
            reference_count,
        };
        let page = Purged {
            purge_count: 120,
            referenced_count: 40,
            purge_sample: (0..120).map(|number| format!("plans/p{number}")).collect(),
            referenced_sample: (0..30).map(|number| kept(number, if number == 0 { 7 } else { 2 })).collect(),
        };
        let all = lines(Collection::Plans, &page);
        assert_eq!(all.len(), 3 + MOST_REASONS + 1);
        let deleted: Vec<&str> = all[..3].iter().flat_map(|line| line.split(' ').skip(1)).collect();
        assert_eq!(deleted, page.purge_sample);
        assert_eq!(all[3], "kept: plans/k0, referenced by plans/a/reports/1, runs/2 and 5 more");
        assert_eq!(all[4], "kept: plans/k1, referenced by plans/a/reports/1, runs/2");
        assert_eq!(all.last().unwrap(), "kept: 30 plans more");
        assert!(lines(Collection::Plans, &Purged::default()).is_empty());
    }
}
