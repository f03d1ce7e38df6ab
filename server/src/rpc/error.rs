//! What callers learn of an error: a code, a stable reason and the details that belong to it.
//!
//! Every error carries `google.rpc.ErrorInfo`. Reasons never change their meaning; README lists them.

use std::collections::HashMap;
use std::time::Duration;

use loadmaster_proto::error::Invalid;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::planning::campaign::CampaignError;
use crate::planning::recommend::RecommendError;
use crate::store::StoreError;

/// Domain of every `ErrorInfo`.
pub const DOMAIN: &str = "loadmaster.dev";

/// How long callers should wait when the planner cannot answer for the moment.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a call was refused.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The request is not valid.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The store refused.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// No campaign can be laid out.
    #[error("{0}")]
    Campaign(#[from] CampaignError),
    /// No plan can be recommended.
    #[error("{0}")]
    Recommend(#[from] RecommendError),
    /// A worker speaks another protocol.
    #[error(
        "the worker speaks protocol version {theirs}, this planner speaks {ours}: install the same Loadmaster version on both"
    )]
    ProtocolVersion {
        /// The worker's.
        theirs: i32,
        /// The planner's.
        ours: i32,
    },
    /// No device can be named for a profile.
    #[error(
        "no worker is connected, so no kind of device is known: start loadmaster-worker, or name device_kind"
    )]
    NoWorker,
    /// Predictions need measurements that are not there.
    #[error("{profile} cannot answer: {why}")]
    ProfileIncomplete {
        /// The profile.
        profile: String,
        /// What is missing.
        why: String,
    },
    /// Waiters may take up half of the calls that the planner answers at once.
    #[error("too many callers wait for operations: poll with GetOperation, or wait again later")]
    TooManyWaiters,
    /// The planner is stopping.
    #[error("the planner is stopping")]
    Stopping,
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let message = error.to_string();
        match error {
            ApiError::Invalid(invalid) => invalid_argument(message, &invalid),
            ApiError::Store(error) => store_status(error, message),
            ApiError::Campaign(error) => campaign_status(&error, message),
            ApiError::Recommend(error) => recommend_status(error, message),
            ApiError::ProtocolVersion { theirs, ours } => with_reason(
                Code::FailedPrecondition,
                message,
                "PROTOCOL_VERSION_UNSUPPORTED",
                [("worker", theirs.to_string()), ("planner", ours.to_string())],
            ),
            ApiError::NoWorker => with_reason(Code::FailedPrecondition, message, "NO_WORKER", []),
            ApiError::ProfileIncomplete { profile, .. } => {
                with_reason(Code::FailedPrecondition, message, "PROFILE_INCOMPLETE", [("profile", profile)])
            }
            ApiError::TooManyWaiters => {
                let mut details = details("TOO_MANY_WAITERS", []);
                details.set_retry_info(Some(RETRY_AFTER));
                Status::with_error_details(Code::ResourceExhausted, message, details)
            }
            ApiError::Stopping => unavailable(message, "STOPPING"),
        }
    }
}

fn details<const N: usize>(reason: &str, metadata: [(&str, String); N]) -> ErrorDetails {
    let metadata: HashMap<String, String> =
        metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    ErrorDetails::with_error_info(reason, DOMAIN, metadata)
}

fn with_reason<const N: usize>(
    code: Code,
    message: String,
    reason: &str,
    metadata: [(&str, String); N],
) -> Status {
    Status::with_error_details(code, message, details(reason, metadata))
}

fn invalid_argument(message: String, invalid: &Invalid) -> Status {
    let mut details = details("INVALID_FIELD", []);
    for violation in invalid.violations() {
        details.add_bad_request_violation(&violation.field, &violation.description);
    }
    Status::with_error_details(Code::InvalidArgument, message, details)
}

fn unavailable(message: String, reason: &str) -> Status {
    let mut details = details(reason, []);
    details.set_retry_info(Some(RETRY_AFTER));
    Status::with_error_details(Code::Unavailable, message, details)
}

fn store_status(error: StoreError, message: String) -> Status {
    match error {
        StoreError::NotFound { what } => {
            with_reason(Code::NotFound, message, "NOT_FOUND", [("resource", what)])
        }
        StoreError::AlreadyExists { what } => {
            with_reason(Code::AlreadyExists, message, "ALREADY_EXISTS", [("resource", what)])
        }
        StoreError::RequestIdReused => invalid_argument(
            message,
            &Invalid::field("request_id", "was used for another request: make a new one"),
        ),
        StoreError::QueueFull => {
            let mut details = details("QUEUE_FULL", []);
            details.set_retry_info(Some(Duration::from_secs(60)));
            Status::with_error_details(Code::ResourceExhausted, message, details)
        }
        StoreError::NotDone { .. } => {
            with_reason(Code::FailedPrecondition, message, "OPERATION_NOT_DONE", [])
        }
        StoreError::Conflict => {
            let mut details = details("CONFLICT", []);
            details.set_retry_info(Some(RETRY_AFTER));
            Status::with_error_details(Code::Aborted, message, details)
        }
        StoreError::Unavailable(_) => unavailable(message, "DATABASE_UNAVAILABLE"),
        StoreError::Corrupt { .. }
        | StoreError::Schema(_)
        | StoreError::Database(_)
        | StoreError::Connect(_)
        | StoreError::Internal(_) => {
            // The details may name tables or rows; operators find them in the log.
            tracing::error!(error = message, "the store failed");
            with_reason(
                Code::Internal,
                "the store failed: see the planner's log".to_owned(),
                "STORE_FAILED",
                [],
            )
        }
    }
}

fn campaign_status(error: &CampaignError, message: String) -> Status {
    let field = match error {
        CampaignError::NoDevices
        | CampaignError::MoreStagesThanLayers { .. }
        | CampaignError::CannotIsolate { .. } => "devices",
        CampaignError::InFlightVaries => "campaign",
    };
    invalid_argument(message.clone(), &Invalid::field(field, message))
}

fn recommend_status(error: RecommendError, message: String) -> Status {
    match error {
        RecommendError::NoDevices
        | RecommendError::MoreStagesThanLayers { .. }
        | RecommendError::TooLarge { .. } => {
            invalid_argument(message.clone(), &Invalid::field("devices", message))
        }
        RecommendError::OtherModel { .. } => with_reason(Code::Internal, message, "STORE_FAILED", []),
        RecommendError::Prediction(_) => {
            with_reason(Code::FailedPrecondition, message, "PROFILE_MISSING", [])
        }
        RecommendError::DoesNotFit { reason, layer_name } => {
            let missing = reason.missing().map_or_else(String::new, |bytes| bytes.0.to_string());
            let metadata = [("missing_bytes", missing), ("layer", layer_name.unwrap_or_default())];
            with_reason(Code::FailedPrecondition, message, "NO_FEASIBLE_PLAN", metadata)
        }
    }
}
