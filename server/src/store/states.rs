//! States as the tables write them, and the log line of an operation that has ended.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::choice;
use loadmaster_proto::choice::Choice;
use loadmaster_proto::name::OperationName;
use loadmaster_proto::wire::v1;

use super::Store;
use super::columns::Stored;
use super::error::{Result, StoreError};
use super::records::{OperationRecord, OperationState, OperationTarget, ProfileState, RunState, WorkerState};

/// A state or choice that the tables write as a word.
pub(super) trait Word: Sized {
    /// The word in the table.
    fn to_sql(self) -> &'static str;
    /// From the word in the table.
    fn from_sql(word: &str) -> Result<Self>;
}

impl<T: Choice> Word for T {
    fn to_sql(self) -> &'static str {
        self.word()
    }

    fn from_sql(word: &str) -> Result<Self> {
        Self::parse(word).map_err(|_| {
            StoreError::corrupt(format!(
                "a stored row cannot be read: {word:?} is not a value of {}",
                Self::NAME
            ))
        })
    }
}

/// Columns of these types.
macro_rules! stored {
    ($($type:ident),+) => {$(
        impl TryFrom<Stored<String>> for $type {
            type Error = StoreError;

            fn try_from(Stored(word): Stored<String>) -> Result<Self> {
                Self::from_sql(&word)
            }
        }
    )+};
}

stored!(ProfileState, RunState, Accounting, WorkerState);

choice! { ProfileState = v1::profile::State { Running, Complete, Incomplete, Cancelled } }

choice! {
    RunState = v1::run::State {
        Queued, Running, Succeeded, OutOfMemory = "out_of_memory", Failed, Cancelled,
    }
}

choice! { WorkerState = v1::worker::State { Alive, Cordoned, Lost, Gone } }

/// The word of an operation's state; its error has columns of its own.
pub(super) fn operation_word(state: &OperationState) -> &'static str {
    match state {
        OperationState::Running => "running",
        OperationState::Succeeded => "succeeded",
        OperationState::Failed { .. } => "failed",
        OperationState::Cancelled => "cancelled",
    }
}

impl Store {
    /// Logs an operation that has just ended. That it cannot be reread is no reason to fail.
    pub(super) async fn tell_ended(&self, name: &OperationName) {
        match self.ending(name).await {
            Ok((record, outcome)) => tell(&record, outcome),
            Err(error) => tracing::info!(operation.id = name.id(), %error, "operation ended"),
        }
    }

    async fn ending(&self, name: &OperationName) -> Result<(OperationRecord, &'static str)> {
        let record = self.get_operation(name).await?;
        let outcome = match (&record.state, &record.target) {
            (OperationState::Succeeded, OperationTarget::Profile(profile)) => {
                match self.get_profile(profile).await?.state {
                    ProfileState::Incomplete => "incomplete",
                    ProfileState::Complete | ProfileState::Running | ProfileState::Cancelled => "succeeded",
                }
            }
            (
                OperationState::Succeeded,
                OperationTarget::Plan(_)
                | OperationTarget::Links
                | OperationTarget::Purge(_)
                | OperationTarget::Search(_),
            ) => "succeeded",
            (OperationState::Failed { .. }, _) => "failed",
            (OperationState::Cancelled, _) => "cancelled",
            (OperationState::Running, _) => "running",
        };
        Ok((record, outcome))
    }
}

fn tell(record: &OperationRecord, outcome: &str) {
    let (kind, target) = match &record.target {
        OperationTarget::Profile(name) => ("profile", name.to_string()),
        OperationTarget::Plan(name) => ("trial", name.to_string()),
        OperationTarget::Links => ("links", String::new()),
        OperationTarget::Purge(_) => ("purge", String::new()),
        OperationTarget::Search(search) => ("search", search.plan.clone().unwrap_or_default()),
    };
    let (reason, why) = match &record.state {
        OperationState::Failed { reason, message, .. } => (Some(reason), Some(message)),
        OperationState::Running | OperationState::Succeeded | OperationState::Cancelled => (None, None),
    };
    let end = record.end_time.unwrap_or(record.create_time);
    tracing::info!(
        operation.id = record.name.id(),
        kind,
        target,
        outcome,
        reason,
        why,
        seconds = end.duration_since(record.create_time).as_secs_f64(),
        runs = record.runs.total(),
        succeeded = record.runs.succeeded,
        "operation ended"
    );
}
