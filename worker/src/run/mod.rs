//! A run, as everybody in the daemon speaks of it: the lease that it comes with, what is to be done, how far it is, what became
//! of it.

use std::fmt;
use std::time::Duration;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::failure::{FailureKind, OutOfMemory, Phase, RunFailure};
use loadmaster_proto::measure::links::LinkMeasurement;
use loadmaster_proto::measure::measurement::Measurement;
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

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// With a measurement per rank, in order of the stages and their devices.
    Measured(Vec<Measurement>),
    /// With how fast the devices exchange bytes.
    Links(Box<LinkMeasurement>),
    /// Without.
    Failed(RunFailure),
    /// The daemon was told to stop it.
    Stopped,
}

/// This worker cannot do it now: another one, or this one later, can.
pub(crate) fn handed_back(message: impl Into<String>) -> RunFailure {
    RunFailure { kind: FailureKind::HandedBack, message: message.into(), stage_index: None }
}

/// Nothing of it was done, and that counts as an attempt.
pub(crate) fn not_started(message: impl Into<String>) -> RunFailure {
    RunFailure { kind: FailureKind::NotStarted, message: message.into(), stage_index: None }
}

/// Where memory was lacking, and how much, for messages. What helps a device is said of the run's reason; the pool of
/// the host is as large as the plan says, whatever the size of the micro-batches.
pub(crate) fn describe(oom: &OutOfMemory) -> String {
    let remedy = match oom.ledger {
        Accounting::Host => ". Use a plan with more CPU (host) memory, or with less offloading.",
        Accounting::Allocated | Accounting::Reserved | Accounting::Device => "",
    };
    let layer = oom.layer.map(|layer| format!(" of layer {layer}")).unwrap_or_default();
    format!(
        "in {}{layer}: {} requested while {} of {} were in use ({} memory){remedy}",
        oom.phase.as_str(),
        oom.asked,
        oom.held,
        oom.allowed,
        oom.ledger.as_str()
    )
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::measure::failure::Phase;

    use super::*;

    #[test]
    fn a_pool_of_the_host_that_is_too_small_comes_with_its_bytes_and_remedy() {
        let lack = OutOfMemory {
            asked: Bytes(3 << 20),
            held: Bytes(6 << 20),
            allowed: Bytes(8 << 20),
            ledger: Accounting::Host,
            phase: Phase::Forward,
            layer: Some(2),
        };
        assert_eq!(
            describe(&lack),
            "in forward of layer 2: 3.00 MiB requested while 6.00 MiB of 8.00 MiB were in use (host memory). Use a plan \
             with more CPU (host) memory, or with less offloading."
        );
        assert!(
            describe(&OutOfMemory { ledger: Accounting::Reserved, ..lack }).ends_with("(reserved memory)")
        );
    }
}
