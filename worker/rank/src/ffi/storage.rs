//! The memory behind tensors: finding what autograd saves, and taking memory from a storage and giving it new one.

use std::marker::PhantomData;

use tch::Tensor;
use torch_sys::C_tensor;

use super::{ShimError, check};

#[repr(C)]
struct RawWeak {
    opaque: [u8; 0],
}

#[repr(C)]
struct RawHeld {
    opaque: [u8; 0],
}

unsafe extern "C" {
    safe fn shim_find_begin() -> i32;
    fn shim_find_offer(tensor: *const C_tensor) -> i32;
    safe fn shim_find_count() -> u64;
    safe fn shim_find_take(index: u64) -> *mut RawWeak;
    safe fn shim_find_end();
    fn shim_storage_of(tensor: *const C_tensor, weak: *mut *mut RawWeak) -> i32;
    fn shim_storage_free(weak: *mut RawWeak);
    fn shim_storage_id(weak: *const RawWeak) -> u64;
    fn shim_storage_hold(weak: *const RawWeak) -> *mut RawHeld;
    fn shim_held_free(held: *mut RawHeld);
    fn shim_held_bytes(held: *const RawHeld) -> u64;
    fn shim_held_tensors(held: *const RawHeld) -> u64;
    fn shim_held_data(held: *const RawHeld) -> *mut u8;
    fn shim_held_is_on_host(held: *const RawHeld) -> bool;
    fn shim_held_give_back(held: *mut RawHeld) -> i32;
    fn shim_held_renew(held: *mut RawHeld) -> i32;
}

/// The memory of tensors, as long as one of them holds it.
#[derive(Debug)]
pub struct Storage {
    raw: *mut RawWeak,
}

// SAFETY: libtorch counts references atomically, and a weak one gives no access to anything.
unsafe impl Send for Storage {}
// SAFETY: as above.
unsafe impl Sync for Storage {}

impl Storage {
    /// That of a tensor.
    ///
    /// # Errors
    /// When it has none.
    pub fn of(tensor: &Tensor) -> Result<Self, ShimError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the tensor is valid during the call; on success `raw` is an object of ours.
        check(unsafe { shim_storage_of(tensor.as_ptr(), &raw mut raw) })?;
        Ok(Self { raw })
    }

    /// Tells it from all others, for as long as this lives.
    pub fn id(&self) -> u64 {
        // SAFETY: `raw` is ours and freed only on drop.
        unsafe { shim_storage_id(self.raw) }
    }

    /// Holds it; none where no tensor does any more.
    pub fn hold(&self) -> Option<Held> {
        // SAFETY: `raw` is ours and freed only on drop; what is not null is an object of ours.
        let raw = unsafe { shim_storage_hold(self.raw) };
        (!raw.is_null()).then_some(Held { raw })
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: `raw` is ours and nothing uses it any more.
        unsafe { shim_storage_free(self.raw) }
    }
}

/// The memory of tensors, held.
#[derive(Debug)]
pub struct Held {
    raw: *mut RawHeld,
}

// SAFETY: libtorch counts references atomically; whoever holds a storage decides who touches its memory when.
unsafe impl Send for Held {}

impl Held {
    /// Its bytes, whether it has memory or not.
    pub fn bytes(&self) -> u64 {
        // SAFETY: `raw` is ours and freed only on drop.
        unsafe { shim_held_bytes(self.raw) }
    }

    /// How many tensors share it, and others who hold it; handles of one tensor count once.
    pub fn tensors(&self) -> u64 {
        // SAFETY: as above.
        unsafe { shim_held_tensors(self.raw) }
    }

    /// Whether it is of the host's memory.
    pub(super) fn is_on_host(&self) -> bool {
        // SAFETY: as above.
        unsafe { shim_held_is_on_host(self.raw) }
    }

    /// Where it is.
    pub(super) fn data(&self) -> *mut u8 {
        // SAFETY: as above.
        unsafe { shim_held_data(self.raw) }
    }

    /// Gives its memory back. From now on whoever touches it ends the process.
    ///
    /// # Errors
    /// When the system has no more addresses.
    pub fn give_back(&mut self) -> Result<(), ShimError> {
        // SAFETY: `raw` is ours. No one computes with what is away: boundaries lie between steps.
        check(unsafe { shim_held_give_back(self.raw) })
    }

    /// Gives it new memory, with nothing in it.
    ///
    /// # Errors
    /// Out of memory.
    pub fn renew(&mut self) -> Result<(), ShimError> {
        // SAFETY: as above.
        check(unsafe { shim_held_renew(self.raw) })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: `raw` is ours and nothing uses it any more.
        unsafe { shim_held_free(self.raw) }
    }
}

/// While it lives, what autograd saves in this thread's forward passes is found. Finders do not nest.
#[derive(Debug)]
pub struct Finder {
    /// It belongs to its thread.
    of_thread: PhantomData<*const ()>,
}

impl Finder {
    /// Begins to look.
    ///
    /// # Errors
    /// When libtorch refuses.
    pub fn begin() -> Result<Self, ShimError> {
        check(shim_find_begin())?;
        Ok(Self { of_thread: PhantomData })
    }

    /// Notes what was found on the tape.
    ///
    /// # Errors
    /// When libtorch refuses.
    pub fn remark(&self) -> Result<(), ShimError> {
        super::remark_saved()
    }

    /// What was found, each storage once, in order.
    pub fn found(self) -> Vec<Storage> {
        let taken = (0..shim_find_count()).map(|index| shim_find_take(index));
        taken.filter(|raw| !raw.is_null()).map(|raw| Storage { raw }).collect()
    }
}

impl Drop for Finder {
    fn drop(&mut self) {
        shim_find_end();
    }
}

/// Tells the finder of a tensor that is kept for a backward pass without autograd's knowledge.
///
/// # Errors
/// When libtorch refuses.
pub fn offer(tensor: &Tensor) -> Result<(), ShimError> {
    // SAFETY: the tensor is valid during the call.
    check(unsafe { shim_find_offer(tensor.as_ptr()) })
}
