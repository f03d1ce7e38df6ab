//! Device slots of a worker.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::cluster::LinkClass;

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
    /// PCI id, `00000000:3B:00.0`, or empty.
    #[serde(default)]
    pub pci_bus_id: String,
}

/// What the driver knows of the link between two GPUs of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuLink {
    /// NVML's UUID of the one GPU.
    pub a_uuid: String,
    /// NVML's UUID of the other.
    pub b_uuid: String,
    /// What connects them.
    pub class: LinkClass,
    /// Number of NVLinks between them; 0 without.
    pub nvlink_count: u32,
    /// Compute capability of the older GPU, 90 for 9.0: decides what an NVLink carries. 0 where the driver does
    /// not say.
    pub compute_capability: u32,
    /// PCIe generation of the slower one's link; 0 where the driver does not say.
    pub pcie_generation: u32,
    /// PCIe lanes of the narrower one's link; 0 where the driver does not say.
    pub pcie_lanes: u32,
}

impl GpuLink {
    /// Most links of a worker: every pair of 128 GPUs.
    pub const MOST: usize = 8_128;
}
