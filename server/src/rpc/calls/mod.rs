//! What all calls have in common, whatever answers them: a reason for every error, a line in the log.
//!
//! No message is read: names are looked for in the first bytes of request and answer ([`names`]).

mod explain;
mod names;
mod record;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::codegen::http::Response;

pub(super) use explain::panicked;
use names::Names;
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

type Framed = Option<Result<Frame<Bytes>, Status>>;

/// What a client gets. It is complete with its trailers, which hold the status.
struct LoggedBody {
    body: Body,
    names: Option<Names>,
    /// None once the call was logged; it logs itself where it is dropped before.
    record: Option<Record>,
}

impl LoggedBody {
    fn new(body: Body, record: Record) -> Self {
        Self { body, names: Some(record.names()), record: Some(record) }
    }
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Framed> {
        let mut framed = ready!(Pin::new(&mut self.body).poll_frame(context));
        look_at(&mut self.names, &framed);
        if let Some(Ok(frame)) = &mut framed
            && let Some(trailers) = frame.trailers_mut()
            && let Some(status) = Status::from_header_map(trailers)
        {
            let status = explain::explained(status, trailers);
            if let Some(record) = self.record.take() {
                record.end(&status);
            }
        }
        Poll::Ready(framed)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn look_at(names: &mut Option<Names>, framed: &Framed) {
    if let Some(Ok(frame)) = framed
        && let Some(data) = frame.data_ref()
        && let Some(names) = names.take()
    {
        names.look_at(data);
    }
}
