//! `ProfileService`.

use loadmaster_proto::error::{Invalid, in_range, required};
use loadmaster_proto::model::Model;
use loadmaster_proto::name::{ModelName, OperationName, ProfileName, RunName};
use loadmaster_proto::run::{RunSpec, Work};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::wire::longrunning::{Operation, operation};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::profile_service_server::ProfileService;
use loadmaster_proto::zoo::Zoo;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::error::ApiError;
use super::messages;
use super::operations::{operation_message, pack};
use super::page::Listing;
use super::validate::{count_or, deadline_seconds, request_key};
use crate::planning::campaign::default_micro_batch_sizes;
use crate::planning::layout::Layout;
use crate::profile;
use crate::store::records::{
    Campaign, NewRun, PageRequest, ProfileSettings, RunCounts, RunState, WorkerState,
};
use crate::store::{RunFilter, Store, StoreError};

/// Most bytes of a kind of device, as for workers; every run has a copy.
const MAX_KIND: usize = 128;

/// Runs and shows profiles.
#[derive(Debug, Clone)]
pub(super) struct Profiles {
    pub(super) store: Store,
}

impl Profiles {
    /// A profile with its layers' metrics.
    pub(super) async fn whole(&self, name: &ProfileName) -> Result<v1::Profile, ApiError> {
        let record = self.store.get_profile(name).await?;
        let model = self.store.get_model(&record.settings.model).await?.model;
        let measurements = self.store.profile_measurements(name).await?;
        let metrics = profile::metrics(&record.settings, &model, &measurements)?;
        Ok(v1::Profile {
            layers: metrics.layers.iter().map(messages::layer_memory).collect(),
            ..messages::profile_row(&record)
        })
    }

    async fn subject(
        &self,
        subject: v1::run_profile_request::Subject,
    ) -> Result<(Model, Option<Zoo>), ApiError> {
        match subject {
            v1::run_profile_request::Subject::Model(name) => {
                let name = ModelName::parse("model", &name)?;
                Ok((self.store.get_model(&name).await?.model, None))
            }
            v1::run_profile_request::Subject::Source(source) => {
                let (zoo, model) = super::model::build(source)?;
                Ok((model, Some(zoo)))
            }
        }
    }

    async fn started(&self, operation: &OperationName) -> Result<Response<Operation>, Status> {
        let record = self.store.get_operation(operation).await.map_err(ApiError::from)?;
        Ok(Response::new(operation_message(&record, String::new(), None)))
    }

    /// What a valid request would make: nothing of it is stored, and no operation has a name.
    async fn checked(&self, profile: &ProfileSettings, runs: usize) -> Result<Operation, ApiError> {
        match self.store.get_profile(&profile.name).await {
            Ok(_) => return Err(StoreError::AlreadyExists { what: profile.name.to_string() }.into()),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let queued = u32::try_from(runs).unwrap_or(u32::MAX);
        let profile = messages::new_profile(profile, RunCounts { queued, ..RunCounts::default() });
        let response = operation::Result::Response(pack(&profile));
        Ok(Operation { done: true, result: Some(response), ..Operation::default() })
    }

    /// The kind of device to measure on: as asked, else that of the first connected device.
    async fn device_kind(&self, asked: &str) -> Result<String, ApiError> {
        if asked.len() > MAX_KIND || asked.contains(char::is_control) {
            let why = format!("must be a name of at most {MAX_KIND} bytes, as a worker reports it");
            return Err(Invalid::field("device_kind", why).into());
        }
        if !asked.is_empty() {
            return Ok(asked.to_owned());
        }
        let workers = self.store.list_workers(&PageRequest { size: 1_000, after: None }).await?;
        workers
            .rows
            .into_iter()
            .filter(|worker| worker.state == WorkerState::Alive)
            .flat_map(|worker| worker.devices)
            .map(|device| device.kind)
            .next()
            .ok_or(ApiError::NoWorker)
    }
}

/// A checked `RunProfileRequest`, but for its subject and device kind.
struct Order {
    training: TrainingSpec,
    campaign: Campaign,
    devices: u32,
    micro_batch_sizes: Vec<u32>,
    iterations: u32,
    min_capacity: u64,
    deadline_seconds: u32,
}

impl Order {
    fn check(request: &v1::RunProfileRequest, model: &Model) -> Result<Self, Invalid> {
        let training: TrainingSpec = required("training", request.training)?
            .try_into()
            .map_err(|invalid: Invalid| invalid.under("training"))?;
        let campaign = match v1::Campaign::try_from(request.campaign) {
            Ok(v1::Campaign::Paper) => Campaign::Paper,
            Ok(v1::Campaign::Unspecified | v1::Campaign::Stages) => Campaign::Stages,
            Err(_) => return Err(Invalid::field("campaign", format!("{} is unknown", request.campaign))),
        };
        let layers = i32::try_from(model.layers().len()).unwrap_or(i32::MAX);
        if request.devices > layers {
            return Err(Invalid::field(
                "devices",
                format!("is {}, more stages than the model's {layers} layers", request.devices),
            ));
        }
        let devices = in_range("devices", request.devices, 1..=layers)?.unsigned_abs();
        Ok(Self {
            training,
            campaign,
            devices,
            micro_batch_sizes: micro_batch_sizes(&request.micro_batch_sizes, &training)?,
            iterations: count_or("iterations", request.iterations, 1, RunSpec::MAX_ITERATIONS)?,
            min_capacity: loadmaster_proto::convert::unsigned(
                "min_capacity_bytes",
                request.min_capacity_bytes,
            )?,
            deadline_seconds: deadline_seconds(request.run_deadline_seconds)?,
        })
    }

    fn runs(&self, works: &[Work], device_kind: &str) -> Vec<NewRun> {
        let sizes = self.micro_batch_sizes.iter();
        sizes
            .flat_map(|&size| {
                works.iter().map(move |work| NewRun {
                    training: self.training.with_micro_batch_size(size),
                    work: work.clone(),
                    iterations: self.iterations,
                    device_kind: device_kind.to_owned(),
                    device_count: match work {
                        Work::Partitioning(partitioning) => {
                            partitioning.stages().iter().map(|stage| stage.degree).sum()
                        }
                        Work::Solo(solo) => solo.stage.degree,
                    },
                    min_capacity: self.min_capacity,
                    deadline_seconds: self.deadline_seconds,
                })
            })
            .collect()
    }
}

fn micro_batch_sizes(asked: &[i32], training: &TrainingSpec) -> Result<Vec<u32>, Invalid> {
    if asked.is_empty() {
        return Ok(default_micro_batch_sizes(training.micro_batch_size));
    }
    let mut sizes = asked
        .iter()
        .enumerate()
        .map(|(index, &size)| {
            in_range(
                &format!("micro_batch_sizes[{index}]"),
                i64::from(size),
                1..=i64::from(TrainingSpec::MAX_MICRO_BATCH_SIZE),
            )
            .map(|size| u32::try_from(size).unwrap_or(1))
        })
        .collect::<Result<Vec<u32>, Invalid>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() != asked.len() || sizes.len() > 2 {
        return Err(Invalid::field("micro_batch_sizes", "must be one or two different sizes"));
    }
    Ok(sizes)
}

#[tonic::async_trait]
impl ProfileService for Profiles {
    async fn run_profile(
        &self,
        request: Request<v1::RunProfileRequest>,
    ) -> Result<Response<Operation>, Status> {
        let mut request = request.into_inner();
        let key = {
            let id = std::mem::take(&mut request.request_id);
            request_key(&id, &request).map_err(ApiError::from)?
        };
        // Before anything that may have changed since: the same call gets the same answer.
        if !request.validate_only
            && let Some(first) = self.store.find_request(key.as_ref()).await.map_err(ApiError::from)?
        {
            return self.started(&first).await;
        }
        let subject = required("model", request.subject.clone()).map_err(ApiError::from)?;
        let (model, source) = self.subject(subject).await?;
        let order = Order::check(&request, &model).map_err(ApiError::from)?;
        let layout =
            Layout::new(order.campaign, &model, &order.training, order.devices).map_err(ApiError::from)?;
        let name = match request.profile_id.as_str() {
            "" => {
                let suffix = Uuid::new_v4().simple().to_string();
                ProfileName::from_id(format!("{}-{}", model.family(), &suffix[..8]))
            }
            id => ProfileName::from_id(id),
        }
        .map_err(|invalid| ApiError::from(invalid.under("profile_id")))?;
        let device_kind = self.device_kind(&request.device_kind).await?;
        let runs = order.runs(&layout.works(), &device_kind);
        let profile = ProfileSettings {
            name,
            model: ModelName::from_id(model.id()).map_err(ApiError::from)?,
            training: order.training,
            campaign: order.campaign,
            devices: order.devices,
            micro_batch_sizes: order.micro_batch_sizes,
            device_kind,
        };
        if request.validate_only {
            return Ok(Response::new(self.checked(&profile, runs.len()).await?));
        }
        if let Some(zoo) = source {
            self.store.put_model(&model, &zoo).await.map_err(ApiError::from)?;
        }
        let operation = self.store.create_profile(profile, runs, key).await.map_err(ApiError::from)?;
        self.started(&operation).await
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
        Ok(Response::new(v1::ListProfilesResponse {
            next_page_token: listing.next_token(&page),
            profiles: page.rows.iter().map(messages::profile_row).collect(),
        }))
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
        Ok(Response::new(v1::ListMeasurementsResponse {
            next_page_token: listing.next_token(&page),
            measurements: page.rows.iter().map(messages::measurement).collect(),
        }))
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
        Ok(Response::new(v1::ListRunsResponse {
            next_page_token: listing.next_token(&page),
            runs: page.rows.iter().map(messages::run_row).collect(),
        }))
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
