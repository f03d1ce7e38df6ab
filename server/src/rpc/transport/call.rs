//! One call, from its first byte to its answer. The first words of a stream are limited, so that a client that never finishes them
//! takes little memory.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Request, Response};
use http_body::{Body as HttpBody, Frame};
use http_body_util::Full;
use hyper::body::Incoming;
use loadmaster_proto::wire::address::PAGES_HEADER;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service;

use super::answer::AnswerBody;
use super::connections::Connection;
use super::gate::Gate;
use super::methods::{Kind, Method, Methods};
use super::receive::receive;
use super::refusal::Refusal;
use super::share::{SearchShare, StreamTerms};
use super::{answer, timeout};
use crate::rpc::calls::{Record, answered, panicked};

/// What answers calls.
#[derive(Debug)]
pub(super) struct Calls {
    routes: Routes,
    methods: Methods,
    gate: Gate,
    /// Where the pages are.
    pages: Option<HeaderValue>,
}

impl Calls {
    pub(super) fn new(routes: Routes, methods: Methods, most: usize, pages: Option<SocketAddr>) -> Self {
        // An address has no character that a header may not have.
        let pages = pages.and_then(|address| HeaderValue::try_from(address.to_string()).ok());
        Self { routes, methods, gate: Gate::new(most), pages }
    }

    /// The answer to a call, whatever happens.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<Connection>,
    ) -> Response<AnswerBody> {
        let open = connection.enter();
        let record = Record::begin(request.uri().path(), connection.peer());
        let response = match timeout::of(request.headers()) {
            Ok(time) => {
                let deadline = Instant::now() + time;
                match tokio::time::timeout_at(deadline, self.ask(request, &connection, deadline, &record))
                    .await
                {
                    Ok(answered) => answered,
                    Err(_) => Err(Refusal::Late(time)),
                }
            }
            Err(refusal) => Err(refusal),
        };
        let mut response = answered(response.unwrap_or_else(Refusal::response), record);
        if let Some(pages) = &self.pages {
            response.headers_mut().insert(PAGES_HEADER, pages.clone());
        }
        answer::prepare(response, connection.answer(), self.gate.answer(&connection), open)
    }

    async fn ask(
        &self,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
        deadline: Instant,
        record: &Record,
    ) -> Result<Response<Body>, Refusal> {
        let (mut parts, body) = request.into_parts();
        // Unknown methods take nothing: the routes refuse them.
        let method = self.methods.at(parts.uri.path()).unwrap_or(Method::UNKNOWN);
        if method.one_message {
            let mut counted = self.gate.request(connection);
            let message = receive(body, &mut counted).await?;
            record.names().look_at(&message);
            let _room = self.gate.enter(method.kind_of(&message), connection).await?;
            if method.kind == Kind::Stream {
                let until = Instant::now() + timeout::of_stream(&parts.headers);
                let terms = StreamTerms::of(until, &connection.share, &connection.peer_share);
                parts.extensions.insert(terms);
            }
            // Searches stop in time for their answer: they are told what is left.
            parts.headers.insert(timeout::HEADER, timeout::left(deadline));
            parts.extensions.insert(SearchShare::of(&connection.share, &connection.peer_share));
            let answer = self.route(Request::from_parts(parts, Body::new(Full::new(message)))).await;
            // Until here the request was kept.
            drop(counted);
            Ok(answer)
        } else {
            let _room = self.gate.enter(method.kind, connection).await?;
            let (body, answered) = Opening::new(body);
            let answer = self.route(Request::from_parts(parts, Body::new(body))).await;
            answered.store(true, Ordering::Release);
            Ok(answer)
        }
    }

    async fn route(&self, request: Request<Body>) -> Response<Body> {
        // A defect in one call must not take others along that share its connection.
        match AssertUnwindSafe(self.routes.clone().call(request)).catch_unwind().await {
            Ok(Ok(answer)) => answer,
            Ok(Err(never)) => match never {},
            Err(_) => panicked().into_http(),
        }
    }
}

/// Most bytes before the planner has answered: a worker's introduction is far below.
const MOST_BYTES: usize = 2 << 20;

/// A request that is a stream.
#[derive(Debug)]
struct Opening {
    body: Incoming,
    answered: Arc<AtomicBool>,
    bytes: usize,
}

impl Opening {
    /// The stream, and what is to be set once it was answered.
    fn new(body: Incoming) -> (Self, Arc<AtomicBool>) {
        let answered = Arc::new(AtomicBool::new(false));
        (Self { body, answered: Arc::clone(&answered), bytes: 0 }, answered)
    }
}

impl HttpBody for Opening {
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
