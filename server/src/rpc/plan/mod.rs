//! `PlanService`.

mod cache;
mod chunk_timeline;
mod export;
mod infeasible;
mod message;
mod place;
mod plan_summary;
mod predict;
mod prediction_errors;
mod profile;
mod recommend;
mod report;
mod request;
mod search;
mod simulate;
mod start;
mod timeline;
mod trials;
mod validate;
mod worker_capacity;

use std::collections::BTreeMap;

use jiff::Timestamp;
use loadmaster_proto::error::required;
use loadmaster_proto::label::LabelChange;
use loadmaster_proto::name::{PlacementName, PlanName, RunName};
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_server::PlanService;
use tonic::{Request, Response, Status};

use super::error::ApiError;
use super::imports::Imports;
use super::page::{Listing, View, listing, read_each};
use crate::dispatch::Dispatcher;
use crate::store::records::{PageRequest, PlanRecord};
use crate::store::{RunFilter, Store, fields};
pub(super) use cache::Memory;
use message::Trial;
use recommend::Recommended;
use search::SearchTerms;
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
    /// Where searches run that are operations.
    pub(super) dispatcher: Dispatcher,
}

impl Plans {
    /// A plan in a view.
    async fn viewed(&self, name: &PlanName, view: View) -> Result<v1::Plan, ApiError> {
        let row = self.store.plan_row(name).await?;
        Ok(match view {
            View::Basic => plan_summary::plan(&row, &self.cached_model(&row.model).await?.summary),
            View::Full => plan_summary::with_summary(self.whole(name).await?, &row),
        })
    }

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
        let subject = self.store.get_subject(&record.content.model).await?;
        let reports = self.newest_reports(&record.name).await?;
        let model = self.cached_model(&record.content.model).await?;
        let plan = message::plan(record, &model.layer_names, &trials);
        let mut plan = export::judged(plan, record, Some(&subject), &model.summary);
        plan.reports = reports;
        message::put_reported_peaks(&mut plan, &record.content);
        Ok(plan)
    }

    /// The message of a recommended plan, which is stored with the plans that it names unless it is only asked
    /// what would be recommended.
    async fn answer(&self, answer: Recommended, validate_only: bool) -> Result<v1::Plan, ApiError> {
        let Recommended { plan: (name, content), others, search_seconds, .. } = answer;
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
}

#[tonic::async_trait]
impl PlanService for Plans {
    async fn predict_plan(
        &self,
        request: Request<v1::PredictPlanRequest>,
    ) -> Result<Response<v1::PredictPlanResponse>, Status> {
        let terms = SearchTerms::of(&request);
        Ok(Response::new(self.predict(request.into_inner(), &terms).await?))
    }

    async fn recommend_plan(
        &self,
        request: Request<v1::RecommendPlanRequest>,
    ) -> Result<Response<v1::RecommendPlanResponse>, Status> {
        let terms = SearchTerms::of(&request);
        Ok(Response::new(Box::pin(self.recommended(request.into_inner(), &terms)).await?))
    }

    async fn start_recommendation(
        &self,
        request: Request<v1::StartRecommendationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let terms = SearchTerms::of(&request);
        Ok(Response::new(self.start(request.into_inner(), terms).await?))
    }

    async fn get_plan(&self, request: Request<v1::GetPlanRequest>) -> Result<Response<v1::Plan>, Status> {
        let v1::GetPlanRequest { name, view } = request.into_inner();
        let name = PlanName::parse("name", &name).map_err(ApiError::from)?;
        let view = View::of_one(view).map_err(ApiError::from)?;
        Ok(Response::new(self.viewed(&name, view).await?))
    }

    async fn list_plans(
        &self,
        request: Request<v1::ListPlansRequest>,
    ) -> Result<Response<v1::ListPlansResponse>, Status> {
        let request = request.into_inner();
        let (listing, page) = listing!(request, "ListPlans", &[], PLANS);
        let (view, page) = View::of_list(request.view, page).map_err(ApiError::from)?;
        let page = self.store.list_plans(listing.query(), &page).await.map_err(ApiError::from)?;
        let (plans, next_page_token) = match view {
            View::Basic => {
                let mut models = BTreeMap::new();
                for row in &page.rows {
                    if !models.contains_key(&row.model) {
                        models.insert(row.model.clone(), self.cached_model(&row.model).await?);
                    }
                }
                listing.answer(page, |row| plan_summary::plan(row, &models[&row.model].summary))
            }
            View::Full => read_each!(listing, page, |row| self
                .whole(&row.name)
                .await
                .map(|plan| plan_summary::with_summary(plan, row))),
        };
        Ok(Response::new(v1::ListPlansResponse { plans, next_page_token }))
    }

    async fn update_plan(
        &self,
        request: Request<v1::UpdatePlanRequest>,
    ) -> Result<Response<v1::Plan>, Status> {
        let v1::UpdatePlanRequest { plan, update_mask } = request.into_inner();
        let plan = required("plan", plan).map_err(ApiError::from)?;
        let name = PlanName::parse("plan.name", &plan.name).map_err(ApiError::from)?;
        let paths = update_mask.as_ref().map(|mask| mask.paths.as_slice());
        let change = LabelChange::asked("plan", plan.labels, paths).map_err(ApiError::from)?;
        self.store.label_plan(&name, &change, &plan.etag).await.map_err(ApiError::from)?;
        Ok(Response::new(self.viewed(&name, View::Full).await?))
    }

    async fn delete_plan(&self, request: Request<v1::DeletePlanRequest>) -> Result<Response<()>, Status> {
        let v1::DeletePlanRequest { name, force, etag } = request.into_inner();
        let name = PlanName::parse("name", &name).map_err(ApiError::from)?;
        let deleted = match force {
            true => self.store.delete_plan_with_trials(&name, &etag).await,
            false => self.store.delete_plan(&name, &etag).await,
        };
        deleted.map_err(ApiError::from)?;
        Ok(Response::new(()))
    }

    async fn simulate_plan(
        &self,
        request: Request<v1::SimulatePlanRequest>,
    ) -> Result<Response<v1::Timeline>, Status> {
        let terms = SearchTerms::of(&request);
        Ok(Response::new(self.simulate(request.into_inner(), &terms).await?))
    }

    async fn export_plan(
        &self,
        request: Request<v1::ExportPlanRequest>,
    ) -> Result<Response<v1::ExportPlanResponse>, Status> {
        Ok(Response::new(self.exported(request.into_inner()).await?))
    }

    async fn create_placement(
        &self,
        request: Request<v1::CreatePlacementRequest>,
    ) -> Result<Response<v1::Placement>, Status> {
        let terms = SearchTerms::of(&request);
        Ok(Response::new(self.bind(request.into_inner(), &terms).await?))
    }

    async fn get_placement(
        &self,
        request: Request<v1::GetPlacementRequest>,
    ) -> Result<Response<v1::Placement>, Status> {
        Ok(Response::new(self.placement(request.get_ref()).await?))
    }

    async fn list_placements(
        &self,
        request: Request<v1::ListPlacementsRequest>,
    ) -> Result<Response<v1::ListPlacementsResponse>, Status> {
        Ok(Response::new(self.placements(request.into_inner()).await?))
    }

    async fn delete_placement(
        &self,
        request: Request<v1::DeletePlacementRequest>,
    ) -> Result<Response<()>, Status> {
        let name = PlacementName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        self.store.delete_placement(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(()))
    }

    async fn list_frameworks(
        &self,
        request: Request<v1::ListFrameworksRequest>,
    ) -> Result<Response<v1::ListFrameworksResponse>, Status> {
        Ok(Response::new(export::all(request.get_ref()).map_err(ApiError::from)?))
    }

    async fn compare_plans(
        &self,
        request: Request<v1::ComparePlansRequest>,
    ) -> Result<Response<v1::ComparePlansResponse>, Status> {
        let terms = SearchTerms::of(&request);
        Ok(Response::new(self.compare(request.into_inner(), &terms).await?))
    }

    async fn create_report(
        &self,
        request: Request<v1::CreateReportRequest>,
    ) -> Result<Response<v1::Report>, Status> {
        Ok(Response::new(self.create(request.into_inner()).await?))
    }

    async fn get_report(
        &self,
        request: Request<v1::GetReportRequest>,
    ) -> Result<Response<v1::Report>, Status> {
        Ok(Response::new(self.report(&request.into_inner().name).await?))
    }

    async fn list_reports(
        &self,
        request: Request<v1::ListReportsRequest>,
    ) -> Result<Response<v1::ListReportsResponse>, Status> {
        Ok(Response::new(self.reports(request.into_inner()).await?))
    }

    async fn delete_report(&self, request: Request<v1::DeleteReportRequest>) -> Result<Response<()>, Status> {
        Ok(Response::new(Plans::delete_report(self, request.into_inner()).await?))
    }

    async fn list_prediction_errors(
        &self,
        request: Request<v1::ListPredictionErrorsRequest>,
    ) -> Result<Response<v1::ListPredictionErrorsResponse>, Status> {
        Ok(Response::new(self.prediction_errors(request.into_inner()).await?))
    }

    async fn list_prediction_pairs(
        &self,
        request: Request<v1::ListPredictionPairsRequest>,
    ) -> Result<Response<v1::ListPredictionPairsResponse>, Status> {
        Ok(Response::new(self.prediction_pairs(request.into_inner()).await?))
    }

    async fn start_trial(
        &self,
        request: Request<v1::StartTrialRequest>,
    ) -> Result<Response<Operation>, Status> {
        Ok(Response::new(self.validate(request.into_inner()).await?))
    }
}
