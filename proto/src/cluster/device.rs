//! Device slots of a worker.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::cluster::LinkClass;
use crate::error::{Invalid, in_range, required};
use crate::name::{INVISIBLE, checked_device_uuid, is_invisible};
use crate::wire::{ToWire, field, v1};
use crate::{choice, message};

/// Most links or lanes side by side that are believed.
const MOST_LINKS: u32 = 1_024;

/// What a device computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// A share of the host's memory with an enforced capacity.
    Cpu,
    /// An NVIDIA GPU, or a share of its memory.
    Cuda,
}

choice! {
    Backend = v1::Backend, else "is not a backend of a device. Use BACKEND_CPU or BACKEND_CUDA" {
        Cpu,
        Cuda,
    }
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

message! {
    Device <=> v1::Device {
        id,
        backend,
        kind,
        capacity = capacity_bytes,
        physical = physical_bytes,
        uuid,
        ordinal,
        driver_version,
        pci_bus_id,
    } check Device::checked
}

impl Device {
    fn checked(self) -> Result<Self, Invalid> {
        for (field, text, shortest, longest) in [
            ("id", &self.id, 1, 128),
            ("kind", &self.kind, 1, 128),
            ("uuid", &self.uuid, 0, 128),
            ("driver_version", &self.driver_version, 0, 128),
            ("pci_bus_id", &self.pci_bus_id, 0, 64),
        ] {
            line(field, text, shortest..=longest)?;
        }
        checked_device_uuid("uuid", &self.uuid)?;
        in_range("capacity_bytes", self.capacity.0, 1..=i64::MAX as u64)?;
        Ok(self)
    }
}

/// A text that is stored and shown as it is.
fn line(field: &str, text: &str, bytes: RangeInclusive<usize>) -> Result<(), Invalid> {
    if !bytes.contains(&text.len()) {
        let why = format!("has {} bytes. Use {} to {} bytes", text.len(), bytes.start(), bytes.end());
        return Err(Invalid::field(field, why));
    }
    if text.contains(is_invisible) {
        return Err(Invalid::field(field, INVISIBLE));
    }
    Ok(())
}

impl From<&GpuLink> for v1::GpuLink {
    fn from(link: &GpuLink) -> Self {
        let GpuLink { a_uuid, b_uuid, class, nvlink_count, compute_capability, pcie_generation, pcie_lanes } =
            link;
        Self {
            a_uuid: a_uuid.clone(),
            b_uuid: b_uuid.clone(),
            link_class: class.to_wire(),
            nvlink_count: nvlink_count.to_wire(),
            compute_capability: compute_capability.to_wire(),
            pcie_generation: pcie_generation.to_wire(),
            pcie_lanes: pcie_lanes.to_wire(),
        }
    }
}

impl TryFrom<v1::GpuLink> for GpuLink {
    type Error = Invalid;

    fn try_from(wire: v1::GpuLink) -> Result<Self, Invalid> {
        for (name, text) in [("a_uuid", &wire.a_uuid), ("b_uuid", &wire.b_uuid)] {
            line(name, text, 1..=128)?;
        }
        if wire.a_uuid == wire.b_uuid {
            return Err(Invalid::field(
                "b_uuid",
                "is also the UUID of the first GPU. Use two different GPUs",
            ));
        }
        let class: Option<LinkClass> = field("link_class", wire.link_class)?;
        let small = |name: &str, count: i32| in_range(name, field::<u32, _>(name, count)?, 0..=MOST_LINKS);
        Ok(Self {
            class: required("link_class", class)?,
            nvlink_count: small("nvlink_count", wire.nvlink_count)?,
            compute_capability: small("compute_capability", wire.compute_capability)?,
            pcie_generation: small("pcie_generation", wire.pcie_generation)?,
            pcie_lanes: small("pcie_lanes", wire.pcie_lanes)?,
            a_uuid: wire.a_uuid,
            b_uuid: wire.b_uuid,
        })
    }
}

message! { GpuLink <=> v1::GpuLink }
