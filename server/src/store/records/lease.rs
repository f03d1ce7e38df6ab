//! What the queue and its leases speak of.

use std::time::Duration;

use loadmaster_proto::measure::run::Task;
use loadmaster_proto::model::Model;
use loadmaster_proto::name::{RunName, WorkerName};
use sqlx::FromRow;
use sqlx::types::Json;

use super::work::WorkRow;
use crate::store::columns::Stored;

/// A free device of a worker, as the queue needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeDevice {
    pub kind: String,
    /// Bytes.
    pub capacity: u64,
}

/// A run that was just claimed.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct Claim {
    #[sqlx(rename = "id", try_from = "Stored<String>")]
    pub run: RunName,
    /// The fence.
    pub lease_token: i64,
    /// What to do, model included.
    #[sqlx(flatten, try_from = "WorkRow<Json<Model>>")]
    pub task: Task,
    /// Kind of the devices to take.
    pub device_kind: String,
    /// Devices to take.
    #[sqlx(try_from = "i32")]
    pub device_count: u32,
    /// Least capacity of each, bytes.
    #[sqlx(rename = "min_capacity_bytes", try_from = "i64")]
    pub min_capacity: u64,
    /// Hard limit of this attempt, seconds.
    #[sqlx(try_from = "i32")]
    pub deadline_seconds: u32,
}

/// A worker that was heard of.
#[derive(Debug, Clone, Copy)]
pub struct Heartbeat<'a> {
    /// Which.
    pub worker: &'a WorkerName,
    /// The stream that it came from.
    pub connection: &'a str,
    /// How long ago.
    pub age: Duration,
}

/// What a run asks for, as its result is held against it.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct AskedRun {
    /// What to do, model included.
    #[sqlx(flatten, try_from = "WorkRow<Json<Model>>")]
    pub task: Task,
    /// Kind of the devices to take.
    pub device_kind: String,
    /// Hard limit of an attempt, seconds.
    #[sqlx(try_from = "i32")]
    pub deadline_seconds: u32,
}

/// A lease as a worker claims to hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldLease {
    pub run: RunName,
    /// The fence.
    pub lease_token: i64,
    /// Share of the work done.
    pub progress: f64,
    /// What it does now.
    pub phase: String,
}

/// What became of a lease that a worker asked to renew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    Renewed,
    /// The operation was cancelled: stop the run.
    Cancelled,
    /// Not this worker's any more, or past its deadline: stop the run.
    Lost,
}

/// Whether a fenced write changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Fenced {
    /// Stored; or the same write with the same fence had been stored before.
    Applied,
    /// The fence is stale: nothing changed.
    Stale,
}
