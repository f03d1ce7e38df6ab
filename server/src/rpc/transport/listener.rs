//! Accepts connections, and gets through times without descriptors.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};

/// Silence before the kernel asks whether the peer is there.
const ALIVE_AFTER: Duration = Duration::from_secs(30);
/// Time between two such questions.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// Questions without an answer after which the connection is dead.
const ALIVE_TRIES: u32 = 3;
/// Pauses while nothing can be accepted: the first one, and the longest.
const FIRST_REST: Duration = Duration::from_millis(10);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The next connection, ready to be served.
pub(super) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut rest = FIRST_REST;
    loop {
        let error = match listener.accept().await {
            Ok((stream, peer)) => match prepare(&stream) {
                Ok(()) => return (stream, peer),
                // The peer left already.
                Err(_) => continue,
            },
            Err(error) => error,
        };
        if !is_ours(&error) {
            continue;
        }
        // The connection stays in the kernel's queue, so that asking again at once would only burn a core.
        tracing::warn!(%error, rest_seconds = rest.as_secs_f64(), "cannot accept connections");
        tokio::time::sleep(rest).await;
        rest = (rest * 2).min(LONGEST_REST);
    }
}

/// Answers leave at once, and a peer that is gone is noticed: hyper sets neither on sockets that it is given.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keep_alive =
        TcpKeepalive::new().with_time(ALIVE_AFTER).with_interval(ALIVE_EVERY).with_retries(ALIVE_TRIES);
    SockRef::from(stream).set_tcp_keepalive(&keep_alive)
}

/// Whether it is this machine that lacks something, and not a peer that went away.
fn is_ours(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without it every small answer waits for the peer's delayed acknowledgement: 40 ms.
    #[tokio::test]
    async fn accepted_sockets_send_at_once_and_notice_dead_peers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = accept(&listener).await;
        assert!(stream.nodelay().unwrap());
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), ALIVE_AFTER);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), ALIVE_EVERY);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), ALIVE_TRIES);
    }

    #[test]
    fn only_what_this_machine_lacks_makes_the_planner_rest() {
        for (errno, ours) in [
            (Errno::EMFILE, true),
            (Errno::ENFILE, true),
            (Errno::ENOMEM, true),
            (Errno::ECONNABORTED, false),
            (Errno::EPROTO, false),
        ] {
            assert_eq!(is_ours(&io::Error::from_raw_os_error(errno as i32)), ours, "{errno}");
        }
    }
}
