//! Calls of a planner by their requests: each request has one method, so it says which one that is.

use prost::Message;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};
use tonic::{Request, Response, Status};

use super::codec::BoundedCodec;
use crate::MAX_MESSAGE_BYTES;

/// A request of a method that has one request and one answer.
pub trait UnaryRequest: Message + Clone + 'static {
    /// What it is answered with.
    type Answer: Message + Default + 'static;
    /// The path of its method.
    const PATH: &'static str;
}

include!(concat!(env!("OUT_DIR"), "/unary.rs"));

/// Calls the method of a request.
///
/// # Errors
/// What the planner, or the way to it, answers instead.
pub async fn call<R, T>(planner: T, request: Request<R>) -> Result<Response<R::Answer>, Status>
where
    R: UnaryRequest,
    T: GrpcService<Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut client = Grpc::new(planner).max_decoding_message_size(MAX_MESSAGE_BYTES);
    client
        .ready()
        .await
        .map_err(|error| Status::unknown(format!("the service was not ready: {}", error.into())))?;
    client.unary(request, PathAndQuery::from_static(R::PATH), BoundedCodec::default()).await
}
