//! Copies beside what a GPU computes.
//!
//! A barrier holds up such a queue until the host has done something. A function that the driver calls in its turn would not do:
//! it may have one thread for those of all queues. One which waits for copies of another queue would wait for ever. So
//! the GPU itself looks at a number in the host's memory.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};

use cudarc::driver::result::stream::launch_host_function;
use cudarc::driver::{CudaEvent, CudaStream, sys};

use super::{Gpu, GpuFailure, GpuMoment};
use crate::ffi::{Mapping, Transfer};

/// Copies one behind the other, beside what is computed.
#[derive(Debug)]
pub struct CopyQueue {
    gpu: Gpu,
    stream: Arc<CudaStream>,
    barrier: Barrier,
}

impl CopyQueue {
    /// One of a GPU, which may have many.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuFailure> {
        Ok(Self { gpu: gpu.clone(), stream: gpu.context.new_stream()?, barrier: Barrier::new(gpu)? })
    }

    /// Asks for copies, which begin behind all that is to be computed so far.
    ///
    /// # Errors
    /// What the driver says.
    pub fn copy(&self, transfers: Vec<Transfer>) -> Result<QueuedCopy, GpuFailure> {
        self.stream.wait(&self.gpu.computing.record_event(None)?)?;
        let begun = transfers.iter().try_for_each(|transfer| transfer.enqueue(&self.stream));
        let done = self.stream.record_event(None)?;
        let stream = self.stream.clone();
        let queued =
            QueuedCopy { gpu: self.gpu.clone(), stream, done, _transfers: transfers, is_waited_for: false };
        // Where one was refused the others are on their way: they are waited for as they are dropped.
        begun.map(|()| queued)
    }

    /// Holds up what is asked for from now on until this is over, which a thread of the queue's own does, in the order in which
    /// it is asked.
    ///
    /// # Errors
    /// What the driver says.
    pub fn behind(&self, work: Work) -> Result<(), GpuFailure> {
        self.barrier.hold(&self.stream, work)
    }
}

/// Copies on their way, which hold what they copy.
#[derive(Debug)]
pub struct QueuedCopy {
    gpu: Gpu,
    stream: Arc<CudaStream>,
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

    /// Does something on a thread of the driver once they are done, which may ask the driver for nothing and wait for nothing:
    /// one thread may do it for all queues.
    ///
    /// # Errors
    /// What the driver says.
    pub fn then(&self, work: Work) -> Result<(), GpuFailure> {
        self.gpu.context.bind_to_thread()?;
        call_in(&self.stream, work)
    }
}

/// What is done in its turn.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// Runs on a thread of the driver.
unsafe extern "C" fn call(work: *mut c_void) {
    // SAFETY: it was made of one that was given away for this call alone.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    work();
}

fn call_in(stream: &CudaStream, work: Work) -> Result<(), GpuFailure> {
    let given = Box::into_raw(Box::new(work)).cast();
    // SAFETY: the stream is there as long as this, and what is given away is taken back in the call.
    let asked = unsafe { launch_host_function(stream.cu_stream(), call, given) };
    if let Err(failure) = asked {
        // SAFETY: it was not called, so it is still given away.
        drop(unsafe { Box::from_raw(given.cast::<Work>()) });
        return Err(failure.into());
    }
    Ok(())
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
    /// Starts the thread, which ends when all is done and no one can ask any more.
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
        let gone = |_| GpuFailure::told("the thread that delays copies has ended".to_owned());
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
