//! Devices.

use std::ops::RangeInclusive;

use super::{to_i32, unsigned};
use crate::bytes::Bytes;
use crate::cluster::device::{Backend, Device, GpuLink};
use crate::error::{Invalid, in_range};
use crate::wire::v1;

/// Most links or lanes side by side that are believed.
const MOST_LINKS: u32 = 1_024;

impl From<&Device> for v1::Device {
    fn from(device: &Device) -> Self {
        let backend = match device.backend {
            Backend::Cpu => v1::Backend::Cpu,
            Backend::Cuda => v1::Backend::Cuda,
        };
        Self {
            id: device.id.clone(),
            backend: backend.into(),
            kind: device.kind.clone(),
            capacity_bytes: device.capacity.to_wire(),
            physical_bytes: device.physical.to_wire(),
            uuid: device.uuid.clone(),
            ordinal: to_i32(device.ordinal),
            driver_version: device.driver_version.clone(),
            pci_bus_id: device.pci_bus_id.clone(),
        }
    }
}

impl TryFrom<v1::Device> for Device {
    type Error = Invalid;

    fn try_from(wire: v1::Device) -> Result<Self, Invalid> {
        let backend = match v1::Backend::try_from(wire.backend) {
            Ok(v1::Backend::Cpu) => Backend::Cpu,
            Ok(v1::Backend::Cuda) => Backend::Cuda,
            Ok(v1::Backend::Unspecified) | Err(_) => {
                return Err(Invalid::field("backend", "must be BACKEND_CPU or BACKEND_CUDA"));
            }
        };
        for (field, text, shortest, longest) in [
            ("id", &wire.id, 1, 128),
            ("kind", &wire.kind, 1, 128),
            ("uuid", &wire.uuid, 0, 128),
            ("driver_version", &wire.driver_version, 0, 128),
            ("pci_bus_id", &wire.pci_bus_id, 0, 64),
        ] {
            line(field, text, shortest..=longest)?;
        }
        let capacity: u64 = unsigned("capacity_bytes", wire.capacity_bytes)?;
        in_range("capacity_bytes", capacity, 1..=i64::MAX as u64)?;
        Ok(Self {
            id: wire.id,
            backend,
            kind: wire.kind,
            capacity: Bytes(capacity),
            physical: Bytes(unsigned("physical_bytes", wire.physical_bytes)?),
            uuid: wire.uuid,
            ordinal: unsigned("ordinal", wire.ordinal)?,
            driver_version: wire.driver_version,
            pci_bus_id: wire.pci_bus_id,
        })
    }
}

/// A text that is stored and shown as it is.
fn line(field: &str, text: &str, bytes: RangeInclusive<usize>) -> Result<(), Invalid> {
    if !bytes.contains(&text.len()) {
        let why = format!("has {} bytes, must have {} to {}", text.len(), bytes.start(), bytes.end());
        return Err(Invalid::field(field, why));
    }
    if text.contains(char::is_control) {
        return Err(Invalid::field(field, "has control characters"));
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
            link_class: v1::LinkClass::from(*class).into(),
            nvlink_count: to_i32(*nvlink_count),
            compute_capability: to_i32(*compute_capability),
            pcie_generation: to_i32(*pcie_generation),
            pcie_lanes: to_i32(*pcie_lanes),
        }
    }
}

impl TryFrom<v1::GpuLink> for GpuLink {
    type Error = Invalid;

    fn try_from(wire: v1::GpuLink) -> Result<Self, Invalid> {
        for (field, text) in [("a_uuid", &wire.a_uuid), ("b_uuid", &wire.b_uuid)] {
            line(field, text, 1..=128)?;
        }
        if wire.a_uuid == wire.b_uuid {
            return Err(Invalid::field("b_uuid", "is that of the first GPU: a link is between two"));
        }
        let class = crate::cluster::wire::link_class_from_wire("link_class", wire.link_class)?;
        let small = |field: &str, value: i32| in_range(field, unsigned::<u32>(field, value)?, 0..=MOST_LINKS);
        Ok(Self {
            class: class.ok_or_else(|| Invalid::field("link_class", "is required"))?,
            nvlink_count: small("nvlink_count", wire.nvlink_count)?,
            compute_capability: small("compute_capability", wire.compute_capability)?,
            pcie_generation: small("pcie_generation", wire.pcie_generation)?,
            pcie_lanes: small("pcie_lanes", wire.pcie_lanes)?,
            a_uuid: wire.a_uuid,
            b_uuid: wire.b_uuid,
        })
    }
}
