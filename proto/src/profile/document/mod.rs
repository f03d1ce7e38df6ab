//! Profile documents: a profile as JSON, whichever tool measured it.
//!
//! A document is how a profile leaves one planner and enters another, and how measurements of any
//! other framework come in. It says who measured what ([`Provenance`]), of which chain of layers
//! ([`Subject`]), under which training settings, and then has any of:
//!
//! * [`MeasuredStage`]s: peaks and times of whole stages, from any tool;
//! * a [`LayerTable`]: times and bytes layer by layer, for a table-driven predictor;
//! * Loadmaster's own measurements, byte traces included, as `loadmaster profile export` writes them.
//!
//! Keys carry their units. Unknown keys are errors, so that a misspelt one is not a missing one. A
//! predictor that needs what a document lacks says so; nothing is guessed here.

mod layer_table;
mod measured_stage;
mod parse;
mod provenance;
mod run_measurement;
mod subject;
#[cfg(test)]
mod tests;
mod text;

use serde::{Deserialize, Serialize};

use crate::profile::ProfileSettings;
use crate::training::TrainingSpec;

pub use layer_table::{BytesRow, LayerRows, LayerTable, MemoryRow, TimesRow};
pub use measured_stage::MeasuredStage;
pub use parse::{DocumentError, MAX_DOCUMENT_BYTES};
pub use provenance::Provenance;
pub use run_measurement::RunMeasurement;
pub use subject::{OpaqueLayer, OpaqueModel, Subject};

/// The first key of every document of this version: `"format": "loadmaster.profile/1"`.
pub const FORMAT: &str = "loadmaster.profile/1";

/// A profile as a document; valid by construction when it comes from [`ProfileDocument::parse`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileDocument {
    /// [`FORMAT`].
    pub format: String,
    /// Who measured, with what, on what.
    pub provenance: Provenance,
    /// The chain of layers.
    pub model: Subject,
    /// What it was trained with, where that is known. A table may be read without; planning needs it.
    #[serde(default)]
    pub training: Option<TrainingSpec>,
    /// What a Loadmaster profile was asked to measure; goes with `measurements`.
    #[serde(default)]
    pub settings: Option<ProfileSettings>,
    /// Measured stages, from any tool.
    #[serde(default)]
    pub stages: Vec<MeasuredStage>,
    /// Times and bytes by layer.
    #[serde(default)]
    pub layer_table: Option<LayerTable>,
    /// What Loadmaster's own runs measured; the losses are left out.
    #[serde(default)]
    pub measurements: Vec<RunMeasurement>,
}
