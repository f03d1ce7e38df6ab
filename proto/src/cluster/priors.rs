//! What links usually do, for those that nobody measured: always marked as assumed.
//!
//! The bandwidths are those that NCCL reckons with (`src/graph/topo.h`), per link and one way; the
//! latencies are of the order of its own defaults for the simple protocol.

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

/// Bytes per second of one NVLink, by its generation as NVML tells it.
pub fn nvlink_by_generation(generation: u32) -> f64 {
    match generation {
        ..=1 => 18.0e9,
        2 | 3 => 20.0e9,
        4 => 20.6e9,
        _ => 40.1e9,
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
/// Between CPU slots: a copy through the host's memory, of which a socket carries one each way.
const HOST_MEMORY: f64 = 5.0e9;
/// A network card of 100 Gbit/s.
const NETWORK: f64 = 12.0e9;

/// A link between two GPUs of a node: `count` NVLinks of `per_nvlink` bytes per second each, or what PCIe and
/// sockets let through.
pub fn between_gpus(class: LinkClass, count: u32, per_nvlink: f64, pcie: f64) -> Link {
    let (bytes_per_second, latency_seconds) = match class {
        LinkClass::NvLink | LinkClass::ChipToChip => (per_nvlink * f64::from(count.max(1)), 2e-6),
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

/// Between two nodes.
pub fn network() -> Link {
    Link { bytes_per_second: NETWORK, latency_seconds: 15e-6, origin: LinkOrigin::Assumed }
}

/// The NVLinks of a kind of device, by its product name: number, and generation.
pub fn nvlinks_of(kind: &str) -> Option<(u32, u32)> {
    // Cards for PCIe slots have at most bridges between pairs of them, so only modules are listed.
    const KINDS: [(&[&str], (u32, u32)); 8] = [
        (&["P100", "SXM2"], (4, 1)),
        (&["V100", "SXM"], (6, 2)),
        (&["A100", "SXM"], (12, 3)),
        (&["H100", "80GB HBM3"], (18, 4)),
        (&["H100", "SXM"], (18, 4)),
        (&["H200"], (18, 4)),
        (&["B200"], (18, 5)),
        (&["B300"], (18, 5)),
    ];
    if kind.contains("PCIe") || kind.contains("NVL") {
        return None;
    }
    KINDS.into_iter().find(|(words, _)| words.iter().all(|word| kind.contains(word))).map(|(_, found)| found)
}

/// Between two devices of a node of this kind, where nothing but the kind is known.
pub fn of_kind(kind: &str) -> (LinkClass, u32, Link) {
    if kind == crate::cluster::device::CPU_KIND {
        return (LinkClass::System, 1, host_memory());
    }
    match nvlinks_of(kind) {
        Some((count, generation)) => {
            let link = between_gpus(LinkClass::NvLink, count, nvlink_by_generation(generation), 0.0);
            (LinkClass::NvLink, count, link)
        }
        None => (LinkClass::HostBridge, 1, unknown_gpus()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h100_has_eighteen_links_of_nccls_bandwidth() {
        let (class, count, link) = of_kind("NVIDIA H100 80GB HBM3");
        assert_eq!((class, count), (LinkClass::NvLink, 18));
        assert!((link.bytes_per_second - 370.8e9).abs() < 1e6, "{link:?}");
        assert_eq!(of_kind("NVIDIA H100 PCIe").0, LinkClass::HostBridge);
    }

    #[test]
    fn pcie_doubles_with_each_generation() {
        assert!((pcie(3, 16) - 12e9).abs() < 1.0);
        assert!((pcie(5, 16) - 48e9).abs() < 1.0);
        assert!((pcie(4, 8) - 12e9).abs() < 1.0);
    }
}
