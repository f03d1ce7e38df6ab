//! Calls to the planner: each with a deadline, and repeated where that is safe and may help.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use loadmaster_proto::wire::call::{self, UnaryRequest};
use loadmaster_proto::wire::v1::history_service_client::HistoryServiceClient;
use loadmaster_proto::wire::{address, v1};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::StatusExt;

use super::context::ClientArgs;
use crate::failure::Failure;
use crate::output::to_stderr;
use loadmaster_show::text::{plain, seconds};

/// Pauses before the second, third and fourth attempt. Every call of this program may be repeated:
/// reads change nothing, and each mutation is idempotent by its content, name or request id.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(250), Duration::from_millis(600)];
/// The longest pause that a planner may ask for between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Silence before the kernel asks whether the planner is still there, and between two such questions.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What tonic says of an answer over HTTP that is none of gRPC, before the status that it had.
const WITHOUT_GRPC: &str = "grpc-status header missing, mapped from HTTP status code ";

/// A connection to one planner, made at the first call.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    channel: Channel,
    address: String,
    timeout: Duration,
    verbose: bool,
    /// Where the planner's pages are, once it has said so.
    pages: Arc<OnceLock<String>>,
}

impl Client {
    /// A client of the planner that the command line names. No call takes longer than `timeout`.
    pub(crate) fn of(args: &ClientArgs, timeout: Duration) -> Result<Self, Failure> {
        let (address, verbose) = args.planner();
        Self::new(address, timeout, verbose)
    }

    pub(crate) fn new(typed: &str, timeout: Duration, verbose: bool) -> Result<Self, Failure> {
        let address = full_address(typed)?;
        let endpoint = Endpoint::from_shared(address.clone())
            .map_err(|error| Failure::Usage(format!("--address {typed:?}: {error}")))?
            .connect_timeout(timeout.min(Duration::from_secs(10)))
            .tcp_nodelay(true)
            .tcp_keepalive(Some(KEEP_ALIVE))
            .user_agent(concat!("loadmaster-cli/", env!("CARGO_PKG_VERSION")))
            .map_err(anyhow::Error::new)?;
        Ok(Self { channel: endpoint.connect_lazy(), address, timeout, verbose, pages: Arc::default() })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Where the planner's pages are, if it has any that can be reached from here.
    pub(crate) fn pages(&self) -> Option<&str> {
        self.pages.get().map(String::as_str)
    }

    fn note_pages(&self, answer: &MetadataMap) {
        let told = answer.get(address::PAGES_HEADER).and_then(|told| told.to_str().ok());
        if let Some(pages) = told.and_then(|told| address::pages(&self.address, told)) {
            // All answers say the same.
            let _ = self.pages.set(pages);
        }
    }

    /// Whether calls are reported on standard error.
    pub(crate) fn verbose(&self) -> bool {
        self.verbose
    }

    /// One call: repeated while the planner is unavailable, for no longer than the deadline.
    pub(crate) async fn call<Q: UnaryRequest>(&self, request: Q) -> Result<Q::Answer, Failure> {
        let deadline = Instant::now() + self.timeout;
        let mut pauses = PAUSES.into_iter();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let status = match self.attempt(request.clone(), left).await {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            let pause = pauses
                .next()
                .filter(|_| status.code() == Code::Unavailable)
                .map(|pause| pause.max(asked_pause(&status)))
                .filter(|&pause| Instant::now() + pause < deadline);
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(self.failure(status)),
            }
        }
    }

    /// A single attempt with its own deadline.
    pub(crate) async fn attempt<Q: UnaryRequest>(
        &self,
        request: Q,
        limit: Duration,
    ) -> Result<Q::Answer, Status> {
        let mut request = Request::new(request);
        request.set_timeout(limit);
        let begin = Instant::now();
        // The planner knows the deadline from the request, but it may be the one that hangs.
        let outcome = match tokio::time::timeout(limit, call::call(self.channel.clone(), request)).await {
            Ok(answer) => answer.map(|answer| {
                self.note_pages(answer.metadata());
                answer.into_inner()
            }),
            Err(_) => Err(late(limit)),
        };
        // Tonic's own timer returns CANCELLED.
        let outcome = outcome.map_err(|status| {
            if status.code() == Code::Cancelled && begin.elapsed() >= limit { late(limit) } else { status }
        });
        if self.verbose {
            let result = match &outcome {
                Ok(_) => "ok".to_owned(),
                Err(status) => format!("{:?}: {}", status.code(), plain(status.message())),
            };
            let request = std::any::type_name::<Q>();
            let request = request.rsplit("::").next().unwrap_or(request);
            to_stderr(&format!(
                "{request} to {} took {}: {result}\n",
                self.address,
                seconds(begin.elapsed().as_secs_f64())
            ));
        }
        outcome
    }

    /// Opens a stream of changes, which has no deadline.
    pub(crate) async fn changes(
        &self,
        request: v1::WatchChangesRequest,
    ) -> Result<Streaming<v1::WatchChangesResponse>, Failure> {
        let opened = HistoryServiceClient::new(self.channel.clone()).watch_changes(request).await;
        opened.map(Response::into_inner).map_err(|status| self.failure(status))
    }

    /// What a failed call means to the user.
    pub(crate) fn failure(&self, status: Status) -> Failure {
        // What answers there may be no planner.
        let cause = if matches!(status.code(), Code::Unavailable | Code::Unknown) && is_local(&status) {
            Some(plain(&root_cause(&status)))
        } else {
            of_no_planner(&status)
        };
        match cause {
            Some(cause) => Failure::Unreachable { address: self.address.clone(), cause },
            None => Failure::Refused(Box::new(status)),
        }
    }
}

/// What answers there, if this status was made of an answer without gRPC. Who is not let in may stand at a gate before a planner.
fn of_no_planner(status: &Status) -> Option<String> {
    let is_gate = matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
    let answered = status.message().strip_prefix(WITHOUT_GRPC).filter(|_| !is_gate)?;
    Some(format!("the server at this address is not a Loadmaster planner (HTTP status {})", plain(answered)))
}

/// Whether `status` says that the connection was lost rather than that the planner refused.
pub(crate) fn lost_contact(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded) || is_local(status)
}

/// What lies at the bottom of a status, for example `Connection refused (os error 111)`.
pub(crate) fn root_cause(status: &Status) -> String {
    let mut cause: Option<&dyn Error> = status.source();
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

/// A status that came over the wire has no source; one that our own transport made has.
fn is_local(status: &Status) -> bool {
    status.source().is_some()
}

fn late(limit: Duration) -> Status {
    Status::deadline_exceeded(format!(
        "the planner did not respond within {}. Use a longer --timeout.",
        seconds(limit.as_secs_f64())
    ))
}

fn asked_pause(status: &Status) -> Duration {
    let asked = status.get_details_retry_info().and_then(|info| info.retry_delay);
    asked.unwrap_or_default().min(LONGEST_PAUSE)
}

fn full_address(typed: &str) -> Result<String, Failure> {
    let address = typed.trim();
    if address.is_empty() {
        let why = "--address or LOADMASTER_ADDRESS is empty. Use HOST, HOST:PORT or http://HOST:PORT.";
        return Failure::usage(why);
    }
    let refused = |why: String| Failure::usage(format!("--address {address}: {why}"));
    match address.split_once("://") {
        Some(("https", _)) => return refused("TLS is not supported. Use http://HOST:PORT.".to_owned()),
        Some((scheme, _)) if scheme != "http" => {
            return refused(format!("the scheme {scheme}:// is not supported. Use http://."));
        }
        _ => {}
    }
    let url = address::url(address);
    let (place, path) = parts(&url);
    if place.is_empty() || place.starts_with(':') || place.contains(['@', '?', '#']) {
        return refused("the address has no host. Use HOST, HOST:PORT or http://HOST:PORT.".to_owned());
    }
    if !["", "/"].contains(&path) {
        return refused(format!("the address of a planner must not have a path. Remove {path:?}."));
    }
    if let Some(port) = port(place).filter(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return refused(format!("{port:?} is not a port. Use 1 to 65535."));
    }
    Ok(url)
}

/// Host and port of a URL, and what is behind them.
fn parts(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_at(rest.find('/').unwrap_or(rest.len()))
}

/// What stands for a port behind a host.
fn port(place: &str) -> Option<&str> {
    // The colons of an address of version 6 stand in brackets.
    let (_, port) = place.rsplit(']').next()?.rsplit_once(':')?;
    Some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_no_scheme() {
        assert_eq!(full_address("node1:7433").unwrap(), "http://node1:7433");
        assert_eq!(full_address(" http://node1:7433").unwrap(), "http://node1:7433");
        assert!(matches!(full_address("https://node1"), Err(Failure::Usage(_))));
    }

    /// No one types `http://` who leaves an address empty, and a port beyond all is told as it was typed.
    #[test]
    fn an_address_is_refused_in_the_words_of_what_was_typed() {
        let told = |typed: &str| match full_address(typed) {
            Err(Failure::Usage(why)) => why,
            other => panic!("{typed}: {other:?}"),
        };
        for empty in ["", " "] {
            assert!(told(empty).starts_with("--address or LOADMASTER_ADDRESS is empty"), "{}", told(empty));
        }
        for (typed, port) in
            [("node1:70000", "70000"), ("[::1]:65536/", "65536"), ("http://node1:x", "x"), ("node1:0", "0")]
        {
            let beginning = format!("--address {typed}: {port:?} is not a port");
            assert!(told(typed).starts_with(&beginning), "{}", told(typed));
        }
        for (typed, why) in [
            ("ftp://node1", "the scheme ftp:// is not supported. Use http://"),
            ("unix:///run/planner", "the scheme unix:// is not supported"),
            ("node1:7433/path", "the address of a planner must not have a path. Remove \"/path\""),
            ("http://me@node1", "the address has no host"),
            ("http://:7433", "the address has no host"),
            ("http:///path", "the address has no host"),
            ("node1?x", "the address has no host"),
        ] {
            let beginning = format!("--address {typed}: {why}");
            assert!(told(typed).starts_with(&beginning), "{}", told(typed));
        }
        for right in ["[::1]", "[::1]:1", "node1:65535", "http://node1/"] {
            assert!(full_address(right).is_ok(), "{right}");
        }
    }

    /// What speaks HTTP and no gRPC is no planner; who is not let in may yet find one behind the gate.
    #[test]
    fn whoever_answers_without_grpc_is_no_planner() {
        let status = |code: Code, http: u16| Status::new(code, format!("{WITHOUT_GRPC}{http}"));
        let told = of_no_planner(&status(Code::Unimplemented, 404)).unwrap();
        assert_eq!(told, "the server at this address is not a Loadmaster planner (HTTP status 404)");
        assert!(of_no_planner(&status(Code::Unknown, 301)).is_some());
        assert_eq!(of_no_planner(&status(Code::PermissionDenied, 403)), None);
        assert_eq!(of_no_planner(&Status::unimplemented("there is no such method")), None);
    }

    #[test]
    fn an_answer_of_the_planner_is_not_a_lost_connection() {
        assert!(!lost_contact(&Status::internal("bug")));
        assert!(!lost_contact(&Status::not_found("operation")));
        assert!(lost_contact(&Status::unavailable("draining")));
    }
}
