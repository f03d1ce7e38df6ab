//! Memory that a GPU shares: the host's, which it reads and writes on its own, and its own, which other processes do.

use cudarc::driver::{CudaContext, result, sys};
use tch::Tensor;

use super::{Gpu, GpuFailure};

/// Bytes of a handle under which a process finds another one's memory.
const HANDLE_BYTES: usize = 64;
/// Bytes of a GPU's UUID.
const UUID_BYTES: usize = 16;

impl Gpu {
    /// Lets the GPU read and write memory of the host on its own.
    ///
    /// # Safety
    /// These are addresses of this process, until [`Gpu::unpin`].
    pub(in crate::ffi) unsafe fn pin(&self, start: *mut u8, bytes: usize) -> Result<(), GpuFailure> {
        self.context.bind_to_thread()?;
        // SAFETY: as promised above.
        Ok(unsafe { sys::cuMemHostRegister_v2(start.cast(), bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) }
            .result()?)
    }

    /// Ends what [`Gpu::pin`] began, behind all copies.
    ///
    /// # Safety
    /// It was begun there.
    pub(in crate::ffi) unsafe fn unpin(&self, start: *mut u8) {
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
        let of = self.context.uuid()?.bytes.map(i8::cast_unsigned);
        Ok(SharedMemory { handle: handle.reserved.map(i8::cast_unsigned), offset, of })
    }

    /// The context in which this GPU's process finds memory of the GPU with this UUID. It is its own where it reaches that itself,
    /// or else the other one's, from and to which the driver copies through the host.
    fn near(&self, uuid: [u8; UUID_BYTES]) -> Result<Self, GpuFailure> {
        let other = uuid.map(u8::cast_signed);
        if self.context.uuid()?.bytes == other {
            return Ok(self.clone());
        }
        for ordinal in 0..CudaContext::device_count()? {
            let device = result::device::get(ordinal)?;
            if result::device::get_uuid(device)?.bytes != other {
                continue;
            }
            let mut reaches = 0;
            // SAFETY: the driver writes a number to what is valid during the call.
            unsafe { sys::cuDeviceCanAccessPeer(&raw mut reaches, self.context.cu_device(), device) }
                .result()?;
            return if reaches == 0 {
                Self::open(usize::try_from(ordinal).unwrap_or(0))
            } else {
                Ok(self.clone())
            };
        }
        Err(GpuFailure::told(
            "the GPU of the other rank is not visible to this process, see CUDA_VISIBLE_DEVICES".to_owned(),
        ))
    }

    /// Memory of another process on this or another GPU: where it begins here, where its allocation does, and in whose context it
    /// is found.
    pub(in crate::ffi) fn open_shared(
        &self,
        shared: SharedMemory,
        bytes: u64,
    ) -> Result<(u64, u64, Self), GpuFailure> {
        let near = self.near(shared.of)?;
        let opened = near.open_here(shared, bytes);
        // libtorch goes on with what this thread had.
        self.context.bind_to_thread()?;
        let (start, allocation) = opened?;
        Ok((start, allocation, near))
    }

    /// The same in its own context.
    fn open_here(&self, shared: SharedMemory, bytes: u64) -> Result<(u64, u64), GpuFailure> {
        self.context.bind_to_thread()?;
        let handle = sys::CUipcMemHandle { reserved: shared.handle.map(u8::cast_signed) };
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut allocation = 0;
        // SAFETY: the driver writes an address to what is valid during the call, and refuses what is no handle.
        unsafe { sys::cuIpcOpenMemHandle_v2(&raw mut allocation, handle, flags) }.result()?;
        let end = shared.offset.checked_add(bytes);
        let fits = range(allocation).map(|(_, size)| end.is_some_and(|end| end <= size));
        if fits != Ok(true) {
            self.close_here(allocation);
            fits?;
            return Err(GpuFailure::told(format!(
                "{bytes} bytes at offset {} exceed the GPU memory that the other process shares",
                shared.offset
            )));
        }
        Ok((allocation + shared.offset, allocation))
    }

    /// Ends what [`Gpu::open_shared`] began, behind all copies.
    pub(in crate::ffi) fn close_shared(&self, allocation: u64, near: &Self) {
        if self.context.synchronize().is_ok() {
            near.close_here(allocation);
        }
        // libtorch goes on with what this thread had; what fails here has failed before.
        let _ = self.context.bind_to_thread();
    }

    /// The same in its own context.
    fn close_here(&self, allocation: u64) {
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
    /// UUID of the GPU.
    of: [u8; UUID_BYTES],
}

impl SharedMemory {
    /// Bytes in which it is told.
    pub const BYTES: usize = HANDLE_BYTES + 8 + UUID_BYTES;

    /// In words for another process.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..HANDLE_BYTES].copy_from_slice(&self.handle);
        bytes[HANDLE_BYTES..][..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[HANDLE_BYTES + 8..].copy_from_slice(&self.of);
        bytes
    }

    /// What [`SharedMemory::to_bytes`] said.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (mut handle, mut offset, mut of) = ([0; HANDLE_BYTES], [0; 8], [0; UUID_BYTES]);
        handle.copy_from_slice(&bytes[..HANDLE_BYTES]);
        offset.copy_from_slice(&bytes[HANDLE_BYTES..][..8]);
        of.copy_from_slice(&bytes[HANDLE_BYTES + 8..]);
        Self { handle, offset: u64::from_le_bytes(offset), of }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_told_whole() {
        let mut handle = [0; HANDLE_BYTES];
        handle.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value);
        let of = std::array::from_fn(|index| 200 + index as u8);
        let shared = SharedMemory { handle, offset: 0x0102_0304_0506_0708, of };
        assert_eq!(SharedMemory::from_bytes(shared.to_bytes()), shared);
    }
}
