//! What a look at GPUs means. Pure, but for [`is_ours`].

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::environment::DeviceSample;
use loadmaster_proto::measure::measurement::Measurement;

use super::Looks;
use crate::process::kernel;

/// What the driver shows of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// Clocks, temperature and throttling.
    pub(super) sample: DeviceSample,
    /// Processes that compute on it.
    pub(super) processes: Vec<GpuProcess>,
}

/// A process on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GpuProcess {
    pub(super) pid: u32,
    /// Bytes that it holds (device ledger), where the driver says.
    pub(super) bytes: Option<u64>,
}

/// A process of someone else on a device of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Foreign {
    device: String,
    process: GpuProcess,
}

/// Longest chain of parents that is followed.
const GENERATIONS: usize = 64;

/// Whether a process is this daemon or descends from it. Orphans of runs are adopted by the daemon, so none
/// of its processes is overlooked.
pub(super) fn is_ours(pid: u32) -> bool {
    descends(pid, std::process::id(), |pid| kernel::process(pid).map(|process| process.parent))
}

pub(super) fn descends(pid: u32, from: u32, parent_of: impl Fn(u32) -> Option<u32>) -> bool {
    std::iter::successors(Some(pid), |&pid| parent_of(pid)).take(GENERATIONS).any(|pid| pid == from)
}

/// Processes on the devices of a run that are not ours, each GPU looked at once.
pub(super) fn foreign(devices: &[Device], looks: &Looks, is_ours: impl Fn(u32) -> bool) -> Vec<Foreign> {
    let gpus = looks.iter().filter_map(|(uuid, look)| {
        devices.iter().find(|device| device.uuid == *uuid).map(|device| (device, look))
    });
    gpus.flat_map(|(device, look)| {
        let others = look.processes.iter().filter(|process| !is_ours(process.pid));
        others.map(|&process| Foreign { device: device.id.clone(), process })
    })
    .collect()
}

/// Who uses what, for messages.
pub(super) fn describe(foreign: &[Foreign]) -> String {
    let each = foreign.iter().map(|Foreign { device, process }| {
        let bytes =
            process.bytes.map_or_else(|| "unknown bytes".to_owned(), |bytes| Bytes(bytes).to_string());
        format!("{device} is used by process {} ({bytes}, according to the NVIDIA driver)", process.pid)
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Why a run does not begin, and what to do.
pub(super) fn refusal(foreign: &[Foreign]) -> String {
    format!(
        "{}. End these processes or offer other GPUs. The worker's setting `allow_shared_devices` permits runs on \
         such GPUs, and marks the measurements as contended.",
        describe(foreign)
    )
}

/// Writes into measurements, one per device and in the order of the devices, what their GPUs looked like.
pub(super) fn stamp(
    measurements: &mut [Measurement],
    devices: &[Device],
    before: &Looks,
    after: &Looks,
    is_ours: impl Fn(u32) -> bool,
) {
    for (measurement, device) in measurements.iter_mut().zip(devices) {
        let sample = |looks: &Looks| looks.get(&device.uuid).map(|look| look.sample.clone());
        let own = std::slice::from_ref(device);
        let environment = &mut measurement.environment;
        environment.before = sample(before);
        environment.after = sample(after);
        environment.contended = is_contended(own, before, after, &is_ours);
    }
}

/// Whether someone else used one of the devices before or after.
pub(super) fn is_contended(
    devices: &[Device],
    before: &Looks,
    after: &Looks,
    is_ours: impl Fn(u32) -> bool,
) -> bool {
    [before, after].into_iter().any(|looks| !foreign(devices, looks, &is_ours).is_empty())
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::cluster::device::Backend;

    use super::*;
    use crate::testing::measurement;

    fn gpu(ordinal: u32) -> Device {
        Device {
            id: format!("gpu{ordinal}"),
            backend: Backend::Cuda,
            kind: "NVIDIA H200".into(),
            capacity: Bytes(100),
            physical: Bytes(100),
            uuid: format!("GPU-{ordinal}"),
            ordinal,
            driver_version: "580.1".into(),
            pci_bus_id: String::new(),
        }
    }

    fn look(clock: u32, processes: &[(u32, Option<u64>)]) -> Look {
        Look {
            sample: DeviceSample { sm_clock_mhz: Some(clock), ..DeviceSample::default() },
            processes: processes.iter().map(|&(pid, bytes)| GpuProcess { pid, bytes }).collect(),
        }
    }

    /// Processes up to 99 are ours.
    fn below_hundred(pid: u32) -> bool {
        pid < 100
    }

    #[test]
    fn a_descendant_is_ours_and_a_stranger_is_not() {
        let parent = |pid: u32| [(5, 4), (4, 3), (9, 1)].iter().find(|(p, _)| *p == pid).map(|(_, of)| *of);
        assert!(descends(5, 3, parent) && descends(3, 3, parent));
        assert!(!descends(9, 3, parent) && !descends(77, 3, parent));
        assert!(is_ours(std::process::id()));
        assert!(!is_ours(1));
    }

    /// Pins that a refusal names device, process and bytes, and what may be done.
    #[test]
    fn a_gpu_that_somebody_else_uses_is_refused_with_pid_and_bytes() {
        let looks = Looks::from([
            ("GPU-0".into(), look(1, &[(5, None)])),
            ("GPU-1".into(), look(1, &[(500, Some(3 << 30))])),
        ]);
        let devices = [gpu(0), gpu(1)];
        let found = foreign(&devices, &looks, below_hundred);
        let text = refusal(&found);
        assert!(text.contains("gpu1 is used by process 500 (3.00 GiB, according to"), "{text}");
        assert!(text.contains("`allow_shared_devices`") && !text.contains("gpu0"), "{text}");
        assert!(foreign(&devices[..1], &looks, below_hundred).is_empty(), "not this run's device");
        let silent = Looks::from([("GPU-0".into(), look(1, &[(700, None)]))]);
        assert!(describe(&foreign(&devices, &silent, below_hundred)).contains("unknown bytes"));
    }

    /// Pins that two slots of one GPU do not take each other's ranks for strangers, and count one once.
    #[test]
    fn shares_of_one_gpu_are_looked_at_once() {
        let share = |id: &str| Device { id: id.into(), ..gpu(0) };
        let looks = Looks::from([("GPU-0".into(), look(1, &[(7, Some(1)), (800, Some(1))]))]);
        assert_eq!(foreign(&[share("gpu0.0"), share("gpu0.1")], &looks, below_hundred).len(), 1);
    }

    /// Pins that a measurement tells of a stranger that came during the run, and of its own GPU alone.
    #[test]
    fn measurements_say_what_their_own_gpu_looked_like() {
        let mut measurements = vec![*measurement(0), *measurement(1)];
        let before = Looks::from([("GPU-0".into(), look(10, &[])), ("GPU-1".into(), look(11, &[]))]);
        let after =
            Looks::from([("GPU-0".into(), look(20, &[])), ("GPU-1".into(), look(21, &[(900, None)]))]);
        stamp(&mut measurements, &[gpu(0), gpu(1)], &before, &after, below_hundred);
        let clock = |sample: &Option<DeviceSample>| sample.as_ref().and_then(|sample| sample.sm_clock_mhz);
        let [first, second] = [&measurements[0].environment, &measurements[1].environment];
        assert_eq!((clock(&first.before), clock(&first.after), first.contended), (Some(10), Some(20), false));
        assert_eq!(
            (clock(&second.before), clock(&second.after), second.contended),
            (Some(11), Some(21), true)
        );
        stamp(&mut measurements, &[gpu(0), gpu(1)], &Looks::new(), &Looks::new(), below_hundred);
        assert_eq!(measurements[1].environment.before, None);
    }
}
