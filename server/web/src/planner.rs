//! The planner's services, asked within this process over the wire's own messages.

use std::fmt;
use std::time::Duration;

use loadmaster_proto::MAX_MESSAGE_BYTES;
use loadmaster_proto::wire::longrunning::operations_client::OperationsClient;
use loadmaster_proto::wire::v1::cluster_service_client::ClusterServiceClient;
use loadmaster_proto::wire::v1::model_service_client::ModelServiceClient;
use loadmaster_proto::wire::v1::plan_service_client::PlanServiceClient;
use loadmaster_proto::wire::v1::profile_service_client::ProfileServiceClient;
use loadmaster_proto::wire::v1::worker_service_client::WorkerServiceClient;
use tonic::service::Routes;
use tonic::{Response, Status};

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

macro_rules! clients {
    ($($name:ident: $client:ident;)*) => {$(
        pub(crate) fn $name(&self) -> $client<Routes> {
            $client::new(self.routes.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
        }
    )*};
}

impl Planner {
    pub(crate) fn new(routes: Routes) -> Self {
        Self { routes }
    }

    clients! {
        clusters: ClusterServiceClient;
        models: ModelServiceClient;
        operations: OperationsClient;
        plans: PlanServiceClient;
        profiles: ProfileServiceClient;
        workers: WorkerServiceClient;
    }
}

/// What a call answers, unless that takes too long.
pub(crate) async fn answer<A>(call: impl Future<Output = Result<Response<A>, Status>>) -> Result<A, Status> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(answered) => answered.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("the planner did not answer in time: try again")),
    }
}
