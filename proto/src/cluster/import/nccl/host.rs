//! How GPUs reach the host's memory, from the tree of PCIe: assumed from widths and speeds of its links.

use std::collections::BTreeMap;

use super::super::super::{CopyLink, HostLink, Link, LinkOrigin, MAX_UPLINKS, NodeCopies, Uplink};
use super::Gpu;

/// Seconds before the first byte of a copy to the host arrives.
const LATENCY: f64 = 5e-6;

/// A GPU's own link is as fast as the slowest on its way up. Where several are below one bridge, they share its link.
pub(super) fn copies(gpus: &[Gpu]) -> NodeCopies {
    let host_links = gpus.iter().map(|gpu| {
        let bytes_per_second = gpu.bridges.iter().map(|of| of.1).fold(gpu.pcie, f64::min);
        let link = Link { bytes_per_second, latency_seconds: LATENCY, origin: LinkOrigin::Assumed };
        // PCIe has lanes of its own for each direction.
        HostLink { device: gpu.dev, link: CopyLink::full_duplex(link) }
    });
    let mut bridges: BTreeMap<usize, (Vec<u32>, f64)> = BTreeMap::new();
    for gpu in gpus {
        for &(bridge, bytes_per_second) in &gpu.bridges {
            bridges
                .entry(bridge.get_usize())
                .or_insert_with(|| (Vec::new(), bytes_per_second))
                .0
                .push(gpu.dev);
        }
    }
    let shared = bridges.into_values().filter(|(devices, _)| devices.len() > 1);
    let uplinks = shared.take(MAX_UPLINKS).map(|(devices, bytes_per_second)| Uplink {
        devices,
        bytes_per_second,
        origin: LinkOrigin::Assumed,
    });
    NodeCopies { host_links: host_links.collect(), uplinks: uplinks.collect(), ..NodeCopies::default() }
}
