//! How fast what happens beside the passes of a training in chunks was taken to be, so that it can be simulated again.

use serde::{Deserialize, Serialize};

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
