//! What a plan is asked to be, what it is predicted to need, and what it needed when it was trained.

pub mod constraints;
pub mod objective;
pub mod observation;
pub mod prediction;
