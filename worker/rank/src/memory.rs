//! The bytes of a device: counting them, keeping them below the capacity, and recognising excess.

use std::io;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::failure::{OutOfMemory, Phase};
use loadmaster_proto::measure::rank::RankDevice;
use tch::Device;

use crate::error::RankError;
use crate::ffi::{self, Excess, Gpu, Mapping, MemoryCounts};
use crate::progress;

/// Names under which libtorch's CUDA allocator reads its settings.
const ALLOCATOR_SETTINGS: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
/// Whatever its value, it makes libtorch get every tensor from the driver.
const NO_CACHING: &str = "PYTORCH_NO_CUDA_MEMORY_CACHING";

/// A device's memory.
#[derive(Debug, Clone)]
pub struct Memory {
    backend: Backend,
    ordinal: i32,
    capacity: Bytes,
    gpu: Option<Gpu>,
}

impl Memory {
    /// Sets the device up: from now on its capacity is enforced. Before the first tensor.
    ///
    /// # Errors
    /// On CUDA, when libtorch's CUDA half or the device is missing, or the environment chooses an
    /// allocator that does not count.
    pub fn open(device: &RankDevice) -> Result<Self, RankError> {
        let mut memory = Self {
            backend: device.backend,
            ordinal: i32::try_from(device.ordinal).unwrap_or(i32::MAX),
            capacity: device.capacity,
            gpu: None,
        };
        ffi::prepare_to_find(device.backend == Backend::Cuda)?;
        match device.backend {
            Backend::Cpu => {
                ffi::track_host_memory();
                ffi::set_host_capacity(device.capacity.0);
            }
            Backend::Cuda => {
                let variable =
                    |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
                if let Some(obstacle) = obstacle(variable) {
                    return Err(RankError::Other(obstacle));
                }
                let refused = |what: &'static str| {
                    move |error: ffi::ShimError| RankError::Other(format!("{what}: {error}"))
                };
                ffi::load_cuda().map_err(refused("cannot load libtorch's CUDA library"))?;
                ffi::open_cuda(memory.ordinal, device.capacity.0)
                    .map_err(refused("cannot use the CUDA device"))?;
                memory.gpu = Some(Gpu::open(usize::try_from(memory.ordinal).unwrap_or_default())?);
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

    /// The GPU, where it is one's memory.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.as_ref()
    }

    /// A pool of the host's memory for what leaves this device.
    ///
    /// # Errors
    /// Out of memory of the host, where it has not so much.
    pub fn host_pool(&self, bytes: Bytes) -> Result<Mapping, RankError> {
        let made = match &self.gpu {
            None => Mapping::made(bytes.0),
            Some(gpu) => Mapping::pinned(bytes.0, gpu),
        };
        made.map_err(|error| {
            if error.kind() != io::ErrorKind::OutOfMemory {
                let why = format!("cannot allocate a pool of {bytes} in CPU memory: {error}");
                return RankError::Other(why);
            }
            let (phase, layer) = progress::whereabouts();
            let (held, allowed, ledger) = (Bytes(0), available_on_host(), Accounting::Host);
            RankError::OutOfMemory(OutOfMemory { asked: bytes, held, allowed, ledger, phase, layer })
        })
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
            Backend::Cpu => (ffi::take_host_excess(), Accounting::Allocated),
            Backend::Cuda => (self.cuda_excess(&message), Accounting::Reserved),
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
        let counts = self.counts().unwrap_or_default();
        is_cuda_out_of_memory(message, counts.refusals).then(|| Excess {
            asked: asked(message).map_or(0, |bytes| bytes.0),
            held: counts.reserved,
            allowed: self.capacity.0,
        })
    }
}

/// What the kernel says that this host has left; nothing where it does not say.
fn available_on_host() -> Bytes {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Bytes(kibibytes.unwrap_or(0).saturating_mul(1 << 10))
}

/// What in the environment makes libtorch use an allocator that neither counts nor limits.
fn obstacle(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    if variable(NO_CACHING).is_some() {
        return Some(format!(
            "{NO_CACHING} is set, but only the caching allocator measures and limits memory. Unset {NO_CACHING}."
        ));
    }
    ALLOCATOR_SETTINGS.into_iter().find_map(|name| {
        let settings = variable(name)?;
        settings.contains("cudaMallocAsync").then(|| {
            format!(
                "{name} is {settings}, but only the native allocator measures and limits memory. Use backend:native."
            )
        })
    })
}

/// The allocator, the driver, cuBLAS and cuDNN each say it in their own way. A convolution tries one
/// algorithm after the other, and when memory lacks for all of them says only that none is left.
fn is_cuda_out_of_memory(message: &str, refusals: u64) -> bool {
    let signs = ["out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "DEVICE_ALLOCATION_FAILED"];
    signs.iter().any(|sign| message.contains(sign))
        || (refusals > 0 && message.contains("unable to find an engine to execute this computation"))
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
    fn allocators_that_do_not_count_are_refused() {
        let set = |name: &'static str, value: &'static str| {
            obstacle(move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(set("", ""), None);
        assert_eq!(set("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"), None);
        for (name, value) in [
            ("PYTORCH_NO_CUDA_MEMORY_CACHING", ""),
            ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,backend:cudaMallocAsync"),
            ("PYTORCH_ALLOC_CONF", "backend: cudaMallocAsync"),
        ] {
            assert!(set(name, value).is_some_and(|message| message.contains(name)), "{name}={value}");
        }
    }

    #[test]
    fn what_cuda_asked_for_is_read_from_its_message() {
        let message = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of …";
        assert!(is_cuda_out_of_memory(message, 1));
        assert_eq!(asked(message), Some(Bytes(5 << 29)));
        assert_eq!(asked("CUDA out of memory. Tried to allocate 512 bytes. GPU 0"), Some(Bytes(512)));
        assert_eq!(asked("CUDA out of memory. Tried to allocate more than 1EB memory."), None);
        assert!(!is_cuda_out_of_memory("illegal memory access", 1));
    }

    #[test]
    fn a_convolution_that_finds_no_room_is_out_of_memory() {
        let message = "GET was unable to find an engine to execute this computation";
        assert!(is_cuda_out_of_memory(message, 3));
        assert!(!is_cuda_out_of_memory(message, 0), "nothing was refused: it is something else");
        assert!(is_cuda_out_of_memory(
            "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
            0
        ));
    }
}
