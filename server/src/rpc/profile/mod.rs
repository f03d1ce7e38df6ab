//! `ProfileService`.

mod document;
mod message;
mod order;
mod run;
mod software;

use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::label::LabelChange;
use loadmaster_proto::measure::measurement::Measurement;
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
use super::page::{Listing, View, listing, read_each};
use crate::profile::StoredProfile;
use crate::store::records::{MeasurementRecord, RunRecord, RunState, WorkerRecord};
use crate::store::{RunFilter, Store, StoreError, fields};

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

    /// A row of a list of measurements in FULL view. Measurements of imported profiles have no more than their rows.
    async fn measurement(&self, row: &MeasurementRecord) -> Result<v1::Measurement, ApiError> {
        let Measurement { stage_index, shard, .. } = row.measurement;
        match self.store.get_measurement(&row.run, stage_index, shard).await {
            Ok(found) => Ok(messages::measurement(&found)),
            Err(StoreError::NotFound { .. }) => Ok(messages::measurement(row)),
            Err(error) => Err(error.into()),
        }
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
        let (listing, page) = listing!(request, "ListProfiles", &[], PROFILES);
        let (view, page) = View::of_list(request.view, page).map_err(ApiError::from)?;
        let page = self.store.list_profiles(listing.query(), &page).await.map_err(ApiError::from)?;
        let (profiles, next_page_token) = match view {
            View::Basic => listing.answer(page, message::in_list),
            View::Full => read_each!(listing, page, |record| self.whole(&record.settings.name).await),
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
        let (listing, page) = listing!(request, "ListMeasurements", &[&request.parent], MEASUREMENTS);
        let (view, page) = View::of_list(request.view, page).map_err(ApiError::from)?;
        let page =
            self.store.list_measurements(&name, listing.query(), &page).await.map_err(ApiError::from)?;
        let (measurements, next_page_token) = match view {
            View::Basic => listing.answer(page, messages::measurement_row),
            View::Full => read_each!(listing, page, |row| self.measurement(row).await),
        };
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
        let (listing, page) = listing!(request, "ListRuns", &arguments, RUNS);
        let filter = run_filter(&request).map_err(ApiError::from)?;
        let filter = RunFilter { query: listing.query().clone(), ..filter };
        let (view, page) = View::of_list(request.view, page).map_err(ApiError::from)?;
        let page = self.store.list_runs(&filter, &page).await.map_err(ApiError::from)?;
        let (runs, next_page_token) = match view {
            View::Basic => listing.answer(page, messages::run_row),
            View::Full => read_each!(listing, page, |record| self.run_with_measurements(record).await),
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
