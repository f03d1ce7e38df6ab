//! Profiles as documents: out of this planner, and into it.
//!
//! A document is checked by its domain type
//! ([`ProfileDocument`](loadmaster_proto::profile::document::ProfileDocument)); here it becomes a stored profile, or
//! is made of one.

mod export;
mod import;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::profile::document::DocumentError;

use crate::store::StoreError;
pub use export::export;
pub use import::Import;

/// Why a document is not taken, or none can be made.
#[derive(Debug, thiserror::Error)]
pub enum DocumentFault {
    /// The document is not valid; paths are those of its keys.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The store refused.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A profile that is not complete has no document.
    #[error("{profile} is not complete, so it has no document: see `loadmaster profile show {profile}`")]
    NotComplete { profile: String },
    /// A profile with more measurements than a document holds.
    #[error("{profile} cannot be exported: {why}")]
    TooLarge {
        profile: String,
        /// How much too large it is.
        why: DocumentError,
    },
}
