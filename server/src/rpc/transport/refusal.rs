//! Why a call got no answer from the services, as its caller learns it.

use std::time::Duration;

use http::Response;
use loadmaster_proto::MAX_MESSAGE_BYTES;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::reason::Reason;
use tonic::Status;
use tonic::body::Body;

use crate::rpc::error::{RETRY_AFTER, invalid_argument, retry_after, with_reason};

/// Why a call was refused before or after the services saw it.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum Refusal {
    /// All that may be answered at once is being answered.
    #[error("{0}. Retry later.")]
    TooManyCalls(&'static str),
    /// Waiters may take up half of the calls that the planner answers at once, and one peer most of them.
    #[error("too many WaitOperation calls are open. Poll with GetOperation, or retry later.")]
    TooManyWaiters,
    /// Requests that are on their way take too much memory.
    #[error("the requests that are being received need too much memory. Retry later.")]
    TooMuchToReceive,
    /// Answers that were not read take too much memory.
    #[error("answers that the client has not read need too much memory. Read these answers first.")]
    TooMuchUnread,
    /// The request did not come.
    #[error("the request did not arrive completely in time. Only {0} bytes arrived. Send the whole request.")]
    Incomplete(usize),
    /// The request is larger than any may be.
    #[error("the request has {0} bytes, more than the limit of {MAX_MESSAGE_BYTES}. Send a smaller one.")]
    TooLarge(usize),
    /// The request is not one message.
    #[error("the request is not a single gRPC message")]
    Malformed,
    /// The caller's time-out cannot be read.
    #[error("grpc-timeout: not a valid timeout. Use up to 8 digits and one of the units H, M, S, m, u, n.")]
    Timeout,
    /// The call took too long.
    #[error("no answer within {} seconds, the call's timeout", .0.as_secs_f64())]
    Late(Duration),
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        let again = |reason, message| retry_after(RETRY_AFTER, reason, message);
        match refusal {
            Refusal::TooManyCalls(_) => again(Reason::TooManyCalls, message),
            Refusal::TooManyWaiters => again(Reason::TooManyWaiters, message),
            Refusal::TooMuchToReceive => again(Reason::TooManyRequestBytes, message),
            Refusal::TooMuchUnread => again(Reason::ResponsesUnread, message),
            Refusal::Incomplete(_) => with_reason(Reason::RequestIncomplete, message, []),
            Refusal::TooLarge(_) => with_reason(Reason::MessageTooLarge, message, []),
            Refusal::Malformed => with_reason(Reason::MalformedRequest, message, []),
            Refusal::Timeout => {
                let why = Invalid::field("grpc-timeout", "not a valid timeout. Use, for example, 30S.");
                invalid_argument(message, &why)
            }
            Refusal::Late(_) => with_reason(Reason::CallTimeout, message, []),
        }
    }
}

impl Refusal {
    /// The whole answer.
    pub(super) fn response(self) -> Response<Body> {
        let (parts, ()) = Status::from(self).into_http::<()>().into_parts();
        Response::from_parts(parts, Body::empty())
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::reason::DOMAIN;
    use tonic::Code;
    use tonic_types::StatusExt;

    use super::*;

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
            let is_exhausted = status.code() == Code::ResourceExhausted;
            assert_eq!(is_exhausted, passes || matches!(refusal, Refusal::TooLarge(_)), "{refusal:?}");
        }
    }
}
