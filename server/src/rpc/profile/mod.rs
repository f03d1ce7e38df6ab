//! `ProfileService`.

mod document;
mod order;
mod software;

use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::name::{ModelName, OperationName, ProfileName, RunName, checked_kind};
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::wire::longrunning::{Operation, operation};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::profile_service_server::ProfileService;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::blocking::blocking;
use super::error::ApiError;
use super::imports::Imports;
use super::limits::request_key;
use super::operations::{operation_message, pack};
use super::page::Listing;
use super::{estimate, messages};
use crate::profile::{Prepared, StoredProfile};
use crate::store::records::{
    AttemptRecord, PageRequest, RunCounts, RunState, Software, WorkerRecord, WorkerState,
};
use crate::store::{RunFilter, Store, StoreError};
use order::Order;

/// Most workers that are looked at, the newest first.
const MAX_WORKERS: u32 = 1_000;

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
        blocking("a profile cannot be shown", move || messages::profile(&record, &stored)).await
    }

    async fn subject(
        &self,
        subject: v1::run_profile_request::Subject,
    ) -> Result<(Model, Option<ModelSource>), ApiError> {
        match subject {
            v1::run_profile_request::Subject::Model(name) => {
                let name = ModelName::parse("model", &name)?;
                Ok((self.store.get_model(&name).await?.model, None))
            }
            v1::run_profile_request::Subject::Source(source) => {
                let (source, model) = self.imports.model(source).await?;
                Ok((model, Some(source)))
            }
        }
    }

    async fn started(&self, operation: &OperationName) -> Result<Operation, ApiError> {
        let record = self.store.get_operation(operation).await?;
        Ok(operation_message(&record, String::new(), None, None))
    }

    /// What a valid request would make: nothing of it is stored, and no operation has a name.
    async fn checked(
        &self,
        profile: &ProfileSettings,
        prepared: &Prepared,
        workers: &[WorkerRecord],
    ) -> Result<Operation, ApiError> {
        match self.store.get_profile(&profile.name).await {
            Ok(_) => return Err(StoreError::AlreadyExists { what: profile.name.to_string() }.into()),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let queued = RunCounts { queued: count(prepared.runs.len()), ..RunCounts::default() };
        let alive = workers.iter().filter(|worker| worker.state == WorkerState::Alive);
        let at_once = alive.map(|worker| worker.runs_at_once(&profile.device_kind));
        let pace = self.store.pace(&profile.device_kind, &profile.model).await?;
        let mut profile = v1::Profile {
            runs_at_once: messages::count(at_once.fold(0, u32::saturating_add)),
            reused_runs: i32::try_from(prepared.reused.len()).unwrap_or(i32::MAX),
            ..messages::new_profile(profile, queued)
        };
        estimate::write(&mut profile, &prepared.runs, pace);
        let response = operation::Result::Response(pack(&profile));
        Ok(Operation { done: true, result: Some(response), ..Operation::default() })
    }

    /// Which runs a profile needs besides those that it has (`attempts`), and which of them somebody made
    /// before in the same environment as today's.
    async fn prepare(
        &self,
        settings: &ProfileSettings,
        model: Model,
        attempts: Vec<AttemptRecord>,
        software: Option<Software>,
    ) -> Result<Prepared, ApiError> {
        let shared = settings.clone();
        // A long model has many runs, each of which is hashed.
        let remaining = blocking("a campaign cannot be laid out", move || {
            StoredProfile::remaining(&shared, &model, &attempts)
        })
        .await?;
        let measured = match software {
            Some(software) if !settings.fresh => {
                let wanted: Vec<(String, u32)> = remaining
                    .iter()
                    .map(|keyed| (keyed.key.clone(), keyed.run.training.micro_batch_size))
                    .collect();
                let (kind, contended) = (&settings.device_kind, settings.reuse_contended);
                self.store.find_measured(&wanted, kind, &software, contended).await?
            }
            _ => Vec::new(),
        };
        Ok(Prepared::new(settings, remaining, &measured))
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, ApiError> {
        Ok(self.store.list_workers(&PageRequest { size: MAX_WORKERS, after: None }).await?.rows)
    }

    async fn run(&self, mut request: v1::RunProfileRequest) -> Result<Operation, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        // Before anything that may have changed since: the same call gets the same answer.
        if !request.validate_only
            && let Some(first) = self.store.find_request(key.as_ref()).await?
        {
            return self.started(&first).await;
        }
        let subject = required("model", request.subject.clone())?;
        let (model, source) = self.subject(subject).await?;
        // Which scenarios can be laid out takes a while to find out for a long model.
        let (order, request, model) = blocking("a request cannot be checked", move || {
            let order = Order::check(&request, &model)?;
            Ok::<_, Invalid>((order, request, model))
        })
        .await?;
        let name = match request.profile_id.as_str() {
            "" => {
                let suffix = Uuid::new_v4().simple().to_string();
                ProfileName::from_id(format!("{}-{}", model.slug(), &suffix[..8]))
            }
            id => ProfileName::from_id(id),
        }
        .map_err(|invalid| invalid.under("profile_id"))?;
        let workers = self.workers().await?;
        let device_kind = device_kind(&request.device_kind, &workers)?;
        let settings = order.settings(name, ModelName::from_id(model.id())?, device_kind);
        let software = software::of_workers(&workers, &settings.device_kind)?;
        let prepared = self.prepare(&settings, model.clone(), Vec::new(), software).await?;
        if request.validate_only {
            return self.checked(&settings, &prepared, &workers).await;
        }
        if let Some(source) = source {
            self.store.put_model(&model, &source).await?;
        }
        let operation = self.store.create_profile(settings, prepared.runs, &prepared.reused, key).await?;
        self.started(&operation).await
    }

    async fn resume(&self, mut request: v1::ResumeProfileRequest) -> Result<Operation, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        if let Some(first) = self.store.find_request(key.as_ref()).await? {
            return self.started(&first).await;
        }
        let name = ProfileName::parse("name", &request.name)?;
        let record = self.store.get_profile(&name).await?;
        if let Err(refused) = record.check_resumable() {
            // A twin of this call may have resumed it a moment ago.
            return match self.store.find_request(key.as_ref()).await? {
                Some(first) => self.started(&first).await,
                None => Err(refused.into()),
            };
        }
        let stored = StoredProfile::of(&self.store, &record).await?;
        let software = software::of_workers(&self.workers().await?, &stored.settings.device_kind)?;
        if let Some(software) = &software {
            software::check_same(&name, &stored.environments(), software)?;
        }
        let attempts = self.store.profile_attempts(&name).await?;
        let prepared = self.prepare(&stored.settings, stored.model, attempts, software).await?;
        let operation = self.store.resume_profile(&name, prepared.runs, &prepared.reused, key).await?;
        self.started(&operation).await
    }
}

/// The kind of device to measure on: as asked, else that of the first device of the newest worker that
/// takes runs.
fn device_kind(asked: &str, workers: &[WorkerRecord]) -> Result<String, ApiError> {
    if !asked.is_empty() {
        checked_kind("device_kind", asked)?;
        return Ok(asked.to_owned());
    }
    workers
        .iter()
        .filter(|worker| worker.state == WorkerState::Alive)
        .flat_map(|worker| &worker.devices)
        .map(|device| device.kind.clone())
        .next()
        .ok_or(ApiError::NoWorker)
}

#[tonic::async_trait]
impl ProfileService for Profiles {
    async fn run_profile(
        &self,
        request: Request<v1::RunProfileRequest>,
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
        let name = ProfileName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        Ok(Response::new(self.whole(&name).await?))
    }

    async fn list_profiles(
        &self,
        request: Request<v1::ListProfilesRequest>,
    ) -> Result<Response<v1::ListProfilesResponse>, Status> {
        let request = request.into_inner();
        let listing = Listing::new("ListProfiles", &[]);
        let page = listing.request(request.page_size, &request.page_token).map_err(ApiError::from)?;
        let page = self.store.list_profiles(&page).await.map_err(ApiError::from)?;
        let (profiles, next_page_token) = listing.answer(page, messages::profile_in_list);
        Ok(Response::new(v1::ListProfilesResponse { profiles, next_page_token }))
    }

    async fn delete_profile(
        &self,
        request: Request<v1::DeleteProfileRequest>,
    ) -> Result<Response<()>, Status> {
        let name = ProfileName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        self.store.delete_profile(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(()))
    }

    async fn list_measurements(
        &self,
        request: Request<v1::ListMeasurementsRequest>,
    ) -> Result<Response<v1::ListMeasurementsResponse>, Status> {
        let request = request.into_inner();
        let name = ProfileName::parse("parent", &request.parent).map_err(ApiError::from)?;
        let listing = Listing::new("ListMeasurements", &[&request.parent]);
        let page = listing.request(request.page_size, &request.page_token).map_err(ApiError::from)?;
        let page = self.store.list_measurements(&name, &page).await.map_err(ApiError::from)?;
        // Tapes are for predictors, and a page of them would be longer than a message may be.
        let (measurements, next_page_token) =
            listing.answer(page, |row| v1::Measurement { tape: None, ..messages::measurement(row) });
        Ok(Response::new(v1::ListMeasurementsResponse { measurements, next_page_token }))
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Result<Response<v1::Run>, Status> {
        let name = RunName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        let record = self.store.get_run(&name).await.map_err(ApiError::from)?;
        let measurements = self.store.run_measurements(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(v1::Run {
            measurements: measurements.iter().map(messages::measurement).collect(),
            ..messages::run_row(&record)
        }))
    }

    async fn list_runs(
        &self,
        request: Request<v1::ListRunsRequest>,
    ) -> Result<Response<v1::ListRunsResponse>, Status> {
        let request = request.into_inner();
        let filter = run_filter(&request).map_err(ApiError::from)?;
        let listing = Listing::new("ListRuns", &[&request.operation, &request.state.to_string()]);
        let page = listing.request(request.page_size, &request.page_token).map_err(ApiError::from)?;
        let page = self.store.list_runs(&filter, &page).await.map_err(ApiError::from)?;
        let (runs, next_page_token) = listing.answer(page, messages::run_row);
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
        Ok(State::Parked) => Some(RunState::Parked),
        Ok(State::Cancelled) => Some(RunState::Cancelled),
        Err(_) => return Err(Invalid::field("state", format!("{} is unknown", request.state))),
    };
    Ok(RunFilter { operation, state, ..RunFilter::default() })
}
