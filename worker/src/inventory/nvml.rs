//! GPUs, as NVIDIA's management library shows them. It is loaded at run time.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::LinkClass;
use loadmaster_proto::cluster::device::GpuLink;
use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::PciInfo;
use nvml_wrapper::{Device, Nvml};
use tracing::warn;

use super::links::{self, Ends, PciAddress};
use super::{Gpu, InventoryError};

/// More NVLinks than any GPU has: the driver says which ones there are.
const MAX_NVLINKS: u32 = 64;

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
            pci_bus_id: device.pci_info().map(|pci| pci.bus_id).unwrap_or_default(),
        });
    }
    Ok(gpus)
}

/// The links between these GPUs.
///
/// # Errors
/// When the driver does not know one of them; what it does not show of one is left out.
pub(super) fn links(uuids: &[&str]) -> Result<Vec<GpuLink>, NvmlError> {
    let nvml = Nvml::init()?;
    let devices = uuids.iter().map(|&uuid| nvml.device_by_uuid(uuid)).collect::<Result<Vec<_>, _>>()?;
    let gpus =
        uuids.iter().zip(&devices).map(|(uuid, device)| ends(uuid, device)).collect::<Result<Vec<_>, _>>()?;
    Ok(links::between(&gpus, |one, other| match (uuids.get(one), uuids.get(other)) {
        (Some(one), Some(other)) => ancestor(&nvml, one, other),
        _ => LinkClass::System,
    }))
}

fn ends(uuid: &str, device: &Device<'_>) -> Result<Ends, NvmlError> {
    let mut nvlinks = Vec::new();
    for link in (0..MAX_NVLINKS).map(|link| device.link_wrapper_for(link)) {
        match link.is_active() {
            Ok(true) => {}
            Ok(false) => continue,
            // No such link, or a GPU without any: those after it are not there either.
            Err(_) => break,
        }
        nvlinks.push(link.remote_pci_info().ok().map(|pci| address(&pci)));
    }
    Ok(Ends {
        uuid: uuid.to_owned(),
        address: address(&device.pci_info()?),
        nvlinks,
        // Not the version of the links: drivers count it in several ways, and NCCL does not look at it either.
        compute_capability: device.cuda_compute_capability().map_or(0, |of| capability(of.major, of.minor)),
        // What it can do, not what it does now: idle links slow down to save power.
        pcie_generation: device.max_pcie_link_gen().unwrap_or(0),
        pcie_lanes: device.max_pcie_link_width().unwrap_or(0),
    })
}

/// 90 for 9.0.
fn capability(major: i32, minor: i32) -> u32 {
    u32::try_from(major.saturating_mul(10).saturating_add(minor)).unwrap_or(0)
}

fn address(pci: &PciInfo) -> PciAddress {
    (pci.domain, pci.bus, pci.device)
}

/// What PCIe has in common for two GPUs; the farthest where the driver does not say.
fn ancestor(nvml: &Nvml, one: &str, other: &str) -> LinkClass {
    let level = nvml
        .device_by_uuid(one)
        .and_then(|one| one.topology_common_ancestor(nvml.device_by_uuid(other)?))
        .inspect_err(|error| warn!("the driver does not say what connects {one} and {other}: {error}"));
    match level {
        Ok(TopologyLevel::Internal | TopologyLevel::Single) => LinkClass::PcieBridge,
        Ok(TopologyLevel::Multiple) => LinkClass::PcieBridges,
        Ok(TopologyLevel::HostBridge) => LinkClass::HostBridge,
        Ok(TopologyLevel::Node) => LinkClass::NumaNode,
        Ok(TopologyLevel::System) | Err(_) => LinkClass::System,
    }
}
