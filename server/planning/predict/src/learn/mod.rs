//! How right predictions were, and what to multiply them with.
//!
//! A trial or an observation of a plan gives *pairs*: a figure as it was predicted and as it was measured.
//! [`errors()`] says how far apart they are; [`Corrections`] learns a factor from them for each kind of
//! device, predictor and quantity that a factor may mend. Bytes of two ledgers are different quantities: they are
//! never compared, and what one teaches says nothing about the other.
//!
//! A pair holds the prediction as the predictor made it. Where a plan was corrected, its factor is taken out
//! again: a factor that was learnt from corrected figures would undo itself.

pub mod best_trial;
mod errors;
mod factor;
mod of_copies;
mod of_plan;
mod pairs;
#[cfg(test)]
mod tests;

pub use errors::{ErrorStatistics, errors};
pub use factor::{Correction, Corrections, LEAST_PLANS, METHOD};
pub use of_plan::{error_ratio, pairs};
pub use pairs::{Link, Pair, Quantity, Subject};
