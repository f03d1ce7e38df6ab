//! What was measured before, and what may be reused of it.

use loadmaster_proto::measure::run::Work;
use loadmaster_proto::name::{ModelName, RunName};
use loadmaster_proto::training::TrainingSpec;
use sqlx::FromRow;

use super::RunState;
use crate::store::columns::Stored;

/// The software that measurements are to be made with, as far as it decides whether others compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Software {
    /// libtorch version of the rank.
    pub libtorch_version: String,
    /// CUDA version of libtorch, or empty.
    pub cuda_version: String,
    /// Driver version of the devices, or empty.
    pub driver_version: String,
    /// Numbers of threads that ranks compute with, any of which will do; none where threads do not matter,
    /// as on GPUs.
    pub threads: Option<Vec<u32>>,
    /// Numbers of cores that ranks share, any of which will do where they have too few of them; none where
    /// cores do not matter, as on GPUs, or are not known.
    pub cores: Option<Vec<u32>>,
}

/// A run of another profile that serves a profile too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReusedRun {
    pub run: RunName,
    /// What to add to its indices of layers to have those of the profile's model.
    pub layer_offset: i32,
    /// Predictions are held against it, and nothing is learnt from it.
    pub held_out: bool,
}

/// A run of a profile, as far as it tells what is left to do.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct AttemptRecord {
    /// What it measures.
    pub work_key: String,
    /// At which micro-batch size.
    #[sqlx(try_from = "i32")]
    pub micro_batch_size: u32,
    /// How far it came.
    #[sqlx(try_from = "Stored<String>")]
    pub state: RunState,
    /// An attempt at it failed.
    pub failed: bool,
}

/// A run that succeeded, found by what it measured.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct MeasuredRun {
    #[sqlx(rename = "id", try_from = "Stored<String>")]
    pub run: RunName,
    /// What it measured.
    pub work_key: String,
    /// At which micro-batch size.
    #[sqlx(try_from = "i32")]
    pub micro_batch_size: u32,
    /// Index of its first layer, in the model that it was made for.
    #[sqlx(try_from = "i32")]
    pub first_layer: usize,
}

/// What a run trained, and how long that took.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct EndedRun {
    #[sqlx(rename = "model_id", try_from = "Stored<String>")]
    pub model: ModelName,
    #[sqlx(json)]
    pub training: TrainingSpec,
    #[sqlx(json)]
    pub work: Work,
    /// Measured iterations.
    #[sqlx(try_from = "i32")]
    pub iterations: u32,
    /// How long it held each of its devices, seconds.
    pub held_seconds: f64,
    /// Seconds of an iteration; 0 where it was not timed.
    pub iteration_seconds: f64,
}
