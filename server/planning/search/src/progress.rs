//! Progress of a search, for callers that wait for a long one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts and values of a search, written by the thread that searches. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Cells>);

#[derive(Debug, Default)]
struct Cells {
    states: AtomicU64,
    /// Seconds as bits; 0 where there are none.
    value: AtomicU64,
    bound: AtomicU64,
}

/// What is known of a search at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Snapshot {
    /// States weighed.
    pub states: u64,
    /// Seconds of the fastest plan so far.
    pub value: Option<f64>,
    /// No plan is faster than this.
    pub bound: Option<f64>,
}

impl Progress {
    /// Counts states that were weighed.
    pub fn count(&self, states: u64) {
        let add = |sum: u64| Some(sum.saturating_add(states));
        let _ = self.0.states.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Notes a plan of so many seconds; slower ones than the fastest change nothing.
    pub fn found(&self, seconds: f64) {
        note(&self.0.value, seconds, |known| seconds < known);
    }

    /// Notes that no plan is faster; lower bounds than the highest change nothing.
    pub fn bounded(&self, seconds: f64) {
        note(&self.0.bound, seconds, |known| seconds > known);
    }

    /// What is known now.
    pub fn snapshot(&self) -> Snapshot {
        let seconds = |cell: &AtomicU64| Some(cell.load(Ordering::Relaxed)).filter(|&bits| bits != 0);
        Snapshot {
            states: self.0.states.load(Ordering::Relaxed),
            value: seconds(&self.0.value).map(f64::from_bits),
            bound: seconds(&self.0.bound).map(f64::from_bits),
        }
    }
}

/// Stores seconds above 0 where they are better than those that are known.
fn note(cell: &AtomicU64, seconds: f64, is_better: impl Fn(f64) -> bool) {
    if !seconds.is_finite() || seconds <= 0.0 {
        return;
    }
    let better = |bits: u64| (bits == 0 || is_better(f64::from_bits(bits))).then_some(seconds.to_bits());
    let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, better);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_and_bounds_rise() {
        let progress = Progress::default();
        assert_eq!(progress.snapshot(), Snapshot { states: 0, value: None, bound: None });
        for seconds in [3.0, 2.0, 2.5, f64::INFINITY, f64::NAN, 0.0] {
            progress.found(seconds);
            progress.bounded(seconds / 2.0);
            progress.count(5);
        }
        assert_eq!(progress.snapshot(), Snapshot { states: 30, value: Some(2.0), bound: Some(1.5) });
        progress.count(u64::MAX);
        assert_eq!(progress.snapshot().states, u64::MAX);
    }
}
