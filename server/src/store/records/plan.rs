//! Plans.

use std::collections::BTreeMap;

use jiff::Timestamp;
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::name::{ModelName, PlanName, ProfileName, RunName};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::report::Measured;
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::training::TrainingSpec;
use serde::Deserialize;

/// A stored plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRecord {
    /// Content-derived name.
    pub name: PlanName,
    /// What it is made of.
    pub content: Plan,
    /// When it was first stored.
    pub create_time: Timestamp,
}

/// A stored plan as lists show it: what tells plans apart.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRow {
    /// Content-derived name.
    pub name: PlanName,
    /// The profile behind the predictions.
    pub profile: ProfileName,
    pub model: ModelName,
    /// What is short of its content.
    pub summary: PlanSummary,
    /// What people wrote on it.
    pub labels: BTreeMap<String, String>,
    /// What its trainings showed.
    pub trained: TrainedSummary,
    /// The newest plan that names it among its alternatives or on its front.
    pub alternative_of: Option<PlanName>,
    /// When it was first stored.
    pub create_time: Timestamp,
}

/// A plan's content in short. The database reads it out of [`Plan`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PlanSummary {
    /// Settings that it is for.
    pub training: TrainingSpec,
    /// Kind of the devices that were profiled.
    pub device_kind: String,
    /// Predictor and version.
    pub predictor: String,
    /// Ledger of all bytes.
    pub ledger: Accounting,
    /// Solver and version.
    pub solver: String,
    /// What it was asked for, but for what restricted it.
    pub asked: Goal,
    /// Predicted seconds of one iteration; none where the profile has no times.
    pub iteration_seconds: Option<f64>,
    /// The real seconds are expected within this share of those; none where no one knows.
    pub iteration_margin: Option<f64>,
    /// Price of its devices for an hour; none without prices.
    pub hourly_price: Option<f64>,
    /// Predicted peak of the device with the highest peak memory.
    pub peak: u64,
    /// Its stages: `8-8d2-7t4`.
    pub partition: String,
    /// How many of them each device has.
    pub virtual_stages: u32,
    /// Its devices, those that are alike together, in the order of the stages.
    pub devices: Vec<DeviceGroupRecord>,
}

/// Devices that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DeviceGroupRecord {
    /// How many.
    pub count: u64,
    pub kind: String,
    /// Bytes that each allows.
    pub capacity: u64,
}

/// What trainings of a plan showed, in short.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrainedSummary {
    /// Trials that ended.
    pub trials: u32,
    /// Of these, the ones that measured something.
    pub succeeded: u32,
    /// Reported training runs.
    pub reports: u32,
    /// The newest trial that measured something.
    pub newest: Option<NewestTrial>,
    /// The newest report that tells how long an iteration took.
    pub reported: Option<NewestReport>,
}

/// A report that tells how long an iteration took.
#[derive(Debug, Clone, PartialEq)]
pub struct NewestReport {
    pub seconds: f64,
    /// The kind of the devices that it is of.
    pub device_kind: String,
}

/// A trial that measured something.
#[derive(Debug, Clone, PartialEq)]
pub struct NewestTrial {
    pub run: RunName,
    /// What it measured.
    pub measured: Measured,
    /// Others used its devices: its seconds are too long.
    pub contended: bool,
    /// Its ranks had fewer cores than threads.
    pub oversubscribed: bool,
}
