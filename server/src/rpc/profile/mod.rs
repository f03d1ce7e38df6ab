//! `ProfileService`.

mod document;
mod message;
mod order;
mod run;
mod software;

use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::label::LabelChange;
use loadmaster_proto::name::{OperationName, ProfileName, RunName, parse_measurement};
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::profile_service_server::ProfileService;
use tonic::{Request, Response, Status};

use super::blocking::blocking;
use super::error::ApiError;
use super::imports::Imports;
use super::limits::MAX_WORKERS;
use super::messages::{self, Waiting, operation_message};
use super::page::{Listing, View};
use crate::profile::StoredProfile;
use crate::store::records::{RunRecord, RunState, WorkerRecord};
use crate::store::{RunFilter, Store, fields};

/// Runs and shows profiles.
#[derive(Debug, Clone)]
pub(super) struct Profiles {
    pub(super) store: Store,
    pub(super) imports: Imports,
}

impl Profiles {
    /// A profile with its layers' metrics and what each predictor lacks.
    pub(super) async fn whole(&self, name: &ProfileName) -> Result<v1::Profile, ApiError> {
        if let Some(document) = self.store.find_document(name).await? {
            return self.imported(name, document).await;
        }
        let (record, stored) = StoredProfile::load(&self.store, name).await?;
        // Deriving the metrics of a long model takes a while.
        blocking("a profile cannot be shown", move || message::profile(&record, &stored)).await
    }

    async fn run_with_measurements(&self, record: &RunRecord) -> Result<v1::Run, ApiError> {
        let measurements = self.store.run_measurements(&record.name).await?;
        Ok(v1::Run {
            measurements: measurements.iter().map(messages::measurement).collect(),
            ..messages::run_row(record)
        })
    }

    async fn started(&self, operation: &OperationName) -> Result<Operation, ApiError> {
        let record = self.store.get_operation(operation).await?;
        Ok(operation_message(&record, Waiting::default(), None, None))
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, ApiError> {
        Ok(self.store.connected_workers(&[], MAX_WORKERS).await?)
    }
}

#[tonic::async_trait]
impl ProfileService for Profiles {
    async fn create_profile(
        &self,
        request: Request<v1::CreateProfileRequest>,
    ) -> Result<Response<Operation>, Status> {
        Ok(Response::new(self.run(request.into_inner()).await?))
    }

    async fn resume_profile(
        &self,
        request: Request<v1::ResumeProfileRequest>,
    ) -> Result<Response<Operation>, Status> {
        Ok(Response::new(self.resume(request.into_inner()).await?))
    }

    async fn get_profile(
        &self,
        request: Request<v1::GetProfileRequest>,
    ) -> Result<Response<v1::Profile>, Status> {
        let v1::GetProfileRequest { name, view } = request.into_inner();
        let name = ProfileName::parse("name", &name).map_err(ApiError::from)?;
        Ok(Response::new(match View::of_one(view).map_err(ApiError::from)? {
            View::Basic => message::in_list(&self.store.get_profile(&name).await.map_err(ApiError::from)?),
            View::Full => self.whole(&name).await?,
        }))
    }

    async fn list_profiles(
        &self,
        request: Request<v1::ListProfilesRequest>,
    ) -> Result<Response<v1::ListProfilesResponse>, Status> {
        let request = request.into_inner();
        let asked = (request.filter.as_str(), request.order_by.as_str());
        let listing = Listing::of("ListProfiles", &[], fields::PROFILES, asked).map_err(ApiError::from)?;
        let page = listing.request(request.page_size, &request.page_token).map_err(ApiError::from)?;
        let view = View::of_list(request.view).map_err(ApiError::from)?;
        let page = view.bounded(page);
        let page = self.store.list_profiles(listing.query(), &page).await.map_err(ApiError::from)?;
        let (profiles, next_page_token) = match view {
            View::Basic => listing.answer(page, message::in_list),
            View::Full => {
                let mut whole = listing.whole(page);
                while let Some(record) = whole.next() {
                    let message = self.whole(&record.settings.name).await;
                    whole.put(message)?;
                }
                whole.answer()
            }
        };
        Ok(Response::new(v1::ListProfilesResponse { profiles, next_page_token }))
    }

    async fn update_profile(
        &self,
        request: Request<v1::UpdateProfileRequest>,
    ) -> Result<Response<v1::Profile>, Status> {
        let v1::UpdateProfileRequest { profile, update_mask } = request.into_inner();
        let profile = required("profile", profile).map_err(ApiError::from)?;
        let name = ProfileName::parse("profile.name", &profile.name).map_err(ApiError::from)?;
        let paths = update_mask.as_ref().map(|mask| mask.paths.as_slice());
        let change = LabelChange::asked("profile", profile.labels, paths).map_err(ApiError::from)?;
        self.store.label_profile(&name, &change, &profile.etag).await.map_err(ApiError::from)?;
        Ok(Response::new(self.whole(&name).await?))
    }

    async fn delete_profile(
        &self,
        request: Request<v1::DeleteProfileRequest>,
    ) -> Result<Response<()>, Status> {
        let v1::DeleteProfileRequest { name, etag } = request.into_inner();
        let name = ProfileName::parse("name", &name).map_err(ApiError::from)?;
        self.store.delete_profile(&name, &etag).await.map_err(ApiError::from)?;
        Ok(Response::new(()))
    }

    async fn get_measurement(
        &self,
        request: Request<v1::GetMeasurementRequest>,
    ) -> Result<Response<v1::Measurement>, Status> {
        let (run, stage, shard) =
            parse_measurement("name", &request.into_inner().name).map_err(ApiError::from)?;
        let found = self.store.get_measurement(&run, stage, shard).await.map_err(ApiError::from)?;
        Ok(Response::new(messages::measurement(&found)))
    }

    async fn list_measurements(
        &self,
        request: Request<v1::ListMeasurementsRequest>,
    ) -> Result<Response<v1::ListMeasurementsResponse>, Status> {
        let request = request.into_inner();
        let name = ProfileName::parse("parent", &request.parent).map_err(ApiError::from)?;
        let asked = (request.filter.as_str(), request.order_by.as_str());
        let listing = Listing::of("ListMeasurements", &[&request.parent], fields::MEASUREMENTS, asked)
            .map_err(ApiError::from)?;
        let page = listing.request(request.page_size, &request.page_token).map_err(ApiError::from)?;
        let page =
            self.store.list_measurements(&name, listing.query(), &page).await.map_err(ApiError::from)?;
        let (measurements, next_page_token) = listing.answer(page, messages::measurement_row);
        Ok(Response::new(v1::ListMeasurementsResponse { measurements, next_page_token }))
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Result<Response<v1::Run>, Status> {
        let v1::GetRunRequest { name, view } = request.into_inner();
        let name = RunName::parse("name", &name).map_err(ApiError::from)?;
        let record = self.store.get_run(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(match View::of_one(view).map_err(ApiError::from)? {
            View::Basic => messages::run_row(&record),
            View::Full => self.run_with_measurements(&record).await?,
        }))
    }

    async fn list_runs(
        &self,
        request: Request<v1::ListRunsRequest>,
    ) -> Result<Response<v1::ListRunsResponse>, Status> {
        let request = request.into_inner();
        let arguments = [request.operation.as_str(), &request.state.to_string()];
        let asked = (request.filter.as_str(), request.order_by.as_str());
        let listing = Listing::of("ListRuns", &arguments, fields::RUNS, asked).map_err(ApiError::from)?;
        let filter = run_filter(&request).map_err(ApiError::from)?;
        let filter = RunFilter { query: listing.query().clone(), ..filter };
        let page = listing.request(request.page_size, &request.page_token).map_err(ApiError::from)?;
        let view = View::of_list(request.view).map_err(ApiError::from)?;
        let page = view.bounded(page);
        let page = self.store.list_runs(&filter, &page).await.map_err(ApiError::from)?;
        let (runs, next_page_token) = match view {
            View::Basic => listing.answer(page, messages::run_row),
            View::Full => {
                let mut whole = listing.whole(page);
                while let Some(record) = whole.next() {
                    let message = self.run_with_measurements(record).await;
                    whole.put(message)?;
                }
                whole.answer()
            }
        };
        Ok(Response::new(v1::ListRunsResponse { runs, next_page_token }))
    }

    async fn export_profile(
        &self,
        request: Request<v1::ExportProfileRequest>,
    ) -> Result<Response<v1::ExportProfileResponse>, Status> {
        Ok(Response::new(self.export(request.into_inner()).await?))
    }

    async fn import_profile(
        &self,
        request: Request<v1::ImportProfileRequest>,
    ) -> Result<Response<v1::Profile>, Status> {
        Ok(Response::new(self.import(request.into_inner()).await?))
    }
}

fn run_filter(request: &v1::ListRunsRequest) -> Result<RunFilter, Invalid> {
    use v1::run::State;
    let operation = match request.operation.as_str() {
        "" => None,
        name => Some(OperationName::parse("operation", name)?),
    };
    let state = match State::try_from(request.state) {
        Ok(State::Unspecified) => None,
        Ok(State::Queued) => Some(RunState::Queued),
        Ok(State::Running) => Some(RunState::Running),
        Ok(State::Succeeded) => Some(RunState::Succeeded),
        Ok(State::OutOfMemory) => Some(RunState::OutOfMemory),
        Ok(State::Failed) => Some(RunState::Failed),
        Ok(State::Cancelled) => Some(RunState::Cancelled),
        Err(_) => return Err(Invalid::field("state", format!("{} is unknown", request.state))),
    };
    Ok(RunFilter { operation, state, ..RunFilter::default() })
}
