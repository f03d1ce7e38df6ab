//! Why a call got no answer from the services, as its caller learns it.

use std::collections::HashMap;
use std::time::Duration;

use http::Response;
use loadmaster_proto::MAX_MESSAGE_BYTES;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::rpc::error::DOMAIN;

/// How long callers should wait when there is no room.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a call was refused before or after the services saw it.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum Refusal {
    /// All that may be answered at once is being answered.
    #[error("{0}: try again later")]
    TooManyCalls(&'static str),
    /// Waiters may take up half of the calls that the planner answers at once, and one peer most of them.
    #[error("too many callers wait for operations: poll with GetOperation, or wait again later")]
    TooManyWaiters,
    /// Requests that are on their way take too much memory.
    #[error("requests that are being received take too much memory: try again later")]
    TooMuchToReceive,
    /// Answers that were not read take too much memory.
    #[error("answers that nobody has read yet take too much memory: read them first")]
    TooMuchUnread,
    /// The request did not come.
    #[error("the request did not arrive in time: {0} bytes came")]
    Incomplete(usize),
    /// The request is larger than any may be.
    #[error("the request is too large: {0} bytes, at most {MAX_MESSAGE_BYTES}")]
    TooLarge(usize),
    /// The request is not one message.
    #[error("the request is not one gRPC message")]
    Malformed,
    /// The caller's time-out cannot be read.
    #[error("grpc-timeout: must be up to 8 digits and one of the units H, M, S, m, u, n")]
    Timeout,
    /// The call took too long.
    #[error("no answer within {} seconds, the call's time", .0.as_secs_f64())]
    Late(Duration),
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let (code, reason, retry) = match refusal {
            Refusal::TooManyCalls(_) => (Code::ResourceExhausted, "TOO_MANY_CALLS", true),
            Refusal::TooManyWaiters => (Code::ResourceExhausted, "TOO_MANY_WAITERS", true),
            Refusal::TooMuchToReceive => (Code::ResourceExhausted, "TOO_MANY_REQUEST_BYTES", true),
            Refusal::TooMuchUnread => (Code::ResourceExhausted, "UNREAD_ANSWERS", true),
            Refusal::Incomplete(_) => (Code::DeadlineExceeded, "REQUEST_INCOMPLETE", false),
            Refusal::TooLarge(_) => (Code::OutOfRange, "MESSAGE_TOO_LARGE", false),
            Refusal::Malformed => (Code::InvalidArgument, "MALFORMED_REQUEST", false),
            Refusal::Timeout => (Code::InvalidArgument, "INVALID_FIELD", false),
            Refusal::Late(_) => (Code::DeadlineExceeded, "CALL_TIMEOUT", false),
        };
        let mut details = ErrorDetails::with_error_info(reason, DOMAIN, HashMap::new());
        if retry {
            details.set_retry_info(Some(RETRY_AFTER));
        }
        if let Refusal::Timeout = refusal {
            details.add_bad_request_violation("grpc-timeout", "is negative or not a gRPC time-out");
        }
        Status::with_error_details(code, refusal.to_string(), details)
    }
}

impl Refusal {
    /// The whole answer.
    pub(super) fn response(self) -> Response<Body> {
        let (parts, ()) = Status::from(self).into_http::<()>().into_parts();
        Response::from_parts(parts, Body::empty())
    }
}

/// The answer with a reason where it is an error without one: of what never came to a service of ours.
pub(super) fn explained(response: Response<Body>) -> Response<Body> {
    let headers = response.headers();
    if !headers.contains_key("grpc-status") || headers.contains_key("grpc-status-details-bin") {
        return response;
    }
    let (code, reason, message) = match Status::from_header_map(headers) {
        Some(status) if status.code() == Code::Ok => return response,
        Some(status) if status.code() == Code::Unimplemented && status.message().is_empty() => {
            (Code::Unimplemented, "METHOD_UNKNOWN", "the planner has no such method".to_owned())
        }
        Some(status) if status.code() == Code::Unimplemented => {
            (Code::Unimplemented, "UNSUPPORTED", status.message().to_owned())
        }
        // The bytes are the caller's.
        Some(status) if status.code() == Code::Internal && status.message().contains("decode") => {
            (Code::InvalidArgument, "MALFORMED_REQUEST", status.message().to_owned())
        }
        // Health of a service that is not.
        Some(status) if status.code() == Code::NotFound => {
            (Code::NotFound, "NOT_FOUND", status.message().to_owned())
        }
        _ => return response,
    };
    let details = ErrorDetails::with_error_info(reason, DOMAIN, HashMap::new());
    let (parts, ()) = Status::with_error_details(code, message, details).into_http::<()>().into_parts();
    Response::from_parts(parts, Body::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_library_get_a_reason_and_answers_stay_as_they_are() {
        let reason_of = |status: Status| {
            let (parts, ()) = status.into_http::<()>().into_parts();
            let explained = explained(Response::from_parts(parts, Body::empty()));
            let status = Status::from_header_map(explained.headers()).unwrap();
            (status.code(), status.get_details_error_info().map(|info| info.reason).unwrap_or_default())
        };
        let undecodable = Status::internal("failed to decode Protobuf message: buffer underflow");
        for (status, code, reason) in [
            (Status::unimplemented(""), Code::Unimplemented, "METHOD_UNKNOWN"),
            (Status::unimplemented("compression"), Code::Unimplemented, "UNSUPPORTED"),
            (undecodable, Code::InvalidArgument, "MALFORMED_REQUEST"),
            (Refusal::Malformed.into(), Code::InvalidArgument, "MALFORMED_REQUEST"),
            (Refusal::TooMuchUnread.into(), Code::ResourceExhausted, "UNREAD_ANSWERS"),
        ] {
            assert_eq!(reason_of(status), (code, reason.to_owned()));
        }
        assert!(explained(Response::new(Body::empty())).headers().is_empty());
    }

    #[test]
    fn every_refusal_has_a_reason_and_those_that_pass_a_hint() {
        let all = [
            (Refusal::TooManyCalls("busy"), true),
            (Refusal::TooManyWaiters, true),
            (Refusal::TooMuchToReceive, true),
            (Refusal::TooMuchUnread, true),
            (Refusal::Incomplete(3), false),
            (Refusal::TooLarge(usize::MAX), false),
            (Refusal::Malformed, false),
            (Refusal::Timeout, false),
            (Refusal::Late(Duration::from_secs(60)), false),
        ];
        for (refusal, passes) in all {
            let status = Status::from(refusal);
            let info = status.get_details_error_info().unwrap();
            assert_eq!(info.domain, DOMAIN, "{refusal:?}");
            assert!(!info.reason.is_empty() && !status.message().is_empty(), "{refusal:?}");
            let hint = status.get_details_retry_info().and_then(|info| info.retry_delay);
            assert_eq!(hint.is_some(), passes, "{refusal:?}");
            assert_eq!(status.code() == Code::ResourceExhausted, passes, "{refusal:?}");
        }
    }
}
