//! What holds for every page: who may ask, how many at once, and what a browser may do with an answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::events;
use crate::http_error::HttpError;

/// Pages that are made at once: each asks the planner several times.
const AT_ONCE: usize = 8;
/// How long a page waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nothing is loaded but this planner's own style sheet and script, nothing is sent anywhere else, and no other page frames it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

#[derive(Debug, Clone)]
struct Guard {
    room: Arc<Semaphore>,
    /// Only those on this machine can ask.
    is_local: bool,
}

/// Pages with their guard.
pub(crate) fn around(pages: Router, address: SocketAddr) -> Router {
    let guard = Guard { room: Arc::new(Semaphore::new(AT_ONCE)), is_local: address.ip().is_loopback() };
    pages.layer(middleware::from_fn_with_state(guard, check))
}

async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let mut response = match guard.admit(&request) {
        Err(fault) => fault.into_response(),
        // Streams of events are counted for themselves, and last.
        Ok(()) if request.uri().path() == events::PATH => next.run(request).await,
        Ok(()) => match tokio::time::timeout(PATIENCE, guard.room.acquire()).await {
            Ok(Ok(_place)) => next.run(request).await,
            Ok(Err(_)) | Err(_) => HttpError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many page requests at once: reload the page in a moment",
            )
            .into_response(),
        },
    };
    protect(response.headers_mut());
    response
}

impl Guard {
    fn admit(&self, request: &Request) -> Result<(), HttpError> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(HttpError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "web pages are read-only: use the loadmaster command to make changes",
            ));
        }
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        if self.is_local && !host.is_some_and(is_of_this_machine) {
            return Err(HttpError::new(
                StatusCode::MISDIRECTED_REQUEST,
                "the host name in the URL is not allowed: use localhost or an IP address",
            ));
        }
        Ok(())
    }
}

/// Whether a browser that names this host means this machine: a name that somebody else makes lead here is a way for his pages to
/// read ours (DNS rebinding).
fn is_of_this_machine(host: &str) -> bool {
    if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .is_some_and(|ip| ip.parse::<IpAddr>().is_ok())
}

fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_not_this_machine() {
        for ours in [
            "localhost",
            "localhost:7434",
            "127.0.0.1:7434",
            "[::1]:7434",
            "[::1]",
            "a.localhost:1",
            "LOCALHOST.",
        ] {
            assert!(is_of_this_machine(ours), "{ours}");
        }
        for other in [
            "",
            "evil.example",
            "evil.example:7434",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "[evil]",
        ] {
            assert!(!is_of_this_machine(other), "{other}");
        }
    }
}
