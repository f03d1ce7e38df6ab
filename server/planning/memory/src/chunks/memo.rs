//! Costs and seconds that are computed once.

use std::cell::RefCell;

use super::question::{PassChoice, Passes, StepCosts};
use loadmaster_predict::PredictionError;

/// Passes that remember what they said.
#[derive(Debug)]
pub struct PassesMemo<P> {
    passes: P,
    /// As many as there are choices of passes: a few dozens.
    known: RefCell<Vec<(PassChoice, Result<StepCosts, PredictionError>)>>,
}

impl<P: Passes> PassesMemo<P> {
    /// Nothing was asked so far.
    pub fn new(passes: P) -> Self {
        Self { passes, known: RefCell::default() }
    }
}

impl<P: Passes> Passes for PassesMemo<P> {
    fn costs(&self, of: PassChoice) -> Result<StepCosts, PredictionError> {
        let known =
            self.known.borrow().iter().find(|(known, _)| *known == of).map(|(_, costs)| costs.clone());
        known.unwrap_or_else(|| {
            let costs = self.passes.costs(of);
            self.known.borrow_mut().push((of, costs.clone()));
            costs
        })
    }
}

/// Seconds by the number of chunks on the device: a dozen of them, at most.
#[derive(Debug, Clone, Default)]
pub(super) struct SecondsMemo(RefCell<Vec<(usize, f64)>>);

impl SecondsMemo {
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
