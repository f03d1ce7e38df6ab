//! `StartRecommendation`: a search that takes longer than a call, as an operation.
//!
//! The search runs in this process, under the same limits as the searches of calls, and reports its progress to the store every
//! second. A report of an operation that has ended, because it was cancelled, stops the search. A planner that stops ends its
//! searches; those of a planner that crashed are ended by the rounds of any planner.

use std::time::Duration;

use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::name::OperationName;
use loadmaster_proto::reason::Reason;
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::recommend_plan_response::Result as Answer;
use prost::Message as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::Status;
use tonic_types::StatusExt;

use super::Plans;
use super::search::SearchTerms;
use super::{cache, request};
use crate::rpc::error::ApiError;
use crate::rpc::limits::MAX_LONG_SEARCH_TIME;
use crate::rpc::messages::{Waiting, operation_message, request_key_of};
use crate::store::RESTARTED;
use crate::store::records::{OperationState, SearchRecord};

/// Time between two reports.
const REPORT: Duration = Duration::from_secs(1);

impl Plans {
    /// Begins a search that goes on after the call.
    pub(super) async fn start(
        &self,
        asked: v1::StartRecommendationRequest,
        terms: SearchTerms,
    ) -> Result<Operation, ApiError> {
        let v1::StartRecommendationRequest { request, request_id } = asked;
        let request = required("request", request)?;
        if request.validate_only {
            let why = "not valid for StartRecommendation, which always stores the plan. Use RecommendPlan.";
            return Err(Invalid::field("request.validate_only", why).into());
        }
        let key = request_key_of(&request_id, || cache::fingerprint(&request))?;
        let limit = request::question_within(&request, MAX_LONG_SEARCH_TIME)?.search_limit();
        let slot = self.searches.operation_slot()?;
        let search = SearchRecord { limit_seconds: limit, ..SearchRecord::default() };
        let (name, is_new) = self.store.create_search(&search, key.as_ref()).await?;
        if is_new {
            let terms = terms.of_operation();
            let task = LongSearch { plans: self.clone(), name: name.clone(), terms, limit, _slot: slot };
            self.dispatcher.spawn(task.run(request));
        }
        let record = self.store.get_operation(&name).await?;
        Ok(operation_message(&record, Waiting::default(), None, None))
    }
}

/// A search that is an operation.
struct LongSearch {
    plans: Plans,
    name: OperationName,
    terms: SearchTerms,
    /// Seconds that it may take.
    limit: f64,
    _slot: OwnedSemaphorePermit,
}

impl LongSearch {
    /// Searches to the end, or until the operation or this planner ends.
    async fn run(self, request: v1::RecommendPlanRequest) {
        let began = Instant::now();
        let mut search = Box::pin(self.plans.recommended(request, &self.terms));
        let mut ticks = tokio::time::interval(REPORT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stopping = self.plans.dispatcher.stopping();
        let found = loop {
            tokio::select! {
                found = &mut search => break found,
                () = stopping.cancelled() => {
                    let reason = Reason::PlannerRestarted;
                    return self.fail(reason.code().into(), reason.as_str(), RESTARTED).await;
                }
                _ = ticks.tick() => {}
            }
            match self.plans.store.report_search(&self.name, &self.record(began)).await {
                Ok(true) => {}
                // Dropping the search stops it.
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(operation.id = self.name.id(), %error, "could not store the progress of a search")
                }
            }
        };
        match found {
            Ok(response) => {
                let mut record = self.record(began);
                match response.result {
                    Some(Answer::Plan(plan)) => record.plan = plan.name.rsplit('/').next().map(str::to_owned),
                    Some(Answer::Infeasible(infeasible)) => {
                        record.infeasible = Some(infeasible.encode_to_vec())
                    }
                    None => {}
                }
                if let Err(error) = self.plans.store.finish_search(&self.name, &record).await {
                    tracing::warn!(operation.id = self.name.id(), %error, "could not store the result of a search");
                }
            }
            Err(error) => {
                let status = Status::from(error);
                let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
                self.fail(status.code().into(), &reason, status.message()).await;
            }
        }
    }

    fn record(&self, began: Instant) -> SearchRecord {
        let progress = self.terms.progress();
        SearchRecord {
            phase: progress.phase,
            states: progress.found.states,
            value: progress.found.value,
            bound: progress.found.bound,
            seconds: began.elapsed().as_secs_f64(),
            limit_seconds: self.limit,
            plan: None,
            infeasible: None,
        }
    }

    async fn fail(&self, code: i32, reason: &str, message: &str) {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        let failed = OperationState::Failed { code, reason, message };
        if let Err(error) = self.plans.store.finish_operation(&self.name, failed).await {
            tracing::warn!(operation.id = self.name.id(), %error, "could not store the error of a search");
        }
    }
}
