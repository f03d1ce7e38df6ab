//! The bytes of a device: counting them, keeping them below the capacity, and recognising excess.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::device::Backend;
use loadmaster_proto::rank::RankDevice;
use loadmaster_proto::run::{Ledger, OutOfMemory, Phase};
use tch::Device;

use crate::error::RankError;
use crate::ffi::{self, Excess, MemoryCounts};

/// Names under which libtorch's CUDA allocator reads its settings, the preferred one first.
const ALLOCATOR_SETTINGS: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// A device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    backend: Backend,
    ordinal: i32,
    capacity: Bytes,
}

impl Memory {
    /// Sets the device up: from now on its capacity is enforced. Before the first tensor and the first
    /// thread.
    ///
    /// # Errors
    /// On CUDA, when libtorch's CUDA half or the device is missing.
    pub fn open(device: &RankDevice) -> Result<Self, RankError> {
        let memory = Self {
            backend: device.backend,
            ordinal: i32::try_from(device.ordinal).unwrap_or(i32::MAX),
            capacity: device.capacity,
        };
        match device.backend {
            Backend::Cpu => {
                ffi::track_host_memory();
                ffi::set_host_capacity(device.capacity.0);
            }
            Backend::Cuda => {
                // Read when the library is loaded, so it must be there before.
                let inherited = ALLOCATOR_SETTINGS.iter().find_map(|name| std::env::var(name).ok());
                let settings = limited(inherited.as_deref(), share(device.capacity, device.physical));
                for name in ALLOCATOR_SETTINGS {
                    ffi::set_environment(name, &settings);
                }
                let refused = |what: &'static str| {
                    move |error: ffi::ShimError| RankError::Other(format!("{what}: {error}"))
                };
                ffi::load_cuda().map_err(refused("cannot load libtorch's CUDA half"))?;
                ffi::open_cuda(memory.ordinal).map_err(refused("cannot use the CUDA device"))?;
            }
        }
        Ok(memory)
    }

    /// Where tensors are made.
    pub fn device(&self) -> Device {
        match self.backend {
            Backend::Cpu => Device::Cpu,
            Backend::Cuda => Device::Cuda(usize::try_from(self.ordinal).unwrap_or_default()),
        }
    }

    /// The CUDA device whose work must be waited for before a clock is read.
    pub fn asynchronous_device(&self) -> Option<i32> {
        (self.backend == Backend::Cuda).then_some(self.ordinal)
    }

    /// Whether the counts are exactly the bytes of live tensors.
    pub fn is_exact(&self) -> bool {
        self.backend == Backend::Cpu
    }

    /// What is held now and what was held at most.
    ///
    /// # Errors
    /// When libtorch has no statistics.
    pub fn counts(&self) -> Result<MemoryCounts, RankError> {
        match self.backend {
            Backend::Cpu => Ok(ffi::host_memory()),
            Backend::Cuda => Ok(ffi::cuda_memory(self.ordinal)?),
        }
    }

    /// Forgets what was held at most.
    ///
    /// # Errors
    /// When libtorch has no statistics.
    pub fn reset_peak(&self) -> Result<(), RankError> {
        match self.backend {
            Backend::Cpu => ffi::reset_host_peak(),
            Backend::Cuda => ffi::reset_cuda_peak(self.ordinal)?,
        }
        Ok(())
    }

    /// Turns an error of libtorch into out of memory if that is what it was.
    pub fn explain(&self, error: RankError, phase: Phase, layer: Option<usize>) -> RankError {
        let message = match &error {
            RankError::Torch(torch) => torch.to_string(),
            RankError::Shim(shim) => shim.message.clone(),
            _ => return error,
        };
        let (excess, ledger) = match self.backend {
            Backend::Cpu => (ffi::take_host_excess(), Ledger::Allocated),
            Backend::Cuda => (self.cuda_excess(&message), Ledger::Reserved),
        };
        match excess {
            None => error,
            Some(Excess { asked, held, allowed }) => RankError::OutOfMemory(OutOfMemory {
                asked: Bytes(asked),
                held: Bytes(held),
                allowed: Bytes(allowed),
                ledger,
                phase,
                layer,
            }),
        }
    }

    fn cuda_excess(&self, message: &str) -> Option<Excess> {
        is_cuda_out_of_memory(message).then(|| Excess {
            asked: asked(message).map_or(0, |bytes| bytes.0),
            held: self.counts().map_or(0, |counts| counts.reserved),
            allowed: self.capacity.0,
        })
    }
}

/// The share of the physical device, rounded down so that the cap is never above the capacity.
fn share(capacity: Bytes, physical: Bytes) -> f64 {
    let share = capacity.0 as f64 / physical.0.max(1) as f64;
    (share.min(1.0) * 1e9).floor() / 1e9
}

/// Allocator settings with the memory share added to what the user has set.
fn limited(inherited: Option<&str>, share: f64) -> String {
    let limit = format!("per_process_memory_fraction:{share}");
    match inherited.map(str::trim) {
        None | Some("") => limit,
        Some(settings) => format!("{settings},{limit}"),
    }
}

/// The allocator, the driver, cuBLAS and cuDNN each say it in their own way.
fn is_cuda_out_of_memory(message: &str) -> bool {
    ["out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"]
        .iter()
        .any(|sign| message.contains(sign))
}

/// The request in "Tried to allocate 2.00 GiB.": rounded, but nothing else tells it.
fn asked(message: &str) -> Option<Bytes> {
    let rest = message.split("Tried to allocate ").nth(1)?;
    let mut words = rest.split_whitespace();
    let (number, unit) = (words.next()?, words.next()?);
    let unit = unit.trim_end_matches(['.', ',']);
    let unit = if unit.eq_ignore_ascii_case("bytes") { "B" } else { unit };
    format!("{number}{unit}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_never_allows_more_than_the_capacity() {
        assert_eq!(share(Bytes(1 << 30), Bytes(4 << 30)), 0.25);
        assert!(share(Bytes(1), Bytes(3)) <= 1.0 / 3.0);
        assert_eq!(share(Bytes(5), Bytes(4)), 1.0);
    }

    #[test]
    fn the_limit_is_added_to_the_users_settings() {
        assert_eq!(limited(None, 0.5), "per_process_memory_fraction:0.5");
        assert_eq!(
            limited(Some("expandable_segments:True"), 0.5),
            "expandable_segments:True,per_process_memory_fraction:0.5"
        );
    }

    #[test]
    fn what_cuda_asked_for_is_read_from_its_message() {
        let message = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of …";
        assert!(is_cuda_out_of_memory(message));
        assert_eq!(asked(message), Some(Bytes(5 << 29)));
        assert_eq!(asked("CUDA out of memory. Tried to allocate 512 bytes. GPU 0"), Some(Bytes(512)));
        assert!(!is_cuda_out_of_memory("illegal memory access"));
    }
}
