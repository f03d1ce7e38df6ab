//! `ValidatePlan`.

use loadmaster_proto::name::PlanName;
use loadmaster_proto::run::{RunSpec, Work};
use loadmaster_proto::stage::Partitioning;
use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;

use super::Plans;
use crate::rpc::error::ApiError;
use crate::rpc::operations::operation_message;
use crate::rpc::validate::{count_or, deadline_seconds, request_key};
use crate::store::records::NewRun;

/// Measured iterations of a trial where the caller names none.
const DEFAULT_TRIAL_ITERATIONS: u32 = 2;

impl Plans {
    pub(super) async fn validate(&self, mut request: v1::ValidatePlanRequest) -> Result<Operation, ApiError> {
        let id = std::mem::take(&mut request.request_id);
        let key = request_key(&id, &request)?;
        let name = PlanName::parse("name", &request.name)?;
        let iterations =
            count_or("iterations", request.iterations, DEFAULT_TRIAL_ITERATIONS, RunSpec::MAX_ITERATIONS)?;
        let deadline_seconds = deadline_seconds(request.run_deadline_seconds)?;
        let plan = self.store.get_plan(&name).await?.content;
        // A plan made from a command's measurements is validated by that command.
        let profile = self.store.get_profile(&plan.profile).await?;
        // Says of an opaque chain that it cannot be trained, before a run is queued.
        self.store.get_model(&plan.model).await?;
        let configs = plan.stages.iter().map(|stage| stage.config).collect();
        let partitioning = Partitioning::new(configs)?;
        let run = NewRun {
            training: plan.training,
            device_kind: plan.device_kind,
            device_count: partitioning.stages().iter().map(|stage| stage.degree).sum(),
            work: Work::Partitioning(partitioning),
            iterations,
            command: profile.settings.command,
            work_key: None,
            smallest_micro_batch_size: None,
            held_out: false,
            min_capacity: plan.stages.iter().map(|stage| stage.capacity).max().unwrap_or(0),
            deadline_seconds,
        };
        let operation = self.store.create_validation(&name, run, key).await?;
        let record = self.store.get_operation(&operation).await?;
        Ok(operation_message(&record, String::new(), None))
    }
}
