//! Sockets of browsers, which see the pages over HTTP/1. None stays for long without a request, or with an answer that its browser
//! does not take.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connections::{Connections, Place};
use super::{Limits, listener};

/// Bytes of the head of a request: filters are in it.
const HEAD_BYTES: usize = 64 << 10;
/// Most connections: a browser opens six.
const CONNECTIONS: usize = 256;
/// Most connections from one address, behind which there may be many browsers.
const CONNECTIONS_PER_PEER: usize = 128;

/// How long a browser may take.
#[derive(Debug, Clone, Copy)]
struct Waits {
    /// Longest wait for the head of a request, also between two of them.
    head: Duration,
    /// Time for which a peer may leave an answer where it is.
    unread: Duration,
}

/// Serves pages until `stop` is cancelled; what is being answered then is cut off, since streams of events have no end.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let limits =
        Limits { connections: CONNECTIONS, connections_per_peer: CONNECTIONS_PER_PEER, ..Limits::default() };
    let waits = Waits { head: Duration::from_secs(30), unread: Duration::from_secs(30) };
    serve_within(limits, waits, listener, router, stop).await;
}

async fn serve_within(
    limits: Limits,
    waits: Waits,
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) {
    let connections = Connections::new(limits);
    let tasks = TaskTracker::new();
    loop {
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener::accept(&listener) => accepted,
        };
        // Who finds no room learns it at once.
        let Some(place) = connections.admit(peer.ip()) else { continue };
        let (router, stop) = (router.clone(), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = place.connection.was_cut() => {}
                () = converse(stream, router, &place, waits) => {}
            }
        });
    }
    tasks.close();
    tasks.wait().await;
}

async fn converse(stream: TcpStream, router: Router, place: &Place, waits: Waits) {
    let socket = BrowserSocket { stream, unread: waits.unread, waits: None };
    let routes = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        let open_call = place.connection.enter();
        request.extensions_mut().insert(place.connection.peer_share.listeners.clone());
        let answer = routes.call(request);
        async move {
            let answer = answer.await?;
            // The connection is at work until its answer is complete.
            let until_complete = |body: Body| {
                body.map_frame(move |frame| {
                    let _ = &open_call;
                    frame
                })
            };
            Ok::<_, Infallible>(answer.map(until_complete))
        }
    });
    let ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(waits.head)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(socket), service)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of a browser failed");
    }
}

/// A socket to which nothing can be written any more once its peer has taken nothing for too long.
#[derive(Debug)]
struct BrowserSocket {
    stream: TcpStream,
    /// Time for which a peer may take nothing.
    unread: Duration,
    /// The end of that time, while something waits for the peer.
    waits: Option<Pin<Box<Sleep>>>,
}

impl BrowserSocket {
    /// What became of a write: every byte that goes gives the peer its time again.
    fn in_time(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let unread = self.unread;
        let waits = self.waits.get_or_insert_with(|| Box::pin(tokio::time::sleep(unread)));
        waits
            .as_mut()
            .poll(context)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the browser does not read the answers")))
    }
}

impl AsyncRead for BrowserSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for BrowserSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::net::SocketAddr;

    use axum::routing::get;
    use futures_util::stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;

    use super::*;

    const HERE: &str = "127.0.0.1:0";
    const THERE: &str = "127.0.0.2:0";
    const ELSEWHERE: &str = "127.0.0.3:0";
    const PAGE: &str = "a page";
    /// Longest wait for anything: a test that passes never comes near it.
    const PATIENCE: Duration = Duration::from_secs(120);
    static PIECE: [u8; 64 << 10] = [b'.'; 64 << 10];

    /// Where there is a page, and an answer that no socket has room for, until the test ends.
    async fn served(connections: usize, connections_per_peer: usize, unread: Duration) -> SocketAddr {
        let endless = || async { Body::from_stream(stream::repeat(Ok::<_, Infallible>(&PIECE[..]))) };
        let router = Router::new().route("/", get(|| async { PAGE })).route("/endless", get(endless));
        let listener = TcpListener::bind(HERE).await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { connections, connections_per_peer, ..Limits::default() };
        let waits = Waits { head: PATIENCE, unread };
        tokio::spawn(serve_within(limits, waits, listener, router, CancellationToken::new()));
        address
    }

    /// A connection from an address, which has asked for something.
    async fn ask(from: &str, address: SocketAddr, path: &str) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(from.parse().unwrap())?;
        let mut stream = socket.connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
        Ok(stream)
    }

    /// A connection that has shown the page, and stays; none where there is no room.
    async fn connected(from: &str, address: SocketAddr) -> Option<TcpStream> {
        let mut stream = ask(from, address, "/").await.ok()?;
        let mut answer = Vec::new();
        while !answer.ends_with(PAGE.as_bytes()) {
            if stream.read_buf(&mut answer).await.ok()? == 0 {
                return None;
            }
        }
        Some(stream)
    }

    /// Waits until there is room for a connection.
    async fn admitted(from: &str, address: SocketAddr) -> TcpStream {
        loop {
            if let Some(stream) = connected(from, address).await {
                return stream;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn in_patience<T>(what: impl Future<Output = T>) -> T {
        tokio::time::timeout(PATIENCE, what).await.expect("waited too long")
    }

    #[tokio::test]
    async fn a_reader_who_stops_reading_loses_his_place() {
        let address = served(9, 1, Duration::from_millis(100)).await;
        in_patience(async {
            let mut reader = ask(HERE, address, "/endless").await.unwrap();
            reader.read_exact(&mut [0; 100]).await.expect("an answer begins");
            // He is at work until he is cut off, and then there is room again.
            admitted(HERE, address).await;
            // What had left already ends as well, by a reset or without.
            let _ = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
        })
        .await;
    }

    #[tokio::test]
    async fn a_reader_who_takes_something_has_time_again() {
        in_patience(async {
            let listener = TcpListener::bind(HERE).await.unwrap();
            let mut reader = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            stream.writable().await.unwrap();
            let mut socket = BrowserSocket { stream, unread: PATIENCE, waits: None };
            // Until its buffers are full.
            while poll_fn(|context| Poll::Ready(Pin::new(&mut socket).poll_write(context, &PIECE)))
                .await
                .is_ready()
            {}
            assert!(socket.waits.is_some());
            tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
            socket.write_all(&PIECE).await.expect("the reader takes it");
            assert!(socket.waits.is_none());
        })
        .await;
    }

    /// A connection with an answer that does not end, which no one takes.
    async fn at_work(from: &str, address: SocketAddr) -> TcpStream {
        let mut stream = ask(from, address, "/endless").await.unwrap();
        stream.read_exact(&mut [0; 100]).await.expect("an answer begins");
        stream
    }

    #[tokio::test]
    async fn a_peer_whose_connections_are_all_at_work_gets_no_more_and_others_do() {
        let address = served(3, 2, PATIENCE).await;
        in_patience(async {
            let held = [at_work(HERE, address).await, at_work(HERE, address).await];
            assert!(connected(HERE, address).await.is_none(), "it has its share");
            let other = at_work(THERE, address).await;
            assert!(connected(ELSEWHERE, address).await.is_none(), "all places are taken");
            drop(held);
            admitted(HERE, address).await;
            drop(other);
        })
        .await;
    }
}
