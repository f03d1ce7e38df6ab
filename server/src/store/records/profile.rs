//! Models and profiles.

use std::collections::BTreeMap;

use jiff::Timestamp;
pub use loadmaster_proto::measure::run::Campaign;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::name::{ModelName, OperationName};
pub use loadmaster_proto::profile::ProfileSettings;
use sqlx::FromRow;

use super::RunCounts;
use crate::store::columns::Stored;
use crate::store::time::Time;

/// A model with what it was built from.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRecord {
    /// Content-derived name.
    pub name: ModelName,
    pub model: Model,
    /// What it was built from.
    pub source: ModelSource,
    /// When it was first stored.
    pub create_time: Timestamp,
}

/// Where a profile stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileState {
    /// Runs are queued or running.
    Running,
    /// Nothing is missing.
    Complete,
    /// Runs ended without all that was wanted.
    Incomplete,
    Cancelled,
}

/// A stored profile.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ProfileRecord {
    /// What was asked for.
    #[sqlx(json)]
    pub settings: ProfileSettings,
    /// Where it stands.
    #[sqlx(try_from = "Stored<String>")]
    pub state: ProfileState,
    /// What people wrote on it.
    #[sqlx(json)]
    pub labels: BTreeMap<String, String>,
    /// What the campaign's predictor lacks.
    pub missing: Vec<String>,
    /// Runs that were made for it, by state.
    #[sqlx(flatten)]
    pub runs: RunCounts,
    /// Those of them that repeat at a smaller micro-batch size what did not fit.
    #[sqlx(rename = "shrunk", try_from = "i64")]
    pub shrunk_runs: u32,
    /// Seconds that devices were held by them, added up over devices.
    pub device_seconds: f64,
    /// Runs that were made for other profiles and serve this one too.
    #[sqlx(try_from = "i64")]
    pub reused_runs: u32,
    /// Seconds that devices were held by those.
    pub saved_device_seconds: f64,
    /// Its newest operation.
    #[sqlx(rename = "operation_id", try_from = "Stored<String>")]
    pub operation: OperationName,
    /// When it was asked for.
    #[sqlx(try_from = "Time")]
    pub create_time: Timestamp,
    /// When its last run ended.
    #[sqlx(try_from = "Stored<Option<Time>>")]
    pub end_time: Option<Timestamp>,
}
