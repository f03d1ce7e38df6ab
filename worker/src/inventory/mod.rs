//! What the node offers: GPUs through NVML, CPU slots otherwise or when asked.

mod cpu;
mod nvml;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, Device, GpuLink};
use loadmaster_proto::measure::offload::CopyPace;
use tracing::{info, warn};

use crate::config::ConfigError;
use crate::config::value::{CpuSlots, GpuSelection};
use crate::host;

/// No device to offer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InventoryError {
    /// GPUs were asked for, but there is no driver.
    #[error(
        "--gpus is set, but this node has no NVIDIA driver: {0}. Install the driver, or use --cpu-slots 4x2GiB."
    )]
    NoDriver(String),
    /// The driver is there and does not answer.
    #[error("the NVIDIA driver failed: {0}. Check nvidia-smi, or offer CPU slots with --cpu-slots 4x2GiB.")]
    Driver(String),
    /// A GPU was named that is not there.
    #[error("--gpus or CUDA_VISIBLE_DEVICES names {wanted}, but this node has {present}. Name one of these.")]
    UnknownGpu {
        /// As the user wrote it.
        wanted: String,
        /// Those that are there.
        present: String,
    },
    /// A scheduler's choice that is not understood.
    #[error("CUDA_VISIBLE_DEVICES cannot be read: {0}. Name the GPUs with --gpus.")]
    Visible(String),
    /// Nothing left.
    #[error("this worker has no GPU to offer. Offer CPU slots with --cpu-slots 4x2GiB.")]
    Nothing,
    /// The rank program cannot use what the node has.
    #[error(
        "this worker offers {gpus} GPUs, but the rank program's libtorch can use only {usable}. Install a libtorch \
         with CUDA, or offer CPU slots with --cpu-slots 4x2GiB."
    )]
    UnusableGpus {
        gpus: usize,
        /// GPUs that libtorch can use.
        usable: u32,
    },
}

/// A GPU as the driver shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Gpu {
    index: u32,
    name: String,
    uuid: String,
    memory: Bytes,
    driver_version: String,
    pci_bus_id: String,
}

/// Every device that this worker offers; see `--cpu-slots` and `--gpus` for which. So much of the host's memory is
/// offered beside them.
pub(crate) fn devices(
    cpu_slots: Option<CpuSlots>,
    gpus: Option<&GpuSelection>,
    gpu_shares: u32,
    host_memory: Bytes,
) -> Result<Vec<Device>, InventoryError> {
    let mut devices = match (gpus, cpu_slots) {
        (None, Some(_)) => Vec::new(),
        (Some(selection), _) => shares(&selected(nvml::gpus()?.ok()?, selection)?, gpu_shares),
        (None, None) => default_devices(gpu_shares, host_memory)?,
    };
    if let Some(slots) = cpu_slots {
        let wanted = slots.capacity.0.saturating_mul(slots.count.into()).saturating_add(host_memory.0);
        if let Some(memory) = host::memory_bytes().filter(|&memory| wanted > memory) {
            warn!(
                wanted_bytes = wanted,
                memory_bytes = memory,
                "CPU slots and --host-memory exceed the CPU memory, so the kernel may kill ranks. Offer less of both"
            );
        }
        devices.extend(cpu::slots(slots));
    }
    if devices.is_empty() { Err(InventoryError::Nothing) } else { Ok(devices) }
}

/// The GPUs that this process may use, or where there is no driver CPU slots, of what is left of the host's memory.
fn default_devices(gpu_shares: u32, host_memory: Bytes) -> Result<Vec<Device>, InventoryError> {
    match nvml::gpus()? {
        nvml::Found::Gpus(gpus) => {
            let variable = std::env::var("CUDA_VISIBLE_DEVICES").ok();
            let selection = visible(variable.as_deref())?.unwrap_or(GpuSelection::All);
            Ok(shares(&selected(gpus, &selection)?, gpu_shares))
        }
        nvml::Found::NoDriver(reason) => {
            info!(reason, "no NVIDIA driver; offering CPU slots");
            let memory = host::memory_bytes().map(|memory| memory.saturating_sub(host_memory.0));
            Ok(cpu::slots(cpu::default_slots(host::cores(), memory)))
        }
    }
}

/// The UUIDs of the GPUs among these devices, each once.
pub(crate) fn gpu_uuids(devices: &[Device]) -> Vec<&str> {
    let mut uuids: Vec<&str> = devices
        .iter()
        .filter(|device| device.backend == Backend::Cuda)
        .map(|device| device.uuid.as_str())
        .collect();
    uuids.dedup();
    uuids
}

/// What the driver knows of the links between the GPUs among these devices. A driver that shows nothing of them is
/// no reason not to offer them: then their links stay unknown until they are measured.
pub(crate) fn gpu_links(devices: &[Device]) -> Vec<GpuLink> {
    let uuids = gpu_uuids(devices);
    if uuids.len() < 2 {
        return Vec::new();
    }
    nvml::links(&uuids).unwrap_or_else(|error| {
        warn!("the links between the GPUs cannot be read: {error}");
        Vec::new()
    })
}

/// Refuses GPUs that the rank program cannot use, before the planner counts on them.
pub(crate) fn check_usable(devices: &[Device], usable: u32) -> Result<(), InventoryError> {
    let gpus = gpu_uuids(devices).len();
    let enough = usize::try_from(usable).is_ok_and(|usable| usable >= gpus);
    if enough { Ok(()) } else { Err(InventoryError::UnusableGpus { gpus, usable }) }
}

/// The selection in `CUDA_VISIBLE_DEVICES`, where a scheduler says which GPUs of a shared node are its
/// job's. `None` where it says nothing, an empty list where it says none.
fn visible(variable: Option<&str>) -> Result<Option<GpuSelection>, InventoryError> {
    match variable.map(str::trim) {
        None => Ok(None),
        Some("" | "-1" | "NoDevFiles") => Ok(Some(GpuSelection::Listed(Vec::new()))),
        Some("all") => Ok(Some(GpuSelection::All)),
        Some(list) => list.parse().map(Some).map_err(InventoryError::Visible),
    }
}

fn selected(gpus: Vec<Gpu>, selection: &GpuSelection) -> Result<Vec<Gpu>, InventoryError> {
    let wanted = match selection {
        GpuSelection::All => return Ok(gpus),
        GpuSelection::Listed(wanted) => wanted,
    };
    for name in wanted {
        if !gpus.iter().any(|gpu| gpu.is(name)) {
            let present: Vec<String> =
                gpus.iter().map(|gpu| format!("{} ({})", gpu.index, gpu.uuid)).collect();
            let present = if present.is_empty() { "none".to_owned() } else { present.join(", ") };
            return Err(InventoryError::UnknownGpu { wanted: name.clone(), present });
        }
    }
    Ok(gpus.into_iter().filter(|gpu| wanted.iter().any(|name| gpu.is(name))).collect())
}

impl Gpu {
    fn is(&self, name: &str) -> bool {
        self.uuid == name || name.parse() == Ok(self.index)
    }
}

/// The slots of each GPU: `gpu0`, or `gpu0.0`, `gpu0.1`, … when it is shared.
fn shares(gpus: &[Gpu], count: u32) -> Vec<Device> {
    let slot = |gpu: &Gpu, share: u32| Device {
        id: if count == 1 { format!("gpu{}", gpu.index) } else { format!("gpu{}.{share}", gpu.index) },
        backend: Backend::Cuda,
        kind: gpu.name.clone(),
        capacity: Bytes(gpu.memory.0 / u64::from(count)),
        physical: gpu.memory,
        uuid: gpu.uuid.clone(),
        ordinal: gpu.index,
        driver_version: gpu.driver_version.clone(),
        pci_bus_id: gpu.pci_bus_id.clone(),
    };
    gpus.iter().flat_map(|gpu| (0..count).map(move |share| slot(gpu, share))).collect()
}

/// Memory of the host that can be offered. Runs are promised all of it, so more than there is would end them by
/// the kernel's hand; where the kernel does not say what there is, the operator knows best.
pub(crate) fn host_memory(offered: Bytes, has: Option<u64>) -> Result<Bytes, ConfigError> {
    match has.map(Bytes) {
        Some(has) if offered > has => Err(ConfigError::HostMemory { offered, has }),
        Some(_) | None => Ok(offered),
    }
}

/// The pace of copies, where there is a slot whose copies could be paced.
pub(crate) fn copy_pace(wanted: Option<CopyPace>, devices: &[Device]) -> Result<CopyPace, ConfigError> {
    match wanted {
        Some(_) if devices.iter().all(|device| device.backend != Backend::Cpu) => Err(ConfigError::NoSlots),
        Some(pace) => Ok(pace),
        None => Ok(CopyPace::default()),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_samples::cpu_slot;

    use super::*;

    fn gpu(index: u32) -> Gpu {
        Gpu {
            index,
            name: "NVIDIA H200".into(),
            uuid: format!("GPU-{index}"),
            memory: Bytes(100),
            driver_version: "580.1".into(),
            pci_bus_id: format!("00000000:{index:02}:00.0"),
        }
    }

    /// Pins the ids and capacities that the planner sees of a shared GPU.
    #[test]
    fn a_shared_gpu_is_several_devices_of_one_physical_size() {
        let devices = shares(&[gpu(0), gpu(3)], 2);
        let ids: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
        assert_eq!(ids, ["gpu0.0", "gpu0.1", "gpu3.0", "gpu3.1"]);
        assert!(devices.iter().all(|device| device.capacity == Bytes(50) && device.physical == Bytes(100)));
        assert_eq!(shares(&[gpu(7)], 1)[0].id, "gpu7");
    }

    #[test]
    fn a_selection_names_gpus_that_are_there() {
        let gpus = vec![gpu(0), gpu(1), gpu(2)];
        let listed = |names: &[&str]| GpuSelection::Listed(names.iter().map(|&name| name.into()).collect());
        assert_eq!(selected(gpus.clone(), &listed(&["2", "GPU-0"])).unwrap(), [gpu(0), gpu(2)]);
        let error = selected(gpus, &listed(&["5"])).unwrap_err().to_string();
        assert!(error.contains("names 5,") && error.contains("1 (GPU-1)"), "{error}");
    }

    /// Pins that GPUs of a shared node that a scheduler gave to someone else are not offered.
    #[test]
    fn a_schedulers_choice_of_gpus_is_respected() {
        assert_eq!(visible(None).unwrap(), None);
        assert_eq!(
            visible(Some("1,GPU-2")).unwrap(),
            Some(GpuSelection::Listed(vec!["1".into(), "GPU-2".into()]))
        );
        for none in ["", "-1", "NoDevFiles"] {
            assert_eq!(visible(Some(none)).unwrap(), Some(GpuSelection::Listed(Vec::new())));
        }
        assert!(visible(Some("MIG-1")).unwrap_err().to_string().contains("--gpus"));
    }

    /// Pins that a libtorch without CUDA is found out at start, not by the first run.
    #[test]
    fn gpus_that_libtorch_cannot_use_are_refused() {
        let devices = shares(&[gpu(0), gpu(1)], 2);
        assert!(check_usable(&devices, 2).is_ok());
        assert!(check_usable(&devices, 0).unwrap_err().to_string().contains("libtorch with CUDA"));
        assert!(check_usable(&cpu::slots(cpu::default_slots(4, None)), 0).is_ok());
    }

    #[test]
    fn more_of_the_host_than_there_is_is_refused_with_what_there_is() {
        assert_eq!(host_memory(Bytes(8), Some(8)).unwrap(), Bytes(8));
        assert_eq!(host_memory(Bytes(8), None).unwrap(), Bytes(8), "the kernel does not say");
        let error = host_memory(Bytes(64 << 30), Some(3 << 30)).unwrap_err().to_string();
        for told in
            ["--host-memory 64.00 GiB (68719476736 bytes)", "of this host, 3.00 GiB (3221225472 bytes)"]
        {
            assert!(error.contains(told), "{told}: {error}");
        }
    }

    #[test]
    fn copies_are_paced_of_cpu_slots_alone() {
        let pace = CopyPace { host: Some(1e9), peer: None };
        let gpu = Device { backend: Backend::Cuda, ..cpu_slot(1) };
        assert_eq!(copy_pace(Some(pace), &[gpu.clone(), cpu_slot(0)]).unwrap(), pace);
        let error = copy_pace(Some(pace), std::slice::from_ref(&gpu)).unwrap_err().to_string();
        assert!(error.contains("--cpu-links") && error.contains("--cpu-slots"), "{error}");
        assert!(copy_pace(None, &[gpu]).unwrap().is_free());
    }
}
