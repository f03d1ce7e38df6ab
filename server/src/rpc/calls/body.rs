//! The body of an answer, looked at on its way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::explain;
use super::names::Names;
use super::record::Record;

type Framed = Option<Result<Frame<Bytes>, Status>>;

/// What a client gets. It is complete with its trailers, which hold the status.
pub(super) struct LoggedBody {
    body: Body,
    names: Option<Names>,
    /// None once the call was logged; it logs itself where it is dropped before.
    record: Option<Record>,
}

impl LoggedBody {
    pub(super) fn new(body: Body, record: Record) -> Self {
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
