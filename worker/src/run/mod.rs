//! A run, as everybody in the daemon speaks of it: what is to be done, how far it is, what became of it.

pub(crate) mod job;
pub(crate) mod outcome;

use loadmaster_proto::phase::Phase;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use job::Claim;

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
