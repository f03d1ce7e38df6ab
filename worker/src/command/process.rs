//! The processes of a command: started, their lines of progress read, and gone before anybody looks at the results.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use loadmaster_proto::measure::failure::Phase;
use tokio::io::AsyncRead;
use tokio::process::{Child, Command};
use tokio::select;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tracing::debug;

use super::descendants::Descendants;
use super::rank_file;
use crate::process::group::Group;
use crate::process::tail::{LAST_WORDS, Tail};
use crate::run::Contact;

/// Between two looks for a rank that ran out of memory.
const LOOK: Duration = Duration::from_secs(1);
/// How long the others may go on after that.
const GRACE: Duration = Duration::from_secs(10);
/// Lines of progress that wait to be looked at.
const LINES: usize = 16;

/// A command at work.
#[derive(Debug)]
pub(super) struct Work<'a> {
    /// Where its ranks' files will be.
    pub(super) results: &'a Path,
    /// How many of them.
    pub(super) ranks: usize,
    pub(super) deadline: Duration,
    pub(super) contact: &'a Contact,
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) how: How,
    /// The end of what it wrote to standard error, or else to standard output.
    pub(super) tail: String,
    /// The kernel's out-of-memory killer was at work meanwhile.
    pub(super) kernel_killed: bool,
}

/// What ended it.
#[derive(Debug)]
pub(super) enum How {
    /// It never began.
    NotSpawned(String),
    /// By itself.
    Exited(ExitStatus),
    /// The daemon was told to stop it.
    Stopped,
    /// Time was up.
    Deadline { seconds: f64, fraction: f64 },
    /// A rank had run out of memory, and the rest did not end.
    OutOfMemory,
}

impl Work<'_> {
    /// Starts the command and waits until no process of it is left.
    pub(super) async fn until_gone(&self, command: Command, mut offspring: Descendants) -> End {
        let mut group = Group::new();
        let mut child = match group.start(command) {
            Ok(child) => child,
            Err(error) => {
                let how = How::NotSpawned(error.to_string());
                return End { how, tail: String::new(), kernel_killed: false };
            }
        };
        let (sender, lines) = mpsc::channel(LINES);
        let stdout = tokio::spawn(listen(child.stdout.take(), sender));
        let stderr = tokio::spawn(keep_tail(child.stderr.take()));
        let how = self.until_end(&mut child, lines).await;
        // Before its parent dies: afterwards one that hides its environment would not be found.
        offspring.kill(child.id());
        group.kill();
        // An error says that it was waited for already.
        let _ = child.wait().await;
        group.gone().await;
        offspring.gone().await;
        let tail = last_words(stdout, stderr).await;
        End { how, tail, kernel_killed: group.kernel_killed() }
    }

    /// Passes on its progress until it ends or must end.
    async fn until_end(&self, child: &mut Child, mut lines: mpsc::Receiver<(f64, Phase)>) -> How {
        let until = Instant::now() + self.deadline;
        let mut give_up_at: Option<Instant> = None;
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut done = 0.0;
        loop {
            select! {
                () = self.contact.stop.cancelled() => return How::Stopped,
                status = child.wait() => return match status {
                    Ok(status) => How::Exited(status),
                    Err(error) => How::NotSpawned(format!("its exit status is unknown: {error}")),
                },
                Some((fraction, phase)) = lines.recv() => {
                    done = fraction;
                    self.contact.report(fraction, phase);
                }
                _ = look.tick() => {
                    if give_up_at.is_none() && (0..self.ranks).any(|rank| self.is_out_of_memory(rank)) {
                        give_up_at = Some(Instant::now() + GRACE);
                    }
                }
                () = sleep_until(give_up_at.map_or(until, |at| at.min(until))) => {
                    return if give_up_at.is_some_and(|at| at <= Instant::now()) {
                        How::OutOfMemory
                    } else {
                        How::Deadline { seconds: self.deadline.as_secs_f64(), fraction: done }
                    };
                }
            }
        }
    }

    fn is_out_of_memory(&self, rank: usize) -> bool {
        // A file that is half written is looked at again.
        matches!(rank_file::read(self.results, rank), Ok(Some(file)) if file.is_out_of_memory())
    }
}

/// What was said last: on standard error, or else on standard output.
async fn last_words(stdout: JoinHandle<Tail>, stderr: JoinHandle<Tail>) -> String {
    let mut tails = Vec::new();
    for mut listener in [stderr, stdout] {
        match timeout(LAST_WORDS, &mut listener).await {
            Ok(tail) => tails.extend(tail),
            Err(_) => listener.abort(),
        }
    }
    tails.iter().map(Tail::text).find(|text| !text.is_empty()).unwrap_or_default()
}

async fn listen(stdout: Option<impl AsyncRead + Unpin>, sender: mpsc::Sender<(f64, Phase)>) -> Tail {
    let mut tail = Tail::default();
    let is_no_progress = |line: &str| match parse(line) {
        Some(progress) => {
            // The next one will do as well.
            let _ = sender.try_send(progress);
            false
        }
        None => true,
    };
    tail.listen(stdout, is_no_progress).await;
    tail
}

async fn keep_tail(stderr: Option<impl AsyncRead + Unpin>) -> Tail {
    let mut tail = Tail::default();
    tail.listen(stderr, |line| {
        debug!("command: {line}");
        true
    })
    .await;
    tail
}

/// What such a line has, wherever in the line: frameworks put the rank before it.
const MARK: &str = "loadmaster: progress ";

/// Share of the work done, 0 to 1, and what the command does; `None` for any other line.
pub(super) fn parse(line: &str) -> Option<(f64, Phase)> {
    let (_, rest) = line.split_once(MARK)?;
    let mut words = rest.split_whitespace();
    let fraction: f64 = words.next()?.parse().ok()?;
    let phase = match words.next()? {
        "setup" => Phase::Setup,
        "forward" => Phase::Forward,
        "backward" => Phase::Backward,
        "step" => Phase::Step,
        _ => return None,
    };
    fraction.is_finite().then(|| (fraction.clamp(0.0, 1.0), phase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress_is_found_behind_a_frameworks_prefix() {
        assert_eq!(parse("[rank0]: loadmaster: progress 0.25 backward"), Some((0.25, Phase::Backward)));
        assert_eq!(parse("loadmaster: progress 7 step"), Some((1.0, Phase::Step)));
        for other in [
            "",
            "progress 0.5 step",
            "loadmaster: progress x step",
            "loadmaster: progress 0.5",
            "loadmaster: progress NaN step",
            "loadmaster: progress 0.5 lunch",
        ] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }
}
