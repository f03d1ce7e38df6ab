//! Clusters, and what was measured of workers' links.

use jiff::Timestamp;
use loadmaster_proto::cluster::{Cluster, ClusterSource, DeviceKind, Tier};
use loadmaster_proto::measure::links::{LinkMeasurement, LinkWork};
use loadmaster_proto::name::{ClusterName, RunName, WorkerName};
use loadmaster_proto::warning::Warning;
use serde::Deserialize;
use sqlx::FromRow;

use crate::store::columns::{Stored, Time};

/// A stored cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterRecord {
    pub name: ClusterName,
    /// Nodes, devices and links.
    pub cluster: Cluster,
    /// [`Cluster::id`] of its content.
    pub digest: String,
    /// When it was first stored.
    pub create_time: Timestamp,
    /// When its content last changed.
    pub update_time: Timestamp,
}

/// A stored cluster as lists show it.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ClusterRow {
    #[sqlx(rename = "id", try_from = "Stored<String>")]
    pub name: ClusterName,
    /// What is short of it.
    #[sqlx(json)]
    pub summary: ClusterSummary,
    /// Number of its nodes.
    #[sqlx(try_from = "i32")]
    pub node_count: u32,
    /// Number of its devices.
    #[sqlx(try_from = "i32")]
    pub device_count: u32,
    /// [`Cluster::id`] of its content.
    pub digest: String,
    /// When it was first stored.
    #[sqlx(try_from = "Time")]
    pub create_time: Timestamp,
    /// When its content last changed.
    #[sqlx(try_from = "Time")]
    pub update_time: Timestamp,
}

/// A cluster without its nodes and domains.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ClusterSummary {
    /// Kinds of its devices.
    pub kinds: Vec<DeviceKind>,
    /// Levels of its network.
    #[serde(default)]
    pub tiers: Vec<Tier>,
    /// Where it comes from.
    pub source: ClusterSource,
    /// What looked wrong in it.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

/// A run that measures the links of one worker's devices, to be queued.
#[derive(Debug, Clone, PartialEq)]
pub struct NewLinkRun {
    /// The only worker that may claim it.
    pub worker: WorkerName,
    /// What to exchange.
    pub work: LinkWork,
    pub device_kind: String,
    /// Least capacity of each, bytes.
    pub min_capacity: u64,
    /// Hard limit of one attempt, seconds.
    pub deadline_seconds: u32,
}

/// What a run measured of the links of a worker's devices.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct LinkRecord {
    /// The run that measured.
    #[sqlx(rename = "run_id", try_from = "Stored<String>")]
    pub run: RunName,
    /// Whose devices.
    #[sqlx(rename = "worker_id", try_from = "Stored<String>")]
    pub worker: WorkerName,
    /// Pairs, groups and points.
    #[sqlx(json)]
    pub measurement: LinkMeasurement,
    /// When it was stored.
    #[sqlx(try_from = "Time")]
    pub create_time: Timestamp,
}
