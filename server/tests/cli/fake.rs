//! A planner that answers by the name it is asked for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use loadmaster_proto::wire::google::rpc;
use loadmaster_proto::wire::longrunning::operations_server::{Operations, OperationsServer};
use loadmaster_proto::wire::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
    ListOperationsResponse, Operation, WaitOperationRequest, operation,
};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::profile_service_server::{ProfileService, ProfileServiceServer};
use prost::Message;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Profiles in the list, and the largest page.
const PROFILES: usize = 120;
const LARGEST_PAGE: usize = 50;

/// A running planner; it stops when dropped.
pub(crate) struct Fake {
    runtime: Option<Runtime>,
    address: SocketAddr,
    url: String,
    answers: Arc<Answers>,
}

#[derive(Default)]
struct Answers {
    /// How often `operations/good` was asked for.
    asked: AtomicUsize,
    /// Whether `operations/patient` is done.
    patient_done: AtomicBool,
}

impl Fake {
    pub(crate) fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(crate) fn start_at(address: SocketAddr) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Arc::new(Answers::default());
        let services = Services(Arc::clone(&answers));
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(ProfileServiceServer::new(services.clone()))
                .add_service(OperationsServer::new(services))
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        Self { runtime: Some(runtime), address, url: format!("http://{address}"), answers }
    }

    pub(crate) fn address(&self) -> &str {
        &self.url
    }

    /// Stops as a killed process does: connections break off.
    pub(crate) fn stop(mut self) -> SocketAddr {
        self.runtime.take().unwrap().shutdown_timeout(Duration::from_secs(1));
        self.address
    }

    pub(crate) fn finish_patient(&self) {
        self.answers.patient_done.store(true, Ordering::SeqCst);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

#[derive(Clone)]
struct Services(Arc<Answers>);

fn refused(code: Code, message: &str, reason: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason, "loadmaster.dev", []);
    Status::with_error_details(code, message, details)
}

fn wrong() -> Status {
    let mut details = ErrorDetails::with_error_info("INVALID_SPEC", "loadmaster.dev", []);
    details
        .add_bad_request_violation("training.micro_batch_size", "0 is out of range. Use 1 to 1000000")
        .add_bad_request_violation("devices", "is required")
        .add_help_link("training settings", "https://example.org/training");
    Status::with_error_details(Code::InvalidArgument, "the request is not valid", details)
}

fn profile(id: &str) -> v1::Profile {
    v1::Profile {
        name: format!("profiles/{id}"),
        state: v1::profile::State::Complete.into(),
        ..v1::Profile::default()
    }
}

fn any(name: &str, message: &impl Message) -> prost_types::Any {
    prost_types::Any {
        type_url: format!("type.googleapis.com/loadmaster.v1.{name}"),
        value: message.encode_to_vec(),
    }
}

fn unfinished(id: &str, done_runs: i32, message: &str) -> Operation {
    let metadata = v1::RunMetadata {
        target: format!("profiles/{id}"),
        run_counts: Some(v1::RunCounts {
            total_count: 4,
            succeeded_count: done_runs,
            ..v1::RunCounts::default()
        }),
        progress: f64::from(done_runs) / 4.0,
        message: message.to_owned(),
        ..v1::RunMetadata::default()
    };
    Operation {
        name: format!("operations/{id}"),
        metadata: Some(any("RunMetadata", &metadata)),
        ..Operation::default()
    }
}

fn finished(id: &str) -> Operation {
    let response = operation::Result::Response(any("Profile", &profile(id)));
    Operation { done: true, result: Some(response), ..unfinished(id, 4, "") }
}

impl Services {
    fn operation(&self, name: &str) -> Result<Operation, Status> {
        match name.strip_prefix("operations/").unwrap_or_default() {
            "good" => Ok(match self.0.asked.fetch_add(1, Ordering::SeqCst) {
                asked @ 0..4 => unfinished("good", i32::try_from(asked).unwrap(), "waiting for a worker"),
                _ => finished("good"),
            }),
            "forever" => Ok(unfinished("forever", 1, "runs/1 on workers/a")),
            "patient" if self.0.patient_done.load(Ordering::SeqCst) => Ok(finished("patient")),
            "patient" => Ok(unfinished("patient", 1, "runs/1 on workers/a")),
            "failing" => {
                let message = "layer 3 was never measured";
                let status = refused(Code::FailedPrecondition, message, "PROFILE_NOT_READY");
                let error = rpc::Status::decode(status.details()).unwrap();
                let result = Some(operation::Result::Error(error));
                Ok(Operation { done: true, result, ..unfinished("failing", 4, "") })
            }
            _ => Err(Status::not_found(format!("{name} does not exist"))),
        }
    }
}

#[tonic::async_trait]
impl ProfileService for Services {
    async fn create_profile(
        &self,
        request: Request<v1::CreateProfileRequest>,
    ) -> Result<Response<Operation>, Status> {
        assert!(request.metadata().contains_key("grpc-timeout"), "every call has a deadline");
        self.operation("operations/good").map(Response::new)
    }

    async fn resume_profile(
        &self,
        _request: Request<v1::ResumeProfileRequest>,
    ) -> Result<Response<Operation>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn update_profile(
        &self,
        _request: Request<v1::UpdateProfileRequest>,
    ) -> Result<Response<v1::Profile>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn get_measurement(
        &self,
        _request: Request<v1::GetMeasurementRequest>,
    ) -> Result<Response<v1::Measurement>, Status> {
        Err(Status::unimplemented("no measurements"))
    }

    async fn delete_profile(
        &self,
        _request: Request<v1::DeleteProfileRequest>,
    ) -> Result<Response<()>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn get_profile(
        &self,
        request: Request<v1::GetProfileRequest>,
    ) -> Result<Response<v1::Profile>, Status> {
        match request.into_inner().name.strip_prefix("profiles/").unwrap_or_default() {
            "good" => Ok(Response::new(profile("good"))),
            "broken" => Err(Status::internal("bug")),
            "wrong" => Err(wrong()),
            "forbidden" => Err(Status::permission_denied("not yours")),
            "infeasible" => Err(refused(Code::FailedPrecondition, "nothing fits", "NO_FEASIBLE_PLAN")),
            "incomplete" => Err(refused(Code::FailedPrecondition, "lacks layers", "PROFILE_NOT_READY")),
            "slow" => {
                tokio::time::sleep(Duration::from_secs(5)).await;
                Ok(Response::new(profile("slow")))
            }
            name => Err(Status::not_found(format!("profiles/{name} does not exist"))),
        }
    }

    async fn list_profiles(
        &self,
        request: Request<v1::ListProfilesRequest>,
    ) -> Result<Response<v1::ListProfilesResponse>, Status> {
        let request = request.into_inner();
        let first: usize = request.page_token.parse().unwrap_or(0);
        let size = usize::try_from(request.page_size).unwrap_or(0).clamp(1, LARGEST_PAGE);
        let last = (first + size).min(PROFILES);
        Ok(Response::new(v1::ListProfilesResponse {
            profiles: (first..last).map(|number| profile(&format!("p{number:03}"))).collect(),
            next_page_token: if last < PROFILES { last.to_string() } else { String::new() },
        }))
    }

    async fn list_measurements(
        &self,
        _request: Request<v1::ListMeasurementsRequest>,
    ) -> Result<Response<v1::ListMeasurementsResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn export_profile(
        &self,
        _request: Request<v1::ExportProfileRequest>,
    ) -> Result<Response<v1::ExportProfileResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn import_profile(
        &self,
        _request: Request<v1::ImportProfileRequest>,
    ) -> Result<Response<v1::Profile>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn get_run(&self, _request: Request<v1::GetRunRequest>) -> Result<Response<v1::Run>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn list_runs(
        &self,
        _request: Request<v1::ListRunsRequest>,
    ) -> Result<Response<v1::ListRunsResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

#[tonic::async_trait]
impl Operations for Services {
    async fn list_operations(
        &self,
        _request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        self.operation(&request.into_inner().name).map(Response::new)
    }

    async fn delete_operation(
        &self,
        _request: Request<DeleteOperationRequest>,
    ) -> Result<Response<()>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn cancel_operation(
        &self,
        _request: Request<CancelOperationRequest>,
    ) -> Result<Response<()>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn wait_operation(
        &self,
        request: Request<WaitOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let request = request.into_inner();
        let timeout = request.timeout.and_then(|timeout| Duration::try_from(timeout).ok());
        let operation = self.operation(&request.name)?;
        if !operation.done {
            tokio::time::sleep(timeout.unwrap_or_default().min(Duration::from_secs(5))).await;
        }
        Ok(Response::new(operation))
    }
}
