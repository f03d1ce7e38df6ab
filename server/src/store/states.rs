//! States as the tables write them.

use loadmaster_proto::ledger::Ledger;

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

/// Writes both directions once, so that they cannot disagree.
macro_rules! words {
    ($type:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl Word for $type {
            fn to_sql(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            fn from_sql(word: &str) -> Result<Self> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(StoreError::corrupt(format!(
                        concat!("a stored row cannot be read: {:?} is no ", stringify!($type)), word
                    ))),
                }
            }
        }

        impl TryFrom<Stored<String>> for $type {
            type Error = StoreError;

            fn try_from(Stored(word): Stored<String>) -> Result<Self> {
                Self::from_sql(&word)
            }
        }
    };
}

words!(ProfileState {
    Running = "running",
    Complete = "complete",
    Incomplete = "incomplete",
    Cancelled = "cancelled",
});
words!(RunState {
    Queued = "queued",
    Running = "running",
    Succeeded = "succeeded",
    OutOfMemory = "out_of_memory",
    Parked = "parked",
    Cancelled = "cancelled",
});
words!(Ledger { Allocated = "allocated", Reserved = "reserved", Device = "device" });
words!(WorkerState { Alive = "alive", Draining = "draining", Lost = "lost", Gone = "gone" });

/// The word of an operation's state; its error has columns of its own.
pub(super) fn operation_word(state: &OperationState) -> &'static str {
    match state {
        OperationState::Running => "running",
        OperationState::Succeeded => "succeeded",
        OperationState::Failed { .. } => "failed",
        OperationState::Cancelled => "cancelled",
    }
}
