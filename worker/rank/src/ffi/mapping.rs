//! Memory outside libtorch's allocators: of the host, of this process or shared, or of another rank's GPU.

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::gpu::{Gpu, GpuFailure, SharedMemory};
use super::{Held, Storage};
use crate::movement::chunks::lists::Bf16;

/// Memory that no allocator of libtorch knows of.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    bytes: usize,
    origin: Origin,
}

/// Whose memory it is, and so how it ends.
#[derive(Debug)]
enum Origin {
    /// The host's.
    Host,
    /// The host's, for a GPU to read and write on its own.
    Pinned(Gpu),
    /// A GPU's, of another process, in an allocation that begins here, found in a context of this process near it.
    Elsewhere { gpu: Gpu, near: Gpu, allocation: u64 },
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
        let made = Self::own(bytes, MapFlags::empty())?;
        if made.bytes > 0 {
            made.populate()?;
        }
        Ok(made)
    }

    /// Has the kernel make all of it, of huge pages where it gives any. Of small ones a copy walks through page tables as large as
    /// a cache, which those have less of that compute beside it.
    fn populate(&self) -> io::Result<()> {
        let start = self.start.cast();
        // SAFETY: these are our own pages, which no one has written to yet.
        unsafe {
            // A kernel without huge pages says so, and has others.
            madvise(start, self.bytes, Advice::LinuxHugepage).unwrap_or_default();
            match madvise(start, self.bytes, Advice::LinuxPopulateWrite) {
                // Kernels before 5.14 make pages where they are written to.
                Err(Errno::INVAL) => self.start.write_bytes(0, self.bytes),
                made => made?,
            }
        }
        Ok(())
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
            return Ok(Self { start: std::ptr::null_mut(), bytes: 0, origin: Origin::Host });
        }
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | flags);
        // SAFETY: new addresses, of the kernel's choice.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, rights, flags) }?;
        Ok(Self { start: start.cast(), bytes: length, origin: Origin::Host })
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
        Ok(Self { start: start.cast(), bytes: length, origin: Origin::Host })
    }

    /// This process's own, for a GPU to read and write on its own.
    ///
    /// # Errors
    /// When the host has not so many, or does not let them be pinned.
    pub fn pinned(bytes: u64, gpu: &Gpu) -> io::Result<Self> {
        let mut made = Self::made(bytes)?;
        if made.bytes > 0 {
            // SAFETY: it is ours, and ends behind this.
            unsafe { gpu.pin(made.start, made.bytes) }.map_err(|failure| {
                let kind =
                    if failure.lacks_memory { io::ErrorKind::OutOfMemory } else { io::ErrorKind::Other };
                io::Error::new(kind, failure)
            })?;
            made.origin = Origin::Pinned(gpu.clone());
        }
        Ok(made)
    }

    /// Memory of a GPU that another process shares.
    ///
    /// # Errors
    /// When this process cannot find it, or there is less of it.
    pub fn of_peer(shared: SharedMemory, bytes: u64, gpu: &Gpu) -> Result<Self, GpuFailure> {
        let (start, allocation, near) = gpu.open_shared(shared, bytes)?;
        let origin = Origin::Elsewhere { gpu: gpu.clone(), near, allocation };
        Ok(Self { start: start as *mut u8, bytes: usize::try_from(bytes).unwrap_or(usize::MAX), origin })
    }

    /// Where it is.
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// How many there are.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

/// A kind of number: whatever its bits are, it is one.
pub trait Number: Copy + Send + sealed::Sealed {}

mod sealed {
    /// Known to be plain numbers.
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl sealed::Sealed for $number {}
        impl Number for $number {})+
    };
}

numbers!(u8, f32, Bf16);

/// Numbers in a part of a mapping, or of a tensor's memory on the host, for one thread to compute with. It holds them.
///
/// While it is there nothing else may touch the part. Who gives parts out sees to it that a copy that writes one is done
/// before this is made, and one that reads it begins when this has ended.
#[derive(Debug)]
pub struct Numbers<T> {
    _of: Holder,
    start: *mut T,
    count: usize,
}

/// Who has the memory.
#[derive(Debug)]
enum Holder {
    Mapping { _held: Arc<Mapping> },
    Storage { _held: Held },
}

// SAFETY: plain memory that it holds; see above for who else touches it.
unsafe impl<T: Number> Send for Numbers<T> {}

impl Mapping {
    /// So many numbers from this byte on; none where there are not so many, or they would begin between two.
    pub fn numbers<T: Number>(self: &Arc<Self>, at: u64, count: u64) -> Option<Numbers<T>> {
        let bytes = count.checked_mul(size_of::<T>() as u64)?;
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.bytes());
        if !fits
            || !at.is_multiple_of(align_of::<T>() as u64)
            || matches!(self.origin, Origin::Elsewhere { .. })
        {
            return None;
        }
        let (at, count) = (usize::try_from(at).ok()?, usize::try_from(count).ok()?);
        let start = if count == 0 {
            std::ptr::NonNull::dangling().as_ptr()
        } else {
            // SAFETY: it is within what was just compared with.
            unsafe { self.start.add(at) }.cast()
        };
        Some(Numbers { _of: Holder::Mapping { _held: self.clone() }, start, count })
    }
}

impl<T: Number> Numbers<T> {
    /// So many of a storage on the host, from one on; none where there are not so many, or no tensor has it any more.
    pub fn of(storage: &Storage, first: u64, count: u64) -> Option<Self> {
        let held = storage.hold()?;
        let size = size_of::<T>() as u64;
        let end = first.checked_add(count)?.checked_mul(size)?;
        if !held.is_on_host() || end > held.bytes() || held.data().is_null() {
            return None;
        }
        let (first, count) = (usize::try_from(first).ok()?, usize::try_from(count).ok()?);
        // SAFETY: it is within what was just compared with.
        let start = unsafe { held.data().cast::<T>().add(first) };
        Some(Self { _of: Holder::Storage { _held: held }, start, count })
    }

    /// All of them.
    pub fn all(&mut self) -> &mut [T] {
        // SAFETY: they are within memory that is held, and aligned, as mappings and libtorch's allocator are; nothing else
        // touches them meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match &self.origin {
            Origin::Elsewhere { gpu, near, allocation } => return gpu.close_shared(*allocation, near),
            // SAFETY: it was pinned as it was made.
            Origin::Pinned(gpu) => unsafe { gpu.unpin(self.start) },
            Origin::Host => {}
        }
        if self.bytes > 0 {
            // SAFETY: ours, and every transfer holds it while it runs.
            let _ = unsafe { munmap(self.start.cast::<c_void>(), self.bytes) };
        }
    }
}

fn length(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))
}
