//! What a training in chunks was found to need and to move.

use loadmaster_proto::chunks::residency::intervals::{CopyCause, Moved};
use loadmaster_proto::measure::chunked::ChunkRun;

use crate::error::RankError;
use crate::ffi::MemoryCounts;
use crate::memory::Memory;
use crate::movement::lane::WaitCounts;
use crate::timing::median;

/// Which bytes each step needs: the highest count between two boundaries, less the payloads that are there (PatrickStar,
/// § runtime memory tracer, where a thread samples it).
#[derive(Debug)]
pub(crate) struct Trace {
    memory: Memory,
    /// `N(t)`, the most over all iterations.
    pub(super) other_bytes: Vec<u64>,
    /// `R(t)`.
    pub(super) payload_bytes: Vec<u64>,
    /// The highest counts since the last reset.
    highest: MemoryCounts,
    /// A step has begun.
    is_in_step: bool,
}

impl Trace {
    pub(super) fn new(memory: Memory, steps: usize) -> Self {
        Self {
            memory,
            other_bytes: vec![0; steps],
            payload_bytes: vec![0; steps],
            highest: MemoryCounts::default(),
            is_in_step: false,
        }
    }

    /// The step before a boundary is over.
    pub(crate) fn step_is_over(&mut self, boundary: usize) -> Result<(), RankError> {
        let counts = self.look()?;
        if self.is_in_step
            && let Some(step) = boundary.checked_sub(1)
        {
            let payloads = self.payload_bytes.get(step).copied().unwrap_or(0);
            if let Some(most) = self.other_bytes.get_mut(step) {
                *most = (*most).max(counts.allocated_peak.saturating_sub(payloads));
            }
        }
        self.is_in_step = false;
        Ok(())
    }

    /// All that happens at a boundary has happened.
    pub(crate) fn step_begins(&mut self) -> Result<(), RankError> {
        self.look()?;
        self.is_in_step = true;
        self.memory.reset_peak()
    }

    fn look(&mut self) -> Result<MemoryCounts, RankError> {
        let counts = self.memory.counts()?;
        self.highest.allocated_peak = self.highest.allocated_peak.max(counts.allocated_peak);
        self.highest.reserved_peak = self.highest.reserved_peak.max(counts.reserved_peak);
        Ok(counts)
    }

    /// The highest counts since the last reset.
    pub(crate) fn highest(&mut self) -> Result<MemoryCounts, RankError> {
        self.look()?;
        Ok(self.highest)
    }

    /// Forgets them.
    pub(super) fn reset(&mut self) {
        self.highest = MemoryCounts::default();
    }
}

/// What copies moved, and who waited for them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Bytes in the iteration so far, and in the last whole one.
    now: Moved,
    last: Moved,
    /// Waits for what comes, and for what leaves.
    pub(super) came: WaitCounts,
    pub(super) left: WaitCounts,
    /// Seconds of each iteration in which chunks were updated.
    updating: Vec<f64>,
}

impl Counts {
    pub(super) fn copied(&mut self, cause: CopyCause, bytes: u64) {
        self.now.copied(cause, bytes);
    }

    /// Bytes came from other ranks, which own them.
    pub(super) fn gathered(&mut self, bytes: u64) {
        self.now.gathered += bytes;
    }

    /// Gradients went to the ranks that own their parameters.
    pub(super) fn scattered(&mut self, bytes: u64) {
        self.now.scattered += bytes;
    }

    /// An iteration is over.
    pub(super) fn end_iteration(&mut self, updating_seconds: f64) -> Result<(), RankError> {
        self.last = std::mem::take(&mut self.now);
        self.updating.push(updating_seconds);
        self.came.end_iteration()?;
        self.left.end_iteration()
    }

    /// What was counted, as far as it is known here.
    pub(super) fn told(&self, trace: &Trace) -> Result<ChunkRun, RankError> {
        Ok(ChunkRun {
            other_bytes: trace.other_bytes.clone(),
            payload_bytes: trace.payload_bytes.clone(),
            fetch_seconds: self.came.seconds()?,
            leave_seconds: self.left.seconds()?,
            step_seconds: median(&self.updating),
            ..ChunkRun::moving(&self.last)
        })
    }
}
