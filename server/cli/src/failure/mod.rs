//! Why a verb failed: the exit code, which is part of the interface, and a human-readable text.

pub(crate) mod options;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use loadmaster_proto::reason::{Reason, code_name};
use loadmaster_proto::wire::v1;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::output::to_stderr;
use loadmaster_show::table::infeasible;
use loadmaster_show::text::terminal_abilities::Look;
use loadmaster_show::text::{plain, seconds};

/// How the program ends. Scripts rely on these numbers; `--help` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// The planner failed, could not be reached, or the work itself failed.
    ServerError = 1,
    /// The command line or a value in it is wrong.
    Usage = 2,
    /// No such resource.
    NotFound = 3,
    /// Not allowed.
    Auth = 4,
    /// No plan fits the devices.
    NoFeasiblePlan = 5,
    /// The profile is missing or lacks measurements.
    ProfileMissing = 6,
    /// Out of time.
    Timeout = 7,
    /// Whether something fits is uncertain.
    Uncertain = 8,
    /// Interrupted with Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// The exit code of a failed call. The reason, where it has a code of its own, wins.
    pub(crate) fn of(status: &Status) -> Self {
        let reason = status.get_details_error_info().map(|info| info.reason);
        match reason.as_deref() {
            Some(reason) if reason == Reason::NoFeasiblePlan.as_str() => return Self::NoFeasiblePlan,
            Some(reason) if reason == Reason::PlacementImpossible.as_str() => return Self::NoFeasiblePlan,
            Some(reason)
                if [Reason::ProfileIncomplete, Reason::ProfileNotReady]
                    .iter()
                    .any(|of| of.as_str() == reason) =>
            {
                return Self::ProfileMissing;
            }
            Some(_) | None => {}
        }
        match status.code() {
            Code::Ok => Self::Ok,
            // An id that is taken is a value of the command line that cannot be used.
            Code::InvalidArgument | Code::OutOfRange | Code::AlreadyExists => Self::Usage,
            Code::NotFound => Self::NotFound,
            Code::PermissionDenied | Code::Unauthenticated => Self::Auth,
            Code::DeadlineExceeded => Self::Timeout,
            Code::Cancelled
            | Code::Unknown
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => Self::ServerError,
        }
    }
}

/// Checks that something fits, or that no capacity was given: all else ends a verb that has printed its answer.
///
/// # Errors
/// It does not fit, or is not certain to; `message` follows from the verdict.
pub(crate) fn check_fits(verdict: v1::Verdict, message: impl FnOnce() -> String) -> Result<(), Failure> {
    let exit = match verdict {
        v1::Verdict::Unspecified | v1::Verdict::Fits => return Ok(()),
        v1::Verdict::FitsWithoutMargin | v1::Verdict::Uncertain => Exit::Uncertain,
        v1::Verdict::DoesNotFit => Exit::NoFeasiblePlan,
    };
    Err(Failure::Outcome { exit, message: message() })
}

/// What ended a verb before it was done.
#[derive(Debug)]
pub enum Failure {
    /// The planner answered with an error.
    Refused(Box<Status>),
    /// No planner answers at this address.
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// Why there is none.
        cause: String,
    },
    /// A long-running operation ended with an error.
    Operation {
        /// Which.
        name: String,
        /// Its error.
        status: Box<Status>,
    },
    /// The verb is over and printed its data, but not with the outcome that was asked for.
    Outcome {
        /// What to exit with.
        exit: Exit,
        /// Human-readable.
        message: String,
    },
    /// A value of the command line is wrong in a way that only shows together with others.
    Usage(String),
    /// Ctrl-C; the text says what goes on without us.
    Interrupted(String),
    /// The reader of our output closed it, as `head` does. Not an error.
    OutputClosed,
    /// Anything on this machine.
    Local(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Local(error)
    }
}

impl Failure {
    /// No plan satisfies a request; the remedies are written as options of the command with this table.
    pub(crate) fn infeasible(infeasible: &v1::Infeasible, table: options::OptionTable) -> Self {
        let message = options::words(&infeasible.message, table);
        let infeasible = v1::Infeasible { message, ..infeasible.clone() };
        let message = infeasible::text(&infeasible, |change| options::typed(change, table));
        Self::Outcome { exit: Exit::NoFeasiblePlan, message }
    }

    /// A command line that is wrong, with what to do about it.
    pub(crate) fn usage<T>(message: impl Into<String>) -> Result<T, Self> {
        Err(Self::Usage(message.into()))
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Refused(status) | Self::Operation { status, .. } => Exit::of(status),
            Self::Unreachable { .. } | Self::Local(_) => Exit::ServerError,
            Self::Outcome { exit, .. } => *exit,
            Self::Usage(_) => Exit::Usage,
            Self::Interrupted(_) => Exit::Interrupted,
            Self::OutputClosed => Exit::Ok,
        }
    }

    /// Whether the same call may succeed later: the planner does not respond, or is unavailable.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Refused(status) => status.code() == Code::Unavailable,
            other => matches!(other, Self::Unreachable { .. }),
        }
    }

    /// In the words of the command line: a planner names the fields of requests.
    /// Errors of a document name the file.
    /// Fields of a request file name that file, unless their options were typed.
    pub(crate) fn in_options(
        self,
        table: options::OptionTable,
        document: Option<&Path>,
        request: Option<&(PathBuf, BTreeSet<String>)>,
    ) -> Self {
        let in_options = |status: &Status| Box::new(options::in_options(status, table, document, request));
        match self {
            Self::Refused(status) => Self::Refused(in_options(&status)),
            Self::Operation { name, status } => Self::Operation { name, status: in_options(&status) },
            other => other,
        }
    }

    /// Prints the text on standard error and returns the exit code.
    pub(crate) fn report(&self, look: Look) -> Exit {
        to_stderr(&self.text(look));
        self.exit()
    }

    fn text(&self, look: Look) -> String {
        let error = look.bold_red("error");
        match self {
            Self::Refused(status) => format!("{error}: {}", status_text(status)),
            Self::Unreachable { address, cause } => format!(
                "{error}: no planner responds at {address}: {cause}\n  \
                 start a planner with `loadmaster serve`, or set the address of a running planner with --address or \
                 LOADMASTER_ADDRESS\n"
            ),
            Self::Operation { name, status } => {
                format!("{error}: {} failed: {}", plain(name), status_text(status))
            }
            Self::Outcome { message, .. } => {
                let indented = |line: &str| {
                    let (indent, _) = line.split_at(line.len() - line.trim_start().len());
                    format!("{indent}{}\n", plain(line))
                };
                format!("{error}: {}", message.lines().map(indented).collect::<String>())
            }
            Self::Usage(message) => {
                format!("{error}: {}\n\nFor more information, try '--help'.\n", plain(message))
            }
            Self::Interrupted(message) => format!("{message}\n"),
            Self::OutputClosed => String::new(),
            Self::Local(cause) => format!("{error}: {}\n", plain(&format!("{cause:#}"))),
        }
    }
}

/// Message, reason, violations, what to do: one fact per line.
fn status_text(status: &Status) -> String {
    let details: ErrorDetails = status.get_error_details();
    let message = if status.message().is_empty() { status.code().description() } else { status.message() };
    let mut text = format!("{}\n", plain(message));
    let mut line = |content: String| {
        text.push_str("  ");
        text.push_str(&plain(&content));
        text.push('\n');
    };
    match details.error_info() {
        Some(info) => line(format!("reason: {} ({})", info.reason, code_name(status.code()))),
        None => line(format!("code: {}", code_name(status.code()))),
    }
    for violation in details.bad_request().iter().flat_map(|request| &request.field_violations) {
        let told = match violation.field.as_str() {
            "" => violation.description.clone(),
            field => format!("{field}: {}", violation.description),
        };
        // A planner may have made its message of the only violation.
        if told != message {
            line(told);
        }
    }
    for violation in details.precondition_failure().iter().flat_map(|failure| &failure.violations) {
        // A resource that the message names is not listed twice.
        let is_named = |end| message.contains(&format!("{}{end}", violation.subject));
        if !violation.subject.contains('/') || !is_named(' ') && !is_named(',') {
            line(format!("{}: {}", violation.subject, violation.description));
        }
    }
    for violation in details.quota_failure().iter().flat_map(|failure| &failure.violations) {
        line(format!("{}: {}", violation.subject, violation.description));
    }
    if let Some(delay) = details.retry_info().and_then(|info| info.retry_delay) {
        line(format!("retry after {}", seconds(delay.as_secs_f64())));
    }
    for link in details.help().iter().flat_map(|help| &help.links) {
        line(format!("help: {} {}", link.description, link_text(&link.url)));
    }
    text
}

/// Returns the link, or the path of the page in the source code if no package installed it on this machine.
fn link_text(url: &str) -> String {
    let (page, section) = url.split_once('#').unwrap_or((url, ""));
    match page.strip_prefix("file://").map(Path::new) {
        Some(file) if !file.exists() => {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            format!("deploy/{name}#{section}, in the source code of Loadmaster")
        }
        _ => url.to_owned(),
    }
}

/// Reports that not even the runtime could be started.
pub fn report_startup(error: &std::io::Error) {
    to_stderr(&format!("error: cannot start: {error}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_reason(code: Code, reason: &str) -> Status {
        let details = ErrorDetails::with_error_info(reason, "loadmaster.dev", []);
        Status::with_error_details(code, "no", details)
    }

    #[test]
    fn codes_map_to_the_documented_exits() {
        for (code, exit) in [
            (Code::Internal, 1),
            (Code::Unavailable, 1),
            (Code::InvalidArgument, 2),
            (Code::NotFound, 3),
            (Code::Unauthenticated, 4),
            (Code::PermissionDenied, 4),
            (Code::FailedPrecondition, 1),
            (Code::DeadlineExceeded, 7),
        ] {
            assert_eq!(Exit::of(&Status::new(code, "")) as u8, exit, "{code:?}");
        }
        for (reason, exit) in [
            ("NO_FEASIBLE_PLAN", 5),
            ("PLACEMENT_IMPOSSIBLE", 5),
            ("PROFILE_INCOMPLETE", 6),
            ("PROFILE_NOT_READY", 6),
            ("PLAN_UNSUPPORTED_BY_FRAMEWORK", 1),
        ] {
            let status = with_reason(Code::FailedPrecondition, reason);
            assert_eq!(Exit::of(&status) as u8, exit, "{reason}");
        }
    }

    #[test]
    fn an_error_tells_all_that_the_planner_said() {
        let mut details = ErrorDetails::with_error_info("INVALID_SPEC", "loadmaster.dev", []);
        details
            .add_bad_request_violation("training.micro_batch_size", "0 is out of range. Use 1 to 1000000")
            .add_bad_request_violation("devices", "is required")
            .set_retry_info(Some(std::time::Duration::from_millis(1500)))
            .add_help_link("training settings", "https://example.org/training");
        let status = Status::with_error_details(Code::InvalidArgument, "the request is not valid", details);
        assert_eq!(
            Failure::Refused(Box::new(status)).text(Look::PLAIN),
            "error: the request is not valid\n\
             \x20 reason: INVALID_SPEC (INVALID_ARGUMENT)\n\
             \x20 training.micro_batch_size: 0 is out of range. Use 1 to 1000000\n\
             \x20 devices: is required\n\
             \x20 retry after 1.50 s\n\
             \x20 help: training settings https://example.org/training\n"
        );
    }

    #[test]
    fn the_only_violation_is_not_told_twice() {
        let details = ErrorDetails::with_bad_request_violation("heads", "is 5");
        let status = Status::with_error_details(Code::InvalidArgument, "heads: is 5", details);
        let text = Failure::Refused(Box::new(status)).text(Look::PLAIN);
        assert_eq!(text, "error: heads: is 5\n  code: INVALID_ARGUMENT\n");
    }

    #[test]
    fn a_planner_cannot_write_escape_sequences_to_the_terminal() {
        let text = Failure::Refused(Box::new(Status::internal("a\u{1b}[2Jb"))).text(Look::PLAIN);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
