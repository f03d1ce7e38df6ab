//! What connects each two GPUs, from what the driver shows of each of them. Pure.

use loadmaster_proto::cluster::LinkClass;
use loadmaster_proto::cluster::device::GpuLink;

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
pub(super) fn between(gpus: &[Ends], ancestor: impl Fn(usize, usize) -> LinkClass) -> Vec<GpuLink> {
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
        let links = between(&gpus, host);
        let counts: Vec<u32> = links.iter().map(|link| link.nvlink_count).collect();
        assert_eq!(counts, [18, 17, 17]);
        assert!(links.iter().all(|link| link.class == LinkClass::NvLink && link.compute_capability == 90));
    }

    #[test]
    fn bridges_connect_pairs_and_pcie_the_rest() {
        let gpus = [gpu(1, vec![Some((0, 2, 0)); 4]), gpu(2, vec![Some((0, 1, 0)); 4]), gpu(3, Vec::new())];
        let links = between(&gpus, host);
        let seen: Vec<(LinkClass, u32)> = links.iter().map(|link| (link.class, link.nvlink_count)).collect();
        let none = (LinkClass::System, 0);
        assert_eq!(seen, [(LinkClass::NvLink, 4), none, none]);
    }
}
