//! NCCL, loaded when it is first needed: programs without it run all the same.

use std::ffi::{c_int, c_void};

use cudarc::nccl::result::{self, NcclError};
use cudarc::nccl::sys;
use tch::{Kind, Tensor};

/// What identifies the group of ranks that a communicator connects.
pub type UniqueId = [u8; 128];

/// A failure inside NCCL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("NCCL: {0}")]
pub struct NcclFailure(String);

impl From<NcclError> for NcclFailure {
    fn from(error: NcclError) -> Self {
        Self(format!("{:?}", error.0))
    }
}

/// Whether the loader finds NCCL as `libnccl.so`.
pub fn is_available() -> bool {
    // SAFETY: opens the library, which runs its initialisers: those of NCCL, or of nothing.
    unsafe { sys::is_culib_present() }
}

/// A new group's id, for one of its ranks to share with the others. Only where [`is_available`].
///
/// # Errors
/// When NCCL finds no network interface to listen on.
pub fn new_id() -> Result<UniqueId, NcclFailure> {
    Ok(result::get_uniqueid()?.internal.map(|byte| byte.cast_unsigned()))
}

/// A rank's access to its group. Works on libtorch's default stream, so in order with everything that
/// libtorch computes.
#[derive(Debug)]
pub struct Communicator {
    raw: sys::ncclComm_t,
}

// SAFETY: a communicator is bound to a device, not to a thread; uses of it do not overlap, because all
// methods take it exclusively.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Joins a group as its rank `index` of `count`, with the current CUDA device. Waits for the others.
    ///
    /// # Errors
    /// What NCCL says.
    pub fn join(id: UniqueId, index: u32, count: u32) -> Result<Self, NcclFailure> {
        let number = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
        let id = sys::ncclUniqueId { internal: id.map(u8::cast_signed) };
        let mut raw = std::ptr::null_mut();
        // SAFETY: NCCL writes the communicator to a pointer that is valid during the call.
        unsafe { result::comm_init_rank(&raw mut raw, number(count), id, number(index)) }?;
        Ok(Self { raw })
    }

    /// Replaces the values of a tensor by their sum, or the largest, over all ranks.
    ///
    /// # Errors
    /// When the tensor is not a contiguous CUDA tensor of a number format that NCCL knows.
    pub fn all_reduce(&mut self, tensor: &Tensor, is_sum: bool) -> Result<(), NcclFailure> {
        let (data, count, kind) = memory_of(tensor)?;
        let operation = if is_sum { sys::ncclRedOp_t::ncclSum } else { sys::ncclRedOp_t::ncclMax };
        // SAFETY: `data` is device memory of `count` values, which libtorch does not hand to anybody else
        // before the default stream is past this call; in place is allowed.
        unsafe { result::all_reduce(data, data, count, kind, operation, self.raw, std::ptr::null_mut()) }?;
        Ok(())
    }

    /// Gives a tensor to another rank, which must receive one like it.
    ///
    /// # Errors
    /// When it is not a contiguous CUDA tensor of a number format that NCCL knows.
    pub fn send(&mut self, to: u32, tensor: &Tensor) -> Result<(), NcclFailure> {
        let (data, count, kind) = memory_of(tensor)?;
        let peer = c_int::try_from(to).unwrap_or(c_int::MAX);
        // SAFETY: `data` is device memory of `count` values, which libtorch does not hand to anybody else
        // before the default stream is past this call.
        unsafe { result::send(data, count, kind, peer, self.raw, std::ptr::null_mut()) }?;
        Ok(())
    }

    /// Fills a tensor with what another rank sends.
    ///
    /// # Errors
    /// When it is not a contiguous CUDA tensor of a number format that NCCL knows.
    pub fn receive(&mut self, from: u32, tensor: &Tensor) -> Result<(), NcclFailure> {
        let (data, count, kind) = memory_of(tensor)?;
        let peer = c_int::try_from(from).unwrap_or(c_int::MAX);
        // SAFETY: as above.
        unsafe { result::recv(data, count, kind, peer, self.raw, std::ptr::null_mut()) }?;
        Ok(())
    }

    /// Fills in the parts of the other ranks: as many tensors as there are ranks.
    ///
    /// # Errors
    /// When one is not a contiguous CUDA tensor of a number format that NCCL knows.
    pub fn all_gather(&mut self, parts: &[Tensor]) -> Result<(), NcclFailure> {
        let memory = parts.iter().map(memory_of).collect::<Result<Vec<_>, _>>()?;
        result::group_start()?;
        let sent = memory.into_iter().zip(0..).try_for_each(|((data, count, kind), root)| {
            // SAFETY: as above. Parts differ in length, which a broadcast each allows.
            unsafe { result::broadcast(data, data, count, kind, root, self.raw, std::ptr::null_mut()) }
                .map(drop)
        });
        result::group_end()?;
        Ok(sent?)
    }

    /// Replaces this rank's part by its sum over all ranks: as many tensors as there are ranks.
    ///
    /// # Errors
    /// When one is not a contiguous CUDA tensor of a number format that NCCL knows.
    pub fn reduce_scatter(&mut self, parts: &[Tensor]) -> Result<(), NcclFailure> {
        let memory = parts.iter().map(memory_of).collect::<Result<Vec<_>, _>>()?;
        result::group_start()?;
        let reduced = memory.into_iter().zip(0..).try_for_each(|((data, count, kind), root)| {
            let sum = sys::ncclRedOp_t::ncclSum;
            // SAFETY: as above. Only the root's own part is written, which in place is allowed.
            unsafe { result::reduce(data, data, count, kind, sum, root, self.raw, std::ptr::null_mut()) }
                .map(drop)
        });
        result::group_end()?;
        Ok(reduced?)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // SAFETY: made by `join` and not used any more. It does not wait for ranks that are gone.
        let _ = unsafe { result::comm_abort(self.raw) };
    }
}

fn memory_of(tensor: &Tensor) -> Result<(*mut c_void, usize, sys::ncclDataType_t), NcclFailure> {
    let kind = tensor.f_kind().map_err(|error| NcclFailure(error.to_string()))?;
    if !tensor.device().is_cuda() || !tensor.is_contiguous() {
        return Err(NcclFailure(format!("needs contiguous CUDA tensors, not {tensor:?}")));
    }
    let kind = match kind {
        Kind::Float => sys::ncclDataType_t::ncclFloat32,
        Kind::BFloat16 => sys::ncclDataType_t::ncclBfloat16,
        Kind::Double => sys::ncclDataType_t::ncclFloat64,
        other => return Err(NcclFailure(format!("tensors of {other:?} cannot be exchanged"))),
    };
    Ok((tensor.data_ptr(), tensor.numel(), kind))
}
