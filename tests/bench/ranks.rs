//! Rank programs: started together, fed with their specifications, listened to, and ended with the first that fails.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::{EXIT_LOST_NEIGHBOUR, HUGE_PAGES, RankEvent};
use loadmaster_tests::binary;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// Most bytes that a rank may print on each of its outputs.
const MOST_OUTPUT: u64 = 64 << 20;

/// How one rank ended.
pub(crate) struct Ended {
    code: Option<i32>,
    pub(crate) event: Option<RankEvent>,
    complaints: String,
}

impl Ended {
    /// Whether another one of the run was the cause of its end.
    pub(crate) fn is_lost(&self) -> bool {
        self.code == Some(EXIT_LOST_NEIGHBOUR)
    }

    /// Its measurement, or why there is none.
    pub(crate) fn measurement(self) -> Result<Box<Measurement>, String> {
        match (self.code, self.event) {
            (Some(0), Some(RankEvent::Measured { measurement })) => Ok(measurement),
            (Some(EXIT_LOST_NEIGHBOUR), _) => Err("lost a neighbour".to_owned()),
            (_, Some(RankEvent::Error { message })) => Err(message),
            (_, Some(RankEvent::OutOfMemory { out_of_memory })) => Err(format!(
                "out of memory in {}: asked for {} with {} of {}",
                out_of_memory.phase, out_of_memory.asked, out_of_memory.held, out_of_memory.allowed
            )),
            (code, _) => {
                let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("code {code}"));
                let last = self.complaints.lines().last().unwrap_or("it printed nothing");
                Err(format!("ended by {code}: {last}"))
            }
        }
    }
}

/// Runs a command of the rank program with each of these specifications to its end; none where that takes too long.
///
/// # Errors
/// A rank cannot be started. What goes wrong within one is how it ended.
pub(crate) async fn run(
    command: &str,
    specs: &[impl Serialize],
    threads: u32,
    backend: Backend,
    limit: Duration,
) -> Result<Option<Vec<Ended>>> {
    let start = |spec| Ok((start(command, threads, backend)?, serde_json::to_vec(spec)?));
    let children: Vec<(Child, Vec<u8>)> = specs.iter().map(start).collect::<Result<_>>()?;
    // Dropped children are killed, so nothing outlives a limit or an error.
    let all = try_join_all(children.into_iter().map(|(child, spec)| listen(child, spec)));
    tokio::time::timeout(limit, all).await.ok().transpose()
}

fn start(command: &str, threads: u32, backend: Backend) -> Result<Child> {
    let mut rank = Command::new(binary("loadmaster-rank"));
    // SAFETY: between fork and exec it makes one system call and touches no memory.
    unsafe {
        // Whoever kills this program, even with SIGKILL, kills its ranks. The signal comes when the thread ends
        // that started the rank: the main one, which runs everything here.
        rank.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(std::io::Error::from));
    }
    if backend == Backend::Cpu {
        rank.env("CUDA_VISIBLE_DEVICES", "");
    }
    let threads = threads.to_string();
    rank.arg(command)
        .env("OMP_NUM_THREADS", &threads)
        .env("MKL_NUM_THREADS", &threads)
        .envs([HUGE_PAGES])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("the rank cannot be started")
}

async fn listen(mut child: Child, spec: Vec<u8>) -> Result<Ended> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut printed, mut complaints) = (Vec::new(), Vec::new());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A rank that refuses to start says more through its exit.
            let _ = stdin.write_all(&spec).await;
        }
    };
    let hear = async {
        if let Some(stdout) = stdout {
            let _ = stdout.take(MOST_OUTPUT).read_to_end(&mut printed).await;
        }
    };
    let keep = async {
        if let Some(stderr) = stderr {
            let _ = stderr.take(MOST_OUTPUT).read_to_end(&mut complaints).await;
        }
    };
    tokio::join!(feed, hear, keep);
    let status = child.wait().await?;
    let last = printed.trim_ascii_end().rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
    Ok(Ended {
        code: status.code(),
        event: serde_json::from_slice(last).ok(),
        complaints: String::from_utf8_lossy(&complaints).into_owned(),
    })
}
