//! The end of a search: a flag that any thread may set, an effort in units of work, and the result.
//!
//! Effort counts work, not seconds, so it ends a search at the same plan on every machine. A deadline sets the flag; the search
//! then returns its best plan and the gap to its bound. Only a search that the flag ended may return another plan when it is
//! repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::places::PlacedStage;
use super::progress::Progress;

/// A flag that searches look at every few thousand states, and the work that they may yet do. The caller sets the flag at
/// its deadline. Work is counted in units of about ten nanoseconds, the same on every machine: what effort ends, ends
/// everywhere at the same plan.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// None where work has no limit.
    left: Option<Arc<AtomicU64>>,
    progress: Progress,
}

impl Stop {
    /// A flag of a search that reports its progress.
    pub fn reporting(progress: Progress) -> Self {
        Self { progress, ..Self::default() }
    }

    /// The progress of the search.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The same flag, with an effort of its own.
    #[must_use]
    pub fn within(&self, effort: u64) -> Self {
        Self {
            asked: Arc::clone(&self.asked),
            left: Some(Arc::new(AtomicU64::new(effort))),
            progress: self.progress.clone(),
        }
    }

    /// The same flag and effort, of a search whose progress is not reported.
    #[must_use]
    pub fn unreported(&self) -> Self {
        Self { progress: Progress::default(), ..self.clone() }
    }

    /// Asks the search to end with the best that it has.
    pub fn request(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked.
    pub fn is_requested(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Takes work from the effort; false, and nothing is left, where there is not so much. One thread searches, so
    /// nothing is taken in between.
    pub fn take(&self, work: u64) -> bool {
        let Some(left) = &self.left else { return true };
        let rest = left.load(Ordering::Relaxed).checked_sub(work);
        left.store(rest.unwrap_or(0), Ordering::Relaxed);
        rest.is_some()
    }

    /// The work that is left; [`u64::MAX`] where it has no limit.
    pub fn left(&self) -> u64 {
        self.left.as_ref().map_or(u64::MAX, |left| left.load(Ordering::Relaxed))
    }

    /// Whether nothing is left of the effort.
    pub fn is_spent(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }

    /// Whether the search has to end.
    pub fn is_over(&self) -> bool {
        self.is_requested() || self.is_spent()
    }

    /// How a search ends that this ends.
    pub fn ended(&self) -> Ended {
        if self.is_requested() { Ended::Stopped } else { Ended::Bounded }
    }
}

/// A plan that was found: its stages in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment<V> {
    /// The stages, first to last.
    pub stages: Vec<PlacedStage>,
    /// What it is worth, in the objective's terms; less is better.
    pub value: V,
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Nothing better exists, or nothing at all.
    Proven,
    /// The flag stopped it; the bound says how much better a plan may exist.
    Stopped,
    /// The space is too large to look at whole; the bound says how much better a plan may exist.
    Bounded,
}

impl Ended {
    /// How two searches ended together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Stopped, _) | (_, Self::Stopped) => Self::Stopped,
            (Self::Bounded, _) | (_, Self::Bounded) => Self::Bounded,
            (Self::Proven, Self::Proven) => Self::Proven,
        }
    }
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Searched<V> {
    /// The best plan; none where there is none, or none was found before the search was stopped.
    pub best: Option<Assignment<V>>,
    /// No plan is better than this; equal to the best's value where that is proven. None where even that is
    /// not known.
    pub bound: Option<V>,
    /// States weighed.
    pub states: u64,
    /// How it ended.
    pub ended: Ended,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Effort ends a search as a limit of its space does, and a request as a stop; each ends its own children alone.
    #[test]
    fn a_request_ends_all_and_effort_its_own() {
        let all = Stop::default();
        let one = all.within(10);
        assert!(one.take(9) && !one.is_over());
        assert_eq!((one.left(), all.left()), (1, u64::MAX));
        assert!(!one.take(2));
        assert_eq!((one.is_spent(), one.is_over(), one.ended()), (true, true, Ended::Bounded));
        assert!(all.take(u64::MAX) && !all.is_over() && !all.within(1).is_over());
        one.request();
        assert_eq!((all.is_over(), all.ended()), (true, Ended::Stopped));
    }
}
