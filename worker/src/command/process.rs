//! The processes of a command: started, listened to, and gone before anybody looks at the results.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use loadmaster_proto::measure::run::RunSpec;
use loadmaster_proto::phase::Phase;
use nix::unistd::Pid;
use tokio::io::{AsyncRead, BufReader};
use tokio::process::Command;
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::offspring::Offspring;
use super::{progress, rank_file};
use crate::process::group::Group;
use crate::process::kernel;
use crate::process::lines::{Tail, read_line};
use crate::process::spawn::spawn;
use crate::ranks::Progress;
use crate::state::Job;

/// Longest line of output that is kept whole.
const MAX_LINE: usize = 2 << 10;
/// Between two looks for a rank that ran out of memory.
const LOOK: Duration = Duration::from_secs(1);
/// How long the others may go on after that.
const GRACE: Duration = Duration::from_secs(10);
/// How long to listen to a command that has ended: only a child of its own can keep the pipes open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Lines of progress that wait to be looked at.
const LINES: usize = 16;

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

/// Starts the command and waits until no process of it is left.
pub(super) async fn watch(
    command: Command,
    mut offspring: Offspring,
    job: &Job<RunSpec>,
    results: &Path,
    deadline: Duration,
    stop: &CancellationToken,
    report: &mpsc::Sender<Progress>,
) -> End {
    let kills_before = kernel::out_of_memory_kills();
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let mut child = match spawn(command, None) {
        Ok(child) => child,
        Err(error) => {
            let how = How::NotSpawned(format!("{program}: {error}"));
            return End { how, tail: String::new(), kernel_killed: false };
        }
    };
    let group = child.id().map(|pid| {
        kernel::prefer_to_kill(pid);
        Group(Pid::from_raw(pid.cast_signed()))
    });
    let (sender, mut lines) = mpsc::channel(LINES);
    let stdout = tokio::spawn(listen(child.stdout.take(), sender));
    let stderr = tokio::spawn(keep_tail(child.stderr.take()));

    let until = Instant::now() + deadline;
    let mut give_up_at: Option<Instant> = None;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut done = 0.0;
    let how = loop {
        select! {
            () = stop.cancelled() => break How::Stopped,
            status = child.wait() => break match status {
                Ok(status) => How::Exited(status),
                Err(error) => How::NotSpawned(format!("its end is unknown: {error}")),
            },
            Some((fraction, phase)) = lines.recv() => {
                done = fraction;
                // The next one will do as well.
                let _ = report.try_send(Progress { claim: job.claim.clone(), fraction, phase });
            }
            _ = look.tick() => {
                let ranks = job.devices.len();
                if give_up_at.is_none() && (0..ranks).any(|rank| is_out_of_memory(results, rank)) {
                    give_up_at = Some(Instant::now() + GRACE);
                }
            }
            () = sleep_until(give_up_at.map_or(until, |at| at.min(until))) => {
                break if give_up_at.is_some_and(|at| at <= Instant::now()) {
                    How::OutOfMemory
                } else {
                    How::Deadline { seconds: deadline.as_secs_f64(), fraction: done }
                };
            }
        }
    };
    // Before its parent dies: afterwards one that hides its environment would not be found.
    offspring.kill(child.id());
    if let Some(group) = group {
        group.kill();
        // An error says that it was waited for already.
        let _ = child.wait().await;
        group.gone().await;
    }
    offspring.gone().await;
    let tail = last_words(stdout, stderr).await;
    End { how, tail, kernel_killed: kernel::out_of_memory_kills() > kills_before }
}

fn is_out_of_memory(results: &Path, rank: usize) -> bool {
    // A file that is half written is looked at again.
    matches!(rank_file::read(results, rank), Ok(Some(file)) if file.is_out_of_memory())
}

type Listener = tokio::task::JoinHandle<Tail>;

/// What was said last: on standard error, or else on standard output.
async fn last_words(stdout: Listener, stderr: Listener) -> String {
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
    let Some(stdout) = stdout else { return tail };
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    while let Ok(Some(_)) = read_line(&mut reader, &mut line, MAX_LINE).await {
        match progress::parse(&String::from_utf8_lossy(&line)) {
            // The next one will do as well.
            Some(progress) => drop(sender.try_send(progress)),
            None => tail.push_line(&line),
        }
    }
    tail
}

async fn keep_tail(stderr: Option<impl AsyncRead + Unpin>) -> Tail {
    let mut tail = Tail::default();
    let Some(stderr) = stderr else { return tail };
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(Some(_)) = read_line(&mut reader, &mut line, MAX_LINE).await {
        debug!("command: {}", String::from_utf8_lossy(&line));
        tail.push_line(&line);
    }
    tail
}
