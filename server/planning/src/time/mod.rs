//! How long an iteration takes, in closed form (AMP, 3.2 and 3.3).
//!
//! | module | question | AMP |
//! |---|---|---|
//! | `links` | how long do bytes take between two devices, or around a ring of them? | 3.3 |
//! | `closed_form` | how long does a pipeline take? | eq. 4, eq. 5 |
//! | `bound` | how long does it take at least? | |
//!
//! AMP's formula prices a search in constant time per stage. It is no bound: under 1F1B a heavy early stage
//! works while the others pass micro-batches on, and under GPipe the slowest forward and the slowest backward
//! pass may be of different stages. [`bound`] is one, and [`simulate`](super::simulate) is exact.

mod bound;
mod closed_form;
mod links;

pub use bound::lower_bound;
pub use closed_form::{iteration, pipeline};
pub use links::{all_reduce, point_to_point};

/// Seconds that one micro-batch takes between two neighbouring stages.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Edge {
    /// Activations, forward.
    pub forward: f64,
    /// Their gradients, backward.
    pub backward: f64,
}

impl Edge {
    /// Activations and gradients have the same bytes, so each takes half of both.
    pub fn halves(both: f64) -> Self {
        Self { forward: both / 2.0, backward: both / 2.0 }
    }

    /// Both ways.
    pub fn both(self) -> f64 {
        self.forward + self.backward
    }
}

/// The largest of a few seconds; 0 of none.
fn most(seconds: impl Iterator<Item = f64>) -> f64 {
    seconds.fold(0.0, f64::max)
}
