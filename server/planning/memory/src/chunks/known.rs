//! What is found out once for each number of chunks on the device.

use std::cell::RefCell;

/// Seconds by the number of chunks on the device: a dozen of them, at most.
#[derive(Debug, Clone, Default)]
pub(super) struct Known(RefCell<Vec<(usize, f64)>>);

impl Known {
    /// What is known for so many, or else what is found out now.
    pub(super) fn of(&self, on_device: usize, find: impl FnOnce() -> f64) -> f64 {
        let known = self.0.borrow().iter().find(|(count, _)| *count == on_device).map(|of| of.1);
        known.unwrap_or_else(|| {
            let found = find();
            self.0.borrow_mut().push((on_device, found));
            found
        })
    }
}
