//! Gives a reason to errors that have none: those of the libraries below the services.

use loadmaster_proto::reason::Reason;
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::rpc::error::{RETRY_AFTER, details, with_reason};

/// A call whose handler panicked; the panic itself is on standard error.
pub(in crate::rpc) fn panicked() -> Status {
    let message = "a defect of the planner ended the call. Report it with the planner's log.".to_owned();
    with_reason(Reason::PlannerDefect, message, [])
}

/// The status of an answer, with a reason; where it had none, the headers get it too.
pub(super) fn explained(status: Status, headers: &mut HeaderMap) -> Status {
    if status.code() == Code::Ok || status.get_details_error_info().is_some() {
        return status;
    }
    let reason = reason(&status);
    // A request that cannot be read is its sender's fault, whatever the library says, and it has no code for long messages.
    let is_ours = matches!(reason, Reason::MalformedRequest | Reason::MessageTooLarge);
    let code = if is_ours { reason.code() } else { status.code() };
    let mut details = details(reason, []);
    if reason == Reason::TooManyCalls {
        details.set_retry_info(Some(RETRY_AFTER));
    }
    let message = match status.message() {
        "" if reason == Reason::MethodUnknown => "the planner has no such method",
        message => message,
    };
    let explained = Status::with_error_details(code, message, details);
    // Only a message that is no header fails, and this one just was one.
    match explained.add_header(headers) {
        Ok(()) => explained,
        Err(_) => status,
    }
}

/// What the libraries mean. They tell by code and text alone.
fn reason(status: &Status) -> Reason {
    let says = |word: &str| status.message().contains(word);
    match status.code() {
        Code::Unimplemented if says("ompress") => Reason::EncodingUnsupported,
        Code::Unimplemented => Reason::MethodUnknown,
        Code::OutOfRange if says("message length too large") => Reason::MessageTooLarge,
        Code::Internal if says("ecod") || says("compression flag") || says("essage") => {
            Reason::MalformedRequest
        }
        Code::InvalidArgument => Reason::InvalidField,
        Code::NotFound => Reason::NotFound,
        Code::ResourceExhausted => Reason::TooManyCalls,
        Code::DeadlineExceeded => Reason::CallTimeout,
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => Reason::LibraryError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(status: &Status) -> Status {
        let mut headers = HeaderMap::new();
        status.add_header(&mut headers).unwrap();
        explained(Status::from_header_map(&headers).unwrap(), &mut headers);
        Status::from_header_map(&headers).unwrap()
    }

    #[test]
    fn what_libraries_answer_gets_a_reason() {
        for (status, code, reason) in [
            (Status::unimplemented(""), Code::Unimplemented, "METHOD_UNKNOWN"),
            (
                Status::internal("failed to decode Protobuf message: invalid tag"),
                Code::InvalidArgument,
                "MALFORMED_REQUEST",
            ),
            (
                Status::out_of_range("Error, decoded message length too large"),
                Code::ResourceExhausted,
                "MESSAGE_TOO_LARGE",
            ),
            (Status::not_found("service not registered"), Code::NotFound, "NOT_FOUND"),
            (Status::cancelled("ä\n"), Code::Cancelled, "LIBRARY_ERROR"),
        ] {
            let got = sent(&status);
            let message = if status.message().is_empty() { got.message() } else { status.message() };
            assert_eq!((got.code(), got.message()), (code, message));
            assert!(!message.is_empty());
            assert_eq!(got.get_details_error_info().unwrap().reason, reason);
            let link = got.get_details_help().unwrap().links[0].url.clone();
            assert!(link.ends_with(&format!("errors.md#{}", reason.to_ascii_lowercase())), "{link}");
        }
    }

    #[test]
    fn what_has_a_reason_keeps_it() {
        let status = with_reason(Reason::NotFound, "none".to_owned(), [("resource", "plans/b".to_owned())]);
        let got = sent(&status);
        assert_eq!((got.code(), got.details()), (status.code(), status.details()));
    }
}
