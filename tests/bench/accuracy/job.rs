//! A run to make, and what became of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use loadmaster_predict::profiling::PlannedRun;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::{Edges, RankSpec};
use loadmaster_proto::measure::run::{RunSpec, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::fingerprint;
use loadmaster_tests::rank_spec;
use serde::{Deserialize, Serialize};

use crate::ranks::{self, Ended};

/// Measured iterations after the warm-up. Peaks repeat exactly, so one is enough.
pub(crate) const ITERATIONS: u32 = 1;
/// No stage of the harness comes near it: its models are small, and it must not be a cause of failure.
const CAPACITY: Bytes = Bytes(64 << 30);
/// Longest run of a stage.
const LIMIT: Duration = Duration::from_secs(300);

/// A run to make.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    run: RunSpec,
    /// What tells jobs apart.
    pub(crate) key: String,
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

    /// Ranks that it needs at once.
    pub(crate) fn ranks(&self) -> u32 {
        self.run.device_count()
    }

    /// Runs all ranks to their end.
    pub(crate) async fn run(&self) -> Result<Outcome> {
        // Short: paths of sockets are limited.
        let folder = tempfile::Builder::new().prefix("lma").tempdir().context("no folder for sockets")?;
        let RunSpec { model, strategy, iterations, .. } = &self.run;
        let edges = match &strategy.work {
            Work::Solo(_) => Edges::Synthetic,
            Work::Partitioning(partitioning) => Edges::Sockets { partitioning: partitioning.clone() },
        };
        let specs = self.run.ranks().into_iter().map(|rank| RankSpec {
            shard: rank.shard,
            edges: edges.clone(),
            iterations: *iterations,
            ..rank_spec(model, strategy.training, rank.position, folder.path(), CAPACITY)
        });
        let started = Instant::now();
        let specs: Vec<RankSpec> = specs.collect();
        let Some(mut ended) = ranks::run("train", &specs, 1, Backend::Cpu, LIMIT).await? else {
            return Ok(Outcome::Failed(format!("took longer than {} s", LIMIT.as_secs())));
        };
        let seconds = started.elapsed().as_secs_f64();
        // Who lost a neighbour is never the cause: another one of the run was.
        ended.sort_by_key(Ended::is_lost);
        let measurements = ended.into_iter().map(|ended| Ok(*ended.measurement()?)).collect();
        Ok(match measurements {
            Ok(measurements) => Outcome::Measured { measurements, seconds },
            Err(why) => Outcome::Failed(why),
        })
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

    /// Wall time of the run.
    pub(crate) fn seconds(&self) -> Option<f64> {
        match self {
            Self::Measured { seconds, .. } => Some(*seconds),
            Self::Failed(_) => None,
        }
    }

    /// Seconds that the run held its devices, all of them together.
    pub(crate) fn device_seconds(&self) -> f64 {
        self.measurements().len() as f64 * self.seconds().unwrap_or(0.0)
    }
}
