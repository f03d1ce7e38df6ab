//! What is offered beside devices: memory of the host, and how fast copies of CPU slots are.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::{Backend, Device};
use loadmaster_proto::measure::offload::CopyPace;

use crate::config::ConfigError;

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
    use super::*;
    use loadmaster_samples::cpu_slot;

    #[test]
    fn more_of_the_host_than_there_is_is_refused_with_what_there_is() {
        assert_eq!(host_memory(Bytes(8), Some(8)).unwrap(), Bytes(8));
        assert_eq!(host_memory(Bytes(8), None).unwrap(), Bytes(8), "the kernel does not say");
        let error = host_memory(Bytes(64 << 30), Some(3 << 30)).unwrap_err().to_string();
        for told in ["--host-memory offers 64.00 GiB (68719476736 bytes)", "has 3.00 GiB (3221225472 bytes)"]
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
