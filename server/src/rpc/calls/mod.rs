//! What all calls have in common, whatever answers them: a deadline, a reason for every error, a line in the log.
//!
//! The layer stands around the limits on concurrency, so that what these refuse is explained and logged too. It
//! reads no messages: names are looked for in the first bytes of request and answer ([`names`]).

mod body;
mod deadline;
mod explain;
mod names;
mod record;

use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service, StdError};
use tower::Layer;

use body::{Answer, Asked};
use record::Record;

/// Puts [`Calls`] around a service.
#[derive(Debug, Clone)]
pub(super) struct CallsLayer {
    /// Longest time to an answer; streams are bounded by their own rules once open.
    pub(super) limit: Duration,
}

impl<S> Layer<S> for CallsLayer {
    type Service = Calls<S>;

    fn layer(&self, inner: S) -> Calls<S> {
        Calls { inner, limit: self.limit }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Calls<S> {
    inner: S,
    limit: Duration,
}

impl<S> Service<Request<Body>> for Calls<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error: Into<StdError>, Future: Send + 'static>,
{
    type Response = Response<Body>;
    type Error = StdError;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let record = Record::begin(&request);
        let limit = deadline::limit(request.headers(), self.limit);
        let request = request.map(|body| Body::new(Asked::new(body, record.names())));
        // A defect in one call must not take others along that share its connection.
        let answer = AssertUnwindSafe(self.inner.call(request)).catch_unwind();
        Box::pin(async move {
            let response = match tokio::time::timeout(limit, answer).await {
                Ok(Ok(Ok(response))) => response,
                Ok(Ok(Err(error))) => explain::failed(error.into()).into_http(),
                Ok(Err(_)) => explain::panicked().into_http(),
                Err(_) => explain::late(limit).into_http(),
            };
            Ok(answered(response, record))
        })
    }
}

/// An answer that is logged once it is complete: at once where it is an error without a message.
fn answered(response: Response<Body>, record: Record) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    match Status::from_header_map(&parts.headers) {
        Some(status) => {
            let status = explain::explained(status, &mut parts.headers);
            record.end(&status);
            Response::from_parts(parts, body)
        }
        None => Response::from_parts(parts, Body::new(Answer::new(body, record))),
    }
}
