//! What a GPU does beside libtorch's computing: copies in queues of their own, and memory that it shares with the host and
//! with other processes. Asked of the driver, which is loaded when it is first needed.
//!
//! libtorch computes on the device's default stream, in order. Copies are in order in their queue, and begin behind what was to
//! be computed when they were asked for. They hold up nothing but what is told to wait for them: no thread of the host waits.

mod moment;
mod queue;
mod shared;
mod step;

use std::sync::Arc;

use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, CudaStream, sys};

pub use moment::{Gate, GpuMoment};
pub use queue::{ComputingHeld, CopyQueue, QueuedCopy};
pub use shared::SharedMemory;
pub use step::{StepKernels, StepLists, StepNumbers, StepRule};

/// A failure of the GPU or its driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CUDA: {why}")]
pub struct GpuFailure {
    why: String,
    /// There is not so much memory, of the GPU or to be pinned.
    pub lacks_memory: bool,
}

impl GpuFailure {
    /// One that the driver does not tell of.
    fn told(why: String) -> Self {
        Self { why, lacks_memory: false }
    }
}

impl From<DriverError> for GpuFailure {
    fn from(error: DriverError) -> Self {
        let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
        Self {
            why: format!("{} ({:?})", text.unwrap_or_default(), error.0),
            lacks_memory: error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        }
    }
}

/// A GPU on which libtorch computes.
#[derive(Debug, Clone)]
pub struct Gpu {
    context: Arc<CudaContext>,
    /// Where libtorch computes.
    computing: Arc<CudaStream>,
}

impl Gpu {
    /// That with this number, in the context that libtorch uses.
    ///
    /// # Errors
    /// When there is no driver, or no such GPU.
    pub fn open(ordinal: usize) -> Result<Self, GpuFailure> {
        // SAFETY: opens the driver, which runs its initialisers, or nothing.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuFailure::told("the loader finds no libcuda.so".to_owned()));
        }
        let context = CudaContext::new(ordinal)?;
        let computing = context.default_stream();
        Ok(Self { context, computing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without a driver is told so; nothing panics.
    #[test]
    fn a_missing_gpu_is_an_error() {
        assert!(Gpu::open(4_096).is_err());
    }
}
