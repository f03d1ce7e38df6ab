//! What a GPU does beside libtorch's computing: copies in queues of their own, and memory that it shares with the host and
//! with other processes. Asked of the driver, which is loaded when it is first needed.
//!
//! libtorch computes on the device's default stream, in order. Copies are in order in their queue, begin behind what was to
//! be computed when they were asked for, and hold up nothing but what is told to wait for them: no thread of the host waits.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::result::DriverError;
use cudarc::driver::result::stream::launch_host_function;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use tch::Tensor;

use super::Transfer;

/// Bytes of a handle under which a process finds another one's memory.
const HANDLE_BYTES: usize = 64;

/// A failure of the GPU or its driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CUDA: {0}")]
pub struct GpuFailure(String);

impl From<DriverError> for GpuFailure {
    fn from(error: DriverError) -> Self {
        let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
        Self(format!("{} ({:?})", text.unwrap_or_default(), error.0))
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
            return Err(GpuFailure("the loader finds no libcuda.so".to_owned()));
        }
        let context = CudaContext::new(ordinal)?;
        let computing = context.default_stream();
        Ok(Self { context, computing })
    }

    /// When it has computed all that it was given so far.
    ///
    /// # Errors
    /// What the driver says.
    pub fn moment(&self) -> Result<GpuMoment, GpuFailure> {
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        Ok(GpuMoment(Arc::new(self.computing.record_event(timed)?)))
    }

    /// Holds up what it is given from now on.
    ///
    /// # Errors
    /// What the driver says.
    pub fn gate(&self) -> Result<Gate, GpuFailure> {
        self.context.bind_to_thread()?;
        let latch = Arc::<Latch>::default();
        let given = Arc::into_raw(latch.clone()).cast_mut().cast();
        // SAFETY: the stream is there as long as this, and what is given away is taken back in the call.
        let held = unsafe { launch_host_function(self.computing.cu_stream(), wait_at_gate, given) };
        if let Err(failure) = held {
            // SAFETY: it was not called, so it is still given away.
            drop(unsafe { Arc::from_raw(given.cast::<Latch>()) });
            return Err(failure.into());
        }
        Ok(Gate(latch))
    }

    /// Lets the GPU read and write memory of the host on its own.
    ///
    /// # Safety
    /// These are addresses of this process, until [`Gpu::unpin`].
    pub(super) unsafe fn pin(&self, start: *mut u8, bytes: usize) -> Result<(), GpuFailure> {
        self.context.bind_to_thread()?;
        // SAFETY: as promised above.
        Ok(unsafe { sys::cuMemHostRegister_v2(start.cast(), bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) }
            .result()?)
    }

    /// Ends what [`Gpu::pin`] began, behind all copies.
    ///
    /// # Safety
    /// It was begun there.
    pub(super) unsafe fn unpin(&self, start: *mut u8) {
        if self.context.synchronize().is_ok() {
            // SAFETY: as promised above; what fails here has failed before.
            let _ = unsafe { sys::cuMemHostUnregister(start.cast()) };
        }
    }

    /// Where another process finds the memory of a tensor on this GPU, for as long as the tensor lives.
    ///
    /// # Errors
    /// When libtorch's memory is not of a kind that can be shared, as with expandable segments.
    pub fn share(&self, tensor: &Tensor) -> Result<SharedMemory, GpuFailure> {
        self.context.bind_to_thread()?;
        let address = tensor.data_ptr() as u64;
        let (allocation, _) = range(address)?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; HANDLE_BYTES] };
        // SAFETY: the driver writes to what is valid during the call, and refuses what it did not allocate as a whole.
        unsafe { sys::cuIpcGetMemHandle(&raw mut handle, allocation) }.result()?;
        let offset = address - allocation;
        Ok(SharedMemory { handle: handle.reserved.map(i8::cast_unsigned), offset })
    }

    /// Memory of another process on this or another GPU: where it begins here, and where its allocation does.
    pub(super) fn open_shared(&self, shared: SharedMemory, bytes: u64) -> Result<(u64, u64), GpuFailure> {
        self.context.bind_to_thread()?;
        let handle = sys::CUipcMemHandle { reserved: shared.handle.map(u8::cast_signed) };
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut allocation = 0;
        // SAFETY: the driver writes an address to what is valid during the call, and refuses what is no handle.
        unsafe { sys::cuIpcOpenMemHandle_v2(&raw mut allocation, handle, flags) }.result()?;
        let end = shared.offset.checked_add(bytes);
        let fits = range(allocation).map(|(_, size)| end.is_some_and(|end| end <= size));
        if fits != Ok(true) {
            self.close_shared(allocation);
            fits?;
            return Err(GpuFailure(format!("{bytes} bytes at {} are not in what is shared", shared.offset)));
        }
        Ok((allocation + shared.offset, allocation))
    }

    /// Ends what [`Gpu::open_shared`] began, behind all copies.
    pub(super) fn close_shared(&self, allocation: u64) {
        if self.context.synchronize().is_ok() {
            // SAFETY: it was opened, is closed once, and no copy is on its way; what fails here has failed before.
            let _ = unsafe { sys::cuIpcCloseMemHandle(allocation) };
        }
    }
}

/// The allocation that an address of a GPU lies in: where it begins, and its bytes.
fn range(address: u64) -> Result<(u64, u64), GpuFailure> {
    let (mut start, mut bytes) = (0, 0);
    // SAFETY: the driver writes to what is valid during the call, and refuses addresses that are none.
    unsafe { sys::cuMemGetAddressRange_v2(&raw mut start, &raw mut bytes, address) }.result()?;
    Ok((start, bytes as u64))
}

/// Where another process finds memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedMemory {
    handle: [u8; HANDLE_BYTES],
    /// Where it begins in what is shared, which is all that was allocated at once.
    offset: u64,
}

impl SharedMemory {
    /// Bytes in which it is told.
    pub const BYTES: usize = HANDLE_BYTES + 8;

    /// In words for another process.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..HANDLE_BYTES].copy_from_slice(&self.handle);
        bytes[HANDLE_BYTES..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// What [`SharedMemory::to_bytes`] said.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (mut handle, mut offset) = ([0; HANDLE_BYTES], [0; 8]);
        handle.copy_from_slice(&bytes[..HANDLE_BYTES]);
        offset.copy_from_slice(&bytes[HANDLE_BYTES..]);
        Self { handle, offset: u64::from_le_bytes(offset) }
    }
}

/// A moment of what a GPU computes: when it has come so far.
#[derive(Debug, Clone)]
pub struct GpuMoment(Arc<CudaEvent>);

impl GpuMoment {
    /// Seconds from this one to another one, once that is there, which is waited for.
    ///
    /// # Errors
    /// When something failed meanwhile.
    pub fn seconds_to(&self, later: &Self) -> Result<f64, GpuFailure> {
        Ok(f64::from(self.0.elapsed_ms(&later.0)?) / 1e3)
    }
}

/// Holds up what is to be computed until this ends, or for [`Gate::PATIENCE`], so that nobody who waits for it waits for ever.
#[derive(Debug)]
pub struct Gate(Arc<Latch>);

#[derive(Debug, Default)]
struct Latch {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// The longest that anything is held up.
    const PATIENCE: Duration = Duration::from_millis(100);
}

impl Drop for Gate {
    fn drop(&mut self) {
        *self.0.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.opened.notify_all();
    }
}

/// Runs on a thread of the driver, in the place of something that is computed.
unsafe extern "C" fn wait_at_gate(latch: *mut c_void) {
    // SAFETY: it was made of one that was given away for this call alone.
    let latch = unsafe { Arc::from_raw(latch.cast::<Latch>()) };
    let is_open = latch.is_open.lock().unwrap_or_else(PoisonError::into_inner);
    drop(latch.opened.wait_timeout_while(is_open, Gate::PATIENCE, |is_open| !*is_open));
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_told_whole() {
        let mut handle = [0; HANDLE_BYTES];
        handle.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value);
        let shared = SharedMemory { handle, offset: 0x0102_0304_0506_0708 };
        assert_eq!(SharedMemory::from_bytes(shared.to_bytes()), shared);
    }

    /// A machine without a driver is told so; nothing panics.
    #[test]
    fn a_missing_gpu_is_an_error() {
        assert!(Gpu::open(4_096).is_err());
    }
}
