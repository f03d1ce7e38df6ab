//! What was found of a plan besides its stages.

use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;
use crate::measure::host::Host;
use crate::plan::certificate::Certificate;
use crate::plan::comparison::{Alternative, Baseline, FrontPoint, RestrictionCost};
use crate::plan::copy_rates::CopyRates;
use crate::plan::lane_rates::LaneRates;
use crate::plan::prediction::Origin;
use crate::training::overlap::Overlap;

/// What was found besides the stages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Findings {
    /// Seconds of one micro-batch between each stage and the next, both ways; empty without times.
    pub edge_seconds: Vec<f64>,
    /// How long an iteration takes; none without times.
    pub iteration: Option<IterationEstimate>,
    /// What proves the plan.
    pub certificate: Option<Certificate>,
    /// Plans of well-known rules.
    pub baselines: Vec<Baseline>,
    /// What shape and launcher cost.
    pub restriction: Option<RestrictionCost>,
    /// The front between memory and time, from the least memory on.
    pub front: Vec<FrontPoint>,
    /// The plans that came next, best first.
    pub alternatives: Vec<Alternative>,
    /// Price of its devices for an hour; none without prices.
    pub hourly_price: Option<f64>,
    /// What its predictions were multiplied with.
    pub corrections: Vec<AppliedCorrection>,
    /// The hosts of CPU slots that its profile was measured on; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// How fast the copies of its memory actions are, and which cores its stages share; none where nothing is copied and nothing
    /// shared, or nobody knows the times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_rates: Option<CopyRates>,
    /// How fast all else than the passes of a training in chunks is; none of other plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane_rates: Option<LaneRates>,
}

/// Predicted times of one iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationEstimate {
    /// Simulated, or by the closed form where there are too many passes.
    pub seconds: f64,
    /// By AMP's closed form.
    pub closed_form: f64,
    /// Share of the devices' time in the pipeline that they wait.
    pub bubble: f64,
    /// Seconds after the last backward pass.
    pub step: f64,
    /// How far the layers' times are from what was profiled.
    pub origin: Origin,
    /// Where the bandwidths come from, for people.
    pub links: String,
    /// Whether transfers overlap computing.
    pub overlap: Overlap,
    /// Why, for people.
    pub overlap_reason: String,
    /// The real seconds are expected within this share of those above; none where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
}

/// A factor that predictions were multiplied with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppliedCorrection {
    /// Kind of device.
    pub device_kind: String,
    /// Name and version of the predictor.
    pub predictor: String,
    /// The ledger of the bytes that it corrects; none where it corrects seconds.
    pub ledger: Option<Ledger>,
    /// Method, and a hash of the pairs that it was learnt from.
    pub version: String,
    /// The factor.
    pub factor: f64,
    /// Pairs that it was learnt from.
    pub count: usize,
    /// Distinct plans that they are of.
    pub plans: usize,
    /// How it came about.
    pub explanation: String,
}
