//! Device slots of a worker.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;

/// What a device computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// A share of the host's memory with an enforced capacity.
    Cpu,
    /// An NVIDIA GPU, or a share of its memory.
    Cuda,
}

/// The kind of every CPU slot.
pub const CPU_KIND: &str = "cpu";

/// A device slot of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Id within the worker: `cpu0`, `gpu0`, `gpu0.1`.
    pub id: String,
    /// Backend.
    pub backend: Backend,
    /// Kind: `cpu`, `NVIDIA H200`.
    pub kind: String,
    /// Bytes that a rank may use.
    pub capacity: Bytes,
    /// Bytes of the whole physical device.
    pub physical: Bytes,
    /// NVML's UUID, or empty.
    pub uuid: String,
    /// Index of the GPU or CPU slot.
    pub ordinal: u32,
    /// Driver version, or empty.
    pub driver_version: String,
}
