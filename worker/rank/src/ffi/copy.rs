//! Memory outside libtorch's allocators, and copies between it and that of tensors, on any thread.

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::{Held, Storage};

/// Memory that no allocator of libtorch knows of.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is plain memory. Which part of it is whose is decided by pools; transfers alone touch it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// This process's own, made at once, so that no later use waits for the kernel.
    ///
    /// # Errors
    /// When the host has not so many.
    pub fn made(bytes: u64) -> io::Result<Self> {
        Self::own(bytes, MapFlags::POPULATE)
    }

    /// This process's own, made where it is first used: as good as endless.
    ///
    /// # Errors
    /// When there are not so many addresses.
    pub fn endless(bytes: u64) -> io::Result<Self> {
        Self::own(bytes, MapFlags::NORESERVE)
    }

    fn own(bytes: u64, flags: MapFlags) -> io::Result<Self> {
        let length = length(bytes)?;
        if length == 0 {
            return Ok(Self { start: std::ptr::null_mut(), bytes: 0 });
        }
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | flags);
        // SAFETY: new addresses, of the kernel's choice.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, rights, flags) }?;
        Ok(Self { start: start.cast(), bytes: length })
    }

    /// What a descriptor shares, made at once too.
    ///
    /// # Errors
    /// When it is no memory.
    pub fn shared(descriptor: &OwnedFd, bytes: u64) -> io::Result<Self> {
        let (length, rights) = (length(bytes)?, ProtFlags::READ | ProtFlags::WRITE);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: new addresses, of the kernel's choice.
        let start = unsafe { mmap(std::ptr::null_mut(), length, rights, flags, descriptor, 0) }?;
        Ok(Self { start: start.cast(), bytes: length })
    }

    /// How many there are.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: ours, and every transfer holds it while it runs.
            let _ = unsafe { munmap(self.start.cast::<c_void>(), self.bytes) };
        }
    }
}

fn length(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Away from the device.
    Out,
    /// Back to it.
    Back,
}

/// A copy between a part of a storage and a part of a mapping. It holds both.
///
/// Until it is done nobody may write what it reads or touch what it writes: the boundary that begins it lies behind the
/// step that wrote the storage, and the one that waits for it before the step, or the end of the memory, that comes next.
#[derive(Debug)]
pub struct Transfer {
    _held: Held,
    _mapping: Arc<Mapping>,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
}

// SAFETY: the pointers are into memory that it holds; see above for who else touches it.
unsafe impl Send for Transfer {}

impl Transfer {
    /// Between the `bytes` at `offset` of a storage and those at `at` of a mapping; none where there are not so many, or
    /// no tensor has the storage any more.
    pub fn new(
        storage: &Storage,
        (offset, bytes): (u64, u64),
        mapping: &Arc<Mapping>,
        at: u64,
        direction: Direction,
    ) -> Option<Self> {
        let held = storage.hold()?;
        let fits = |start: u64, all: u64| start.checked_add(bytes).is_some_and(|end| end <= all);
        if !fits(offset, held.bytes()) || !fits(at, mapping.bytes()) || held.data().is_null() {
            return None;
        }
        let [offset, at, bytes] = [offset, at, bytes].map(usize::try_from);
        let (offset, at, bytes) = (offset.ok()?, at.ok()?, bytes.ok()?);
        // SAFETY: both are within what was just compared with.
        let (device, other) = unsafe { (held.data().add(offset), mapping.start.add(at)) };
        let (from, to) = match direction {
            Direction::Out => (device, other),
            Direction::Back => (other, device),
        };
        Some(Self { _held: held, _mapping: mapping.clone(), from, to, bytes })
    }

    /// All its bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies at most so many of them, those behind the first `done`. Returns how many.
    pub fn advance(&mut self, done: usize, most: usize) -> usize {
        let count = most.min(self.bytes.saturating_sub(done));
        if count > 0 {
            // SAFETY: both ranges are within memory that is held, and one is a tensor's, the other a pool's.
            unsafe { std::ptr::copy_nonoverlapping(self.from.add(done), self.to.add(done), count) };
        }
        count
    }
}
