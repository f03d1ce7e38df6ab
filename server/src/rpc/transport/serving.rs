//! HTTP/2 on one socket.

use std::convert::Infallible;
use std::io::Cursor;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::answer::PIECE_BYTES;
use super::call::Calls;
use super::connections::Place;

/// What every HTTP/2 connection begins with.
const PREFACE_BYTES: usize = 24;
/// Time for a new peer to send it.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams of one connection. Clients wait before they open more.
const STREAMS: u32 = 64;
/// Bytes that a peer may send ahead, on one stream and on all of them.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// A peer that does not answer a ping for this long is gone. It gets one as often.
const PING: Duration = Duration::from_secs(15);
const HEADER_BYTES: u32 = 16 << 10;
/// Streams that a peer took back before they were looked at: more is an attack.
const RESET_STREAMS: usize = 64;

/// Serves a connection until either side ends it.
pub(super) async fn serve(mut stream: TcpStream, entry: Place, calls: Arc<Calls>, stop: CancellationToken) {
    let connection = &entry.connection;
    let mut preface = [0; PREFACE_BYTES];
    tokio::select! {
        read = tokio::time::timeout(PREFACE_TIMEOUT, stream.read_exact(&mut preface)) => {
            if !matches!(read, Ok(Ok(_))) {
                return;
            }
        }
        () = connection.was_cut() => return,
        () = stop.cancelled() => return,
    }
    let (read, write) = stream.into_split();
    let io = TokioIo::new(tokio::io::join(Cursor::new(preface).chain(read), write));
    let service = service_fn(|request| {
        let answer = Arc::clone(&calls).answer(request, Arc::clone(connection));
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(PIECE_BYTES)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_header_list_size(HEADER_BYTES)
        .max_pending_accept_reset_streams(RESET_STREAMS);
    let mut serving = pin!(http.serve_connection(io, service));
    let mut leaving = false;
    loop {
        tokio::select! {
            ended = &mut serving => {
                if let Err(error) = ended {
                    tracing::debug!(peer = %connection.peer(), %error, "connection failed");
                }
                return;
            }
            () = connection.was_cut() => return,
            () = async { tokio::select! { () = stop.cancelled() => {}, () = connection.left() => {} } }, if !leaving => {
                leaving = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}
