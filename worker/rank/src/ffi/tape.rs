//! The recorder of allocations: every block as it comes and goes, with remarks of the rank between them.

use tch::Tensor;
use torch_sys::C_tensor;

use super::{ShimError, check};

/// An entry of a recording.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TapeEntry {
    /// One of the `TAPE_` numbers.
    pub kind: u32,
    /// Of a remark or an edge: what the caller said. Of an allocation: 1 within communication.
    pub code: u32,
    /// Where the block is.
    pub address: u64,
    /// Bytes of an allocation.
    pub bytes: u64,
}

/// A block was allocated.
pub const TAPE_ALLOCATED: u32 = 0;
/// A block was freed.
pub const TAPE_FREED: u32 = 1;
/// The caller said something.
pub const TAPE_REMARK: u32 = 2;
/// The caller named the block of a tensor.
pub const TAPE_EDGE: u32 = 3;
/// Autograd saved a tensor in the block.
pub const TAPE_SAVED: u32 = 4;

unsafe extern "C" {
    safe fn shim_tape_begin() -> i32;
    safe fn shim_tape_communication(on: bool);
    safe fn shim_tape_remark(code: u32);
    fn shim_tape_edge(tensor: *const C_tensor, code: u32) -> i32;
    safe fn shim_tape_saved() -> i32;
    safe fn shim_tape_end(count: &mut u64) -> i32;
    fn shim_tape_read(into: *mut TapeEntry, count: u64);
}

/// Begins to record every allocation and free.
///
/// # Errors
/// When libtorch refuses.
pub fn begin_tape() -> Result<(), ShimError> {
    check(shim_tape_begin())
}

/// Blocks allocated from now on are, or are no longer, buffers of collectives.
pub fn set_communicating(on: bool) {
    shim_tape_communication(on);
}

/// Notes a number between the events; nothing while nothing is recorded.
pub fn remark(code: u32) {
    shim_tape_remark(code);
}

/// Notes which block holds a tensor.
///
/// # Errors
/// When libtorch refuses.
pub fn remark_edge(tensor: &Tensor, code: u32) -> Result<(), ShimError> {
    // SAFETY: the tensor is valid during the call.
    check(unsafe { shim_tape_edge(tensor.as_ptr(), code) })
}

/// Notes which blocks autograd has saved since they are looked for.
///
/// # Errors
/// When libtorch refuses.
pub fn remark_saved() -> Result<(), ShimError> {
    check(shim_tape_saved())
}

/// Ends the recording and returns it.
///
/// # Errors
/// When it became too long.
pub fn end_tape() -> Result<Vec<TapeEntry>, ShimError> {
    let mut count = 0;
    check(shim_tape_end(&mut count))?;
    let mut entries = vec![TapeEntry::default(); usize::try_from(count).unwrap_or_default()];
    // SAFETY: there is room for as many entries as are asked for.
    unsafe { shim_tape_read(entries.as_mut_ptr(), entries.len() as u64) };
    Ok(entries)
}
