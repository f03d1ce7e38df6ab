//! Costs that are asked for once, where several questions differ in memory alone.

use std::cell::RefCell;

use super::question::{PassChoice, Passes, StepCosts};
use loadmaster_predict::PredictionError;

/// Passes that remember what they said.
#[derive(Debug)]
pub struct Remembered<P> {
    passes: P,
    /// As many as there are choices of passes: a few dozens.
    known: RefCell<Vec<(PassChoice, Result<StepCosts, PredictionError>)>>,
}

impl<P: Passes> Remembered<P> {
    /// Nothing was asked so far.
    pub fn new(passes: P) -> Self {
        Self { passes, known: RefCell::default() }
    }
}

impl<P: Passes> Passes for Remembered<P> {
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
