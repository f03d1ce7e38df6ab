//! GPUs, as NVIDIA's management library shows them. It is loaded at run time.

use loadmaster_proto::bytes::Bytes;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use tracing::warn;

use super::{Gpu, InventoryError};

/// What asking the driver yielded.
pub(super) enum Found {
    /// Usable GPUs, in order of their indices.
    Gpus(Vec<Gpu>),
    /// There is no driver, which is normal on a node without GPUs.
    NoDriver(String),
}

impl Found {
    /// The GPUs, where they were asked for by name.
    pub(super) fn ok(self) -> Result<Vec<Gpu>, InventoryError> {
        match self {
            Self::Gpus(gpus) => Ok(gpus),
            Self::NoDriver(reason) => Err(InventoryError::NoDriver(reason)),
        }
    }
}

/// Asks the driver for its GPUs.
pub(super) fn gpus() -> Result<Found, InventoryError> {
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        Err(
            error @ (NvmlError::LibloadingError(_) | NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound),
        ) => {
            return Ok(Found::NoDriver(error.to_string()));
        }
        Err(error) => return Err(InventoryError::Driver(error.to_string())),
    };
    list(&nvml).map(Found::Gpus).map_err(|error| InventoryError::Driver(error.to_string()))
}

fn list(nvml: &Nvml) -> Result<Vec<Gpu>, NvmlError> {
    let driver_version = nvml.sys_driver_version()?;
    let mut gpus = Vec::new();
    for index in 0..nvml.device_count()? {
        let device = nvml.device_by_index(index)?;
        let uuid = device.uuid()?;
        // Its parts have UUIDs of their own and cannot be used through the whole GPU's.
        if device.mig_mode().is_ok_and(|mode| mode.current != 0) {
            warn!(gpu.index = index, gpu.uuid = uuid, "this GPU is split by MIG and is not offered");
            continue;
        }
        gpus.push(Gpu {
            index,
            name: device.name()?,
            uuid,
            memory: Bytes(device.memory_info()?.total),
            driver_version: driver_version.clone(),
        });
    }
    Ok(gpus)
}
