//! Exports against files that were written by hand and taken by the launchers themselves, and random plans.

mod documents;
mod golden;
mod random;
mod reasons;
mod refused;
