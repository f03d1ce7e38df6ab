//! Puts the services together: whatever is served is named to the router, to health and to reflection at once.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use loadmaster_proto::MAX_MESSAGE_BYTES;
use loadmaster_proto::wire;
use loadmaster_proto::wire::longrunning::operations_server::OperationsServer;
use loadmaster_proto::wire::v1::cluster_service_server::ClusterServiceServer;
use loadmaster_proto::wire::v1::history_service_server::HistoryServiceServer;
use loadmaster_proto::wire::v1::model_service_server::ModelServiceServer;
use loadmaster_proto::wire::v1::plan_service_server::PlanServiceServer;
use loadmaster_proto::wire::v1::profile_service_server::ProfileServiceServer;
use loadmaster_proto::wire::v1::server_service_server::ServerServiceServer;
use loadmaster_proto::wire::v1::worker_service_server::WorkerServiceServer;
use loadmaster_proto::wire::worker_v1::session_service_server::SessionServiceServer;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;
use tower::Service;

use super::changes::Changes;
use super::cluster::Clusters;
use super::history::History;
use super::imports::Imports;
use super::limits::MAX_REQUEST_BYTES;
use super::model::Models;
use super::operations::Operations;
use super::plan::{Memory, Plans, Searches};
use super::profile::Profiles;
use super::server::{Settings, StatusService};
use super::transport::{self, Limits, Methods};
use super::worker::Workers;
use crate::dispatch::Dispatcher;
use crate::retention::Purges;
use crate::store::Store;

/// What the planner serves.
#[derive(Debug)]
pub struct Services {
    /// Durable state.
    pub store: Store,
    /// Where runs go.
    pub dispatcher: Dispatcher,
    /// Purges that wait for a planner.
    pub purges: Purges,
    /// Serve reflection.
    pub reflection: bool,
    /// What callers may take up.
    pub limits: Limits,
    /// What `GetServerInfo` returns of the planner's settings.
    pub settings: Settings,
}

/// Services that are ready to be asked.
#[derive(Debug)]
pub struct Served {
    routes: Routes,
    names: Vec<&'static str>,
    methods: Methods,
    limits: Limits,
}

impl Services {
    /// Puts the services together; `reporter` is what the health service tells.
    ///
    /// # Errors
    /// When a descriptor that was built in cannot be read: a defect.
    pub fn build(self, reporter: HealthReporter) -> anyhow::Result<Served> {
        let Self { store, dispatcher, purges, reflection, limits, settings } = self;
        let imports = Imports::default();
        let profiles = Profiles { store: store.clone(), imports: imports.clone() };
        let plans = Plans {
            store: store.clone(),
            searches: Searches::default(),
            imports: imports.clone(),
            memory: Memory::default(),
            dispatcher: dispatcher.clone(),
        };
        let operations = Operations {
            store: store.clone(),
            dispatcher: dispatcher.clone(),
            profiles: profiles.clone(),
            plans: plans.clone(),
            waiters: Arc::new(Semaphore::new((limits.calls / 2).max(1))),
        };
        let health = tonic_health::server::HealthService::from_health_reporter(reporter);
        let mut served =
            Served { routes: Routes::default(), names: Vec::new(), methods: Methods::new()?, limits };
        served.add(tonic_health::pb::health_server::HealthServer::new(health));
        if reflection {
            // Both versions: grpcurl still asks for the older one.
            served.add(describe().build_v1()?);
            served.add(describe().build_v1alpha()?);
        }
        served.add(
            ModelServiceServer::new(Models { store: store.clone(), imports: imports.clone() })
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
        served.add(
            ClusterServiceServer::new(Clusters { store: store.clone(), imports })
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
        served.add(
            ProfileServiceServer::new(profiles)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
        served.add(
            PlanServiceServer::new(plans)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
        served.add(
            OperationsServer::new(operations)
                .max_decoding_message_size(MAX_REQUEST_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
        let stopping = dispatcher.stopping();
        let workers = Workers { store: store.clone(), dispatcher };
        served.add(
            WorkerServiceServer::new(workers.clone())
                .max_decoding_message_size(MAX_REQUEST_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
        served.add(
            SessionServiceServer::new(workers)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
        // The lists that changes are found in are served by what was added so far.
        let changes = Changes::new(served.routes.clone().prepare(), stopping);
        served.add(
            HistoryServiceServer::new(History { store, purges, changes })
                .max_decoding_message_size(MAX_REQUEST_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
        served.add(
            ServerServiceServer::new(StatusService::new(settings, reflection, limits))
                .max_decoding_message_size(MAX_REQUEST_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
        served.routes = served.routes.prepare();
        Ok(served)
    }
}

impl Served {
    fn add<S>(&mut self, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.routes = std::mem::take(&mut self.routes).add_service(service);
        self.names.push(S::NAME);
    }

    /// The full name of every service, for health.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// The same services for callers within this process.
    pub fn routes(&self) -> Routes {
        self.routes.clone()
    }

    /// Serves until `stop` is cancelled and open calls have ended. Every answer says where the pages are, if there are any.
    pub async fn serve(self, listener: TcpListener, pages: Option<SocketAddr>, stop: CancellationToken) {
        transport::serve(listener, self.routes, self.methods, self.limits, pages, stop).await;
    }
}

/// What reflection tells of.
fn describe() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
