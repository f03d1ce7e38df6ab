//! Devices of workers.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, CPU_KIND, Device};

/// A CPU slot of a GiB.
pub fn cpu_slot(ordinal: u32) -> Device {
    Device {
        id: format!("cpu{ordinal}"),
        backend: Backend::Cpu,
        kind: CPU_KIND.to_owned(),
        capacity: Bytes(1 << 30),
        physical: Bytes(1 << 30),
        uuid: String::new(),
        ordinal,
        driver_version: String::new(),
        pci_bus_id: String::new(),
    }
}
