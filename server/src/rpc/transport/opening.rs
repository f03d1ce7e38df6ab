//! The first words of a stream: few, so that whoever never finishes them takes little.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tonic::Status;

use super::refusal::Refusal;

/// Most bytes before the planner has answered: a worker's introduction is far below.
const MOST_BYTES: usize = 2 << 20;

/// A request that is a stream.
#[derive(Debug)]
pub(super) struct Opening {
    body: Incoming,
    answered: Arc<AtomicBool>,
    bytes: usize,
}

impl Opening {
    /// The stream, and what is to be set once it was answered.
    pub(super) fn new(body: Incoming) -> (Self, Arc<AtomicBool>) {
        let answered = Arc::new(AtomicBool::new(false));
        (Self { body, answered: Arc::clone(&answered), bytes: 0 }, answered)
    }
}

impl Body for Opening {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && !self.answered.load(Ordering::Acquire)
        {
            self.bytes = self.bytes.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            if self.bytes > MOST_BYTES {
                return Poll::Ready(Some(Err(Refusal::TooMuchToReceive.into())));
            }
        }
        polled.map_err(|error| Status::from_error(error.into()))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
