//! Watching the ranks of a run until its outcome is known.

use std::future::Future;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use loadmaster_proto::measure::failure::{FailureKind, RunFailure};
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::assignment::RankId;
use super::liveness::Liveness;
use super::rank_process::Heard;
use super::root_cause::RankEnd;
use crate::run::Contact;

/// How long the other ranks may take to end after one has failed.
const GRACE: Duration = Duration::from_secs(2);
/// The same while ranks only lost a neighbour: the one that is to blame is still ending.
const GRACE_WITHOUT_CAUSE: Duration = Duration::from_secs(10);
/// Between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(200);

/// What is watched, and for how long.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    pub(super) lives: Liveness,
    pub(super) heard: mpsc::Receiver<Heard>,
    /// Hard limit of the run.
    pub(super) deadline: Duration,
    /// A rank that says nothing for this long hangs.
    pub(super) hang_timeout: Duration,
    pub(super) contact: &'a Contact,
}

/// Why it ended.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Every rank ended, or enough of them to know the outcome.
    Ends,
    /// The daemon was told to stop the run.
    Stopped,
    /// A rank hangs, or time is up.
    TooLong(RunFailure),
}

impl Watch<'_> {
    /// Watches the ranks until the outcome is known, and collects their ends.
    pub(super) async fn until_end(
        mut self,
        ranks: &mut FuturesUnordered<impl Future<Output = RankEnd>>,
        ends: &mut Vec<RankEnd>,
    ) -> Verdict {
        let deadline = Instant::now() + self.deadline;
        let mut give_up_at: Option<Instant> = None;
        let mut report_at = Instant::now();
        loop {
            let hung_at = self.lives.hung_at(self.hang_timeout);
            let wake = [Some(deadline), hung_at, give_up_at].into_iter().flatten().min().unwrap_or(deadline);
            select! {
                () = self.contact.stop.cancelled() => return Verdict::Stopped,
                Some(sign) = self.heard.recv() => {
                    self.lives.heard(sign, Instant::now());
                    if report_at <= Instant::now() {
                        report_at = Instant::now() + PROGRESS;
                        let (fraction, phase) = self.lives.progress();
                        self.contact.report(fraction, phase);
                    }
                }
                end = ranks.next() => {
                    let Some(end) = end else { return Verdict::Ends };
                    self.lives.ended(end.rank, end.succeeded());
                    if !end.succeeded() {
                        let grace = if end.lost_neighbour() { GRACE_WITHOUT_CAUSE } else { GRACE };
                        let until = Instant::now() + grace;
                        give_up_at = Some(give_up_at.map_or(until, |earlier| earlier.min(until)));
                    }
                    ends.push(end);
                }
                () = sleep_until(wake) => {
                    let now = Instant::now();
                    if give_up_at.is_some_and(|at| at <= now) {
                        return Verdict::Ends;
                    }
                    if deadline <= now {
                        return Verdict::TooLong(self.past_deadline());
                    }
                    if let Some((rank, last)) = self.lives.quietest()
                        && last + self.hang_timeout <= now
                    {
                        return Verdict::TooLong(self.hung(rank));
                    }
                }
            }
        }
    }

    fn hung(&self, rank: RankId) -> RunFailure {
        RunFailure {
            kind: FailureKind::Hung,
            message: format!(
                "the rank of {rank} reported nothing for {} s (last report: {}) and was killed",
                self.hang_timeout.as_secs_f64(),
                self.lives.of(rank)
            ),
            stage_index: Some(rank.stage_index),
        }
    }

    fn past_deadline(&self) -> RunFailure {
        let (fraction, phase) = self.lives.progress();
        RunFailure {
            kind: FailureKind::Hung,
            message: format!(
                "the run reached its deadline of {} s at {:.0}%, {}, and was killed",
                self.deadline.as_secs_f64(),
                fraction * 100.0,
                phase.as_str()
            ),
            stage_index: None,
        }
    }
}
