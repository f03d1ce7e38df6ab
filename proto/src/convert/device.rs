//! Devices.

use super::{to_i32, unsigned};
use crate::bytes::Bytes;
use crate::device::{Backend, Device};
use crate::error::Invalid;
use crate::wire::v1;

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
        for (field, text) in [("id", &wire.id), ("kind", &wire.kind)] {
            if text.is_empty() || text.len() > 128 {
                return Err(Invalid::field(field, "must have 1 to 128 characters"));
            }
        }
        let capacity: u64 = unsigned("capacity_bytes", wire.capacity_bytes)?;
        crate::error::in_range("capacity_bytes", capacity, 1..=i64::MAX as u64)?;
        Ok(Self {
            id: wire.id,
            backend,
            kind: wire.kind,
            capacity: Bytes(capacity),
            physical: Bytes(unsigned("physical_bytes", wire.physical_bytes)?),
            uuid: wire.uuid,
            ordinal: unsigned("ordinal", wire.ordinal)?,
            driver_version: wire.driver_version,
        })
    }
}
