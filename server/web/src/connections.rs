//! Sockets of browsers: few of them, fewer of one address, and none for long without a request or with an answer that nobody takes.
//! Where there is no room for a new one, the one that has been without a request for longest makes some.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use hyper::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bytes of the head of a request: filters are in it.
const HEAD_BYTES: usize = 64 << 10;
/// Pause while nothing can be accepted.
const REST: Duration = Duration::from_millis(100);

/// What browsers may take up.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Most connections: a browser opens six.
    connections: usize,
    /// Most connections from one address, behind which there may be many browsers.
    connections_per_peer: usize,
    /// Longest wait for the head of a request, also between two of them.
    head: Duration,
    /// Time for which a peer may leave an answer where it is.
    unread: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            connections_per_peer: 128,
            head: Duration::from_secs(30),
            unread: Duration::from_secs(30),
        }
    }
}

/// Serves until `stop` is cancelled; what is being answered then is cut off, since streams of events have no end.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    serve_within(Limits::default(), listener, router, stop).await;
}

async fn serve_within(limits: Limits, listener: TcpListener, router: Router, stop: CancellationToken) {
    let room = Room::default();
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a browser");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        // Who finds no room learns it at once.
        let Some(place) = room.admit(peer.ip(), &limits) else { continue };
        let (router, stop) = (router.clone(), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = place.connection.cut.cancelled() => {}
                () = converse(stream, router, &place.connection, &limits) => {}
            }
            drop(place);
        });
    }
    tasks.close();
    tasks.wait().await;
}

async fn converse(stream: TcpStream, router: Router, connection: &Arc<Connection>, limits: &Limits) {
    let socket = Socket { stream, unread: limits.unread, waits: None };
    let routes = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        let at_work = connection.enter();
        request.extensions_mut().insert(connection.peer);
        let answer = routes.call(request);
        async move {
            let answer = answer.await?;
            Ok::<_, Infallible>(answer.map(|body| Body::new(AnswerBody { body, _at_work: at_work })))
        }
    });
    let ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(socket), service)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a browser's connection ended");
    }
}

/// The address of a browser, as requests carry it: what it may take is counted by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PeerAddress(IpAddr);

impl PeerAddress {
    /// Of a socket's address.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(one_peer(address))
    }
}

/// One connection.
#[derive(Debug)]
struct Connection {
    number: u64,
    peer: PeerAddress,
    activity: Mutex<Activity>,
    /// It is to end at once.
    cut: CancellationToken,
}

#[derive(Debug)]
struct Activity {
    /// Requests whose answers are not complete.
    open: usize,
    /// Since when there is none.
    idle_since: Instant,
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins.
    fn enter(self: &Arc<Self>) -> AtWork {
        self.lock().open += 1;
        AtWork(Arc::clone(self))
    }

    /// Since when the connection has no request; none while it has one, or ends already.
    fn idle_since(&self) -> Option<Instant> {
        let activity = self.lock();
        (activity.open == 0 && !self.cut.is_cancelled()).then_some(activity.idle_since)
    }
}

/// A request and its answer, until it is dropped.
#[derive(Debug)]
struct AtWork(Arc<Connection>);

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut activity = self.0.lock();
        activity.open -= 1;
        activity.idle_since = Instant::now();
    }
}

/// An answer, with its connection at work until it is complete.
struct AnswerBody {
    body: Body,
    _at_work: AtWork,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// All connections. Clones share everything.
#[derive(Debug, Clone, Default)]
struct Room(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    number: u64,
    connections: HashMap<u64, Arc<Connection>>,
}

/// A connection's place among the others, until it is dropped.
#[derive(Debug)]
struct Place {
    connection: Arc<Connection>,
    room: Room,
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in. Where all places are taken, or all that its peer may have, the one of them that has been without a
    /// request for longest is ended; none where all are at work.
    fn admit(&self, address: IpAddr, limits: &Limits) -> Option<Place> {
        let peer = PeerAddress::of(address);
        let mut open = self.lock();
        let of_peer = open.connections.values().filter(|one| one.peer == peer).count();
        if of_peer >= limits.connections_per_peer {
            open.end_idlest(Some(peer))?;
        } else if open.connections.len() >= limits.connections {
            open.end_idlest(None)?;
        }
        open.number += 1;
        let connection = Arc::new(Connection {
            number: open.number,
            peer,
            activity: Mutex::new(Activity { open: 0, idle_since: Instant::now() }),
            cut: CancellationToken::new(),
        });
        open.connections.insert(connection.number, Arc::clone(&connection));
        Some(Place { connection, room: self.clone() })
    }
}

impl Open {
    /// Ends the connection that has been without a request for longest. Its place is free at once.
    fn end_idlest(&mut self, peer: Option<PeerAddress>) -> Option<()> {
        let candidates = self.connections.values().filter(|one| peer.is_none_or(|peer| one.peer == peer));
        let idle = candidates.filter_map(|one| Some((one.idle_since()?, one.number)));
        let (_, number) = idle.min()?;
        self.connections.remove(&number)?.cut.cancel();
        Some(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.lock().connections.remove(&self.connection.number);
    }
}

/// What counts as one peer, as it does for the planner's own calls: an IPv4 address, or the network of an IPv6 address, all of which
/// one machine may have.
fn one_peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into())
        }
        address => address,
    }
}

/// A socket to which nothing can be written any more once its peer has taken nothing for too long.
#[derive(Debug)]
struct Socket {
    stream: TcpStream,
    /// Time for which a peer may take nothing.
    unread: Duration,
    /// The end of that time, while something waits for the peer.
    waits: Option<Pin<Box<Sleep>>>,
}

impl Socket {
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
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "answers are not read")))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
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
    /// Nobody loses a connection by these.
    const WIDE: Limits = Limits { connections: 9, connections_per_peer: 9, head: PATIENCE, unread: PATIENCE };
    static PIECE: [u8; 64 << 10] = [b'.'; 64 << 10];

    /// Where there is a page, and an answer that no socket has room for, until the test ends.
    async fn served(limits: Limits) -> SocketAddr {
        let endless = || async { Body::from_stream(stream::repeat(Ok::<_, Infallible>(&PIECE[..]))) };
        let router = Router::new().route("/", get(|| async { PAGE })).route("/endless", get(endless));
        let listener = TcpListener::bind(HERE).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_within(limits, listener, router, CancellationToken::new()));
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
        let limits = Limits { connections_per_peer: 1, unread: Duration::from_millis(100), ..WIDE };
        let address = served(limits).await;
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
            let mut socket = Socket { stream, unread: PATIENCE, waits: None };
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

    /// A connection with an answer that does not end, which nobody takes.
    async fn at_work(from: &str, address: SocketAddr) -> TcpStream {
        let mut stream = ask(from, address, "/endless").await.unwrap();
        stream.read_exact(&mut [0; 100]).await.expect("an answer begins");
        stream
    }

    #[tokio::test]
    async fn a_peer_whose_connections_are_all_at_work_gets_no_more_and_others_do() {
        let address = served(Limits { connections: 3, connections_per_peer: 2, ..WIDE }).await;
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

    /// However many peers fill the room with connections that do nothing.
    #[tokio::test]
    async fn whoever_was_idle_for_longest_makes_room_for_a_new_connection() {
        let address = served(Limits { connections: 3, connections_per_peer: 2, ..WIDE }).await;
        in_patience(async {
            let mut first = connected(HERE, address).await.unwrap();
            let mut watcher = at_work(HERE, address).await;
            let mut third = connected(THERE, address).await.unwrap();
            let _new = connected(ELSEWHERE, address).await.expect("the idlest makes room");
            assert_eq!(first.read(&mut [0]).await.unwrap_or(0), 0, "it was idle for longest");
            let _newer = connected(ELSEWHERE, address).await.expect("the idlest makes room");
            assert_eq!(third.read(&mut [0]).await.unwrap_or(0), 0, "then this one");
            watcher.read_exact(&mut [0; 100]).await.expect("it is at work, however long that takes");
        })
        .await;
    }

    #[test]
    fn a_peer_is_an_address_or_a_network_of_version_6() {
        let peer = |text: &str| one_peer(text.parse().unwrap()).to_string();
        assert_eq!(peer("10.1.2.3"), "10.1.2.3");
        assert_eq!(peer("::ffff:10.1.2.3"), "10.1.2.3");
        assert_eq!(peer("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(peer("::1"), "::1");
    }
}
