//! Puts the services on a socket, with limits on everything, and takes them off again.

use std::sync::Arc;
use std::time::Duration;

use loadmaster_proto::MAX_MESSAGE_BYTES;
use loadmaster_proto::wire;
use loadmaster_proto::wire::longrunning::operations_server::OperationsServer;
use loadmaster_proto::wire::v1::cluster_service_server::ClusterServiceServer;
use loadmaster_proto::wire::v1::model_service_server::ModelServiceServer;
use loadmaster_proto::wire::v1::plan_service_server::PlanServiceServer;
use loadmaster_proto::wire::v1::profile_service_server::ProfileServiceServer;
use loadmaster_proto::wire::v1::worker_service_server::WorkerServiceServer;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic_health::server::HealthReporter;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;

use super::calls::CallsLayer;
use super::cluster::Clusters;
use super::model::Models;
use super::operations::Operations;
use super::plan::{Plans, Searches};
use super::profile::Profiles;
use super::worker::Workers;
use crate::dispatch::Dispatcher;
use crate::store::Store;

/// Longest time to an answer; streams are bounded by their own rules once open.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Requests that clients send are small, but for documents and the workers' stream.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// What the planner serves.
#[derive(Debug)]
pub struct Services {
    /// Durable state.
    pub store: Store,
    /// Where runs go.
    pub dispatcher: Dispatcher,
    /// Serve reflection.
    pub reflection: bool,
    /// Most calls at once.
    pub max_calls: usize,
}

/// Serves until `stop` is cancelled and open calls have ended.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    services: Services,
    listener: TcpListener,
    health: (HealthReporter, CancellationToken),
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let Services { store, dispatcher, reflection, max_calls } = services;
    let (reporter, stop) = health;
    let profiles = Profiles { store: store.clone() };
    let plans = Plans { store: store.clone(), searches: Searches::default() };
    let operations = Operations {
        store: store.clone(),
        dispatcher: dispatcher.clone(),
        profiles: profiles.clone(),
        plans: plans.clone(),
        waiters: Arc::new(Semaphore::new((max_calls / 2).max(1))),
    };
    // Both versions: grpcurl still asks for the older one.
    let v1 = reflection.then(|| describe().build_v1()).transpose()?;
    let v1alpha = reflection.then(|| describe().build_v1alpha()).transpose()?;

    Server::builder()
        .max_concurrent_streams(1_024)
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .http2_max_header_list_size(16 << 10)
        .http2_max_pending_accept_reset_streams(Some(64))
        .tcp_nodelay(true)
        .tcp_keepalive(Some(Duration::from_secs(60)))
        .layer(CallsLayer { limit: CALL_TIMEOUT })
        .layer(LoadShedLayer::new())
        .layer(GlobalConcurrencyLimitLayer::new(max_calls))
        .add_service(tonic_health::pb::health_server::HealthServer::new(
            tonic_health::server::HealthService::from_health_reporter(reporter),
        ))
        .add_optional_service(v1)
        .add_optional_service(v1alpha)
        .add_service(
            ModelServiceServer::new(Models { store: store.clone() })
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        )
        .add_service(
            ClusterServiceServer::new(Clusters { store: store.clone() })
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        )
        .add_service(
            ProfileServiceServer::new(profiles)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        )
        .add_service(
            PlanServiceServer::new(plans)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        )
        .add_service(
            OperationsServer::new(operations)
                .max_decoding_message_size(MAX_REQUEST_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        )
        .add_service(
            WorkerServiceServer::new(Workers { store, dispatcher })
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        )
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop.cancelled_owned())
        .await?;
    Ok(())
}

/// What reflection tells of.
fn describe() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
