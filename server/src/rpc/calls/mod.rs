//! What all calls have in common, whatever answers them: a reason for every error, a line in the log.
//!
//! No message is read: names are looked for in the first bytes of request and answer ([`names`]).

mod body;
mod explain;
mod names;
mod record;

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Response;

use body::LoggedBody;
pub(super) use explain::panicked;
pub(super) use names::Texts;
pub(super) use record::Record;

/// An answer that is logged once it is complete: at once where it is an error without a message.
pub(super) fn answered(response: Response<Body>, record: Record) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    match Status::from_header_map(&parts.headers) {
        Some(status) => {
            let status = explain::explained(status, &mut parts.headers);
            record.end(&status);
            Response::from_parts(parts, body)
        }
        None => Response::from_parts(parts, Body::new(LoggedBody::new(body, record))),
    }
}
