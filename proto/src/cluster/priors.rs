//! What links usually do, for those that no one measured: always marked as assumed.
//!
//! The bandwidths are those that NCCL reckons with (`src/graph/topo.h`), per link and one way; the
//! latencies are of the order of its own defaults for the simple protocol.

use super::catalog::{self, Interconnect, NvLinkGeneration, NvLinks};
use super::link::{Link, LinkClass, LinkOrigin};
use crate::cluster::device::GpuLink;

/// Bytes per second of one NVLink, by the compute capability as NCCL writes it: 90 is 9.0.
pub fn nvlink_by_capability(sm: u32) -> f64 {
    match sm {
        ..=60 => 18.0e9,
        86 => 12.0e9,
        61..=89 => 20.0e9,
        90..=99 => 20.6e9,
        100..=109 => 40.1e9,
        _ => 31.2e9,
    }
}

/// Bytes per second of one xGMI link, by the architecture as RCCL writes it: `gfx942`, or 942 (RCCL, `src/graph/topo.h`).
pub fn xgmi_by_architecture(gcn: &str) -> f64 {
    match gcn.trim().trim_start_matches("gfx") {
        newer if newer.starts_with("94") || newer.starts_with("95") => 48.0e9,
        "90a" | "910" => 36.0e9,
        _ => 24.0e9,
    }
}

/// Bytes per second of one lane of PCIe: NCCL has 12 GB/s for 16 lanes of the third generation, and each
/// generation doubles that.
pub fn pcie(generation: u32, lanes: u32) -> f64 {
    let third = 12.0e9 / 16.0;
    let doublings = f64::from(generation.clamp(1, 7)) - 3.0;
    third * f64::from(lanes.clamp(1, 32)) * doublings.exp2()
}

/// Bytes per second between the sockets of a machine, where nothing is known of them: NCCL's Skylake.
const SOCKETS: f64 = 10.0e9;
/// Between CPU slots, which add up gradients through sockets and the host's memory: 1.5 to 1.6 GB/s as a ring between two, as
/// `loadmaster cluster measure` printed on 2026-11-29 (version 0.1.0, two cores of an EPYC). One way it was 2.8 to 3.0 GB/s.
const HOST_MEMORY: f64 = 1.5e9;
/// A network card of 100 Gbit/s.
const NETWORK: f64 = 12.0e9;

/// A link between two GPUs of a node: `count` NVLinks or xGMI links of `per_link` bytes per second each, or what PCIe and
/// sockets let through.
pub fn between_gpus(class: LinkClass, count: u32, per_link: f64, pcie: f64) -> Link {
    let (bytes_per_second, latency_seconds) = match class {
        LinkClass::NvLink | LinkClass::ChipToChip | LinkClass::Xgmi => {
            (per_link * f64::from(count.max(1)), 2e-6)
        }
        LinkClass::PcieBridge | LinkClass::PcieBridges | LinkClass::HostBridge => (pcie, 5e-6),
        LinkClass::NumaNode | LinkClass::System => (pcie.min(SOCKETS), 8e-6),
    };
    Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Assumed }
}

/// A link between two GPUs, as their driver describes it.
pub fn of_gpu_link(link: &GpuLink) -> Link {
    // What the driver does not say is taken to be PCIe of the third generation, as NCCL does.
    let known = |value: u32, default: u32| if value == 0 { default } else { value };
    let pcie = pcie(known(link.pcie_generation, 3), known(link.pcie_lanes, 16));
    between_gpus(link.class, link.nvlink_count, nvlink_by_capability(link.compute_capability), pcie)
}

/// Between GPUs of which nothing is known: 16 lanes of PCIe 3 under one host bridge.
pub fn unknown_gpus() -> Link {
    between_gpus(LinkClass::HostBridge, 1, 0.0, pcie(3, 16))
}

/// Between two CPU slots of a host.
pub fn host_memory() -> Link {
    Link { bytes_per_second: HOST_MEMORY, latency_seconds: 20e-6, origin: LinkOrigin::Assumed }
}

/// No board links more devices by NVLink without a switch.
const LARGEST_MESH: u32 = 4;

/// Between two nodes.
pub fn network() -> Link {
    Link { bytes_per_second: NETWORK, latency_seconds: 15e-6, origin: LinkOrigin::Assumed }
}

/// Bytes per second of one NVLink of this kind of device; none where its row of the catalog has none, or it has no row.
pub fn nvlink_of_kind(kind: &str) -> Option<f64> {
    catalog::find(kind)?.interconnect.nvlink_generation().map(NvLinkGeneration::reached)
}

/// Between two of so many devices of a node of this kind, where nothing but the kind is known: as the catalog says, and
/// [`unknown_gpus`] of a kind that it does not have. Class, number of links, and what they carry together.
pub fn of_kind(kind: &str, devices: u32) -> (LinkClass, u32, Link) {
    if kind == crate::cluster::device::CPU_KIND {
        return (LinkClass::System, 1, host_memory());
    }
    let Some(row) = catalog::find(kind) else { return (LinkClass::HostBridge, 1, unknown_gpus()) };
    let linked = |class, count, per_link| (class, count, between_gpus(class, count, per_link, 0.0));
    match row.interconnect {
        Interconnect::NvLink(NvLinks { count, generation }) => {
            linked(LinkClass::NvLink, count, generation.reached())
        }
        Interconnect::NvLinkMesh(NvLinks { count, generation }) => {
            let others = devices.clamp(2, LARGEST_MESH) - 1;
            linked(LinkClass::NvLink, (count / others).max(1), generation.reached())
        }
        Interconnect::Xgmi(link) => linked(LinkClass::Xgmi, 1, link.reached),
        Interconnect::Pcie { generation, .. } => {
            (LinkClass::HostBridge, 1, between_gpus(LinkClass::HostBridge, 1, 0.0, pcie(generation, 16)))
        }
        Interconnect::ThroughHost { generation } => {
            (LinkClass::System, 1, between_gpus(LinkClass::System, 1, 0.0, pcie(generation, 16)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h100_has_eighteen_links_of_nccls_bandwidth() {
        let (class, count, link) = of_kind("NVIDIA H100 80GB HBM3", 8);
        assert_eq!((class, count), (LinkClass::NvLink, 18));
        assert!((link.bytes_per_second - 370.8e9).abs() < 1e6, "{link:?}");
        assert_eq!(of_kind("NVIDIA H100 PCIe", 8).0, LinkClass::HostBridge);
    }

    /// Without a switch the other devices of the node share a device's NVLinks.
    #[test]
    fn a_mesh_shares_its_links() {
        let of = |kind: &str, devices| {
            let (class, count, link) = of_kind(kind, devices);
            (class, count, (link.bytes_per_second / 1e8).round() / 10.0)
        };
        assert_eq!(of("NVIDIA GH200 480GB", 2), (LinkClass::NvLink, 18, 370.8));
        assert_eq!(of("GH200 96 GB", 4), (LinkClass::NvLink, 6, 123.6));
        assert_eq!(of("AMD Instinct MI300X", 8), (LinkClass::Xgmi, 1, 48.0));
        assert_eq!(of("NVIDIA L40S", 8), (LinkClass::HostBridge, 1, 24.0));
        assert_eq!(of("NVIDIA GeForce RTX 4090", 8), (LinkClass::System, 1, 10.0));
        assert_eq!(of("Some Other GPU", 8), (LinkClass::HostBridge, 1, 12.0));
    }

    #[test]
    fn pcie_doubles_with_each_generation() {
        assert!((pcie(3, 16) - 12e9).abs() < 1.0);
        assert!((pcie(5, 16) - 48e9).abs() < 1.0);
        assert!((pcie(4, 8) - 12e9).abs() < 1.0);
    }
}
