//! The planner's services, asked within this process over the wire's own messages.

use std::fmt;
use std::time::Duration;

use loadmaster_proto::wire::call::{self, UnaryRequest};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The services of a planner.
#[derive(Clone)]
pub(crate) struct Planner {
    routes: Routes,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").finish_non_exhaustive()
    }
}

impl Planner {
    pub(crate) fn new(routes: Routes) -> Self {
        Self { routes }
    }

    /// What a request is answered with, unless that takes too long.
    pub(crate) async fn call<R: UnaryRequest>(&self, request: R) -> Result<R::Answer, Status> {
        match tokio::time::timeout(PATIENCE, call::call(self.routes.clone(), Request::new(request))).await {
            Ok(answered) => answered.map(Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded("the planner did not answer in time: try again")),
        }
    }
}
