//! What a plan is compared with: other plans, in outline.

use serde::{Deserialize, Serialize};

use crate::name::PlanName;
use crate::training::RecomputePolicy;
use crate::training::stage::Partitioning;

/// What is compared of a plan that is not stored with its own stages here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outline {
    /// Its stages.
    pub partitioning: Partitioning,
    /// Samples of one pass of a whole stage.
    pub micro_batch_size: u32,
    /// Predicted peak of the device with the highest peak.
    pub peak: u64,
    /// Predicted seconds of one iteration.
    pub seconds: Option<f64>,
}

/// A plan of a well-known rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The rule.
    pub name: String,
    /// Its plan; none where it makes none.
    pub plan: Option<Outline>,
    /// Whether it fits.
    pub fits: bool,
    /// Its peak by the plan's.
    pub peak_ratio: Option<f64>,
    /// Its iteration by the plan's.
    pub time_ratio: Option<f64>,
    /// Why it makes none, or what it lacks.
    pub note: String,
}

/// What a restriction costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RestrictionCost {
    /// The best value without it.
    pub free_value: f64,
    /// The best value with it.
    pub restricted_value: f64,
    /// How many times worse.
    pub ratio: f64,
    /// The stages of the best plan without it.
    pub free_partitioning: Partitioning,
    /// Which rules that plan breaks.
    pub placement: Vec<String>,
    /// Whether the free value is proven.
    pub free_proven: bool,
}

/// A point of the front.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrontPoint {
    /// The plan; none where it is not stored.
    pub plan: Option<PlanName>,
    /// Its numbers.
    pub summary: Outline,
    /// What each stage recomputes.
    pub recompute: Vec<RecomputePolicy>,
}

/// A plan that came next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The plan; none where it is not stored.
    pub plan: Option<PlanName>,
    /// Its numbers.
    pub summary: Outline,
    /// Its value in the certificate's unit.
    pub value: f64,
}
