//! Which predictor answers for a profile, and what it is made from.

pub mod imported_profile;
pub mod stored_profile;

use loadmaster_proto::choice;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::wire::v1;

use crate::Predictor;
use crate::profiling::ProfilingError;

/// A predictor of any kind.
pub type AnyPredictor = Box<dyn Predictor + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredictorKind {
    /// Replays the recordings of single layers.
    Component,
    Capture,
    /// Sums an imported table.
    Table,
}

choice! {
    PredictorKind = v1::PredictorKind {
        Component = "component",
        Capture = "capture",
        Table = "table",
    }
}

impl PredictorKind {
    /// Name and version, as in the predictions of this kind.
    pub const fn versioned_name(self) -> &'static str {
        match self {
            Self::Component => crate::component::NAME,
            Self::Capture => crate::capture::NAME,
            Self::Table => crate::layer_table::NAME,
        }
    }
}

/// A measurement of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// `runs/{run}/measurements/{stage}-{shard}`.
    pub name: String,
    /// What was measured, in the layers of the profile's model.
    pub measurement: Measurement,
    /// Nothing may be learnt from it: predictions are held against it.
    pub held_out: bool,
}

/// What a stored profile consists of.
#[derive(Debug, Clone, Copy)]
pub struct Profiled<'a> {
    /// What was asked for.
    pub settings: &'a ProfileSettings,
    /// The profile's model.
    pub model: &'a Model,
    /// Its measurements.
    pub evidence: &'a [Evidence],
}

impl<'a> Profiled<'a> {
    /// What predictors are made from, or held against: not what was trained in chunks, whose peak is no stage's that has its
    /// parameters all the time.
    fn plain(self) -> impl Iterator<Item = &'a Evidence> {
        self.evidence.iter().filter(|of| of.measurement.chunks.is_none())
    }
}

/// Why a profile has no predictor of the kind that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum NoPredictor {
    /// Its settings make no profiling.
    #[error(transparent)]
    ProfilingMode(#[from] ProfilingError),
    /// It has nothing of what the predictor needs.
    #[error("{0}")]
    Lacks(String),
}

#[cfg(test)]
mod tests;
