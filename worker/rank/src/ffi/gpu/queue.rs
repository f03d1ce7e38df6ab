//! Copies beside what a GPU computes.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream};

use super::{Gpu, GpuFailure, GpuMoment};
use crate::ffi::Transfer;

/// Copies one behind the other, beside what is computed.
#[derive(Debug)]
pub struct CopyQueue {
    gpu: Gpu,
    stream: Arc<CudaStream>,
}

impl CopyQueue {
    /// One of a GPU, which may have many.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuFailure> {
        Ok(Self { gpu: gpu.clone(), stream: gpu.context.new_stream()? })
    }

    /// Asks for copies, which begin behind all that is to be computed so far.
    ///
    /// # Errors
    /// What the driver says.
    pub fn copy(&self, transfers: Vec<Transfer>) -> Result<QueuedCopy, GpuFailure> {
        self.stream.wait(&self.gpu.computing.record_event(None)?)?;
        let begun = transfers.iter().try_for_each(|transfer| transfer.enqueue(&self.stream));
        let done = self.stream.record_event(None)?;
        let queued = QueuedCopy { gpu: self.gpu.clone(), done, _transfers: transfers, is_waited_for: false };
        // Where one was refused the others are on their way: they are waited for as they are dropped.
        begun.map(|()| queued)
    }
}

/// Copies on their way, which hold what they copy.
#[derive(Debug)]
pub struct QueuedCopy {
    gpu: Gpu,
    done: CudaEvent,
    _transfers: Vec<Transfer>,
    is_waited_for: bool,
}

impl QueuedCopy {
    /// What is to be computed from now on waits for them. So does what gets their memory: libtorch gives it to nothing
    /// else.
    ///
    /// # Errors
    /// What the driver says.
    pub fn hold_computing(mut self) -> Result<ComputingHeld, GpuFailure> {
        let begin = self.gpu.moment()?;
        self.gpu.computing.wait(&self.done)?;
        self.is_waited_for = true;
        Ok(ComputingHeld { begin, end: self.gpu.moment()? })
    }
}

impl Drop for QueuedCopy {
    fn drop(&mut self) {
        if !self.is_waited_for {
            // What it fails with comes up again where it can be reported.
            let _ = self.done.synchronize();
        }
    }
}

/// A wait of what is computed for copies.
#[derive(Debug)]
pub struct ComputingHeld {
    begin: GpuMoment,
    end: GpuMoment,
}

impl ComputingHeld {
    /// How long it was, once it is over, which is waited for.
    ///
    /// # Errors
    /// When something failed meanwhile.
    pub fn seconds(&self) -> Result<f64, GpuFailure> {
        self.begin.seconds_to(&self.end)
    }
}
