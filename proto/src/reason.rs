//! Why a call failed, or an operation: the reasons that travel in `google.rpc.ErrorInfo`.
//!
//! They are an interface: a reason never changes its meaning or its code. `deploy/errors.md` lists them, and a
//! test holds that page to this list.

use tonic::Code;

/// Domain of every reason.
pub const DOMAIN: &str = "loadmaster.dev";

macro_rules! reasons {
    ($($(#[doc = $when:literal])+ $reason:ident = $name:literal, $code:ident, $remedy:literal;)*) => {
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

            /// The status code that it comes with.
            pub const fn code(self) -> Code {
                match self { $(Self::$reason => Code::$code,)* }
            }

            /// When it is given.
            pub const fn when(self) -> &'static str {
                match self { $(Self::$reason => concat!($($when),+),)* }
            }

            /// What helps.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$reason => $remedy,)* }
            }
        }
    };
}

reasons! {
    /// A value of the request is not valid; `BadRequest` names each field and says what is wrong with it.
    InvalidField = "INVALID_FIELD", InvalidArgument, "correct the fields that are named";
    /// No resource has this name; `resource` tells which name.
    NotFound = "NOT_FOUND", NotFound, "look for it with the resource's list method";
    /// Another resource has this id; `resource` tells which.
    AlreadyExists = "ALREADY_EXISTS", AlreadyExists, "choose another id, or leave it empty";
    /// The `model` is known by the names of its layers alone: it can be planned, not trained or shown.
    ModelOpaque = "MODEL_OPAQUE", FailedPrecondition, "import the model itself";
    /// The `profile` is complete or still being measured.
    ProfileNotResumable = "PROFILE_NOT_RESUMABLE", FailedPrecondition, "nothing, or wait for its operation";
    /// The `profile` is not complete yet.
    ProfileIncomplete = "PROFILE_INCOMPLETE", FailedPrecondition, "wait for its operation, or resume the profile";
    /// The profile is complete and cannot answer this question.
    ProfileLacks = "PROFILE_LACKS", FailedPrecondition, "profile what the message says";
    /// The stored settings of the `profile` make no campaign for this version.
    ProfileUnusable = "PROFILE_UNUSABLE", FailedPrecondition, "run a new profile";
    /// Connected workers, or a `profile` and they, measure with different software.
    MixedSoftware = "MIXED_SOFTWARE", FailedPrecondition, "drain all but one kind of workers, or run a new profile";
    /// No worker is connected.
    NoWorker = "NO_WORKER", FailedPrecondition, "start `loadmaster-worker`";
    /// No connected worker takes runs and has as many devices of a kind.
    NothingToMeasure = "NOTHING_TO_MEASURE", FailedPrecondition, "start a worker with as many devices, or name fewer";
    /// Workers of the plan's kind are connected, and none could hold it; `stages` lists what could be trained alone.
    NoWorkerFits = "NO_WORKER_FITS", FailedPrecondition, "one of the `remedies`, or a larger worker";
    /// Another process is connected under this `worker`'s name; `host` and `heartbeat_time` tell which.
    WorkerNameTaken = "WORKER_NAME_TAKEN", AlreadyExists, "start it with another `--name`, or stop the other one";
    /// The `worker` is connected, or holds runs.
    WorkerInUse = "WORKER_IN_USE", FailedPrecondition, "drain it and stop it first";
    /// Something rests on the `resource`; `PreconditionFailure` names it.
    ResourceInUse = "RESOURCE_IN_USE", FailedPrecondition, "delete what rests on it first";
    /// Worker and planner speak different versions of their protocol.
    ProtocolVersionUnsupported = "PROTOCOL_VERSION_UNSUPPORTED", FailedPrecondition,
        "install the same version of both";
    /// The `launcher` does not run plans of this shape.
    PlanShapeUnsupported = "PLAN_SHAPE_UNSUPPORTED", FailedPrecondition,
        "ask for the `required_shape`, or for another launcher";
    /// The nodes given lack devices that the plan needs; `PreconditionFailure` says which, by stage.
    PlanDoesNotBind = "PLAN_DOES_NOT_BIND", FailedPrecondition,
        "give more or larger nodes, or recommend a plan for these";
    /// The search was stopped before it found any plan.
    SearchStopped = "SEARCH_STOPPED", DeadlineExceeded, "give it more time, or ask for less";
    /// As many searches run as the planner, or the caller's address, has slots for.
    TooManySearches = "TOO_MANY_SEARCHES", ResourceExhausted, "ask again after `RetryInfo`";
    /// As many documents are read as the planner has room for.
    TooManyImports = "TOO_MANY_IMPORTS", ResourceExhausted, "ask again after `RetryInfo`";
    /// As many callers wait for operations as the planner lets.
    TooManyWaiters = "TOO_MANY_WAITERS", ResourceExhausted, "poll with GetOperation, or wait again later";
    /// As many runs wait as the queue holds.
    QueueFull = "QUEUE_FULL", ResourceExhausted, "wait until runs have ended, or cancel operations";
    /// The `plan` has as many observations as are kept.
    TooManyObservations = "TOO_MANY_OBSERVATIONS", ResourceExhausted, "report to another plan";
    /// The `resource` would have more labels than one may have.
    TooManyLabels = "TOO_MANY_LABELS", ResourceExhausted, "remove labels that nobody needs";
    /// The operation has not ended.
    OperationNotDone = "OPERATION_NOT_DONE", FailedPrecondition, "cancel it first";
    /// The profile has more measurements than a document holds.
    DocumentTooLarge = "DOCUMENT_TOO_LARGE", OutOfRange, "export a profile of fewer runs";
    /// The database did not find a filtered or ordered list in the time that such lists have.
    ListTooSlow = "LIST_TOO_SLOW", DeadlineExceeded, "narrow the filter, or leave out `order_by`";
    /// Other calls changed the same rows again and again.
    Conflict = "CONFLICT", Aborted, "call again";
    /// The database does not answer for the moment.
    DatabaseUnavailable = "DATABASE_UNAVAILABLE", Unavailable, "call again after `RetryInfo`";
    /// The database refused, or a stored row cannot be read; the planner's log says why.
    StoreFailed = "STORE_FAILED", Internal, "read the planner's log";
    /// The planner is stopping.
    Stopping = "STOPPING", Unavailable, "call again: another planner may answer";
    /// More calls are open than the planner answers at once.
    TooManyCalls = "TOO_MANY_CALLS", ResourceExhausted, "call again after `RetryInfo`";
    /// Requests that are on their way take as much memory as they may.
    TooManyRequestBytes = "TOO_MANY_REQUEST_BYTES", ResourceExhausted, "send again after `RetryInfo`";
    /// Answers that the caller has not read take as much memory as they may.
    UnreadAnswers = "UNREAD_ANSWERS", ResourceExhausted, "read the answers first";
    /// The request did not arrive in time.
    RequestIncomplete = "REQUEST_INCOMPLETE", DeadlineExceeded, "send whole requests";
    /// The call's time was up before there was an answer.
    CallTimeout = "CALL_TIMEOUT", DeadlineExceeded, "allow more time, up to a minute, or ask for less";
    /// A worker's stream did not begin with its hello in time.
    NoHello = "NO_HELLO", DeadlineExceeded, "send `hello` first";
    /// The planner has no such service or method.
    MethodUnknown = "METHOD_UNKNOWN", Unimplemented, "compare the versions of client and planner";
    /// The request is encoded in a way that the planner does not read, compressed for example.
    Unsupported = "UNSUPPORTED", Unimplemented, "send it uncompressed";
    /// The message is longer than the method takes, or sends.
    MessageTooLarge = "MESSAGE_TOO_LARGE", OutOfRange, "send less; of lists, ask for smaller pages";
    /// The request is no message of this method.
    MalformedRequest = "MALFORMED_REQUEST", InvalidArgument, "compare the versions of client and planner";
    /// A defect of the planner; its log has the details.
    PlannerDefect = "PLANNER_DEFECT", Internal, "report it with the planner's log";
    /// Whatever else the planner's libraries answered; it may come with any code.
    Other = "OTHER", Unknown, "read the message";
    /// Of operations: a run needed more memory than its device, or its pool of the host, has.
    OutOfMemory = "OUT_OF_MEMORY", FailedPrecondition, "use larger devices, smaller micro-batches, or a larger host pool";
    /// Of operations: a run failed as often as it is tried.
    RunFailed = "RUN_FAILED", Aborted, "read the run's failures with `loadmaster run show`";
    /// Of operations: somebody cancelled it.
    Cancelled = "CANCELLED", Cancelled, "resume the profile, or ask again";
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
