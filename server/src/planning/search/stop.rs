//! Stopping a search from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that searches look at every few thousand states. Whoever keeps the time sets it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the search to end with the best that it has.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
