//! What a search for criteria came to.

use super::candidate::Candidate;
use super::ranking::Ranking;
use crate::problem::Variant;

/// Most devices or micro-batches that are named as not looked at whole.
pub(crate) const MOST_NAMED: usize = 8;

/// What a search for criteria came to.
#[derive(Debug, Clone)]
pub(crate) struct Solution {
    /// Plans, best first.
    pub candidates: Vec<Candidate>,
    /// The best one's value in the objective's terms; none without a plan.
    pub value: Option<f64>,
    /// No plan has a better value; none where nothing is known.
    pub bound: Option<f64>,
    /// States weighed.
    pub states: u64,
    /// Whether it was stopped from outside.
    pub is_stopped: bool,
    /// Whether part of the space was too large to look at whole.
    pub is_bounded: bool,
    /// What was looked at before the best and has no plan: for people, with the value that it would have had.
    pub passed_over: Vec<(String, f64)>,
    /// What was not looked at whole, and may have a better plan: for people.
    pub open: Vec<String>,
    /// Variants of which no plan fits, of the devices and the batch that the best plan is on.
    pub unfit: Vec<Variant>,
}

impl Solution {
    pub(crate) fn of(ranking: Ranking, value: Option<f64>, bound: Option<f64>) -> Self {
        Self {
            candidates: ranking.candidates,
            value,
            bound,
            states: ranking.states,
            is_stopped: ranking.is_stopped,
            is_bounded: ranking.is_bounded,
            passed_over: Vec::new(),
            open: Vec::new(),
            unfit: ranking.unfit,
        }
    }

    /// Whether the best plan is proven best.
    pub(crate) fn is_proven(&self) -> bool {
        !self.is_stopped && !self.is_bounded && self.value.is_some()
    }
}
