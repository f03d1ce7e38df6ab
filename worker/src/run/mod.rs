//! A run, as everybody in the daemon speaks of it: the lease that it comes with, what is to be done, how far it is, what became of it.

pub(crate) mod outcome;

use std::fmt;
use std::time::Duration;

use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::measure::run::Task;
use loadmaster_proto::name::RunName;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Progress of a run.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) claim: Claim,
    /// Share of its work done; the mean of its ranks'.
    pub(crate) fraction: f64,
    /// What its slowest rank does.
    pub(crate) phase: Phase,
}

/// What the daemon and the work on a run have of each other while it lasts.
#[derive(Debug)]
pub(crate) struct Contact {
    pub(crate) claim: Claim,
    /// Ends the run early.
    pub(crate) stop: CancellationToken,
    pub(crate) progress: mpsc::Sender<Progress>,
}

impl Contact {
    /// Reports progress, unless the daemon has not looked at earlier reports yet: the next one will do as well.
    pub(crate) fn report(&self, fraction: f64, phase: Phase) {
        let _ = self.progress.try_send(Progress { claim: self.claim.clone(), fraction, phase });
    }
}

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
