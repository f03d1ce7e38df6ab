//! What was found of a plan besides its stages, with the certificate that proves it.

use serde::{Deserialize, Serialize};

use super::comparison::{Alternative, Baseline, FrontPoint, RestrictionCost};
use super::prediction::Origin;
use super::rates::{CopyRates, LaneRates};
use crate::accounting::Accounting;
use crate::measure::host::Host;
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
    /// What shape and framework cost.
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
    /// How fast the copies of its memory optimizations are, and which cores its stages share; none where nothing is
    /// copied and nothing shared, or the times are not known.
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
    /// Where the bandwidths come from, human-readable.
    pub links: String,
    /// Whether transfers overlap computing.
    pub overlap: Overlap,
    /// Why, human-readable.
    pub overlap_reason: String,
    /// The real seconds are expected within this share of those above; none where it is not known.
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
    /// The memory accounting of the bytes that it corrects; none where it corrects seconds.
    pub ledger: Option<Accounting>,
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

/// Returns the optimality gap of a value and its best bound: |value − bound| / |value|.
pub fn optimality_gap(value: f64, bound: f64) -> f64 {
    let difference = (value - bound).abs();
    if difference > 0.0 { difference / value.abs() } else { 0.0 }
}

/// A certificate proves a plan; the time that the search took is no part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// The plan's value.
    pub value: f64,
    /// No plan has a better one; none where nothing is known.
    pub bound: Option<f64>,
    /// The optimality gap; none without a bound.
    pub gap: Option<f64>,
    /// The unit of values.
    pub unit: String,
    /// The plan is proven best.
    pub proven: bool,
    /// Whether the search was stopped.
    pub stopped: bool,
    /// States weighed.
    pub states: u64,
    /// The first alternatives that were rejected.
    pub rejected: Vec<Rejected>,
    /// Of a plan in chunks no visits of these in the room that there is fetch fewer bytes, each chunk counted whole; not set where
    /// that is not known. Plans that are older than this field read, and are named, as before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fetches_fewest: bool,
}

/// An alternative that was not chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// What it is.
    pub what: String,
    /// Its value.
    pub value: Option<f64>,
    /// Why.
    pub reason: String,
}
