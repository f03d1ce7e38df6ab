//! Says in the log what ended and how: once for each operation, by the planner that ended it.

use loadmaster_proto::name::OperationName;

use super::records::{OperationRecord, OperationState, OperationTarget, ProfileState};
use super::{Result, Store};

impl Store {
    /// Logs an operation that has just ended. That it cannot be read again is no reason to fail.
    pub(super) async fn tell_ended(&self, name: &OperationName) {
        match self.ending(name).await {
            Ok((record, outcome)) => tell(&record, outcome),
            Err(error) => tracing::info!(operation.id = name.id(), %error, "operation ended"),
        }
    }

    async fn ending(&self, name: &OperationName) -> Result<(OperationRecord, &'static str)> {
        let record = self.get_operation(name).await?;
        let outcome = match (&record.state, &record.target) {
            (OperationState::Succeeded, OperationTarget::Profile(profile)) => {
                match self.get_profile(profile).await?.state {
                    ProfileState::Incomplete => "incomplete",
                    ProfileState::Complete | ProfileState::Running | ProfileState::Cancelled => "succeeded",
                }
            }
            (OperationState::Succeeded, OperationTarget::Plan(_) | OperationTarget::Links) => "succeeded",
            (OperationState::Failed { .. }, _) => "failed",
            (OperationState::Cancelled, _) => "cancelled",
            (OperationState::Running, _) => "running",
        };
        Ok((record, outcome))
    }
}

fn tell(record: &OperationRecord, outcome: &str) {
    let (kind, target) = match &record.target {
        OperationTarget::Profile(name) => ("profile", name.to_string()),
        OperationTarget::Plan(name) => ("trial", name.to_string()),
        OperationTarget::Links => ("links", String::new()),
    };
    let (reason, why) = match &record.state {
        OperationState::Failed { reason, message, .. } => (Some(reason), Some(message)),
        OperationState::Running | OperationState::Succeeded | OperationState::Cancelled => (None, None),
    };
    let end = record.end_time.unwrap_or(record.create_time);
    tracing::info!(
        operation.id = record.name.id(),
        kind,
        target,
        outcome,
        reason,
        why,
        seconds = end.duration_since(record.create_time).as_secs_f64(),
        runs = record.runs.total(),
        succeeded = record.runs.succeeded,
        "operation ended"
    );
}
