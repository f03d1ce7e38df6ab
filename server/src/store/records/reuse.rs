//! What was measured before, and what may be reused of it.

use loadmaster_proto::name::RunName;
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

/// How long runs took: the mean of some earlier ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// How many they were.
    pub runs: u32,
    /// How long each of them held each of its devices, seconds.
    pub seconds: f64,
    /// They were of the model that was asked about.
    pub same_model: bool,
}
