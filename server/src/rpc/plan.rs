//! `PlanService`.

use jiff::Timestamp;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::convert::unsigned;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::layer::fingerprint;
use loadmaster_proto::name::{PlanName, ProfileName};
use loadmaster_proto::run::{RunSpec, Work};
use loadmaster_proto::stage::Partitioning;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_server::PlanService;
use tonic::{Request, Response, Status};

use super::error::ApiError;
use super::messages::{self, Trial};
use super::operations::operation_message;
use super::page::Listing;
use super::validate::{count_or, deadline_seconds, request_key};
use crate::planning::additive::Additive;
use crate::planning::layout::layer_names;
use crate::planning::predictor::{Origin, Predictor};
use crate::planning::recommend::{Recommendation, recommend};
use crate::profile;
use crate::store::records::{
    NewRun, PageRequest, PlanContent, PlanRecord, PlanStageRecord, ProfileRecord, ProfileState,
};
use crate::store::{RunFilter, Store, StoreError};

/// Measured iterations of a trial where the caller names none.
const DEFAULT_TRIAL_ITERATIONS: u32 = 2;
/// Most trials that a plan shows.
const SHOWN_TRIALS: u32 = 10;

/// Recommends, shows and validates plans.
#[derive(Debug, Clone)]
pub(super) struct Plans {
    pub(super) store: Store,
}

impl Plans {
    /// A plan with its newest trials.
    pub(super) async fn whole(&self, name: &PlanName) -> Result<v1::Plan, ApiError> {
        let record = self.store.get_plan(name).await?;
        self.with_trials(&record).await
    }

    async fn with_trials(&self, record: &PlanRecord) -> Result<v1::Plan, ApiError> {
        let filter = RunFilter { plan: Some(record.name.clone()), ..RunFilter::default() };
        let runs = self.store.list_runs(&filter, &PageRequest { size: SHOWN_TRIALS, after: None }).await?;
        let mut trials = Vec::with_capacity(runs.rows.len());
        for run in runs.rows {
            let measurements = self.store.run_measurements(&run.name).await?;
            trials.push(Trial { run, measurements });
        }
        let model = self.store.get_model(&record.content.model).await?.model;
        Ok(messages::plan(record, &layer_names(&model), &trials))
    }

    async fn recommend(&self, request: &v1::RecommendPlanRequest) -> Result<PlanRecord, ApiError> {
        let name = ProfileName::parse("profile", &request.profile)?;
        let profile = self.store.get_profile(&name).await?;
        let model = self.store.get_model(&profile.settings.model).await?.model;
        let training = target(request, &profile)?;
        let capacities = capacities(request, &profile)?;
        refuse_unfinished(&profile)?;

        let measurements = self.store.profile_measurements(&name).await?;
        // A large search takes seconds: heartbeats must not wait for it.
        let search = move || {
            let metrics = profile::metrics(&profile.settings, &model, &measurements)?;
            let predictor = Additive::new(model.layers().len(), &metrics.layers);
            let recommended = recommend(&predictor, &layer_names(&model), &training, &capacities)?;
            Ok::<_, ApiError>(PlanContent {
                profile: name,
                model: profile.settings.model,
                training,
                device_kind: profile.settings.device_kind,
                stages: recommended
                    .stages
                    .iter()
                    .map(|stage| PlanStageRecord {
                        config: stage.config,
                        capacity: stage.capacity.0,
                        predicted_peak: stage.prediction.bytes.0,
                    })
                    .collect(),
                predictor: predictor.name().to_owned(),
                solver: recommended.solver.to_owned(),
                warnings: warnings(&recommended),
            })
        };
        let content = tokio::task::spawn_blocking(search)
            .await
            .map_err(|error| StoreError::Internal(format!("the search failed: {error}")))??;
        let id = &fingerprint(&content)[..16];
        Ok(PlanRecord { name: PlanName::from_id(id)?, content, create_time: Timestamp::now() })
    }
}

/// What to know before trusting the numbers.
fn warnings(recommended: &Recommendation) -> Vec<String> {
    let mut warnings = vec![
        "bytes are of the allocated ledger: contexts, communication libraries and allocator \
         fragmentation of a GPU come on top"
            .to_owned(),
    ];
    let furthest = recommended.stages.iter().map(|stage| stage.prediction.origin).max();
    if furthest == Some(Origin::Extrapolated) {
        warnings.push(
            "predicted beyond the profiled micro-batch sizes or micro-batches in flight, along a straight \
             line"
                .to_owned(),
        );
    }
    warnings
}

/// The training that the plan is for: the profile's, with the sizes that the request names.
fn target(request: &v1::RecommendPlanRequest, profile: &ProfileRecord) -> Result<TrainingSpec, Invalid> {
    match v1::PlanShape::try_from(request.shape) {
        Ok(v1::PlanShape::Unspecified | v1::PlanShape::SinglePipeline) => {}
        Err(_) => return Err(Invalid::field("shape", format!("{} is unknown", request.shape))),
    }
    let training = profile.settings.training;
    Ok(TrainingSpec {
        micro_batch_size: count_or(
            "micro_batch_size",
            request.micro_batch_size,
            training.micro_batch_size,
            TrainingSpec::MAX_MICRO_BATCH_SIZE,
        )?,
        micro_batches: count_or(
            "micro_batches",
            request.micro_batches,
            training.micro_batches,
            TrainingSpec::MAX_MICRO_BATCHES,
        )?,
        ..training
    })
}

/// Capacity of each device in pipeline order.
fn capacities(request: &v1::RecommendPlanRequest, profile: &ProfileRecord) -> Result<Vec<Bytes>, Invalid> {
    let mut capacities = Vec::new();
    for (index, group) in request.devices.iter().enumerate() {
        let path = |field: &str| format!("devices[{index}].{field}");
        let count = in_range(&path("count"), group.count, 1..=10_000)?;
        let capacity: u64 = unsigned(&path("capacity_bytes"), group.capacity_bytes)?;
        in_range(&path("capacity_bytes"), capacity, 1..=i64::MAX.unsigned_abs())?;
        if !group.kind.is_empty() && group.kind != profile.settings.device_kind {
            return Err(Invalid::field(
                path("kind"),
                format!(
                    "is {:?}, but {} was measured on {:?}: profile on that kind of device",
                    group.kind, profile.settings.name, profile.settings.device_kind
                ),
            ));
        }
        capacities.extend(std::iter::repeat_n(Bytes(capacity), count.unsigned_abs() as usize));
        in_range("devices", capacities.len(), 1..=10_000)?;
    }
    if capacities.is_empty() {
        return Err(Invalid::field("devices", "is required: how many devices, and how large?"));
    }
    Ok(capacities)
}

fn refuse_unfinished(profile: &ProfileRecord) -> Result<(), ApiError> {
    let why = match profile.state {
        ProfileState::Complete => return Ok(()),
        ProfileState::Running => {
            format!("it is still being measured: wait with `loadmaster operation wait {}`", profile.operation)
        }
        ProfileState::Incomplete => format!("it lacks {}", profile.missing.join("; ")),
        ProfileState::Cancelled => "it was cancelled before it was complete: run it again".to_owned(),
    };
    Err(ApiError::ProfileIncomplete { profile: profile.settings.name.to_string(), why })
}

#[tonic::async_trait]
impl PlanService for Plans {
    async fn recommend_plan(
        &self,
        request: Request<v1::RecommendPlanRequest>,
    ) -> Result<Response<v1::Plan>, Status> {
        let request = request.into_inner();
        let record = self.recommend(&request).await?;
        let record = if request.validate_only {
            record
        } else {
            self.store.put_plan(&record.name, &record.content).await.map_err(ApiError::from)?
        };
        Ok(Response::new(self.with_trials(&record).await?))
    }

    async fn get_plan(&self, request: Request<v1::GetPlanRequest>) -> Result<Response<v1::Plan>, Status> {
        let name = PlanName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        Ok(Response::new(self.whole(&name).await?))
    }

    async fn list_plans(
        &self,
        request: Request<v1::ListPlansRequest>,
    ) -> Result<Response<v1::ListPlansResponse>, Status> {
        let request = request.into_inner();
        let listing = Listing::new("ListPlans", &[]);
        let page = listing.request(request.page_size, &request.page_token).map_err(ApiError::from)?;
        let page = self.store.list_plans(&page).await.map_err(ApiError::from)?;
        let mut plans = Vec::with_capacity(page.rows.len());
        for record in &page.rows {
            plans.push(self.with_trials(record).await?);
        }
        Ok(Response::new(v1::ListPlansResponse { next_page_token: listing.next_token(&page), plans }))
    }

    async fn validate_plan(
        &self,
        request: Request<v1::ValidatePlanRequest>,
    ) -> Result<Response<Operation>, Status> {
        let mut request = request.into_inner();
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request).map_err(ApiError::from)?;
        let name = PlanName::parse("name", &request.name).map_err(ApiError::from)?;
        let iterations =
            count_or("iterations", request.iterations, DEFAULT_TRIAL_ITERATIONS, RunSpec::MAX_ITERATIONS)
                .map_err(ApiError::from)?;
        let deadline_seconds = deadline_seconds(request.run_deadline_seconds).map_err(ApiError::from)?;
        let plan = self.store.get_plan(&name).await.map_err(ApiError::from)?.content;
        let configs = plan.stages.iter().map(|stage| stage.config).collect();
        let partitioning = Partitioning::new(configs).map_err(ApiError::from)?;
        let run = NewRun {
            training: plan.training,
            device_kind: plan.device_kind,
            device_count: partitioning.stages().iter().map(|stage| stage.degree).sum(),
            work: Work::Partitioning(partitioning),
            iterations,
            min_capacity: plan.stages.iter().map(|stage| stage.capacity).max().unwrap_or(0),
            deadline_seconds,
        };
        let operation = self.store.create_validation(&name, run, key).await.map_err(ApiError::from)?;
        let record = self.store.get_operation(&operation).await.map_err(ApiError::from)?;
        Ok(Response::new(operation_message(&record, String::new(), None)))
    }
}
