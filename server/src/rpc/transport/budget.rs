//! Bytes that callers may make the planner keep.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes, part of which is taken.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    taken: AtomicUsize,
}

impl Budget {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicUsize::new(0) })
    }

    fn take(&self, bytes: usize) -> bool {
        let add = |taken: usize| taken.checked_add(bytes).filter(|&sum| sum <= self.most);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::AcqRel);
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }
}

/// Bytes taken from several budgets at once, given back on drop.
#[derive(Debug)]
pub(super) struct Charge {
    budgets: [Arc<Budget>; 3],
    bytes: usize,
}

impl Charge {
    /// No bytes yet.
    pub(super) fn new(budgets: [Arc<Budget>; 3]) -> Self {
        Self { budgets, bytes: 0 }
    }

    /// Holds `bytes` altogether; less than before is given back.
    ///
    /// Returns whether there was room; if not, the charge is what it was.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes {
            let less = self.bytes - bytes;
            self.budgets.iter().for_each(|budget| budget.give_back(less));
            self.bytes = bytes;
            return true;
        }
        let more = bytes - self.bytes;
        for (index, budget) in self.budgets.iter().enumerate() {
            if !budget.take(more) {
                self.budgets.iter().take(index).for_each(|budget| budget.give_back(more));
                return false;
            }
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budgets.iter().for_each(|budget| budget.give_back(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_holds_all_or_nothing_and_gives_back_what_it_held() {
        let budgets = [Budget::new(10), Budget::new(100), Budget::new(12)];
        let taken = || budgets.each_ref().map(|budget| budget.taken());
        let mut first = Charge::new(budgets.clone());
        assert!(first.hold(8));
        let mut second = Charge::new(budgets.clone());
        assert!(!second.hold(3), "the first budget has 2 left");
        assert_eq!(taken(), [8, 8, 8]);
        assert!(second.hold(2) && first.hold(1));
        assert_eq!(taken(), [3, 3, 3]);
        drop(first);
        drop(second);
        assert_eq!(taken(), [0, 0, 0]);
        assert!(!Charge::new(budgets).hold(usize::MAX));
    }
}
