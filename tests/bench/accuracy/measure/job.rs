//! A run to make, and what became of it.

use std::path::Path;

use loadmaster_planning::campaign::PlannedRun;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, CPU_KIND};
use loadmaster_proto::measure::collectives::Collectives;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{Edges, RankDevice, RankSpec};
use loadmaster_proto::measure::run::{RankPosition, RunSpec, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::fingerprint;
use loadmaster_proto::training::actions::StageActions;
use serde::{Deserialize, Serialize};

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
            training: planned.training,
            work: planned.work.clone(),
            iterations: ITERATIONS,
            stage_recompute: Vec::new(),
            stage_actions: Vec::new(),
            chunks: None,
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
    pub(super) fn specs(&self, folder: &Path) -> Vec<RankSpec> {
        let edges = match &self.run.work {
            Work::Solo(_) => Edges::Synthetic,
            Work::Partitioning(partitioning) => Edges::Sockets { partitioning: partitioning.clone() },
        };
        let spec = |rank: RankPosition| RankSpec {
            model: self.run.model.clone(),
            training: self.run.training,
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
        let training = &self.run.training;
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
