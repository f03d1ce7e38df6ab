//! GPUs and the links between them, as NVIDIA's management library shows them. It is loaded at run time.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::LinkClass;
use loadmaster_proto::cluster::device::GpuLink;
use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::PciInfo;
use nvml_wrapper::{Device, Nvml};
use tracing::warn;

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
            warn!(
                gpu.index = index,
                gpu.uuid = uuid,
                "the worker does not offer this GPU, because MIG splits it"
            );
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
    Ok(links_between(&gpus, |one, other| match (uuids.get(one), uuids.get(other)) {
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
        .inspect_err(|error| warn!("the PCIe link between {one} and {other} cannot be read: {error}"));
    match level {
        Ok(TopologyLevel::Internal | TopologyLevel::Single) => LinkClass::PcieBridge,
        Ok(TopologyLevel::Multiple) => LinkClass::PcieBridges,
        Ok(TopologyLevel::HostBridge) => LinkClass::HostBridge,
        Ok(TopologyLevel::Node) => LinkClass::NumaNode,
        Ok(TopologyLevel::System) | Err(_) => LinkClass::System,
    }
}

/// Where a PCI function is: domain, bus, device.
pub(super) type PciAddress = (u32, u32, u32);

/// A GPU with its ends of links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) uuid: String,
    pub(super) address: PciAddress,
    /// What is at the other end of each active NVLink; none where the driver does not say, as of a switch that
    /// another machine manages.
    pub(super) nvlinks: Vec<Option<PciAddress>>,
    /// 90 for compute capability 9.0; 0 where the driver does not say.
    pub(super) compute_capability: u32,
    /// PCIe generation that GPU and slot can do; 0 where the driver does not say.
    pub(super) pcie_generation: u32,
    /// PCIe lanes, likewise.
    pub(super) pcie_lanes: u32,
}

/// The links between all GPUs of a node, each pair once. `ancestor` is what PCIe has in common for two of
/// them, by index.
fn links_between(gpus: &[Ends], ancestor: impl Fn(usize, usize) -> LinkClass) -> Vec<GpuLink> {
    let addresses: Vec<PciAddress> = gpus.iter().map(|gpu| gpu.address).collect();
    // Whatever is no GPU of this node is a switch: all GPUs at switches reach each other.
    let to_switches = |gpu: &Ends| {
        gpu.nvlinks.iter().filter(|end| !end.is_some_and(|end| addresses.contains(&end))).count()
    };
    let to_gpu =
        |gpu: &Ends, other: &Ends| gpu.nvlinks.iter().filter(|end| **end == Some(other.address)).count();
    let mut links = Vec::new();
    for (a, one) in gpus.iter().enumerate() {
        for (b, other) in gpus.iter().enumerate().skip(a + 1) {
            let direct = to_gpu(one, other).min(to_gpu(other, one));
            let count = if direct > 0 { direct } else { to_switches(one).min(to_switches(other)) };
            links.push(GpuLink {
                a_uuid: one.uuid.clone(),
                b_uuid: other.uuid.clone(),
                class: if count > 0 { LinkClass::NvLink } else { ancestor(a, b) },
                nvlink_count: u32::try_from(count).unwrap_or(u32::MAX),
                compute_capability: one.compute_capability.min(other.compute_capability),
                pcie_generation: one.pcie_generation.min(other.pcie_generation),
                pcie_lanes: one.pcie_lanes.min(other.pcie_lanes),
            });
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: Option<PciAddress> = Some((0, 0xc0, 0));

    fn gpu(bus: u32, nvlinks: Vec<Option<PciAddress>>) -> Ends {
        Ends {
            uuid: format!("GPU-{bus}"),
            address: (0, bus, 0),
            nvlinks,
            compute_capability: 90,
            pcie_generation: 5,
            pcie_lanes: 16,
        }
    }

    fn host(_: usize, _: usize) -> LinkClass {
        LinkClass::System
    }

    /// Pins that GPUs at switches count the links of the one that has fewer, whatever the driver says of the
    /// other end.
    #[test]
    fn switches_connect_all_gpus() {
        let gpus = [gpu(1, vec![SWITCH; 18]), gpu(2, vec![None; 18]), gpu(3, vec![SWITCH; 17])];
        let links = links_between(&gpus, host);
        let counts: Vec<u32> = links.iter().map(|link| link.nvlink_count).collect();
        assert_eq!(counts, [18, 17, 17]);
        assert!(links.iter().all(|link| link.class == LinkClass::NvLink && link.compute_capability == 90));
    }

    #[test]
    fn bridges_connect_pairs_and_pcie_the_rest() {
        let gpus = [gpu(1, vec![Some((0, 2, 0)); 4]), gpu(2, vec![Some((0, 1, 0)); 4]), gpu(3, Vec::new())];
        let links = links_between(&gpus, host);
        let seen: Vec<(LinkClass, u32)> = links.iter().map(|link| (link.class, link.nvlink_count)).collect();
        let none = (LinkClass::System, 0);
        assert_eq!(seen, [(LinkClass::NvLink, 4), none, none]);
    }
}
