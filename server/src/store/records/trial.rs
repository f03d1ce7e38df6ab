//! What plans needed when they were trained, by trials and by their users' runs.

use jiff::Timestamp;
use loadmaster_proto::name::{PlanName, RunName};
use loadmaster_proto::plan::observation::{Measured, Observation};

use loadmaster_proto::plan::Plan;

use super::{NewRun, RunState};

/// A run to be queued that validates a plan.
#[derive(Debug, Clone)]
pub struct NewTrial {
    /// The plan.
    pub plan: PlanName,
    /// What trains it.
    pub run: NewRun,
}

/// One plan of a validation.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialRecord {
    /// Its run.
    pub run: RunName,
    /// The plan.
    pub plan: PlanName,
    /// What the plan is made of, predictions included.
    pub content: Plan,
    /// Where the run stands.
    pub state: RunState,
    /// The last thing that went wrong with it.
    pub failure: Option<String>,
    /// What it measured; none before it succeeded.
    pub measured: Option<Measured>,
    /// Others used its devices: its seconds are too long.
    pub contended: bool,
    /// Its ranks had fewer cores than threads.
    pub oversubscribed: bool,
}

/// What a user reported of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservationRecord {
    /// Its plan.
    pub plan: PlanName,
    /// The last part of its name.
    pub id: String,
    /// What was reported; its kind of device is stated.
    pub observation: Observation,
    /// When.
    pub create_time: Timestamp,
}

impl ObservationRecord {
    /// `plans/{plan}/observations/{observation}`.
    pub fn name(&self) -> String {
        format!("{}/observations/{}", self.plan, self.id)
    }
}

/// What was measured of a plan, once, by a trial or by a user.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredPlan {
    /// The plan.
    pub plan: PlanName,
    /// What it is made of, predictions included.
    pub content: Plan,
    /// Kind of device that it was measured on.
    pub device_kind: String,
    /// The figures.
    pub measured: Measured,
}
