//! Why a call failed, or an operation: the reasons that travel in `google.rpc.ErrorInfo`.
//!
//! They are an interface: a reason never changes its meaning or its code. `deploy/errors.md` lists them, and a
//! test holds that page to this list.

use tonic::Code;

/// Domain of every reason.
pub const DOMAIN: &str = "loadmaster.dev";

/// Who can remove the cause of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Actor {
    /// The caller, by another request or a later one.
    Caller,
    /// The operator of the planner, of its workers or of its database.
    Operator,
    /// The developers of Loadmaster.
    Loadmaster,
}

/// Where the documentation of errors is, unless the planner's configuration names another place: packages install it there.
pub const DOCUMENTATION: &str = "file:///usr/share/doc/loadmaster/errors.md";

macro_rules! reasons {
    ($($(#[doc = $when:literal])+ $reason:ident = $name:literal, $code:ident, $actor:ident, [$($key:literal),*], $remedy:literal;)*) => {
        /// A reason.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[doc = $when])+ $reason,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$reason,)*];

            /// As it travels.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$reason => $name,)* }
            }

            /// The reason of a name.
            pub fn of_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == name)
            }

            /// The status code that it comes with.
            pub const fn code(self) -> Code {
                match self { $(Self::$reason => Code::$code,)* }
            }

            /// Who can remove the cause.
            pub const fn actor(self) -> Actor {
                match self { $(Self::$reason => Actor::$actor,)* }
            }

            /// The keys that the metadata of such an error can have.
            pub const fn metadata(self) -> &'static [&'static str] {
                match self { $(Self::$reason => &[$($key),*],)* }
            }

            /// When it is given.
            pub const fn when(self) -> &'static str {
                match self { $(Self::$reason => concat!($($when),+),)* }
            }

            /// What helps.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$reason => $remedy,)* }
            }

            /// The address of its section in the documentation, which is at `base`.
            pub fn link(self, base: &str) -> String {
                format!("{base}#{}", self.as_str().to_ascii_lowercase())
            }
        }
    };
}

reasons! {
    /// A value of the request is not valid. `BadRequest` names each field and gives the expected value.
    InvalidField = "INVALID_FIELD", InvalidArgument, Caller, [],
        "Correct the named fields.";
    /// The request is not a message of this method.
    MalformedRequest = "MALFORMED_REQUEST", InvalidArgument, Caller, [],
        "Compare the versions of client and planner.";
    /// No resource has this name.
    NotFound = "NOT_FOUND", NotFound, Caller, ["resource"],
        "Look for the resource with its List method.";
    /// Another resource has this id.
    AlreadyExists = "ALREADY_EXISTS", AlreadyExists, Caller, ["resource"],
        "Choose another id, or leave it empty.";
    /// The model is known by the names of its layers only. It can be planned, but not trained or shown.
    ModelShapesUnknown = "MODEL_SHAPES_UNKNOWN", FailedPrecondition, Caller, ["model"],
        "Import the model itself.";
    /// The profile is complete, or it is still being measured.
    ProfileNotResumable = "PROFILE_NOT_RESUMABLE", FailedPrecondition, Caller, ["profile"],
        "If the profile is complete, do nothing. Otherwise wait for the operation that measures the profile.";
    /// The profile is not complete yet.
    ProfileNotReady = "PROFILE_NOT_READY", FailedPrecondition, Caller, ["profile"],
        "Wait for the operation that measures the profile, or resume the profile.";
    /// The profile is complete, but it has no measurements that this request needs.
    ProfileIncomplete = "PROFILE_INCOMPLETE", FailedPrecondition, Caller, ["profile", "plan"],
        "Profile the missing stages, batch sizes or times. The error message lists them.";
    /// This version cannot derive profiling runs from the stored settings of the profile.
    ProfileUnusable = "PROFILE_UNUSABLE", FailedPrecondition, Caller, ["profile"],
        "Run a new profile.";
    /// Other resources reference the resource. `PreconditionFailure` names the first of them, `dependents` is their number.
    ResourceInUse = "RESOURCE_IN_USE", FailedPrecondition, Caller, ["resource", "dependents"],
        "Delete the resources that reference it first.";
    /// The resource has another etag than the request expects.
    EtagMismatch = "ETAG_MISMATCH", Aborted, Caller, ["resource", "etag"],
        "Read the resource and repeat the change.";
    /// The operation has not ended.
    OperationNotDone = "OPERATION_NOT_DONE", FailedPrecondition, Caller, [],
        "Cancel it first.";
    /// No plan of the request fits. The metadata contains the missing bytes, their place and changes that help; `accounting` is set only for chunked training.
    NoFeasiblePlan = "NO_FEASIBLE_PLAN", FailedPrecondition, Caller, ["missing_bytes", "layer", "device", "accounting", "remedies"],
        "Apply one of the `remedies`, use more devices, or reduce the memory that each device needs.";
    /// The framework cannot train such a plan. `PreconditionFailure` names the reason for each stage.
    PlanUnsupportedByFramework = "PLAN_UNSUPPORTED_BY_FRAMEWORK", FailedPrecondition, Caller, ["framework", "plan_shape", "required_shape"],
        "Request a plan with the parallelism layout in `required_shape`, or choose another framework.";
    /// The nodes given do not have the devices that the plan needs. `PreconditionFailure` names the missing devices by stage.
    PlacementImpossible = "PLACEMENT_IMPOSSIBLE", FailedPrecondition, Caller, [],
        "Use more or larger nodes, or request a plan for the nodes that you have.";
    /// The profile has more measurements than a document can contain.
    DocumentTooLarge = "DOCUMENT_TOO_LARGE", FailedPrecondition, Caller, [],
        "Export a profile of fewer runs.";
    /// The search was stopped before it found any plan.
    SearchStopped = "SEARCH_STOPPED", DeadlineExceeded, Caller, [],
        "Increase the time limit, or restrict the search with more constraints.";
    /// The planner that searched for an operation has stopped.
    PlannerRestarted = "PLANNER_RESTARTED", Unavailable, Caller, [],
        "Repeat the recommendation.";
    /// The connection, the address or the planner has too many streams of changes.
    TooManyStreams = "TOO_MANY_STREAMS", ResourceExhausted, Caller, [],
        "Close a stream, or retry after `RetryInfo`.";
    /// Too many purges run.
    TooManyPurges = "TOO_MANY_PURGES", ResourceExhausted, Caller, [],
        "Wait until a running purge operation ends, or cancel one.";
    /// The database did not find the filtered or ordered rows in the time limit of lists.
    ListTooSlow = "LIST_TOO_SLOW", DeadlineExceeded, Caller, [],
        "Narrow the filter, or leave out `order_by`.";
    /// The deadline of the call passed before there was a response.
    CallTimeout = "CALL_TIMEOUT", DeadlineExceeded, Caller, [],
        "Set a longer deadline, up to one minute, or request less data.";
    /// The request did not arrive in time.
    RequestIncomplete = "REQUEST_INCOMPLETE", DeadlineExceeded, Caller, [],
        "Send whole requests.";
    /// The stream of a worker did not begin with `hello` in time.
    HandshakeMissing = "HANDSHAKE_MISSING", DeadlineExceeded, Caller, [],
        "Send `hello` as the first message.";
    /// The message is longer than the method accepts or returns.
    MessageTooLarge = "MESSAGE_TOO_LARGE", ResourceExhausted, Caller, [],
        "Send less. For lists, request smaller pages.";
    /// Responses that the caller has not read use all memory for responses.
    ResponsesUnread = "RESPONSES_UNREAD", ResourceExhausted, Caller, [],
        "Read the responses, then retry after `RetryInfo`.";
    /// All search slots of the planner, or of the address of the caller, are in use.
    TooManySearches = "TOO_MANY_SEARCHES", ResourceExhausted, Caller, [],
        "Retry after `RetryInfo`.";
    /// All slots for reading documents are in use.
    TooManyImports = "TOO_MANY_IMPORTS", ResourceExhausted, Caller, [],
        "Retry after `RetryInfo`.";
    /// Too many calls wait for operations.
    TooManyWaiters = "TOO_MANY_WAITERS", ResourceExhausted, Caller, [],
        "Poll with GetOperation, or retry after `RetryInfo`.";
    /// More calls are open than the planner processes at once.
    TooManyCalls = "TOO_MANY_CALLS", ResourceExhausted, Caller, [],
        "Retry after `RetryInfo`.";
    /// Requests in transit use all memory for requests.
    TooManyRequestBytes = "TOO_MANY_REQUEST_BYTES", ResourceExhausted, Caller, [],
        "Retry after `RetryInfo`.";
    /// The plan has the maximum number of reports.
    TooManyReports = "TOO_MANY_REPORTS", ResourceExhausted, Caller, ["plan"],
        "Report to another plan.";
    /// The resource would have more labels than allowed.
    TooManyLabels = "TOO_MANY_LABELS", ResourceExhausted, Caller, ["resource"],
        "Remove labels.";
    /// Other calls changed the same rows several times.
    Conflict = "CONFLICT", Aborted, Caller, [],
        "Retry after `RetryInfo`.";
    /// The planner has no such service or method.
    MethodUnknown = "METHOD_UNKNOWN", Unimplemented, Caller, [],
        "Compare the versions of client and planner.";
    /// The request has an encoding that the planner cannot read, for example a compressed one.
    EncodingUnsupported = "ENCODING_UNSUPPORTED", Unimplemented, Caller, [],
        "Send the request uncompressed.";
    /// The operation was cancelled. Only in operations.
    Cancelled = "CANCELLED", Cancelled, Caller, [],
        "Resume the profile, or repeat the operation.";
    /// No worker is connected, or all connected workers are drained.
    NoWorker = "NO_WORKER", FailedPrecondition, Operator, [],
        "Start `loadmaster-worker`.";
    /// No connected worker accepts runs and has enough devices of one kind.
    NoLinksToMeasure = "NO_LINKS_TO_MEASURE", FailedPrecondition, Operator, [],
        "Start a worker with enough devices, or request fewer devices.";
    /// No connected worker is large enough for the plan. `stages` lists the stages that could be trained alone, `worker` is the nearest worker.
    NoWorkerFits = "NO_WORKER_FITS", FailedPrecondition, Operator, ["plan", "device_kind", "device_count", "capacity_bytes", "worker", "worker_devices", "worker_capacity_bytes", "host_memory_bytes", "worker_host_memory_bytes", "stages", "remedies"],
        "Apply one of the `remedies`, or start a larger worker.";
    /// Connected workers, or a profile and the connected workers, measure with different software.
    SoftwareMismatch = "SOFTWARE_MISMATCH", FailedPrecondition, Operator, ["device_kind", "profile"],
        "Drain the workers whose software differs from the other workers or from the profile. Or run a new profile.";
    /// Another process on `host` is connected under this name of a worker.
    WorkerNameTaken = "WORKER_NAME_TAKEN", AlreadyExists, Operator, ["worker", "host", "heartbeat_time"],
        "Give the worker another name, or stop the process that uses this name.";
    /// The worker is connected, or it has runs.
    WorkerInUse = "WORKER_IN_USE", FailedPrecondition, Operator, ["worker"],
        "Drain it and stop it first.";
    /// Worker and planner have different versions of their protocol.
    ProtocolVersionUnsupported = "PROTOCOL_VERSION_UNSUPPORTED", FailedPrecondition, Operator, ["worker", "planner"],
        "Install the same version of both.";
    /// The queue has the maximum number of waiting runs.
    QueueFull = "QUEUE_FULL", ResourceExhausted, Operator, [],
        "Wait until queued runs have ended, cancel operations, or add workers.";
    /// The database does not respond at the moment.
    DatabaseUnavailable = "DATABASE_UNAVAILABLE", Unavailable, Operator, [],
        "Retry after `RetryInfo`. If the error persists, check the database.";
    /// The database rejected a statement, or a stored row cannot be read.
    DatabaseFailed = "DATABASE_FAILED", Internal, Operator, [],
        "Read the planner's log.";
    /// The planner is shutting down.
    PlannerShuttingDown = "PLANNER_SHUTTING_DOWN", Unavailable, Operator, [],
        "Retry after `RetryInfo`: another planner can respond.";
    /// A run needed more memory than its device, or its CPU memory, has. Only in operations.
    OutOfMemory = "OUT_OF_MEMORY", FailedPrecondition, Operator, [],
        "Use larger devices, smaller micro-batches, or more CPU memory.";
    /// A run failed as often as it is tried. The state of the workers must change before the same request can succeed. Only in operations.
    RunFailed = "RUN_FAILED", FailedPrecondition, Operator, [],
        "Read the failures of the run.";
    /// The planner has a defect. Its log has the details.
    PlannerDefect = "PLANNER_DEFECT", Internal, Loadmaster, [],
        "Report it with the planner's log.";
    /// A library of the planner returned an error without a reason. It can have any status code.
    LibraryError = "LIBRARY_ERROR", Unknown, Loadmaster, [],
        "Read the error message. If it does not help, send it with the planner's log to Loadmaster's developers.";
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The code as gRPC's documents write it, so that it can be searched for.
pub const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
