//! Ends operations whose runs have all ended.
//!
//! Idempotent and fenced by the operation's state, so that any planner may do it at any time, also
//! after a crash between a run's last report and the end of its operation.

use loadmaster_proto::name::OperationName;
use loadmaster_proto::reason::Reason;

use crate::profile::StoredProfile;
use crate::store::records::{Fenced, OperationState, OperationTarget, PageRequest, RunRecord, RunState};
use crate::store::{RunFilter, Store, StoreError};

/// How often runs may be added to an operation because of what the others showed. Each time something is
/// tried that was not tried before, so this is a guard and not a rule.
const MAX_ROUNDS: u32 = 8;

/// Ends every operation that is due. Trouble is logged and left for the next round.
pub(super) async fn settle_all(store: &Store) {
    let due = match store.unsettled_operations().await {
        Ok(due) => due,
        Err(error) => return tracing::warn!(%error, "could not list ended operations"),
    };
    for operation in due {
        match settle(store, &operation).await {
            // What ended and how is logged where it is stored.
            Ok(Fenced::Applied | Fenced::Stale) => {}
            Err(error) => {
                tracing::warn!(operation.id = operation.id(), %error, "could not end an operation");
            }
        }
    }
}

async fn settle(store: &Store, name: &OperationName) -> Result<Fenced, StoreError> {
    let operation = store.get_operation(name).await?;
    match &operation.target {
        OperationTarget::Profile(profile) => {
            let (_, profile) = StoredProfile::load(store, profile).await?;
            let attempts = store.profile_attempts(&profile.settings.name).await?;
            // Whatever would be added would fail alike.
            let rounds = if operation.stopped.is_some() { MAX_ROUNDS } else { operation.rounds };
            // A long model has many runs, each of which is hashed: heartbeats must not wait for it.
            let judge = move || {
                let more = if rounds < MAX_ROUNDS { profile.follow_up(&attempts) } else { Vec::new() };
                let missing = profile.missing().unwrap_or_else(|error| vec![error.to_string()]);
                (more, missing, profile.measurements.is_empty())
            };
            let (more, mut missing, is_empty) = tokio::task::spawn_blocking(judge)
                .await
                .map_err(|error| StoreError::Internal(format!("a profile cannot be checked: {error}")))?;
            if !more.is_empty() {
                tracing::info!(operation.id = name.id(), runs = more.len(), "added runs to a profile");
                return match store.continue_profile(name, rounds, &more).await? {
                    // It goes on, and ends another time.
                    Fenced::Applied | Fenced::Stale => Ok(Fenced::Stale),
                };
            }
            if let Some(message) = operation.stopped {
                missing.insert(0, message.clone());
                let failed = Reason::RunFailed;
                let (code, reason) = (failed.code().into(), failed.to_string());
                let error = OperationState::Failed { code, reason, message };
                return store.fail_profile_operation(name, &error, &missing).await;
            }
            if is_empty {
                let failed = first_failure(store, name).await?;
                return store.finish_operation(name, failed).await;
            }
            if !missing.is_empty()
                && let OperationState::Failed { reason, message, .. } = first_failure(store, name).await?
            {
                missing.insert(0, format!("{reason}: {message}"));
            }
            store.finish_profile_operation(name, &missing).await
        }
        // It has no runs: planners work on it elsewhere.
        OperationTarget::Purge(_) => Ok(Fenced::Stale),
        // It ends with its process.
        OperationTarget::Search(_) => Ok(Fenced::Stale),
        OperationTarget::Plan(_) | OperationTarget::Links => {
            let state = if operation.runs.succeeded > 0 {
                OperationState::Succeeded
            } else {
                first_failure(store, name).await?
            };
            store.finish_operation(name, state).await
        }
    }
}

/// Why an operation has nothing to show: the newest failed run's last failure.
async fn first_failure(store: &Store, name: &OperationName) -> Result<OperationState, StoreError> {
    let filter = RunFilter { operation: Some(name.clone()), ..RunFilter::default() };
    let page = store.list_runs(&filter, &PageRequest { size: 1_000, after: None }).await?;
    let failed = |run: &&RunRecord| matches!(run.state, RunState::OutOfMemory | RunState::Failed);
    let Some(run) = page.rows.iter().find(failed) else {
        return Ok(OperationState::Cancelled);
    };
    let message = run.failures.last().map_or("failed", |last| last.failure.message.as_str());
    Ok(match run.state {
        RunState::OutOfMemory => OperationState::Failed {
            code: Reason::OutOfMemory.code().into(),
            reason: Reason::OutOfMemory.as_str().to_owned(),
            message: format!("{} ran out of memory: {message}", run.name),
        },
        _ => OperationState::Failed {
            code: Reason::RunFailed.code().into(),
            reason: Reason::RunFailed.as_str().to_owned(),
            message: format!("{} failed {} times. Last error: {message}", run.name, run.attempts),
        },
    })
}
