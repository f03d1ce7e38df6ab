//! How memory actions copy on a discovered node, and how fast its host updates parameters: what was measured of its workers.

use std::collections::BTreeMap;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::GpuLink;
use loadmaster_proto::cluster::{
    HostLink, HostUpdate, LinkClass, LinkOrigin, NodeCopies, PeerCopies, Uplink,
};
use loadmaster_proto::measure::links::updates::host_updates;
use loadmaster_proto::training::step_kind::StepKind;

use super::{DiscoveredWorker, Slot};

/// What is known of a node's copies; none where nothing was measured and nothing is offered.
pub(super) fn copies(workers: &[&DiscoveredWorker<'_>], slots: &[Slot<'_>]) -> Option<NodeCopies> {
    let offered = workers.iter().map(|worker| worker.host_memory.0).fold(0, u64::saturating_add);
    let host_memory = Some(Bytes(offered.min(i64::MAX as u64))).filter(|memory| memory.0 > 0);
    let mut copies = NodeCopies { host_memory, ..NodeCopies::default() };
    for worker in workers {
        let Some(measured) = worker.measured else { continue };
        let Some(copied) = &measured.copies else { continue };
        // A device that was measured and is not offered any more has no slot.
        let slot = |place: u32| {
            let id = measured.device_ids.get(place as usize)?;
            slots.iter().find(|slot| slot.worker.name == worker.name && slot.device.id == *id)
        };
        let index = |place: u32| slot(place).map(|slot| slot.index);
        let host = copied.devices.iter();
        copies
            .host_links
            .extend(host.filter_map(|of| Some(HostLink { device: index(of.device)?, link: of.host.link() })));
        let uuids: Vec<(u32, &str)> = copied
            .devices
            .iter()
            .filter_map(|of| Some((of.device, slot(of.device)?.device.uuid.as_str())))
            .collect();
        for together in switches(&uuids, worker.links) {
            let devices: Option<Vec<u32>> = together.iter().map(|&place| index(place)).collect();
            let (Some(devices), Some(bytes_per_second)) = (devices, copied.shared_by(&together)) else {
                continue;
            };
            copies.uplinks.push(Uplink { devices, bytes_per_second, origin: LinkOrigin::Measured });
        }
        copies.peers.extend(copied.pairs.iter().filter_map(|pair| {
            Some(PeerCopies { a: index(pair.first)?, b: index(pair.second)?, link: pair.copies.link() })
        }));
    }
    Some(copies).filter(|copies| !copies.is_empty())
}

/// What is known of a host's updates; empty where nothing was measured. Workers of one host share it, so that each kind of step
/// is as fast as for the slowest of them, and reaches together what the one that reaches most has seen.
pub(super) fn updates(workers: &[&DiscoveredWorker<'_>]) -> Vec<HostUpdate> {
    let measured = workers.iter().filter_map(|worker| worker.measured);
    let mut all: BTreeMap<StepKind, HostUpdate> = BTreeMap::new();
    for own in measured.flat_map(|measured| host_updates(&measured.updates)) {
        let known = all.entry(own.step).or_insert(own);
        known.parameters_per_second = known.parameters_per_second.min(own.parameters_per_second);
        let together = known.together_per_second.into_iter().chain(own.together_per_second);
        known.together_per_second = together.reduce(f64::max);
    }
    all.into_values().collect()
}

/// The devices that are below one PCIe switch, as the driver knows it; where it knows of no switch, all together.
fn switches(devices: &[(u32, &str)], links: &[GpuLink]) -> Vec<Vec<u32>> {
    let is_near = |one: &str, other: &str| {
        links.iter().any(|link| {
            let ends = [link.a_uuid.as_str(), link.b_uuid.as_str()];
            (ends == [one, other] || ends == [other, one])
                && matches!(link.class, LinkClass::PcieBridge | LinkClass::PcieBridges)
        })
    };
    let mut groups: Vec<Vec<(u32, &str)>> = Vec::new();
    for &(place, uuid) in devices {
        match groups.iter_mut().find(|group| group.iter().any(|&(_, other)| is_near(uuid, other))) {
            Some(group) => group.push((place, uuid)),
            None => groups.push(vec![(place, uuid)]),
        }
    }
    let places = |group: Vec<(u32, &str)>| group.into_iter().map(|of| of.0).collect();
    if groups.iter().all(|group| group.len() == 1) {
        return vec![devices.iter().map(|of| of.0).collect()];
    }
    groups.into_iter().filter(|group| group.len() > 1).map(places).collect()
}
