//! States as the tables write them.

use loadmaster_proto::choice;
use loadmaster_proto::choice::Choice;
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::wire::v1;

use super::columns::Stored;
use super::error::{Result, StoreError};
use super::records::{OperationState, ProfileState, RunState, WorkerState};

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
            StoreError::corrupt(format!("a stored row cannot be read: {word:?} is no {}", Self::NAME))
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

stored!(ProfileState, RunState, Ledger, WorkerState);

choice! {
    ProfileState = v1::profile::State {
        Running = "running",
        Complete = "complete",
        Incomplete = "incomplete",
        Cancelled = "cancelled",
    }
}

choice! {
    RunState = v1::run::State {
        Queued = "queued",
        Running = "running",
        Succeeded = "succeeded",
        OutOfMemory = "out_of_memory",
        Parked = "parked",
        Cancelled = "cancelled",
    }
}

choice! {
    WorkerState = v1::worker::State {
        Alive = "alive",
        Draining = "draining",
        Lost = "lost",
        Gone = "gone",
    }
}

/// The word of an operation's state; its error has columns of its own.
pub(super) fn operation_word(state: &OperationState) -> &'static str {
    match state {
        OperationState::Running => "running",
        OperationState::Succeeded => "succeeded",
        OperationState::Failed { .. } => "failed",
        OperationState::Cancelled => "cancelled",
    }
}
