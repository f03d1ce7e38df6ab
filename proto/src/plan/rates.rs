//! How fast copies of memory optimizations and lanes of a training in chunks were taken to be, and which cores its
//! stages share, so that a plan can be simulated once more.

use serde::{Deserialize, Serialize};

use crate::amounts::{is_one, is_zero, one};

/// The ways that copies go.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CopyRates {
    /// The ways that are used, each once.
    pub ways: Vec<CopyRate>,
    /// The limits of ways that are slower together than each alone.
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
    /// The share of a slot's cores that a copy takes meanwhile, where cores are shared.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub core_share: f64,
}

/// The rate that several ways share.
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
    pub contention_slowdown: f64,
    /// The seconds by which each step becomes longer for a byte that is copied beside it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slowdown_seconds_per_byte: f64,
}

/// How fast what happens beside the passes is, and updates among them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LaneRates {
    /// To the device, bytes per second.
    pub up: f64,
    /// To the host, bytes per second.
    pub down: f64,
    /// Seconds that every copy takes besides its bytes'.
    pub copy_seconds: f64,
    /// Updates on the host, parameters per second.
    pub update: f64,
    /// Updates on the device, parameters per second.
    pub device_update: f64,
    /// What a rank gets of the others that share chunks with it, bytes per second; the same for gradients that go to their
    /// owners.
    pub gather: f64,
    /// Seconds that every all-gather and reduce-scatter takes besides its bytes'.
    pub collective_seconds: f64,
    /// Bytes of the host's memory that it goes over in a second, of which copies of a GPU and the rounding of parameters take
    /// theirs beside updates. None on CPU slots, where cores copy and round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<f64>,
}

impl LaneRates {
    /// Seconds of a copy to the device.
    pub fn up_seconds(&self, bytes: u64) -> f64 {
        self.copy_seconds + bytes as f64 / self.up
    }

    /// Seconds of a copy to the host.
    pub fn down_seconds(&self, bytes: u64) -> f64 {
        self.copy_seconds + bytes as f64 / self.down
    }

    /// Seconds of an all-gather or a reduce-scatter of so many bytes that other ranks own; none where there are none.
    pub fn exchange_seconds(&self, others_bytes: u64) -> f64 {
        if others_bytes == 0 { 0.0 } else { self.collective_seconds + others_bytes as f64 / self.gather }
    }

    /// Seconds of an update on the host.
    pub fn update_seconds(&self, parameters: u64) -> f64 {
        parameters as f64 / self.update
    }
}
