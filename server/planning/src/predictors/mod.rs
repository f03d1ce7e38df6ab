//! Which predictor answers for a profile, and what it is made from.

mod captured;
mod composed;

use loadmaster_proto::choice;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::wire::v1;

use super::campaign::CampaignError;
use super::predictor::Predictor;

/// A predictor of any kind.
pub type AnyPredictor = Box<dyn Predictor + Send + Sync>;

/// The kinds of predictors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Replays the recordings of single layers.
    Component,
    /// CAPTURE's.
    Capture,
    /// Sums an imported table.
    Table,
}

choice! {
    Kind = v1::PredictorKind {
        Component = "component",
        Capture = "capture",
        Table = "table",
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

/// Why a profile has no predictor of the kind that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum NoPredictor {
    /// Its settings make no campaign.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
    /// It has nothing of what the predictor needs.
    #[error("{0}")]
    Lacks(String),
}

/// The predictor of this kind for a profile. Without a kind: `component` where the campaign was made for it
/// or every layer was recorded, else `capture`.
///
/// # Errors
/// The profile lacks what the kind needs; the text says how to measure it.
pub fn predictor(profiled: Profiled<'_>, kind: Option<Kind>) -> Result<AnyPredictor, NoPredictor> {
    match kind {
        Some(Kind::Component) => Ok(Box::new(composed::component(profiled)?)),
        Some(Kind::Capture) => Ok(Box::new(captured::capture(profiled)?)),
        Some(Kind::Table) => Err(NoPredictor::Lacks(
            "it was measured by Loadmaster, and only imported profiles have per-layer tables".to_owned(),
        )),
        None if composed::is_recorded(profiled) => Ok(Box::new(composed::component(profiled)?)),
        None => Ok(Box::new(captured::capture(profiled)?)),
    }
}

#[cfg(test)]
mod tests;
