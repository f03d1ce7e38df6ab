//! Seconds of a pipeline stage, in which all crates of planning measure time.

/// Seconds on the slowest device of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Seconds {
    /// Forward pass of one micro-batch, collectives included.
    pub forward: f64,
    /// Backward pass of one micro-batch, recomputation and collectives included.
    pub backward: f64,
    /// Once per iteration: gradient synchronisation and optimizer step.
    pub step: f64,
}

impl Seconds {
    /// Both passes of one micro-batch.
    pub fn passes(self) -> f64 {
        self.forward + self.backward
    }
}
