//! Takes a request in before anybody works on it.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use loadmaster_proto::MAX_MESSAGE_BYTES;
use tokio::time::Instant;

use super::gate::Counted;
use super::refusal::Refusal;

/// Time for a request to arrive, and for each piece of a large one in addition.
const PATIENCE: Duration = Duration::from_secs(10);
const PIECE_BYTES: usize = 64 << 10;
const PATIENCE_PER_PIECE: Duration = Duration::from_secs(1);
/// What comes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The whole of a request that is one message. A peer that sends it byte by byte, or never ends it, is told so
/// before long; meanwhile it takes no one's room.
pub(super) async fn receive(mut body: Incoming, counted: &mut Counted) -> Result<Bytes, Refusal> {
    let begin = Instant::now();
    let mut received = BytesMut::new();
    loop {
        let pieces = u32::try_from(received.len() / PIECE_BYTES).unwrap_or(u32::MAX);
        let deadline = begin + PATIENCE + PATIENCE_PER_PIECE.saturating_mul(pieces);
        let frame = match tokio::time::timeout_at(deadline, body.frame()).await {
            Err(_) => return Err(Refusal::Incomplete(received.len())),
            Ok(None) => break,
            // The peer took it back; no one reads the answer.
            Ok(Some(Err(_))) => return Err(Refusal::Incomplete(received.len())),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        if received.is_empty() && body.is_end_stream() {
            // The usual case: all in one piece.
            return whole(data);
        }
        received.extend_from_slice(&data);
        let expected = expected(&received)?;
        if expected.is_some_and(|expected| received.len() > expected) {
            return Err(Refusal::Malformed);
        }
        if !counted.hold(received.len()) {
            return Err(Refusal::TooMuchToReceive);
        }
    }
    whole(received.freeze())
}

/// Bytes of the message that `received` begins, once that can be told.
fn expected(received: &[u8]) -> Result<Option<usize>, Refusal> {
    let Some(mut length) = received.get(1..PREFIX_BYTES) else { return Ok(None) };
    let length = usize::try_from(length.get_u32()).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE_BYTES {
        return Err(Refusal::TooLarge(length));
    }
    Ok(Some(length + PREFIX_BYTES))
}

fn whole(received: Bytes) -> Result<Bytes, Refusal> {
    if expected(&received)? == Some(received.len()) { Ok(received) } else { Err(Refusal::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_exactly_one_message_of_a_bounded_size() {
        let ends = |bytes: &'static [u8]| whole(Bytes::from_static(bytes));
        assert!(ends(&[0, 0, 0, 0, 0]).is_ok());
        assert!(ends(&[0, 0, 0, 0, 2, 8, 1]).is_ok());
        for wrong in [&[][..], &[0, 0, 0], &[0, 0, 0, 0, 2, 8], &[0, 0, 0, 0, 1, 8, 1]] {
            assert!(matches!(whole(Bytes::copy_from_slice(wrong)), Err(Refusal::Malformed)), "{wrong:?}");
        }
        assert!(matches!(ends(&[0, 255, 0, 0, 0]), Err(Refusal::TooLarge(_))));
    }
}
