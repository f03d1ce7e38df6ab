//! Errors of predictions, and the calibration factors that follow from them.
//!
//! A trial or an observation of a plan gives *pairs* of a predicted and a measured figure. [`errors()`] summarizes their
//! differences. [`Corrections`] computes one factor for each kind of device, predictor and quantity that a factor may correct:
//! the median ratio, from three plans on. A request must ask for factors. A plan that uses them stores their version and reasons.
//! Bytes of different memory accountings (allocated, reserved, device) are different quantities, and are never compared.
//!
//! A pair holds the prediction as the predictor made it. The factor of a calibrated plan is removed first: a factor that was
//! computed from calibrated figures would cancel itself. Seconds of trials that other processes disturbed are shown and flagged,
//! but give no factor.

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
