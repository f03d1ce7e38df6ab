//! What a search answers.

use super::places::PlacedStage;

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
    /// It was told to stop; the bound says how much better a plan may exist.
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
