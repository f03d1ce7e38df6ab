//! What callers learn of an error: a code, a stable reason and the details that belong to it.
//!
//! Every error carries `google.rpc.ErrorInfo`. Reasons never change their meaning; README lists them.

use std::collections::HashMap;
use std::time::Duration;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::objective::{Launcher, PlanShape};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::document::DocumentFault;
use crate::planning::campaign::CampaignError;
use crate::planning::predict::ForecastError;
use crate::planning::predictors::NoPredictor;
use crate::planning::recommend::RecommendError;
use crate::store::{Dependent, StoreError};

/// Domain of every `ErrorInfo`.
pub const DOMAIN: &str = "loadmaster.dev";

/// A profile that is complete cannot answer this question; the message says what to measure.
const PROFILE_LACKS: &str = "PROFILE_LACKS";

/// How long callers should wait when the planner cannot answer for the moment.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long a worker should wait whose name another process has: that one may be about to end.
const NAME_RETRY_AFTER: Duration = Duration::from_secs(5);

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
    /// Workers are connected, and none of them could ever hold a plan.
    #[error("{0}")]
    NoWorkerFits(Box<NoRoom>),
    /// There is nobody to look at.
    #[error("no worker is connected: start loadmaster-worker on the nodes of the cluster")]
    NoConnectedWorker,
    /// No worker has two devices.
    #[error(
        "no connected worker that takes runs has two devices of one kind, so there is no link to measure"
    )]
    NothingToMeasure,
    /// Measurements of different software must not be mixed in one profile.
    #[error(
        "the connected workers with {kind} devices measure with different software, and what they measure \
         cannot be compared ({differences}): drain all but one kind of them (`loadmaster worker drain`)"
    )]
    MixedSoftware {
        /// Kind of device.
        kind: String,
        /// Which worker has what.
        differences: String,
    },
    /// A profile must not go on with other software than it began with.
    #[error(
        "{profile} was measured with {measured}, the connected workers have {today}, and what they measure \
         cannot be compared: run a new profile"
    )]
    OtherSoftware {
        /// The profile.
        profile: String,
        /// What it was measured with.
        measured: String,
        /// What would measure now.
        today: String,
    },
    /// Predictions need measurements that are not there.
    #[error("{profile} cannot answer: {why}")]
    ProfileIncomplete {
        /// The profile.
        profile: String,
        /// What is missing.
        why: String,
    },
    /// A profile has no predictor of the kind that was asked for.
    #[error("{profile} cannot answer: {why}")]
    NoPredictor {
        /// The profile.
        profile: String,
        /// What it lacks, and how to measure that.
        why: NoPredictor,
    },
    /// Stages cannot be forecast.
    #[error("{0}")]
    Forecast(#[from] ForecastError),
    /// A profile has more measurements than a document holds.
    #[error("{0}")]
    DocumentTooLarge(String),
    /// A launcher does not run plans of a shape.
    #[error(
        "{launcher} does not run plans of the shape {shape}: ask for {required}, or name another launcher"
    )]
    ShapeUnsupported {
        /// The launcher.
        launcher: Launcher,
        /// The shape that was asked for.
        shape: PlanShape,
        /// The most general shape that it runs.
        required: PlanShape,
    },
    /// A plan without times cannot be simulated.
    #[error("{plan} has no times, because its profile has none: profile with `--campaign minimal`")]
    NoTimes {
        /// The plan.
        plan: String,
    },
    /// Each search takes a core.
    #[error("as many searches run as the planner has cores: ask again later")]
    TooManySearches,
    /// Reading a document takes a core and memory.
    #[error("as many documents are read as the planner has room for: ask again later")]
    TooManyImports,
    /// The planner is wrong, whatever it was asked.
    #[error("{failed}: a defect of the planner, of which its log says more; please report it")]
    Defect {
        /// What could not be done.
        failed: String,
    },
    /// Waiters may take up half of the calls that the planner answers at once.
    #[error("too many callers wait for operations: poll with GetOperation, or wait again later")]
    TooManyWaiters,
    /// A worker's stream that says nothing.
    #[error("no hello: it must come within 10 seconds")]
    NoHello,
    /// The planner is stopping.
    #[error("the planner is stopping")]
    Stopping,
}

impl ApiError {
    /// What is wrong with the document in the field `field` of a request.
    pub(super) fn document(field: &str, fault: DocumentFault) -> Self {
        match fault {
            DocumentFault::Invalid(invalid) => Self::Invalid(invalid.under(field)),
            DocumentFault::Store(error) => Self::Store(error),
            DocumentFault::NotComplete { ref profile } => {
                let why = "only a complete profile has a document".to_owned();
                Self::ProfileIncomplete { profile: profile.clone(), why }
            }
            DocumentFault::TooLarge { .. } => Self::DocumentTooLarge(fault.to_string()),
        }
    }
}

/// A plan that no connected worker could hold, the one that comes nearest, and what could be done.
#[derive(Debug, thiserror::Error)]
#[error(
    "{plan} cannot be trained here: it needs {device_count} × {device_kind} of {capacity} on one worker, and the one \
     that comes nearest, {worker}, {lacks}. {}",
    sentence(remedies)
)]
pub struct NoRoom {
    /// The plan.
    pub plan: String,
    /// Kind of the devices.
    pub device_kind: String,
    /// Devices at once.
    pub device_count: u32,
    /// Least bytes of each.
    pub capacity: Bytes,
    /// The worker that comes nearest.
    pub worker: String,
    /// Its devices of the kind.
    pub worker_devices: usize,
    /// Bytes of the largest of them.
    pub worker_capacity: Bytes,
    /// What it lacks, for people.
    pub lacks: String,
    /// Stages that it could hold one at a time.
    pub stages: Vec<usize>,
    /// What can be done, for people.
    pub remedies: Vec<String>,
}

/// Remedies for people, in one sentence.
fn sentence(remedies: &[String]) -> String {
    format!("What can be done: {}", remedies.join("; or "))
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let message = short(&error.to_string());
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
            ApiError::NoConnectedWorker => with_reason(Code::FailedPrecondition, message, "NO_WORKER", []),
            ApiError::NoWorkerFits(no_room) => {
                let stages: Vec<String> = no_room.stages.iter().map(ToString::to_string).collect();
                with_reason(
                    Code::FailedPrecondition,
                    message,
                    "NO_WORKER_FITS",
                    [
                        ("plan", no_room.plan),
                        ("device_kind", no_room.device_kind),
                        ("device_count", no_room.device_count.to_string()),
                        ("capacity_bytes", no_room.capacity.0.to_string()),
                        ("worker", no_room.worker),
                        ("worker_devices", no_room.worker_devices.to_string()),
                        ("worker_capacity_bytes", no_room.worker_capacity.0.to_string()),
                        ("stages", short(&stages.join(","))),
                        ("remedies", no_room.remedies.join("; ")),
                    ],
                )
            }
            ApiError::NothingToMeasure => {
                with_reason(Code::FailedPrecondition, message, "NOTHING_TO_MEASURE", [])
            }
            ApiError::NoWorker => with_reason(Code::FailedPrecondition, message, "NO_WORKER", []),
            ApiError::MixedSoftware { kind, .. } => {
                with_reason(Code::FailedPrecondition, message, "MIXED_SOFTWARE", [("device_kind", kind)])
            }
            ApiError::OtherSoftware { profile, .. } => {
                with_reason(Code::FailedPrecondition, message, "MIXED_SOFTWARE", [("profile", profile)])
            }
            ApiError::ProfileIncomplete { profile, .. } => {
                with_reason(Code::FailedPrecondition, message, "PROFILE_INCOMPLETE", [("profile", profile)])
            }
            // Settings that make no campaign, as imported ones may not, are as little the store's fault.
            ApiError::NoPredictor { profile, why: NoPredictor::Campaign(_) | NoPredictor::Lacks(_) } => {
                with_reason(Code::FailedPrecondition, message, PROFILE_LACKS, [("profile", profile)])
            }
            ApiError::Forecast(error) => forecast_status(&error, message),
            ApiError::DocumentTooLarge(_) => with_reason(Code::OutOfRange, message, "DOCUMENT_TOO_LARGE", []),
            ApiError::ShapeUnsupported { launcher, shape, required } => with_reason(
                Code::FailedPrecondition,
                message,
                "PLAN_SHAPE_UNSUPPORTED",
                [
                    ("launcher", launcher.to_string()),
                    ("plan_shape", shape.to_string()),
                    ("required_shape", required.to_string()),
                ],
            ),
            ApiError::NoTimes { plan } => {
                with_reason(Code::FailedPrecondition, message, PROFILE_LACKS, [("plan", plan)])
            }
            ApiError::TooManySearches => {
                let mut details = details("TOO_MANY_SEARCHES", []);
                details.set_retry_info(Some(RETRY_AFTER));
                Status::with_error_details(Code::ResourceExhausted, message, details)
            }
            ApiError::TooManyImports => {
                let mut details = details("TOO_MANY_IMPORTS", []);
                details.set_retry_info(Some(RETRY_AFTER));
                Status::with_error_details(Code::ResourceExhausted, message, details)
            }
            ApiError::Defect { .. } => with_reason(Code::Internal, message, "PLANNER_DEFECT", []),
            ApiError::TooManyWaiters => {
                let mut details = details("TOO_MANY_WAITERS", []);
                details.set_retry_info(Some(RETRY_AFTER));
                Status::with_error_details(Code::ResourceExhausted, message, details)
            }
            ApiError::NoHello => with_reason(Code::DeadlineExceeded, message, "NO_HELLO", []),
            ApiError::Stopping => unavailable(message, "STOPPING"),
        }
    }
}

/// Errors travel in HTTP headers, which have little room, and may quote what a caller sent.
fn short(text: &str) -> String {
    const MOST: usize = 2_000;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
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
        details.add_bad_request_violation(short(&violation.field), short(&violation.description));
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
        StoreError::Opaque { what } => {
            with_reason(Code::FailedPrecondition, message, "MODEL_OPAQUE", [("model", what)])
        }
        StoreError::AlreadyExists { what } => {
            with_reason(Code::AlreadyExists, message, "ALREADY_EXISTS", [("resource", what)])
        }
        StoreError::RequestIdReused => invalid_argument(
            message,
            &Invalid::field("request_id", "was used for another request: make a new one"),
        ),
        StoreError::NotResumable { what, .. } => {
            with_reason(Code::FailedPrecondition, message, "PROFILE_NOT_RESUMABLE", [("profile", what)])
        }
        StoreError::QueueFull => {
            let mut details = details("QUEUE_FULL", []);
            details.set_retry_info(Some(Duration::from_secs(60)));
            Status::with_error_details(Code::ResourceExhausted, message, details)
        }
        StoreError::TooManyObservations { what } => {
            with_reason(Code::ResourceExhausted, message, "TOO_MANY_OBSERVATIONS", [("plan", what)])
        }
        StoreError::NameTaken { what, host, heartbeat_time } => {
            let of = [("worker", what), ("host", host), ("heartbeat_time", heartbeat_time.to_string())];
            let mut details = details("WORKER_NAME_TAKEN", of);
            details.set_retry_info(Some(NAME_RETRY_AFTER));
            Status::with_error_details(Code::AlreadyExists, message, details)
        }
        StoreError::WorkerInUse { what, .. } => {
            with_reason(Code::FailedPrecondition, message, "WORKER_IN_USE", [("worker", what)])
        }
        StoreError::NotDone { .. } => {
            with_reason(Code::FailedPrecondition, message, "OPERATION_NOT_DONE", [])
        }
        StoreError::InUse { what, by, count } => {
            let mut details =
                details("RESOURCE_IN_USE", [("resource", what), ("dependents", count.to_string())]);
            for Dependent { kind, name } in by {
                details.add_precondition_failure_violation(kind, name.clone(), format!("{name} rests on it"));
            }
            Status::with_error_details(Code::FailedPrecondition, message, details)
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
        CampaignError::NotDivisible { .. }
        | CampaignError::NotSplit { .. }
        | CampaignError::Scenario { .. } => "degrees",
        CampaignError::InFlightVaries | CampaignError::TooLarge { .. } => "campaign",
    };
    invalid_argument(message.clone(), &Invalid::field(field, message))
}

fn forecast_status(error: &ForecastError, message: String) -> Status {
    match error {
        ForecastError::Prediction(_) => with_reason(Code::FailedPrecondition, message, PROFILE_LACKS, []),
        ForecastError::DeviceCount { .. } => {
            invalid_argument(message.clone(), &Invalid::field("devices", message))
        }
    }
}

fn recommend_status(error: RecommendError, message: String) -> Status {
    let invalid =
        |field: &str, message: String| invalid_argument(message.clone(), &Invalid::field(field, message));
    let infeasible = |message: String, metadata: [(&str, String); 4]| {
        with_reason(Code::FailedPrecondition, message, "NO_FEASIBLE_PLAN", metadata)
    };
    match error {
        RecommendError::Launcher(_) => invalid("launcher", message),
        RecommendError::NoTimes { .. } | RecommendError::Unpredictable(_) => {
            with_reason(Code::FailedPrecondition, message, PROFILE_LACKS, [])
        }
        RecommendError::NoPrices { .. } => invalid("hourly_prices", message),
        RecommendError::Mode(_) => invalid("search_mode", message),
        RecommendError::CoversOther { .. } => invalid("partitioning.stages", message),
        RecommendError::DeviceCount { .. } => invalid("devices", message),
        RecommendError::Stopped => with_reason(Code::DeadlineExceeded, message, "SEARCH_STOPPED", []),
        RecommendError::GivenDoesNotFit { missing, device, .. } => infeasible(
            message,
            [
                ("missing_bytes", missing.0.to_string()),
                ("layer", String::new()),
                ("device", device),
                ("remedies", String::new()),
            ],
        ),
        RecommendError::Limits { remedies, .. } => {
            let options: Vec<String> = remedies.into_iter().map(|remedy| remedy.option).collect();
            infeasible(
                message,
                [
                    ("missing_bytes", String::new()),
                    ("layer", String::new()),
                    ("device", String::new()),
                    ("remedies", options.join("; ")),
                ],
            )
        }
        RecommendError::NoPlan { lack, device, layer_name, remedies, .. } => {
            let options: Vec<String> = remedies.into_iter().map(|remedy| remedy.option).collect();
            infeasible(
                message,
                [
                    ("missing_bytes", lack.missing().map_or_else(String::new, |bytes| bytes.0.to_string())),
                    ("layer", layer_name),
                    ("device", device),
                    ("remedies", options.join("; ")),
                ],
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings from which no campaign follows, of an imported profile say, are not the store's failure, and nobody
    /// has to look into the planner's log for what is wrong with them.
    #[test]
    fn a_profile_without_a_campaign_is_told_to_its_caller() {
        let why = NoPredictor::Campaign(CampaignError::MoreStagesThanLayers { devices: 9, layers: 6 });
        let status = Status::from(ApiError::NoPredictor { profile: "profiles/p".to_owned(), why });
        assert_eq!(status.code(), Code::FailedPrecondition);
        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.metadata["profile"].as_str()), (PROFILE_LACKS, "profiles/p"));
        assert!(status.message().contains("9 devices for 6 layers"), "{status}");
    }
}
