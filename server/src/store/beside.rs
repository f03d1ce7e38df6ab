//! Reading and writing large contents beside the calls: it takes a while, and heartbeats must not wait for it.

use super::error::{Result, StoreError};

/// Runs what reads or writes a large content.
///
/// # Errors
/// Those of the work.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(StoreError::Internal(format!("a content cannot be read or written: {error}"))),
    }
}
