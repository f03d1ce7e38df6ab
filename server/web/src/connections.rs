//! Sockets of browsers: few of them, and none for long without a request.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Most connections: a browser opens six.
const CONNECTIONS: usize = 256;
/// Longest wait for the head of a request, also between two of them.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of the head of a request: filters are in it.
const HEAD_BYTES: usize = 64 << 10;
/// Pause while nothing can be accepted.
const REST: Duration = Duration::from_millis(100);

/// Serves until `stop` is cancelled; what is being answered then is cut off, since streams of events have no end.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a browser");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        // Who finds no room learns it at once.
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        let (router, stop) = (router.clone(), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = converse(stream, router) => {}
            }
            drop(place);
        });
    }
    tasks.close();
    tasks.wait().await;
}

async fn converse(stream: TcpStream, router: Router) {
    let service = TowerToHyperService::new(router);
    let ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a browser's connection ended");
    }
}
