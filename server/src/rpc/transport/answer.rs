//! Hands an answer over piece by piece, as fast as its caller takes it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tonic::Status;
use tonic::body::Body;

use super::connections::{OpenCall, Unread};
use super::gate::Counted;
use super::refusal::Refusal;

/// Bytes that leave at once. h2 keeps whatever it is given until the peer takes it, so it is given little.
pub(super) const PIECE_BYTES: usize = 8 << 10;

/// The body of an answer.
#[derive(Debug)]
pub(super) struct AnswerBody {
    /// What comes before the rest of `body`.
    next: Option<Result<Frame<Bytes>, Status>>,
    body: Body,
    unread: Unread,
    counted: Counted,
    _call: OpenCall,
}

/// An answer whose first part is there and counted: with that, a unary one is complete.
pub(super) fn prepare(
    response: Response<Body>,
    unread: Unread,
    mut counted: Counted,
    call: OpenCall,
) -> Response<AnswerBody> {
    let (parts, mut body) = response.into_parts();
    // Encoding happens at the first look. A stream without news has no first part yet.
    let next = if body.is_end_stream() { None } else { body.frame().now_or_never().flatten() };
    let bytes = match &next {
        Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
        _ => 0,
    };
    if !counted.hold(bytes) {
        let (parts, body) = Refusal::TooMuchUnread.response().into_parts();
        return Response::from_parts(parts, AnswerBody { next: None, body, unread, counted, _call: call });
    }
    Response::from_parts(parts, AnswerBody { next, body, unread, counted, _call: call })
}

impl AnswerBody {
    /// The first piece of a frame; the rest of it is next.
    fn piece(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_data() {
            Ok(mut data) if data.len() > PIECE_BYTES => {
                let piece = data.split_to(PIECE_BYTES);
                self.next = Some(Ok(Frame::data(data)));
                Frame::data(piece)
            }
            Ok(data) => Frame::data(data),
            Err(frame) => frame,
        }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = match self.next.take() {
            Some(next) => Poll::Ready(Some(next)),
            None => Pin::new(&mut self.body).poll_frame(context),
        };
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.unread.waits_for_peer();
                Poll::Ready(Some(Ok(self.piece(frame))))
            }
            Poll::Pending => {
                // All that there was has been taken.
                self.counted.hold(0);
                self.unread.waits_for_us();
                Poll::Pending
            }
            ended => ended,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.next.is_none() { self.body.size_hint() } else { SizeHint::default() }
    }
}
