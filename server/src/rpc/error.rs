//! What callers learn of an error: a code, a stable reason and the details that belong to it.
//!
//! Every error carries `google.rpc.ErrorInfo` with a [`Reason`]; errors that are not made here get theirs in `calls`.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use loadmaster_launchers::Refusal;
use loadmaster_predict::choose::NoPredictor;
use loadmaster_predict::forecast::ForecastError;
use loadmaster_predict::profiling::ProfilingError;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::name::WorkerName;
use loadmaster_proto::plan::objective::{Framework, PlanShape};
use loadmaster_proto::reason::{DOCUMENTATION as DOCUMENTATION_DEFAULT, DOMAIN, Reason};
use loadmaster_recommend::{PlacementError, QuestionError, RecommendError};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use super::limits::MAX_ERROR_CHARACTERS;
use crate::document::DocumentFault;
use crate::store::{Dependent, StoreError};

/// How long callers should wait when the planner cannot answer for the moment.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

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
    ProfilingMode(#[from] ProfilingError),
    /// No plan can be recommended.
    #[error("{0}")]
    Recommend(#[from] RecommendError),
    /// A worker speaks another protocol.
    #[error("the worker uses protocol {theirs}, this planner {ours}. Install the same Loadmaster on both.")]
    ProtocolVersion {
        /// The worker's.
        theirs: i32,
        /// The planner's.
        ours: i32,
    },
    /// No device can be named for a profile.
    #[error(
        "`device_kind` is not set, and no worker is connected to take it from. Start loadmaster-worker, or set `device_kind`."
    )]
    NoWorker,
    /// No device can be named for a profile: all connected workers are cordoned.
    #[error(
        "{worker} is cordoned, so it accepts no runs, and no other worker is connected. Uncordon it with `loadmaster worker \
         uncordon {worker}`, or set `device_kind`."
    )]
    OnlyCordoned {
        /// One of them.
        worker: WorkerName,
    },
    /// Workers are connected, and none of them could ever hold a plan.
    #[error("{0}")]
    NoWorkerFits(Box<NoRoom>),
    /// There is no one to look at.
    #[error("no worker is connected. Start loadmaster-worker on the nodes of the cluster.")]
    NoConnectedWorker,
    /// No worker takes runs and has as many devices.
    #[error(
        "no connected worker accepts runs and has enough devices of one kind to measure a link. Start or uncordon \
         such a worker."
    )]
    NothingToMeasure,
    /// Measurements of different software must not be mixed in one profile.
    #[error(
        "the connected workers with {kind} devices use different software, so their measurements cannot be compared \
         ({differences}). Cordon all but one group of them with `loadmaster worker cordon`."
    )]
    MixedSoftware {
        /// Kind of device.
        kind: String,
        /// Which worker has what.
        differences: String,
    },
    /// A profile must not go on with other software than it began with.
    #[error(
        "{profile} was measured with {measured}, but the connected workers use {today}, so their measurements cannot be \
         compared. Create a new profile."
    )]
    OtherSoftware {
        profile: String,
        /// What it was measured with.
        measured: String,
        /// What would measure now.
        today: String,
    },
    /// Predictions need measurements that are not there.
    #[error("{profile} cannot be used: {why}")]
    ProfileIncomplete {
        profile: String,
        /// What is missing.
        why: String,
    },
    /// A profile has no predictor of the kind that was asked for.
    #[error("{profile} cannot be used: {why}")]
    NoPredictor {
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
    /// A framework cannot express a plan.
    #[error("{0}")]
    NotExportable(Box<Refusal>),
    /// The nodes given lack what a plan needs.
    #[error("{0}")]
    NotBindable(PlacementError),
    /// A framework does not run plans of a shape.
    #[error(
        "{framework} does not run plans with parallelism layout {shape}. Set `constraints.parallelism_layout` to \
         {required}."
    )]
    ShapeUnsupported {
        framework: Framework,
        /// The shape that was asked for.
        shape: PlanShape,
        /// The most general shape that it runs.
        required: PlanShape,
    },
    /// A plan without times cannot be simulated.
    #[error(
        "{plan} has no predicted seconds, because its profile has no measured seconds. Create a profile with \
         `profiling_mode` PROFILING_MODE_PER_LAYER, and request a plan from it."
    )]
    NoTimes { plan: String },
    /// Each search takes a core, and a caller has a share of the slots.
    #[error("too many searches are running on this planner or for your address. Retry later.")]
    TooManySearches,
    /// Reading a document takes a core and memory.
    #[error("the planner is reading too many documents of other requests. Retry later.")]
    TooManyImports,
    /// The planner is wrong, whatever it was asked.
    #[error("{failed} because of a defect of the planner. Report it with the planner's log.")]
    Defect {
        /// What could not be done.
        failed: String,
    },
    /// Waiters may take up half of the calls that the planner answers at once.
    #[error("too many WaitOperation calls are open. Poll with GetOperation, or retry later.")]
    TooManyWaiters,
    /// As many streams of changes are open as a connection, an address or all callers may have.
    #[error("too many streams of changes are open. Close one, or retry later.")]
    TooManyStreams,
    /// A worker's stream begins with something else, or with nothing.
    #[error("the worker did not send `hello` as its first message within {} seconds", waited.as_secs())]
    NoHello {
        /// How long it was waited for.
        waited: Duration,
    },
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
                let why = "only a complete profile can be exported".to_owned();
                Self::ProfileIncomplete { profile: profile.clone(), why }
            }
            DocumentFault::TooLarge { .. } => Self::DocumentTooLarge(fault.to_string()),
        }
    }
}

/// A plan that no connected worker could hold, the one that comes nearest, and what could be done.
#[derive(Debug, thiserror::Error)]
#[error(
    "{plan} cannot be trained on the connected workers. It needs {device_count} × {device_kind} of {capacity}{} on one \
     worker. The best match, {worker}, {lacks}. Remedies: {}.",
    with_memory(*host_memory), remedies.join("; or ")
)]
pub struct NoRoom {
    pub plan: String,
    pub device_kind: String,
    /// Devices at once.
    pub device_count: u32,
    /// Least bytes of each.
    pub capacity: Bytes,
    /// Memory of the worker's host.
    pub host_memory: Bytes,
    /// The worker that comes nearest.
    pub worker: String,
    /// Its devices of the kind.
    pub worker_devices: usize,
    /// Bytes of the largest of them.
    pub worker_capacity: Bytes,
    /// Memory of its host that it offers.
    pub worker_host_memory: Bytes,
    /// What it lacks, human-readable.
    pub lacks: String,
    /// Stages that it could hold one at a time.
    pub stages: Vec<usize>,
    /// What can be done, human-readable.
    pub remedies: Vec<String>,
}

/// What is needed of a worker's host, human-readable.
fn with_memory(bytes: Bytes) -> String {
    if bytes > Bytes(0) { format!(" and {bytes} of CPU (host) memory") } else { String::new() }
}

impl From<QuestionError> for ApiError {
    fn from(error: QuestionError) -> Self {
        match error {
            QuestionError::Invalid(invalid) => invalid.into(),
            QuestionError::Prediction(error) => Self::Forecast(error.into()),
            QuestionError::Recommend(error) => error.into(),
        }
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let message = short(&error.to_string());
        match error {
            ApiError::Invalid(invalid) => invalid_argument(message, &invalid),
            ApiError::Store(error) => store_status(error, message),
            ApiError::ProfilingMode(error) => campaign_status(&error, message),
            ApiError::Recommend(error) => recommend_status(error, message),
            ApiError::ProtocolVersion { theirs, ours } => with_reason(
                Reason::ProtocolVersionUnsupported,
                message,
                [("worker", theirs.to_string()), ("planner", ours.to_string())],
            ),
            ApiError::NoConnectedWorker => with_reason(Reason::NoWorker, message, []),
            ApiError::NoWorkerFits(no_room) => {
                let stages: Vec<String> = no_room.stages.iter().map(ToString::to_string).collect();
                with_reason(
                    Reason::NoWorkerFits,
                    message,
                    [
                        ("plan", no_room.plan),
                        ("device_kind", no_room.device_kind),
                        ("device_count", no_room.device_count.to_string()),
                        ("capacity_bytes", no_room.capacity.0.to_string()),
                        ("worker", no_room.worker),
                        ("worker_devices", no_room.worker_devices.to_string()),
                        ("worker_capacity_bytes", no_room.worker_capacity.0.to_string()),
                        ("host_memory_bytes", no_room.host_memory.0.to_string()),
                        ("worker_host_memory_bytes", no_room.worker_host_memory.0.to_string()),
                        ("stages", short(&stages.join(","))),
                        ("remedies", no_room.remedies.join("; ")),
                    ],
                )
            }
            ApiError::NothingToMeasure => with_reason(Reason::NoLinksToMeasure, message, []),
            ApiError::NoWorker | ApiError::OnlyCordoned { .. } => with_reason(Reason::NoWorker, message, []),
            ApiError::MixedSoftware { kind, .. } => {
                with_reason(Reason::SoftwareMismatch, message, [("device_kind", kind)])
            }
            ApiError::OtherSoftware { profile, .. } => {
                with_reason(Reason::SoftwareMismatch, message, [("profile", profile)])
            }
            ApiError::ProfileIncomplete { profile, .. } => {
                with_reason(Reason::ProfileNotReady, message, [("profile", profile)])
            }
            ApiError::NoPredictor { profile, why } => match why {
                NoPredictor::ProfilingMode(_) => {
                    with_reason(Reason::ProfileUnusable, message, [("profile", profile)])
                }
                NoPredictor::Lacks(_) => {
                    with_reason(Reason::ProfileIncomplete, message, [("profile", profile)])
                }
            },
            ApiError::Forecast(error) => forecast_status(&error, message),
            ApiError::DocumentTooLarge(_) => with_reason(Reason::DocumentTooLarge, message, []),
            ApiError::ShapeUnsupported { framework, shape, required } => with_reason(
                Reason::PlanUnsupportedByFramework,
                message,
                [
                    ("framework", framework.to_string()),
                    ("plan_shape", shape.to_string()),
                    ("required_shape", required.to_string()),
                ],
            ),
            ApiError::NotExportable(refusal) => not_exportable(&refusal, message),
            ApiError::NotBindable(refusal) => not_bindable(&refusal, message),
            ApiError::NoTimes { plan } => with_reason(Reason::ProfileIncomplete, message, [("plan", plan)]),
            ApiError::TooManySearches => retry_after(RETRY_AFTER, Reason::TooManySearches, message),
            ApiError::TooManyImports => retry_after(RETRY_AFTER, Reason::TooManyImports, message),
            ApiError::Defect { .. } => with_reason(Reason::PlannerDefect, message, []),
            ApiError::TooManyWaiters => retry_after(RETRY_AFTER, Reason::TooManyWaiters, message),
            ApiError::TooManyStreams => retry_after(RETRY_AFTER, Reason::TooManyStreams, message),
            ApiError::NoHello { .. } => with_reason(Reason::HandshakeMissing, message, []),
            ApiError::Stopping => retry_after(RETRY_AFTER, Reason::PlannerShuttingDown, message),
        }
    }
}

/// Errors travel in HTTP headers, which have little room, and may quote what a caller sent.
fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_ERROR_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Where the documentation of errors is; see [`document_errors_at`].
static DOCUMENTATION: OnceLock<String> = OnceLock::new();

/// Sets where the documentation of errors is, once, before the first call.
pub(crate) fn document_errors_at(base: String) {
    if DOCUMENTATION.set(base).is_err() {
        tracing::warn!("the address of the error documentation was set twice; the first one is used");
    }
}

/// The link to the section about a reason: its text and its address.
pub(super) fn help(reason: Reason) -> (String, String) {
    let base = DOCUMENTATION.get().map_or(DOCUMENTATION_DEFAULT, String::as_str);
    (format!("{reason} in the list of errors"), reason.link(base))
}

/// The details that every error has: its reason with metadata, and where it is documented.
pub(super) fn details<const N: usize>(reason: Reason, metadata: [(&str, String); N]) -> ErrorDetails {
    debug_assert!(
        metadata.iter().all(|(key, _)| reason.metadata().contains(key)),
        "the metadata of {reason} is documented"
    );
    let metadata: HashMap<String, String> =
        metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut details = ErrorDetails::with_error_info(reason.as_str(), DOMAIN, metadata);
    let (text, address) = help(reason);
    details.add_help_link(text, address);
    details
}

/// An error with its reason, whose code it has.
pub(super) fn with_reason<const N: usize>(
    reason: Reason,
    message: String,
    metadata: [(&str, String); N],
) -> Status {
    Status::with_error_details(reason.code(), message, details(reason, metadata))
}

/// An error that may be gone when the caller retries after `pause`.
pub(super) fn retry_after(pause: Duration, reason: Reason, message: String) -> Status {
    let mut details = details(reason, []);
    details.set_retry_info(Some(pause));
    Status::with_error_details(reason.code(), message, details)
}

/// An error that names the fields which are wrong.
pub(super) fn invalid_argument(message: String, invalid: &Invalid) -> Status {
    let mut details = details(Reason::InvalidField, []);
    for violation in invalid.violations() {
        details.add_bad_request_violation(short(&violation.field), short(&violation.description));
    }
    Status::with_error_details(Reason::InvalidField.code(), message, details)
}

/// What a framework cannot express of a plan: a violation for each stage.
fn not_exportable(refusal: &Refusal, message: String) -> Status {
    let of =
        [("framework", refusal.target.to_string()), ("required_shape", refusal.required_shape.to_string())];
    let mut details = details(Reason::PlanUnsupportedByFramework, of);
    let stages = refusal.stages.iter().map(|refused| (refused.stage, refused.why.as_str()));
    add_violations(&mut details, "PLAN_SHAPE", stages);
    Status::with_error_details(Reason::PlanUnsupportedByFramework.code(), message, details)
}

/// Most stages of which it is said what is wrong: errors travel in headers.
const MOST_STAGES: usize = 16;

/// What is wrong with each stage, of a plan as a whole where there is none; of many the first ones, and how many more there are.
fn add_violations<'a>(
    details: &mut ErrorDetails,
    kind: &str,
    stages: impl ExactSizeIterator<Item = (Option<usize>, &'a str)>,
) {
    let rest = stages.len().saturating_sub(MOST_STAGES);
    for (stage, why) in stages.take(MOST_STAGES) {
        let subject = stage.map_or_else(|| "plan".to_owned(), |stage| format!("stages[{stage}]"));
        details.add_precondition_failure_violation(kind, subject, short(why));
    }
    if rest > 0 {
        let more = format!("{rest} more violations are not listed");
        details.add_precondition_failure_violation(kind, "plan", more);
    }
}

fn not_bindable(refusal: &PlacementError, message: String) -> Status {
    let mut details = details(Reason::PlacementImpossible, []);
    let stages = refusal.stages.iter().map(|lack| (lack.stage, lack.why.as_str()));
    add_violations(&mut details, "NODES", stages);
    Status::with_error_details(Reason::PlacementImpossible.code(), message, details)
}

fn store_status(error: StoreError, message: String) -> Status {
    match error {
        StoreError::NotFound { what } => with_reason(Reason::NotFound, message, [("resource", what)]),
        StoreError::Opaque { what } => with_reason(Reason::ModelShapesUnknown, message, [("model", what)]),
        StoreError::AlreadyExists { what } => {
            with_reason(Reason::AlreadyExists, message, [("resource", what)])
        }
        StoreError::RequestIdReused => invalid_argument(
            message,
            &Invalid::field("request_id", "already used for another request. Use a new UUID."),
        ),
        StoreError::NotResumable { what, .. } => {
            with_reason(Reason::ProfileNotResumable, message, [("profile", what)])
        }
        StoreError::QueueFull => retry_after(Duration::from_secs(60), Reason::QueueFull, message),
        StoreError::TooManyPurges => retry_after(Duration::from_secs(60), Reason::TooManyPurges, message),
        StoreError::EtagMismatch { what, stored, .. } => {
            with_reason(Reason::EtagMismatch, message, [("resource", what), ("etag", stored)])
        }
        StoreError::TooManyLabels { what } => {
            with_reason(Reason::TooManyLabels, message, [("resource", what)])
        }
        StoreError::TooManyReports { what } => with_reason(Reason::TooManyReports, message, [("plan", what)]),
        StoreError::NameTaken { what, host, heartbeat_time } => {
            let of = [("worker", what), ("host", host), ("heartbeat_time", heartbeat_time.to_string())];
            let mut details = details(Reason::WorkerNameTaken, of);
            details.set_retry_info(Some(NAME_RETRY_AFTER));
            Status::with_error_details(Reason::WorkerNameTaken.code(), message, details)
        }
        StoreError::WorkerInUse { what, .. } => with_reason(Reason::WorkerInUse, message, [("worker", what)]),
        StoreError::NotDone { .. } => with_reason(Reason::OperationNotDone, message, []),
        StoreError::InUse { what, by, count } => {
            let mut details =
                details(Reason::ResourceInUse, [("resource", what), ("dependents", count.to_string())]);
            for Dependent { kind, name } in by {
                details.add_precondition_failure_violation(kind, name, REFERENCES.to_owned());
            }
            Status::with_error_details(Reason::ResourceInUse.code(), message, details)
        }
        StoreError::ListTooSlow => with_reason(Reason::ListTooSlow, message, []),
        StoreError::Conflict => retry_after(RETRY_AFTER, Reason::Conflict, message),
        StoreError::Unavailable(_) => retry_after(RETRY_AFTER, Reason::DatabaseUnavailable, message),
        StoreError::Corrupt { .. }
        | StoreError::Schema(_)
        | StoreError::Database(_)
        | StoreError::Connect(_)
        | StoreError::Internal(_) => {
            // The details may name tables or rows; operators find them in the log.
            tracing::error!(error = message, "a database call failed");
            with_reason(Reason::DatabaseFailed, "the database failed. See the planner's log.".to_owned(), [])
        }
    }
}

/// Why a resource is in use; the violation names the resource that references it.
const REFERENCES: &str = "references it";

fn campaign_status(error: &ProfilingError, message: String) -> Status {
    let field = match error {
        ProfilingError::NoDevices
        | ProfilingError::MoreStagesThanLayers { .. }
        | ProfilingError::CannotIsolate { .. } => "device_count",
        ProfilingError::NotDivisible { .. }
        | ProfilingError::NotSplit { .. }
        | ProfilingError::Scenario { .. } => "parallel_sizes",
        ProfilingError::InFlightVaries | ProfilingError::TooLarge { .. } => "profiling_mode",
        ProfilingError::NotInChunks(invalid) => return invalid_argument(message, invalid),
    };
    invalid_argument(message.clone(), &Invalid::field(field, message))
}

fn forecast_status(error: &ForecastError, message: String) -> Status {
    match error {
        ForecastError::Prediction(_) => with_reason(Reason::ProfileIncomplete, message, []),
        ForecastError::Actions(invalid) => invalid_argument(message, invalid),
        ForecastError::DeviceCount { .. } => {
            invalid_argument(message.clone(), &Invalid::field("devices", message))
        }
    }
}

fn recommend_status(error: RecommendError, message: String) -> Status {
    let invalid =
        |field: &str, message: String| invalid_argument(message.clone(), &Invalid::field(field, message));
    match error {
        RecommendError::Framework(_) => invalid("problem.framework", message),
        RecommendError::NoTimes { .. } | RecommendError::Unpredictable(_) => {
            with_reason(Reason::ProfileIncomplete, message, [])
        }
        RecommendError::NoPrices { .. } => invalid("hourly_prices", message),
        RecommendError::Mode(_) => invalid("search.mode", message),
        RecommendError::CoversOther { .. } => invalid("partitioning.stages", message),
        RecommendError::DeviceCount { .. } => invalid("devices", message),
        RecommendError::Stopped => with_reason(Reason::SearchStopped, message, []),
        // Callers that search respond with it as `Infeasible`.
        RecommendError::GivenDoesNotFit { .. }
        | RecommendError::NoRoomInChunks { .. }
        | RecommendError::Neither { .. }
        | RecommendError::Limits { .. }
        | RecommendError::NoPlan { .. } => with_reason(Reason::PlannerDefect, message, []),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_recommend::StageLack;

    use super::*;

    /// Settings from which no campaign follows, of an imported profile say, are not the store's failure, and no one
    /// has to look into the planner's log for what is wrong with them.
    #[test]
    fn a_profile_without_a_campaign_is_told_to_its_caller() {
        let why = NoPredictor::ProfilingMode(ProfilingError::MoreStagesThanLayers { devices: 9, layers: 6 });
        let status = Status::from(ApiError::NoPredictor { profile: "profiles/p".to_owned(), why });
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        let info = status.get_details_error_info().unwrap();
        assert_eq!(
            (info.reason.as_str(), info.metadata["profile"].as_str()),
            (Reason::ProfileUnusable.as_str(), "profiles/p")
        );
        assert!(status.message().contains("9 devices are more than 6 layers"), "{status}");
    }

    /// Errors travel in headers: of a plan of many stages the first ones are listed, and how many more there are.
    #[test]
    fn violations_of_many_stages_are_counted() {
        let listed = |stages: usize| {
            let lack = |stage| StageLack { stage: Some(stage), why: "lacks devices".to_owned() };
            let error = PlacementError { stages: (0..stages).map(lack).collect() };
            let status = Status::from(ApiError::NotBindable(error));
            let violations = status.get_details_precondition_failure().unwrap().violations;
            violations.into_iter().map(|of| (of.subject, of.description)).collect::<Vec<_>>()
        };
        assert_eq!(listed(MOST_STAGES).len(), MOST_STAGES);
        let many = listed(MOST_STAGES + 7);
        assert_eq!(many.len(), MOST_STAGES + 1);
        assert_eq!(many[0], ("stages[0]".to_owned(), "lacks devices".to_owned()));
        let (subject, told) = many.last().unwrap();
        assert!(subject == "plan" && told.contains("7 more"), "{subject} {told}");
    }
}
