//! A run to make: its ranks are started together, fed, listened to, and ended with the first that fails.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use loadmaster_predict::campaign::PlannedRun;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, CPU_KIND};
use loadmaster_proto::measure::links::Collectives;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{
    EXIT_LOST_NEIGHBOUR, Edges, HUGE_PAGES, RankDevice, RankEvent, RankSpec,
};
use loadmaster_proto::measure::run::{RankPosition, RunSpec, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::fingerprint;
use loadmaster_proto::training::actions::StageActions;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// Measured iterations after the warm-up. Peaks repeat exactly, so one is enough.
pub(crate) const ITERATIONS: u32 = 1;
/// No stage of the harness comes near it: its models are small, and it must not be a cause of failure.
const CAPACITY: Bytes = Bytes(64 << 30);
/// Seconds that a rank waits for another one of its stage.
const NEIGHBOUR_TIMEOUT_SECONDS: f64 = 120.0;

/// What tells jobs apart.
pub(crate) type Key = String;

/// A run to make.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    run: RunSpec,
    key: Key,
}

/// What became of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// Each rank's measurement.
    Measured {
        /// In the order of the ranks.
        measurements: Vec<Measurement>,
        /// Wall time of the run, starts of processes included.
        seconds: f64,
    },
    /// Why there is none.
    Failed(String),
}

impl Job {
    pub(crate) fn new(model: &Model, planned: &PlannedRun) -> Self {
        let run = RunSpec {
            model: model.clone(),
            strategy: planned.strategy.clone(),
            iterations: ITERATIONS,
            command: None,
        };
        Self { key: fingerprint(&run), run }
    }

    pub(crate) fn key(&self) -> Key {
        self.key.clone()
    }

    /// Ranks that it needs at once.
    pub(crate) fn ranks(&self) -> u32 {
        self.run.device_count()
    }

    /// What its ranks are told, with their sockets in `folder`.
    pub(crate) fn specs(&self, folder: &Path) -> Vec<RankSpec> {
        let edges = match &self.run.strategy.work {
            Work::Solo(_) => Edges::Synthetic,
            Work::Partitioning(partitioning) => Edges::Sockets { partitioning: partitioning.clone() },
        };
        let spec = |rank: RankPosition| RankSpec {
            model: self.run.model.clone(),
            training: self.run.strategy.training,
            position: rank.position,
            shard: rank.shard,
            edges: edges.clone(),
            folder: folder.to_owned(),
            collectives: Collectives::Host,
            iterations: self.run.iterations,
            device: RankDevice {
                backend: Backend::Cpu,
                kind: CPU_KIND.to_owned(),
                ordinal: 0,
                capacity: CAPACITY,
                physical: CAPACITY,
                driver_version: String::new(),
            },
            threads: 1,
            crowd: None,
            neighbour_timeout_seconds: NEIGHBOUR_TIMEOUT_SECONDS,
            actions: StageActions::default(),
            chunks: None,
            pace: CopyPace::default(),
            dump_gradients: None,
            dump_parameters: None,
        };
        self.run.ranks().into_iter().map(spec).collect()
    }

    /// For messages.
    pub(crate) fn describe(&self) -> String {
        let stages: Vec<String> =
            self.run.stages().iter().map(|position| position.stage.to_string()).collect();
        let training = &self.run.strategy.training;
        format!(
            "{} {} at micro-batch {}",
            self.run.model.family(),
            stages.join(" "),
            training.micro_batch_size
        )
    }
}

impl Outcome {
    /// Measurements of the ranks; none when it failed.
    pub(crate) fn measurements(&self) -> &[Measurement] {
        match self {
            Self::Measured { measurements, .. } => measurements,
            Self::Failed(_) => &[],
        }
    }

    /// Highest peak of any rank, bytes of the allocated ledger.
    pub(crate) fn peak(&self) -> Option<u64> {
        self.measurements().iter().map(|measurement| measurement.peak_allocated.0).max()
    }

    /// Seconds that the run held its devices, all of them together.
    pub(crate) fn device_seconds(&self) -> f64 {
        match self {
            Self::Measured { measurements, seconds } => measurements.len() as f64 * seconds,
            Self::Failed(_) => 0.0,
        }
    }

    /// Wall time of the run.
    pub(crate) fn seconds(&self) -> Option<f64> {
        match self {
            Self::Measured { seconds, .. } => Some(*seconds),
            Self::Failed(_) => None,
        }
    }
}

/// Most bytes that a rank may say or complain.
const MOST_OUTPUT: u64 = 64 << 20;

/// How one rank ended.
struct Ended {
    code: Option<i32>,
    said: Option<RankEvent>,
    complaints: String,
}

/// Runs all ranks of a job to their end.
///
/// # Errors
/// A rank cannot be started. What goes wrong within one is an outcome.
pub(crate) async fn run(job: &Job, program: &Path, limit: Duration) -> Result<Outcome> {
    // Short: paths of sockets are limited.
    let folder = tempfile::Builder::new().prefix("lma").tempdir().context("no folder for sockets")?;
    let specs = job.specs(folder.path());
    let started = Instant::now();
    let children: Vec<(Child, &RankSpec)> =
        specs.iter().map(|spec| Ok((start(program)?, spec))).collect::<Result<_>>()?;
    // Dropped children are killed, so nothing outlives a limit or an error.
    let all = try_join_all(children.into_iter().map(|(child, spec)| listen(child, spec)));
    let Ok(ended) = tokio::time::timeout(limit, all).await else {
        return Ok(Outcome::Failed(format!("took longer than {} s", limit.as_secs())));
    };
    Ok(outcome(ended?, started.elapsed().as_secs_f64()))
}

fn start(program: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    // SAFETY: between fork and exec it makes one system call and touches no memory.
    unsafe {
        // Whoever kills this program, even with SIGKILL, kills its ranks. The signal comes when the thread ends
        // that started the rank: the main one, which runs everything here.
        command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(std::io::Error::from));
    }
    command
        .arg("train")
        .env("CUDA_VISIBLE_DEVICES", "")
        .env("OMP_NUM_THREADS", "1")
        .env("MKL_NUM_THREADS", "1")
        .envs([HUGE_PAGES])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} cannot be started", program.display()))
}

async fn listen(mut child: Child, spec: &RankSpec) -> Result<Ended> {
    let input = serde_json::to_vec(spec)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut said, mut complaints) = (Vec::new(), Vec::new());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A rank that refuses to start says more through its exit.
            let _ = stdin.write_all(&input).await;
        }
    };
    let hear = async {
        if let Some(stdout) = stdout {
            let _ = stdout.take(MOST_OUTPUT).read_to_end(&mut said).await;
        }
    };
    let keep = async {
        if let Some(stderr) = stderr {
            let _ = stderr.take(MOST_OUTPUT).read_to_end(&mut complaints).await;
        }
    };
    tokio::join!(feed, hear, keep);
    let status = child.wait().await?;
    let last = said.trim_ascii_end().rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
    Ok(Ended {
        code: status.code(),
        said: serde_json::from_slice(last).ok(),
        complaints: String::from_utf8_lossy(&complaints).into_owned(),
    })
}

fn outcome(ended: Vec<Ended>, seconds: f64) -> Outcome {
    let mut measurements: Vec<Measurement> = Vec::with_capacity(ended.len());
    let mut failures = Vec::new();
    for Ended { code, said, complaints } in ended {
        match (code, said) {
            (Some(0), Some(RankEvent::Measured { measurement })) => measurements.push(*measurement),
            // Never the cause: another one of the run was.
            (Some(EXIT_LOST_NEIGHBOUR), _) => failures.push((1, "lost a neighbour".to_owned())),
            (_, Some(RankEvent::Error { message })) => failures.push((0, message)),
            (_, Some(RankEvent::OutOfMemory { out_of_memory })) => {
                failures.push((0, format!("out of memory: {out_of_memory:?}")));
            }
            (code, _) => {
                let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("code {code}"));
                let last = complaints.lines().last().unwrap_or("it said nothing");
                failures.push((0, format!("ended by {code}: {last}")));
            }
        }
    }
    match failures.into_iter().min_by_key(|(order, _)| *order) {
        Some((_, why)) => Outcome::Failed(why),
        None => Outcome::Measured { measurements, seconds },
    }
}
