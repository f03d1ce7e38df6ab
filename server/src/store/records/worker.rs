//! Workers.

use jiff::Timestamp;
use loadmaster_proto::cluster::device::{Backend, Device, GpuLink};
use loadmaster_proto::measure::environment::ranks_at_once;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::name::{CommandName, RunName, WorkerName};
use sqlx::FromRow;

use super::RunNeed;
use crate::store::columns::{Stored, Time};

/// A worker as it introduces itself.
#[derive(Debug, Clone, PartialEq)]
pub struct NewWorker {
    /// Its name, the same after a restart.
    pub name: WorkerName,
    pub devices: Vec<Device>,
    /// What its driver knows of the links between its GPUs.
    pub links: Vec<GpuLink>,
    /// Version of the daemon.
    pub version: String,
    /// libtorch version of its rank program.
    pub libtorch_version: String,
    /// CUDA version of that libtorch, or empty.
    pub cuda_version: String,
    /// Threads that each of its ranks computes with; 0 where it did not say.
    pub threads: u32,
    /// Cores that its processes may use; 0 where it did not say.
    pub cores: u32,
    /// Host name.
    pub host: String,
    /// Random per process start.
    pub session_id: String,
    /// Random per stream: tells which one speaks for the worker.
    pub connection: String,
    /// Training commands that it offers.
    pub commands: Vec<CommandName>,
    /// Memory of its host that it offers beside its devices, bytes.
    pub host_memory: u64,
    /// How fast the copies of its CPU slots may be.
    pub copy_pace: CopyPace,
}

/// A worker as the store knows it.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct WorkerRecord {
    #[sqlx(rename = "id", try_from = "Stored<String>")]
    pub name: WorkerName,
    /// Whether it takes runs.
    #[sqlx(try_from = "Stored<String>")]
    pub state: WorkerState,
    #[sqlx(json)]
    pub devices: Vec<Device>,
    /// What its driver knows of the links between its GPUs.
    #[sqlx(json)]
    pub links: Vec<GpuLink>,
    /// Version of the daemon.
    pub version: String,
    /// libtorch version of its rank program.
    pub libtorch_version: String,
    /// CUDA version of that libtorch, or empty.
    pub cuda_version: String,
    /// Threads that each of its ranks computes with; 0 where it did not say.
    #[sqlx(try_from = "i32")]
    pub threads: u32,
    /// Cores that its processes may use; 0 where it did not say.
    #[sqlx(try_from = "i32")]
    pub cores: u32,
    /// Host name.
    pub host: String,
    /// Random per process start.
    pub session_id: String,
    /// Training commands that it offers.
    #[sqlx(try_from = "Stored<Vec<String>>")]
    pub commands: Vec<CommandName>,
    /// Memory of its host that it offers beside its devices, bytes.
    #[sqlx(rename = "host_memory_bytes", try_from = "i64")]
    pub host_memory: u64,
    /// How fast the copies of its CPU slots may be.
    #[sqlx(json)]
    pub copy_pace: CopyPace,
    /// First contact.
    #[sqlx(try_from = "Time")]
    pub create_time: Timestamp,
    /// Last contact.
    #[sqlx(try_from = "Time")]
    pub heartbeat_time: Timestamp,
    /// Runs that it holds.
    #[sqlx(try_from = "Stored<Vec<String>>")]
    pub runs: Vec<RunName>,
}

impl WorkerRecord {
    /// Runs of one device of this kind that it makes at once.
    pub fn runs_at_once(&self, kind: &str) -> u32 {
        let (slots, others): (Vec<&Device>, Vec<&Device>) = self
            .devices
            .iter()
            .filter(|device| device.kind == kind)
            .partition(|device| device.backend == Backend::Cpu);
        let most = ranks_at_once(self.cores, self.threads).map_or(usize::MAX, |most| most as usize);
        u32::try_from(slots.len().min(most) + others.len()).unwrap_or(u32::MAX)
    }
}

/// The connected worker that comes nearest to what a run needs, even if it is busy or cordoned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearestWorker {
    /// Its name.
    pub worker: WorkerName,
    /// Bytes of each of its devices of the kind, the largest first.
    pub capacities: Vec<u64>,
    /// Whether it offers the command, if one is needed.
    pub offers_command: bool,
    /// Memory of its host that it offers, bytes.
    pub host_memory: u64,
}

impl NearestWorker {
    /// Devices with at least so many bytes.
    pub fn devices_of(&self, capacity: u64) -> u32 {
        let count = self.capacities.iter().filter(|&&of| of >= capacity).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Whether it could hold the run, were it idle.
    pub fn holds(&self, need: &RunNeed) -> bool {
        self.offers_command
            && self.devices_of(need.min_capacity) >= need.device_count
            && self.host_memory >= need.host_memory
    }
}

/// Whether a worker takes runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// Connected and taking runs.
    Alive,
    /// Ends what it holds, takes no more.
    Cordoned,
    /// Not heard of for longer than a lease.
    Lost,
    /// Said goodbye.
    Gone,
}
