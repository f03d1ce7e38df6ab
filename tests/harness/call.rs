//! Calls of a planner by their requests.

use loadmaster_proto::wire::call::{self, UnaryRequest};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// What a planner answers to a request.
///
/// # Errors
/// Its status, where it refuses it.
pub async fn call<R: UnaryRequest>(planner: &Channel, request: R) -> Result<R::Answer, Status> {
    call::call(planner.clone(), Request::new(request)).await.map(Response::into_inner)
}
