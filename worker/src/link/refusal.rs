//! Which answers of the planner are worth another try.

use std::error::Error;
use std::time::Duration;

use loadmaster_proto::quote::in_one_line;
use loadmaster_proto::reason::Reason;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// Reason in the error details when planner and worker speak different protocol versions.
const PROTOCOL_VERSION_UNSUPPORTED: &str = Reason::ProtocolVersionUnsupported.as_str();
/// Longest wait that a planner may ask for.
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(60);

/// Most characters of what a planner says, in the log.
const LONGEST_MESSAGE: usize = 1_000;

/// Why a stream ended, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Dial again, not before the planner's own wait where it named one.
    Lost {
        /// For people.
        why: String,
        /// The wait that the planner asked for.
        wait: Option<Duration>,
    },
    /// No use to dial again.
    Refused {
        /// For people.
        why: String,
    },
}

impl Ending {
    /// A connection that just ended.
    pub(crate) fn lost(why: impl Into<String>) -> Self {
        Self::Lost { why: why.into(), wait: None }
    }
}

/// Sorts a status. Every code is named, so that a new one has to be thought about.
pub(crate) fn classify(status: &Status) -> Ending {
    let why = describe(status);
    let permanent = match status.code() {
        Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated => true,
        Code::FailedPrecondition => {
            status.get_details_error_info().is_some_and(|info| info.reason == PROTOCOL_VERSION_UNSUPPORTED)
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => false,
    };
    if permanent {
        return Ending::Refused { why };
    }
    let wait = status.get_details_retry_info().and_then(|info| info.retry_delay);
    Ending::Lost { why, wait: wait.map(|wait| wait.min(LONGEST_ASKED_WAIT)) }
}

fn describe(status: &Status) -> String {
    let message = match status.message() {
        "" => chain(status),
        message => in_one_line(message, LONGEST_MESSAGE),
    };
    format!("{message} ({:?})", status.code())
}

/// An error with everything that caused it: transport errors hide the useful part at the end.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors repeat what caused them.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    fn with_reason(code: Code, reason: &str) -> Status {
        let details = ErrorDetails::with_error_info(reason, "loadmaster.dev", []);
        Status::with_error_details(code, "speaks version 9", details)
    }

    /// Pins which refusals end the daemon: those that another try cannot change.
    #[test]
    fn only_refusals_that_last_are_permanent() {
        let permanent = [
            with_reason(Code::FailedPrecondition, PROTOCOL_VERSION_UNSUPPORTED),
            Status::invalid_argument("worker"),
            Status::permission_denied("no"),
            Status::unauthenticated("who?"),
        ];
        for status in &permanent {
            assert!(matches!(classify(status), Ending::Refused { .. }), "{status}");
        }
        let passing = [
            with_reason(Code::FailedPrecondition, "STARTING"),
            Status::unavailable("restarting"),
            Status::internal("bug"),
            Status::unimplemented("wrong port?"),
        ];
        for status in &passing {
            assert!(matches!(classify(status), Ending::Lost { wait: None, .. }), "{status}");
        }
    }

    #[test]
    fn the_planners_own_wait_is_respected_up_to_a_minute() {
        for (asked, kept) in [(5, 5), (4_000, 60)] {
            let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(asked)));
            let status = Status::with_error_details(Code::Unavailable, "busy", details);
            let Ending::Lost { wait, .. } = classify(&status) else { panic!("permanent") };
            assert_eq!(wait, Some(Duration::from_secs(kept)));
        }
    }
}
