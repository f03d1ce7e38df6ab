//! Copies between the memory of tensors and other memory, on any thread or in a queue of a GPU.

use std::sync::Arc;

use cudarc::driver::{CudaStream, sys};

use super::gpu::GpuFailure;
use super::{Held, Mapping, Storage};
use crate::movement::chunks::lists::{Bf16, round_all};

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
/// Until it is done, nothing may write what it reads or touch what it writes. The boundary that begins it lies behind the
/// step that wrote the storage. The boundary that waits for it lies before the next step that uses either, or before the
/// memory is freed.
#[derive(Debug)]
pub struct Transfer {
    _held: Held,
    _mapping: Arc<Mapping>,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
    /// What is read are numbers in fp32, and what is written the same in bf16.
    rounds: bool,
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
        let (device, other) = unsafe { (held.data().add(offset), mapping.start().add(at)) };
        let (from, to) = match direction {
            Direction::Out => (device, other),
            Direction::Back => (other, device),
        };
        Some(Self { _held: held, _mapping: mapping.clone(), from, to, bytes, rounds: false })
    }

    /// To the `bytes` at `offset` of a storage, in bf16, from as many numbers in fp32 at `at` of a mapping. On the host's
    /// threads alone: a queue of a GPU only copies.
    pub fn rounding(
        storage: &Storage,
        (offset, bytes): (u64, u64),
        mapping: &Arc<Mapping>,
        at: u64,
    ) -> Option<Self> {
        let transfer = Self::new(storage, (offset, bytes), mapping, at, Direction::Back)?;
        let fits = at.checked_add(bytes)?.checked_add(bytes)? <= mapping.bytes();
        let are_whole = bytes.is_multiple_of(2) && offset.is_multiple_of(2) && at.is_multiple_of(4);
        (fits && are_whole).then_some(Self { rounds: true, ..transfer })
    }

    /// All its bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies at most so many of them, those behind the first `done`. Returns how many.
    pub fn advance(&mut self, done: usize, most: usize) -> usize {
        let count = most.min(self.bytes.saturating_sub(done));
        if self.rounds {
            return self.round(done, count);
        }
        if count > 0 {
            // SAFETY: both ranges are within memory that is held, and one is a tensor's, the other a pool's.
            unsafe { std::ptr::copy_nonoverlapping(self.from.add(done), self.to.add(done), count) };
        }
        count
    }

    /// Whole numbers alone.
    fn round(&mut self, done: usize, most: usize) -> usize {
        const BYTES: usize = size_of::<Bf16>();
        let count = most.max(BYTES) / BYTES;
        let count = count.min(self.bytes.saturating_sub(done) / BYTES);
        // SAFETY: both ranges are within memory that is held, one is a tensor's, the other a pool's, and they begin where
        // numbers do: storages and pools are aligned.
        let (from, to) = unsafe {
            (
                std::slice::from_raw_parts(self.from.add(2 * done).cast::<f32>(), count),
                std::slice::from_raw_parts_mut(self.to.add(done).cast::<Bf16>(), count),
            )
        };
        round_all(from, to, 1);
        count * BYTES
    }

    /// Asks a queue of a GPU to copy all of it. What it is asked for must be waited for before this ends.
    pub(super) fn enqueue(&self, stream: &CudaStream) -> Result<(), GpuFailure> {
        let (to, from) = (self.to as u64, self.from as u64);
        // SAFETY: both ranges are within memory that is held, which the GPU reaches: it is its own, pinned or a peer's.
        Ok(unsafe { sys::cuMemcpyAsync(to, from, self.bytes, stream.cu_stream()) }.result()?)
    }
}
