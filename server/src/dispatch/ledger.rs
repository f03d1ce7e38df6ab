//! Which devices of a worker are free. Pure book-keeping, no I/O.
//!
//! CPU slots share the host's cores: runs that had to share theirs would be timed while they wait for each
//! other. So no more slots work at once than have a core for each of their threads, but for a run that needs
//! more than that: it works alone. For the same reason no two runs are on shares of one GPU at once.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use loadmaster_proto::cluster::device::{Backend, Device};
use loadmaster_proto::name::RunName;
use tokio::time::Instant;

use crate::store::records::FreeDevice;

/// A run under one fence.
pub(super) type LeaseKey = (RunName, i64);

#[derive(Debug)]
struct Held {
    devices: Vec<String>,
    /// When the lease was sent, or last named in a heartbeat.
    seen: Instant,
}

/// The devices of one worker and the leases that occupy them.
#[derive(Debug)]
pub(super) struct DeviceLedger {
    devices: Vec<Device>,
    /// CPU slots that can work at once, each with its own cores; none where no one knows.
    slots_at_once: Option<u32>,
    held: HashMap<LeaseKey, Held>,
    /// How long heartbeats may leave out a lease before its devices count as free. Heartbeats that
    /// leave it out may have been on their way, several at once, when the lease was sent.
    patience: Duration,
}

impl DeviceLedger {
    /// All devices free.
    pub(super) fn new(devices: Vec<Device>, slots_at_once: Option<u32>, patience: Duration) -> Self {
        Self { devices, slots_at_once, held: HashMap::new(), patience }
    }

    /// All devices of the worker.
    pub(super) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The free devices that a run may take now, in the worker's order but for CPU slots, the largest of which
    /// come first.
    pub(super) fn free(&self) -> Vec<FreeDevice> {
        let (mut slots, others): (Vec<&Device>, Vec<&Device>) =
            self.free_devices().partition(|device| device.backend == Backend::Cpu);
        let all = self.devices.iter().filter(|device| device.backend == Backend::Cpu).count();
        let working = all - slots.len();
        // An idle worker offers all of them, or a run that needs more than can work at once would never begin.
        if let Some(most) = self.slots_at_once.filter(|_| working > 0) {
            slots.sort_by_key(|slot| Reverse(slot.capacity));
            slots.truncate((most as usize).saturating_sub(working));
        }
        slots.into_iter().chain(others).map(offered).collect()
    }

    /// All devices, free or not, in the worker's order.
    pub(super) fn all(&self) -> Vec<FreeDevice> {
        self.devices.iter().map(offered).collect()
    }

    fn free_devices(&self) -> impl Iterator<Item = &Device> {
        let held = |device: &Device| self.held.values().any(|held| held.devices.contains(&device.id));
        self.devices.iter().filter(move |device| {
            !held(device) && !self.devices.iter().any(|other| share_a_gpu(device, other) && held(other))
        })
    }

    /// Occupies `count` free devices of `kind` with at least `min_capacity` bytes; the smallest
    /// that fit, so that large ones stay free for runs that need them, and of these such as are on different GPUs.
    /// None: too few.
    pub(super) fn take(
        &mut self,
        key: LeaseKey,
        kind: &str,
        min_capacity: u64,
        count: u32,
        now: Instant,
    ) -> Option<Vec<String>> {
        let mut fitting: Vec<&Device> = self
            .free_devices()
            .filter(|device| device.kind == kind && device.capacity.0 >= min_capacity)
            .collect();
        let count = usize::try_from(count).ok().filter(|&count| count <= fitting.len())?;
        let shares_before = |index: usize, device: &Device| {
            self.devices[..index].iter().filter(|other| share_a_gpu(device, other)).count()
        };
        let place = |device: &Device| self.devices.iter().position(|other| other.id == device.id);
        fitting.sort_by_key(|device| {
            (device.capacity, place(device).map_or(0, |index| shares_before(index, device)))
        });
        let devices: Vec<String> = fitting.into_iter().take(count).map(|device| device.id.clone()).collect();
        self.held.insert(key, Held { devices: devices.clone(), seen: now });
        Some(devices)
    }

    /// A lease that the worker says it holds.
    pub(super) fn adopt(&mut self, key: LeaseKey, devices: Vec<String>, now: Instant) {
        self.held.insert(key, Held { devices, seen: now });
    }

    /// Frees the devices of a lease.
    pub(super) fn release(&mut self, key: &LeaseKey) {
        self.held.remove(key);
    }

    /// Whether the lease occupies devices.
    #[cfg(test)]
    fn holds(&self, key: &LeaseKey) -> bool {
        self.held.contains_key(key)
    }

    /// Takes note of a heartbeat that names `alive` with their devices; a lease that was left out for
    /// long is over. One that is not known any more occupies its devices again: the worker knows best.
    pub(super) fn heartbeat(&mut self, alive: Vec<(LeaseKey, Vec<String>)>, now: Instant) {
        for (key, devices) in alive {
            self.held.entry(key).and_modify(|held| held.seen = now).or_insert(Held { devices, seen: now });
        }
        let patience = self.patience;
        self.held.retain(|_, held| now.duration_since(held.seen) < patience);
    }
}

/// Whether two devices are different shares of one GPU.
fn share_a_gpu(one: &Device, other: &Device) -> bool {
    let is_gpu = one.backend == Backend::Cuda && !one.uuid.is_empty();
    is_gpu && one.uuid == other.uuid && one.id != other.id
}

fn offered(device: &Device) -> FreeDevice {
    FreeDevice { kind: device.kind.clone(), capacity: device.capacity.0 }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::cluster::device::{Backend, CPU_KIND};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    fn ledger(capacities: &[u64]) -> DeviceLedger {
        DeviceLedger::new(devices(capacities), None, PATIENCE)
    }

    fn devices(capacities: &[u64]) -> Vec<Device> {
        let device = |(ordinal, &capacity): (u32, &u64)| Device {
            id: format!("cpu{ordinal}"),
            backend: Backend::Cpu,
            kind: CPU_KIND.to_owned(),
            capacity: Bytes(capacity),
            physical: Bytes(capacity),
            uuid: String::new(),
            ordinal,
            driver_version: String::new(),
            pci_bus_id: String::new(),
        };
        (0..).zip(capacities).map(device).collect()
    }

    fn key(token: i64) -> LeaseKey {
        (RunName::from_id("r").unwrap(), token)
    }

    #[test]
    fn a_run_takes_the_smallest_devices_that_fit_or_none_at_all() {
        let mut ledger = ledger(&[8, 2, 4, 4]);
        let now = Instant::now();
        assert_eq!(ledger.take(key(1), "gpu", 0, 1, now), None);
        assert_eq!(ledger.take(key(1), CPU_KIND, 4, 4, now), None);
        assert_eq!(ledger.free().len(), 4);
        let taken = ledger.take(key(1), CPU_KIND, 3, 2, now).unwrap();
        assert_eq!(taken, ["cpu2", "cpu3"]);
        assert_eq!(ledger.free().iter().map(|free| free.capacity).collect::<Vec<_>>(), [8, 2]);
        ledger.release(&key(1));
        assert_eq!(ledger.free().len(), 4);
    }

    /// Four slots on two cores: two runs of one slot side by side, and the larger slots stay on offer.
    #[test]
    fn no_more_slots_work_at_once_than_have_cores() {
        let mut ledger = DeviceLedger::new(devices(&[2, 2, 4, 8]), Some(2), PATIENCE);
        let now = Instant::now();
        let free =
            |ledger: &DeviceLedger| -> Vec<u64> { ledger.free().iter().map(|free| free.capacity).collect() };
        assert_eq!(free(&ledger), [2, 2, 4, 8], "idle, it offers all");
        ledger.take(key(1), CPU_KIND, 1, 1, now).unwrap();
        assert_eq!(free(&ledger), [8], "the largest, which any run fits that fits one of those left");
        ledger.take(key(2), CPU_KIND, 3, 1, now).unwrap();
        assert!(free(&ledger).is_empty());
        ledger.release(&key(1));
        assert_eq!(free(&ledger), [8]);
    }

    /// A run that needs more slots than have cores begins once the worker is idle, and keeps it to itself.
    #[test]
    fn a_run_that_needs_more_than_the_cores_works_alone() {
        let mut ledger = DeviceLedger::new(devices(&[2, 2, 2, 2]), Some(2), PATIENCE);
        let now = Instant::now();
        ledger.take(key(1), CPU_KIND, 1, 1, now).unwrap();
        assert_eq!(ledger.free().len(), 1, "three are not on offer while another run works");
        ledger.release(&key(1));
        assert_eq!(ledger.free().len(), 4);
        ledger.take(key(2), CPU_KIND, 1, 3, now).unwrap();
        assert!(ledger.free().is_empty());
    }

    #[test]
    fn cores_limit_no_gpus() {
        let mut all = devices(&[2, 2]);
        all.extend(devices(&[7, 7]).into_iter().enumerate().map(|(index, device)| Device {
            id: format!("gpu{index}"),
            backend: Backend::Cuda,
            kind: "gpu".to_owned(),
            ..device
        }));
        let mut ledger = DeviceLedger::new(all, Some(1), PATIENCE);
        ledger.take(key(1), CPU_KIND, 1, 1, Instant::now()).unwrap();
        ledger.take(key(2), "gpu", 1, 1, Instant::now()).unwrap();
        assert_eq!(ledger.free(), [FreeDevice { kind: "gpu".to_owned(), capacity: 7 }]);
    }

    /// Two GPUs of two shares: a run of one share keeps the other one of its GPU idle, and one of two takes both GPUs
    /// rather than both shares of one.
    #[test]
    fn no_two_runs_are_on_shares_of_one_gpu() {
        let share = |(index, device): (usize, Device)| Device {
            id: format!("gpu{}.{}", index / 2, index % 2),
            backend: Backend::Cuda,
            kind: "gpu".to_owned(),
            uuid: format!("GPU-{}", index / 2),
            ..device
        };
        let all = devices(&[7; 4]).into_iter().enumerate().map(share).collect();
        let mut ledger = DeviceLedger::new(all, None, PATIENCE);
        let now = Instant::now();
        assert_eq!(ledger.take(key(1), "gpu", 1, 2, now).unwrap(), ["gpu0.0", "gpu1.0"]);
        assert!(ledger.free().is_empty());
        ledger.release(&key(1));
        assert_eq!(ledger.take(key(2), "gpu", 1, 1, now).unwrap(), ["gpu0.0"]);
        assert_eq!((ledger.free().len(), ledger.take(key(3), "gpu", 1, 3, now)), (2, None));
        assert_eq!(ledger.take(key(3), "gpu", 1, 2, now).unwrap(), ["gpu1.0", "gpu1.1"]);
        ledger.release(&key(2));
        assert_eq!(ledger.take(key(4), "gpu", 1, 2, now).unwrap(), ["gpu0.0", "gpu0.1"]);
    }

    #[test]
    fn heartbeats_that_cross_a_lease_do_not_free_it_but_lasting_silence_does() {
        let mut ledger = ledger(&[2, 2]);
        let start = Instant::now();
        ledger.take(key(1), CPU_KIND, 0, 2, start).unwrap();
        for _ in 0..5 {
            ledger.heartbeat(Vec::new(), start + PATIENCE / 2);
        }
        assert!(ledger.holds(&key(1)));
        ledger.heartbeat(vec![(key(1), Vec::new())], start + PATIENCE);
        ledger.heartbeat(Vec::new(), start + PATIENCE * 3 / 2);
        assert!(ledger.holds(&key(1)));
        ledger.heartbeat(Vec::new(), start + PATIENCE * 2);
        assert!(!ledger.holds(&key(1)));
    }

    #[test]
    fn devices_that_a_worker_says_are_taken_are_not_free() {
        let mut ledger = ledger(&[2, 2]);
        ledger.heartbeat(vec![(key(7), vec!["cpu0".to_owned()]), (key(8), Vec::new())], Instant::now());
        assert_eq!(ledger.free().len(), 1);
        assert_eq!(ledger.take(key(9), CPU_KIND, 0, 1, Instant::now()).unwrap(), ["cpu1"]);
    }

    #[test]
    fn an_adopted_lease_occupies_its_devices() {
        let mut ledger = ledger(&[2, 2]);
        ledger.adopt(key(7), vec!["cpu1".to_owned()], Instant::now());
        assert_eq!(ledger.free().len(), 1);
        assert_eq!(ledger.take(key(8), CPU_KIND, 0, 2, Instant::now()), None);
    }
}
