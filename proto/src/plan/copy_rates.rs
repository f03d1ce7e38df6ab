//! How fast the copies of a plan's memory actions were taken to be, and which cores its stages to share, so that they can be
//! simulated again.

use serde::{Deserialize, Serialize};

use crate::ratio::{is_one, is_zero, one};

/// The ways that copies go.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CopyRates {
    /// Those that are used, each once.
    pub ways: Vec<CopyRate>,
    /// Where several of them together are slower than each alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedRate>,
    /// Cores that CPU slots share, where there may be too few for all that they do at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<SharedCores>,
}

/// One way, from a stage's device or the host to another one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CopyRate {
    /// The stage that sends; none for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The stage that receives; none for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// How fast a copy is alone.
    pub bytes_per_second: f64,
    /// Seconds before its first byte.
    pub latency_seconds: f64,
    /// What a copy takes of the cores of a slot meanwhile, where these are shared.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub core_share: f64,
}

/// What ways share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedRate {
    /// Their places in [`CopyRates::ways`].
    pub ways: Vec<usize>,
    /// All of them together.
    pub bytes_per_second: f64,
}

/// The cores of a node of CPU slots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedCores {
    /// The stages that compute on them, each as often as it has slots there.
    pub stages: Vec<u32>,
    /// How many slots compute at once, each with cores of its own.
    pub slots: f64,
    /// How many times as long as alone a step takes while that many compute.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub crowded_ratio: f64,
    /// By how many seconds each step becomes longer for a byte that is copied beside it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slowdown_seconds_per_byte: f64,
}
