//! What holds up a queue of copies until the host has done something.
//!
//! A function that the driver calls in its turn would not do: it may have one thread for those of all queues, so that one which
//! waits for copies of another queue would wait for ever. So the GPU itself looks at a number in the host's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};

use cudarc::driver::{CudaStream, sys};

use super::queue::Work;
use super::{Gpu, GpuFailure};
use crate::ffi::Mapping;

/// Bytes of the number: a page can be pinned.
const PAGE_BYTES: u64 = 4_096;

/// A number that grows by one with everything that is done, and the thread that does it.
#[derive(Debug)]
pub(super) struct Barrier {
    gpu: Gpu,
    number: Arc<Mapping>,
    /// Never more than the copies of an iteration.
    asked: Sender<Work>,
    /// How much was asked for.
    count: AtomicU32,
}

impl Barrier {
    /// Starts the thread, which ends when all is done and nobody can ask any more.
    ///
    /// # Errors
    /// What the driver says, or when there can be no more threads.
    pub(super) fn new(gpu: &Gpu) -> Result<Self, GpuFailure> {
        let told = |error: std::io::Error| GpuFailure::told(error.to_string());
        let number = Arc::new(Mapping::pinned(PAGE_BYTES, gpu).map_err(told)?);
        let (asked, works) = mpsc::channel::<Work>();
        let shown = number.clone();
        let work = move || {
            for (work, done) in works.into_iter().zip(1_u32..) {
                work();
                number_of(&shown).store(done, Ordering::Release);
            }
        };
        std::thread::Builder::new().name("holds up copies".to_owned()).spawn(work).map_err(told)?;
        Ok(Self { gpu: gpu.clone(), number, asked, count: AtomicU32::new(0) })
    }

    /// What a stream is given from now on begins when this is over.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn hold(&self, stream: &CudaStream, work: Work) -> Result<(), GpuFailure> {
        let gone = |_| GpuFailure::told("the thread that holds up copies is gone".to_owned());
        self.asked.send(work).map_err(gone)?;
        let count = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.gpu.context.bind_to_thread()?;
        let flags = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        let address = self.number.start() as u64;
        // SAFETY: the number is pinned, and there until all that the GPU was given is done.
        Ok(unsafe { sys::cuStreamWaitValue32_v2(stream.cu_stream(), address, count, flags) }.result()?)
    }
}

/// What the GPU looks at.
fn number_of(mapping: &Mapping) -> &AtomicU32 {
    // SAFETY: a mapping begins at a page and has one at least; what it has of the number is read and written as a whole.
    unsafe { AtomicU32::from_ptr(mapping.start().cast()) }
}
