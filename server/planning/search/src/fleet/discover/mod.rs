//! The cluster of connected workers: one node per host.
//!
//! A link is taken from the newest measurement of its worker, else from the GPU driver's description, else from the catalog of
//! device kinds. Each link records its origin. Copies and CPU optimizer steps are as measured.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, Device, GpuLink};
use loadmaster_proto::cluster::{
    Cluster, ClusterDevice, ClusterParts, ClusterSource, DeviceKind, DeviceLink, HostLink, HostUpdate, Link,
    LinkClass, LinkOrigin, Node, NodeCopies, PeerCopies, Uplink, doubts, priors,
};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::links::LinkMeasurement;
use loadmaster_proto::measure::links::updates::host_updates;
use loadmaster_proto::training::step_kind::StepKind;
use loadmaster_proto::warning::{Warning, WarningCode};

/// A worker, as far as a cluster is concerned.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveredWorker<'a> {
    /// Its resource name, `workers/node1`.
    pub name: String,
    /// Its host; the worker's id stands in where it is empty.
    pub host: &'a str,
    pub devices: Vec<&'a Device>,
    /// What its driver knows of the links between its GPUs.
    pub links: &'a [GpuLink],
    /// What was measured of its links last.
    pub measured: Option<&'a LinkMeasurement>,
    /// Memory of its host that it offers to runs.
    pub host_memory: Bytes,
}

/// The cluster of these workers. Links are as measured, or else as drivers describe them, or else assumed; copies of memory
/// actions and updates on hosts are as measured, or else nothing is said of them. The network between nodes is as given, or else assumed.
///
/// # Errors
/// When no device is left, or there is more of anything than a cluster may have.
pub fn discover(
    workers: &[DiscoveredWorker<'_>],
    network_bytes_per_second: Option<f64>,
) -> Result<Cluster, Invalid> {
    let mut hosts: BTreeMap<&str, Vec<&DiscoveredWorker<'_>>> = BTreeMap::new();
    for worker in workers.iter().filter(|worker| !worker.devices.is_empty()) {
        // A node's name has no slashes.
        let id = worker.name.rsplit('/').next().unwrap_or(&worker.name);
        let host = if worker.host.is_empty() { id } else { worker.host };
        hosts.entry(host).or_default().push(worker);
    }
    let kinds = kinds(workers);
    let assumed = priors::network();
    let network = match network_bytes_per_second {
        Some(bytes_per_second) => Link { bytes_per_second, origin: LinkOrigin::Given, ..assumed },
        None => assumed,
    };
    let is_alone = hosts.len() == 1 && network_bytes_per_second.is_none();
    let mut warnings = Vec::new();
    let nodes = hosts
        .into_iter()
        .map(|(host, workers)| node(host, &workers, &kinds, (!is_alone).then_some(network), &mut warnings))
        .collect();
    Cluster::new(ClusterParts {
        kinds,
        nodes,
        tiers: Vec::new(),
        domains: Vec::new(),
        source: ClusterSource::Workers,
        warnings,
    })
}

/// A kind has the most that any of its devices has; those with less say so themselves.
fn kinds(workers: &[DiscoveredWorker<'_>]) -> Vec<DeviceKind> {
    let mut kinds: BTreeMap<&str, DeviceKind> = BTreeMap::new();
    for device in workers.iter().flat_map(|worker| &worker.devices) {
        let memory = device.physical.max(device.capacity);
        let kind = kinds.entry(&device.kind).or_insert_with(|| DeviceKind {
            name: device.kind.clone(),
            memory,
            usable: device.capacity,
            hourly_price: None,
        });
        kind.memory = kind.memory.max(memory);
        kind.usable = kind.usable.max(device.capacity);
    }
    kinds.into_values().collect()
}

/// A device with the worker that offers it.
struct Slot<'a> {
    worker: &'a DiscoveredWorker<'a>,
    device: &'a Device,
    index: u32,
}

fn node(
    host: &str,
    workers: &[&DiscoveredWorker<'_>],
    kinds: &[DeviceKind],
    network: Option<Link>,
    warnings: &mut Vec<Warning>,
) -> Node {
    let devices: Vec<(&DiscoveredWorker<'_>, &Device)> =
        workers.iter().flat_map(|worker| worker.devices.iter().map(|device| (*worker, *device))).collect();
    let indices = indices(&devices);
    let slots: Vec<Slot<'_>> = devices
        .into_iter()
        .zip(indices)
        .map(|((worker, device), index)| Slot { worker, device, index })
        .collect();
    let (links, shared) = links(&slots);
    warnings.extend(without_nvlink(host, workers));
    for kind in guessed(&slots) {
        let warning = doubts::unlisted_kind(kind);
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    let usable = |device: &Device| -> Option<Bytes> {
        let kind = kinds.iter().find(|kind| kind.name == device.kind);
        kind.filter(|kind| device.capacity < kind.usable).map(|_| device.capacity)
    };
    let driver = slots.iter().map(|slot| slot.device.driver_version.as_str()).find(|of| !of.is_empty());
    Node {
        name: host.to_owned(),
        labels: BTreeMap::new(),
        driver_version: driver.unwrap_or_default().to_owned(),
        devices: slots
            .iter()
            .map(|slot| ClusterDevice {
                index: slot.index,
                kind: slot.device.kind.clone(),
                uuid: slot.device.uuid.clone(),
                pci_bus_id: slot.device.pci_bus_id.clone(),
                slot: format!("{}/{}", slot.worker.name, slot.device.id),
                usable: usable(slot.device),
            })
            .collect(),
        link: shared.map(|(_, link)| link),
        link_class: shared.and_then(|(class, _)| class),
        links,
        network,
        network_links: None,
        copies: copies(workers, &slots),
        updates: updates(workers),
    }
}

/// By device, its index in the node: a GPU's is the driver's own, which is how frameworks name it, and slots of the CPU are counted
/// behind GPUs. Their places where devices have the same one: shares of a GPU, or slots of several workers.
fn indices(devices: &[(&DiscoveredWorker<'_>, &Device)]) -> Vec<u32> {
    let is_gpu = |device: &Device| device.backend == Backend::Cuda;
    let gpus = devices.iter().filter(|(_, device)| is_gpu(device)).map(|(_, device)| device.ordinal);
    let behind = gpus.max().map_or(0, |last| last.saturating_add(1));
    let index = |device: &Device| {
        if is_gpu(device) { device.ordinal } else { behind.saturating_add(device.ordinal) }
    };
    let own: Vec<u32> = devices.iter().map(|(_, device)| index(device)).collect();
    let are_unique = own.iter().collect::<BTreeSet<_>>().len() == own.len();
    if are_unique { own } else { (0..).take(own.len()).collect() }
}

type Shared = (Option<LinkClass>, Link);

/// The link of each pair, or one for all where they are the same.
fn links(slots: &[Slot<'_>]) -> (Vec<DeviceLink>, Option<Shared>) {
    let mut links = Vec::new();
    for (place, one) in slots.iter().enumerate() {
        for other in slots.iter().skip(place + 1) {
            let (class, count, link) = between(one, other, u32::try_from(slots.len()).unwrap_or(u32::MAX));
            links.push(DeviceLink { a: one.index, b: other.index, class, count, link });
        }
    }
    let mut pairs = links.iter().map(|of| (of.class, of.count, of.link));
    match pairs.next() {
        None => (links, None),
        Some(first) if first.1 == 1 && pairs.all(|pair| pair == first) => {
            (Vec::new(), Some((first.0, first.2)))
        }
        Some(_) => (links, None),
    }
}

/// Measured, or as the driver describes it, or assumed.
fn between(one: &Slot<'_>, other: &Slot<'_>, devices: u32) -> (Option<LinkClass>, u32, Link) {
    let driver = described(one, other);
    let (class, count, link) = match &driver {
        Some(found) => (found.class, found.nvlink_count.max(1), priors::of_gpu_link(found)),
        // Shares of one GPU, and whatever is not two GPUs, exchange through the host's memory.
        None if one.device.uuid == other.device.uuid || !are_gpus(one, other) => {
            (LinkClass::System, 1, priors::host_memory())
        }
        None => priors::of_kind(&one.device.kind, devices),
    };
    (Some(class), count, measured(one, other).unwrap_or(link))
}

/// What was measured between two devices of one worker.
fn measured(one: &Slot<'_>, other: &Slot<'_>) -> Option<Link> {
    let measured = one.worker.measured.filter(|_| one.worker.name == other.worker.name)?;
    let place =
        |id: &str| measured.device_ids.iter().position(|of| of == id).and_then(|at| u32::try_from(at).ok());
    let (a, b) = (place(&one.device.id)?, place(&other.device.id)?);
    let pair = measured.pairs.iter().find(|pair| (pair.first, pair.second) == (a.min(b), a.max(b)))?;
    // What slots add up goes through the host's memory several times; the link between two says nothing of that.
    let groups =
        measured.groups.iter().filter(|group| [a, b].iter().all(|place| group.devices.contains(place)));
    let ring = groups.min_by_key(|group| group.devices.len()).filter(|_| !are_gpus(one, other));
    let most = ring.map_or(f64::INFINITY, |ring| ring.link.bytes_per_second);
    Some(Link { bytes_per_second: pair.link.bytes_per_second.min(most), ..pair.link })
}

/// Kinds that the catalog does not have, of devices between which nothing but their kind says what the link is.
fn guessed<'a>(slots: &'a [Slot<'_>]) -> BTreeSet<&'a str> {
    let unlisted = slots.iter().enumerate().filter(|(_, slot)| doubts::is_unlisted(&slot.device.kind));
    let is_guess = |one: &Slot<'_>, other: &Slot<'_>| {
        are_gpus(one, other)
            && one.device.uuid != other.device.uuid
            && described(one, other).is_none()
            && measured(one, other).is_none()
    };
    let guessed =
        unlisted.filter(|(place, one)| slots.iter().skip(place + 1).any(|other| is_guess(one, other)));
    guessed.map(|(_, slot)| slot.device.kind.as_str()).collect()
}

fn are_gpus(one: &Slot<'_>, other: &Slot<'_>) -> bool {
    [one, other].into_iter().all(|slot| slot.device.backend == Backend::Cuda)
}

fn described<'a>(one: &Slot<'a>, other: &Slot<'a>) -> Option<&'a GpuLink> {
    let ends = [&one.device.uuid, &other.device.uuid];
    let is_between =
        |link: &&GpuLink| [&link.a_uuid, &link.b_uuid] == ends || [&link.b_uuid, &link.a_uuid] == ends;
    one.worker.links.iter().chain(other.worker.links).find(is_between)
}

/// A GPU without NVLink beside others of its node that have it: a fault, not a property of the machine.
fn without_nvlink(host: &str, workers: &[&DiscoveredWorker<'_>]) -> Vec<Warning> {
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for link in workers.iter().flat_map(|worker| worker.links) {
        for uuid in [&link.a_uuid, &link.b_uuid] {
            let most = counts.entry(uuid).or_default();
            *most = (*most).max(link.nvlink_count);
        }
    }
    if counts.values().all(|&count| count == 0) {
        return Vec::new();
    }
    let mut lacking: Vec<&str> =
        counts.into_iter().filter(|&(_, count)| count == 0).map(|(uuid, _)| uuid).collect();
    lacking.sort_unstable();
    lacking
        .iter()
        .map(|uuid| {
            format!("{uuid} in {host} has no NVLink, but other GPUs of the host have. Check the health of this GPU")
        })
        .map(|why| WarningCode::NvlinkMissing.says(why))
        .collect()
}

/// What is known of a node's copies; none where nothing was measured and nothing is offered.
fn copies(workers: &[&DiscoveredWorker<'_>], slots: &[Slot<'_>]) -> Option<NodeCopies> {
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
fn updates(workers: &[&DiscoveredWorker<'_>]) -> Vec<HostUpdate> {
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
