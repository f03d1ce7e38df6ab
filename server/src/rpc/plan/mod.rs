//! `PlanService`.

mod content;
mod cores;
mod holds_here;
mod known;
mod listed;
mod message;
mod observe;
mod predict;
mod predicted;
mod prediction_errors;
mod reach;
mod recommend;
mod request;
mod search;
mod simulate;
mod site;
mod trials;
mod validate;
mod wish;

use jiff::Timestamp;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::name::{PlanName, ProfileName, RunName};
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_server::PlanService;
use tonic::{Request, Response, Status};

use super::blocking::blocking;
use super::error::ApiError;
use super::imports::Imports;
use super::page::Listing;
use crate::profile::StoredProfile;
use crate::store::records::{PageRequest, PlanRecord, ProfileRecord, ProfileState};
use crate::store::{RunFilter, Store};
pub(super) use known::Memory;
use known::json_bytes;
use loadmaster_planning::imported;
use loadmaster_planning::layout::layer_names;
use loadmaster_planning::predictors::{self, AnyPredictor, Evidence, Kind, Profiled};
use loadmaster_proto::measure::environment::Host;
use message::Trial;
use recommend::Answer;
pub(super) use search::Searches;

/// Most trials that a plan shows.
const SHOWN_TRIALS: u32 = 10;

/// Predicts, recommends, shows and validates plans.
#[derive(Debug, Clone)]
pub(super) struct Plans {
    pub(super) store: Store,
    pub(super) searches: Searches,
    pub(super) imports: Imports,
    /// What is kept between calls.
    pub(super) memory: Memory,
}

/// A profile that is asked about.
struct Subject {
    profile: ProfileRecord,
    /// None where the profile is of a chain that is known by name alone.
    model: Option<Model>,
    layer_names: Vec<String>,
    /// Trained scalars of the model; none where nobody knows.
    parameters: Option<u64>,
    /// The framework that was profiled; empty where it was Loadmaster's own rank or nobody says.
    framework: String,
    predictor: AnyPredictor,
    /// The host that it was measured on; none where nobody knows.
    host: Option<Host>,
    /// About how many bytes all of it takes, but for what the predictor remembers of its answers.
    bytes: usize,
}

impl Plans {
    async fn with_trials(&self, record: &PlanRecord) -> Result<v1::Plan, ApiError> {
        let filter = RunFilter { plan: Some(record.name.clone()), ..RunFilter::default() };
        let runs = self.store.list_runs(&filter, &PageRequest { size: SHOWN_TRIALS, after: None }).await?;
        let names: Vec<&RunName> = runs.rows.iter().map(|run| &run.name).collect();
        let mut measured = self.store.measurements_of(&names).await?;
        let trials: Vec<Trial> = runs
            .rows
            .into_iter()
            .map(|run| {
                let measurements = measured.extract_if(.., |of| of.run == run.name).collect();
                Trial { run, measurements }
            })
            .collect();
        let layer_names = self.store.get_subject(&record.content.model).await?.layer_names();
        let observations = self.newest_observations(&record.name).await?;
        Ok(v1::Plan { observations, ..message::plan(record, &layer_names, &trials) })
    }

    /// The message of a recommended plan, which is stored with the plans that it names unless it is only asked
    /// what would be recommended.
    async fn answer(&self, answer: Answer, validate_only: bool) -> Result<v1::Plan, ApiError> {
        let Answer { plan: (name, content), others, search_seconds, .. } = answer;
        let mut plan = if validate_only {
            self.with_trials(&PlanRecord { name, content, create_time: Timestamp::now() }).await?
        } else {
            self.stored(others, (name, content)).await?
        };
        if let Some(certificate) = &mut plan.certificate {
            certificate.search_seconds = search_seconds;
        }
        if validate_only {
            plan.alternatives.iter_mut().for_each(|other| other.plan.clear());
            plan.front.iter_mut().for_each(|point| point.plan.clear());
        }
        Ok(plan)
    }

    /// The profile that a request names or brings along.
    async fn profile(&self, name: &str, document: String) -> Result<ProfileName, ApiError> {
        match (name, document.as_str()) {
            (name, "") => Ok(ProfileName::parse("profile", name)?),
            ("", _) => {
                let import = self.imports.document("profile_document", document, None).await?;
                import.store(&self.store).await?;
                Ok(import.settings.name)
            }
            (_, _) => {
                Err(Invalid::field("profile_document", "and profile name two profiles: give one").into())
            }
        }
    }

    /// The profile of a request with a predictor made from its measurements, or from the document that it
    /// was imported from.
    async fn read_subject(&self, name: ProfileName, kind: Option<Kind>) -> Result<Subject, ApiError> {
        let profile = self.store.get_profile(&name).await?;
        refuse_unfinished(&profile)?;
        let without = move |why| ApiError::NoPredictor { profile: name.to_string(), why };
        if let Some(document) = self.store.find_document(&profile.settings.name).await? {
            return blocking("planning failed", move || {
                let predictor = imported::predictor(&document, &profile.settings, kind).map_err(without)?;
                let (layer_names, model) =
                    (document.model.layer_names(), document.model.model().ok().cloned());
                let parameters = document.model.total_parameters();
                let framework = document.provenance.framework.clone();
                let environments = document.measurements.iter().map(|of| &of.measurement.environment);
                let host = Host::of(environments);
                let bytes = json_bytes(&document);
                Ok::<_, ApiError>(Subject {
                    profile,
                    model,
                    layer_names,
                    parameters,
                    framework,
                    predictor,
                    host,
                    bytes,
                })
            })
            .await;
        }
        let stored = StoredProfile::of(&self.store, &profile).await?;
        blocking("planning failed", move || {
            let StoredProfile { settings, model, measurements } = stored;
            let first = measurements.first();
            let framework =
                first.map(|record| record.measurement.environment.framework.clone()).unwrap_or_default();
            let evidence: Vec<Evidence> = measurements
                .into_iter()
                .map(|record| Evidence {
                    name: record.name(),
                    held_out: record.held_out,
                    measurement: record.measurement,
                })
                .collect();
            let bytes = evidence.iter().map(|of| json_bytes(&of.measurement)).sum();
            let profiled = Profiled { settings: &settings, model: &model, evidence: &evidence };
            let predictor = predictors::predictor(profiled, kind).map_err(without)?;
            Ok::<_, ApiError>(Subject {
                host: Host::of(evidence.iter().map(|of| &of.measurement.environment)),
                layer_names: layer_names(&model),
                parameters: Some(model.parameter_count()),
                model: Some(model),
                framework,
                profile,
                predictor,
                bytes,
            })
        })
        .await
    }
}

fn refuse_unfinished(profile: &ProfileRecord) -> Result<(), ApiError> {
    let name = &profile.settings.name;
    let why = match profile.state {
        ProfileState::Complete => return Ok(()),
        ProfileState::Running => {
            format!("it is still being measured: wait with `loadmaster operation wait {}`", profile.operation)
        }
        ProfileState::Incomplete => {
            let missing = profile.missing.join("; ");
            format!("it lacks {missing}: measure that with `loadmaster profile resume {}`", name.id())
        }
        ProfileState::Cancelled => format!(
            "it was cancelled before it was complete: go on with `loadmaster profile resume {}`",
            name.id()
        ),
    };
    Err(ApiError::ProfileIncomplete { profile: name.to_string(), why })
}

#[tonic::async_trait]
impl PlanService for Plans {
    async fn predict_memory(
        &self,
        request: Request<v1::PredictMemoryRequest>,
    ) -> Result<Response<v1::PredictMemoryResponse>, Status> {
        Ok(Response::new(self.predict(request.into_inner()).await?))
    }

    async fn recommend_plan(
        &self,
        request: Request<v1::RecommendPlanRequest>,
    ) -> Result<Response<v1::Plan>, Status> {
        let (metadata, _, request) = request.into_parts();
        Ok(Response::new(self.recommended(request, |seconds| search::limit(&metadata, seconds)).await?))
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
        let (plans, next_page_token) = listing.answer(page, listed::plan);
        Ok(Response::new(v1::ListPlansResponse { plans, next_page_token }))
    }

    async fn delete_plan(&self, request: Request<v1::DeletePlanRequest>) -> Result<Response<()>, Status> {
        let name = PlanName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        self.store.delete_plan(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(()))
    }

    async fn simulate_plan(
        &self,
        request: Request<v1::SimulatePlanRequest>,
    ) -> Result<Response<v1::Timeline>, Status> {
        Ok(Response::new(self.simulate(request.into_inner()).await?))
    }

    async fn compare_plans(
        &self,
        request: Request<v1::ComparePlansRequest>,
    ) -> Result<Response<v1::ComparePlansResponse>, Status> {
        Ok(Response::new(self.compare(request.into_inner()).await?))
    }

    async fn report_observation(
        &self,
        request: Request<v1::ReportObservationRequest>,
    ) -> Result<Response<v1::Observation>, Status> {
        Ok(Response::new(self.report(request.into_inner()).await?))
    }

    async fn list_observations(
        &self,
        request: Request<v1::ListObservationsRequest>,
    ) -> Result<Response<v1::ListObservationsResponse>, Status> {
        Ok(Response::new(self.observations(request.into_inner()).await?))
    }

    async fn delete_observation(
        &self,
        request: Request<v1::DeleteObservationRequest>,
    ) -> Result<Response<()>, Status> {
        Ok(Response::new(Plans::delete_observation(self, request.into_inner()).await?))
    }

    async fn list_prediction_errors(
        &self,
        request: Request<v1::ListPredictionErrorsRequest>,
    ) -> Result<Response<v1::ListPredictionErrorsResponse>, Status> {
        Ok(Response::new(self.prediction_errors(request.into_inner()).await?))
    }

    async fn validate_plan(
        &self,
        request: Request<v1::ValidatePlanRequest>,
    ) -> Result<Response<Operation>, Status> {
        Ok(Response::new(self.validate(request.into_inner()).await?))
    }
}
