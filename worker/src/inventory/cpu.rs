//! CPU slots: shares of the host's memory with an enforced capacity.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, CPU_KIND, Device};

use crate::config::value::CpuSlots;

/// Cores that a slot gets by default.
const CORES_PER_SLOT: u32 = 2;
/// Memory taken for granted where the kernel does not say.
const UNKNOWN_MEMORY: u64 = 2 << 30;

/// The slots as devices `cpu0`, `cpu1`, ….
pub(super) fn slots(slots: CpuSlots) -> Vec<Device> {
    (0..slots.count)
        .map(|ordinal| Device {
            id: format!("cpu{ordinal}"),
            backend: Backend::Cpu,
            kind: CPU_KIND.to_owned(),
            capacity: slots.capacity,
            physical: slots.capacity,
            uuid: String::new(),
            ordinal,
            driver_version: String::new(),
            pci_bus_id: String::new(),
        })
        .collect()
}

/// A slot per two cores; together they get 80% of the memory, the rest is for the system and for
/// what libtorch needs besides tensors.
pub(super) fn default_slots(cores: u32, memory: Option<u64>) -> CpuSlots {
    let count = (cores / CORES_PER_SLOT).clamp(1, CpuSlots::MAX);
    let share = memory.unwrap_or(UNKNOWN_MEMORY) / 5 * 4 / u64::from(count);
    let whole_mebibytes = (share >> 20).max(1) << 20;
    CpuSlots { count, capacity: Bytes(whole_mebibytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_slots_leave_memory_for_the_system() {
        let slots = default_slots(8, Some(20 << 30));
        assert_eq!(slots, CpuSlots { count: 4, capacity: Bytes(4 << 30) });
        assert_eq!(default_slots(1, None).count, 1);
        assert!(default_slots(64, Some(1)).capacity.0 > 0);
    }

    #[test]
    fn a_slot_is_a_device_of_the_common_kind() {
        let devices = slots(CpuSlots { count: 2, capacity: Bytes(7 << 20) });
        assert_eq!(devices.len(), 2);
        assert_eq!((devices[1].id.as_str(), devices[1].kind.as_str()), ("cpu1", CPU_KIND));
        assert_eq!(devices[1].capacity, devices[1].physical);
    }
}
