//! Results and failures that the planner has not acknowledged yet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use loadmaster_proto::wire::{v1, worker_v1};
use worker_v1::worker_message::Message as ToPlanner;

use crate::run::Claim;

/// A report that was not acknowledged is resent after this time.
const RESEND: Duration = Duration::from_secs(10);
/// Reports kept. With more, refused leases are answered but once; results are always kept, and there
/// are no more of them than the planner has given leases.
pub(super) const MAX_REPORTS: usize = 256;

/// Reports by claim, each with the time at which it is to be resent.
#[derive(Debug, Default)]
pub(super) struct Reports(BTreeMap<Claim, Report>);

#[derive(Debug)]
struct Report {
    message: ToPlanner,
    resend_at: Instant,
}

impl Report {
    fn sent(&mut self, now: Instant) -> ToPlanner {
        self.resend_at = now + RESEND;
        self.message.clone()
    }
}

impl Reports {
    /// Keeps a report that was just sent, or would have been if there were a connection.
    pub(super) fn keep(&mut self, claim: Claim, message: ToPlanner, now: Instant) {
        let refused_lease = matches!(
            &message,
            ToPlanner::Failed(worker_v1::RunFailed { failure: Some(failure), .. })
                if failure.kind == i32::from(v1::run_failure::Kind::HandedBack)
        );
        // What is dropped here costs the planner a lease's time, never a result.
        if self.0.len() < MAX_REPORTS || !refused_lease {
            self.0.insert(claim, Report { message, resend_at: now + RESEND });
        }
    }

    /// Forgets a report; false if there was none.
    pub(super) fn acknowledged(&mut self, claim: &Claim) -> bool {
        self.0.remove(claim).is_some()
    }

    /// The report of a claim, to be resent.
    pub(super) fn again(&mut self, claim: &Claim, now: Instant) -> Option<ToPlanner> {
        self.0.get_mut(claim).map(|report| report.sent(now))
    }

    /// All reports, to be sent over a new connection.
    pub(super) fn all(&mut self, now: Instant) -> impl Iterator<Item = ToPlanner> {
        self.0.values_mut().map(move |report| report.sent(now))
    }

    /// Those whose time has come.
    pub(super) fn overdue(&mut self, now: Instant) -> impl Iterator<Item = ToPlanner> {
        self.0.values_mut().filter(move |report| report.resend_at <= now).map(move |report| report.sent(now))
    }

    /// When the next one's time comes.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|report| report.resend_at).min()
    }

    /// Whose reports they are.
    pub(super) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.0.keys()
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
