//! The protocol between the daemon and a rank.
//!
//! The daemon starts `loadmaster-rank train` with a [`RankSpec`] as JSON on standard input, or
//! `loadmaster-rank links` with a [`LinkSpec`]. The rank
//! writes one [`RankEvent`] as JSON per line to standard output and anything human-readable to standard
//! error. It ends with one of the exit codes below.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::chunks::stage::ChunkedStage;
use crate::cluster::device::Backend;
use crate::measure::failure::{OutOfMemory, Phase};
use crate::measure::links::{Collectives, LinkWork, RankLinks};
use crate::measure::measurement::Measurement;
use crate::measure::offload::CopyPace;
use crate::measure::run::SoloStage;
use crate::model::Model;
use crate::training::TrainingSpec;
use crate::training::actions::StageActions;
use crate::training::stage::Partitioning;

/// Exit code of a rank whose device was too small; an [`RankEvent::OutOfMemory`] came before it.
pub const EXIT_OUT_OF_MEMORY: i32 = 77;
/// Exit code of a rank that refuses its specification.
pub const EXIT_BAD_SPEC: i32 = 64;
/// Exit code of a rank that lost a neighbour. Never the cause of a failure: look at the neighbour.
pub const EXIT_LOST_NEIGHBOUR: i32 = 76;
/// Exit code of a rank that found another libtorch than it was built for.
pub const EXIT_WRONG_LIBTORCH: i32 = 78;

/// A variable of a rank's environment that has its C library ask for huge pages (`MADV_HUGEPAGE`), where the kernel gives
/// any. Of small ones each process gets others, and how long the same passes take depends on which.
pub const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// The other slots of a rank's host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contention {
    /// How many may compute at the same time, each on cores of its own.
    pub companions: u32,
    /// A file that a rank locks while it times what it trains alone: of those on the same cores one at a time.
    pub turns: PathBuf,
}

/// All that a rank needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankSpec {
    /// The whole model; the rank builds its stage's layers alone.
    pub model: Model,
    /// Settings.
    pub training: TrainingSpec,
    /// Which stage of how many.
    pub position: SoloStage,
    /// Which device of the stage, from 0.
    pub shard: u32,
    /// How it reaches its neighbours.
    pub edges: Edges,
    /// The run's private folder; exists, readable by this user alone. The rank of shard n of stage s
    /// listens on `rank-{s}-{n}.sock` in it, for the ranks of the stages after it and for the shards of
    /// its own stage after it.
    pub folder: PathBuf,
    /// How the ranks of a stage exchange what they add up or put together.
    pub collectives: Collectives,
    /// Measured iterations, after one warm-up iteration.
    pub iterations: u32,
    /// Where it computes.
    pub device: RankDevice,
    /// Threads that libtorch computes with.
    pub threads: u32,
    /// The other slots of its host, beside which a stage that is trained alone finds out what they would cost it; none where there
    /// are none, or no one wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
    /// Seconds to wait for a neighbour before giving up.
    pub neighbour_timeout_seconds: f64,
    /// What it does so that it holds less.
    #[serde(default, skip_serializing_if = "StageActions::is_empty")]
    pub actions: StageActions,
    /// How it trains in chunks, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Box<ChunkedStage>>,
    /// How fast its copies may be.
    #[serde(default, skip_serializing_if = "CopyPace::is_free")]
    pub pace: CopyPace,
    /// Write the parameters' gradients of the first iteration to this file (safetensors), for
    /// checking against another partitioning. None in ordinary runs.
    #[serde(default)]
    pub dump_gradients: Option<PathBuf>,
    /// Write the parameters after the last iteration to this file (safetensors), for checking that replicas
    /// stay equal. None in ordinary runs.
    #[serde(default)]
    pub dump_parameters: Option<PathBuf>,
}

/// All that a rank needs to know to measure links (`loadmaster-rank links`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// What to exchange, among how many ranks.
    pub work: LinkWork,
    /// Which of the ranks, from 0.
    pub index: u32,
    /// Id of its device, for the measurement.
    pub device_id: String,
    /// The run's private folder, as in [`RankSpec`]: all ranks are shards of one stage.
    pub folder: PathBuf,
    /// How the ranks exchange.
    pub collectives: Collectives,
    /// Where its tensors are.
    pub device: RankDevice,
    /// Threads that libtorch computes with.
    pub threads: u32,
    /// Seconds to wait for another rank before giving up.
    pub neighbour_timeout_seconds: f64,
    /// How fast its copies may be.
    #[serde(default, skip_serializing_if = "CopyPace::is_free")]
    pub pace: CopyPace,
}

/// How a rank reaches its neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Edges {
    /// The stage runs alone: activations and gradients at its edges are made up.
    Synthetic,
    /// Over sockets in the run's folder, each rank to those whose share of the samples meets its own.
    Sockets {
        /// All stages of the pipeline: who holds what follows from them.
        partitioning: Partitioning,
    },
}

/// Where a rank computes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankDevice {
    /// Backend.
    pub backend: Backend,
    /// Kind, for the measurement.
    pub kind: String,
    /// CUDA device index as seen by the rank (the daemon sets `CUDA_VISIBLE_DEVICES`); 0 on CPU.
    pub ordinal: u32,
    /// Bytes that it may use; exceeding them is out of memory.
    pub capacity: Bytes,
    /// Bytes of the whole physical device, as the driver says. For messages: the rank caps the
    /// allocator at `capacity` by libtorch's own total, which may differ.
    pub physical: Bytes,
    /// Driver version, or empty.
    pub driver_version: String,
}

/// What a rank says. One JSON object per line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RankEvent {
    /// It lives and works; sent at least at every change of phase and once per second of work.
    Progress {
        /// Share of its passes done, 0 to 1.
        fraction: f64,
        /// What it does.
        phase: Phase,
    },
    /// It is done.
    Measured {
        /// What its stage needed.
        measurement: Box<Measurement>,
    },
    /// It has measured its links.
    LinksMeasured {
        /// What it found.
        links: Box<RankLinks>,
    },
    /// Its device was too small. Exit code [`EXIT_OUT_OF_MEMORY`] follows.
    OutOfMemory {
        /// Where, and by how much.
        out_of_memory: OutOfMemory,
    },
    /// Something else went wrong. A non-zero exit code follows.
    Error {
        /// Human-readable.
        message: String,
    },
}

/// Answer of `loadmaster-rank probe`: what it links and finds. One JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Loadmaster version of the rank program.
    pub loadmaster_version: String,
    /// libtorch version found at run time.
    pub libtorch_version: String,
    /// CUDA version of libtorch, or empty.
    pub cuda_version: String,
    /// CUDA devices that libtorch can use.
    pub cuda_devices: u32,
}
