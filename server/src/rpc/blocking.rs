//! Work that would hold up the calls beside it.

use std::any::Any;

use loadmaster_search::Stop;
use tokio::task::JoinError;

use super::error::ApiError;
use crate::background::BackgroundThreads;

/// Ends work whose call is over, whoever ended it.
pub(super) struct EndsWithCall(pub(super) Stop);

impl Drop for EndsWithCall {
    fn drop(&mut self) {
        self.0.request();
    }
}

/// Runs what takes a while beside the calls: heartbeats must not wait for it. `failed` says what could not
/// be done should the work panic.
///
/// # Errors
/// Those of the work, and [`ApiError::Defect`] when it panics.
pub(super) async fn blocking<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
    failed: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError> {
    blocking_on(BackgroundThreads::shared(), failed, work).await
}

/// The same on threads of the caller's own.
///
/// # Errors
/// As there.
pub(super) async fn blocking_on<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
    threads: &BackgroundThreads,
    failed: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError> {
    match threads.spawn(work).await {
        Ok(done) => done.map_err(Into::into),
        Err(error) => Err(defect(failed, error)),
    }
}

/// What a caller learns of work that did not come to its end: that the planner is wrong, not what it was asked, and
/// not its store. The log has the rest.
fn defect(failed: &str, error: JoinError) -> ApiError {
    match error.try_into_panic() {
        Ok(panic) => {
            tracing::error!(panic = words(&*panic), "{failed} because of a defect of the planner");
            ApiError::Defect { failed: failed.to_owned() }
        }
        // Only the end of the program takes back what was begun.
        Err(_) => ApiError::Stopping,
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no words)")
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};
    use tonic_types::StatusExt;

    use super::*;

    /// A caller who is told that the store failed looks for the fault in the wrong place.
    #[tokio::test]
    async fn a_panic_has_a_reason_of_its_own() {
        let sum =
            |values: &[u8]| values.iter().fold(0_u8, |sum, value| sum.checked_add(*value).expect("room"));
        let error = blocking("a document cannot be read", move || Ok::<_, ApiError>(sum(&[200, 100]))).await;
        let status = Status::from(error.unwrap_err());
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(status.get_details_error_info().unwrap().reason, "PLANNER_DEFECT");
        assert!(status.message().starts_with("a document cannot be read"), "{status}");
        assert!(!status.message().contains("room"), "what a panic says is for the log: {status}");
    }
}
