//! `google.longrunning.Operations`: the standard service, over operations of the store.

use std::sync::Arc;
use std::time::Duration;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::name::{OperationName, PlanName};
use loadmaster_proto::reason::{DOMAIN, Reason};
use loadmaster_proto::wire::google::rpc;
use loadmaster_proto::wire::longrunning::operations_server::Operations as OperationsService;
use loadmaster_proto::wire::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
    ListOperationsResponse, Operation, WaitOperationRequest, operation,
};
use loadmaster_proto::wire::v1::recommend_plan_response::Result as Answer;
use loadmaster_proto::wire::{field, v1};
use prost::Message;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::error::{ApiError, help};
use super::limits::MAX_OPERATION_WAIT;
use super::messages::{Waiting, operation_message, pack};
use super::page::Listing;
use super::plan::Plans;
use super::profile::Profiles;
use crate::dispatch::Dispatcher;
use crate::store::records::{OperationRecord, OperationState, OperationTarget, RunNeed};
use crate::store::{Store, StoreError, fields};

/// Time between two looks at a waited-for operation.
const WAIT_STEP: Duration = Duration::from_millis(200);

/// Shows and cancels operations.
#[derive(Debug, Clone)]
pub(super) struct Operations {
    pub(super) store: Store,
    pub(super) dispatcher: Dispatcher,
    pub(super) profiles: Profiles,
    pub(super) plans: Plans,
    /// Waiting is cheap but lasts: waiters must not use up the calls that the planner answers at once,
    /// or no one could reach it.
    pub(super) waiters: Arc<Semaphore>,
}

impl Operations {
    async fn get(&self, name: &str) -> Result<(OperationName, OperationRecord), ApiError> {
        let name = OperationName::parse("name", name)?;
        let record = self.store.get_operation(&name).await?;
        Ok((name, record))
    }

    async fn message(&self, record: &OperationRecord) -> Result<Operation, ApiError> {
        let trials = match &record.target {
            OperationTarget::Profile(_)
            | OperationTarget::Links
            | OperationTarget::Purge(_)
            | OperationTarget::Search(_) => None,
            OperationTarget::Plan(_) => Some(self.plans.trials(&record.name).await?),
        };
        let best = trials.as_ref().and_then(|trials| trials.best.as_ref());
        let result = match &record.state {
            OperationState::Succeeded => match self.response(record, best).await {
                // The plan of a search may be deleted before its operation.
                Err(ApiError::Store(StoreError::NotFound { what })) => {
                    let message = format!("{what} was deleted");
                    let reason = Reason::NotFound;
                    let error = error(reason.code().into(), reason.as_str(), &message);
                    Some(operation::Result::Error(error))
                }
                response => Some(operation::Result::Response(response?)),
            },
            _ => failure(record),
        };
        let waiting = match record.state {
            OperationState::Running => self.waiting(record).await?,
            _ => Waiting::default(),
        };
        Ok(operation_message(record, waiting, trials.map(|trials| trials.message), result))
    }

    /// The profile, the plan that measured best, the measured links, or the result of a purge.
    async fn response(
        &self,
        record: &OperationRecord,
        best: Option<&PlanName>,
    ) -> Result<prost_types::Any, ApiError> {
        match &record.target {
            OperationTarget::Profile(profile) => Ok(pack(&self.profiles.whole(profile).await?)),
            OperationTarget::Plan(plan) => Ok(pack(&self.plans.whole(best.unwrap_or(plan)).await?)),
            OperationTarget::Search(search) => {
                let result = match search.infeasible() {
                    Some(infeasible) => Answer::Infeasible(infeasible),
                    None => {
                        let plan = search.plan_name(&record.name)?;
                        Answer::Plan(self.plans.whole(&plan).await?)
                    }
                };
                Ok(pack(&v1::RecommendPlanResponse { result: Some(result) }))
            }
            OperationTarget::Links => {
                let measured = self.store.operation_link_measurements(&record.name).await?;
                Ok(pack(&super::cluster::measured(&measured)))
            }
            OperationTarget::Purge(purge) => {
                let result = self.store.purge_result(&record.name).await?;
                Ok(pack(&super::history::response(purge, result)))
            }
        }
    }

    /// Why nothing moves, if nothing does: the commonest question about a waiting operation.
    async fn waiting(&self, record: &OperationRecord) -> Result<Waiting, ApiError> {
        if record.runs.running > 0 || record.runs.queued == 0 {
            return Ok(Waiting::default());
        }
        let unplaceable = self.store.unplaceable_run(&record.name).await?;
        let has_no_worker = unplaceable.is_some();
        let message = match unplaceable {
            Some(need) => format!(
                "no connected worker has {} device{} of kind {} with at least {} each{}. Start such a worker.",
                need.device_count,
                if need.device_count == 1 { "" } else { "s" },
                need.device_kind,
                Bytes(need.min_capacity),
                besides(&need),
            ),
            None => "waiting for free devices".to_owned(),
        };
        Ok(Waiting { message, has_no_worker })
    }
}

/// What a run needs of a worker besides devices.
fn besides(need: &RunNeed) -> String {
    let command = need.command.as_ref().map(|name| format!("the custom profiler {name}"));
    let memory = Some(need.host_memory).filter(|&bytes| bytes > 0);
    let memory = memory.map(|bytes| format!("{} of CPU (host) memory", Bytes(bytes)));
    let offers: Vec<String> = command.into_iter().chain(memory).collect();
    if offers.is_empty() { String::new() } else { format!(" and offers {}", offers.join(" and ")) }
}

/// Why it ended without a response, if it did.
fn failure(record: &OperationRecord) -> Option<operation::Result> {
    match &record.state {
        OperationState::Running | OperationState::Succeeded => None,
        OperationState::Failed { code, reason, message } => {
            Some(operation::Result::Error(error(*code, reason, message)))
        }
        OperationState::Cancelled => Some(operation::Result::Error(error(
            Reason::Cancelled.code().into(),
            Reason::Cancelled.as_str(),
            "cancelled",
        ))),
    }
}

fn error(code: i32, reason: &str, message: &str) -> rpc::Status {
    let info = tonic_types::pb::ErrorInfo {
        reason: reason.to_owned(),
        domain: DOMAIN.to_owned(),
        metadata: Default::default(),
    };
    let mut details = vec![any("ErrorInfo", &info)];
    if let Some(reason) = Reason::of_name(reason) {
        let (description, url) = help(reason);
        let links = vec![tonic_types::pb::help::Link { description, url }];
        details.push(any("Help", &tonic_types::pb::Help { links }));
    }
    rpc::Status { code, message: message.to_owned(), details }
}

/// A detail of an error, `google.rpc.{name}`.
fn any(name: &str, detail: &impl Message) -> prost_types::Any {
    prost_types::Any {
        type_url: format!("type.googleapis.com/google.rpc.{name}"),
        value: detail.encode_to_vec(),
    }
}

#[tonic::async_trait]
impl OperationsService for Operations {
    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let (_, record) = self.get(&request.into_inner().name).await?;
        Ok(Response::new(self.message(&record).await?))
    }

    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        let request = request.into_inner();
        let arguments = [request.name.as_str()];
        let asked = (request.filter.as_str(), "");
        let listing =
            Listing::of("ListOperations", &arguments, fields::OPERATIONS, asked).map_err(ApiError::from)?;
        let page = listing.request(request.page_size, &request.page_token).map_err(ApiError::from)?;
        let page = self.store.list_operations(listing.query(), &page).await.map_err(ApiError::from)?;
        // Without responses: a page of them would be large; GetOperation has them.
        let (operations, next_page_token) = listing
            .answer(page, |record| operation_message(record, Waiting::default(), None, failure(record)));
        Ok(Response::new(ListOperationsResponse {
            operations,
            next_page_token,
            ..ListOperationsResponse::default()
        }))
    }

    async fn delete_operation(
        &self,
        request: Request<DeleteOperationRequest>,
    ) -> Result<Response<()>, Status> {
        let name = OperationName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        self.store.delete_operation(&name).await.map_err(ApiError::from)?;
        Ok(Response::new(()))
    }

    async fn cancel_operation(
        &self,
        request: Request<CancelOperationRequest>,
    ) -> Result<Response<()>, Status> {
        let name = OperationName::parse("name", &request.into_inner().name).map_err(ApiError::from)?;
        self.store.cancel_operation(&name).await.map_err(ApiError::from)?;
        self.dispatcher.wake();
        Ok(Response::new(()))
    }

    async fn wait_operation(
        &self,
        request: Request<WaitOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let request = request.into_inner();
        let asked: Option<Duration> = field("timeout", request.timeout).map_err(ApiError::from)?;
        let wait = asked.unwrap_or(MAX_OPERATION_WAIT).min(MAX_OPERATION_WAIT);
        let _waiter = self.waiters.try_acquire().map_err(|_| ApiError::TooManyWaiters)?;
        let until = Instant::now() + wait;
        loop {
            let (_, record) = self.get(&request.name).await?;
            if record.state != OperationState::Running || Instant::now() >= until {
                return Ok(Response::new(self.message(&record).await?));
            }
            // Another planner may go on answering; this one must not be held up.
            if self.dispatcher.is_stopping() {
                return Err(ApiError::Stopping.into());
            }
            tokio::time::sleep_until(until.min(Instant::now() + WAIT_STEP)).await;
        }
    }
}
