//! How fast a thread may copy.

use std::time::{Duration, Instant};

/// Bytes that are copied between two looks at the clock.
const CHUNK: usize = 1 << 20;
/// A chunk takes no longer than this where copies have a pace.
const CHUNK_SECONDS: f64 = 0.002;

/// Keeps a copy from being faster than its way.
pub(crate) struct Pace {
    begin: Instant,
    bytes_per_second: Option<f64>,
    /// Bytes between two looks at the clock. A block may be hundreds of small tensors, and who sleeps for each of them
    /// sleeps longer than all of them take.
    chunk: usize,
    /// Bytes since the last look.
    ahead: usize,
    copied: u64,
}

impl Pace {
    /// A copy that begins now.
    pub(crate) fn begin(bytes_per_second: Option<f64>) -> Self {
        let chunk = bytes_per_second.map_or(CHUNK, |pace| CHUNK.min((pace * CHUNK_SECONDS) as usize).max(1));
        Self { begin: Instant::now(), bytes_per_second, chunk, ahead: 0, copied: 0 }
    }

    /// Bytes until the next look at the clock.
    pub(crate) fn next(&self) -> usize {
        self.chunk - self.ahead
    }

    /// So many bytes more are copied.
    pub(crate) fn goes_on(&mut self, bytes: usize) {
        self.ahead += bytes;
        self.copied += bytes as u64;
        if self.ahead >= self.chunk {
            self.holds();
        }
    }

    /// Waits until the way would have let all of it through.
    pub(crate) fn holds(&mut self) {
        self.ahead = 0;
        if let Some(pace) = self.bytes_per_second {
            let due = Duration::try_from_secs_f64(self.copied as f64 / pace).unwrap_or(Duration::MAX);
            std::thread::sleep(due.saturating_sub(self.begin.elapsed()));
        }
    }
}
