//! What the planner has leased to this worker.

use std::fmt;
use std::time::Duration;

use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::run::Task;
use loadmaster_proto::name::RunName;

/// A run and the fence of one claim of it. Every message about a run names both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    pub(crate) run: RunName,
    /// The fence.
    pub(crate) token: i64,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (lease {})", self.run, self.token)
    }
}

/// What a run may use, and for how long.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) claim: Claim,
    /// One device per rank, in order of the stages.
    pub(crate) devices: Vec<Device>,
    /// Hard limit.
    pub(crate) deadline: Duration,
}

/// A lease and what to do with it: any task, or one kind of it.
#[derive(Debug)]
pub(crate) struct Job<T = Task> {
    pub(crate) lease: Lease,
    pub(crate) task: T,
}
