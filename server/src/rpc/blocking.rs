//! Work that would hold up the calls beside it.

use super::error::ApiError;
use crate::store::StoreError;

/// Runs what takes a while beside the calls: heartbeats must not wait for it. `failed` says what could not
/// be done should the work panic.
///
/// # Errors
/// Those of the work.
pub(super) async fn blocking<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
    failed: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| StoreError::Internal(format!("{failed}: {error}")))?
        .map_err(Into::into)
}
