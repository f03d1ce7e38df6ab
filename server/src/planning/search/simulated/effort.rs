//! How much a request may try.

/// What is left to be tried for a request, counted in simulated passes: the same on every machine, so that an
/// answer that no deadline cut is the same for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    left: u64,
}

impl Effort {
    /// Of a request: some tenths of a second.
    pub const USUAL: u64 = 6_000_000;
    /// Of what is told besides: what a restriction costs, what would help.
    pub const BESIDES: u64 = 1_000_000;

    /// So many passes.
    pub fn new(passes: u64) -> Self {
        Self { left: passes }
    }

    /// Takes some; false, and nothing is left, where there are not so many.
    pub fn take(&mut self, passes: u64) -> bool {
        let enough = self.left >= passes;
        self.left = if enough { self.left - passes } else { 0 };
        enough
    }

    /// Whether nothing is left.
    pub fn is_spent(self) -> bool {
        self.left == 0
    }
}
